"""A policy run in a Gymnasium vector environment, as transitions of each sub-environment.

Gymnasium resets a sub-environment after the end of an episode in one of three ways (``metadata["autoreset_mode"]``):

NextStep
    The step after the end ignores the action and returns the first observation of the next episode, with reward 0.
    It is not a transition.
SameStep
    The step that ends an episode returns the first observation of the next episode, and the final observation in
    ``info["final_obs"]``. An environment that writes all observations into one buffer overwrites the final one: it, or
    a part of it, then always equals the first observation of the next episode.
Disabled
    The caller resets with ``reset(options={"reset_mask": mask})``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd.errors import InvalidInputError
from lstd.trajectories.observations import check_reset, check_step, import_gymnasium
from lstd.trajectories.recorded_steps import Recorder, Run
from lstd.types import Flags

_MOST_BY_CHANCE = 2  # final observations of a sub-environment that may all equal the first one of the next episode
_MODES = ("NextStep", "SameStep", "Disabled")


def record_vector(run: Run) -> None:
    """Step a vector environment until every recorder is finished.

    Raises InvalidInputError when the autoreset mode is not known, or a final observation is missing or was overwritten.
    """
    stepper = _Stepper(run)
    observations = stepper.start(run.seed)
    while not all(recorder.finished for recorder in run.recorders):
        actions, probabilities = run.act(observations)
        _check_actions(run.env, actions)
        if probabilities is not None and np.shape(probabilities) != (run.env.num_envs,):
            raise InvalidInputError(
                f"`policy` must give one probability per sub-environment, {run.env.num_envs}, with its actions; got "
                f"shape {np.shape(probabilities)}."
            )
        observations = stepper.step(actions, probabilities)
        run.report()
    _check_all(stepper.finals)


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


def _check_actions(env: Any, actions: Any) -> None:
    if isinstance(actions, (tuple, dict)):  # batches of composite actions
        return
    shape = np.shape(actions)
    if not shape or shape[0] != env.num_envs:
        raise InvalidInputError(
            f"`policy` must give one action per sub-environment, {env.num_envs}, for the batch of observations; got "
            f"shape {shape}. To use a policy of one observation, pass "
            "lambda observations: np.array([policy(x) for x in observations])."
        )


class _Stepper:
    """Stepper of a vector environment that records each sub-environment according to the autoreset mode."""

    def __init__(self, run: Run) -> None:
        self._env, self._phi, self._recorders, self._mode = run.env, run.phi, run.recorders, _autoreset_mode(run.env)
        self._over: Flags = np.zeros(len(run.recorders), dtype=np.bool_)  # the last step ended the episode
        self.finals = [_FinalObservations() for _ in run.recorders]
        self._iterate = import_gymnasium().vector.utils.iterate

    def start(self, seed: int | None) -> Any:
        """Reset all sub-environments and return the batch of observations."""
        batch = check_reset(self._env.reset(seed=seed))
        for recorder, observation in zip(self._recorders, self._each(batch), strict=True):
            self._begin(recorder, observation)
        return batch

    def step(self, actions: Any, probabilities: Any) -> Any:
        """Step once, record, and return the batch of observations to act on."""
        batch, rewards, terminated, truncated, info = check_step(self._env.step(actions))
        observations = self._each(batch)
        if isinstance(actions, (tuple, dict)):
            actions = list(self._iterate(self._env.action_space, actions))
        over = np.asarray(terminated, dtype=np.bool_) | np.asarray(truncated, dtype=np.bool_)
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
            chance = None if probabilities is None else probabilities[i]
            recorder.record(rewards[i], phi_next, bool(over[i]), actions[i], chance)
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
        """Reset the sub-environments whose episode is over; raises InvalidInputError if others change."""
        running = [(i, recorder) for i, recorder in enumerate(self._recorders) if not recorder.finished]
        kept = {i: self._phi(before[i], recorder.where) for i, recorder in running if not over[i]}
        batch = check_reset(self._env.reset(options={"reset_mask": over.copy()}))
        observations = self._each(batch)
        for i, recorder in running:
            if over[i]:
                self._begin(recorder, observations[i])
            elif not np.array_equal(kept[i], self._phi(observations[i], recorder.where)):
                raise InvalidInputError(
                    "`env.reset` must reset only the sub-environments in options['reset_mask'], because autoreset is "
                    f"Disabled; sub-environment {i} changed too. Make the environment with another autoreset mode."
                )
        return batch

    def _final(self, info: dict[str, Any], i: int, first: Any) -> Any:
        """Return the final observation of sub-environment `i`, whose next episode begins with `first`."""
        where = self._recorders[i].where
        for key in ("final_obs", "final_observation"):
            given, present = info.get(key), info.get(f"_{key}")
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
    """Counts of final observations of a sub-environment that equal the first observation of the next episode.

    An environment may overwrite one part and not another. Therefore equal observations are counted for the whole, under
    the path "", and for each float array inside that is not constant.
    """

    def __init__(self) -> None:
        self.count = 0  # of final observations
        self._equal: Counter[str] = Counter()
        self._start: dict[str, NDArray[np.float64]] = {}
        self._varied = {""}

    def see(self, observation: Any) -> None:
        """Note the parts that have changed since the first observation."""
        for path, part in _leaves(observation):
            if _is_float_array(part) and not np.array_equal(self._start.setdefault(path, np.array(part)), part):
                self._varied.add(path)

    def compare(self, final: Any, first: Any, where: str) -> None:
        """Compare one more pair; raises InvalidInputError once more pairs were equal than chance explains."""
        one, two = dict(_leaves(final)), dict(_leaves(first))
        if not any(isinstance(leaf, np.ndarray) for leaf in one.values()):
            return  # numbers and text cannot be overwritten
        same = {path: path in two and np.array_equal(leaf, two[path]) for path, leaf in one.items()}
        self.count += 1
        self._equal[""] += one.keys() == two.keys() and all(same.values())
        self._equal.update({path: int(same[path]) for path, leaf in one.items() if path and _is_float_array(leaf)})
        if self.count == _MOST_BY_CHANCE + 1 and (always := self.always()):
            raise _overwritten(self.count, min(always), where)

    def always(self) -> set[str]:
        """Return the paths of parts that change and were equal in all pairs."""
        return {path for path, times in self._equal.items() if times == self.count} & self._varied


def _check_all(finals: list[_FinalObservations]) -> None:
    """Raise InvalidInputError if all final observations of all sub-environments were overwritten."""
    compared = [final for final in finals if final.count]
    if compared and (always := set.intersection(*(final.always() for final in compared))):
        raise _overwritten(sum(final.count for final in compared), min(always), "of the run")


def _leaves(observation: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the arrays, numbers and text inside an observation, each with its path, as in "['place'][0]"."""
    if isinstance(observation, (dict, tuple, list)):
        parts = observation.items() if isinstance(observation, dict) else enumerate(observation)
        for key, part in parts:
            yield from _leaves(part, f"{path}[{key!r}]")
    else:
        yield path, observation


def _is_float_array(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind == "f"


def _overwritten(count: int, part: str, where: str) -> InvalidInputError:
    alike = f"their parts {part}" if part else "the two"
    return InvalidInputError(
        "`env` must not overwrite the final observation of a truncated episode with the first one of the next, as "
        f"autoreset SameStep gives both in one step; {alike} were equal in all {count} cases {where}. Make the "
        "environment with autoreset_mode=AutoresetMode.NEXT_STEP, or have it return copies."
    )
