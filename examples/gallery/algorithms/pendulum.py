"""
A pendulum whose episodes are cut off
=====================================

Fifty episodes of 40 steps are cut off, and 40 % of the value lies beyond the cut. How a method treats the cut decides
how good its predictions are. The baseline is ridge regression on the returns up to the cut, with the best ridge
coefficient in hindsight.
"""

import warnings

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

from lstd import LSTD, Trajectories
from lstd.errors import UnobservedWarning

warnings.simplefilter("ignore", UnobservedWarning)  # 32 % of the returns: what follows from that is the subject here
gamma, steps, alphas = 0.98, 40, 10.0 ** np.arange(-3, 2)


def swing(observation):
    """Hold the pendulum's energy at that of the upright position, so that it keeps turning."""
    cosine, _, velocity = observation
    return np.clip([(5.0 - velocity**2 / 6.0 - 5.0 * cosine) * np.sign(velocity)], -2, 2).astype(np.float32)


def features(observation):
    """Multiply Fourier terms of the angle by powers of the velocity; 35 features."""
    cosine, sine, velocity = np.asarray(observation, dtype=np.float64)
    turns = [(cosine + 1j * sine) ** k for k in range(1, 4)]
    angle = [np.ones_like(cosine), *(turn.real for turn in turns), *(turn.imag for turn in turns)]
    return np.einsum("i...,j...->...ij", angle, [(velocity / 8) ** k for k in range(5)]).reshape(*cosine.shape, 35)


# %%
# ``from_gymnasium`` keeps cuts apart from ends: each episode ends in a horizon row with the last observation.

env = gymnasium.make("Pendulum-v1", max_episode_steps=steps)
data = Trajectories.from_gymnasium(env, swing, features=features, n_episodes=50, seed=1)
print(data)

# %%
# True values come from 200 long rollouts, all at once: Gymnasium's own step works on arrays of states too.

env = gymnasium.make("Pendulum-v1", disable_env_checker=True).unwrapped
starts = [(env.reset(seed=1000 + k)[0], env.state) for k in range(200)]
observation, env.state = (np.stack(part, axis=-1) for part in zip(*starts, strict=True))
observations, rewards = [], []
for _ in range(500):
    observations.append(observation)
    observation, reward, *_ = env.step(swing(observation))
    rewards.append(reward)
values = np.array([gamma ** np.arange(400) @ rewards[t : t + 400] for t in range(steps)])
states = features(np.array(observations[:steps]).transpose(1, 0, 2))

# %%
# Every method has the best α in hindsight. The error is in units of the spread of the values: predicting the mean has
# error 1.

lmbdas = [0, 0.3, 0.6, 0.8, 0.9, 0.95, 1]
fig, ax = plt.subplots(figsize=(7, 4))
for colour, variant in (("C0", "boyan"), ("C1", "uncorrected"), ("C2", "mixed")):
    curve = []
    for lmbda in lmbdas:
        models = [LSTD(gamma, lmbda, alpha, variant).fit(**data.to_arrays()) for alpha in alphas]
        off = [np.sqrt(np.mean((model.predict(states.reshape(-1, 35)) - values.ravel()) ** 2)) for model in models]
        curve.append(min(off) / values.std())
    ax.semilogy(lmbdas, curve, "o-", color=colour, label=f"{variant} LSTD(λ)")
    print(f"{variant:12} error {min(curve):.2f} at λ = {lmbdas[int(np.argmin(curve))]}")
ax.axhline(curve[-1], color="0.5", ls="--", label="baseline: ridge on returns up to the cut")
ax.axhline(1, color="gray", lw=0.8, label="predict the mean")
ax.set(xlabel="λ", ylabel="error ÷ spread of the values", title="Pendulum, cut off after 40 steps")
ax.set(yticks=[0.2, 0.5, 1, 2, 5], yticklabels=["0.2", "0.5", "1", "2", "5"])
ax.legend(fontsize=8, loc="center right", bbox_to_anchor=(1, 0.35)), ax.minorticks_off()

# %%
# Boyan's estimator predicts what comes after the cut from the features of the last row. Uncorrected treats it as worth
# nothing: at λ = 1, it is ridge regression on the returns up to the cut. Mixed does so in part, more for a larger λ.
