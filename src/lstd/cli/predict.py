"""The command ``lstd predict``: arguments in, exit code out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lstd.cli.console import fail_with, lost_output, output
from lstd.cli.interruption import advise
from lstd.cli.tables import DATA_HELP, NAMES, check_out, check_packages, listener, names

if TYPE_CHECKING:
    from lstd.persistence import FittedModel


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file that `lstd fit` wrote.", show_default=False)],
    data: Annotated[list[str], typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)],
    keep: Annotated[list[str] | None, typer.Option("--id", metavar=NAMES, help="Columns to pass on.")] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file.  [default: CSV to stdout]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Summary as one JSON document; needs --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no warnings on stderr.")] = False,
) -> int:
    """Predict the discounted future rewards of rows.

    With --out, FILE appears whole or not at all; stdout gets rows as they come. Exit codes: 0 done, 1 output could not
    be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    from lstd.errors import InvalidInputError, LSTDError

    try:
        check_packages("predict")
        from lstd.persistence import load_model

        if out is None and as_json:
            raise InvalidInputError("`--json` goes with `--out` only: stdout has the predictions.")
        loaded = load_model(model)
        if out is None:
            return _to_stdout(loaded, data, names(keep), quiet)
        return _to_file(loaded, data, names(keep), out, force, [model, *data], as_json, quiet)
    except (LSTDError, OSError) as error:
        return fail_with(error)


def _to_file(
    model: FittedModel, data: list[str], kept: tuple[str, ...], out: str, force: bool, inputs: list[str], as_json: bool,
    quiet: bool,
) -> int:  # fmt: skip
    from lstd._files import replacing
    from lstd.cli.describe import document
    from lstd.cli.progress import make_reporter, reporting
    from lstd.errors import InvalidInputError
    from lstd.tables.predicting import CsvSink, ParquetSink, predict_tables

    if not out.lower().endswith((".csv", ".parquet")):
        raise InvalidInputError(f"`--out` must end in .csv or .parquet, which tells the format; got {out!r}.")
    path = check_out(out, force, inputs)
    advise("; no predictions were written")
    sink = CsvSink if out.lower().endswith(".csv") else ParquetSink
    with reporting(make_reporter(quiet)) as reporter, replacing(path, locked=False) as file:
        rows = predict_tables(model, data, kept, sink, file, on_progress=listener(reporter))
    return output(document({"file": out, "rows": rows}) if as_json else f"{out}: predictions for {rows} rows")


def _to_stdout(model: FittedModel, data: list[str], kept: tuple[str, ...], quiet: bool) -> int:
    from lstd.cli.progress import make_reporter, reporting
    from lstd.errors import LSTDError
    from lstd.tables.predicting import CsvSink, predict_tables

    with reporting(make_reporter(quiet)) as reporter:
        try:
            predict_tables(model, data, kept, CsvSink, sys.stdout.buffer, on_progress=listener(reporter))
        except LSTDError:
            raise
        except OSError as error:  # whatever could not be read has its own error
            return lost_output("the predictions", error)
    return 0
