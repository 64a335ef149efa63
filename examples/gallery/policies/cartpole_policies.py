"""
Is the steadier controller better? CartPole
===========================================

A cart balances a pole under a controller that acts at random eight times in ten. Would a steadier one, at random six
times in ten, keep the pole up for longer, and by how much? LSTD of action values answers from the log alone. The
baseline is weighted per-decision importance sampling, whose products of ratios grow with the length of an episode.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

from lstd import Trajectories
from lstd.ope import LSTDQ, importance_sampling, policy_value

gamma, gains = 0.98, np.array([0.05, 0.1, 1.0, 0.5])


def controller(epsilon):
    """Return a policy that pushes to where the pole falls, and at random with chance epsilon."""
    return lambda X: np.eye(2)[(X @ gains > 0.0).astype(int)] * (1.0 - epsilon) + epsilon / 2.0


def run(epsilon, n_episodes, seed):
    random, policy = np.random.default_rng(seed), controller(epsilon)

    def act(observation):
        p = policy(observation[np.newaxis])[0]
        action = int(random.random() < p[1])
        return action, p[action]

    with gymnasium.make("CartPole-v1", max_episode_steps=200) as env:
        return Trajectories.from_gymnasium(env, act, n_episodes=n_episodes, seed=seed)


# %%
# The value is the discounted number of steps until the pole falls. The steadier controller runs only to give the truth.

log, target = run(0.8, 200, seed=0), controller(0.6)
truth = importance_sampling(**run(0.6, 300, seed=1).to_arrays(), gamma=gamma)
print(f"truth {truth.value:.1f}, from {truth.lower:.1f} to {truth.upper:.1f}")

# %%
# The features are bumps around 60 logged states, and the numbers that the controllers use. Squares of the state show
# what happens with features that cannot represent the values: narrow intervals around a wrong number.

scale = log.X.std(axis=0)
centres = log.X[np.random.default_rng(0).choice(len(log), 60, replace=False)]


def bumps(X):
    distance = (((X[:, np.newaxis] - centres) / scale) ** 2).sum(axis=2)
    return np.column_stack([np.exp(-0.5 * distance), X @ gains > 0.0, np.abs(X @ gains)])


def squares(X):
    scaled, (i, j) = np.column_stack([np.ones(len(X)), X / scale]), np.triu_indices(5)
    return scaled[:, i] * scaled[:, j]


def estimates(episodes):
    part = log[log.episode < episodes]
    arrays, logged = part.to_arrays(), {"actions": part.actions, "behavior_probability": part.behavior_probability}
    rows, X = arrays | logged | {"target_policy": target(part.X)}, part.X
    yield "LSTDQ(0.5), bumps", policy_value(LSTDQ(gamma, 0.5, alpha=0.01).fit(**rows | {"X": bumps(X)}))
    yield "LSTDQ(0.5), squares", policy_value(LSTDQ(gamma, 0.5, alpha=0.01).fit(**rows | {"X": squares(X)}))
    yield "baseline: importance sampling", importance_sampling(**rows, gamma=gamma, estimator="wpdis")


fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for k, episodes in enumerate((25, 50, 100, 200)):
    for i, (name, found) in enumerate(estimates(episodes)):
        print(f"{episodes:4} episodes  {name:30} {found.value:6.1f}, from {found.lower:.1f} to {found.upper:.1f}")
        bars = [[found.value - found.lower], [found.upper - found.value]]
        look = {"fmt": "os^"[i], "color": ("C0", "C0", "0.5")[i], "mfc": ("C0", "white", "0.5")[i], "capsize": 4}
        ax.errorbar(k + 0.15 * (i - 1), found.value, bars, label=None if k else name, **look)
ax.axhspan(truth.lower, truth.upper, color="k", alpha=0.25, label="truth: the steadier controller itself")
ax.legend(title="value of the steadier controller")
_ = ax.set(xticks=range(4), xticklabels=(25, 50, 100, 200), xlabel="logged episodes", ylabel="discounted steps")
