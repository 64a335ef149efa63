"""
A/B test: is the new version worth more?
========================================

Customers see version A or B from their first visit. The test ran for 20 weeks, and most customers are still active.
What counts is what they spend in the long run. The baseline is what tests usually report: mean revenue during the test.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD
from lstd.inference import difference

gamma, n_weeks = 0.97, 20
keeps = {"A": 0.90, "B": 0.93}  # chance per week of a regular customer to stay
spends = {"A": 10.0, "B": 9.0}  # version B keeps customers, and sells a little less to each


def visits(version, n_customers, seed):
    """Return rows of customers who start during the test; a new customer becomes a regular one, or leaves."""
    random, X, y, episode, ended = np.random.default_rng(seed), [], [], [], []
    for customer in range(n_customers):
        regular = False
        for week in range(random.integers(n_weeks), n_weeks + 1):
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


def fit(rows):
    return LSTD(gamma=gamma, lmbda=0.5, alpha=0.01, fit_intercept=False).fit(**rows)


def value(a, b):
    """Return the interval of the difference in value of a new customer."""
    found = difference(fit(b), fit(a), [[1.0, 0.0]])
    return found.lower[0], found.upper[0]


def revenue(a, b):
    """Return the interval of the difference in mean revenue per customer during the test."""
    spent = [np.bincount(rows["episode"], np.nan_to_num(rows["y"])) for rows in (a, b)]
    less, margin = spent[1].mean() - spent[0].mean(), 1.96 * np.sqrt(sum(x.var(ddof=1) / len(x) for x in spent))
    return less - margin, less + margin


# %%
# The long-run values solve v = r + γPv over the two states, new and regular.

chances = {version: np.array([[0.35, 0.35], [0.0, keeps[version]]]) for version in "AB"}
true = [np.linalg.solve(np.eye(2) - gamma * chances[version], np.full(2, spends[version]))[0] for version in "AB"]
print(f"true values: A {true[0]:.1f}, B {true[1]:.1f}; difference {true[1] - true[0]:+.1f}")

# %%
# Repeat the test thirty times, with 1500 customers per version. ``lstd.inference.difference`` treats the two versions
# as independent, because their customers differ.

names = {"LSTD: value of a new customer": (value, "C0"), "baseline: revenue during the test": (revenue, "0.5")}
fig, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
tests = [[visits(version, 1500, 10 * test + k) for k, version in enumerate("AB")] for test in range(30)]
for ax, (name, (measure, colour)) in zip(axes, names.items(), strict=True):
    low, high = np.array([measure(*test) for test in tests]).T
    ax.hlines(range(30), low, high, color=colour)
    ax.axvline(0, color="gray", ls=":")
    ax.axvline(true[1] - true[0], color="k", lw=1)
    ax.set(xlabel="version B less version A, in money", title=name)
    held = np.mean((low < true[1] - true[0]) & (true[1] - true[0] < high))
    print(f"{name:34} holds the truth in {held:.0%}; B wins {np.mean(low > 0):.0%}, loses {np.mean(high < 0):.0%}")
_ = axes[0].set_ylabel("test; the black line is the truth")
