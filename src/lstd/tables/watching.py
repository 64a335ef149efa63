"""Predictions for the rows of a live stream by a recursive model, whose state survives the end of the process.

Lines are read as one batch; where that fails, as two halves, down to the line that is bad. A bad row cuts its episode
off: it is left out, or kept without the transition that leads to it where only that is bad.

The state is one file, replaced whole: the model, what is known of the last rows, the place in the data and the length
of the output. A process that goes on from it cuts the output to that length and reads the data from that place, so no
row is counted twice or lost. Rows of a pipe cannot be read again: their sender must go on after the last row of the
state.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstd import files
from lstd._kernels.online_state import HUGE
from lstd.data.check_rows import check_rows
from lstd.data.follow import Episodes, Followed
from lstd.data.parse_columns import Converted
from lstd.data.rows import Rows
from lstd.errors import ConfigurationMismatchError, IllConditionedWarning, InvalidInputError
from lstd.online import RecursiveLSTD, snapshot
from lstd.online.forgetting import CompletedReturns, horizon_of
from lstd.tables.column_roles import Roles
from lstd.tables.live_lines import LiveLines, LiveTable
from lstd.tables.reader import Chunk, RowReader
from lstd.tables.table import FROM_ONE, at_row
from lstd.types import Array

_REFRESHED = 32  # predictions, after which standard errors are computed again; or a fiftieth of all
AGAIN = (
    "reappears after other episodes. Give new episodes new ids; if several episodes run at once, give the rows of each "
    "source to an `lstd watch` of its own."
)
EARLIER = "is earlier than the row before it, of the same episode. Send rows in the order of time."
_RECENT = 1000  # complete returns whose errors count


@dataclass(frozen=True)
class WatchSettings:
    """Settings of the model; those of `lstd.RecursiveLSTD`, with an intercept."""

    gamma: float
    lmbda: float
    alpha: float
    variant: str
    fit_intercept: bool
    unpenalised: tuple[str, ...] = ()
    forgetting: float | str = 1.0

    def model(self, features: tuple[str, ...]) -> RecursiveLSTD:
        """Make a model for these features, to which the column of ones is added last."""
        if unknown := [name for name in self.unpenalised if name not in features]:
            raise InvalidInputError(f"`--unpenalised` must name features; {unknown[0]!r} is not one of them.")
        alpha: float | list[float] = self.alpha
        if self.fit_intercept or self.unpenalised:
            alpha = [0.0 if name in self.unpenalised else self.alpha for name in features] + [0.0] * self.fit_intercept
        n = len(features) + self.fit_intercept
        return RecursiveLSTD(n, self.gamma, self.lmbda, alpha, self.variant, forgetting=self.forgetting)


@dataclass
class Place:
    """How far a stream of lines was read, and what was made of it."""

    lines: int = 0  # blank ones and the header count
    last: int = 0  # line of the last row
    rows: int = 0  # good and bad
    gaps: int = 0  # between the rows of episodes that were cut off
    predicted: int = 0  # rows
    left_out: int = 0
    cut_off: int = 0  # episodes that a bad row cut off
    due: int = _REFRESHED  # predictions after which standard errors are computed again


@dataclass(frozen=True, eq=False)
class WatchState:
    """What is kept between two processes."""

    file_kind = "watch"

    configuration: Mapping[str, Any]
    bytes: int  # of the data
    fingerprint: str
    written: int | None  # bytes of the output; None where that was no file
    place: Place
    names: tuple[str, ...]  # of the columns; none before they are known
    header: str
    rows: Followed
    influence: Annotated[NDArray[np.float64], "E F"]
    model: snapshot.State | None


class BadLine(NamedTuple):
    """What is wrong with a line."""

    error: InvalidInputError
    line: int  # of the source, from 1; blank lines and the header count
    left_out: bool  # otherwise its row has a prediction, but its transition is not learned

    def __str__(self) -> str:
        done = f"Line {self.line} is left out." if self.left_out else f"Its episode is cut off at line {self.line}."
        return f"{self.error} {done}"


class Learned(NamedTuple):
    """What was made of some lines."""

    lines: list[bytes]
    rows: list[Any]  # of the output
    bad: BadLine | None = None


class _NotLearnedError(InvalidInputError):
    """Rows whose sums would overflow."""


class Watch:
    """A model that follows one stream of rows.

    Parameters
    ----------
    file : str
        Name of the source in messages.
    roles : Roles
        With one reward.
    settings : WatchSettings
    state : WatchState, optional
        What an earlier process saved, to go on from.

    Raises
    ------
    ConfigurationMismatchError
        When the options differ from those that the state was made with.
    """

    def __init__(self, file: str, roles: Roles, settings: WatchSettings, state: WatchState | None = None) -> None:
        self._file, self._roles, self._settings = file, roles, settings
        self._table: LiveTable | None = None
        self.model: RecursiveLSTD | None = None
        self.last: tuple[float, float] | None = None  # prediction and standard error
        self.place = Place()
        self._time: Any = None  # of the last rows, as it was read
        self._influence = np.empty((0, 0))  # of blocks on the weights (E, n), as of some rows ago
        self._returns, self._squares = CompletedReturns(horizon_of(settings.gamma)), (0.0, 0)  # mean and number
        if state is not None:
            _check_same(state.configuration, self._configuration())
            self.place = state.place
            if state.model is not None:
                self._open(LiveTable(file, state.names, state.header))
                self._influence, self._reader.episodes.state = state.influence, state.rows
                self.model = snapshot.restored(RecursiveLSTD, state.model)

    def _open(self, table: LiveTable) -> None:
        self._table, self._reader = table, RowReader([table], self._roles, gamma=self._settings.gamma)
        self._reader.episodes = Episodes(self._reader.roles, at_row, AGAIN, EARLIER)
        self.model = self._settings.model(self._reader.features)

    def _configuration(self) -> dict[str, Any]:
        roles = asdict(self._roles)
        roles = {name: value for name, value in (roles | roles.pop("transitions")).items() if value}
        return {**asdict(self._settings), **roles}

    @property
    def header(self) -> list[str]:
        """Names of the columns of predictions."""
        return ["row", *self._roles.kept, "prediction", "standard_error", "drift", "changed"]

    def summary(self) -> str:
        """Describe the last prediction, and the errors of those whose returns are complete."""
        value, error = self.last or (math.nan, math.nan)
        text = f"last prediction {value:.6g}" + ("" if not math.isfinite(error) else f" ± {error:.2g}")
        square, count = self._squares
        return f"{text}; error of complete returns {math.sqrt(square):.3g}" if count else text

    def counts(self) -> str:
        """Say how many rows there were."""
        place = self.place
        left_out = f", {place.left_out} left out" if place.left_out else ""
        episodes = "1 episode" if place.cut_off == 1 else f"{place.cut_off} episodes"
        cut_off = f", {episodes} cut off by bad rows" if place.cut_off else ""
        return f"{place.predicted} rows{left_out}{cut_off}"

    def take(self, lines: list[bytes]) -> Iterator[Learned]:
        """Learn from lines; yield parts of them with the rows of the output, or what is wrong."""
        place = self.place
        if self._table is None and lines:
            n_before = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
            if n_before < len(lines):
                self._open(table := LiveTable.of(self._file, lines[n_before]))
                n_before += bool(table.header)
            place.lines += n_before
            yield Learned(lines[:n_before], [])  # without lines too, so that a state of no rows can be kept
            lines = lines[n_before:]
        while lines:
            # Standard errors are computed again after numbers of rows fixed in advance, however the lines come.
            size = max(1, self.place.due - self.place.predicted)
            yield from self._take(lines[:size])
            lines = lines[size:]
            if self.place.predicted >= self.place.due and self.model is not None:
                self.place.due += max(_REFRESHED, self.place.due // 50)
                with contextlib.suppress(InvalidInputError):  # too few blocks yet
                    self._influence = self.model.reader.influence().vectors[:, 0]

    def _take(self, lines: list[bytes]) -> Iterator[Learned]:
        """Learn from lines; if one is bad, from each half of them."""
        try:
            done = Learned(lines, self._learned(lines))
        except InvalidInputError as error:
            wrong = error
        else:
            yield done
            return
        if len(lines) > 1:
            for half in (lines[: len(lines) // 2], lines[len(lines) // 2 :]):
                yield from self._take(half)
            return
        yield from self._bad(lines, wrong)

    def _bad(self, line: list[bytes], wrong: InvalidInputError) -> Iterator[Learned]:
        """Leave a line out, or only the transition to its row if that alone is bad."""
        episodes, before, place = self._reader.episodes, self._reader.episodes.state, self.place
        at_line, row, last = place.lines + 1, place.rows, place.last
        episodes.forgive()  # the next row begins an episode, whatever the row before it says
        place.gaps += 1
        try:
            found = self._learned(line)
        except InvalidInputError as error:
            episodes.state = before
            place = self.place
            place.lines, place.rows, place.left_out = place.lines + 1, place.rows + 1, place.left_out + 1
            if str(error) != str(wrong):  # the row before is bad too
                yield self._cut_off(wrong, row - 1, last)
            yield Learned(line, [], BadLine(self._placed(error, row), at_line, True))
            return
        successors = self._reader.roles.next_features
        yield self._cut_off(wrong, row if successors else row - 1, at_line if successors else last)
        yield Learned(line, found)

    def _cut_off(self, wrong: InvalidInputError, row: int, line: int) -> Learned:
        self.place.cut_off += 1
        return Learned([], [], BadLine(self._placed(wrong, row), line, False))

    def _placed(self, error: InvalidInputError, row: int) -> InvalidInputError:
        if not isinstance(error, _NotLearnedError):
            return error
        return InvalidInputError(f"{self._file}: row {row + 1} {FROM_ONE}: {error}")

    def _learned(self, lines: list[bytes]) -> list[Any]:
        """Learn from lines and return rows of the output; raises InvalidInputError, and nothing changes then."""
        place, before = self.place, self._reader.episodes.state
        try:
            chunk = self._chunk(lines)
            if chunk is None:
                return []
            rows = chunk.rows.with_ones() if self._settings.fit_intercept else chunk.rows
            predictions, drift, changed = self._fit(rows, chunk)
        except InvalidInputError:
            self.place, self._reader.episodes.state = place, before
            raise
        self.place.predicted += len(rows)
        self._note_errors(rows, predictions)
        errors = _standard_errors(self._influence, rows.X)
        self.last = float(predictions[-1]), float(errors[-1])
        kept = [column.to_pylist() for column in chunk.kept]
        numbers = range(rows.place + 1, rows.place + 1 + len(rows))
        known = ([x if math.isfinite(x) else None for x in values.tolist()] for values in (errors, drift))
        told = predictions.tolist(), *known, changed.tolist()
        return list(zip(numbers, *kept, *told, strict=True))

    def _chunk(self, lines: list[bytes]) -> Chunk | None:
        """Return the rows of the next lines, None if they have none; raises InvalidInputError at a bad one."""
        place, reader, table = self.place, self._reader, self._table
        assert table is not None
        batch, last = table.batch(lines, reader.columns, place.lines, place.rows)
        self.place = replace(place, lines=place.lines + len(lines))
        if not last:
            return None
        self._time = None if reader.roles.time is None else batch.column(reader.roles.time)
        found = Converted(batch, reader.roles, reader.gamma)
        for X, names in ((found.rows.X, reader.features), (found.rows.X_next, reader.roles.next_features)):
            unused = found.rows.terminated[:, np.newaxis] & (X is found.rows.X_next)
            if X is not None and len(large := np.argwhere((np.abs(X) > HUGE) & ~unused)):
                row, column = large[0].tolist()
                text = f"has {X[row, column]:.3g}; features must be below {HUGE:.0e}. Scale features to order 1."
                raise at_row(table.file, place.rows + row, names[column], text)
        chunk = reader.checked(table, place.rows, found)
        self.place.last, self.place.rows = place.lines + last, place.rows + len(batch)
        return chunk._replace(rows=chunk.rows.changed(episode=np.asarray(chunk.rows.episode) + place.gaps))

    def _fit(self, rows: Rows, chunk: Chunk) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return the prediction for each row and the drift, before its transition is learned, and where it changed."""
        assert self.model is not None
        before = self.model.n_changes_
        with warnings.catch_warnings():
            if self.model.n_updates < 2 * self.model.n_features:  # too few for a regular system
                warnings.simplefilter("ignore", IllConditionedWarning)
            try:
                checked = check_rows(**rows.arguments, gamma=self.model.gamma)
                predictions = self.model.learn_rows(checked, lambda t: self._named(chunk, min(t, len(rows) - 1)), True)
            except InvalidInputError as error:
                raise _NotLearnedError(str(error)) from error
        assert self.model.drifts_ is not None
        drift, count = self.model.drifts_.T
        return predictions, drift, np.diff(count, prepend=before) > 0

    def _named(self, chunk: Chunk, t: int) -> str:
        """Name a row of a chunk by its number, its kept columns and its time."""
        names = ({} if self._time is None else {self._roles.time: self._time}) | dict(
            zip(self._roles.kept, chunk.kept, strict=True)
        )
        values = [f"{name} {column[t].as_py()}" for name, column in names.items()]
        more = f" ({', '.join(values)})" if values else ""
        return f"{self._file}: row {chunk.rows.place + t + 1}{more}"

    def _note_errors(self, chunk: Rows, predictions: Array) -> None:
        """Average squared errors of recent predictions whose returns are complete."""
        if chunk.X_next is not None:  # successors are not the next rows
            return
        columns = np.column_stack([chunk.discount, chunk.importance_ratio, chunk.trace_coefficient])
        y = np.where(chunk.known[:, np.newaxis], chunk.y, np.nan)
        rows = predictions[:, np.newaxis], y, np.asarray(chunk.episode), chunk.terminated, columns
        for error in self._returns.add_rows(*rows)[:, 0].tolist():
            square, count = self._squares[0], self._squares[1] + 1
            self._squares = square + (error * error - square) / min(count, _RECENT), count

    def save(self, path: Path, lines: LiveLines, written: int | None) -> None:
        """Write the state, whole or not at all, with the bytes of the output, if that is a file.

        Raises OutputError when it could not be written.
        """
        table, rows = self._table, Followed() if self._table is None else self._reader.episodes.state
        files.write_record(path, WatchState(
            self._configuration(), lines.bytes, lines.fingerprint(), written, self.place,
            () if table is None else tuple(table.names), "" if table is None else table.header, rows, self._influence,
            None if self.model is None else snapshot.state_of(self.model),
        ))  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")
def _standard_errors(influence: Array, X: Array) -> Array:
    """Compute standard errors (T,) from influences (E, n) and features (T, n); NaN without influences.

    The products are not those of a BLAS, whose last digits depend on how many rows come at once.
    """
    if not len(influence):
        return np.full(len(X), np.nan)
    along = np.zeros((len(X), len(influence)))
    for j, column in enumerate(np.ascontiguousarray(influence.T)):
        along += X[:, j : j + 1] * column
    return np.asarray(np.sqrt((along**2).sum(axis=1)))


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ConfigurationMismatchError if the options differ from those that the state was made with."""
    now = {name: list(value) if isinstance(value, tuple) else value for name, value in now.items()}
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if different:
        name = different[0]
        raise ConfigurationMismatchError(
            f"the state was made with {name} {before.get(name)!r}, and now it is {now.get(name)!r}; give the same "
            "options, or another --state, or --force to start over."
        )
