"""
From a table to a saved model
=============================

One story, from a table of episodes to a model with intervals, chosen settings, a report and a saved file. A firm has
200 machines. Every day it reads the sensors of each of them. How many days will each machine still run?

Download the code at the end of the page, and replace the table by yours.
"""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lstd
from lstd import LSTD, LSTDCV, Trajectories
from lstd.datasets import load_machines
from lstd.metrics import calibration, observed_returns
from lstd.report import plot_blocks, plot_coefficients, plot_grid, plot_predictions, write_fit_report

# %%
# The table
# ---------
#
# A row is a machine on a day. The load, the vibration and the temperature are known when the day begins. The reward is
# the time that it then runs: a day, or half a day if it fails. The others still run, so their last row has no reward.
# The table is simulated, so the truth is known: the expected days that each machine will still run.

table, truth = load_machines(return_truth=True)
table["heavy"] = (table["load"] == "heavy").astype(int)  # the model takes numbers
table.groupby("machine").tail(1).head(4)

# %%
# ``from_frame`` checks the table. It keeps two kinds of end apart: a machine that failed runs no more; for one that
# still runs, the days after the last row are not known, and the model must predict them.

columns = {"reward": "days", "episode": "machine", "terminated": "failed", "time": "day"}
names = ["heavy", "vibration", "temperature"]
data = Trajectories.from_frame(table, features=names, **columns)
print(data.n_episodes, "machines,", data.n_transitions, "days,", int(data.terminated.sum()), "machines failed")

# %%
# Hold some machines out, to test on machines that the model has not seen.


def split(table, names):
    """Return the rows of the first 140 machines, and those of the others."""
    data = Trajectories.from_frame(table, features=names, **columns)
    return [data[some].to_arrays(frame="pandas") for some in (data.episode < 140, data.episode >= 140)]


train, test = split(table, names)

# %%
# A first model
# -------------
#
# No day counts less than another, so the discount is 1. Here is the prediction for a machine under heavy load that
# vibrates much:

model = LSTD(gamma=1.0, lmbda=0.9, alpha=1.0).fit(**train)
machine = pd.DataFrame({"heavy": [1], "vibration": [4.0], "temperature": [68]})
interval = model.predict_interval(machine)
print(f"{interval.prediction[0]:.1f} days, from {interval.lower[0]:.1f} to {interval.upper[0]:.1f}")

# %%
# The interval is for the average of such machines. It is not the range in which the days of one machine will lie. What
# does the model say about each feature?

model.summary()

# %%
# The figure shows the same coefficients. Does a single block of machines decide the prediction?

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
plot_coefficients(model, ax=left)
_ = plot_blocks(model, machine, ax=right)

# %%
# Settings from the data
# ----------------------
#
# λ and α were a guess. ``LSTDCV`` chooses them by cross-validation over machines, and checks the model afterwards.


def choose(rows):
    """Fit with chosen settings, and print what the checks say."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LSTDCV(gamma=1.0).fit(**rows)
    print(f"λ = {model.lmbda_}, α = {model.alpha_:.3g}; {model.observed_share_:.0%} of the returns observed")
    print(*(warning.message for warning in caught), sep="\n")
    return model


model = choose(train)

# %%
# The check is right: days to go are a curve in vibration, and another one under heavy load. So add the square, and
# products with the load. :doc:`/guide/features` shows how scikit-learn makes such features.

table["square"] = table["vibration"] ** 2
for name in ("vibration", "square"):
    table[f"{name}, heavy"] = table[name] * table["heavy"]
names += ["square", "vibration, heavy", "square, heavy"]
train, test = split(table, names)
model = choose(train)

# %%
# The error over the grid shows how much the choice matters.

figure = plot_grid(model.cv_results_, model.lmbda_, model.alpha_)[0].figure

# %%
# How good is it?
# ---------------
#
# First, R² on the machines that were held out: 0 means as good as the best constant. Then the mean days in five groups
# of rows, from low to high predictions.

print(f"R² {model.score(**test):.3f}")
predicted = model.predict(test["X"])
ends = {"episode": test["episode"], "terminated": test["terminated"]}
returns = observed_returns(test["y"], gamma=1.0, prediction=predicted, **ends)
groups = calibration(predicted, returns, n_bins=5, groups=test["episode"])
fig, ax = plt.subplots(figsize=(5, 4))
ax.errorbar(groups.predicted, groups.observed, 2 * groups.standard_error, fmt="o", capsize=3, label="machines held out")
ax.axline((10, 10), slope=1, color="gray", ls=":", label="as predicted")
ax.axhline(
    np.average(returns.returns, weights=returns.weight), color="0.5", ls="--", label="baseline: one mean for all"
)
ax.set(xlabel="predicted days", ylabel="days, completed at cuts")
_ = ax.legend()

# %%
# Predictions over time, with intervals, for the first machines:

figure = plot_predictions(model, **test)[0].figure

# %%
# Use it
# ------
#
# How long will each machine that runs today still run, and all of them together? Here is the truth beside it.

today = table[table["days"].isna()]
interval = model.predict_interval(today[names])
true = truth.loc[today.index, "value"]
answer = today[["machine", "load", "vibration"]].assign(
    days=interval.prediction, low=interval.lower, high=interval.upper, truth=true
)
total = model.predict_interval(today[names], weights=np.ones(len(today)))
print(f"{len(today)} machines: {total.prediction:.0f} days, from {total.lower:.0f} to {total.upper:.0f}")
held, off = np.mean((interval.lower <= true) & (true <= interval.upper)), np.sqrt(np.mean((answer["days"] - true) ** 2))
print(f"truth: {true.sum():.0f} days; {held:.0%} of the intervals hold it; predictions are off by {off:.1f} days")
answer.sort_values("days").head(5).round(1)

# %%
# Report and file
# ---------------
#
# The report is one HTML page with the figures and checks. The file holds the model and nothing executable.

write_fit_report("report.html", model, **test)
model.save("machines.lstd")
again = lstd.load("machines.lstd")
print(
    f"report: {Path('report.html').stat().st_size // 1000} kB, model: {Path('machines.lstd').stat().st_size // 1000} kB"
)
print("the same predictions:", np.array_equal(again.predict(today[names]), interval.prediction))

# %%
# Next: :doc:`/guide/intervals` says what the intervals are for, :doc:`/guide/large-data` fits files that are larger
# than memory, and :doc:`/guide/nightly` adds up a file every night.

for name in ("report.html", "machines.lstd"):
    Path(name).unlink()
