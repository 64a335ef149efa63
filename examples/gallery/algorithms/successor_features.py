"""
Successor features and the successor representation: one model, any reward
==========================================================================

How often will a taxi be in each part of a town, from where it is now? Pass the features as rewards too, ``y = X``. The
model then predicts their discounted sums, the *successor features* (with one feature per place: the *successor
representation*). The value of any reward that is a sum of features follows without another fit. The baseline counts the
visits that followed, with zero after the end of the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD

side, gamma, n_steps = 6, 0.95, 3000
n = side**2
north, east = np.divmod(np.arange(n), side)

# %%
# A taxi drives around at random, with a drift to the centre.

moves = np.zeros((n, n))
for step_north, step_east in ((1, 0), (-1, 0), (0, 1), (0, -1)):
    there = np.clip(north + step_north, 0, side - 1) * side + np.clip(east + step_east, 0, side - 1)
    drift = step_north * (side / 2 - 0.5 - north) + step_east * (side / 2 - 0.5 - east)
    np.add.at(moves, (np.arange(n), there), np.exp(0.3 * drift))
moves /= moves.sum(axis=1, keepdims=True)

random, place = np.random.default_rng(1), [0]
for _ in range(n_steps):
    place.append(random.choice(n, p=moves[place[-1]]))
X = np.eye(n)[place]

# %%
# One fit has 36 rewards. The truth is (I − γP)⁻¹: its row s has the expected discounted visits after a start in s.

y = np.where(np.arange(n_steps + 1)[:, np.newaxis] < n_steps, X, np.nan)  # the last row is only a successor
model = LSTD(gamma, lmbda=0.5, alpha=0.01, fit_intercept=False).fit(X, y)
found, truth = model.predict(np.eye(n)), np.linalg.inv(np.eye(n) - gamma * moves)

counted = np.zeros((n_steps + 1, n))
for t in reversed(range(n_steps)):
    counted[t] = X[t] + gamma * counted[t + 1]
baseline = np.array([counted[np.array(place) == s].mean(axis=0) for s in range(n)])
for name, visits in {"LSTD(0.5)": found, "baseline: counts": baseline}.items():
    print(f"{name:17} error of the visits: {np.sqrt(np.mean((visits - truth) ** 2)):.3f}")

# %%
# A new reward is a product away: fares at four places, whose values nobody has predicted before.

fares = np.zeros(n)
fares[[0, 5, 14, 35]] = 10.0, 4.0, 6.0, 8.0
off = np.sqrt(np.mean((found @ fares - truth @ fares) ** 2))
print(f"values of the fares: off by {off:.1f} of {np.ptp(truth @ fares):.1f} between the best and the worst place")

start = 0
fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
titles = {"LSTD(0.5)": found[start], "truth": truth[start], "baseline: counts": baseline[start]}
for ax, (title, visits) in zip(axes, titles.items(), strict=True):
    image = ax.imshow(visits.reshape(side, side), origin="lower", vmin=0, vmax=truth[start].max(), cmap="viridis")
    ax.plot(east[start], north[start], "w*", markersize=14)
    ax.set(title=title, xticks=[], yticks=[])
_ = fig.colorbar(image, ax=axes, label="discounted visits after a start at the star")
