"""The commands fit, predict, score, inspect and reproduce: values of options in, exit code out."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from lstd.cli.console import (
    BAD_INPUT,
    DONE,
    INSTALL,
    advise,
    closed_output,
    fail,
    fail_with,
    lost_output,
    output,
    reading,
    reporting,
    say,
)
from lstd.cli.given import (
    NEED_HORIZON,
    NOT_WITH_HORIZON,
    FitOptions,
    InspectOptions,
    PredictOptions,
    ReproduceOptions,
    ScoreOptions,
    StepsOptions,
)
from lstd.cli.options import NAMES, OPTIONS, Option, check_out, command, count_of, horizons, names, windows
from lstd.errors import BiasWarning, InvalidInputError, LSTDError, MisfitWarning

if TYPE_CHECKING:
    from pathlib import Path

    from lstd.cli.saved_models import SavedKind
    from lstd.data.roles import Roles
    from lstd.data.settings import Settings, StepsParameters
    from lstd.estimators.horizon_model import HorizonModel
    from lstd.estimators.linear import Linear
    from lstd.estimators.model import Model
    from lstd.tables.first_rows import FirstRows
    from lstd.tables.scoring import Score
    from lstd.tables.table_fit import TableFit

OnProgress: TypeAlias = Callable[[str, float, float], None]  # what is read, the bytes so far and all bytes
TRANSITIONS = "discount importance_ratio trace_coefficient weight"
NEEDED = ("matplotlib", "pyarrow", "jinja2")  # by `lstd reproduce`
AS_IN_FIT = "Default: the column given to fit; '' for none."


def check_package(name: str, package: str) -> None:
    """Raise InvalidInputError if a package that a command needs is not installed."""
    if find_spec(package) is None:
        raise InvalidInputError(f"`lstd {name}` needs the package {package}; install it: {INSTALL}")


def prepare_tables(name: str) -> None:
    """Check that pyarrow is installed, and keep the handlers of signals of `lstd.cli.console` while it reads."""
    check_package(name, "pyarrow")
    from lstd.data.csv_table import keep_signal_handlers

    keep_signal_handlers()


# ------------------------------------------------------------ fit


@command(FitOptions, "data reward gamma out")
def fit(given: FitOptions) -> int:
    """Fit a model of discounted future rewards to tables.

    A table has a row per step, in time order. If an episode did not terminate, only the features of its last row are
    used; the reward there may be missing. Without --episode, an episode ends at a flagged row. Separate names by
    commas; options that take several names may be repeated. With auto, cross-validation chooses a setting from the
    first rows, which take up to a quarter of --memory, and at most 256 MB. The model does not depend on --jobs.
    With --horizon, the model is of the rewards in the next 1, 2, ... N steps.

    Exit codes: 0 done, 1 a file could not be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    prepare_tables("fit")
    from lstd.data.settings import Settings
    from lstd.tables.first_rows import REPORT_ENTRIES, FirstRows

    roles = replace(roles_of(given), prepared=True)
    settings = Settings.with_choice(
        given.gamma,
        given.lmbda,
        given.alpha,
        given.variant,
        not given.no_intercept,
        given.unpenalised,
    )
    page = None
    sample = None
    if given.report is not None:
        page = _check_report(given.report, given.out, given.force, given.data)
        sample = FirstRows(REPORT_ENTRIES, independent=given.independent)
    path = check_out(given.out, given.force, given.data)
    advise("; no model was written")
    is_of_steps = given.first_given(("horizon", *NEED_HORIZON)) is not None
    report = ""
    with reading(given.quiet) as on_progress:
        fit_one = _fit_steps if is_of_steps else _fit
        fitted = fit_one(given, roles, settings, sample, on_progress)
        # Said before it is true, so that an interruption never denies a model that is there.
        advise(f"; {path} may have been written")
        fitted.write(path)
        written = "; the model was written"
        if page is not None:
            written += ", the report was not"
        advise(written)
        if page is not None and sample is not None:
            try:
                report = _write_report(fitted, sample, page, roles)
            except (LSTDError, OSError) as error:
                return fail_with(error, f"The model was written to {path}.")
    shown: dict[str, Any] = {}
    if given.json:
        shown["report"] = None if sample is None else {"file": str(page), "rows": len(sample)}
    elif page is not None:
        shown["report"] = report
    return _describe(str(path), fitted, given.json, shown)


def _fit(
    given: FitOptions, roles: Roles, settings: Settings, sample: FirstRows | None, on_progress: OnProgress
) -> SavedKind:
    """Return a model, and add rows for its page to a sample, if there is to be one."""
    from lstd.cli.saved_models import OfReturns
    from lstd.tables.reader import open_tables
    from lstd.tables.sort_and_impute import prepared

    data, roles, fills = prepared(given.data, roles, given.categories, given.impute)
    if sample is not None:  # its checks, of more rows, replace those after a choice
        warnings.simplefilter("ignore", BiasWarning)
        warnings.simplefilter("ignore", MisfitWarning)
    tables = open_tables(_tables(given, data, roles, given.memory), on_progress)
    fitted = _table_fit(given, roles, settings, on_progress).model(tables, sample)
    if fills and fitted.origin is not None:
        fitted = fitted.described(origin=replace(fitted.origin, fills=fills))
    if sample is not None and sample.rows is not None:
        from lstd.estimators.bias_check import checks_for_report

        fitted = fitted.described(checks=checks_for_report(sample.rows, fitted))
    return OfReturns(fitted)


def _fit_steps(
    given: FitOptions, roles: Roles, settings: Settings, sample: FirstRows | None, on_progress: OnProgress
) -> SavedKind:
    """Return a model of the next steps, and add rows for its page to a sample, if there is to be one."""
    from lstd.cli.saved_models import OfSteps
    from lstd.data.settings import SPREAD
    from lstd.tables.reader import open_tables

    if given.horizon is None:
        if given.no_check:
            raise InvalidInputError("`--no-check` needs `--horizon`. Leave it out.")
        raise InvalidInputError("`--low`, `--high`, `--penalty` and `--age` need `--horizon`.")
    extra = given.first_given(NOT_WITH_HORIZON)
    if extra is not None:
        raise InvalidInputError(f"`--{extra}` must not be given with `--horizon`. Leave it out.")
    tables = open_tables(_tables(given, given.data, roles, given.memory), on_progress)
    parameters: StepsParameters = {
        "low": given.low,
        "high": given.high,
        "penalty": given.penalty or SPREAD,
        "age": given.age,
        "check": not given.no_check,
    }
    fitted = _table_fit(given, roles, settings, on_progress).horizon_model(tables, given.horizon, sample, **parameters)
    return OfSteps(fitted.model_, fitted)


def _table_fit(given: FitOptions, roles: Roles, settings: Settings, on_progress: OnProgress) -> TableFit:
    """Return how the tables are fitted, in threads of this process."""
    from lstd.distributed.runner import Runner
    from lstd.tables.table_fit import TableFit

    return TableFit(
        roles,
        settings,
        Runner(n_jobs=given.jobs),
        memory=given.memory,
        independent=given.independent,
        on_progress=on_progress,
    )


def _describe(path: str, model: SavedKind, json: bool, report: Mapping[str, str] | None = None) -> int:
    """Write what describes a model of either kind, and where its report is; returns the exit code.

    With a `report`, empty if there is none, tables of coefficients are left out.
    """
    if json:
        return output({"file": path, **model.document(path), **(report or {})})
    return output(model.text(path, report))


def roles_of(given: FitOptions) -> Roles:
    """Return the roles of columns; raises InvalidInputError when options contradict one another."""
    from lstd.data.roles import NAMED, Roles

    if given.all_others == bool(given.features):
        raise InvalidInputError("either `--features` with names or `--all-others` must be given, and not both.")
    if given.exclude and not given.all_others:
        raise InvalidInputError("`--exclude` needs `--all-others`.")
    if not given.reward:
        raise InvalidInputError("`--reward` must name a column.")
    columns = {name: value for name, value in vars(given).items() if name in NAMED}  # those that are options
    if given.no_terminated:
        if columns["terminated"] is not None:
            raise InvalidInputError("either `--terminated` or `--no-terminated` may be given, and not both.")
        columns["terminated"] = False
    return Roles.of(
        None if given.all_others else given.features,
        given.reward,
        columns,
        next_features=given.next_features,
        excluded=given.exclude,
    )


def _tables(given: FitOptions | ScoreOptions, data: Sequence[Any], roles: Roles, n_bytes: int) -> Sequence[Any]:
    """Return the tables, sorted if asked for."""
    from lstd.tables.sort_and_impute import sorted_tables

    if given.sort:
        return sorted_tables([*data], roles, n_bytes)
    return data


def _check_report(report: str, out: str, force: bool, inputs: list[str]) -> Path:
    """Check, before any work is done, that the page may be written; returns its path."""
    check_package("fit --report", "matplotlib")
    if os.path.realpath(report) == os.path.realpath(out):
        raise InvalidInputError(f"`--report` must not be the file of the model; got {report!r}; give another.")
    return check_out(report, force, inputs, "--report")


def _write_report(fitted: SavedKind, sample: FirstRows, page: Path, roles: Roles) -> str:
    """Write the page; returns what it is on."""
    from lstd.report.model_page import write_page

    origin = fitted.model.origin
    assert origin is not None
    rows = sample.rows
    assert rows is not None
    columns = rows.arguments
    if roles.doubt_of_ends:
        columns["terminated"] = None
    of_all = ""
    which = "all"
    if sample.is_full:
        of_all = f", the first {len(sample)} of {origin.rows} rows"
        which = f"the first {len(sample)} of"
    with warnings.catch_warnings():  # rows are given without names, and known to be the columns of the model
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        write_page(page, fitted.page(sample, columns, of_all))
    return f"{page}, on {which} {origin.rows} rows"


# ------------------------------------------------------------ predict


@command(
    PredictOptions,
    "model data",
    horizon=Option("Numbers of steps, such as 3,6,12, or windows, 12-24, for a model of them.", "N[,N...]", windows),
    out=Option("A .csv or .parquet file.  [default: CSV to stdout]", "FILE", short="-o"),
    force=Option("Replace FILE if it exists."),
    json=Option("Print the summary as JSON; needs --out."),
)
def predict(given: PredictOptions) -> int:
    """Predict the discounted future rewards of rows.

    With --interval, the columns lower, upper, standard_error and little_data follow each prediction. The interval
    covers what this model would predict with unlimited data, not a single return. Where little_data is true, a few
    episodes decide it, and it is wide, or the fit had no row with a word of this one. With --of return, and a model of
    the next steps, it covers the rewards that a row will bring. With --contributions, at_means is the prediction at the
    means of the features, and adds up to the prediction with a column for each feature; for a model of the next steps
    that has bounds, with by_bounds too, which is what these change. With --out, FILE is written whole or not at all;
    stdout gets rows as they are predicted. For a model of the next steps, the number of steps is part of the names of
    columns.
    Exit codes: 0 done, 1 output could not be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    prepare_tables("predict")
    from lstd.cli.saved_models import read_saved
    from lstd.data.arguments import check_choice
    from lstd.statistics.intervals import OF, RETURN

    out = given.out
    if out is None and given.json:
        raise InvalidInputError("`--json` needs `--out`: without it, stdout has the predictions.")
    model = read_saved(given.model)
    linear = model.linear(given.horizon, given.model)
    misfit = model.misfit
    check_choice("--of", given.of, OF)
    if given.of == RETURN and given.interval is None:
        raise InvalidInputError("`--of` needs `--interval`, the level of the intervals.")
    if given.interval is not None and linear.no_intervals:
        raise InvalidInputError(f"{given.model} has no intervals. {linear.no_intervals}")
    if given.interval is not None and misfit is not None and misfit.dominates and not given.quiet:
        say(f"lstd: {misfit.message}")
    if out is not None:
        rows = _to_file(model, linear, given, _check_table(out, given.force, [given.model, *given.data]))
        if given.json:
            return output({"file": out, "rows": rows})
        return output(f"{out}: predictions for {rows} rows")
    if sys.stdout is None:
        return closed_output("the predictions")
    try:
        _predict(model, linear, given, sys.stdout.buffer)
    except LSTDError:
        raise
    except OSError as error:  # a table that could not be read raises an error of lstd
        return lost_output("the predictions", error)
    return DONE


def _to_file(model: SavedKind, linear: Linear, given: PredictOptions, path: Path) -> int:
    """Write predictions to a file, whole or not at all; returns the number of rows."""
    from lstd.files import replacing

    advise("; no predictions were written")
    with replacing(path) as file:
        return _predict(model, linear, given, file, parquet=path.suffix.lower() == ".parquet")


def _predict(model: SavedKind, linear: Linear, given: PredictOptions, file: IO[bytes], *, parquet: bool = False) -> int:
    """Write predictions to a file; returns the number of rows."""
    from lstd.tables.predicting import csv_sink, parquet_sink, predict_tables
    from lstd.tables.sort_and_impute import prepared_as

    sink = parquet_sink if parquet else csv_sink
    with reading(given.quiet) as on_progress:
        return predict_tables(
            linear,
            prepared_as(model.model, given.data),
            given.id,
            sink,
            file,
            level=given.interval,
            of=given.of,
            contributions=given.contributions,
            on_progress=on_progress,
        )


# ------------------------------------------------------------ score and inspect


@command(
    ScoreOptions,
    "model data",
    horizon=Option("Numbers of steps to compare, such as 3,6,12.", "N[,N...]", horizons),
    reward=Option("Default: the columns given to fit.", NAMES, names, many=True),
    next_features=Option(AS_IN_FIT, NAMES, many=True),
    **{name: Option(AS_IN_FIT, "NAME") for name in f"episode terminated truncated {TRANSITIONS} time".split()},
)
def score(given: ScoreOptions) -> int:
    """Compare predictions with the discounted returns observed in tables.

    Gives R² and the mean squared error. Where an episode was cut off, the prediction there completes the return. With
    --unobserved ipcw, only complete returns count, weighted by the inverse probability that they are complete; with
    drop, they count alike, which is refused if some episodes terminated and others were cut off. Says which share of
    the discounted returns was observed: a small one says little about the model. Of a model of the next steps, the sums
    over --horizon steps are compared. With --backtest, a model with the same settings is fitted to what was known at
    DATE, and its predictions for those active then are compared with the --horizon steps that followed; all rows are
    held in memory. Exit codes: 0 done, 1 output could not be written, 2 bad usage or input, 130 interrupted (143 by
    SIGTERM).
    """
    prepare_tables("score")
    from lstd.cli.saved_models import read_saved
    from lstd.distributed.chunk_sums import MEMORY
    from lstd.tables.sort_and_impute import prepared_as

    model = read_saved(given.model)
    roles = _roles_of_fit(model.model, given)
    if given.backtest is not None:
        return _backtest(model, roles, given)
    model.check_scored(roles, given)
    with reading(given.quiet) as on_progress:
        tables = _tables(given, prepared_as(model.model, given.data), roles, MEMORY)
        scores = model.scores(tables, roles, given, on_progress)
    return _say_scores(given, model.treatment(given), roles.rewards, scores)


def _say_scores(
    given: ScoreOptions, treatment: Mapping[str, str | float], rewards: Sequence[str], scores: dict[int | None, Score]
) -> int:
    """Write scores of each number of steps, or of all that follow, under None; returns the exit code."""
    documents: dict[int | None, dict[str, object]] = {}
    lines = []
    for steps, result in scores.items():
        pairs = [*zip(rewards, result.r2.tolist(), result.mse.tolist(), strict=True)]
        documents[steps] = {
            "rows": result.rows,
            "scored": result.scored,
            "observed_share": result.observed_share,
            "rewards": {reward: {"r2": r2, "mse": mse} for reward, r2, mse in pairs},
        }
        observed = f"observed share of their returns: {100 * result.observed_share:.0f} %"
        begin = ""
        if steps is not None:
            begin = f"{steps} steps: "
        lines.append(f"{begin}{result.scored} of {result.rows} rows scored; {observed}")
        for reward, r2, mse in pairs:
            text = f"{r2:.6g}"
            if math.isnan(r2):
                text = "not defined, since all returns are equal"
            lines.append(f"  {reward}: R² {text}; mean squared error {mse:.6g}")
    if not given.json:
        return output("\n".join(lines))
    about = {"model": given.model, "data": given.data, **treatment}
    return output(about | documents.get(None, {"horizons": documents}))


def _backtest(model: SavedKind, roles: Roles, given: ScoreOptions) -> int:
    """Compare predictions from a cut on with the steps that followed; returns the exit code."""
    from lstd.distributed.chunk_sums import MEMORY
    from lstd.tables.scoring import all_rows, backtest_tables
    from lstd.tables.sort_and_impute import prepared_as
    from lstd.trajectories.joining import parse_times

    steps = model.horizons(given.horizon)
    if roles.time is None or not steps:
        raise InvalidInputError("`--backtest` needs `--time`, and `--horizon` with the number of steps to compare.")
    with reading(given.quiet) as on_progress:
        tables = _tables(given, prepared_as(model.model, given.data), roles, MEMORY)
        rows, times = all_rows(tables, roles, model.model.settings.gamma, on_progress)
        cuts = parse_times("--backtest", given.backtest, times.dtype)
        estimator = model.unfitted(given.model)
        try:
            backtests = [*backtest_tables(estimator, rows, times, roles.rewards, cuts, steps)]
        except InvalidInputError as error:
            raise InvalidInputError(str(error).replace("`cut`", "`--backtest`")) from error
    if given.json:
        at_each = [(reward, one) for reward, latest in backtests for one in (*latest.earlier, latest)]
        documents = [{"reward": reward, **one.document} for reward, one in at_each]
        return output({"model": given.model, "data": given.data, "backtests": documents})
    return output("\n\n".join(f"{reward}: {one}" for reward, one in backtests))


def _roles_of_fit(model: Model | HorizonModel, given: ScoreOptions) -> Roles:
    """Return the roles of columns: those of the fit unless others are given; '' stands for no column."""
    from lstd.data.roles import NAMED, Roles

    if given.reward and len(given.reward) != len(model.reward_names):
        raise InvalidInputError(
            f"`--reward` must name {len(model.reward_names)} columns, one per prediction; got {len(given.reward)}."
        )
    fitted: Mapping[str, Any] = {}
    next_features: Any = ()
    if model.origin is not None:
        fitted = model.origin.columns
        next_features = model.origin.next_features
    if given.next_features is not None:
        next_features = names(given.next_features)
    columns = {}
    for role in NAMED:
        if role == "groups" and not given.backtest:  # scores of rows do not depend on groups
            continue
        name = getattr(given, role, None)
        if name is None:
            name = fitted.get(role)
        columns[role] = name or None
    return Roles.of(
        model.feature_names,
        given.reward or model.reward_names,
        columns,
        next_features=next_features,
    )


@command(InspectOptions, "model")
def inspect(given: InspectOptions) -> int:
    """Show a model: its data, condition and coefficients.

    Exit codes: 0 done, 1 output could not be written, 2 bad usage or input.
    """
    from lstd.cli.saved_models import read_saved

    return _describe(given.model, read_saved(given.model), given.json)


# ------------------------------------------------------------ steps


@command(
    StepsOptions,
    "data episode time step until out",
    episode=Option("Id of the customer, patient or machine.", "NAME"),
    time=Option("Numbers or dates of the events.", "NAME"),
    terminated=Option("1 for an event with which the id ends for good; else 0.", "NAME"),
    age=Option("With --window: name of a last feature, steps since the first event.", "NAME"),
    out=Option("A .csv or .parquet file.", "FILE", short="-o"),
)
def steps(given: StepsOptions) -> int:
    """Turn a log of events, such as purchases, into a table of equal steps, with a row per id and step.

    Steps are counted back from --until, and empty ones have rows too. A row has what was known when its step began:
    n_repeat and repeat_AMOUNT of all events but the first, first_AMOUNT of that one, since_last and since_first; and
    what the step brought: events, or the sums of --amount. With `--first counted`, n_events and total_AMOUNT are of all
    events. With --window, rates take the place of totals: rate, recent and active of the events and of each AMOUNT,
    first_AMOUNT, and recency; with both, all_rate, all_recent and all_active. The last row of an id that has not ended
    has no reward; it is at --until, or where --observed-until says that the id left. `lstd fit` takes the table. All
    events are held in memory.
    Exit codes: 0 done, 1 output could not be written, 2 bad usage or input, 130 interrupted (143 by SIGTERM).
    """
    prepare_tables("steps")
    from lstd.files import replacing
    from lstd.tables.predicting import csv_sink, parquet_sink
    from lstd.trajectories import Trajectories
    from lstd.trajectories.events import write_steps

    path = _check_table(given.out, given.force, given.data)
    data = Trajectories.from_events(
        given.data,
        episode=given.episode,
        time=given.time,
        terminated=given.terminated,
        observed_until=given.observed_until,
        ended=given.ended,
        amount=[*given.amount] or None,
        step=given.step,
        until=given.until,
        start=given.start,
        first=given.first,
        window=given.window,
        mean_at=given.mean_at,
        age=given.age,
    )
    sink = parquet_sink if path.suffix.lower() == ".parquet" else csv_sink
    advise("; no steps were written")
    with replacing(path) as file:
        write_steps(
            data,
            given.episode,
            given.time,
            given.terminated or "terminated",
            given.amount or ("events",),
            file,
            sink,
        )
    counts: dict[str, object] = {
        "rows": len(data),
        "episodes": data.n_episodes,
        "transitions": data.n_transitions,
    }
    text = f"{given.out}: {len(data)} rows of {data.n_episodes} episodes, {data.n_transitions} of them complete steps"
    if data.mean_steps is not None:
        counts["mean_steps"] = dict(data.mean_steps)
        for name, number in data.mean_steps.items():
            if number != given.window:
                text += f"\n{name}: the mean counts as {number:g} steps, which forecasts better in this log"
    if given.json:
        return output({"file": given.out} | counts)
    return output(text)


def _check_table(out: str, force: bool, inputs: Sequence[str]) -> Path:
    """Check that a table may be written; returns its path."""
    if not out.lower().endswith((".csv", ".parquet")):
        raise InvalidInputError(f"`--out` must end in .csv or .parquet, which gives the format; got {out!r}.")
    return check_out(out, force, inputs)


# ------------------------------------------------------------ reproduce


@command(
    ReproduceOptions,
    "",
    out=Option("Results folder.", "DIR", default="lstd-results"),
    jobs=OPTIONS["jobs"]._replace(help="Threads, and processes that draw figures.  [default: all cores]"),
    force=Option("Remove results in DIR and start over."),
    quiet=Option("No progress on stderr."),
)
def reproduce(given: ReproduceOptions) -> int:
    """Reproduce the experiments of Osogami (AAAI-20): figures, tables, data and a report.

    Interrupted at any moment, the same command resumes. Exit codes: 0 done, 1 a step failed or output could not be
    written, 2 bad usage or input, 3 DIR has results of another configuration, 130 interrupted (143 by SIGTERM).
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return fail(f"`lstd reproduce` needs the package {missing[0]}; install it: {INSTALL}", BAD_INPUT)
    from lstd.experiments.protocol import MAX_RUNS, make_plan
    from lstd.experiments.reproduce.run import reproduce as carry_out

    try:
        if not given.out:
            raise InvalidInputError("`--out` must name a folder; got ''.")
        plan = make_plan(given.problem, count_of(given.runs, "--runs", MAX_RUNS))
        arguments = {"problem": given.problem, "runs": plan.runs, "jobs": given.jobs, "force": given.force}
        again = "the same command resumes"
        if given.force:
            again = "the same command without --force resumes"
        advise(f"; what is finished is kept, and {again}")
        with reporting(given.quiet) as display:
            outcome = carry_out(
                plan, given.out, n_jobs=given.jobs, force=given.force, progress=display.show, arguments=arguments
            )
        if given.json:
            return output(outcome.document)
        return output(str(outcome))
    except (LSTDError, OSError) as error:
        return fail_with(error, "What is finished is kept; the same command (without --force) resumes.")
