"""A policy run in a Gymnasium environment, as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from lstd.data.checks import check_integer
from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_gymnasium
from lstd.trajectories.observations import ObservationFeatures, check_reset, check_step
from lstd.trajectories.recorder import Recorder, Run, assemble
from lstd.trajectories.vector_environment import record_vector


@dataclass(frozen=True)
class Budget:
    """How much to collect: whole episodes, transitions, or whichever is reached first."""

    n_episodes: int | None
    n_steps: int | None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.n_episodes is None and self.n_steps is None:
            raise InvalidInputError("`n_episodes` or `n_steps` is needed, a positive integer; got None for both.")
        for name, value in (("n_episodes", self.n_episodes), ("n_steps", self.n_steps)):
            if value is not None:
                check_integer(name, value, 1)

    def recorders(self, number: int) -> list[Recorder]:
        """Make one recorder per sub-environment and share out the budget evenly."""
        return [Recorder(i, _share(self.n_episodes, i, number), _share(self.n_steps, i, number)) for i in range(number)]

    def report(self, recorders: list[Recorder]) -> None:
        """Report to `progress`."""
        if self.progress is None:
            return
        if self.n_episodes is not None:
            self.progress(sum(len(recorder.episodes) for recorder in recorders), self.n_episodes)
        elif self.n_steps is not None:
            self.progress(sum(recorder.n_steps for recorder in recorders), self.n_steps)


def _share(total: int | None, i: int, number: int) -> int | None:
    return None if total is None else total // number + (i < total % number)


def collect(
    env: Any,
    policy: Callable[[Any], Any],
    features: Callable[[Any], ArrayLike] | None,
    budget: Budget,
    seed: int | None = None,
) -> dict[str, Any]:
    """Run `policy` and return arguments of `Trajectories`; see `Trajectories.from_gymnasium`."""
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
    record = record_vector if vector else _record_single
    record(Run(env, policy, phi, recorders, seed, budget.report))
    return assemble(episode for recorder in recorders for episode in recorder.episodes)


def _record_single(run: Run) -> None:
    """Step a single environment until its recorder has spent its budget."""
    env, policy, phi, (recorder,), seed, report = run
    observation = check_reset(env.reset(seed=seed))
    while True:
        # The features are copied before the next step: an environment may write into the observation it gave.
        recorder.begin(phi(observation, recorder.where))
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = check_step(env.step(policy(observation)))
            terminated, truncated = bool(terminated), bool(truncated)
            over = terminated or truncated
            phi_next = None if terminated else phi(observation, recorder.where)
            recorder.record(reward, phi_next, terminated, truncated)
            report(run.recorders)
            if recorder.finished:
                return
        observation = check_reset(env.reset())
