"""
Customer value: what will they buy next?
========================================

2357 customers of an online shop (CDNOW, from the installed package ``lifetimes``). From 39 weeks of purchases, predict
those of the next 39. One baseline repeats each customer's number, the other is a ridge regression on those seen since.
"""

import warnings
from datetime import date
from importlib.metadata import distribution

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD, errors
from lstd.metrics import backtest

warnings.filterwarnings("ignore", "Only|Features", errors.LSTDWarning)  # few long windows: the backtest judges them
path = distribution("lifetimes").locate_file("lifetimes/datasets/CDNOW_sample.txt")
_, who, dates, *_ = np.loadtxt(path, dtype=str).T
day = np.array([date.fromisoformat(text).toordinal() for text in dates]) - date(1997, 1, 1).toordinal()
customer, day = np.unique([np.unique(who, return_inverse=True)[1], day], axis=1)
n, end, ahead = customer.max() + 1, 39, 39
counts = np.histogram2d(customer, day // 7, bins=(range(n + 1), range(end + ahead + 1)))[0]  # by customer and week
first = (counts > 0).argmax(axis=1)
last = np.maximum.accumulate(np.where(counts > 0, np.arange(end + ahead), 0), axis=1)  # week of the last purchase
counts[np.arange(n), first] -= 1  # the first purchase makes a customer; count repeat purchases

# %%
# Features: how often, how recently, for how long. The horizon is part of the state: a customer's weeks are cut into
# windows of 13, 26 and 39, each of which counts down to its end. The end of the data cuts off the last window.


def features(who, week, to_go):
    """Multiply what is known after a week by functions of the weeks to go."""
    bought, age, since = counts.cumsum(axis=1)[who, week], week - first[who], week - last[who, week]
    lately, recently = np.exp(-since / 4), np.exp(-since / 13)
    often = (np.log1p(bought), 4 * (bought + 0.25) / (age + 4))
    mixed = [f * g for f in often for g in (1, lately, recently)]
    state = np.stack([np.ones(len(who)), np.log1p(age) / 3, lately, recently, *mixed])
    horizon = np.stack([to_go / 39, (to_go / 39) ** 2, 1 - np.exp(-to_go / 6.5)])
    return np.einsum("ir,jr->rij", state, horizon).reshape(len(who), -1)


def rows(window, number):
    """Return the rows of windows of some weeks."""
    who, week = np.nonzero(np.arange(end) >= first[:, np.newaxis])  # from the first purchase on
    to_go, cut = window - (week - first[who]) % window, week == end - 1
    bought = np.where(cut, np.nan, counts[who, np.minimum(week + 1, end - 1)])
    episode = (number * n + who) * 100 + (week - first[who]) // window
    return features(who, week, to_go), bought, episode, (to_go == 1) & ~cut, who, week


*columns, week = (np.concatenate(c) for c in zip(*(rows(w, k) for k, w in enumerate((13, 26, 39))), strict=True))
data = dict(zip(("X", "y", "episode", "terminated", "groups"), columns, strict=True))

# %%
# Backtests choose the ridge: fit to 26 weeks, compare with the next 13, take the largest α not clearly behind the best.

models = {alpha: LSTD(gamma=1.0, lmbda=0.95, alpha=alpha, fit_intercept=False) for alpha in (1, 10, 100, 1000)}
tests = {alpha: backtest(model, **data, time=week, cut=25, steps=13) for alpha, model in models.items()}
best = max(tests.values(), key=lambda test: test.r2)
alpha = max(alpha for alpha, test in tests.items() if test.difference(best).lower <= 0)
print(f"α = {alpha} of", {alpha: f"R² {test.r2:.3f}" for alpha, test in tests.items()})
model = models[alpha].fit(**data)
now = features(np.arange(n), np.full(n, end - 1), np.full(n, ahead))
bought, came = counts[:, :end].sum(axis=1), counts[:, end:].sum(axis=1)
who, week = np.nonzero(np.arange(end - 1) >= first[:, np.newaxis])
X, seen = features(who, week, end - 1 - week), bought[who] - counts.cumsum(axis=1)[who, week]
ridge = np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ seen)
found = {"LSTD(0.95)": model.predict(now), "baseline: ridge": now @ ridge, "baseline: as before": bought}
fig, ax = plt.subplots(figsize=(7, 4.5))
x = np.minimum(bought, 7).astype(int)
ax.bar(range(8), [came[x == k].mean() for k in range(8)], color="#e4e4e4", label="came in weeks 40 to 78")
for name, predicted in found.items():
    ax.plot(range(8), [predicted[x == k].mean() for k in range(8)], "o-", label=name)
    rmse = np.sqrt(np.mean((predicted - came) ** 2))
    print(f"{name:20} RMSE {rmse:.3f}, total {predicted.sum():.0f} of {came.sum():.0f}")
_ = ax.legend(), ax.set(xlabel="repeat purchases in weeks 1 to 39 (7 and more)", ylabel="mean purchases afterwards")
