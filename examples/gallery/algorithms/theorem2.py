"""
The limit of Theorem 2, as a picture
====================================

With more and more data, Boyan's, Uncorrected and Mixed LSTD(λ) converge to the same limit, which can be computed from
the process. How fast do they converge, and how far is that limit from the truth? The baseline is the best fit that the
features allow.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTDStatistics
from lstd.mrp import RandomMRP, make_features

model = RandomMRP(10, 3, reward_std=0.1, seed=1000, gamma=0.99)  # the paper's "small" problem
phi = make_features(model, "binary")  # 4 features for 10 states: they cannot represent the values
lmbda, lengths = 0.9, np.geomspace(100, 100_000, 7).astype(int)


def distance(weights, target):
    """Return the root mean squared difference of the predicted values, over the stationary distribution."""
    return np.sqrt(model.stationary @ (phi @ (weights - target)) ** 2)


# %%
# ``fixed_point`` solves A θ = b with A = Φᵀ D (I − γP)(I − λγP)⁻¹ Φ and b = Φᵀ D (I − λγP)⁻¹ r. The three estimators
# are read from the same sums.

limit = model.fixed_point(phi, lmbda)
found = {variant: np.empty((8, len(lengths))) for variant in ("boyan", "uncorrected", "mixed")}
for seed in range(8):
    run = model.simulate(lengths[-1], seed)
    for j, n in enumerate(lengths):
        rewards = np.append(run.rewards[:n], np.nan)  # the last row has no reward yet
        sums = LSTDStatistics.from_arrays(phi[run.states[: n + 1]], rewards, gamma=0.99, lmbda=lmbda)
        for variant, distances in found.items():
            distances[seed, j] = distance(sums.solve(0.01, variant).weights, limit)

# %%
# Left: the distances to the limit shrink as 1/√T. Right: the distance of the limit to the truth. λ = 1 reaches the best
# fit. Smaller λ do not, however much data there are.

lmbdas = np.linspace(0, 1, 41)
size = np.sqrt(model.stationary @ model.values**2)
missed = [phi @ model.fixed_point(phi, x) - model.values for x in lmbdas]
to_truth = [np.sqrt(model.stationary @ off**2) / size for off in missed]
best = np.sqrt(model.stationary @ (phi @ model.best_fit(phi) - model.values) ** 2) / size
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for colour, (variant, distances) in zip(("C0", "C1", "C2"), found.items(), strict=True):
    left.loglog(lengths, np.median(distances, axis=0), "o-", color=colour, label=variant)
left.loglog(lengths, np.median(found["boyan"][:, -1]) * np.sqrt(lengths[-1] / lengths), "k:", label="1/√T")
left.set(xlabel="transitions T", ylabel="distance from the limit", title=f"Distance from the limit at λ = {lmbda}")
left.legend()
right.plot(lmbdas, to_truth, label="limit of LSTD(λ)")
right.axhline(best, color="0.5", ls="--", label="baseline: best fit of the features")
right.set(xlabel="λ", ylabel="error of the limit ÷ size of the values", title="Unlimited data", ylim=(0, None))
right.legend()
print(f"error with unlimited data: λ = 0: {to_truth[0]:.3f}, λ = 0.9: {to_truth[36]:.3f}, best fit: {best:.3f}")
