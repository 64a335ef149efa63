"""
Remaining life at every visit: survival, censoring, churn
=========================================================

How many of the next five years will a patient live, or a customer stay, given what the last visit showed? Most of the
patients are still alive when they are seen for the last time. The table is simulated, so the true answer is known. The
baseline is the mean over the visits whose next five years are known: those of patients who died, or were seen for five
years more.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lstd import HorizonLSTD
from lstd.datasets import load_patients

# %%
# A row is a visit, every half-year, with a marker and whether the patient takes a drug. Its reward is the time that the
# patient lives until the next visit. The last row of those who are alive has none: what follows is predicted there.

table, truth = load_patients(return_truth=True)
print(table.groupby("patient").tail(1).head(3).to_string(index=False))

# %%
# The years are a curve in the marker, so its square is a feature, too. Ten half-years are five years.


def features(table):
    """Return the features of visits."""
    return table[["marker", "drug"]].assign(square=table["marker"] ** 2)


model = HorizonLSTD(10, lmbda="auto", alpha="auto", low=0.0, high=5.0)
_ = model.fit(features(table), table["lived"], episode=table["patient"], terminated=table["died"])

# %%
# The baseline knows the five years of a visit if death or enough further visits were seen. Who died early is always
# among these visits, who lives on often is not. So it is too low.

after = table["lived"][::-1].groupby(table["patient"]).cumsum()[::-1]  # lived from this visit to the last
last = table.groupby("patient").transform("last")
known = last["died"] | (last["year"] - table["year"] >= 5.0)
table["five"] = after.clip(upper=5.0).where(known)
table["truth"] = truth["value"]

fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
for drug, ax in enumerate(axes):
    some = table[(table["drug"] == drug) & table["marker"].between(-2.5, 2.5)]
    groups = some.assign(group=some["marker"].round()).groupby("group")
    means = groups[["truth", "five"]].mean()
    at = pd.DataFrame({"marker": means.index, "drug": drug})
    found = model.predict_interval(features(at))
    errors = np.abs([found.lower - found.prediction, found.upper - found.prediction])
    ax.errorbar(at["marker"], found.prediction, errors, fmt="o", color="C0", capsize=4, label="LSTD, 95 % interval")
    ax.plot(means.index, means["truth"], "k_", markersize=20, label="truth")
    ax.plot(means.index, means["five"], "s", color="0.5", label="baseline: visits whose five years are known")
    ax.set(xlabel="marker at the visit", ylim=(0, 5), title="with the drug" if drug else "without the drug")
    off = {"LSTD": found.prediction - means["truth"], "baseline": means["five"] - means["truth"]}
    words = [f"{name} is off by {np.sqrt(np.mean(one**2)):.2f} years" for name, one in off.items()]
    print(f"{ax.get_title():17}", "; ".join(words))
axes[0].set_ylabel("years of the next five")
_ = axes[0].legend(loc="lower left", fontsize=8)

# %%
# Two of the ten intervals miss the truth: they are for what a square of the marker can say with unlimited data. How
# this compares with Kaplan–Meier curves and Cox models on real patients, visits at irregular times, and the probability
# of death within some years: see :doc:`/guide/remaining-time`.
