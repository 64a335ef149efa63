"""
From a table to a saved model
=============================

One story, from a table of episodes to a model with intervals, chosen settings, a report and a saved file. A firm runs
400 delivery vans. Every week it writes down what it spent on the repairs of each van. How much will each van still
cost?

Download the code at the end of the page, and replace the table by yours.
"""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lstd
from lstd import LSTD, LSTDCV, Trajectories
from lstd.metrics import calibration, observed_returns
from lstd.report import plot_blocks, plot_coefficients, plot_grid, plot_predictions, write_fit_report

# %%
# The table
# ---------
#
# A row is a van in a week. Age, driven distance and the number of warning lights are known when the week begins. The
# cost of the week's repairs is the reward. Some vans are retired: nothing more is spent on them. The others are still
# in use, so their last row has no cost yet.


def fleet(n_vans=400, n_weeks=150, seed=4):
    """Draw a table of vans and weeks."""
    random, rows = np.random.default_rng(seed), []
    for van in range(n_vans):
        wear, lights, start = random.gamma(8.0, 1 / 8), 0, random.integers(n_weeks - 5)
        for week in range(start, n_weeks + 1):
            age = week - start
            known = {"van": van, "week": week, "age": age / 50, "driven": round(age * wear / 50, 3), "lights": lights}
            if week == n_weeks:
                rows.append(known | {"cost": None, "retired": False})
                break
            broken = random.random() < 0.01 + 0.03 * age * wear / 50 + 0.1 * lights
            cost = round(random.gamma(4.0, 100.0), 2) if broken else 0.0
            retired = random.random() < 0.0002 * age
            rows.append(known | {"cost": cost, "retired": retired})
            lights = 0 if broken else min(lights + (random.random() < 0.02 * wear * age / 25), 3)
            if retired:
                break
    return pd.DataFrame(rows)


table = fleet()
table.groupby("van").tail(1).head(4)

# %%
# ``from_frame`` checks the table. It keeps two kinds of end apart: a retired van costs nothing more; for a van in use,
# the cost after the last row is not known, and the model must predict it.

features = ["age", "driven", "lights"]
columns = {"reward": "cost", "episode": "van", "terminated": "retired"}
data = Trajectories.from_frame(table, features=features, **columns)
print(data.n_episodes, "vans,", data.n_transitions, "weeks,", int(data.terminated.sum()), "vans retired")

# %%
# Keep some vans back, to test on vans that the model has not seen.

train = data[data.episode < 300].to_arrays(frame="pandas")
test = data[data.episode >= 300].to_arrays(frame="pandas")

# %%
# A first model
# -------------
#
# With a discount of 0.97 per week, a cost in half a year counts 0.45 times as much as one today. Here is the prediction
# for a van of 100 weeks with two warning lights:

model = LSTD(gamma=0.97, lmbda=0.9, alpha=1.0).fit(**train)
van = pd.DataFrame({"age": [2.0], "driven": [2.0], "lights": [2]})
interval = model.predict_interval(van)
print(f"{interval.prediction[0]:.0f}, from {interval.lower[0]:.0f} to {interval.upper[0]:.0f}")

# %%
# The interval is for the average of such vans. It is not the range in which the cost of one van will lie. What does the
# model say about each feature?

model.summary()

# %%
# The figure shows the same coefficients. Does a single block of vans decide the prediction?

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
plot_coefficients(model, ax=left)
_ = plot_blocks(model, van, ax=right)

# %%
# Settings from the data
# ----------------------
#
# λ and α were a guess. ``LSTDCV`` chooses them by cross-validation over vans, and checks the model after its choice.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = LSTDCV(gamma=0.97).fit(**train)
print(f"λ = {model.lmbda_}, α = {model.alpha_:.3g}; {model.observed_share_:.0%} of the returns observed")
print("biased by bootstrapping:", model.bias_check_.biased, "; features miss something:", model.misfit_check_.misfit)
for warning in caught:
    print(warning.message)

# %%
# The error over the grid shows how much the choice matters.

figure = plot_grid(model.cv_results_, model.lmbda_, model.alpha_)[0].figure

# %%
# How good is it?
# ---------------
#
# First, R² on the vans that were kept back: 0 means as good as the best constant. Then the mean cost in five groups of
# weeks, from low to high predictions. Costs are noisy, so R² is small even for the best model; the groups say more.

print(f"R² {model.score(**test):.3f}")
predicted = model.predict(test["X"])
ends = {"episode": test["episode"], "terminated": test["terminated"]}
returns = observed_returns(test["y"], gamma=0.97, prediction=predicted, **ends)
groups = calibration(predicted, returns, n_bins=5, groups=test["episode"])
fig, ax = plt.subplots(figsize=(5, 4))
ax.errorbar(groups.predicted, groups.observed, 2 * groups.standard_error, fmt="o", capsize=3, label="vans kept back")
ax.axline((1000, 1000), slope=1, color="gray", ls=":", label="as predicted")
ax.axhline(
    np.average(returns.returns, weights=returns.weight), color="0.5", ls="--", label="baseline: one mean for all"
)
ax.set(xlabel="predicted cost", ylabel="cost, completed at cuts")
_ = ax.legend()

# %%
# Predictions over time, with intervals, for the first vans:

figure = plot_predictions(model, **test)[0].figure

# %%
# Use it
# ------
#
# What will each van that is in use today still cost, and what will all of them cost together?

today = table[table["week"] == 150]
interval = model.predict_interval(today[features])
answer = today[["van", *features]].assign(
    cost=interval.prediction.round(), low=interval.lower.round(), high=interval.upper.round()
)
total = model.predict_interval(today[features], weights=np.ones(len(today)))
print(f"{len(today)} vans: {total.prediction:,.0f}, from {total.lower:,.0f} to {total.upper:,.0f}")
answer.sort_values("cost", ascending=False).head(5)

# %%
# Report and file
# ---------------
#
# The report is one HTML page with the figures and checks. The file holds the model and nothing executable.

write_fit_report("report.html", model, **test)
model.save("vans.lstd")
again = lstd.load("vans.lstd")
print(f"report: {Path('report.html').stat().st_size // 1000} kB, model: {Path('vans.lstd').stat().st_size // 1000} kB")
print("the same predictions:", np.array_equal(again.predict(today[features]), interval.prediction))

# %%
# Next: :doc:`/guide/intervals` says what the intervals are for, :doc:`/guide/large-data` fits files that are larger
# than memory, and :doc:`/guide/nightly` adds up a file every night.

for name in ("report.html", "vans.lstd"):
    Path(name).unlink()
