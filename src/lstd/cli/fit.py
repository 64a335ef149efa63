"""The command ``lstd fit``: arguments in, exit code out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lstd.cli import options
from lstd.cli.console import fail_with, output
from lstd.cli.interruption import advise
from lstd.cli.options import (
    NAMES,
    bytes_of,
    check_out,
    check_packages,
    jobs_of,
    names,
    prepare_tables,
    reading,
    sorted_files,
)
from lstd.errors import BiasWarning, InvalidInputError, LSTDError, MisfitWarning

if TYPE_CHECKING:
    from pathlib import Path

    from lstd.estimators.model import Model
    from lstd.tables.column_roles import Roles
    from lstd.tables.first_rows import Sample


def fit(
    data: options.Data,
    reward: Annotated[list[str], typer.Option(metavar=NAMES, help="Reward received on leaving the row.")],
    gamma: options.Gamma,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write the model to.")],
    features: options.Features = None,
    all_others: options.AllOthers = False,
    exclude: options.Exclude = None,
    episode: options.Episode = None,
    terminated: options.Terminated = None,
    truncated: options.Truncated = None,
    groups: Annotated[
        str | None, typer.Option(metavar="NAME", help="Id of the group of the episode, such as a patient.")
    ] = None,
    discount: options.Discount = None,
    importance_ratio: options.Ratio = None,
    trace_coefficient: options.Coefficient = None,
    weight: options.Weight = None,
    next_features: options.NextFeatures = None,
    time: options.Time = None,
    sort: options.Sort = False,
    lmbda: Annotated[
        str,
        typer.Option(
            metavar="NUMBER|auto", help="Trace decay, in [0, 1]; auto: chosen by cross-validation.", show_default=True
        ),
    ] = "0.9",
    alpha: Annotated[
        str,
        typer.Option(
            metavar="NUMBER|auto", help="Ridge coefficient; auto: chosen by cross-validation.", show_default=True
        ),
    ] = "1",
    unpenalised: options.Unpenalised = None,
    variant: options.Variant = "boyan",
    no_intercept: options.NoIntercept = False,
    independent: Annotated[
        bool, typer.Option("--independent", help="Each file begins a new episode; files may reuse ids.")
    ] = False,
    jobs: Annotated[
        str | None, typer.Option(metavar="N", help="Threads.  [default: all cores]", show_default=False)
    ] = None,
    memory: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Most memory for data and sums, such as 512MB or 2GB.", show_default=True),
    ] = "512MB",
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help="HTML file for a report with figures.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Fit a model of discounted future rewards to tables.

    A table has a row per step, in time order. If an episode did not terminate, only the features of its last row are
    used; the reward there may be missing. Without --episode, an episode ends at a flagged row. Separate names by
    commas; options that take several names may be repeated. With auto, cross-validation chooses a setting from the
    first rows, which take up to a quarter of --memory, and at most 256 MB. The model does not depend on --jobs.

    Exit codes: 0 done, 1 a file could not be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    prepare_tables("fit")
    from lstd.cli.describe import fit_json, fit_text
    from lstd.data.settings import Settings
    from lstd.estimators.saving import write_model
    from lstd.tables.fit_stream import SAMPLE_ENTRIES, fit_stream

    roles = roles_of(
        features, all_others, names(reward), names(exclude), next_features=names(next_features), episode=episode,
        terminated=terminated, truncated=truncated, groups=groups, discount=discount, time=time,
        importance_ratio=importance_ratio, trace_coefficient=trace_coefficient, weight=weight,
    )  # fmt: skip
    numbers = gamma, number("lmbda", lmbda), number("alpha", alpha)
    settings = Settings.with_choice(*numbers, variant, not no_intercept, names(unpenalised))
    n_jobs, n_bytes = jobs_of(jobs), bytes_of(memory)
    page = None if report is None else _check_report(report, out, force, data)
    path = check_out(out, force, data)
    advise("; no model was written")
    with reading(quiet) as on_progress, _checked_once(page):
        tables = sorted_files(data, roles, sort, n_bytes)
        fitted, sample = fit_stream(
            tables, roles, settings, n_jobs=n_jobs, memory=n_bytes, independent=independent,
            sample_entries=0 if page is None else SAMPLE_ENTRIES, on_progress=on_progress,
        )  # fmt: skip
        if sample is not None:
            from lstd.estimators.run_checks import checks_for_report

            fitted = fitted.with_checks(checks_for_report(sample.checked(fitted.settings.gamma), fitted))
        # Said before it is true, so that an interruption never denies a model that is there.
        advise(f"; {path} may have been written")
        write_model(fitted, path)
        advise("; the model was written")
        if page is not None and sample is not None:
            advise("; the model was written, the report was not")
            try:
                _write_report(fitted, sample, page)
            except (LSTDError, OSError) as error:
                return fail_with(error, f"The model was written to {path}.")
    return output((fit_json if as_json else fit_text)(fitted, sample, str(path), page))


def roles_of(
    features: list[str] | None, all_others: bool, rewards: tuple[str, ...], excluded: tuple[str, ...], **named: Any
) -> Roles:
    """Return the roles of columns; raises InvalidInputError when options contradict one another."""
    from lstd.tables.column_roles import Roles

    if all_others == bool(features):
        raise InvalidInputError("either `--features` with names or `--all-others` must be given, and not both.")
    if excluded and not all_others:
        raise InvalidInputError("`--exclude` needs `--all-others`.")
    if not rewards:
        raise InvalidInputError("`--reward` must name a column.")
    return Roles(None if all_others else names(features), rewards, excluded=excluded, **named)


def number(name: str, text: str) -> float | str:
    """Parse the value of an option: a number or auto."""
    from lstd.data.settings import AUTO

    if text == AUTO:
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"`--{name}` must be a number or {AUTO}; got {text!r}.") from error


def _check_report(report: str, out: str, force: bool, inputs: list[str]) -> Path:
    """Check, before any work is done, that the page may be written; returns its path."""

    check_packages("fit --report", "matplotlib")
    if os.path.realpath(report) == os.path.realpath(out):
        raise InvalidInputError(f"`--report` must not be the file of the model; got {report!r}; give another.")
    return check_out(report, force, inputs, "--report")


@contextmanager
def _checked_once(page: Path | None) -> Iterator[None]:
    """Give no warnings of the checks after a choice if the checks for a report, of more rows, replace them."""
    with warnings.catch_warnings():
        for given in (BiasWarning, MisfitWarning) if page is not None else ():
            warnings.simplefilter("ignore", given)
        yield


def _write_report(model: Model, sample: Sample, page: Path) -> None:
    from lstd.estimators.lstd_cv import estimator_of
    from lstd.report.figure_data import evaluate
    from lstd.report.model_page import write_page

    origin = model.origin
    assert origin is not None
    columns: dict[str, Any] = dict(sample.columns)
    if "episode" in origin.columns and "terminated" not in origin.columns and not origin.next_features:
        columns["terminated"] = None
    of_all = f", the first {len(sample)} of {origin.rows} rows" if sample.is_full else ""
    with warnings.catch_warnings():  # rows are given without names, and known to be the columns of the model
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        evaluation = evaluate(estimator_of(model), **columns, rewards=model.reward_names, warn=False)
        evaluation = replace(evaluation, checked=model.checks)  # on the same rows
        write_page(page, evaluation, f"LSTD(λ) for {', '.join(origin.files)}{of_all}")
