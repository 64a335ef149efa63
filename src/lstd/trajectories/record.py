"""A policy run in a Gymnasium environment or vector environment, as arrays of the data contract.

A vector environment resets a sub-environment after an episode in one of three ways (``metadata["autoreset_mode"]``):

NextStep
    The step after the end ignores the action and returns the first observation of the next episode, with reward 0.
    It is not a transition.
SameStep
    The step that ends an episode returns the first observation of the next episode, and the final observation in
    ``info["final_obs"]``.
Disabled
    The caller resets with ``reset(options={"reset_mask": mask})``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lstd.data.arguments import check_integer, shown
from lstd.errors import InvalidInputError, missing_extra
from lstd.trajectories.joining import Episode, assemble
from lstd.types import Array

_MODES = ("NextStep", "SameStep", "Disabled")
Function = Callable[[Any], ArrayLike] | None  # of one observation, or of one episode
Progress = Callable[[int, int], None] | None


def import_gymnasium() -> Any:
    """Import gymnasium with its vector environments; raises MissingExtraError."""
    try:
        import gymnasium
        import gymnasium.vector.utils
    except ImportError as error:
        task = "Running an environment or flattening its observations"
        raise missing_extra(task, "gymnasium", "gymnasium") from error
    return gymnasium


_FORMS = {"reset": "observation, info", "step": "observation, reward, terminated, truncated, info"}


def check_result(call: str, result: Any) -> tuple[Any, ...]:
    """Return what `env.reset` or `env.step` returned; raises InvalidInputError unless it has Gymnasium's form."""
    n = _FORMS[call].count(",") + 1
    if isinstance(result, tuple) and len(result) == n and isinstance(result[-1], dict):
        return result
    found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
    raise InvalidInputError(
        f"`env.{call}` must return ({_FORMS[call]}), as in Gymnasium; got {found}. Check the environment with "
        "gymnasium.utils.env_checker.check_env; one of the old package gym, which does not tell termination from "
        "truncation, needs a wrapper such as shimmy's GymV21CompatibilityV0."
    )


class ObservationFeatures:
    """Function from one observation to its n features, with checks.

    Without `features`, observations are flattened according to `space`. Raises InvalidInputError when the space cannot
    be flattened into numbers; on a call, when features are not n finite numbers.
    """

    def __init__(self, features: Function, space: Any) -> None:
        self.length: int | None = None
        self._flat = False  # whether features are the numbers of a Box
        self._states: range | None = None  # of a Discrete space, whose features are one-hot
        self._space = space if features is None else None
        if features is None:
            self._function = _flattening(space)
            self._source = f"The observation space {space!s:.80}, flattened,"
            spaces = import_gymnasium().spaces
            self._flat = isinstance(space, spaces.Box)
            if isinstance(space, spaces.Discrete):
                self._states = range(int(space.start), int(space.start + space.n))
        elif callable(features):
            self._function = features
            self._source = "`features`"
        else:
            raise InvalidInputError(f"`features` must be a function of one observation, or None; got {features!r:.80}.")

    def __call__(self, observation: Any, where: str) -> Array:
        """Return a copy of the features of one observation, shape (n,); messages end with `where`."""
        value = self._function(observation) if self._space is None else self._flattened(observation, where)
        try:
            row = np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{self._source} must give numbers; got {value!r:.80} {where}.") from error
        if row.ndim != 1 or row.size == 0:
            raise InvalidInputError(
                f"{self._source} must give features of shape (n,); got shape {row.shape} {where}. Flatten them."
            )
        if self.length is None:
            self.length = len(row)
        if len(row) != self.length:
            raise InvalidInputError(
                f"{self._source} must give the same number of features each time; got {self.length} first, and "
                f"{len(row)} {where}."
            )
        if not np.isfinite(row).all():
            i = int(np.argmin(np.isfinite(row)))
            raise InvalidInputError(f"{self._source} must give finite features; feature {i} is {row[i]} {where}.")
        return row

    def _flattened(self, observation: Any, where: str) -> ArrayLike:
        """Flatten an observation; raises InvalidInputError if it is not one of the space."""
        try:
            if self._states is None or int(observation) in self._states:
                return self._function(observation)
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # a part is missing or of another kind
            raise InvalidInputError(
                f"Observations must be of the space of the environment, {self._space!s:.80}; got {observation!r:.80} "
                f"{where} ({error!r:.80}). Correct the environment, or pass `features`."
            ) from error
        raise InvalidInputError(
            f"Observations must be in [{self._states[0]}, {self._states[-1]}], as the space says; got "
            f"{observation} {where}. Pass `features`."
        )

    def of_batch(self, observations: Any, n_rows: int, where: Callable[[int], str]) -> Array:
        """Return the features of the first `n_rows` of a batch, which may be a tree of dicts and tuples."""
        try:
            X = self._of_arrays(observations, n_rows)
        except (TypeError, ValueError):  # an observation is not of the space
            X = None
        if X is None:
            return np.stack([self(at(observations, row), where(row)) for row in range(n_rows)])
        doubtful = ~np.isfinite(X).all(axis=1)
        if self._states is not None:
            doubtful = ~X.any(axis=1)
        row = int(doubtful.argmax())
        self(observations[row], where(row))  # raises if the row breaks a rule; without doubt checks the first one
        return X

    def _of_arrays(self, observations: Any, n_rows: int) -> Array | None:
        """Return the features of a batch that is an array of numbers; None for others."""
        if self._flat:
            return np.array(observations, dtype=np.float64)[:n_rows].reshape(n_rows, -1)
        if self._states is None:
            return None
        places = np.asarray(observations)[:n_rows].reshape(n_rows).astype(np.int64) - self._states[0]
        return np.asarray(places[:, np.newaxis] == np.arange(len(self._states)), np.float64)


def at(observations: Any, row: int) -> Any:
    """Return one observation, or action, of a batch that may be a tree of dicts and tuples."""
    if isinstance(observations, dict):
        return {key: at(part, row) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(at(part, row) for part in observations)
    return observations[row]


def _flattening(space: Any) -> Callable[[Any], ArrayLike]:
    if space is None:
        raise InvalidInputError("`features` is needed, because the observations have no space; got None.")
    spaces = import_gymnasium().spaces
    refused = _not_numeric(space, spaces)
    if refused is not None:
        raise InvalidInputError(
            f"`features` is needed, because observations of {type(refused).__name__} have no fixed size; "
            "got None. Pass a function of one observation that returns n numbers."
        )
    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, dtype=np.float64).reshape(-1)
    return lambda observation: np.asarray(spaces.flatten(space, observation))


def _not_numeric(space: Any, spaces: Any) -> Any:
    """Find the first part of a space that cannot be flattened into numbers; None if all can."""
    parts: Iterable[Any] = ()
    if isinstance(space, spaces.Dict):
        parts = space.spaces.values()
    elif isinstance(space, spaces.Tuple):
        parts = space.spaces
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return space
    for part in parts:
        refused = _not_numeric(part, spaces)
        if refused is not None:
            return refused
    return None


@dataclass
class Recorder:
    """Recorder of one environment, for at most `max_episodes` and at most `max_steps`; None for no limit."""

    number: int  # of the sub-environment, for messages
    phi: ObservationFeatures
    max_episodes: int | None
    max_steps: int | None
    episodes: list[Episode] = field(default_factory=list)  # complete, or cut off by a limit
    n_steps: int = 0  # recorded so far
    _phis: list[Array] = field(default_factory=list)  # of the current episode
    _steps: list[tuple[Array, Any, float | None]] = field(default_factory=list)  # reward, action and its probability

    @property
    def finished(self) -> bool:
        """Whether a limit is reached."""
        if self.max_episodes is not None and len(self.episodes) >= self.max_episodes:
            return True
        return self.max_steps is not None and self.n_steps >= self.max_steps

    @property
    def where(self) -> str:
        """Where the recording is now, for messages."""
        return f"after step {len(self._steps)} of episode {len(self.episodes)} of environment {self.number}"

    def begin(self, observation: Any) -> None:
        """Begin an episode with its first observation, whose memory the environment may reuse."""
        self._phis = [self.phi(observation, self.where)]
        self._steps = []

    def record(self, reward: Any, after: Any, ends: tuple[Any, Any], action: Any, probability: float | None) -> None:
        """Record a step to the observation `after`, not used if it terminated; `ends`: terminated, truncated."""
        terminated, truncated = map(bool, ends)
        if not terminated:
            self._phis.append(self.phi(after, self.where))
        if not isinstance(action, (tuple, dict)):
            action = np.array(action)
        self._steps.append((self._check_reward(reward), action, probability))
        self.n_steps += 1
        if terminated or truncated or self.finished:
            rewards, actions, given = zip(*self._steps, strict=True)
            known = [one for one in given if one is not None] or None
            self.episodes.append(Episode(np.stack(self._phis), np.stack(rewards), terminated, actions, known))
            self._phis = []
            self._steps = []

    def _check_reward(self, reward: Any) -> Array:
        try:
            value = np.array(reward, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"`env.step` must give a number as reward; got {reward!r:.80}.") from error
        if value.ndim > 1 or not np.isfinite(value).all():
            raise InvalidInputError(
                f"`env.step` must give a finite reward, or a vector of finite rewards; got {reward!r:.80} "
                f"{self.where}. Check the environment."
            )
        if not self._steps:
            return value
        first = self._steps[0][0]
        if value.shape != first.shape:
            raise InvalidInputError(
                f"`env.step` must give rewards of one shape; got {first.shape}, then {value.shape} "
                f"{self.where}. Check the environment."
            )
        return value


class _Run(NamedTuple):
    """A policy, its environment, and what to record."""

    env: Any
    policy: Callable[[Any], Any]
    recorders: list[Recorder]  # one per sub-environment
    seed: int | None  # of the first reset
    report: Callable[[], None]  # called after each step

    def act(self, observation: Any) -> tuple[Any, Any]:
        """Return the action for an observation, and its probability or None."""
        chosen = self.policy(observation)
        if not (isinstance(chosen, tuple) and len(chosen) == 2):
            return chosen, None
        space = getattr(self.env, "action_space", None)
        shape = getattr(space, "shape", None)
        # An action may itself be a tuple of two: it has the form that the space asks for.
        pair = isinstance(chosen[0], (tuple, dict)) if shape is None else np.shape(chosen[0]) == shape
        if space is not None and not pair:
            return chosen, None
        action, probability = chosen
        if isinstance(probability, (tuple, dict)) or (np.ndim(probability) > 0 and len(self.recorders) == 1):
            raise InvalidInputError(
                "`policy` must return the action, or the pair of the action and its probability, a number; got a pair "
                f"with {shown(probability)}. If that is the state of a recurrent policy, as `predict` of "
                "Stable-Baselines3 returns it, keep it inside `policy`, and return the action alone."
            )
        return action, probability

    def split(self, batch: Any, space: Any = None) -> list[Any]:
        """Split a batch, of observations unless another space is given, into those of the sub-environments."""
        return list(import_gymnasium().vector.utils.iterate(space or self.env.observation_space, batch))


def collect(
    env: Any,
    policy: Callable[[Any], Any],
    features: Function,
    n_episodes: int | None,
    n_steps: int | None,
    seed: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """Run `policy` and return the arguments of `Trajectories`; see `Trajectories.from_gymnasium`."""
    if n_episodes is None and n_steps is None:
        raise InvalidInputError("`n_episodes` or `n_steps` is needed, a positive integer; got None for both.")
    if n_episodes is not None:
        check_integer("n_episodes", n_episodes, 1)
    if n_steps is not None:
        check_integer("n_steps", n_steps, 1)
    if seed is not None:
        seed = check_integer("seed", seed, 0)
    if not callable(policy):
        raise InvalidInputError(f"`policy` must be a function from observation to action; got {policy!r:.80}.")
    vector = _is_vector(env)
    phi = ObservationFeatures(features, getattr(env, f"{'single_' * vector}observation_space", None))
    for name in ("action_space", "single_action_space") if vector else ("action_space",):
        if seed is not None and hasattr(env, name):
            getattr(env, name).seed(seed)
    number = int(env.num_envs) if vector else 1
    recorders = [Recorder(i, phi, _share(n_episodes, i, number), _share(n_steps, i, number)) for i in range(number)]

    def report() -> None:
        if progress is not None and n_episodes is not None:
            progress(sum(len(recorder.episodes) for recorder in recorders), n_episodes)
        elif progress is not None and n_steps is not None:
            progress(sum(recorder.n_steps for recorder in recorders), n_steps)

    (_record_vector if vector else _record_single)(_Run(env, policy, recorders, seed, report))
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
    if total is None:
        return None
    return total // number + (i < total % number)


def _record_single(run: _Run) -> None:
    """Step a single environment until its recorder is finished."""
    env = run.env
    (recorder,) = run.recorders
    observation = check_result("reset", env.reset(seed=run.seed))[0]
    recorder.begin(observation)
    while True:
        action, probability = run.act(observation)
        observation, reward, terminated, truncated, _ = check_result("step", env.step(action))
        recorder.record(reward, observation, (terminated, truncated), action, probability)
        run.report()
        if recorder.finished:
            return
        if terminated or truncated:
            observation = check_result("reset", env.reset())[0]
            recorder.begin(observation)


def _record_vector(run: _Run) -> None:
    """Step a vector environment until every recorder is finished.

    Raises InvalidInputError when the autoreset mode is not known, or a final observation is missing.
    """
    env = run.env
    recorders = run.recorders
    mode = _autoreset_mode(env)
    batch = check_result("reset", env.reset(seed=run.seed))[0]
    seen = run.split(batch)
    begun = np.ones(len(recorders), dtype=np.bool_)
    over = ~begun  # the last step ended the episode
    while True:
        for i, recorder in enumerate(recorders):
            if begun[i] and not recorder.finished:
                recorder.begin(seen[i])
        if all(recorder.finished for recorder in recorders):
            return
        actions, probabilities = run.act(batch)
        taken, chances = _each(run, actions, probabilities)
        batch, rewards, terminated, truncated, info = check_result("step", env.step(actions))
        seen = run.split(batch)
        before = over
        over = np.asarray(terminated, dtype=np.bool_) | np.asarray(truncated, dtype=np.bool_)
        begun = before if mode == "NextStep" else over
        for i, recorder in enumerate(recorders):
            if recorder.finished or (mode == "NextStep" and before[i]):
                continue
            lost = mode == "SameStep" and over[i] and not terminated[i]
            after = _final(run, info, i) if lost else seen[i]
            recorder.record(rewards[i], after, (terminated[i], truncated[i]), taken[i], chances[i])
        if mode == "Disabled" and over.any():
            batch = check_result("reset", env.reset(options={"reset_mask": over.copy()}))[0]
            seen = run.split(batch)
        run.report()


def _autoreset_mode(env: Any) -> str:
    """Return NextStep, SameStep or Disabled, according to the environment."""
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = getattr(mode, "value", mode)
    if name not in _MODES:
        raise InvalidInputError(
            f"`env.metadata['autoreset_mode']` must be one of {', '.join(_MODES)}; got {mode!r}. Set it to the member "
            "of gymnasium.vector.AutoresetMode that applies."
        )
    return str(name)


def _each(run: _Run, actions: Any, probabilities: Any) -> tuple[Any, Any]:
    """Return the action and the probability, or None, of each sub-environment."""
    number = len(run.recorders)
    if isinstance(actions, (tuple, dict)):  # batches of composite actions
        actions = run.split(actions, run.env.action_space)
    elif np.shape(actions)[:1] != (number,):
        raise InvalidInputError(
            f"`policy` must give one action per sub-environment, {number}, for the batch of observations; got "
            f"shape {np.shape(actions)}. To use a policy of one observation, pass "
            "lambda observations: np.array([policy(x) for x in observations])."
        )
    if probabilities is None:
        return actions, [None] * number
    if np.shape(probabilities) != (number,):
        raise InvalidInputError(
            f"`policy` must give one probability per sub-environment, {number}, with its actions; got "
            f"shape {np.shape(probabilities)}."
        )
    return actions, probabilities


def _final(run: _Run, info: dict[str, Any], i: int) -> Any:
    """Return the final observation of sub-environment `i`, whose next episode has begun."""
    given = info.get("final_obs")
    present = info.get("_final_obs")
    if given is not None and (present is None or present[i]):
        one_each = isinstance(given, list) or (isinstance(given, np.ndarray) and given.dtype == object)
        final = given[i] if one_each else run.split(given)[i]
        if final is not None:
            return final
    raise InvalidInputError(
        "`env.step` must give the final observation of a truncated episode in info['final_obs'], because autoreset "
        f"is SameStep; got none {run.recorders[i].where}. Make the environment with "
        "autoreset_mode=AutoresetMode.NEXT_STEP."
    )
