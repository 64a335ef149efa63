"""The command ``lstd predict``: arguments in, exit code out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lstd.cli import options
from lstd.cli.console import DONE, closed_output, lost_output, output, say
from lstd.cli.interruption import advise
from lstd.cli.options import check_out, names, prepare_tables, reading
from lstd.errors import InvalidInputError, LSTDError

if TYPE_CHECKING:
    from pathlib import Path

    from lstd.estimators.model import Model


def predict(
    model: options.ModelFile,
    data: options.Data,
    keep: options.Kept = None,
    interval: Annotated[
        float | None,
        typer.Option(metavar="LEVEL", help="Add intervals of this level, such as 0.95.", show_default=False),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file.  [default: CSV to stdout]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON; needs --out.")] = False,
    quiet: options.Quiet = False,
) -> int:
    """Predict the discounted future rewards of rows.

    With --interval, the columns lower, upper, standard_error and little_data follow each prediction. The interval
    covers what this model would predict with unlimited data, not a single return. Where little_data is true, a few
    episodes decide it, and it is wide. With --out, FILE is written whole or not at all; stdout gets rows as they are
    predicted.
    Exit codes: 0 done, 1 output could not be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    prepare_tables("predict")
    from lstd.cli.describe import document
    from lstd.estimators.saving import read_model
    from lstd.statistics.intervals import check_level

    if out is None and as_json:
        raise InvalidInputError("`--json` needs `--out`: without it, stdout has the predictions.")
    interval = None if interval is None else check_level(interval, "--interval")
    loaded = read_model(model)
    if interval is not None and loaded.no_intervals:
        raise InvalidInputError(f"{model} has no intervals. {loaded.no_intervals}")
    if interval is not None and loaded.misfit is not None and loaded.misfit.dominates and not quiet:
        say(f"lstd: {loaded.misfit.message}")
    if out is None:
        return _to_stdout(loaded, data, names(keep), interval, quiet)
    if not out.lower().endswith((".csv", ".parquet")):
        raise InvalidInputError(f"`--out` must end in .csv or .parquet, which gives the format; got {out!r}.")
    path = check_out(out, force, [model, *data])
    rows = _to_file(loaded, data, names(keep), interval, path, quiet)
    return output(document({"file": out, "rows": rows}) if as_json else f"{out}: predictions for {rows} rows")


def _to_file(model: Model, data: list[str], kept: tuple[str, ...], level: float | None, path: Path, quiet: bool) -> int:
    from lstd.files import replacing
    from lstd.tables.predicting import CsvSink, ParquetSink, predict_tables

    advise("; no predictions were written")
    sink = CsvSink if path.suffix.lower() == ".csv" else ParquetSink
    with reading(quiet) as on_progress, replacing(path, locked=False) as file:
        return predict_tables(model, data, kept, sink, file, level=level, on_progress=on_progress)


def _to_stdout(model: Model, data: list[str], kept: tuple[str, ...], level: float | None, quiet: bool) -> int:
    from lstd.tables.predicting import CsvSink, predict_tables

    if sys.stdout is None:
        return closed_output("the predictions")
    with reading(quiet) as on_progress:
        try:
            predict_tables(model, data, kept, CsvSink, sys.stdout.buffer, level=level, on_progress=on_progress)
        except LSTDError:
            raise
        except OSError as error:  # a table that could not be read raises an error of lstd
            return lost_output("the predictions", error)
    return DONE
