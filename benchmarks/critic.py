"""Compare values from the last layer of a trained critic with the critic itself and with a kernel.

    python benchmarks/critic.py [--steps 60000] [--write docs/guide/trained-policy.md]

PPO of Stable-Baselines3 is trained on Gymnasium's Acrobot-v1. R² and explained variance are those of the returns of 300
episodes of the trained policy that no method has seen, γ = 0.99; values of LSTD come from a few other episodes, with λ
and α chosen by `LSTDCV`. Needs lstd[gymnasium] and stable-baselines3, which no extra installs.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lstd import LSTDCV, Trajectories
from lstd.metrics import observed_returns
from pages import show
from provenance import printed_by

GAMMA = 0.99
EPISODES = (20, 80, 300)
REPEATS = 4
HELD_OUT = 300


def make() -> Any:
    return gymnasium.make("Acrobot-v1")


def trained(steps: int) -> Any:
    """Train a policy."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    return PPO("MlpPolicy", make_vec_env(make, n_envs=4, seed=0), seed=0, gamma=GAMMA, n_steps=256).learn(steps)


def last_layer(model: Any, observations: Any) -> Any:
    """Return what enters the last layer of the critic, (T, 64)."""
    import torch

    policy = model.policy
    with torch.no_grad():
        tensor = policy.obs_to_tensor(observations)[0]
        features = policy.extract_features(tensor, policy.vf_features_extractor)
        return policy.mlp_extractor.forward_critic(features).numpy().astype(np.float64)


def critic(model: Any, observations: Any) -> Any:
    """Return the values of the critic, (T,)."""
    import torch

    with torch.no_grad():
        values = model.policy.predict_values(model.policy.obs_to_tensor(observations)[0])
        return values.numpy()[:, 0].astype(np.float64)


def run(model: Any, n_episodes: int, seed: int) -> Trajectories:
    return Trajectories.from_gymnasium(make(), model.predict, n_episodes=n_episodes, seed=seed)


def explained(values: Any, data: Trajectories) -> tuple[float, float]:
    """Return R² and the explained variance of values of the rows."""
    found = observed_returns(data.y, gamma=GAMMA, prediction=values, episode=data.episode, terminated=data.terminated)
    scored = found.weight > 0
    returns = found.returns[scored]
    error = returns - values[scored]
    return 1.0 - float(np.mean(error**2)) / returns.var(), 1.0 - float(error.var()) / returns.var()


def fitted(data: Trajectories, held_out: Trajectories, features: Callable[[Any], Any]) -> float:
    """Return R² on held-out episodes of an LSTDCV with these features."""
    model = LSTDCV(GAMMA).fit(**data.to_arrays() | {"X": features(data.X)})
    return explained(model.predict(features(held_out.X)), held_out)[0]


def kernel(X: Any) -> Callable[[Any], Any]:
    """Return 64 features of a radial kernel."""
    bumps = Nystroem(gamma=0.3, n_components=64, random_state=0)
    transform: Callable[[Any], Any] = make_pipeline(StandardScaler(), bumps).fit(X).transform
    return transform


def main() -> None:
    """Print the table, and write it with --write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=60_000, help="steps of the training")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table into this Markdown page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    model = trained(arguments.steps)
    held_out = run(model, HELD_OUT, seed=1000)
    own = explained(critic(model, held_out.X), held_out)
    lines = [
        printed_by("python benchmarks/critic.py"),
        f"PPO after {arguments.steps} steps of Acrobot-v1. R² of {HELD_OUT} held-out episodes, mean ± standard",
        f"deviation of {REPEATS} data sets. The critic has R² {own[0]:.3f}, explained variance {own[1]:.3f}.",
        "",
        "| episodes | last layer of the critic | kernel of 64 features | observations |",
        "|---|---|---|---|",
    ]
    for n in EPISODES:
        scores = []
        for repeat in range(REPEATS):
            data = run(model, n, seed=5000 + 1000 * repeat)
            ways = (lambda X: last_layer(model, X.astype(np.float32)), kernel(data.X), lambda X: X)
            scores.append([fitted(data, held_out, way) for way in ways])
        cells = [f"{np.mean(way):.3f} ± {np.std(way, ddof=1):.3f}" for way in zip(*scores, strict=True)]
        lines.append(f"| {n} | {' | '.join(cells)} |")
    show("\n".join([*lines, ""]), "benchmarks/critic.py", arguments.write)


if __name__ == "__main__":
    main()
