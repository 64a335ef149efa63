"""The page of a fitted model; its words are in ``templates/model.html``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from matplotlib.artist import Artist
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from lstd.data.returns import ObservedReturns
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.choose_settings import held_out_score
from lstd.estimators.contributions import Contributions
from lstd.estimators.horizon_lstd import HorizonLSTD
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.model_parts import BiasCheck, Checks, MisfitCheck
from lstd.estimators.summary import Summary
from lstd.files import checked_path, replacing
from lstd.metrics import Backtest, Calibration, calibration
from lstd.report.figure_data import LEVEL, MAX_REWARDS, MIN_GROUPS, Evaluation, Options, evaluate, half_widths, names_of
from lstd.report.grid_figure import Grid, grid_of, plot_grid
from lstd.report.model_figures import (
    MAX_NAMED,
    draw_contributions,
    plot_coefficients,
)
from lstd.report.model_kinds import OF_PAGES, ChosenFromGrid, check_kind
from lstd.report.rendering import decimals, render, share
from lstd.report.row_figures import draw_calibration, draw_points, draw_predictions, plot_curve
from lstd.report.style import WIDE, panels, plain, rendered
from lstd.statistics.intervals import FEW, check_level
from lstd.types import Array, FeaturesLike

SECTIONS = {
    "coefficients": "Coefficients",
    "why": "Why this number",
    "model": "What was fitted",
    "rows": "What it is compared with",
    "predictions": "Predictions and returns",
    "calibration": "Calibration",
    "settings": "Choice of λ and α",
    "missing": "What is missing, and why",
}


_MOST_CURVES = 6  # of rows that are still active

SECTIONS_OF_STEPS = {
    "model": "What was fitted",
    "numbers": "Sums of the next steps",
    "curves": "Curves",
    "calibration": "Calibration",
}


def write_fit_report(
    path: str | os.PathLike[str],
    model: Predictor | HorizonLSTD,
    X: FeaturesLike,
    y: ArrayLike,
    *,
    title: str = "LSTD(λ): a fitted model",
    backtest: Backtest | None = None,
    **data: Unpack[Options],
) -> Path:
    """Write a page about a fitted model, in one file that loads nothing else.

    It begins with a verdict, and shows coefficients with intervals, what each feature contributes to the largest
    prediction, predictions with intervals beside returns, calibration by decile, and the error over the grid of (λ, α)
    if they were chosen from the data. R² on held-out rows is that of the choice, or of folds of the rows given. It says
    what is missing, and why.

    Parameters
    ----------
    path : path
        The page to write. A file of that name is replaced, by the whole page or not at all.
    model : fitted estimator
        A fitted :class:`lstd.LSTD`, :class:`lstd.LSTDCV` or :class:`lstd.HorizonLSTD`. Of the latter, the page shows
        curves of rows that are still active, and calibration at a quarter, half and all of its steps.
    X, y, **data
        As in :func:`plot_predictions`: rows to compare the model with, if possible other than those it was fitted to.
        `X_next`, `weight` and `groups` may be left out for a model that was fitted with them.
    title : str, optional
        Heading of the page.
    backtest : Backtest, optional
        What :func:`lstd.metrics.backtest` found for such a model, to be shown too.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InvalidInputError
        If an array breaks the data contract or does not fit the model, or `path` is not a path.
    OutputError
        If the page cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import write_fit_report
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> model = LSTD().fit(X, y, terminated=done)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_fit_report(f"{folder}/fit.html", model, X, y, terminated=done).name
    'fit.html'
    """
    page = checked_path(path)
    check_kind("model", model, OF_PAGES)
    title = str(title)
    if isinstance(model, HorizonLSTD):
        content = steps_page(model, X, y, title, backtest, **data)
    else:
        evaluation = evaluate(model, X, y, warn=False, **data)
        content = model_page(evaluation, title, backtest)
    write_page(page, content)
    return page


def write_page(path: Path, content: str) -> None:
    """Write a page, whole or not at all."""
    with replacing(path) as file:
        file.write(content.encode("utf-8", "backslashreplace"))


def model_page(evaluation: Evaluation, title: str, backtest: Backtest | None = None) -> str:
    """Return the page of a model and the rows that it is compared with."""
    grid, no_grid = _grid(evaluation.model)
    fitted = evaluation.fitted.described(checks=evaluation.checks)
    is_calibrated = evaluation.calibrates
    summary = Summary(fitted, title, evaluation.level)
    held_out = held_out_score(evaluation.rows, fitted)
    interval = evaluation.interval(evaluation.drawn)
    drawn: dict[str, Any] = {
        "why": _why(evaluation),
        "calibration": _calibration(evaluation) if is_calibrated else None,
        "settings": None if grid is None else _settings_figure(evaluation.model),
    }
    missing = fitted.no_intervals or no_grid or not is_calibrated or len(evaluation.rewards) > MAX_REWARDS
    present = drawn | {"missing": missing}
    return render(
        "model.html",
        **drawn,
        title=title,
        evaluation=evaluation,
        backtest=None if backtest is None else str(backtest),
        fitted=fitted,
        sections={name: heading for name, heading in SECTIONS.items() if present.get(name, True)},
        summary=summary,
        facts_of_model=_timeless(summary.facts),
        verdict=_verdict(evaluation, summary, held_out),
        held_out=np.nan if held_out is None else held_out,
        mean_score=evaluation.scores.mean(),
        coefficients=_coefficients(evaluation, summary),
        predictions=_drawing(draw_predictions(evaluation)[0]),
        crosses=interval is not None and bool(interval.little_data.any()),
        grid=grid,
        no_grid=no_grid,
        limits={"rewards": MAX_REWARDS, "groups": MIN_GROUPS, "named": MAX_NAMED, "freedom": FEW},
    )


def _timeless(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out the time of the fit, so that the same data give the same page, and the rewards, which have a table."""
    return {name: fact for name, fact in facts.items() if name not in ("fitted at", "rewards")}


def _verdict(evaluation: Evaluation, summary: Summary, held_out: float | None) -> dict[str, Any]:
    """Say in a sentence how good the model is, and what speaks against it."""
    checks = evaluation.checks
    observed_share = summary.observed_share or evaluation.share
    faults = {
        "it predicts held-out returns no better than one number for all": held_out is not None and held_out <= 0.0,
        "less than half of the returns was observed": observed_share < 0.5,
        **_faults_of(checks),
        "the data cast doubt on its predictions": bool(evaluation.fitted.doubts),
        "it has no intervals": bool(evaluation.fitted.no_intervals),
    }
    score = ""
    if held_out is not None:
        score = f"R² is {decimals(held_out)} on held-out rows. "
    return _said(score, faults, _unchecked(checks, evaluation.fitted.settings.lmbda))


def _faults_of(checks: Checks) -> dict[str, bool]:
    """Return what checks can find, and whether they did."""
    misfit = isinstance(checks.misfit, MisfitCheck) and bool(np.any(checks.misfit.misfit))
    bias = isinstance(checks.bias, BiasCheck) and bool(np.any(checks.bias.biased))
    return {
        "returns depend on the features in ways that it cannot follow (misfit)": misfit,
        "bootstrapping biases its predictions": bias,
    }


def _unchecked(checks: Checks, lmbda: float) -> list[str]:
    """Return the names of the checks that could not run; without bootstrapping there is no bias to look for."""
    unchecked = [name for name, check in vars(checks).items() if isinstance(check, str)]
    if lmbda == 1.0:
        unchecked.remove("bias")
    return unchecked


def _said(score: str, faults: dict[str, bool], unchecked: Sequence[str]) -> dict[str, Any]:
    """Return the verdict of a score, of faults that were found or not, and of what could not be checked."""
    faults_found = [fault for fault, is_found in faults.items() if is_found]
    text = "Nothing was found that speaks against this model"
    if faults_found:
        text = f"Be careful with this model: {'; '.join(faults_found)}"
    elif unchecked:
        text += f", but it could not be checked for {' and '.join(unchecked)}"
    return {"text": f"{score}{text}.", "good": not faults_found}


def _coefficients(evaluation: Evaluation, summary: Summary) -> Iterator[dict[str, Any]]:
    """The table of the coefficients of each reward and, if they have intervals and names on a page, a figure."""
    drawn = not evaluation.fitted.no_intervals and evaluation.fitted.n_features <= MAX_NAMED
    for j, name in enumerate(evaluation.rewards[:MAX_REWARDS]):
        (_, *head), *lines = summary.table(j)
        figure = _drawing(plot_coefficients(evaluation.model, level=evaluation.level, reward=j)[0]) if drawn else {}
        yield {"name": name, "rows": [[name, *head], *lines], "svg": b"", **figure}


def _why(evaluation: Evaluation) -> dict[str, Any] | None:
    """The contributions to the largest prediction for the first reward; None if the means are not known."""
    if evaluation.fitted.limits is None:
        return None
    row = int(np.argmax(evaluation.prediction[:, 0]))
    contributions = Contributions.of(evaluation.fitted.linear, evaluation.rows.X[row : row + 1])
    bars = draw_contributions(evaluation.fitted.linear, contributions, evaluation.level)
    place = f"{'row' if evaluation.rows.episode is None else 'episode'} {evaluation.name(row)}"
    return {"row": place.replace("\n", " at "), "rows": contributions.table(), **_drawing(bars[0])}


def steps_page(
    model: HorizonLSTD,
    X: FeaturesLike,
    y: Any,
    title: str,
    backtest: Backtest | None = None,
    *,
    level: float = LEVEL,
    rewards: Sequence[str] | None = None,
    **data: Any,
) -> str:
    """Return the page of a model of the next steps and the rows that it is compared with."""
    level = check_level(level)
    saved = model.model_
    data.pop("tolerance", None)
    names = names_of(y, saved.reward_names, rewards)
    horizon = saved.stream.horizon
    numbers = []
    tables = {}
    for h in sorted({-(-horizon // 4), -(-horizon // 2), horizon}):
        returns = model.observed_returns(X, y, horizon=h, **data)
        values = model.predict(X, h).reshape(len(y), -1)
        tables[h] = calibration(values[:, 0], returns.of_reward(0), 10, groups=_independent(data, len(y), h))
        for j, name in enumerate(names):
            numbers.append([f"{h}", *_scored(name, values[:, j], returns.of_reward(j))])
    active = np.flatnonzero(returns.unobserved == 1.0)
    if not len(active):
        active = np.arange(len(y))

    total = None
    if not saved.solved.no_intervals:
        total = _curves(model, X, active, names, level, total=True)
    facts = {name: ", ".join(v) if isinstance(v, tuple) else f"{v}" for name, v in saved.facts.items()}
    return render(
        "steps.html",
        curves=_curves(model, X, active[:_MOST_CURVES], names, level),
        total=total,
        title=title,
        sections=SECTIONS_OF_STEPS,
        facts_of_model=_timeless(facts),
        numbers=numbers,
        level=level,
        verdict=_verdict_of_steps(saved, returns, values, backtest),
        horizon=horizon,
        active=len(active),
        first=min(_MOST_CURVES, len(active)),
        rows=len(y),
        episodes=saved.n_episodes,
        reward=names[0],
        calibration=_drawing(_calibrations(tables, level)),
        backtest=None if backtest is None else str(backtest),
    )


def _independent(data: dict[str, Any], n_rows: int, horizon: int) -> Any:
    """Return what counts as independent, for each row: groups, else episodes, else blocks of two horizons."""
    for name in ("groups", "episode"):
        if data.get(name) is not None:
            return data[name]
    return np.arange(n_rows) // (2 * horizon)


def _curves(
    model: HorizonLSTD,
    X: FeaturesLike,
    rows: NDArray[np.intp],
    names: Sequence[str],
    level: float,
    *,
    total: bool = False,
) -> dict[str, Any]:
    """Draw the curves of some rows, or that of their total, with the names of rewards."""
    weights = np.ones(len(rows)) if total else None
    lines: Any = plot_curve(model, _safe_indexing(X, rows), level=level, weights=weights)
    for ax, name in zip(lines[0].figure.axes, names, strict=True):
        ax.set_ylabel(f"sum of {plain(name, 24)}")
    return _drawing(lines[0])


def _verdict_of_steps(
    model: HorizonModel,
    observed: ObservedReturns,
    values: Array,
    backtest: Backtest | None,
) -> dict[str, Any]:
    """Say how good a model of the next steps is, of predictions and returns of all its steps or by a backtest."""
    steps = model.stream.horizon
    r2 = float(observed.scores(values)[0].mean())
    where = "on these rows"
    if backtest is not None:
        steps = backtest.steps
        r2 = backtest.r2
        where = f"in the backtest at {backtest.moment}"
    faults = {
        "it predicts no better than one number for all": r2 <= 0.0,
        "less than half of the sums was observed": observed.share < 0.5,
        **_faults_of(model.known_checks),
        "the data cast doubt on its predictions": bool(model.said),
        "it has no intervals": bool(model.solved.no_intervals),
    }
    score = ""
    if not np.isnan(r2):
        score = f"For the sums of {steps} steps, R² is {decimals(r2)} {where}. "
    return _said(score, faults, _unchecked(model.known_checks, model.solved.lmbda))


def _scored(name: str, values: Array, observed: ObservedReturns) -> list[str]:
    """The name, R², share observed, mean prediction and mean sum of one reward."""
    weight = observed.weight
    if not weight.any():
        weight = np.ones(len(weight))
    mean_prediction = float(np.average(values, weights=weight))
    mean_sum = float(np.average(observed.returns, weights=weight))
    r2 = decimals(observed.scores(values)[0].item())
    return [name, r2, share(observed.share), f"{mean_prediction:.4g}", f"{mean_sum:.4g}"]


def _calibrations(tables: dict[int, Calibration], level: float) -> Artist:
    """Draw calibration for each number of steps."""
    with panels(None, WIDE, 3.1, len(tables), len(tables)) as axes:
        for ax, (h, table) in zip(axes, tables.items(), strict=True):
            points = draw_points(ax, table, half_widths(table, level))
            ax.set(xlabel="mean prediction", ylabel="mean sum")
            ax.set_title(f"{h} steps", loc="left")
    return points


def _settings_figure(model: object) -> dict[str, Any]:
    """Return the figure of the errors over the grid of (λ, α) from which settings were chosen."""
    assert isinstance(model, ChosenFromGrid)
    return _drawing(plot_grid(model.cv_results_, model.lmbda_, model.alpha_)[0])


def _grid(model: object) -> tuple[Grid | None, str]:
    """Return errors over the grid of (λ, α), or why there are none."""
    if not isinstance(model, ChosenFromGrid):
        return None, "both were given, so no others were tried."
    try:
        return grid_of(model.cv_results_, model.lmbda_, model.alpha_), ""
    except InvalidInputError as error:
        return None, str(error)


def _calibration(evaluation: Evaluation) -> dict[str, Any]:
    """The figure, and how many of the bars miss the diagonal."""
    tables = [evaluation.calibration(reward, 10) for reward in range(evaluation.n_panels)]
    half = np.concatenate([half_widths(table, evaluation.level) for table in tables])
    away = np.concatenate([np.abs(table.observed - table.predicted) for table in tables])
    known = np.flatnonzero(np.isfinite(tables[0].observed))
    return {
        "ends": [(tables[0].predicted[i], tables[0].observed[i]) for i in known[[0, -1]]],
        "bins": len(known),
        "bars": int(np.isfinite(half).sum()),
        "missed": int((away > half).sum()),
        **_drawing(draw_calibration(evaluation)[0]),
    }


def _drawing(artist: Any) -> dict[str, Any]:
    """Render the figure of an artist."""
    return {"svg": rendered(artist.figure), "inches": artist.figure.get_figwidth()}
