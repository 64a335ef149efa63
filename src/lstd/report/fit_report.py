"""The page of a fit: what was fitted, how it compares with observed returns, what was not drawn and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from lstd.data.returns import TOLERANCE
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.metrics import effective_degrees_of_freedom
from lstd.io.files import checked_path, replacing
from lstd.report import fit_captions as captions
from lstd.report import markup
from lstd.report.fit_data import LEVEL, MOST_REWARDS, Evaluation, evaluate, half_widths
from lstd.report.fit_figures import draw_calibration, draw_predictions
from lstd.report.fit_settings import Grid, draw_degrees_of_freedom, draw_grid, feature_names, flagged_features, grid_of
from lstd.report.frame import framed
from lstd.report.numbers import grouped
from lstd.report.style import svg_of

Section = tuple[str, list[str]]

TITLE = "LSTD(λ): a fit"


def write_fit_report(
    path: str | os.PathLike[str],
    model: Predictor,
    X: Any,
    y: ArrayLike,
    *,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    discount: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
    rewards: Sequence[str] | None = None,
    title: str = TITLE,
) -> Path:
    """Write one self-contained page about a fitted model, compared with the returns of rows.

    It shows predictions with intervals beside observed returns, calibration by decile, the error over the grid of
    (λ, α) where they were chosen from the data, and effective degrees of freedom of each feature; and it says what
    could not be drawn, and why.

    Parameters
    ----------
    path : path
        The page to write. It appears whole or not at all; what is there is replaced.
    model : fitted estimator
        A fitted :class:`lstd.LSTD`, or one that has chosen its settings, with `cv_results_`, `lmbda_` and `alpha_`.
    X, y, episode, terminated, discount, tolerance
        As in :meth:`lstd.LSTD.score`: the rows that the model was fitted to, or better others.
    level : float in (0, 1), default 0.95
        Of the intervals.
    rewards : sequence of str, optional
        Names of the rewards; those of the columns of `y` where it has names.
    title : str, optional
        Heading of the page.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InvalidInputError
        When an array breaks the data contract or does not fit the model, or `path` is none.
    OutputError
        When the page cannot be written.

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
    found = evaluate(
        model, X, y, episode=episode, terminated=terminated, discount=discount, tolerance=tolerance, level=level,
        rewards=rewards, warn=False,
    )  # fmt: skip
    content = fit_page(found, str(title)).encode("utf-8", "backslashreplace")
    with replacing(page, locked=False) as file:
        file.write(content)
    return page


def fit_page(found: Evaluation, title: str = TITLE) -> str:
    """The whole page as text."""
    grid, no_grid = _grid(found)
    sections: dict[str, Section] = {"model": ("What was fitted", [_facts(found)])}
    sections["predictions"] = ("Predictions and observed returns", [_predictions(found)])
    if found.observed.counts.any():
        sections["calibration"] = ("Calibration", _calibration(found))
    if grid is not None:
        sections["settings"] = ("Choice of λ and α", [_settings(found, grid)])
    sections["features"] = ("Effective degrees of freedom", [_features(found)])
    missing = [*captions.not_drawn(found), *no_grid]
    if missing:
        sections["missing"] = ("Not drawn, and why", [markup.items(missing)])
    header = [markup.paragraph(captions.introduction(found), "muted"), markup.definitions(captions.summary(found))]
    return framed(title, header, sections)


def _grid(found: Evaluation) -> tuple[Grid | None, list[str]]:
    """Errors over the grid of (λ, α), or why there are none."""
    model: Any = found.model
    if not hasattr(model, "cv_results_"):
        return None, ["Error over a grid of (λ, α): both were given, none was tried."]
    try:
        return grid_of(model.cv_results_, model.lmbda_, model.alpha_), []
    except InvalidInputError as error:
        return None, [f"Error over the grid of (λ, α): {error}"]


def _facts(found: Evaluation) -> str:
    rows = list(captions.facts(found).items())
    return markup.table(("", ""), rows, n_labels=2, css="facts")


def _predictions(found: Evaluation) -> str:
    drawn = draw_predictions(found)
    words = captions.predictions(found)
    return _picture(drawn, "figure-predictions", words, captions.predictions_alternative(found))


def _calibration(found: Evaluation) -> list[str]:
    m = min(MOST_REWARDS, len(found.rewards))
    tables = [found.calibration(reward, 10) for reward in range(m)]
    words = captions.calibration(found, tables)
    parts = [_picture(draw_calibration(found), "figure-calibration", words, captions.calibration_alternative(tables))]
    header = ("mean prediction", "mean observed return", "± half interval", "rows", found.group_name)
    for name, table in zip(found.rewards, tables, strict=False):
        half = half_widths(table, found.level)
        columns = (table.predicted, table.observed, half)
        rows = [
            (*(f"{column[i]:.4g}".replace("nan", "–") for column in columns), *map(grouped, counts))
            for i, counts in enumerate(zip(table.count, table.n_groups, strict=True))
        ]
        label = "Calibration in numbers" + (f": {name}" if m > 1 else "")
        body = markup.scroll(markup.table(header, rows, n_labels=0), label)
        parts.append(f"<details><summary>{markup.text(label)}</summary>{body}</details>")
    return parts


def _settings(found: Evaluation, grid: Grid) -> str:
    return _picture(draw_grid(grid), "figure-settings", captions.grid(grid), captions.grid_alternative(grid))


def _features(found: Evaluation) -> str:
    values = effective_degrees_of_freedom(found.model)
    names, flagged = feature_names(found.model), flagged_features(found.model)
    words = captions.features(found, values, names, flagged)
    drawn = draw_degrees_of_freedom(values, names, flagged)
    return _picture(drawn, "figure-features", words, captions.features_alternative(values))


def _picture(drawn: Any, identifier: str, caption: str, alternative: str) -> str:
    return markup.picture(svg_of(drawn), identifier, caption, alternative, drawn.get_figwidth())
