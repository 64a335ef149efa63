"""The influence of each block of the data on a prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer

from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.validate_data import checked_features
from lstd.report.figure_data import fitted_with
from lstd.report.style import BLUE, axes_for


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
    fitted = fitted_with(model, reward)
    phi = checked_features(model, x)
    if phi.shape[0] != 1:
        raise InvalidInputError(f"`x` must be one row of features, shape (1, {fitted.n_features}); got {phi.shape}.")
    ((_, u, _),) = fitted.influence.along(phi)
    with axes_for(ax, 6.0, 2.8) as panel:
        artists = panel.bar(np.arange(1, u.shape[1] + 1), u[0, :, reward], color=BLUE)
        panel.set(xlabel="block of the data, in order", ylabel="influence on the prediction")
    return artists
