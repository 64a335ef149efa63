"""Transitions as arrays, such as a replay buffer or a dictionary of D4RL, as arrays of the data contract.

Row t holds an observation o_t, the reward of the step that leaves it, flags of what the step led to, and perhaps its
successor o'_t. An episode that is cut off at row t ends in a horizon row: after row t and made of o'_t where
successors are given; otherwise row t itself, because the state after it is unknown. An episode is cut off by a timeout,
by a row whose o'_t is not o_{t+1}, and by the last row.

Environments that step side by side, in arrays (T, E, …), are put one after another: row e T + t is step t of
environment e.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd.data.arguments import check_choice, shown
from lstd.data.convert import as_real, column_of_library, columns_of_frame, to_flags, to_real_array
from lstd.data.doubts import percent
from lstd.data.ids import first_true, no_flag
from lstd.errors import InvalidInputError, MissingTerminationWarning, TerminationWarning, UnusedRewardWarning, warn
from lstd.trajectories.joining import check_actions, check_probabilities
from lstd.trajectories.record import Function, ObservationFeatures
from lstd.types import Array, Flags

_WHEN = ("departure", "arrival")
_SHORT = 0.5  # share of the mean squared step to an end, below which the row after it does not jump
_FEWEST_AT_LIMIT = 3  # episodes that end at the greatest length, for it to look like a limit
_SHORTEST_LIMIT = 3  # steps
_LEAST_CHANCE = 1e-4  # of that by chance
_FEWEST_RESETS = 5  # ends after which rewards of 0, and of no other row, are taken for those of a reset
_ROUNDING = 1e-5  # relative to the spread of an observation's numbers

Given = ArrayLike | None  # flags: an array, or False for none


@dataclass(frozen=True)
class Arrays:
    """What was given, as it was given; see `Trajectories.from_arrays`."""

    observations: Any
    rewards: ArrayLike
    terminals: Given
    timeouts: Given
    dones: Given
    next_observations: Any
    done_on: str
    reward_on: str
    actions: ArrayLike | None
    behavior_probability: ArrayLike | None


class Transitions(NamedTuple):
    """What was given as N rows, one environment after another, with flags and rewards of departure."""

    observations: Any  # an array (N, …), or a tree of dicts and tuples of arrays
    successors: Any  # of the same form; None if not given
    rewards: Array  # (N,) or (N, m); NaN where it is unknown
    terminal: Flags  # the step led to a terminal state
    timeout: Flags  # the step did not, and the episode was cut off after it
    layout: Layout

    @property
    def ended(self) -> Flags:
        """Whether the step of each row was the last one of its episode, as flags say, (N,)."""
        return self.terminal | self.timeout

    @property
    def rewarded(self) -> Flags:
        """Whether each row has a reward other than 0 and NaN, (N,)."""
        return self._any(np.nan_to_num(self.rewards) != 0.0)

    @property
    def unknown(self) -> Flags:
        """Whether each row has a reward that is NaN, (N,)."""
        return self._any(np.isnan(self.rewards))

    def _any(self, flags: Flags) -> Flags:
        return np.asarray(flags.reshape(len(flags), -1).any(axis=1))


class Reading(NamedTuple):
    """What becomes of each of N rows; `terminal`, `followed` and `horizon` exclude one another."""

    terminal: Flags  # its successor is terminal
    followed: Flags  # a horizon row made of its successor comes after it
    horizon: Flags  # it is a horizon row
    dropped: Flags  # it is no step, and its observation is that of a row before or after it


def read_arrays(given: Arrays, features: Function) -> dict[str, Any]:
    """Return the arguments of `Trajectories`."""
    _check_what_is_given(given)
    recorded = _transitions(given)
    if recorded.successors is None:
        reading = _without_successors(recorded)
    else:
        reading = _with_successors(recorded, has_timeouts=given.timeouts is not None)
    _check_finite_rewards(recorded, reading)
    source, follows = _rows(reading)
    horizon = reading.horizon[source] | follows

    y = recorded.rewards[source]
    y[horizon] = np.nan
    terminated = reading.terminal[source] & ~follows
    last = terminated | horizon
    episode: NDArray[np.intp] = np.cumsum(last) - last
    warn(_limit_doubt(episode, terminated), TerminationWarning)

    arrays: dict[str, Any] = {"y": y, "episode": episode, "terminated": terminated}
    arrays["X"] = _features(recorded, features, source, follows)
    no_step = reading.horizon | reading.dropped
    arrays |= _of_actions(given, recorded.layout, no_step, source, horizon)
    return arrays


# ------------------------------------------------------------ what is given


def _check_what_is_given(given: Arrays) -> None:
    """Refuse flags that do not say which steps led to a terminal state, and which were cut off."""
    check_choice("done_on", given.done_on, _WHEN)
    check_choice("reward_on", given.reward_on, _WHEN)
    if given.terminals is not None and given.dones is not None:
        raise InvalidInputError(
            "`terminals` and `dones` must not both be given: `dones` are the terminals and the timeouts together. Give "
            "`terminals`, and timeouts = dones & ~terminals."
        )
    if given.terminals is None and given.dones is None:
        raise InvalidInputError(
            "`terminals` is needed: which steps led to a terminal state. Give it, or `dones` and `timeouts`; "
            "terminals=False says that none did."
        )
    if given.timeouts is None and given.dones is not None:
        raise InvalidInputError(
            "`timeouts` is needed with `dones`, because a done may be a time limit, after which rewards would have "
            "gone on; a limit taken for an end spoils all values. Give `timeouts`, such as those of a replay buffer of "
            "Stable-Baselines3, or timeouts=False if no episode was cut off."
        )
    if given.timeouts is None and given.next_observations is None:
        raise InvalidInputError(
            "`timeouts` or `next_observations` is needed with `terminals`, because an episode that was cut off would "
            "run on into the next one. Give one of them, or timeouts=False if no episode was cut off."
        )
    for name in ("done_on", "reward_on"):
        if getattr(given, name) == "arrival" and given.next_observations is not None:
            raise InvalidInputError(
                f"`{name}` must be 'departure' where `next_observations` is given: a row is then a whole transition, "
                "with its own reward and flags. Move the arrays by one row first, or leave `next_observations` out."
            )


# ------------------------------------------------------------ shapes


@dataclass(frozen=True)
class Layout:
    """Arrays of T steps, of E environments if they have an axis for them; N = E T rows."""

    n_steps: int
    n_envs: int = 1
    has_axis: bool = False  # whether arrays have shape (T, E, …)

    @property
    def last(self) -> Flags:
        """Whether each row is the last one of its environment, (N,)."""
        last = np.zeros((self.n_envs, self.n_steps), np.bool_)
        last[:, -1:] = True
        return last.reshape(-1)

    def where(self, row: int) -> str:
        """Name a row in a message."""
        if self.n_envs == 1:
            return f"row {row}"
        return f"step {row % self.n_steps} of environment {row // self.n_steps}"

    def flat(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return an array (T, …) or (T, E, …) as (N, …)."""
        shape: tuple[int, ...] = (self.n_steps,)
        if self.has_axis:
            shape = (self.n_steps, self.n_envs)
        if values.shape[: len(shape)] != shape:
            raise InvalidInputError(self._wrong_shape(name, values.shape))
        if not self.has_axis:
            return values
        rest = values.shape[2:]
        return values.swapaxes(0, 1).reshape(self.n_steps * self.n_envs, *rest)

    def _wrong_shape(self, name: str, shape: tuple[int, ...]) -> str:
        rule = f"one entry per reward, {self.n_steps}"
        if self.has_axis:
            rule = f"one entry per step and environment, shape ({self.n_steps}, {self.n_envs}, …)"
        remedy = ""
        if name == "observations" and shape[:1] == (self.n_steps + 1,):
            remedy = (
                " If these are the observations of one episode with its final one, give observations[:-1] and "
                "next_observations=observations[1:]; `Trajectories.from_minari` reads episodes of that form."
            )
        return f"`{name}` must have {rule}; got shape {shape}.{remedy}"

    def flat_tree(self, name: str, observations: Any) -> Any:
        """Return observations, an array or a tree of dicts and tuples of arrays, as (N, …)."""
        return _mapped(lambda leaf: self.flat(name, _observed(name, leaf)), observations)

    def column(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return one value per row, given as (T,), (T, 1) or (T, E), as (N,)."""
        if self.n_envs == 1 and values.shape in ((self.n_steps,), (self.n_steps, 1)):
            return values.reshape(-1)
        column = self.flat(name, values)
        if column.ndim != 1:
            raise InvalidInputError(f"`{name}` must have one value per row; got shape {values.shape}.")
        return column

    def flat_rewards(self, rewards: Array) -> Array:
        """Return rewards as (N,), or as (N, m) where there are m > 1."""
        if self.n_envs == 1 and rewards.ndim == 1:
            return rewards
        flat = self.flat("rewards", rewards)
        if flat.ndim > 2:
            raise InvalidInputError(
                f"`rewards` must have one number per row, or a row of m rewards; got shape {rewards.shape}."
            )
        if flat.shape[1:] == (1,):
            flat = flat[:, 0]
        return flat

    def moved(self, values: NDArray[Any], missing: Any) -> NDArray[Any]:
        """Return values (N, …) of arrivals as those of departures: the next row's, `missing` in a last row."""
        steps = values.reshape(self.n_envs, self.n_steps, *values.shape[1:])
        moved = np.full_like(steps, missing)
        moved[:, :-1] = steps[:, 1:]
        return moved.reshape(values.shape)


def _layout(given: Arrays, rewards: Array) -> Layout:
    """Return the layout of the arrays, from the shapes of flags, rewards and observations."""
    if rewards.ndim == 0 or len(rewards) == 0:
        raise InvalidInputError(f"`rewards` must have at least one row; got shape {rewards.shape}.")
    first_leaf = next(_leaves(given.observations))
    observed = _observed("observations", first_leaf).shape
    all_flags = (given.terminals, given.timeouts, given.dones)
    shapes = [np.shape(flags) for flags in all_flags if flags is not None]
    widths = [shape[1] for shape in shapes if len(shape) > 1]
    if not any(shapes) and len(observed) > 2 and rewards.shape[1:2] == observed[1:2]:
        widths = [observed[1]]  # the flags are False, and do not show the axis
    n_envs = max(widths, default=1)
    has_axis = n_envs > 1 or (len(widths) > 0 and len(observed) > 2 and observed[1] == 1)
    return Layout(len(rewards), n_envs, has_axis)


def _real(name: str, values: ArrayLike) -> Array:
    return np.array(as_real(name, values), dtype=np.float64)


def _observed(name: str, values: Any) -> NDArray[Any]:
    if column_of_library(name, values) is not None or columns_of_frame(values):
        return to_real_array(name, values)
    try:
        return np.asarray(values)
    except Exception as error:  # ragged lists; `__array__` may raise anything
        raise InvalidInputError(f"`{name}` must be an array, with one observation per row: {error}.") from error


def _leaves(observations: Any) -> Iterator[Any]:
    """Yield the arrays of a tree of dicts and tuples."""
    if isinstance(observations, dict):
        observations = tuple(observations.values())
    if isinstance(observations, tuple):
        for part in observations:
            yield from _leaves(part)
    else:
        yield observations


def _stacked(observations: Any) -> Any:
    """Return a list of dicts or tuples, one for each row, as a dict or tuple of arrays, as Dict spaces have it."""
    if not isinstance(observations, list) or not observations:
        return observations
    first = observations[0]
    if not isinstance(first, (dict, tuple)):
        return observations

    def part_of_all(key: Any) -> Any:
        return _stacked([one[key] for one in observations])

    try:
        if isinstance(first, dict):
            return {key: part_of_all(key) for key in first}
        return tuple(part_of_all(place) for place in range(len(first)))
    except (KeyError, IndexError, TypeError) as error:
        raise InvalidInputError(
            f"Observations in a list must all have the parts of the first one; {error!r} in another. Correct them."
        ) from error


def _mapped(function: Callable[[Any], Any], observations: Any) -> Any:
    """Return the tree of what a function returns for each array of a tree."""
    if isinstance(observations, dict):
        return {key: _mapped(function, part) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_mapped(function, part) for part in observations)
    return function(observations)


def _check_same_form(observations: Any, successors: Any) -> None:
    shapes = _shapes_of(observations)
    found = _shapes_of(successors)
    if shapes != found:
        raise InvalidInputError(
            f"`next_observations` must have the shape of `observations`, {_shown_shapes(shapes)}; "
            f"got {_shown_shapes(found)}."
        )


def _shapes_of(observations: Any) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in _leaves(observations)]


def _shown_shapes(shapes: list[tuple[int, ...]]) -> str:
    """Return the shapes of a tree for a message: that of one array without a list around it."""
    if len(shapes) == 1:
        return str(shapes[0])
    return str(shapes)


def _transitions(given: Arrays) -> Transitions:
    """Return what was given as rows."""
    given = replace(
        given,
        observations=_stacked(given.observations),
        next_observations=_stacked(given.next_observations),
    )
    given = replace(
        given,
        terminals=_read_flags("terminals", given.terminals),
        timeouts=_read_flags("timeouts", given.timeouts),
        dones=_read_flags("dones", given.dones),
    )
    rewards = _real("rewards", given.rewards)
    layout = _layout(given, rewards)
    observations = layout.flat_tree("observations", given.observations)
    successors = None
    if given.next_observations is not None:
        successors = layout.flat_tree("next_observations", given.next_observations)
        _check_same_form(observations, successors)
    rewards = layout.flat_rewards(rewards)
    if given.reward_on == "arrival":
        rewards = layout.moved(rewards, np.nan)
    terminal, timeout = _terminals_and_timeouts(given, layout)
    return Transitions(observations, successors, rewards, terminal, timeout, layout)


# ------------------------------------------------------------ flags


def _is_none(flags: Given) -> bool:
    """Return whether flags are the single value False, which says that none is True."""
    return isinstance(flags, (bool, np.bool_)) and not flags


def _read_flags(name: str, given: Given) -> Given:
    """Return flags of any library as booleans or numbers; single ones and None as they are."""
    if given is None or isinstance(given, (bool, np.bool_)):
        return given
    return to_flags(name, given)


def _flags(name: str, given: Given, layout: Layout) -> Flags:
    """Return flags (N,); False and None stand for none."""
    if given is None or _is_none(given):
        return np.zeros(layout.n_steps * layout.n_envs, np.bool_)
    values = np.asarray(given)
    if values.ndim == 0:
        raise InvalidInputError(f"`{name}` must be one flag per row, or False for none; got {shown(given)}.")
    column = layout.column(name, values)
    row = first_true((column != 0.0) & (column != 1.0))
    if row is not None:
        found = no_flag(column[row].item())
        raise InvalidInputError(f"`{name}` must hold True and False; {layout.where(row)} {found}")
    return np.asarray(column == 1.0)


def _terminals_and_timeouts(given: Arrays, layout: Layout) -> tuple[Flags, Flags]:
    """Return which steps led to a terminal state, and which others were cut off by a timeout, (N,) each."""
    timeout = _flags("timeouts", given.timeouts, layout)
    if given.dones is not None:
        done = _flags("dones", given.dones, layout)
        silent = not _is_none(given.timeouts) and not timeout.any()
        if silent and done.any() and given.next_observations is None:
            raise InvalidInputError(
                "`timeouts` must have a True for every time limit, or be False if there were none; got an array "
                "without a True. A replay buffer of Stable-Baselines3 with optimize_memory_usage records no timeouts, "
                "and keeps no successors where an episode ends. Pass timeouts=False if no episode was cut off; else "
                "collect with optimize_memory_usage=False and handle_timeout_termination=True."
            )
        terminal = done & ~timeout
    else:
        terminal = _flags("terminals", given.terminals, layout)
        if timeout.any() and terminal[timeout].all():
            raise InvalidInputError(
                f"`terminals` must not be True at a timeout; all {timeout.sum()} timeouts are terminals too, as in "
                "flags of Stable-Baselines3 that say only that an episode is done. Pass them as `dones`; or, if those "
                "states are terminal, pass timeouts=False."
            )
        timeout &= ~terminal
    if "arrival" in (given.done_on, given.reward_on):
        terminal = layout.moved(terminal, False)
        timeout = layout.moved(timeout, False)
    return terminal, timeout


# ------------------------------------------------------------ which rows are steps


def _without_successors(recorded: Transitions) -> Reading:
    """Read rows whose successors are other rows: the state after a cut is unknown, so that it is the horizon row.

    A row without a reward (NaN) after an end is that of a reset: it holds the final observation of the episode.
    """
    terminal = recorded.terminal
    layout = recorded.layout
    after_end = _after(recorded.ended & ~layout.last)
    final = after_end & recorded.unknown
    if not (final & ~layout.last).any():
        _check_resets(recorded, after_end)
    dropped = final & _after(terminal)
    before_final = np.append(final[1:], False)
    cut = (recorded.timeout | layout.last) & ~terminal & ~before_final
    horizon = (final | cut) & ~dropped
    _warn_of_unused(recorded, horizon)
    return Reading(terminal & ~final, np.zeros_like(terminal), horizon, dropped)


def _with_successors(recorded: Transitions, *, has_timeouts: bool) -> Reading:
    """Read rows with their successors: a step to a state that is not the next row's is the last one of its episode."""
    last = recorded.layout.last
    ended = recorded.ended
    continues = _equals_next(recorded.observations, recorded.successors) & ~last
    dropped = np.zeros_like(ended)
    if has_timeouts or continues[~(last | ended)].all():  # with steps of resets, a cut does not show as a break
        dropped = _resets(recorded, continues)
    if not dropped.any():
        _check_not_shifted(recorded, continues)
    steps = ~last & ~ended & ~dropped
    broken = steps & ~continues
    _check_rounding(recorded, broken, steps)
    if not has_timeouts and not broken.any():
        _check_cuts_show(ended & ~last, continues, dropped)
    followed = (recorded.timeout | broken | last) & ~recorded.terminal & ~dropped
    return Reading(recorded.terminal & ~dropped, followed, np.zeros_like(ended), dropped)


def _after(flags: Flags) -> Flags:
    """Return whether the flag of the row before is True, (N,)."""
    return np.concatenate([[False], flags[:-1]])


def _equals_next(observations: Any, successors: Any) -> Flags:
    """Return whether the successor of each row is the observation of the next one, (N,); the last row has none."""
    equal = np.ones(len(next(_leaves(observations))), np.bool_)
    equal[-1] = False
    for here, there in zip(_leaves(observations), _leaves(successors), strict=True):
        one, two = _in_one_type(here[1:], there[:-1])
        equal[:-1] &= _all_of_row(one == two)
    return equal


def _all_of_row(flags: Flags) -> Flags:
    """Return whether all entries of each row are True, (N,)."""
    return np.asarray(flags.all(axis=tuple(range(1, flags.ndim))))


def _in_one_type(one: NDArray[Any], two: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two arrays of floats in the narrower of their types: one of them may have been rounded to it."""
    if one.dtype == two.dtype or not {one.dtype.kind, two.dtype.kind} <= {"f"}:
        return one, two
    narrow = one.dtype
    if two.dtype.itemsize < narrow.itemsize:
        narrow = two.dtype
    return one.astype(narrow), two.astype(narrow)


def _resets(recorded: Transitions, continues: Flags) -> Flags:
    """Return the rows that are steps of a reset, (N,): autoreset in the mode NextStep makes one after each end.

    They hold the final observation of the episode before, which is the successor of its last step, and no reward. They
    lead to the first observation of the next episode. Where the step to the end is the jump, it leads there itself.
    """
    inner_ends = recorded.ended & ~recorded.layout.last
    resets = _after(inner_ends)
    none = np.zeros_like(resets)
    if not inner_ends.any() or not continues[inner_ends].all():
        return none
    if (resets & (recorded.rewarded | recorded.ended)).any():
        return none
    squared = _squared_steps(recorded)
    if squared[resets].mean() < _SHORT * squared[inner_ends].mean():  # the jump is where the episode ends
        return none
    return resets


def _squared_steps(recorded: Transitions) -> Array:
    """Return the squared distance from each observation to its successor, (N,)."""
    total = np.zeros(len(recorded.terminal))
    for here, there in zip(_leaves(recorded.observations), _leaves(recorded.successors), strict=True):
        if here.dtype.kind in "biuf":
            difference = there.astype(np.float64) - here.astype(np.float64)
        else:
            difference = (here != there).astype(np.float64)
        total += np.sum(difference**2, axis=tuple(range(1, difference.ndim)))
    return total


# ------------------------------------------------------------ what cannot be right


def _check_not_shifted(recorded: Transitions, continues: Flags) -> None:
    """Refuse successors that are the next rows' observations throughout: those of timeouts are of the next episode."""
    inner = ~recorded.layout.last
    cut = recorded.timeout & inner
    if not cut.any() or not continues[inner].all():
        return
    moves = np.zeros_like(cut)
    for leaf in _leaves(recorded.observations):
        differs = leaf[1:] != leaf[:-1]
        moves[:-1] |= differs.reshape(len(leaf) - 1, -1).any(axis=1)
    if (moves & cut).any():
        raise InvalidInputError(
            f"`next_observations` must hold the final observation at a timeout; at all {cut.sum()} timeouts it is the "
            "first one of the next episode, as if `observations` were moved by one row. Leave `next_observations` out: "
            "the row of a timeout is then the horizon row."
        )


def _check_cuts_show(inner: Flags, continues: Flags, dropped: Flags) -> None:
    """Doubt that breaks show where episodes were cut off, where no break shows at a terminal state either."""
    if not inner.any() or not continues[inner].all():
        return
    if dropped.any():
        warn(
            "`timeouts` is needed: rows of a reset follow the terminal states, as those of Gymnasium's autoreset mode "
            "NextStep do. Such rows hide where an episode was cut off, and none is taken as cut. Give `timeouts`, or "
            "timeouts=False if no episode was cut off.",
            MissingTerminationWarning,
        )
        return
    raise InvalidInputError(
        f"`timeouts` is needed: after all {inner.sum()} terminals, `next_observations` is the observation of the next "
        "row, so that it does not show where episodes were cut off. Give `timeouts`, or timeouts=False if no episode "
        "was cut off."
    )


def _check_rounding(recorded: Transitions, broken: Flags, steps: Flags) -> None:
    """Refuse successors that differ from the next observations nearly everywhere, but only by rounding."""
    if broken.sum() <= 0.5 * steps.sum():
        return
    rows = np.flatnonzero(broken)
    close = np.ones(len(rows), np.bool_)
    for here, there in zip(_leaves(recorded.observations), _leaves(recorded.successors), strict=True):
        if here.dtype.kind not in "fiub":
            return
        one = here[rows + 1].reshape(len(rows), -1).astype(np.float64)
        two = there[rows].reshape(len(rows), -1).astype(np.float64)
        spread = np.ptp(one, axis=0)
        close &= (np.abs(one - two) <= _ROUNDING * spread).all(axis=1)
    if close.mean() > 0.5:
        raise InvalidInputError(
            f"`next_observations` must be the observations of the next rows where an episode goes on; in "
            f"{percent(close.sum() / steps.sum())} of the rows they differ by rounding only, which would cut the "
            "episodes there. Give both as they were recorded, and transform the features afterwards."
        )


def _check_resets(recorded: Transitions, after_end: Flags) -> None:
    """Refuse rows of a reset that have the reward 0: the final observation would begin the next episode."""
    resets = after_end & ~recorded.unknown
    others = ~after_end & ~recorded.unknown
    rewarded = recorded.rewarded
    if resets.sum() >= _FEWEST_RESETS and not rewarded[resets].any() and rewarded[others].all():
        first = recorded.layout.where(int(resets.argmax()))
        raise InvalidInputError(
            f"`rewards` are 0 in the row after each of {resets.sum()} ends (first: {first}) and in no other, as in "
            "rows of a reset, whose observation is the final one of the episode before. Set these rewards to NaN, and "
            "the rows are read as such; or give `next_observations`."
        )


def _check_finite_rewards(recorded: Transitions, reading: Reading) -> None:
    """Refuse a reward of a step that is NaN or infinite."""
    is_finite = np.isfinite(recorded.rewards).reshape(len(recorded.rewards), -1)
    infinite = np.asarray(~is_finite.all(axis=1))
    row = first_true(infinite & ~reading.horizon & ~reading.dropped)
    if row is not None:
        raise InvalidInputError(
            f"`rewards` must be finite; {recorded.layout.where(row)} has {recorded.rewards[row]}. Only a row after an "
            "end, which holds a final observation, may have NaN. Correct it, or drop its episode."
        )


def _warn_of_unused(recorded: Transitions, horizon: Flags) -> None:
    """Warn of rewards of rows that are horizon rows for want of a successor."""
    lost = int((recorded.rewarded & horizon).sum())
    if lost:
        what = f"The rewards of {lost} rows are"
        if lost == 1:
            what = "The reward of 1 row is"
        warn(
            f"{what} not used: the episode was cut off there, and the state that followed is unknown. Give "
            "`next_observations` if the data have them.",
            UnusedRewardWarning,
        )


def _limit_doubt(episode: NDArray[np.intp], terminated: Flags) -> str:
    """Say that many episodes end at one same greatest length, as a time limit would make them; empty if not so.

    If the chance to end at a step were that of earlier steps, p, all k episodes of the greatest length would end there
    with a chance of p^k. Nothing is said where an episode that was cut off is as long.
    """
    of_all = np.bincount(episode)
    has_end = np.zeros(len(of_all), np.bool_)
    has_end[episode[terminated]] = True
    lengths = of_all[has_end]
    if not len(lengths):
        return ""
    longest = int(lengths.max())
    if of_all[~has_end].max(initial=0) >= longest:  # the limit is known: it cut episodes off
        return ""
    at_longest = int((lengths == longest).sum())
    earlier = np.minimum(lengths, longest - 1).sum()  # steps at which an episode might have ended before
    chance = (len(lengths) - at_longest + 1) / (earlier + 1)
    if longest < _SHORTEST_LIMIT or at_longest < _FEWEST_AT_LIMIT or chance**at_longest > _LEAST_CHANCE:
        return ""
    return (
        f"{at_longest} of the {len(lengths)} episodes that terminated did so after {longest} steps, and none later, as "
        "if a time limit were taken for an end. A limit cuts an episode off: its rows belong in `timeouts`, not in "
        "`terminals`. If the task does end there, put the steps left into the features."
    )


# ------------------------------------------------------------ rows


def _rows(reading: Reading) -> tuple[NDArray[np.intp], Flags]:
    """Return the source of each row, and whether the row is the successor of its source."""
    kept = np.flatnonzero(~reading.dropped)
    copies = 1 + reading.followed[kept]
    source = np.repeat(kept, copies)
    follows = np.zeros(len(source), np.bool_)
    follows[np.cumsum(copies)[copies == 2] - 1] = True
    return source, follows


def _features(recorded: Transitions, features: Function, source: NDArray[np.intp], follows: Flags) -> Array:
    """Return the features of the rows, (T, n): of the observation of their source, or of its successor."""
    phi = None
    if features is not None:
        phi = ObservationFeatures(features, None)
    layout = recorded.layout
    X = _of_rows("observations", recorded.observations, source, phi, layout)
    if follows.any():
        X[follows] = _of_rows("next_observations", recorded.successors, source[follows], phi, layout)
    return X


def _of_rows(
    name: str, observations: Any, rows: NDArray[np.intp], phi: ObservationFeatures | None, layout: Layout
) -> Array:
    """Return the features of some rows of observations: what `phi` returns, or by default their numbers."""
    if phi is not None:

        def where(place: int) -> str:
            return f"in {layout.where(int(rows[place]))} of `{name}`"

        chosen = _mapped(lambda leaf: leaf[rows], observations)
        return phi.of_batch(chosen, len(rows), where)
    if isinstance(observations, (dict, tuple)):
        raise InvalidInputError(
            f"`features` is needed, because `{name}` is a {type(observations).__name__} of arrays; got None. Pass a "
            "function of one observation that returns n numbers."
        )
    X = _real(name, observations[rows].reshape(len(rows), -1))
    infinite = np.asarray(~np.isfinite(X).all(axis=1))
    place = first_true(infinite)
    if place is not None:
        found = X[place][~np.isfinite(X[place])][0]
        raise InvalidInputError(
            f"`{name}` must be finite; {layout.where(int(rows[place]))} has {found}. "
            "Correct it, or drop the row's episode."
        )
    return X


def _of_actions(
    given: Arrays, layout: Layout, no_step: Flags, source: NDArray[np.intp], horizon: Flags
) -> dict[str, Any]:
    """Return the actions of the rows and their probabilities, if given; those of horizon rows are zero and NaN."""
    arrays: dict[str, Any] = {}
    actions = None
    if given.actions is not None:
        actions = layout.flat("actions", _observed("actions", given.actions))
        if actions.shape[1:] == (1,) and actions.dtype.kind not in "f":
            actions = actions[:, 0]
        actions = check_actions(actions, no_step)
        taken = np.zeros((len(source), *actions.shape[1:]), actions.dtype)
        taken[~horizon] = actions[source[~horizon]]
        arrays["actions"] = taken
    if given.behavior_probability is not None:
        probability = layout.column("behavior_probability", _real("behavior_probability", given.behavior_probability))
        checked = check_probabilities(probability, actions, no_step)
        assert checked is not None
        arrays["behavior_probability"] = np.where(horizon, np.nan, checked[source])
    return arrays
