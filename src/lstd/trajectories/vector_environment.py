"""A policy run in a Gymnasium vector environment: which step of which sub-environment is a transition.

Gymnasium resets a finished sub-environment in one of three ways (``metadata["autoreset_mode"]``):

NextStep
    The step after the end returns the first observation of the next episode, with reward 0, and ignores the action:
    it is no transition.
SameStep
    The step that ends an episode already returns the first observation of the next one; the final observation is in
    ``info["final_obs"]``. An environment that writes all observations into one buffer has overwritten it by then,
    which shows when every final observation, or a part of it, equals that of the first one of the next episode.
Disabled
    The caller resets it, with ``reset(options={"reset_mask": mask})``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_gymnasium
from lstd.trajectories.gymnasium_protocol import check_reset, check_step
from lstd.trajectories.observations import ObservationFeatures
from lstd.trajectories.recorder import Recorder

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_CHANCE_IS_RULED_OUT = 3  # final observations of one sub-environment that equal the next first one, all of them
_MODES = ("NextStep", "SameStep", "Disabled")


def record_vector(
    env: Any,
    policy: Callable[[Any], Any],
    phi: ObservationFeatures,
    recorders: list[Recorder],
    seed: int | None,
    report: Callable[[list[Recorder]], None],
) -> None:
    """Step `env` until every recorder has spent its budget.

    Raises
    ------
    InvalidInputError
        When the autoreset mode is not known, or a final observation is missing or was overwritten.
    """
    stepper = _Stepper(env, phi, recorders, autoreset_mode(env))
    observations = stepper.start(seed)
    while not all(recorder.finished for recorder in recorders):
        actions = policy(observations)
        _check_actions(env, actions)
        observations = stepper.step(actions)
        report(recorders)
    stepper.finish()


def autoreset_mode(env: Any) -> str:
    """NextStep, SameStep or Disabled, as the environment says."""
    metadata = getattr(env, "metadata", None) or {}
    mode = metadata.get("autoreset_mode")
    name = getattr(mode, "value", mode)
    if name not in _MODES:
        raise InvalidInputError(
            "`env.metadata['autoreset_mode']` must say how finished sub-environments are reset, one of "
            f"{', '.join(_MODES)}; got {mode!r}. Set it to the member of gymnasium.vector.AutoresetMode that applies."
        )
    return str(name)


def _check_actions(env: Any, actions: Any) -> None:
    if isinstance(actions, (tuple, dict)):  # batches of composite actions
        return
    shape = np.shape(actions)
    if not shape or shape[0] != env.num_envs:
        raise InvalidInputError(
            f"`policy` must give one action per sub-environment, {env.num_envs}, for the batch of observations; got "
            f"shape {shape}. For a policy of one observation, pass "
            "lambda observations: np.array([policy(x) for x in observations])."
        )


class _Stepper:
    """Steps of a vector environment, told apart for each recorder by the autoreset mode."""

    def __init__(self, env: Any, phi: ObservationFeatures, recorders: list[Recorder], mode: str) -> None:
        self._env = env
        self._phi = phi
        self._recorders = recorders
        self._mode = mode
        self._over: Flags = np.zeros(len(recorders), dtype=np.bool_)  # ended in the step before
        self._finals = [_Finals() for _ in recorders]
        self._split = import_gymnasium().vector.utils.iterate

    def start(self, seed: int | None) -> Any:
        """Reset everything; returns the batch of observations."""
        batch = check_reset(self._env.reset(seed=seed))
        for recorder, observation in zip(self._recorders, self._each(batch), strict=True):
            self._begin(recorder, observation)
        return batch

    def step(self, actions: Any) -> Any:
        """Step once and record; returns the batch of observations to act on."""
        batch, rewards, terminated, truncated, info = check_step(self._env.step(actions))
        observations = self._each(batch)
        terminated, truncated = np.asarray(terminated, dtype=np.bool_), np.asarray(truncated, dtype=np.bool_)
        over = terminated | truncated
        for i, recorder in enumerate(self._recorders):
            if recorder.finished:
                continue
            if self._mode == "NextStep" and self._over[i]:
                self._begin(recorder, observations[i])
                continue
            arrived = None
            if not terminated[i]:
                final = observations[i]
                if self._mode == "SameStep" and over[i]:
                    final = self._final(info, i, recorder.where)
                    self._finals[i].compare(final, observations[i], recorder.where)
                arrived = self._phi(final, recorder.where)
            if self._mode == "SameStep":
                self._finals[i].see(observations[i])
            recorder.record(rewards[i], arrived, bool(terminated[i]), bool(truncated[i]))
            if self._mode == "SameStep" and over[i]:
                self._begin(recorder, observations[i])
        self._over = over
        if self._mode == "Disabled" and over.any():
            return self._reset(over, observations)
        return batch

    def finish(self) -> None:
        """Check what only all episodes together show."""
        _check_all(self._finals)

    def _each(self, batch: Any) -> list[Any]:
        """Observations of the sub-environments."""
        return list(self._split(self._env.observation_space, batch))

    def _begin(self, recorder: Recorder, observation: Any) -> None:
        if not recorder.finished:
            recorder.begin(self._phi(observation, recorder.where))

    def _reset(self, over: Flags, before: list[Any]) -> Any:
        """Reset what is over; the others must stay where they are."""
        kept = {i: self._phi(before[i], recorder.where) for i, recorder in self._running(~over)}
        batch = check_reset(self._env.reset(options={"reset_mask": over.copy()}))
        observations = self._each(batch)
        for i, recorder in self._running(over):
            self._begin(recorder, observations[i])
        for i, recorder in self._running(~over):
            if not np.array_equal(kept[i], self._phi(observations[i], recorder.where)):
                raise InvalidInputError(
                    "`env.reset` must reset only the sub-environments in options['reset_mask'], because autoreset is "
                    f"Disabled; sub-environment {i} changed too. Make the environment with another autoreset mode."
                )
        return batch

    def _running(self, mask: Flags) -> list[tuple[int, Recorder]]:
        return [(i, recorder) for i, recorder in enumerate(self._recorders) if mask[i] and not recorder.finished]

    def _final(self, info: dict[str, Any], i: int, where: str) -> Any:
        """The final observation of sub-environment `i`, which was truncated and reset in the same step."""
        for key in ("final_obs", "final_observation"):
            given = info.get(key)
            present = info.get(f"_{key}")
            if given is None or (present is not None and not present[i]):
                continue
            one_each = isinstance(given, list) or (isinstance(given, np.ndarray) and given.dtype == object)
            final = given[i] if one_each else self._each(given)[i]
            if final is not None:
                return final
        raise InvalidInputError(
            "`env.step` must give the final observation of a truncated episode in info['final_obs'], because autoreset "
            f"is SameStep; got none {where}. Make the environment with autoreset_mode=AutoresetMode.NEXT_STEP."
        )


class _Finals:
    """How many final observations of a sub-environment equal the first observation of the next episode.

    The whole observation counts, and each array of floats inside of it that is not the same all the time: one part may
    be overwritten and another not.
    """

    def __init__(self) -> None:
        self._start: dict[str, Array] = {}
        self._varied: set[str] = set()
        self._count = 0
        self.equal: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Final observations that were compared."""
        return self._count

    def see(self, observation: Any) -> None:
        """Note which parts change."""
        for name, part in _parts(observation):
            if not np.array_equal(self._start.setdefault(name, np.array(part)), part):
                self._varied.add(name)

    def compare(self, final: Any, first: Any, where: str) -> None:
        """Count one more; raises InvalidInputError when all of several are equal."""
        if not _may_be_overwritten(final):
            return
        self._count += 1
        self.equal[""] = self.equal.get("", 0) + _same(final, first)
        for (name, one), (_, two) in zip(_parts(final), _parts(first), strict=False):
            self.equal[name] = self.equal.get(name, 0) + bool(np.array_equal(one, two))
        if self._count == _CHANCE_IS_RULED_OUT and (always := self.always()):
            raise _overwritten(f"all {self._count} final observations did {where}", min(always))

    def always(self) -> set[str]:
        """Parts that were equal each time, but for those that never changed; "" is the whole."""
        alike = {name for name, times in self.equal.items() if times == self._count}
        return alike & ({""} | self._varied)


def _check_all(finals: list[_Finals]) -> None:
    compared = [found for found in finals if found.count]
    if compared and (always := set.intersection(*(found.always() for found in compared))):
        count = sum(found.count for found in compared)
        raise _overwritten(f"{'the only one' if count == 1 else f'all {count}'} did", min(always))


def _parts(observation: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """Arrays of floats inside of an observation, with where they stand in it."""
    if isinstance(observation, (dict, tuple, list)):
        parts = observation.items() if isinstance(observation, dict) else enumerate(observation)
        for key, part in parts:
            if isinstance(part, np.ndarray) and part.dtype.kind == "f":
                yield f"{name}[{key!r}]", part
            else:
                yield from _parts(part, f"{name}[{key!r}]")


def _overwritten(found: str, part: str) -> InvalidInputError:
    alike = f"their parts {part}" if part else "the two"
    return InvalidInputError(
        "`env` must keep the final observation of a truncated episode apart from the first one of the next, which "
        f"autoreset SameStep gives in the same step; {alike} were equal: {found}. Most likely the environment writes "
        "both into one array. Make it with autoreset_mode=AutoresetMode.NEXT_STEP, or have it return copies."
    )


def _may_be_overwritten(observation: Any) -> bool:
    """Whether it holds an array; numbers and text cannot be written to."""
    if isinstance(observation, (dict, tuple, list)):
        parts = observation.values() if isinstance(observation, dict) else observation
        return any(_may_be_overwritten(part) for part in parts)
    return isinstance(observation, np.ndarray)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(two, (tuple, list)):
        return len(one) == len(two) and all(map(_same, one, two))
    return bool(np.array_equal(one, two))
