"""
Which policy saves more patients? Logged doses of a hospital
============================================================

Doctors treated 1000 patients with sepsis. Would other rules for the doses have saved more of them? The patients come
from ICU-Sepsis (Choudhary et al. 2024), a model with 713 states and 25 doses estimated from records of intensive care,
so the true answer is known. The baseline is weighted importance sampling, the usual method in textbooks.
"""

from importlib import metadata

import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD
from lstd.ope import compare_policies, importance_sampling

path = metadata.distribution("icu-sepsis").locate_file("icu_sepsis/envs/assets/dynamics.npz")  # MIT licence
with np.load(str(path)) as file:
    P, start, expert = file["tx_mat"][:713], file["d_0"][:713], file["expert_policy"][:713]
    measurements = np.column_stack([file["state_cluster_centers"][:713], file["sofa_scores"][:713]])
measurements[:, -1] /= measurements[:, -1].std()


def chances(policy):
    """Return the exact chance of survival of each state and dose, if the policy acts afterwards."""
    moves = (policy[:, None] @ P[:, :, :713])[:, 0]
    survives = np.linalg.solve(np.eye(713) - moves, (policy * P[:, :, 714]).sum(axis=1))
    return P[:, :, 714] + P[:, :, :713] @ survives


def treat(policy, n_patients, seed):
    random, rows = np.random.default_rng(seed), []
    for patient in range(n_patients):
        state = random.choice(713, p=start / start.sum())
        while state < 713:
            dose = np.searchsorted(policy[state].cumsum(), random.uniform() * policy[state].sum())
            after = np.searchsorted(P[state, dose].cumsum(), random.uniform() * P[state, dose].sum())
            rows.append((state, dose, after == 714, patient, after >= 713))
            state = after
    return (np.array(column) for column in zip(*rows, strict=True))


# %%
# Doctors act at random one time in ten. The other policies lean more and more towards the best doses.

doctors = 0.9 * expert + 0.1 / 25
best = expert
for _ in range(10):
    q = chances(best).round(9)  # equal values stay equal
    best = np.eye(25)[q.argmax(axis=1)]
policies = {"doctors": doctors}
for name, temperature in (("lean a little", 0.03), ("lean", 0.01), ("lean much", 0.003)):
    leaning = doctors * np.exp((q - q.max(axis=1, keepdims=True)) / temperature)
    policies[name] = leaning / leaning.sum(axis=1, keepdims=True)
policies["always the best"] = best
truth = [start @ (policy * chances(policy)).sum(axis=1) / start.sum() for policy in policies.values()]

# %%
# Each policy has one model: LSTD(0) with ratios, which say how many times as likely each dose is as under the doctors.
# If doctors rarely give the doses of a policy, the data say little: intervals are wide and may miss the truth.

state, dose, survived, patient, end = treat(doctors, 1000, seed=1)
X, y, rows = measurements[state], survived.astype(float), {"episode": patient, "terminated": end}
first, p = np.flatnonzero(np.diff(patient, prepend=-1)), doctors[state, dose]
models, sampled = {}, []
for name, policy in policies.items():
    models[name] = LSTD(1.0, lmbda=0.0).fit(X, y, **rows, importance_ratio=policy[state, dose] / p)
    logged = rows | {"actions": dose, "target_policy": policy[state], "behavior_probability": p}
    sampled.append(importance_sampling(X, y, gamma=1.0, estimator="wis", **logged))
found = compare_policies(models, X[first])
print(found)
fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
sources = ("LSTD(0), 95 %", found.values), ("baseline: weighted importance sampling", sampled)
for shift, colour, (label, values) in zip((-0.1, 0.1), ("C0", "0.5"), sources, strict=True):
    middle, low, high = np.array([(one.value, one.lower, one.upper) for one in values]).T
    ax.errorbar(np.arange(5) + shift, middle, (middle - low, high - middle), fmt="o", c=colour, capsize=3, label=label)
ax.hlines(truth, np.arange(5) - 0.25, np.arange(5) + 0.25, color="k", label="truth")
ax.legend(loc="lower left")
_ = ax.set(xticks=range(5), xticklabels=policies, ylabel="share of patients who survive", ylim=(0.55, 1.05))
