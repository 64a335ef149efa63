"""
Customer value: what will they buy next?
========================================

2357 customers of an online shop (CDNOW, from the installed package ``lifetimes``). From 39 weeks of purchases, predict
those of the next 39. One baseline predicts as many purchases as in the first 39 weeks. The other is a ridge regression
on the purchases up to the end of the data.
"""

from datetime import date
from importlib.metadata import distribution

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD

path = distribution("lifetimes").locate_file("lifetimes/datasets/CDNOW_sample.txt")
lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
days = np.array([(date.fromisoformat(line[2]) - date(1997, 1, 1)).days for line in lines])
customer, day = np.unique([[int(line[1]) for line in lines], days], axis=1)
customer = np.unique(customer, return_inverse=True)[1]
n, end, ahead = customer.max() + 1, 39, 39
counts = np.zeros((n, end + ahead))
np.add.at(counts, (customer, day // 7), 1)  # purchases by customer and week
first = (counts > 0).argmax(axis=1)
last = np.maximum.accumulate(np.where(counts > 0, np.arange(end + ahead), 0), axis=1)  # week of the last purchase
counts[np.arange(n), first] -= 1  # the first purchase makes a customer; count repeat purchases

# %%
# The features are known when the week begins: how often, how recently, for how long. The horizon is part of the state:
# each customer's weeks are cut into windows of 13, 26 and 39 weeks, each of which counts down to its end. The end of
# the data cuts off the last window.


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
    who = np.repeat(np.arange(n), end - first)
    week = np.concatenate([np.arange(start, end) for start in first])
    to_go, cut = window - (week - first[who]) % window, week == end - 1
    bought = np.where(cut, np.nan, counts[who, np.minimum(week + 1, end - 1)])
    episode = (number * n + who) * 100 + (week - first[who]) // window
    return features(who, week, to_go), bought, episode, (to_go == 1) & ~cut, who


columns = [np.concatenate(column) for column in zip(*(rows(w, k) for k, w in enumerate((13, 26, 39))), strict=True)]
data = dict(zip(("X", "y", "episode", "terminated", "groups"), columns, strict=True))
model = LSTD(gamma=1.0, lmbda=0.95, alpha=100.0, fit_intercept=False).fit(**data)

everybody = np.arange(n)
now = features(everybody, np.full(n, end - 1), np.full(n, ahead))
bought, came = counts[:, :end].sum(axis=1), counts[:, end:].sum(axis=1)
who = np.repeat(everybody, end - 1 - first)
week = np.concatenate([np.arange(start, end - 1) for start in first])
X, seen = features(who, week, end - 1 - week), bought[who] - counts.cumsum(axis=1)[who, week]
ridge = np.linalg.solve(X.T @ X + 100 * np.eye(X.shape[1]), X.T @ seen)
found = {"LSTD(0.95)": model.predict(now), "baseline: ridge": now @ ridge, "baseline: as before": bought}
fig, ax = plt.subplots(figsize=(7, 4.5))
x = np.minimum(bought, 7).astype(int)
ax.bar(range(8), [came[x == k].mean() for k in range(8)], color="#e4e4e4", label="came in weeks 40 to 78")
for name, predicted in found.items():
    ax.plot(range(8), [predicted[x == k].mean() for k in range(8)], "o-", label=name)
    rmse = np.sqrt(np.mean((predicted - came) ** 2))
    print(f"{name:20} RMSE {rmse:.3f}, total {predicted.sum():.0f} of {came.sum():.0f}")
ax.set(xlabel="repeat purchases in weeks 1 to 39 (7: seven and more)", ylabel="mean purchases afterwards")
_ = ax.legend()
