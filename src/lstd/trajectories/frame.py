"""Long tables as arrays of the data contract: one row per state, or per interval as in survival analysis."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_choice, check_columns, check_integer, check_real, says_no_ends
from lstd.data.doubts import assumed_cut
from lstd.data.episodes import Episodes
from lstd.data.identity import NO_VALUE
from lstd.data.ids import Fault, first_true, last_rows, quoting
from lstd.data.roles import Roles
from lstd.data.rows import COLUMNS, cut_off
from lstd.errors import InvalidInputError, MissingTerminationWarning, TerminationWarning, missing_extra, warn
from lstd.types import Array, FeaturesLike, Flags

_SAME = 1e-9  # relative difference between equal times that were computed in different ways
_OF_INTERVALS = ("start", "stop", "event")
_OF_ONE = ("episode", "terminated", "truncated", "groups", "time")
_PER_TRANSITION = (*COLUMNS, "behavior_probability")


def read_frame(
    frame: Any, columns: Mapping[str, Any], *, sort: bool = False, gamma: float | None = None, first_row: int = 0
) -> dict[str, Any]:
    """Read a table and return the arguments of `Trajectories`; see `Trajectories.from_frame`.

    `columns` holds the arguments of `from_frame` that name columns, by their names.
    """
    no_ends = columns["terminated"] is not None and says_no_ends(columns["terminated"], "the name of a column")
    if no_ends:
        if columns["event"] is not None:
            raise InvalidInputError("`terminated` must be None with `event`, which says who ended; got False.")
        columns = {**columns, "terminated": None}
    roles = interval_roles(_check_roles(columns), gamma)
    spans = "start" in roles
    if sort and "time" not in roles:
        raise InvalidInputError("`sort` needs `time`, a column to sort by; got None.")
    if "reward" not in roles and not spans:
        raise InvalidInputError("`reward` must name a column, unless `start`, `stop` and `event` do; got None.")
    table = FrameRows(frame, roles, check_integer("first_row", first_row, 0), sort=sort)
    found = table.found
    episode = table.id_values("episode")
    numbers, last = _follow(table, no_ends)
    terminated = found.rows.terminated
    arrays: dict[str, Any] = {
        "X": found.rows.X,
        "y": found.y,
        **found.numbers,
        "terminated": terminated,
        "groups": table.id_values("groups"),
        "episode": numbers if episode is None else episode,
        "time": None if spans else table.dates(),
    }
    if isinstance(columns["reward"], str):
        arrays["y"] = np.ascontiguousarray(found.y[:, 0])
    cut = cut_off(last, terminated)
    if spans:
        times, arrays["discount"] = rewards_of(read_lengths(table, last), gamma)
        if "reward" not in roles:
            arrays["y"] = times
    if "action" in roles:
        arrays["actions"] = table.labels("action", cut & (not spans))
    if spans:
        names = roles["features"]
        stop = table.numbers("stop")
        now = {names.index(name): stop for name in roles["start"] if name in names}
        arrays = with_horizon_rows(arrays, cut, now)
    if "episode" in roles and not no_ends and "terminated" not in roles and "truncated" not in roles:
        text = assumed_cut(f"`episode` ({columns['episode']!r}) was given without `terminated`")
        warn(text, MissingTerminationWarning)
    for value in arrays.values():
        if value is not None:
            value.setflags(write=False)
    return arrays | {"feature_names": roles["features"]}


def with_age(arrays: Mapping[str, Any], name: Any, *, spans: bool) -> dict[str, Any]:
    """Add a last feature of this name: steps since each row's group, or episode without groups, was first seen.

    A step is the median of the differences of times within episodes; without times, a row. Raises InvalidInputError
    for intervals, `spans`, and a name that a feature has.
    """
    names = arrays["feature_names"]
    if spans:
        raise InvalidInputError(
            f"`age` must be None with `start` and `stop`, whose intervals are no equal steps; got {name!r}. Name the "
            "`start` column among the features."
        )
    if not isinstance(name, str) or name in names:
        rule = "a new name, that of no feature"
        raise InvalidInputError(f"`age` must be {rule}; got {name!r:.80}. To use a feature as the age, name it there.")
    last = last_rows(arrays["episode"])
    begins = np.append(True, last[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(last)), 0))
    if arrays["time"] is None:
        age = np.arange(len(last)) - first
    else:
        times = arrays["time"]
        if times.dtype.kind in "mM":
            times = times.astype(f"{times.dtype.kind}8[us]")
        times = times.astype(np.float64)
        steps = np.diff(times)[~last[:-1]]
        since = times[first]
        if arrays["groups"] is not None:
            _, subject = np.unique(arrays["groups"], return_inverse=True)
            earliest = np.full(subject.max() + 1, np.inf)
            np.minimum.at(earliest, subject, times)
            since = earliest[subject]
        age = (times - since) / (float(np.median(steps)) if len(steps) else 1.0)
    X = np.column_stack([arrays["X"], age])
    X.setflags(write=False)
    return {**arrays, "X": X, "feature_names": [*names, name]}


def _check_roles(columns: Mapping[str, Any]) -> dict[str, list[str]]:
    """Check the names of columns; returns the list of names of each argument that was given."""
    roles = {}
    for role, given in columns.items():
        if given is not None or role == "features":
            roles[role] = [*check_columns(role, given, several=role in ("features", "reward"))]
    known_later = {}
    for role in ("reward", "terminated", "truncated", "stop", "event"):
        for name in roles.get(role, ()):
            known_later[name] = role
    for name in roles["features"]:
        if name in known_later:
            raise InvalidInputError(
                f"`features` must not contain the `{known_later[name]}` column {name!r}, which is not known "
                "until the row is left. Drop it, or use a copy of it shifted by one row within each episode."
            )
    return roles


def _follow(table: FrameRows, no_ends: bool) -> tuple[NDArray[np.int64], Flags]:
    """Number the episodes of rows, (T,), and flag their last rows, by the rules about neighbours.

    Unless the caller says that there are `no_ends`, each episode without a column of ends must be flagged as cut off.
    """
    roles = table.roles
    marks = table.found.marks
    episodes = Episodes(table.columns, lambda _, row, column, text: table.error(column, row, text), whole=True)
    numbers = episodes.follow("", 0, marks, table.found.fault)
    episodes.finish()
    last = last_rows(numbers)
    if "start" in roles:  # else `Trajectories` have the times
        warn(episodes.state.times.doubt(), TerminationWarning)
    if "truncated" in roles and "terminated" not in roles and not no_ends:
        flagged = marks.truncated | np.append(False, marks.truncated[:-1] & ~last[:-1])
        row = first_true(last & ~flagged)
        if row is not None:
            text = (
                "is false at the end of its episode, but without `terminated` every episode must be truncated. Name a "
                "column for `terminated`."
            )
            raise table.error(roles["truncated"][0], row, text)
    return numbers, last


def to_frame(X: FeaturesLike, names: Sequence[str] | None, library: str) -> Any:
    """Make a data frame of features (T, n); raises InvalidInputError if they have no names or are sparse."""
    check_choice("frame", library, ("pandas", "polars"))
    if names is None or sparse.issparse(X):
        what = "no `feature_names`" if names is None else "sparse features"
        raise InvalidInputError(f"`frame` needs dense features with names; these Trajectories have {what}.")
    if library == "pandas":
        return importlib.import_module("pandas").DataFrame(X, columns=list(names))
    return importlib.import_module("polars").DataFrame(X, schema=list(names))


# ------------------------------------------------------------ columns


ErrorAt = Callable[[int, str, str], InvalidInputError]  # of a row, counted from 0, a column, and rule and remedy


class FrameRows:
    """The rows of a data frame; a bad frame or value raises InvalidInputError.

    `roles` holds the names of columns for each argument of the caller. Messages name both, and number rows from
    `first_row`, unless `error_at` makes the error of a value of a row. `name` is the argument that the frame is. Dates
    are numbers of this `unit`, by default the one of the column.
    """

    def __init__(
        self,
        frame: Any,
        roles: Mapping[str, list[str]],
        first_row: int = 0,
        *,
        sort: bool = False,
        unit: str = "",
        error_at: ErrorAt | None = None,
        name: str = "frame",
    ) -> None:
        try:
            from lstd.data import arrow_columns, batch_rows, parse_columns
        except ModuleNotFoundError as error:
            raise missing_extra("Reading a data frame", "pyarrow", "data") from error
        self._frames = arrow_columns
        self._read = parse_columns
        self.roles = roles
        self._first_row = first_row
        self._order: NDArray[np.intp] | None = None
        self._error_at = error_at
        names = list(dict.fromkeys(name for named in roles.values() for name in named))
        batch = next(arrow_columns.arrow_batches(self._selected(frame, names), names, 2**31), None)
        if batch is None:
            raise InvalidInputError(f"`{name}` must have at least one row; got none. Check the filter that made it.")
        single: dict[str, Any] = {role: roles[role][0] for role in _OF_ONE if role in roles}
        kind = parse_columns.numpy_unit(batch.column(single["time"])) if "time" in single else ""
        self._kind, self._unit = kind, unit or ("ns" if "ns" in kind else "us")
        self.columns = Roles(
            features=tuple(roles.get("features", roles.get("amount", ()))),
            rewards=tuple(roles.get("reward", ())),
            transitions={role: roles[role][0] for role in _PER_TRANSITION if role in roles},
            spans="start" in roles,
            **single,
        )
        self._batch = batch
        if sort:  # by episode and time; errors name places before
            by = replace(self.columns, groups=None)
            self._order = batch_rows.sorted_order(batch, by, self._sound, self._unit)
            self._batch = batch.take(arrow_columns.from_numpy(self._order))
        self.found = batch_rows.Converted(self._batch, self.columns, unit=self._unit)

    def _selected(self, frame: Any, names: list[str]) -> Any:
        """Return a frame as Arrow or pandas has it, after a check that it has the columns."""
        if hasattr(frame, "collect") and hasattr(frame, "select"):  # a lazy one, of which only these are collected
            self._check_present(frame.collect_schema().names())
            return self._frames.arrow_table("`frame`", frame.select(names).collect())
        if not self._frames.is_frame(frame):
            raise InvalidInputError(
                f"`frame` must be a pandas, Polars or PyArrow table; got {type(frame).__name__}. "
                "Build one, for example with pandas.DataFrame."
            )
        data = self._frames.arrow_table("`frame`", frame)
        self._check_present(self._frames.names_of(data))
        return data

    def _check_present(self, present: Sequence[Any]) -> None:
        """Refuse columns of roles that a frame with these names has not, or has twice."""
        for role, named in self.roles.items():
            for column in named:
                if column not in present:
                    raise InvalidInputError(_missing_column(role, column, present))
                if present.count(column) > 1:
                    raise InvalidInputError(
                        f"`frame` must have one column per name; {column!r} is there {present.count(column)} times. "
                        "Rename or drop columns."
                    )

    def error(self, column: str, row: int, text: str, role: str = "") -> InvalidInputError:
        """Make the error for a row; without `role`, it is that of the column other than a feature."""
        if not role:
            others = [role for role, names in self.roles.items() if column in names and role != "features"]
            role = others[0] if others else "features"
        if text.startswith(NO_VALUE):
            text = quoting(text, self._batch.column(column)[row].as_py())
        place = row
        if self._order is not None:
            place = int(self._order[row])
        if self._error_at is not None:
            return self._error_at(place, column, text)
        place += self._first_row
        return InvalidInputError(f"Column {column!r} (`{role}`), row {place} (counting from {self._first_row}): {text}")

    def check(self) -> None:
        """Raise InvalidInputError at the first bad value."""
        self._sound(None, self.found.fault)

    def _sound(self, values: Any, fault: Fault | None, role: str = "") -> Any:
        if fault is not None:
            raise self.error(fault.column, fault.row, fault.text, role)
        return values

    def numbers(self, role: str, *, missing: str = NO_VALUE) -> Array:
        """Parse a column of numbers, shape (T,), which may not be `missing` unless that is empty."""
        column = self.roles[role][0]
        values, fault = self._read.numbers(self._batch.column(column), column)
        fault = self._read.first_outside(values, column, fault, missing=missing)
        return np.asarray(self._sound(values, fault, role))

    def clock(self) -> tuple[bool, bool]:
        """Return whether times are dates, and whether those have a time zone."""
        return self._read.clock_of(self._batch.column(self.columns.time))

    @property
    def holds_durations(self) -> bool:
        """Whether the times are durations."""
        return self._kind.startswith("m")

    def moments(self, role: str) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Parse a column of times of the kind of `time`, which may be missing: rows that have one, (R,), and times."""
        column = self.roles[role][0]
        rows, array = self._read.known_times(self._batch.column(column))
        values, fault = self._read.times(array, column, self._unit)
        if fault is not None:
            raise self.error(column, int(rows[fault.row]), fault.text, role)
        if not len(rows):
            return rows, values
        found = (*self._read.clock_of(array), self._read.numpy_unit(array).startswith("m"))
        of_time = (*self.clock(), self.holds_durations)
        if found != of_time:
            text = (
                f"must hold what column {self.columns.time!r} (`time`) holds: numbers, durations, or dates with a time "
                "zone or without one. Convert one of the two."
            )
            raise self.error(column, int(rows[0]), text, role)
        return rows, values

    def flags(self, role: str) -> Flags:
        """Parse a column of flags, none of which may be missing, (T,)."""
        column = self.roles[role][0]
        values, fault = self._read.flags(self._batch.column(column), column)
        return np.asarray(self._sound(values, fault, role))

    def dates(self) -> NDArray[Any] | None:
        """Return the column of times, shape (T,), as times of NumPy if it holds times; None without one."""
        values, kind = self.found.marks.times, self._kind
        return values if values is None or not kind else values.view(f"{kind[0]}8[{self._unit}]").astype(kind)

    def id_values(self, role: str) -> Any:
        """Return the id of each row, (T,); None without ids."""
        ids = {"episode": self.found.marks.ids, "groups": self.found.marks.groups}[role]
        if ids is None or self.found.fault is not None:  # which is reported
            return None
        return ids.per_row(len(self._batch))

    def labels(self, role: str, horizon: Flags) -> NDArray[Any]:
        """Parse a column of numbers, flags as 0 and 1, or text, (T,); missing on a horizon row is 0, NaN or ""."""
        column = self.roles[role][0]
        array = self._batch.column(column)
        kind = self._read.kind_of(array)
        if kind == "text":
            texts = self._read.as_text(array).to_pylist()
            missing = np.array([text is None for text in texts], np.bool_)
            values: NDArray[Any] = np.array([text or "" for text in texts])
        else:
            values = self.numbers(role, missing="")
            missing = np.isnan(values)
            if kind == "whole":
                values = np.where(missing, 0.0, values).astype(np.int64)
        row = first_true(missing & ~horizon)
        if row is not None:
            text = f"{NO_VALUE}; it may be missing only on a horizon row. Fill it in."
            raise self.error(column, row, text, role)
        return values


def _missing_column(role: str, column: str, present: Sequence[Any]) -> str:
    close = difflib.get_close_matches(column, [name for name in present if isinstance(name, str)], n=1)
    names = ", ".join(repr(name) for name in present[:20])
    if len(present) > 20:
        names += ", …"
    hint = " Name one of these, or rename a column."
    if close:
        hint = f" Did you mean {close[0]!r}?"
    return f"Column {column!r} (`{role}`) is not in the frame, which has {names or 'no columns'}.{hint}"


# ------------------------------------------------------------ intervals


def interval_roles(roles: Mapping[str, list[str]], gamma: Any) -> dict[str, list[str]]:
    """Return roles where `start` is the time and `event` terminates, unless the table has no intervals."""
    given = [name for name in _OF_INTERVALS if name in roles]
    if not given:
        if gamma is not None:
            raise InvalidInputError(
                "`gamma` must be None without `start`, `stop` and `event`; pass it to the estimator instead."
            )
        return dict(roles)
    for name in (*_OF_INTERVALS, "episode"):
        if name not in roles:
            raise InvalidInputError(
                f"`{name}` must be given with `{given[0]}`, to read a table of intervals; got None."
            )
    for name in ("time", "terminated", "truncated", "discount"):
        if name in roles:
            raise InvalidInputError(f"`{name}` must be None with `start`, `stop` and `event`, which replace it.")
    return {**roles, "time": roles["start"], "terminated": roles["event"]}


def read_lengths(table: FrameRows, last: Flags) -> Array:
    """Read the lengths of intervals, (T,); raises InvalidInputError unless those of a subject follow one another."""
    start = table.numbers("start")
    stop = table.numbers("stop")
    lengths = np.asarray(stop - start)
    row = first_true(~(lengths > 0.0))
    if row is not None:
        what = "equals the start" if lengths[row] == 0.0 else f"is before the start, {start[row]:g}"
        raise table.error(table.roles["stop"][0], row, f"has {stop[row]:g}, which {what}; correct it, or drop the row.")
    ahead = np.where(last[:-1], 0.0, start[1:] - stop[:-1])
    row = first_true(np.abs(ahead) > _SAME * np.maximum(np.abs(start[1:]), lengths[1:]))
    if row is not None:
        what = f"{start[row + 1]:g}, but the interval before it ends at {stop[row]:g}"
        remedy = "they overlap: cut or merge them."
        if ahead[row] > 0.0:
            remedy = "add a row for the gap, with the features that held then, or give the rows after it another id."
        raise table.error(table.roles["start"][0], row + 1, f"has {what}; {remedy}")
    return lengths


def rewards_of(lengths: Array, gamma: float | None) -> tuple[Array, Array]:
    """Return ∫₀^Δ γ^s ds = (1 − γ^Δ) / (−log γ) and γ^Δ for each length Δ; Δ and 1 at γ = 1."""
    gamma = 1.0 if gamma is None else check_real("gamma", gamma, 0.0, 1.0)
    if gamma in (0.0, 1.0):
        return lengths * gamma, np.full(len(lengths), gamma)
    rate = -np.log(gamma)
    return -np.expm1(-rate * lengths) / rate, np.exp(-rate * lengths)


def with_horizon_rows(
    arrays: Mapping[str, NDArray[Any] | None], cut: Flags, now: Mapping[int, Array]
) -> dict[str, Any]:
    """Repeat the last rows of episodes that were cut off, `cut` (T,), as their horizon rows, which have no reward.

    Their features at the positions of `now` are those values, (T,) each, at the time when observation stopped.
    """
    order = np.repeat(np.arange(len(cut)), 1 + cut)
    added = np.flatnonzero(np.append(False, order[1:] == order[:-1]))
    longer: dict[str, Any] = {name: None if values is None else values[order] for name, values in arrays.items()}
    longer["y"][added] = np.nan
    for position, values in now.items():
        longer["X"][added, position] = values[cut]
    return longer
