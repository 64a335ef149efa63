"""A policy run in a Gymnasium vector environment: which step of which sub-environment is a transition.

Gymnasium resets a finished sub-environment in one of three ways (``metadata["autoreset_mode"]``):

NextStep
    The step after the end returns the first observation of the next episode, with reward 0, and ignores the action:
    it is not a transition.
SameStep
    The step that ends an episode already returns the first observation of the next one; the final observation is in
    ``info["final_obs"]``. An environment that writes all observations into one buffer has overwritten it by then:
    every final observation, or a part of it, then equals the first one of the next episode.
Disabled
    The caller resets it, with ``reset(options={"reset_mask": mask})``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.extras import import_gymnasium
from lstd.trajectories.observations import check_reset, check_step
from lstd.trajectories.recorder import Recorder, Run

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
_CHANCE_IS_RULED_OUT = 3  # final observations of one sub-environment that all equal the first one of the next episode
_MODES = ("NextStep", "SameStep", "Disabled")


def record_vector(run: Run) -> None:
    """Step a vector environment until every recorder has spent its budget.

    Raises
    ------
    InvalidInputError
        When the autoreset mode is not known, or a final observation is missing or was overwritten.
    """
    stepper = _Stepper(run)
    observations = stepper.start(run.seed)
    while not all(recorder.finished for recorder in run.recorders):
        actions = run.policy(observations)
        _check_actions(run.env, actions)
        observations = stepper.step(actions)
        run.report(run.recorders)
    _check_all(stepper.finals)


def _autoreset_mode(env: Any) -> str:
    """NextStep, SameStep or Disabled, according to the environment."""
    metadata = getattr(env, "metadata", None) or {}
    mode = metadata.get("autoreset_mode")
    name = getattr(mode, "value", mode)
    if name not in _MODES:
        raise InvalidInputError(
            "`env.metadata['autoreset_mode']` must state how finished sub-environments are reset, one of "
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
    """Steps of a vector environment, recorded for each sub-environment according to the autoreset mode."""

    def __init__(self, run: Run) -> None:
        self._env, self._phi, self._recorders, self._mode = run.env, run.phi, run.recorders, _autoreset_mode(run.env)
        self._over: Flags = np.zeros(len(run.recorders), dtype=np.bool_)  # ended in the step before
        self.finals = [_FinalObservations() for _ in run.recorders]
        self._iterate = import_gymnasium().vector.utils.iterate

    def start(self, seed: int | None) -> Any:
        """Reset everything and return the batch of observations."""
        batch = check_reset(self._env.reset(seed=seed))
        for recorder, observation in zip(self._recorders, self._each(batch), strict=True):
            self._begin(recorder, observation)
        return batch

    def step(self, actions: Any) -> Any:
        """Step once, record, and return the batch of observations to act on."""
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
            same_step = self._mode == "SameStep"
            phi_next = None
            if not terminated[i]:
                final = self._final(info, i, observations[i]) if same_step and over[i] else observations[i]
                phi_next = self._phi(final, recorder.where)
            if same_step:
                self.finals[i].see(observations[i])
            recorder.record(rewards[i], phi_next, bool(terminated[i]), bool(truncated[i]))
            if same_step and over[i]:
                self._begin(recorder, observations[i])
        self._over = over
        if self._mode == "Disabled" and over.any():
            return self._reset(over, observations)
        return batch

    def _each(self, batch: Any) -> list[Any]:
        """Split a batch into the observations of the sub-environments."""
        return list(self._iterate(self._env.observation_space, batch))

    def _begin(self, recorder: Recorder, observation: Any) -> None:
        if not recorder.finished:
            recorder.begin(self._phi(observation, recorder.where))

    def _reset(self, over: Flags, before: list[Any]) -> Any:
        """Reset the sub-environments whose episode is over; raises if others change."""
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

    def _final(self, info: dict[str, Any], i: int, first: Any) -> Any:
        """Final observation of sub-environment `i`, truncated and reset in one step, which then returned `first`."""
        where = self._recorders[i].where
        for key in ("final_obs", "final_observation"):
            given = info.get(key)
            present = info.get(f"_{key}")
            if given is None or (present is not None and not present[i]):
                continue
            one_each = isinstance(given, list) or (isinstance(given, np.ndarray) and given.dtype == object)
            final = given[i] if one_each else self._each(given)[i]
            if final is not None:
                self.finals[i].compare(final, first, where)
                return final
        raise InvalidInputError(
            "`env.step` must give the final observation of a truncated episode in info['final_obs'], because autoreset "
            f"is SameStep; got none {where}. Make the environment with autoreset_mode=AutoresetMode.NEXT_STEP."
        )


class _FinalObservations:
    """How many final observations of a sub-environment equal the first observation of the next episode.

    Counted for the whole observation, under the path "", and for each array of floats inside it that is not constant:
    an environment may overwrite one part and not another.
    """

    def __init__(self) -> None:
        self.count = 0
        self._equal: Counter[str] = Counter()
        self._start: dict[str, Array] = {}
        self._varied = {""}

    def see(self, observation: Any) -> None:
        """Note which parts change."""
        for path, part in _leaves(observation):
            if _is_float_array(part) and not np.array_equal(self._start.setdefault(path, np.array(part)), part):
                self._varied.add(path)

    def compare(self, final: Any, first: Any, where: str) -> None:
        """Count one more final observation; raises if all of several were overwritten."""
        one, two = dict(_leaves(final)), dict(_leaves(first))
        if not any(isinstance(leaf, np.ndarray) for leaf in one.values()):
            return  # numbers and text cannot be overwritten
        same = {path: path in two and np.array_equal(leaf, two[path]) for path, leaf in one.items()}
        self.count += 1
        self._equal[""] += one.keys() == two.keys() and all(same.values())
        self._equal.update({path: int(same[path]) for path, leaf in one.items() if path and _is_float_array(leaf)})
        if self.count == _CHANCE_IS_RULED_OUT and (always := self.always()):
            raise _overwritten(f"all {self.count} final observations did {where}", min(always))

    def always(self) -> set[str]:
        """Paths of parts that change and were equal each time."""
        return {path for path, times in self._equal.items() if times == self.count} & self._varied


def _check_all(finals: list[_FinalObservations]) -> None:
    """Raise if all final observations were overwritten, in all sub-environments together."""
    compared = [final for final in finals if final.count]
    if compared and (always := set.intersection(*(final.always() for final in compared))):
        count = sum(final.count for final in compared)
        raise _overwritten(f"{'the only one' if count == 1 else f'all {count}'} did", min(always))


def _leaves(observation: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays, numbers and text inside an observation, each with its path, such as "['place'][0]"."""
    if isinstance(observation, (dict, tuple, list)):
        parts = observation.items() if isinstance(observation, dict) else enumerate(observation)
        for key, part in parts:
            yield from _leaves(part, f"{path}[{key!r}]")
    else:
        yield path, observation


def _is_float_array(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind == "f"


def _overwritten(found: str, part: str) -> InvalidInputError:
    alike = f"their parts {part}" if part else "the two"
    return InvalidInputError(
        "`env` must keep the final observation of a truncated episode apart from the first one of the next, which "
        f"autoreset SameStep gives in the same step; {alike} were equal: {found}. Most likely the environment writes "
        "both into one array. Make it with autoreset_mode=AutoresetMode.NEXT_STEP, or have it return copies."
    )
