"""
A better policy from stored data: policy iteration
==================================================

Evaluate a policy on stored transitions, take the action of the largest value in each state, and repeat (Lagoudakis and
Parr 2003). A walker on 20 states moves left or right, and one move in ten fails; the ends pay 1. The baseline is the
best policy. The log that chose a policy makes it look too good: evaluate the result on other episodes.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd.ope import LSTDQ, EpsilonGreedy

random, n_states = np.random.default_rng(0), 20
states, actions = random.integers(n_states, size=2000), random.integers(2, size=2000)
moves = np.where(random.uniform(size=2000) < 0.1, -1, 1) * (2 * actions - 1)
after = np.clip(states + moves, 0, n_states - 1)
features = np.exp(-0.5 * ((np.arange(n_states)[:, np.newaxis] - np.linspace(0, 19, 9)) / 2.4) ** 2)
log = {"X": features[states], "X_next": features[after], "actions": actions, "episode": np.arange(2000)}
rewards = np.isin(after, [0, n_states - 1]) * 1.0

# %%
# Where features cannot represent the values, policies may get worse or come back in a cycle: stop after some rounds.

policy, choices = EpsilonGreedy(lambda X: np.zeros((len(X), 2)), epsilon=1.0), []
while len(choices) < 20 and not (len(choices) > 1 and np.array_equal(choices[-1], choices[-2])):
    model = LSTDQ(0.9, alpha=1e-3, fit_intercept=False).fit(y=rewards, target_policy=policy, **log)
    policy = EpsilonGreedy(model)
    choices.append(policy(features).argmax(axis=1))
print(f"{len(choices)} policies; the last one moves right in states {np.flatnonzero(choices[-1]).tolist()}")

fig, ax = plt.subplots(figsize=(8, 2.5), layout="constrained")
best = 1 * (np.arange(n_states) >= n_states // 2)
ax.imshow(np.array([*choices, best]), cmap="Greys", vmax=2, aspect="auto")
names = [f"policy {k + 1}" for k in range(len(choices))]
_ = ax.set(xlabel="state; dark: moves right", yticks=range(len(names) + 1), yticklabels=[*names, "baseline: the best"])
