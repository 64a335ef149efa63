"""
Boyan's chain: little data, no step size
========================================

LSTD(λ) and TD(λ) learn the values of a chain of 13 states from the same episodes. The values are known exactly, so the
error is exact too. The baseline is TD(λ) with the step size that is best in hindsight, which nobody knows beforehand.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD, TD
from lstd.metrics import value_error
from lstd.mrp import BoyanChain

chain = BoyanChain()
features = chain.interpolating_features  # 4 features for each of 13 states
steps = np.unique(np.geomspace(20, 5000, 12).astype(int))
seeds, step_sizes = range(1, 11), 2.0 ** np.arange(-9, 0)

# %%
# Each estimator reads the first rows of the stream, and its error is measured at all states. The streams of ten seeds
# show how much luck matters.


def rows(stream, n):
    """Return the first n rows as arguments of `fit`."""
    states, ends = stream.states[:n], stream.terminated[:n]
    return {"X": features[states], "y": stream.rewards[:n], "terminated": ends}


def rmse(model):
    """Return the root mean squared error over the states, weighted by how often they are visited."""
    return value_error(model.predict(features), chain) ** 0.5


lstd, td = np.empty((len(seeds), len(steps))), np.empty((len(step_sizes), len(seeds), len(steps)))
for i, seed in enumerate(seeds):
    stream = chain.simulate(n_steps=steps[-1], seed=seed)
    for j, n in enumerate(steps):
        lstd[i, j] = rmse(LSTD(gamma=1.0, lmbda=0.9, alpha=0.01, fit_intercept=False).fit(**rows(stream, n)))
        for k, size in enumerate(step_sizes):
            model = TD(4, gamma=1.0, lmbda=0.9, step_size=size)
            td[k, i, j] = rmse(model.partial_fit(**rows(stream, n)))

# %%
# The best step size changes with the amount of data: large at first, small later on. TD gets the best one for each
# amount.

mean = td.mean(axis=1)
best = mean.argmin(axis=0)
fig, ax = plt.subplots(figsize=(7, 4))
ax.loglog(steps, lstd.mean(axis=0), "o-", color="C0", label="LSTD(0.9)")
ax.fill_between(steps, *np.quantile(lstd, (0.1, 0.9), axis=0), color="C0", alpha=0.2)
ax.loglog(steps, mean.min(axis=0), "s--", color="C4", label="TD(0.9), best step size for each amount of data")
ax.loglog(steps, mean[best[-1]], ":", color="C4", label=f"TD(0.9), step size {step_sizes[best[-1]]:g}")
ax.set(
    xlabel="transitions",
    ylabel="error of the values (root mean square)",
    title="Boyan's chain: mean and 10–90 % of ten seeds",
)
ax.legend(fontsize=8, loc="lower left")

for n, a, b in zip(steps[::4], lstd.mean(axis=0)[::4], mean.min(axis=0)[::4], strict=True):
    print(f"{n:5} transitions: LSTD {a:6.2f}, TD with its best step size {b:6.2f}")

# %%
# **Where it fails.** LSTD takes O(n²) time and memory for n features, TD only O(n). With many thousands of dense
# features, TD may be all that one can afford.
