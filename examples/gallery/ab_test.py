"""
A/B test: is the new version worth more?
========================================

Customers see version A or B from their first visit. The test ran 20 weeks, most customers are still active, and what
counts is what they bring in the long run. The baseline is what tests usually report: mean revenue during the test.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD

gamma, n_weeks = 0.97, 20
keeps = {"A": 0.90, "B": 0.93}  # chance per week of a regular customer to stay
spends = {"A": 10.0, "B": 9.0}  # version B keeps customers, and sells a little less to each


def visits(version, n_customers, seed, n_weeks=n_weeks):
    """Return rows of customers who start during the test; a new customer becomes a regular one, or leaves."""
    random, X, y, episode, ended = np.random.default_rng(seed), [], [], [], []
    for customer in range(n_customers):
        regular = False
        for week in range(random.integers(n_weeks) if n_weeks < 1000 else 0, n_weeks + 1):
            X.append([1.0 - regular, regular])
            episode.append(customer)
            if week == n_weeks:  # still active: a last row without reward
                y.append(np.nan)
                ended.append(False)
                break
            y.append(random.exponential(spends[version]))
            leaves = random.random() > (keeps[version] if regular else 0.7)
            ended.append(leaves)
            if leaves:
                break
            regular = regular or random.random() < 0.5
    return {"X": np.array(X), "y": np.array(y), "episode": episode, "terminated": ended}


def value(rows):
    """Return the value of a new customer and its standard error."""
    model = LSTD(gamma=gamma, lmbda=0.5, alpha=0.01, fit_intercept=False).fit(**rows)
    prediction, error = model.predict([[1.0, 0.0]], return_std=True)
    return prediction[0], error[0]


def revenue(rows):
    """Return the mean revenue per customer during the test and its standard error."""
    per_customer = np.bincount(rows["episode"], np.nan_to_num(rows["y"]))
    return per_customer.mean(), per_customer.std(ddof=1) / np.sqrt(len(per_customer))


# %%
# The long-run values follow from the simulation, without a cut: 4000 weeks are enough for everybody to leave.

true = [value(visits(version, 20_000, 7, n_weeks=4000))[0] for version in "AB"]
print(f"true values: A {true[0]:.1f}, B {true[1]:.1f}; difference {true[1] - true[0]:+.1f}")

# %%
# Thirty tests of 1500 customers per version. The versions have different customers, so variances add.

names = {"LSTD: value of a new customer": value, "baseline: revenue during the test": revenue}
fig, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
tests = [[visits(version, 1500, 10 * test + k) for k, version in enumerate("AB")] for test in range(30)]
for ax, (name, measure) in zip(axes, names.items(), strict=True):
    (a, error_a), (b, error_b) = np.array([[measure(rows) for rows in test] for test in tests]).transpose(1, 2, 0)
    difference, margin = b - a, 1.96 * np.hypot(error_a, error_b)
    ax.errorbar(difference, range(30), xerr=margin, fmt=".")
    ax.axvline(0, color="gray", ls=":")
    ax.axvline(true[1] - true[0], color="k", lw=1)
    ax.set(xlabel="B less A", title=name)
    held = np.mean(np.abs(difference - true[1] + true[0]) < margin)
    wins, losses = np.mean(difference > margin), np.mean(difference < -margin)
    print(f"{name:34} holds the truth in {held:.0%}; B wins {wins:.0%}, loses {losses:.0%}")
_ = axes[0].set_ylabel("test; the line is the long-run difference")
