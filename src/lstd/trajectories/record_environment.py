"""A policy run in a Gymnasium environment, as arrays of the data contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from lstd.data.arguments import check_integer
from lstd.errors import InvalidInputError
from lstd.trajectories.observations import ObservationFeatures, check_reset, check_step, import_gymnasium
from lstd.trajectories.record_vector_environment import record_vector
from lstd.trajectories.recorded_steps import Recorder, Run, assemble


def collect(
    env: Any,
    policy: Callable[[Any], Any],
    features: Callable[[Any], ArrayLike] | None,
    n_episodes: int | None,
    n_steps: int | None,
    seed: int | None,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Run `policy` and return the arguments of `Trajectories`; see `Trajectories.from_gymnasium`."""
    if n_episodes is None and n_steps is None:
        raise InvalidInputError("`n_episodes` or `n_steps` is needed, a positive integer; got None for both.")
    for name, value in (("n_episodes", n_episodes), ("n_steps", n_steps)):
        if value is not None:
            check_integer(name, value, 1)
    seed = None if seed is None else check_integer("seed", seed, 0)
    if not callable(policy):
        raise InvalidInputError(f"`policy` must be a function from observation to action; got {policy!r:.80}.")
    vector = _is_vector(env)
    phi = ObservationFeatures(features, getattr(env, f"{'single_' * vector}observation_space", None))
    for name in ("action_space", "single_action_space") if vector else ("action_space",):
        if seed is not None and hasattr(env, name):
            getattr(env, name).seed(seed)
    number = int(env.num_envs) if vector else 1
    recorders = [Recorder(i, _share(n_episodes, i, number), _share(n_steps, i, number)) for i in range(number)]

    def report() -> None:
        if progress is not None and n_episodes is not None:
            progress(sum(len(recorder.episodes) for recorder in recorders), n_episodes)
        elif progress is not None and n_steps is not None:
            progress(sum(recorder.n_steps for recorder in recorders), n_steps)

    record = record_vector if vector else _record_single
    record(Run(env, policy, phi, recorders, seed, report))
    return assemble([episode for recorder in recorders for episode in recorder.episodes])


def _is_vector(env: Any) -> bool:
    """Return whether `env` is a vector environment; raises InvalidInputError unless it is Gymnasium's."""
    gymnasium = import_gymnasium()
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
    return vector


def _share(total: int | None, i: int, number: int) -> int | None:
    """Return the share of sub-environment `i` in a total."""
    return None if total is None else total // number + (i < total % number)


def _record_single(run: Run) -> None:
    """Step a single environment until its recorder is finished."""
    env, _, phi, (recorder,), seed, report = run
    observation = check_reset(env.reset(seed=seed))
    while True:
        # The features are copied before the next step: an environment may reuse the array of an observation.
        recorder.begin(phi(observation, recorder.where))
        over = False
        while not over:
            action, probability = run.act(observation)
            observation, reward, terminated, truncated, _ = check_step(env.step(action))
            over = bool(terminated or truncated)
            phi_next = None if terminated else phi(observation, recorder.where)
            recorder.record(reward, phi_next, over, action, probability)
            report()
            if recorder.finished:
                return
        observation = check_reset(env.reset())
