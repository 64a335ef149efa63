"""The command ``lstd watch``: arguments in, exit code out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any

from lstd.cli.commands import TRANSITIONS, prepare_tables, roles_of
from lstd.cli.console import DONE, SECONDS_BETWEEN_LINES, Display, advise, closed_output, lost_output, reporting
from lstd.cli.options import OPTIONS, Option, check_out, command, names, number
from lstd.errors import InvalidInputError

if TYPE_CHECKING:
    from lstd.tables.column_roles import Roles
    from lstd.tables.live_lines import LiveLines, PredictionsFile
    from lstd.tables.watching import WatchSettings

ON_ERROR = ("stop", "skip")


@command(
    f"data! reward! gamma! features all_others exclude episode terminated truncated {TRANSITIONS} next_features time "
    "id lmbda alpha unpenalised variant no_intercept forgetting state save_every out on_error no_wait force json quiet",
    data=Option("A file that grows, or - for standard input.", "DATA", place=True),
    reward=Option(OPTIONS["reward"].help, "NAME", lambda text, _: names([text])),
    lmbda=Option("Trace decay, in [0, 1].", "NUMBER", number, "0.9"),
    alpha=Option("Ridge coefficient.", "NUMBER", number, "1"),
    out=Option("A .csv file, or one of any name with --json.  [default: stdout]", "FILE", short="-o"),
    json=Option("Write a JSON object per row, in place of CSV."),
    force=Option("Replace existing files, and start over."),
)
def watch(given: Any) -> int:
    """Predict the discounted future rewards of rows as they come, and learn from them.

    DATA has a row per line, in time order: CSV with a header, or JSON objects. The prediction for a row is made
    before its reward is learned. The column drift says how large recent errors were then, where 1 is what the history
    allows, and has no value while that is too short. The column changed is true if a change was found since the row
    before. A row is read when its line is complete.
    With --state, the same command resumes where the state was saved, also after a crash: no row of a file is lost or
    counted twice, and --out is cut back to the rows of the state. Standard input must resume after the last row of the
    state, which the first line on stderr names. A row that was skipped cuts its episode off.

    Exit codes: 0 done, 1 a file could not be written, 2 bad usage or input, 3 the state was made with other options,
    130 interrupted (143 by SIGTERM).
    """
    prepare_tables("watch")
    from lstd.tables.watching import WatchSettings

    out = given.out
    if given.on_error not in ON_ERROR:
        raise InvalidInputError(f"`--on-error` must be stop or skip; got {given.on_error!r}.")
    if not 0.0 <= given.save_every < float("inf"):
        raise InvalidInputError(f"`--save-every` must be at least 0 seconds; got {given.save_every:g}.")
    if len(given.reward) != 1:
        raise InvalidInputError(f"`--reward` must name one column; got {','.join(given.reward)!r}.")
    if out is not None and not given.json and not out.lower().endswith(".csv"):
        raise InvalidInputError(f"`--out` must end in .csv; got {out!r}.")
    roles = roles_of(given)
    settings = WatchSettings(
        given.gamma, given.lmbda, given.alpha, given.variant, not given.no_intercept, given.unpenalised,
        given.forgetting,
    )  # fmt: skip
    settings.model(("a", *settings.unpenalised))  # checks the numbers
    if out is None and sys.stdout is None:
        return closed_output("the predictions")
    with ExitStack() as stack, reporting(given.quiet, bar=False) as display:
        session = _Session(given, roles, settings, stack)
        try:
            return session.run(display)
        except BrokenPipeError as error:
            return lost_output("the predictions", error)


class _Session:
    """Where rows come from, where predictions go, and the state with which they are saved.

    The output and the state are begun once the columns are known, so that bad names leave no file.
    """

    def __init__(self, given: Any, roles: Roles, settings: WatchSettings, stack: ExitStack) -> None:
        from lstd.files import FolderLock, read_record
        from lstd.tables.live_lines import GrowingFile, StandardInput
        from lstd.tables.predicting import csv_bytes
        from lstd.tables.watching import Watch, WatchState

        self._given, self._stack, before = given, stack, None
        inputs = [] if given.data == "-" else [given.data]
        self.state = None if given.state is None else check_out(given.state, True, inputs, "--state")
        if self.state is not None:
            lock = FolderLock(self.state.with_name(f".lstd-{self.state.name}.lock"), "--state", self.state)
            stack.callback(lock.release)
            if self.state.exists() and not given.force:
                before = read_record(self.state, WatchState)
            inputs = [*inputs, given.state]
        begin, fingerprint = (0, "") if before is None else (before.bytes, before.fingerprint)
        self._written: int | None = None if before is None else before.written
        force = given.force or self._written is not None
        self._out = None if given.out is None else check_out(given.out, force, inputs)
        self.lines: LiveLines
        self.lines = StandardInput(begin) if given.data == "-" else GrowingFile(given.data, begin, fingerprint)
        stack.callback(self.lines.close)
        self.watched = Watch(self.lines.file, roles, settings, before)
        self._encode: Callable[[list[Any]], bytes] = self._as_json if given.json else csv_bytes
        self._file: PredictionsFile | None = None
        self._begun, self._saved = False, (-1, 0.0)  # bytes and when
        self._shown = monotonic(), self.watched.place.predicted
        if before is not None:
            self._begin()

    def run(self, display: Display) -> int:
        """Follow the rows to their end; returns the exit code."""
        given, watched = self._given, self.watched
        if watched.place.rows:
            display.note(f"resumes after row {watched.place.rows} (the first row of data is 1)")
        where = "" if self.state is None else f"; the same command resumes from {self.state}"
        advise(where)
        for batch in self.lines.lines(not given.no_wait):
            for part, rows, bad in watched.take(batch):
                if bad is not None and given.on_error == "stop":
                    raise InvalidInputError(f"{bad.error} See line {bad.line}.")
                if bad is not None:
                    display.fail(str(bad))
                self.lines.count(part)
                self._add(rows)
            self._show(display)
            self._save(given.save_every)
        self._begin()
        self._save()
        if self.lines.unfinished:
            display.fail(f"the last line of {self.lines.file} does not end in a newline, and was not read")
        display.note(f"{watched.counts()}{where}")
        return DONE

    def _begin(self) -> None:
        """Begin the state and the output, unless that is done."""
        from lstd.tables.live_lines import PredictionsFile

        if self._begun:
            return
        self._begun, header = True, self.watched.header
        if self._out is None:
            self._add([] if self._given.json else [header])
        else:
            if self._written is None and self.state is not None:
                self.watched.save(self.state, self.lines, 0)  # first, so that a file without a header is known
            self._file = PredictionsFile(self._out, header, self._written or 0, self._encode)
            self._stack.callback(self._file.close)
        self._save()

    def _add(self, rows: list[Any]) -> None:
        self._begin()
        if self._file is not None:
            self._file.add(rows)
        elif rows:
            sys.stdout.buffer.write(self._encode(rows))
            sys.stdout.buffer.flush()

    def _as_json(self, rows: list[Any]) -> bytes:
        objects = (dict(zip(self.watched.header, row, strict=True)) for row in rows)
        return "".join(f"{json.dumps(one, ensure_ascii=False, default=str)}\n" for one in objects).encode()

    def _save(self, every: float = 0.0) -> None:
        """Save the state if rows came since the last time, at least so many seconds ago."""
        count, when = self._saved
        if self.state is None or count == self.lines.bytes or monotonic() - when < every or not self._begun:
            return
        if self._file is not None:
            self._file.sync()
        self.watched.save(self.state, self.lines, None if self._file is None else self._file.written)
        self._saved = self.lines.bytes, monotonic()

    def _show(self, display: Display) -> None:
        """Show a line at most every few seconds: rows a second, the last prediction, the error of complete returns."""
        (before, count), now, watched = self._shown, monotonic(), self.watched
        if now - before >= SECONDS_BETWEEN_LINES and watched.last is not None:
            self._shown = now, watched.place.predicted
            rate = (watched.place.predicted - count) / (now - before)
            display.note(f"row {watched.place.rows}, {rate:.3g} rows/s: {watched.summary()}")
