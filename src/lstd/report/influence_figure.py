"""Coefficients with their intervals, and the influence of each block of the data on a prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from sklearn.utils.validation import check_is_fitted

from lstd.data.checks import check_integer
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor, check_level
from lstd.estimators.model import Model
from lstd.estimators.summary import coefficient_interval
from lstd.estimators.validation import checked_features
from lstd.report.figure_data import LEVEL
from lstd.report.style import BLUE, REFERENCE, axes_for, plain


def plot_coefficients(
    model: Predictor, *, level: float = LEVEL, reward: int = 0, ax: Axes | None = None
) -> ErrorbarContainer:
    """Draw the coefficient of each feature with its interval, without the intercept.

    Parameters
    ----------
    model : fitted LSTD or LSTDCV
    level : float in (0, 1), default 0.95
        Level of the intervals.
    reward : int, default 0
        Which of several rewards.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    matplotlib.container.ErrorbarContainer

    Raises
    ------
    InvalidInputError
        When the model has no intervals, or an argument breaks a rule.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_coefficients
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> artists = plot_coefficients(LSTD().fit(X, y, terminated=done))
    >>> [label.get_text() for label in artists[0].axes.get_yticklabels()]
    ['x0', 'x1']
    """
    fitted = _fitted(model, reward)
    n, found = fitted.n_features, coefficient_interval(fitted, check_level(level))
    coef, low, high = (a[:n, reward] for a in (found.prediction, found.lower, found.upper))
    bars = np.stack([coef - low, high - coef])
    with axes_for(ax, 4.4, 0.9 + 0.2 * max(2, n)) as panel:
        artists = panel.errorbar(coef, np.arange(n), xerr=bars, fmt="o", color=BLUE, elinewidth=0.9, capsize=2.2)
        panel.axvline(0.0, color=REFERENCE, linewidth=0.9, zorder=1)
        panel.set_yticks(np.arange(n), [plain(name, 26) for name in fitted.feature_names])
        panel.set_ylim(n - 0.4, -0.6)
        panel.set_xlabel(f"coefficient, {100 * level:g} % interval")
    return artists


def plot_blocks(model: Predictor, x: Any, *, reward: int = 0, ax: Axes | None = None) -> BarContainer:
    """Draw how far each block of the data moves a prediction: the squares of the bars sum to its squared error.

    One long bar says that one block, such as one patient or one week, decides the prediction.

    Parameters
    ----------
    x : array-like or DataFrame of shape (1, n)
        Features of the row to predict for.
    model, reward, ax
        As in :func:`plot_coefficients`, with the same errors.

    Returns
    -------
    matplotlib.container.BarContainer

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_blocks
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> len(plot_blocks(LSTD().fit(X, y, terminated=done), [[1.0, 0.0]]))
    20
    """
    fitted = _fitted(model, reward)
    phi = checked_features(model, x)
    if phi.shape[0] != 1:
        raise InvalidInputError(f"`x` must be one row of features, shape (1, {fitted.n_features}); got {phi.shape}.")
    ((_, u, _),) = fitted.influence.along(phi)
    with axes_for(ax, 6.0, 2.8) as panel:
        artists = panel.bar(np.arange(1, u.shape[1] + 1), u[0, :, reward], color=BLUE)
        panel.set(xlabel="block of the data, in order", ylabel="influence on the prediction")
    return artists


def _fitted(model: Predictor, reward: int) -> Model:
    check_is_fitted(model)
    m = model.model_.statistics.n_rewards
    if check_integer("reward", reward, 0) >= m:
        raise InvalidInputError(f"`reward` must be one of the {m} rewards, 0 to {m - 1}; got {reward}.")
    return model.model_
