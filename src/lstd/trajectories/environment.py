"""A policy run in a Gymnasium environment, as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.checks import check_integer
from lstd.errors import InvalidInputError
from lstd.trajectories.assembly import assembled
from lstd.trajectories.extras import import_gymnasium
from lstd.trajectories.gymnasium_protocol import check_reset, check_step
from lstd.trajectories.observations import ObservationFeatures
from lstd.trajectories.recorder import Recorder
from lstd.trajectories.vector_environment import record_vector

Array = NDArray[np.float64]
Policy = Callable[[Any], Any]


@dataclass(frozen=True)
class Budget:
    """How much to collect: whole episodes, transitions, or whichever is reached first."""

    n_episodes: int | None
    n_steps: int | None
    progress: Callable[[int, int], None] | None = None

    @classmethod
    def checked(cls, n_episodes: Any, n_steps: Any, progress: Callable[[int, int], None] | None) -> Budget:
        """A budget, or InvalidInputError."""
        if n_episodes is None and n_steps is None:
            raise InvalidInputError("`n_episodes` or `n_steps` is needed, a positive integer; got None for both.")
        episodes = None if n_episodes is None else check_integer("n_episodes", n_episodes, 1)
        steps = None if n_steps is None else check_integer("n_steps", n_steps, 1)
        return cls(episodes, steps, progress)

    def recorders(self, number: int) -> list[Recorder]:
        """One recorder per sub-environment, the budget shared out evenly."""
        return [Recorder(i, _share(self.n_episodes, i, number), _share(self.n_steps, i, number)) for i in range(number)]

    def report(self, recorders: list[Recorder]) -> None:
        """Tell `progress` what is done."""
        if self.progress is None:
            return
        if self.n_episodes is not None:
            self.progress(sum(recorder.n_episodes for recorder in recorders), self.n_episodes)
        elif self.n_steps is not None:
            self.progress(sum(recorder.n_steps for recorder in recorders), self.n_steps)


def _share(total: int | None, i: int, number: int) -> int | None:
    return None if total is None else total // number + (i < total % number)


def collect(
    env: Any,
    policy: Policy,
    features: Callable[[Any], ArrayLike] | None,
    budget: Budget,
    seed: int | None = None,
) -> dict[str, Any]:
    """Arguments of `Trajectories` from a run of `policy`; see `Trajectories.from_gymnasium`."""
    gymnasium = import_gymnasium()
    if seed is not None:
        seed = check_integer("seed", seed, 0)
    if not callable(policy):
        raise InvalidInputError(f"`policy` must be a function from observation to action; got {policy!r:.80}.")
    if not (callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))):
        raise InvalidInputError(
            f"`env` must be a Gymnasium environment; got {env!r:.80}. Make one with gymnasium.make or make_vec."
        )
    vector = isinstance(env, gymnasium.vector.VectorEnv)
    if not vector and not isinstance(env, gymnasium.Env) and hasattr(env, "num_envs"):
        raise InvalidInputError(
            f"`env` must be a gymnasium.Env or a gymnasium.vector.VectorEnv; got {type(env).__name__}, another "
            "library's vector environment. Make one with gymnasium.make_vec."
        )
    space = getattr(env, "single_observation_space" if vector else "observation_space", None)
    phi = ObservationFeatures(features, space)
    if seed is not None:
        for name in ("action_space", "single_action_space") if vector else ("action_space",):
            if hasattr(env, name):
                getattr(env, name).seed(seed)
    recorders = budget.recorders(int(env.num_envs) if vector else 1)
    if vector:
        record_vector(env, policy, phi, recorders, seed, budget.report)
    else:
        _record_single(env, policy, phi, recorders, seed, budget)
    return assembled(block for recorder in recorders for block in recorder.blocks)


def _record_single(
    env: Any, policy: Policy, phi: ObservationFeatures, recorders: list[Recorder], seed: int | None, budget: Budget
) -> None:
    """Fill the recorder of a single environment."""
    (recorder,) = recorders
    observation = check_reset(env.reset(seed=seed))
    while True:
        # The features are copied before the next step: an environment may write into the observation it gave.
        recorder.begin(phi(observation, recorder.where))
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = check_step(env.step(policy(observation)))
            terminated, truncated = bool(terminated), bool(truncated)
            over = terminated or truncated
            arrived = None if terminated else phi(observation, recorder.where)
            recorder.record(reward, arrived, terminated, truncated)
            budget.report(recorders)
            if recorder.finished:
                return
        observation = check_reset(env.reset())
