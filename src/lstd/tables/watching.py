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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lstd import files
from lstd.data.follow import Episodes
from lstd.errors import ConfigurationMismatchError, IllConditionedWarning, InvalidInputError
from lstd.online import RecursiveLSTD
from lstd.online.forgetting import CompletedReturns, horizon_of
from lstd.tables.column_roles import Roles
from lstd.tables.live_lines import LiveLines
from lstd.tables.live_rows import LiveRows, LiveTable, Place
from lstd.tables.row_reader import Chunk
from lstd.types import Array

_KIND = "watch"  # of the file of the state
_REFRESHED = 32  # predictions, after which standard errors are computed again; or a fiftieth of all
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


class WatchState(NamedTuple):
    """What :meth:`Watch.save` wrote."""

    document: dict[str, Any]  # among others, the bytes of the data and of the output, None where that was no file
    arrays: dict[str, Array]


def read_state(path: Path) -> WatchState:
    """Read a state; raises InvalidInputError when it is damaged or of another kind or version."""
    return files.read(path, {_KIND: WatchState})


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
        Result of `read_state`, to go on from.

    Raises
    ------
    ConfigurationMismatchError
        When the options differ from those that the state was made with.
    """

    def __init__(self, file: str, roles: Roles, settings: WatchSettings, state: WatchState | None = None) -> None:
        self._file, self._roles, self._settings = file, roles, settings
        self.rows: LiveRows | None = None
        self.model: RecursiveLSTD | None = None
        self.n_predicted = self.n_left_out = self.n_cut_off = 0  # rows, and episodes that a bad row cut off
        self.last: tuple[float, float] | None = None  # prediction and standard error
        self._place = Place()  # before the columns are known
        self._influence = np.empty((0, 0))  # of blocks on the weights (E, n), as of some rows ago,
        self._due = _REFRESHED  # and after how many predictions it is computed again
        self._returns, self._squares = CompletedReturns(horizon_of(settings.gamma)), (0.0, 0)  # mean and number
        if state is not None:
            self._go_on(state.document, state.arrays)

    def _go_on(self, document: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        _check_same(document["configuration"], self._configuration())
        self.n_predicted, self.n_left_out, self.n_cut_off = document["n_rows"]
        self._place, self._due = Place(*document["place"]), int(document["due"])
        if document["names"]:
            self._open(LiveTable(self._file, document["names"], document["header"])).unpack(document["episodes"])
            self._influence = arrays.pop("influence")
            self.model = RecursiveLSTD.restore(arrays)

    def _open(self, table: LiveTable) -> Episodes:
        self.rows = LiveRows(table, self._roles, self._place)
        self.model = self._settings.model(self.rows.reader.features)
        assert self._place.episodes is not None
        return self._place.episodes

    def _configuration(self) -> dict[str, Any]:
        roles = {name: value for name, value in asdict(self._roles).items() if value}
        return {**asdict(self._settings), **roles}

    @property
    def place(self) -> Place:
        """How far the stream was read."""
        return self._place if self.rows is None else self.rows.place

    @property
    def header(self) -> list[str]:
        """Names of the columns of predictions."""
        return ["row", *self._roles.kept, "prediction", "standard_error"]

    def summary(self) -> str:
        """Describe the last prediction, and the errors of those whose returns are complete."""
        value, error = self.last or (math.nan, math.nan)
        text = f"last prediction {value:.6g}" + ("" if not math.isfinite(error) else f" ± {error:.2g}")
        square, count = self._squares
        return f"{text}; error of complete returns {math.sqrt(square):.3g}" if count else text

    def counts(self) -> str:
        """Say how many rows there were."""
        left_out = f", {self.n_left_out} left out" if self.n_left_out else ""
        episodes = "1 episode" if self.n_cut_off == 1 else f"{self.n_cut_off} episodes"
        cut_off = f", {episodes} cut off by bad rows" if self.n_cut_off else ""
        return f"{self.n_predicted} rows{left_out}{cut_off}"

    def take(self, lines: list[bytes]) -> Iterator[Learned]:
        """Learn from lines; yield parts of them with the rows of the output, or what is wrong."""
        if self.rows is None and lines:
            n_blank = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
            n_before = n_blank
            if n_blank < len(lines):
                table = LiveTable.of(self._file, lines[n_blank])
                self._open(table)
                n_before += bool(table.header)
            self._place.lines += n_before
            yield Learned(lines[:n_before], [])  # without lines too, so that a state of no rows can be kept
            lines = lines[n_before:]
        while lines:
            # Standard errors are computed again after numbers of rows fixed in advance, however the lines come.
            size = max(1, self._due - self.n_predicted)
            yield from self._take(lines[:size])
            lines = lines[size:]
            if self.n_predicted >= self._due and self.model is not None:
                self._due += max(_REFRESHED, self._due // 50)
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
        rows = self.rows
        assert rows is not None
        at_line, row = rows.place.lines + 1, rows.place.rows
        before, last = rows.place.copy(), rows.place.last
        rows.cut_off()
        try:
            found = self._learned(line)
        except InvalidInputError as error:
            rows.place = before
            rows.leave_out()
            self.n_left_out += 1
            if str(error) != str(wrong):  # the row before is bad too
                yield self._cut_off(wrong, row - 1, last)
            yield Learned(line, [], BadLine(self._placed(error, row), at_line, True))
            return
        successors = rows.reader.roles.next_features
        yield self._cut_off(wrong, row if successors else row - 1, at_line if successors else last)
        yield Learned(line, found)

    def _cut_off(self, wrong: InvalidInputError, row: int, line: int) -> Learned:
        self.n_cut_off += 1
        return Learned([], [], BadLine(self._placed(wrong, row), line, False))

    def _placed(self, error: InvalidInputError, row: int) -> InvalidInputError:
        if not isinstance(error, _NotLearnedError):
            return error
        return InvalidInputError(f"{self._file}: row {row + 1} (the first row of data is 1): {error}")

    def _learned(self, lines: list[bytes]) -> list[Any]:
        """Learn from lines and return rows of the output; raises InvalidInputError, and nothing changes then."""
        assert self.rows is not None
        before = self.rows.place.copy()
        try:
            chunk = self.rows.take(lines)
            return [] if chunk is None else self._output(chunk, self._fit(chunk))
        except InvalidInputError:
            self.rows.place = before
            raise

    def _fit(self, chunk: Chunk) -> Array:
        """Return the prediction for each row, made before its transition is learned."""
        assert self.model is not None
        X, X_next = (self._with_ones(rows) for rows in (chunk.X, chunk.X_next))
        with warnings.catch_warnings():
            if self.model.n_updates < 2 * self.model.n_features:  # too few for a regular system
                warnings.simplefilter("ignore", IllConditionedWarning)
            try:
                return self.model.partial_fit(  # type: ignore[no-any-return]
                    X, chunk.y[:, 0], episode=chunk.episode, terminated=chunk.terminated, X_next=X_next,
                    return_predictions=True, **chunk.transitions,
                )  # fmt: skip
            except InvalidInputError as error:
                raise _NotLearnedError(str(error)) from error

    def _with_ones(self, X: Array | None) -> Any:
        return X if X is None or not self._settings.fit_intercept else np.column_stack([X, np.ones(len(X))])

    def _output(self, chunk: Chunk, predictions: Array) -> list[Any]:
        self.n_predicted += len(chunk)
        self._note_errors(chunk, predictions)
        errors = _standard_errors(self._influence, self._with_ones(chunk.X))
        self.last = float(predictions[-1]), float(errors[-1])
        kept = [column.to_pylist() for column in chunk.kept]
        shown = [error if math.isfinite(error) else None for error in errors.tolist()]
        rows = range(chunk.first + 1, chunk.first + 1 + len(chunk))
        return list(zip(rows, *kept, predictions.tolist(), shown, strict=True))

    def _note_errors(self, chunk: Chunk, predictions: Array) -> None:
        """Average squared errors of recent predictions whose returns are complete."""
        if chunk.X_next is not None:  # successors are not the next rows
            return
        usual = {"discount": self._settings.gamma, "importance_ratio": 1.0, "trace_coefficient": 1.0}
        columns = [chunk.transitions.get(name, np.full(len(chunk), value)) for name, value in usual.items()]
        rows = predictions[:, np.newaxis], chunk.y, chunk.episode, chunk.terminated, np.column_stack(columns)
        for error in self._returns.add_rows(*rows)[:, 0].tolist():
            square, count = self._squares[0], self._squares[1] + 1
            self._squares = square + (error * error - square) / min(count, _RECENT), count

    def save(self, path: Path, lines: LiveLines, written: int | None) -> None:
        """Write the state, whole or not at all, with the bytes of the output, if that is a file.

        Raises OutputError when it could not be written.
        """
        place, table = self.place, None if self.rows is None else self.rows.table
        document = {
            "configuration": self._configuration(), "bytes": lines.bytes, "fingerprint": lines.fingerprint(),
            "written": written, "n_rows": [self.n_predicted, self.n_left_out, self.n_cut_off], "due": self._due,
            "place": [place.lines, place.last, place.rows, place.gaps], "names": [] if table is None else table.names,
            "header": "" if table is None else table.header, "episodes": place.episodes and place.episodes.packed(),
        }  # fmt: skip
        arrays = {} if self.model is None else self.model.snapshot() | {"influence": self._influence}
        files.write(path, _KIND, document, arrays)


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
