"""The page of a fit: what was fitted, how it compares with observed returns, what was not drawn and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from lstd.data.returns import TOLERANCE
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.metrics import effective_degrees_of_freedom
from lstd.io.files import checked_path, replacing
from lstd.report import fit_captions as captions
from lstd.report.fit_data import LEVEL, MOST_REWARDS, Evaluation, evaluate, half_widths
from lstd.report.fit_figures import draw_calibration, draw_predictions
from lstd.report.fit_settings import Grid, draw_degrees_of_freedom, draw_grid, feature_names, flagged_features, grid_of
from lstd.report.numbers import grouped
from lstd.report.rendering import render
from lstd.report.style import svg_of

TITLE = "LSTD(λ): a fit"
SECTIONS = {
    "model": "What was fitted",
    "predictions": "Predictions and observed returns",
    "calibration": "Calibration",
    "settings": "Choice of λ and α",
    "features": "Effective degrees of freedom",
    "missing": "Not drawn, and why",
}


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
    """Render the page."""
    grid, no_grid = _grid(found)
    missing = [*captions.not_drawn(found), *no_grid]
    present = {
        "calibration": bool(found.observed.counts.any()),
        "settings": grid is not None,
        "missing": bool(missing),
    }
    return render(
        "model.html",
        title=title,
        sections={name: heading for name, heading in SECTIONS.items() if present.get(name, True)},
        introduction=captions.introduction(found),
        summary=captions.summary(found),
        facts=captions.facts(found),
        predictions=_picture(
            draw_predictions(found), captions.predictions(found), captions.predictions_alternative(found)
        ),
        calibration=_calibration(found) if present["calibration"] else None,
        settings=grid and _picture(draw_grid(grid), captions.grid(grid), captions.grid_alternative(grid)),
        features=_features(found),
        missing=missing,
    )


def _grid(found: Evaluation) -> tuple[Grid | None, list[str]]:
    """Errors over the grid of (λ, α), or why there are none."""
    model: Any = found.model
    if not hasattr(model, "cv_results_"):
        return None, ["Error over a grid of (λ, α): both were given, none was tried."]
    try:
        return grid_of(model.cv_results_, model.lmbda_, model.alpha_), []
    except InvalidInputError as error:
        return None, [f"Error over the grid of (λ, α): {error}"]


def _calibration(found: Evaluation) -> dict[str, Any]:
    m = min(MOST_REWARDS, len(found.rewards))
    tables = [found.calibration(reward, 10) for reward in range(m)]
    picture = _picture(
        draw_calibration(found), captions.calibration(found, tables), captions.calibration_alternative(tables)
    )
    header = ("mean prediction", "mean observed return", "± half interval", "rows", found.group_name)
    numbers = {}
    for name, table in zip(found.rewards, tables, strict=False):
        columns = (table.predicted, table.observed, half_widths(table, found.level))
        numbers["Calibration in numbers" + (f": {name}" if m > 1 else "")] = [
            (*(f"{column[i]:.4g}".replace("nan", "–") for column in columns), *map(grouped, counts))
            for i, counts in enumerate(zip(table.count, table.n_groups, strict=True))
        ]
    return picture | {"header": header, "numbers": numbers}


def _features(found: Evaluation) -> dict[str, Any]:
    values = effective_degrees_of_freedom(found.model)
    names, flagged = feature_names(found.model), flagged_features(found.model)
    words = captions.features(found, values, names, flagged)
    return _picture(draw_degrees_of_freedom(values, names, flagged), words, captions.features_alternative(values))


def _picture(drawn: Figure, caption: str, alternative: str) -> dict[str, Any]:
    return {"svg": svg_of(drawn), "inches": drawn.get_figwidth(), "caption": caption, "alternative": alternative}
