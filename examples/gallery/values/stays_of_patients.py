"""
Several stays of one patient: groups
====================================

A table of stays in hospital, with several stays per patient, some still going on. What will a patient's stay still
cost? Stays of one patient are alike, so they are not independent. With ``groups``, intervals allow for that. The
baseline is the interval that treats all stays as independent.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lstd import LSTD, Trajectories


def stays(n_patients, seed):
    """Draw a table of days; a patient has 10 to 30 stays, some of which last until today."""
    random, rows = np.random.default_rng(seed), []
    for patient in range(n_patients):
        costly = random.lognormal(0, 0.4)
        for admitted in random.integers(10**15, size=random.integers(10, 31)):  # identifies the stay
            severity, until = random.integers(1, 5), random.integers(3, 40)  # still there after `until` days: cut off
            for day in range(until + 1):
                known = {"patient": patient, "stay": admitted, "severity": severity}
                if day == until:
                    rows.append(known | {"cost": None, "home": False})
                    break
                better = random.random() < 0.6
                home = better and severity == 1
                rows.append(known | {"cost": 10 * costly * severity, "home": home})
                if home:
                    break
                severity -= better
    return pd.DataFrame(rows).sort_values("stay", kind="stable")  # in the order of admission, as such tables are


# %%
# It takes one more argument: ``groups="patient"``.

features = [f"severity{k}" for k in range(1, 5)]


def fit(table, **columns):
    """Fit a model with one feature per degree of severity."""
    table = table.assign(**{name: table["severity"] == k for k, name in enumerate(features, start=1)})
    names = {"features": features, "reward": "cost", "episode": "stay", "terminated": "home"}
    data = Trajectories.from_frame(table, **names, **columns)
    return LSTD(gamma=0.97, lmbda=1.0, alpha=0.1).fit(**data.to_arrays())


# %%
# Forty hospitals of 50 patients each, and one of 3000 patients, which stands for the truth. How many of the 95 %
# intervals contain it?

truth = fit(stays(3000, seed=1000)).predict(np.eye(4))
hospitals = [stays(50, seed) for seed in range(40)]
fig, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharey=True, layout="constrained")
for ax, (title, columns) in zip(
    axes, {"baseline: stays as independent": {}, 'groups="patient"': {"groups": "patient"}}.items(), strict=True
):
    held = []
    for hospital, table in enumerate(hospitals):
        interval = fit(table, **columns).predict_interval(np.eye(4)[[2]])
        low, high = interval.lower[0], interval.upper[0]
        held.append(low <= truth[2] <= high)
        ax.plot([low, high], [hospital, hospital], color="#0072B2" if held[-1] else "#8A8A8A", lw=2)
    ax.axvline(truth[2], color="k", lw=1)
    ax.set(xlabel="cost still to come at severity 3, in money", title=f"{title}: {np.mean(held):.0%} hold the truth")
    print(f"{title}: {np.mean(held):.0%} of 95 % intervals hold the truth")
_ = axes[0].set_ylabel("hospital; the black line is the truth, grey intervals miss it")

# %%
# **Where it fails.** Intervals with groups are right on average. With fewer than about ten patients, they say
# `little_data`: too few independent people support the prediction.
