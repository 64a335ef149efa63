"""Logs of events, one row each, as equal steps of every id: what was known at the start of a step, and what it brought.

Steps end at `until` and are counted back from there, so that the last one of each id is complete. Step k is the time
from edge k up to, and not including, edge k + 1; the last edge is `until`. A row at edge k knows the events before the
edge, and its reward is that of the events of step k.

The first events of an id, all those at its earliest time, made it known: they say less about how often it comes than
the later ones do, and a customer with one purchase has not come back. So features have them apart, unless "counted".
"""

from __future__ import annotations

import contextlib
import numbers
import os
import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import chain
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd.data.arguments import check_choice, check_columns, check_integer, check_real, says_no_ends, shown
from lstd.data.identity import NotAnIdError, identity, is_missing
from lstd.data.ids import numbered
from lstd.data.rows import cut_off
from lstd.errors import InvalidInputError
from lstd.trajectories.credibility import steps_of_mean
from lstd.trajectories.ends import Ends, check_ends, read_ends
from lstd.trajectories.frame import ErrorAt, FrameRows
from lstd.trajectories.panel import warn_of_panel
from lstd.trajectories.rates import Known, Recent, mean_rates, rate_features, rate_names
from lstd.types import Array, Flags

_UNITS = {"hour": 0.04, "day": 1.0, "week": 7.0, "month": 30.0, "year": 365.0}  # at most so many days, nearly
_STEP = re.compile(rf"(?:([1-9][0-9]{{0,3}}) )?({'|'.join(_UNITS)})s?")
_DAY = 86_400_000_000  # microseconds
_MOST_EDGES = 2**20
_MOST_ROWS = 2**27
_OPTIONAL = ("start", "mean_at")  # moments that may be left out
FIRST = ("apart", "counted")  # where features have the first events of an id


class Events(NamedTuple):
    """Events before `until`, in order of id and time; E events of I ids with m amounts."""

    names: NDArray[Any]  # (I,) ids, in order of first appearance
    code: NDArray[np.intp]  # (E,) place of the id in `names`
    step: NDArray[np.intp]  # (E,) the step in which it falls
    position: Array  # (E,) its time in steps
    amounts: Array  # (E, m)
    ended: Flags  # (E,) whether the id ends with it for good
    is_first: Flags  # (E,) whether it is at the earliest time of the id


@np.errstate(over="ignore", invalid="ignore")  # `_check_sums` reports overflow
def read_events(
    source: Any,
    columns: dict[str, Any],
    *,
    step: Any,
    until: Any,
    start: Any = None,
    first: str = "apart",
    window: int | None = None,
    mean_at: Any = None,
    age: str | None = None,
) -> dict[str, Any]:
    """Read a log and return the arguments of `Trajectories`; see `Trajectories.from_events`.

    `columns` has the names of the columns `episode`, `time`, `amount`, `terminated`, `observed_until` and `ended`.
    """
    check_choice("first", first, FIRST)
    check_ends(columns)
    _check_window(window, mean_at, age)
    roles = _check_roles(columns)
    table = _table_of(source, roles)
    column = roles["time"][0]
    dates, zoned = table.clock()
    times: Any = table.found.marks.times
    if not dates:
        times = times.astype(np.float64)
    if table.holds_durations:
        until = _microseconds("until", until, column)
        start = _microseconds("start", start, column)
        mean_at = _microseconds("mean_at", mean_at, column)
        step = _microseconds("step", step, column)
    elif not dates:
        _check_numbers(column, times, {"until": until, "start": start, "mean_at": mean_at, "step": step})
    end = _moment("until", until, dates, zoned)
    since = _moment("start", start, dates, zoned)
    mean_moment = _moment("mean_at", mean_at, dates, zoned)
    snapped = None
    if not dates:
        step = check_real("step", step, 0.0, np.inf, open_low=True)
        snapped = partial(_snapped, until=end, step=step)
        times = snapped(times)
        if since is not None:
            since = float(snapped(since))
        if mean_moment is not None:
            mean_moment = float(snapped(mean_moment))
    if since is not None and not _number(since) <= _number(end):
        raise InvalidInputError(f"`start` must not be after `until`; got {start!s} and {until!s}.")
    if not (times < _number(end)).any():
        raise InvalidInputError(f"`until` must be after the first event; got {until!s}, and no event is before it.")
    edges = _edges(end, step, times.min(), dates)
    n_steps = len(edges) - 1
    if window is not None and window > n_steps:
        raise InvalidInputError(
            f"`window` must be at most the number of steps of the log, {n_steps}; got {window}. With a longer one, no "
            "rate is of recent steps. Begin with a third of the horizon to predict."
        )
    ids = table.id_values("episode")
    first_row, code = numbered(ids)
    ends = read_ends(table, code, times, edges, snapped)
    events = _placed(table, roles, ids[first_row], code, times, edges)
    earliest_row = None
    if since is not None:
        earliest_row = _number(since)
    begin, ends = _spans(events, ends, edges, earliest_row)
    apart = first == "apart"
    arrays, known = _rows(events, begin, ends, apart=apart)
    amount_names = roles.get("amount", ())
    if window is None:
        names = _feature_names(amount_names, first)
        arrays["X"] = np.hstack([known.sums, known.at_first, known.since])
    else:
        place = _place_of_mean(known.edge, edges, mean_moment, mean_at)
        recent = _recent(events, known, window, apart=apart)
        names = rate_names(amount_names, apart=apart)
        if age in names:
            raise InvalidInputError(f"`age` must be the name of a new feature; got {shown(age)}, which is one already.")
        if age is not None:
            names.append(age)
        means = mean_rates(known, known.edge == place)
        mean_steps = steps_of_mean(known, recent, means, place, window)
        arrays["X"] = rate_features(known, recent, means, mean_steps, window, with_age=age is not None)
        rates = names[: 3 * len(means) : 3]
        arrays["mean_steps"] = dict(zip(rates, mean_steps.tolist(), strict=True))
    _check_sums(arrays)
    if apart and window is not None:
        warn_of_panel(known)
    moments = edges
    if dates:
        moments = edges.astype("M8[us]")
    elif table.holds_durations:
        moments = np.rint(edges).astype("m8[us]")
    if not isinstance(columns["amount"], (list, tuple)):
        arrays["y"] = arrays["y"][:, 0]
    return arrays | {"time": moments[arrays["time"]], "feature_names": names}


def _check_roles(columns: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of the columns of each role that was given."""
    terminated = columns["terminated"]
    if terminated is not None and says_no_ends(terminated, "the name of a column"):
        columns = {**columns, "terminated": None}
    roles = {}
    for role, given in columns.items():
        if given is not None or role in ("episode", "time"):
            roles[role] = [*check_columns(role, given, several=role == "amount")]
    return roles


def _table_of(source: Any, roles: dict[str, list[str]]) -> FrameRows:
    """Return the rows of a data frame, or of one file or several; a bad value raises InvalidInputError."""
    files = [source]
    if isinstance(source, (list, tuple)):
        files = [*source]
    is_file = len(files) > 0 and all(isinstance(file, (str, os.PathLike)) for file in files)
    error_at = None
    if is_file:
        names = dict.fromkeys(chain.from_iterable(roles.values()))  # each once
        source, error_at = _read_files(files, list(names))
    table = FrameRows(source, roles, unit="us", error_at=error_at, name="events")
    table.check()
    return table


def _check_window(window: object, mean_at: object, age: object) -> None:
    """Check `window`, and what needs it."""
    if window is not None:
        check_integer("window", window, 1, _MOST_EDGES)
    elif mean_at is not None:
        raise InvalidInputError(f"`mean_at` must be None without `window`, whose rates need a mean; got {mean_at!s}.")
    elif age is not None:
        raise InvalidInputError(
            f"`age` must be None without `window`, since 'since_first' is a feature already; got {shown(age)}. "
            "Leave it out, and pass HorizonLSTD(age='since_first')."
        )
    if age is not None and not isinstance(age, str):
        raise InvalidInputError(f"`age` must be the name of a new feature; got {shown(age)}.")


def _feature_names(amounts: Sequence[str], first: str) -> list[str]:
    """Return the names of features; they differ where the numbers do, so that no model reads those of another."""
    if first == "counted":
        known = ["n_events", *(f"total_{name}" for name in amounts)]
    else:
        known = ["n_repeat", *(f"repeat_{name}" for name in amounts)]
        known += [f"first_{name}" for name in amounts]
    return [*known, "since_last", "since_first"]


def _read_files(files: Sequence[Any], columns: Sequence[str]) -> tuple[Any, ErrorAt]:
    """Return columns of CSV and Parquet files as one table, and what makes the error of a value of one of its rows.

    Values of CSV are text, which the rules of columns parse; so are those of columns whose type is not the same in all.
    """
    import pyarrow as pa

    from lstd.data.open_table import open_table
    from lstd.data.table import at_row

    tables = [open_table(file) for file in files]
    found = []
    lengths = []
    for table in tables:
        table.require(columns)
        batches = [*table.records(columns)]
        lengths.append(sum(map(len, batches)))
        if batches:
            found.append(pa.Table.from_batches(batches))
    if not found:
        names = ", ".join(table.file for table in tables)
        raise InvalidInputError(f"{names} must have at least one row of data; got none.")
    ends = np.cumsum(lengths)

    def error_at(row: int, column: str, text: str) -> InvalidInputError:
        file = int(np.searchsorted(ends, row, side="right"))
        begin = int(ends[file]) - lengths[file]
        return at_row(tables[file].file, row - begin, column, text)

    return pa.concat_tables(_of_one_type(found)), error_at


def _of_one_type(tables: Sequence[Any]) -> list[Any]:
    """Return tables where columns of several types are text."""
    import pyarrow as pa

    schema = tables[0].schema
    for name in schema.names:
        if len({table.schema.field(name).type for table in tables}) > 1:
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
    try:
        return [table.cast(schema) for table in tables]
    except pa.ArrowException as error:
        raise InvalidInputError(f"Files must have columns of the same types: {error}.") from error


# ------------------------------------------------------------ time


def _check_numbers(column: str, times: Array, given: dict[str, Any]) -> None:
    """Refuse dates, and steps of a calendar, where the column of times holds numbers, which may be meant as dates."""
    for name, value in given.items():
        if isinstance(value, numbers.Real) or (value is None and name in _OPTIONAL):
            continue
        remedy = "Give a number, or convert the column to dates, if that is what the numbers mean"
        if _is_calendar(times):
            remedy += ': `pandas.to_datetime(column.astype(str), format="%Y%m%d")` does so'
        raise InvalidInputError(
            f"`{name}` must be a number, since the column of `time`, {column!r}, holds numbers, such as "
            f"{times[0]:.15g}; got {shown(value)}. {remedy}."
        )


def _microseconds(name: str, value: Any, column: str) -> float | None:
    """Return a duration, or a number of microseconds, as the times of a log of durations are; None for None."""
    if value is None and name in _OPTIONAL:
        return None
    with contextlib.suppress(NotAnIdError):
        kind, _, nanoseconds = str(identity(value)).partition(" ")
        if kind == "duration":
            return int(nanoseconds) / 1000
    is_of_numpy = getattr(value, "dtype", None) is not None  # durations of NumPy are integers for Python
    if isinstance(value, numbers.Real) and (not is_of_numpy or np.asarray(value).dtype.kind in "iuf"):
        return float(value)
    raise InvalidInputError(
        f"`{name}` must be a duration, since the column of `time`, {column!r}, holds durations; got {shown(value)}. "
        "Give one of Python, such as `datetime.timedelta(days=7)`, or convert the column to dates or numbers."
    )


def _is_calendar(times: Array) -> bool:
    """Return whether numbers look like years, months and days, such as 20240131."""
    year = times // 10_000
    month = times // 100 % 100
    day = times % 100
    return bool(
        (year >= 1000).all()
        and (year <= 9999).all()
        and ((month >= 1) & (month <= 12)).all()
        and ((day >= 1) & (day <= 31)).all()
    )


def _moment(name: str, value: Any, dates: bool, zoned: bool) -> Any:
    """Return a datetime where the log has dates, else a float; None for None where a moment may be left out."""
    if value is None and name in _OPTIONAL:
        return None
    if not dates:
        return check_real(name, value, -np.inf, np.inf)
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    moment: Any = value
    if is_missing(value):
        moment = None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(value.strip())
    moment = getattr(moment, "start_time", moment)  # of a Period
    if hasattr(moment, "to_pydatetime"):  # of pandas
        moment = moment.to_pydatetime()
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time.min)
    if not isinstance(moment, datetime):
        raise InvalidInputError(
            f"`{name}` must be a date, as the times of the events are; got {shown(value)}. Write it as '2024-01-31' or "
            "'2024-01-31 12:00', or give a date of Python."
        )
    if (moment.utcoffset() is not None) != zoned:
        have = "have none"
        if zoned:
            have = "have a time zone"
        raise InvalidInputError(
            f"`{name}` must have a time zone if, and only if, the times of the events have one; they {have}, and it "
            f"is {moment.isoformat()}. Add the zone or drop it."
        )
    return moment


def _number(moment: Any) -> Any:
    """Return a moment as the times of events are: a float, or microseconds since 1970 in UTC."""
    if isinstance(moment, float):
        return moment
    since = moment.replace(tzinfo=None) - datetime(1970, 1, 1) - (moment.utcoffset() or timedelta(0))
    return since // timedelta(microseconds=1)


@np.errstate(over="ignore", invalid="ignore")  # of steps that `_edges` refuses
def _snapped(times: Any, until: float, step: float) -> Any:
    """Return numbers, those within rounding of an edge on it: 2.3 is 7 steps of 0.1 before 3."""
    edge = until - step * np.rint((until - times) / step)
    return np.where(np.abs(times - edge) <= 1e-9 * step + 1e-14 * np.abs(times), edge, times)


def _edges(until: Any, step: Any, earliest: Any, dates: bool) -> NDArray[Any]:
    """Return the edges of steps in ascending order, from one that is not after the earliest event up to `until`."""
    if dates:
        number, unit = _parsed_step(step)
        _check_length(step, number * _UNITS[unit] * _DAY, _number(until) - earliest)
        edges = _edges_of_dates(until, number, unit, earliest)
    else:
        _check_length(step, step, until - earliest)
        n_steps = int(np.ceil((until - earliest) / step)) + 1
        edges = until - step * np.arange(n_steps, -1, -1)
    first = int(np.searchsorted(edges, earliest, side="right")) - 1
    return np.asarray(edges[max(0, first) :])


def _parsed_step(step: Any) -> tuple[int, str]:
    """Return the number and the unit of a step of a calendar, such as "2 weeks"."""
    match = None
    if isinstance(step, str):
        match = _STEP.fullmatch(step)
    if match is None:
        raise InvalidInputError(
            f"`step` must be one of {', '.join(_UNITS)}, or several as in '2 weeks', for a log with dates; got "
            f"{shown(step)}."
        )
    return int(match[1] or 1), match[2]


def _check_length(step: Any, length: float, whole: float) -> None:
    """Refuse steps of a length that are too many for the whole time of the log."""
    if not whole < _MOST_EDGES * length:
        raise InvalidInputError(f"`step` must divide the time of the log into at most {_MOST_EDGES} steps; got {step}.")


def _edges_of_dates(until: datetime, number: int, unit: str, earliest: int) -> NDArray[Any]:
    """Return the edges of steps of a calendar in ascending order, microseconds since 1970."""
    before = _back(until, number, unit)
    moments = [until]
    try:
        while _number(moments[-1]) > earliest:
            moments.append(next(before))
    except (OverflowError, ValueError) as error:
        raise InvalidInputError("`time` must be years after the year 1; correct the earliest event.") from error
    return np.array([_number(moment) for moment in reversed(moments)])


def _back(until: datetime, number: int, unit: str) -> Iterator[datetime]:
    """Yield the edges before `until`, the latest first, by the clock of its time zone; days of a month are kept."""
    if unit == "hour" and until.tzinfo is not None:  # on the clock, an hour may be missing or come twice
        until = until.astimezone(UTC)
    k = 0
    while True:
        k += number
        if unit == "hour":
            yield until - timedelta(hours=k)
        elif unit == "day":
            yield until - timedelta(days=k)
        elif unit == "week":
            yield until - timedelta(days=7 * k)
        elif unit == "month":
            yield _months_before(until, k)
        else:
            yield _months_before(until, 12 * k)


def _months_before(moment: datetime, number: int) -> datetime:
    """Return the same day and time of an earlier month; its last day where it has no such day."""
    months = moment.year * 12 + moment.month - 1 - number
    year = months // 12
    month = months % 12 + 1
    last_day = monthrange(year, month)[1]
    return moment.replace(year=year, month=month, day=min(moment.day, last_day))


# ------------------------------------------------------------ rows


def _placed(
    table: FrameRows,
    roles: dict[str, list[str]],
    names: NDArray[Any],
    code: NDArray[np.intp],
    times: NDArray[Any],
    edges: NDArray[Any],
) -> Events:
    """Return the events before `until` in order, with the step in which each falls.

    `code` has the place of the id of each row of the log in `names`.
    """
    order = np.lexsort((table.found.rows.terminated, times, code))
    order = order[times[order] < edges[-1]]
    code = code[order]
    at = times[order]
    amounts = table.found.rows.X[order]
    ended = table.found.rows.terminated[order]
    late = np.flatnonzero(ended[:-1] & (code[1:] == code[:-1]))
    if len(late):
        text = "is true, but later events of the same id follow. Correct the flag, or give them another id."
        raise table.error(roles["terminated"][0], int(order[late[0]]), text)
    step = np.searchsorted(edges, at, side="right") - 1
    position = step + (at - edges[step]) / (edges[step + 1] - edges[step])
    earliest = at[np.searchsorted(code, code)]  # of the id of each event
    return Events(names, code, step, position, amounts, ended, at == earliest)


def _spans(events: Events, ends: Ends, edges: NDArray[Any], start: Any) -> tuple[NDArray[np.intp], Ends]:
    """Return the edge of the first row of each id, (I,), and its end, which is before that without rows."""
    n_ids = len(events.names)
    n_edges = len(edges)
    first = np.full(n_ids, n_edges)
    np.minimum.at(first, events.code, events.step + 1)  # the first edge at which the id is known
    if start is not None:
        first = np.maximum(first, np.searchsorted(edges, start, side="left"))
    last = ends.edge.copy()
    terminated = ends.terminated.copy()
    closed = events.code[events.ended]
    last[closed] = events.step[events.ended]
    terminated[closed] = True
    n_rows = int(np.maximum(last - first + 1, 0).sum())
    if not 0 < n_rows <= _MOST_ROWS:
        rule = f"give at most {_MOST_ROWS} rows"
        if not n_rows:
            rule = "leave at least one row"
        names = "`step`, `start`, `until` and `observed_until`"
        raise InvalidInputError(f"{names} must {rule}; got {n_rows}. Change them.")
    return first, Ends(last, terminated)


def _rows(events: Events, first: NDArray[np.intp], ends: Ends, *, apart: bool) -> tuple[dict[str, Any], Known]:
    """Return the rows of all ids, without features: rewards, and the edge of each row as `time`; and what was known.

    `first` is the edge at which the rows of each id begin, (I,). `apart` says whether features have the first events of
    an id apart.
    """
    # The rows: whose they are, (T,), and at which edge.
    lengths = np.maximum(ends.edge - first + 1, 0)
    begins = np.cumsum(lengths) - lengths
    who = np.repeat(np.arange(len(first)), lengths)
    edge = first[who] + np.arange(len(who)) - begins[who]
    some = lengths > 0

    # What each row's step brought: the number of events, and their amounts.
    early = events.step < first[events.code]  # before the first row of the id
    row = ((begins - first)[events.code] + events.step)[~early]
    gains = _counted(events, apart=False)
    during = _sums(row, gains[~early], len(who))

    # What was known at its edge: the sums of all steps before.
    counted = _counted(events, apart=apart)
    known = np.empty_like(during)
    known[begins[some]] = _sums(events.code[early], counted[early], len(first))[some]
    brought = _sums(row, counted[~early], len(who))
    for k in range(1, int(lengths.max())):  # sums of each id alone, so that no rounding comes from the others
        rows = begins[lengths > k] + k
        known[rows] = known[rows - 1] + brought[rows - 1]
    at_first = np.empty((len(who), 0))
    if apart:
        at_first = _sums(events.code[events.is_first], events.amounts[events.is_first], len(first))[who]
    starts = np.searchsorted(events.code, who)
    seen = np.column_stack([_before(events, who, edge), starts])  # the last event, and the first one
    since = edge[:, np.newaxis] - events.position[seen]

    is_last = np.zeros(len(who), np.bool_)
    is_last[(begins + lengths - 1)[some]] = True
    terminated = is_last & ends.terminated[who]
    y = during  # the number of events
    if during.shape[1] > 1:
        y = during[:, 1:]  # the amounts
    y = np.where(cut_off(is_last, terminated)[:, np.newaxis], np.nan, y)
    arrays = {"y": y, "episode": events.names[who], "terminated": terminated, "time": edge}
    return arrays, Known(who, edge, known, at_first, since)


def _check_sums(arrays: dict[str, Any]) -> None:
    """Refuse features and rewards that overflowed."""
    if np.isfinite(arrays["X"]).all() and not np.isinf(arrays["y"]).any():
        return
    raise InvalidInputError(
        "Sums of `amount` must be below 1e308 in absolute value; they overflowed. Correct huge amounts, or give them "
        "in a larger unit."
    )


def _counted(events: Events, *, apart: bool) -> Array:
    """Return what each event adds to counts and totals, (E, 1 + m); first events that are apart add nothing."""
    gains = np.column_stack([np.ones(len(events.code)), events.amounts])
    if apart:
        gains[events.is_first] = 0.0
    return gains


def _recent(events: Events, known: Known, window: int, *, apart: bool) -> Recent:
    """Return what the last complete steps of each row's id brought, a window of them at most."""
    first_events = np.searchsorted(events.code, known.who)
    born = events.step[first_events] + 1  # the first edge at which the id is known
    begin_edge = np.maximum(known.edge - window, born)
    begin = _before(events, known.who, begin_edge) + 1
    end = _before(events, known.who, known.edge) + 1
    return Recent(_sums_between(begin, end, _counted(events, apart=apart)), known.edge - begin_edge)


def _sums_between(begin: NDArray[np.intp], end: NDArray[np.intp], values: Array) -> Array:
    """Sum rows of values (E, m) from `begin` up to, and not including, `end`, (T, m), without rounding of others."""
    padded = np.vstack([values, np.zeros((1, values.shape[1]))])
    bounds = np.column_stack([begin, end]).ravel()
    sums = np.add.reduceat(padded, bounds, axis=0)[::2]
    sums[begin == end] = 0.0
    return np.asarray(sums)


def _place_of_mean(edge: NDArray[np.intp], edges: NDArray[Any], moment: Any, given: Any) -> int:
    """Return the place of the edge whose rows give the mean rate: half-way through the rows, unless it is given."""
    if moment is None:
        half = len(edges) - 1 - (len(edges) - 1 - int(edge.min())) // 2
        return int(edge[edge <= half].max())
    place = int(np.searchsorted(edges, _number(moment), side="right")) - 1
    is_later = _number(moment) > edges[-1]
    if is_later or not (edge == place).any():
        raise InvalidInputError(
            f"`mean_at` must be a moment between the first row and `until` at which ids have rows; got {given!s}."
        )
    return place


def _sums(places: NDArray[np.intp], values: Array, size: int) -> Array:
    """Sum rows of values (E, m) by place, (size, m), in their order."""
    sums = np.empty((size, values.shape[1]))
    for j, column in enumerate(values.T):
        sums[:, j] = np.bincount(places, column, size)
    return sums


def _before(events: Events, who: NDArray[np.intp], edge: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the last event of the id before the edge of each row, (T,)."""
    width = int(max(edge.max(), events.step.max())) + 2  # so that no step of an id passes for one of the next id
    places = np.searchsorted(events.code * width + events.step, who * width + edge, side="left") - 1
    return np.asarray(places)


# ------------------------------------------------------------ the table


def write_steps(
    data: Any,
    episode: str,
    time: str,
    terminated: str,
    rewards: Sequence[str],
    file: IO[bytes],
    make_sink: Callable[..., Any],
) -> None:
    """Write a row per step: id, start, features, rewards, and whether the id ended, under these names."""
    y = data.y.reshape(len(data), -1)
    columns = [(episode, data.episode), (time, data.time)]
    columns += zip(data.feature_names or (), data.X.T, strict=True)
    columns += zip(rewards, y.T, strict=True)
    columns.append((terminated, data.terminated))
    names = [name for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(f"The table of steps would have two columns {name!r}. Rename the one in DATA.")
    with make_sink(file, names) as write:
        write({name: _arrow_of(values) for name, values in columns})


def _arrow_of(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    if values.dtype.kind not in "biufmM":
        values = np.array([str(value) for value in values], dtype=object)
    if values.dtype.kind != "M":
        return pa.array(values, from_pandas=True)
    array = pa.array(values.astype("M8[us]"), from_pandas=True)
    are_dates = (values == values.astype("M8[D]")).all()
    if are_dates:
        return array.cast(pa.date32())
    return array
