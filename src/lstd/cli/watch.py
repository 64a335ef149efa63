"""The command ``lstd watch``: arguments in, exit code out."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from lstd.cli.commands import TRANSITIONS, prepare_tables, roles_of
from lstd.cli.console import DONE, advise, closed_output, lost_output
from lstd.cli.options import OPTIONS, Option, check_out, command, names, number
from lstd.cli.progress import SECONDS_BETWEEN_LINES, Display, reporting
from lstd.errors import InvalidInputError

if TYPE_CHECKING:
    from lstd.tables.column_roles import Roles
    from lstd.tables.live_lines import LiveLines
    from lstd.tables.predicting import PredictionsFile
    from lstd.tables.watching import Watch, WatchSettings

ON_ERROR = ("stop", "skip")


@command(
    f"data! reward! gamma! features all_others exclude episode terminated truncated {TRANSITIONS} next_features time "
    "id lmbda alpha unpenalised variant no_intercept forgetting state save_every out on_error no_wait force quiet",
    data=Option("A file that grows, or - for standard input.", "DATA", place=True),
    reward=Option(OPTIONS["reward"].help, "NAME", lambda text, _: names([text])),
    lmbda=Option("Trace decay, in [0, 1].", "NUMBER", number, "0.9"),
    alpha=Option("Ridge coefficient.", "NUMBER", number, "1"),
    out=Option("A .csv file.  [default: CSV to stdout]", "FILE", short="-o"),
    force=Option("Replace existing files, and start over."),
)
def watch(given: Any) -> int:
    """Predict the discounted future rewards of rows as they come, and learn from them.

    DATA has a row per line, in time order: CSV with a header, or JSON objects. The prediction for a row is made
    before its reward is learned. A row is read when its line is complete. With --state, the same command resumes where
    the state was saved, also after a crash: no row of a file is lost or counted twice, and --out is cut back to the
    rows of the state. Standard input must resume after the last row of the state, which the first line on stderr names.
    A row that was skipped cuts its episode off.

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
    if out is not None and not out.lower().endswith(".csv"):
        raise InvalidInputError(f"`--out` must end in .csv; got {out!r}.")
    roles = roles_of(given)
    settings = WatchSettings(
        given.gamma, given.lmbda, given.alpha, given.variant, not given.no_intercept, given.unpenalised,
        given.forgetting,
    )  # fmt: skip
    settings.model(("a", *settings.unpenalised))  # checks the numbers
    if out is None and sys.stdout is None:
        return closed_output("the predictions")
    rules = _Rules(given.save_every, given.on_error == "skip", not given.no_wait)
    with ExitStack() as stack, reporting(given.quiet, bar=False) as reporter:
        return _follow(_Files(given.data, given.state, out, given.force, stack), roles, settings, reporter, rules)


class _Rules(NamedTuple):
    save_every: float  # seconds
    skip: bool  # bad rows
    wait: bool  # at the end


class _Files:
    """The files of a command: where rows come from, and where the state and the predictions go."""

    def __init__(self, data: str, state: str | None, out: str | None, force: bool, stack: ExitStack) -> None:
        from lstd.files import FolderLock
        from lstd.tables.watching import read_state

        self.data, self.state, self.before, self.stack = data, None, None, stack
        inputs = [] if data == "-" else [data]
        if state is not None:
            self.state = check_out(state, True, inputs, "--state")
            lock = FolderLock(self.state.with_name(f".lstd-{self.state.name}.lock"), "--state", self.state)
            stack.callback(lock.release)
            if self.state.exists() and not force:
                self.before = read_state(self.state)
        self.written: int | None = None if self.before is None else self.before.document["written"]
        known = self.written is not None
        self.out = None if out is None else check_out(out, force or known, [*inputs, *([state] if state else [])])

    def lines(self) -> LiveLines:
        from lstd.tables.live_lines import GrowingFile, StandardInput

        before: dict[str, Any] = {"bytes": 0, "fingerprint": ""} if self.before is None else self.before.document
        if self.data == "-":
            return StandardInput(before["bytes"])
        return self.stack.enter_context(closing(GrowingFile(self.data, before["bytes"], before["fingerprint"])))


class _Sink:
    """Where predictions go, and the state with which they are saved; both are begun once the columns are known."""

    def __init__(self, files: _Files, lines: LiveLines, watched: Watch) -> None:
        self._files, self._state, self._lines, self._watched = files, files.state, lines, watched
        self._file: PredictionsFile | None = None
        self._begun, self._saved = False, (-1, 0.0)
        if files.before is not None:
            self.begin()

    def begin(self) -> None:
        """Begin the state and the output, unless that is done."""
        from lstd.tables.predicting import PredictionsFile

        if self._begun:
            return
        files, header, self._begun = self._files, self._watched.header, True
        if files.out is None:
            self.add([header])
        else:
            if files.written is None and self._state is not None:
                self._watched.save(self._state, self._lines, 0)  # first, so that a file without a header is known
            self._file = files.stack.enter_context(closing(PredictionsFile(files.out, header, files.written or 0)))
        self.save()

    def add(self, rows: list[Any]) -> None:
        from lstd.tables.predicting import csv_bytes

        self.begin()
        if self._file is not None:
            self._file.add(rows)
        elif rows:
            sys.stdout.buffer.write(csv_bytes(rows))
            sys.stdout.buffer.flush()

    def save(self, every: float = 0.0) -> None:
        """Save the state if rows came since the last time, at least so many seconds ago."""
        count, when = self._saved
        if not self._begun or self._state is None or count == self._lines.bytes or monotonic() - when < every:
            return
        if self._file is not None:
            self._file.sync()
        self._watched.save(self._state, self._lines, None if self._file is None else self._file.written)
        self._saved = self._lines.bytes, monotonic()


class _Progress:
    """A line at most every few seconds: rows a second, the last prediction, the error of complete returns."""

    def __init__(self, reporter: Display, watched: Watch) -> None:
        self._reporter, self._watched, self._last = reporter, watched, (monotonic(), watched.n_predicted)

    def show(self) -> None:
        (before, count), now, watched = self._last, monotonic(), self._watched
        if now - before < SECONDS_BETWEEN_LINES or watched.last is None:
            return
        self._last = now, watched.n_predicted
        rate = (watched.n_predicted - count) / (now - before)
        self._reporter.note(f"row {watched.place.rows}, {rate:.3g} rows/s: {watched.summary()}")


def _follow(files: _Files, roles: Roles, settings: WatchSettings, reporter: Display, rules: _Rules) -> int:
    from lstd.tables.watching import Watch

    lines = files.lines()
    watched = Watch(lines.file, roles, settings, files.before)
    sink, progress = _Sink(files, lines, watched), _Progress(reporter, watched)
    if watched.place.rows:
        reporter.note(f"resumes after row {watched.place.rows} (the first row of data is 1)")
    where = "" if files.state is None else f"; the same command resumes from {files.state}"
    advise(where)
    try:
        for batch in lines.lines(rules.wait):
            for part, rows, bad in watched.take(batch):
                if bad is not None and not rules.skip:
                    raise InvalidInputError(f"{bad.error} See line {bad.line}.")
                if bad is not None:
                    reporter.fail(str(bad))
                lines.count(part)
                sink.add(rows)
            progress.show()
            sink.save(rules.save_every)
        sink.begin()
    except BrokenPipeError as error:
        return lost_output("the predictions", error)
    sink.save()
    if lines.unfinished:
        reporter.fail(f"the last line of {lines.file} does not end in a newline, and was not read")
    reporter.note(f"{watched.counts()}{where}")
    return DONE
