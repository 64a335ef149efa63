"""Predictions for the rows of a live stream by a recursive model, whose state survives the end of the process.

The state is one file, replaced whole: the model, what is known of the last row, the place in the data and the length of
the output. A process that goes on from it cuts the output to that length and reads the data from that place, so no row
is counted twice or lost. Rows of a pipe cannot be read again: their sender must go on after the last row of the state.
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
from lstd.errors import ConfigurationMismatchError, IllConditionedWarning, InvalidInputError
from lstd.online import RecursiveLSTD
from lstd.online.completed_returns import CompletedReturns, horizon_of
from lstd.statistics.covariance import Influence
from lstd.tables.column_roles import Roles
from lstd.tables.live_lines import LiveLines
from lstd.tables.live_rows import BadLine, LiveRows
from lstd.tables.row_reader import Chunk
from lstd.types import Array

_KIND = "watch"  # of the file of the state
_REFRESHED = 32  # predictions, after which standard errors are computed again; or a fiftieth of all
_RECENT = 1000  # complete returns whose errors count
_INFLUENCE = ("vectors", "shift", "shares")


class WatchState(NamedTuple):
    """What :meth:`Watch.save` wrote."""

    document: dict[str, Any]  # among others, the bytes of the data and of the output, None where that was no file
    arrays: dict[str, Array]


def read_state(path: Path) -> WatchState:
    """Read a state; raises InvalidInputError when it is damaged or of another kind or version."""
    return files.read(path, {_KIND: WatchState})


class Learned(NamedTuple):
    """What was made of some lines."""

    lines: list[bytes]
    rows: list[Any]  # of the output
    bad: BadLine | None = None


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


class Watch:
    """A model that follows one stream of rows.

    Parameters
    ----------
    file : str
        Name of the source in messages.
    roles : Roles
        With one reward.
    settings : WatchSettings
    state : mapping, optional
        Result of `read_state`, to go on from.
    """

    def __init__(self, file: str, roles: Roles, settings: WatchSettings, state: WatchState | None = None) -> None:
        self._roles, self._settings = roles, settings
        self.model: RecursiveLSTD | None = None
        self.n_predicted = self.n_left_out = self.n_cut_off = 0  # rows, and episodes that a bad row cut off
        self.last: tuple[float, float] | None = None  # prediction and standard error
        self._influence: Influence | None = None  # as of some rows ago,
        self._due = _REFRESHED  # and after how many predictions it is computed again
        self._returns, self._squares = CompletedReturns(horizon_of(settings.gamma)), (0.0, 0)  # mean and number
        before = None if state is None else state.document
        if before is not None:
            _check_same(before["configuration"], self._configuration())
            self.n_predicted, self.n_left_out, self.n_cut_off = before["n_rows"]
        self.rows = LiveRows(file, roles, before and before["rows"])
        if state is not None and state.arrays:
            self.model = RecursiveLSTD.restore(state.arrays)
            self._due = int(state.document["due"])
            vectors, shift, shares = (state.arrays[f"influence_{name}"] for name in _INFLUENCE)
            if shares.size:
                marks = np.zeros((len(shares), 4), np.uint64)
                self._influence = Influence(vectors, shift, shares, False, marks)

    def _configuration(self) -> dict[str, Any]:
        roles = {name: value for name, value in asdict(self._roles).items() if value}
        return {**asdict(self._settings), **roles}

    def summary(self) -> str:
        """Describe the last prediction, and the errors of those whose returns are complete."""
        value, error = self.last or (math.nan, math.nan)
        text = f"last prediction {value:.6g}" + ("" if math.isnan(error) else f" ± {error:.2g}")
        square, count = self._squares
        return f"{text}; error of complete returns {math.sqrt(square):.3g}" if count else text

    def counts(self) -> str:
        """Say how many rows there were."""
        left_out = f", {self.n_left_out} left out" if self.n_left_out else ""
        episodes = "1 episode" if self.n_cut_off == 1 else f"{self.n_cut_off} episodes"
        cut_off = f", {episodes} cut off by bad rows" if self.n_cut_off else ""
        return f"{self.n_predicted} rows{left_out}{cut_off}"

    @property
    def header(self) -> list[str]:
        """Names of the columns of predictions."""
        return ["row", *self._roles.kept, "prediction", "standard_error"]

    def take(self, lines: list[bytes]) -> Iterator[Learned]:
        """Learn from lines; yield parts of them with the rows of the output, or what is wrong."""
        for part in self.rows.take(lines):
            if part.chunk is not None:
                yield from self._in_pieces(part.lines, part.chunk)
            elif part.bad is not None:
                yield self._bad(part.lines, part.bad)
            else:
                yield Learned(part.lines, [])

    def _bad(self, lines: list[bytes], bad: BadLine) -> Learned:
        self.n_left_out += bad.left_out
        self.n_cut_off += not bad.left_out
        return Learned(lines, [], bad)

    def _in_pieces(self, lines: list[bytes], chunk: Chunk) -> Iterator[Learned]:
        """Learn from a chunk, with standard errors that are computed again after numbers of rows fixed in advance."""
        first, gaps = 0, self.rows.gaps
        while first < len(chunk):
            stop = min(len(chunk), first + max(1, self._due - self.n_predicted))
            yield from self._learned(lines[first:stop], _part(chunk, first, stop, self.rows.gaps - gaps))
            first = stop
            if self.n_predicted >= self._due and self.model is not None:
                self._due += max(_REFRESHED, self._due // 50)
                with contextlib.suppress(InvalidInputError):  # too few blocks yet
                    self._influence = self.model.reader.influence()

    def _learned(self, lines: list[bytes], chunk: Chunk) -> Iterator[Learned]:
        """Learn from a chunk, or row by row if sums would overflow."""
        try:
            yield Learned(lines, self._output(chunk, self._fit(chunk)))
            return
        except InvalidInputError as error:
            wrong, gaps = error, self.rows.gaps
        if len(lines) > 1:
            for i, line in enumerate(lines):
                yield from self._learned([line], _part(chunk, i, i + 1, self.rows.gaps - gaps))
            return
        self.rows.gaps += 1
        try:  # without the transition from the row before, or its trace
            predictions = self._fit(_part(chunk, 0, 1, 1))
        except InvalidInputError:
            yield self._bad(lines, self._cannot_learn(chunk, chunk.first, wrong, True))
            return
        row = chunk.first if chunk.X_next is not None else chunk.first - 1
        yield self._bad([], self._cannot_learn(chunk, row, wrong, False))
        yield Learned(lines, self._output(chunk, predictions))

    def _cannot_learn(self, chunk: Chunk, row: int, error: InvalidInputError, left_out: bool) -> BadLine:
        place = f"{chunk.file}: row {row + 1} (the first row of data is 1)"
        return BadLine(InvalidInputError(f"{place}: {error}"), self.rows.line_of(row), left_out)

    def _fit(self, chunk: Chunk) -> Array:
        """Return the prediction for each row, made before its transition is learned."""
        if self.model is None:
            reader = self.rows.reader
            assert reader is not None
            self.model = self._settings.model(reader.features)
        X, X_next = (self._with_ones(rows) for rows in (chunk.X, chunk.X_next))
        with warnings.catch_warnings():
            if self.model.n_updates < 2 * self.model.n_features:  # too few for a regular system
                warnings.simplefilter("ignore", IllConditionedWarning)
            return self.model.partial_fit(  # type: ignore[no-any-return]
                X, chunk.y[:, 0], episode=chunk.episode, terminated=chunk.terminated, X_next=X_next,
                return_predictions=True, **chunk.transitions,
            )  # fmt: skip

    def _with_ones(self, X: Array | None) -> Any:
        return X if X is None or not self._settings.fit_intercept else np.column_stack([X, np.ones(len(X))])

    def _output(self, chunk: Chunk, predictions: Array) -> list[Any]:
        self.n_predicted += len(chunk)
        self._note_errors(chunk, predictions)
        errors = np.full(len(chunk), np.nan)
        if self._influence is not None:
            errors = self._influence.standard_error(self._with_ones(chunk.X))[:, 0]
        self.last = float(predictions[-1]), float(errors[-1])
        kept = [column.to_pylist() for column in chunk.kept]
        shown = [None if error != error else error for error in errors.tolist()]
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
        document = {
            "configuration": self._configuration(), "bytes": lines.bytes, "fingerprint": lines.fingerprint(),
            "written": written, "n_rows": [self.n_predicted, self.n_left_out, self.n_cut_off],
            "rows": self.rows.packed(), "due": self._due,
        }  # fmt: skip
        arrays = {} if self.model is None else self.model.snapshot()
        if self.model is not None:
            known, nothing = self._influence, np.zeros(0)
            arrays |= {f"influence_{name}": nothing if known is None else getattr(known, name) for name in _INFLUENCE}
        files.write(path, _KIND, document, arrays)


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


def _part(chunk: Chunk, first: int, stop: int, later: int) -> Chunk:
    """Return some rows of a chunk, with their numbers of episodes raised by `later`."""
    part = slice(first, stop)
    return Chunk(
        chunk.file, chunk.first + first, chunk.X[part], chunk.y[part], chunk.episode[part] + later,
        chunk.terminated[part], None, [column[part] for column in chunk.kept],
        {name: values[part] for name, values in chunk.transitions.items()},
        None if chunk.X_next is None else chunk.X_next[part], chunk.names,
    )  # fmt: skip
