"""How often actions were logged, against the probabilities of the policy that logged them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from numpy.typing import ArrayLike
from scipy import stats

from lstd.ope.action_calibration import action_calibration
from lstd.report.calibration_figure import draw_points
from lstd.report.style import BLUE, REFERENCE, axes_for


def plot_action_calibration(
    actions: ArrayLike, behavior_probability: ArrayLike, *, n_bins: int = 10, labels: Any = None, level: float = 0.95,
    ax: Any = None,
) -> list[Artist]:  # fmt: skip
    """Draw how often actions were taken against their probabilities, with the diagonal.

    With probabilities of all actions, there is a point for each bin of each action.
    With probabilities of logged actions only, one point per action shows the mean over all rows of 1 / probability
    where the action was taken, and 0 elsewhere. That should be 1 if the action is possible in every row. It is below 1
    if it is not, and above only by chance.

    Parameters
    ----------
    actions, behavior_probability, n_bins, labels
        As in :func:`lstd.ope.action_calibration`, with the same errors and warnings.
    level : float in (0, 1), default 0.95
        Level of the bars.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; by default, those of a new figure.

    Returns
    -------
    list of matplotlib.artist.Artist
        The points.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.report import plot_action_calibration
    >>> (points,) = plot_action_calibration(np.array([0, 1, 1, 1] * 50), np.full((200, 2), [0.25, 0.75]))
    >>> points.axes.get_ylabel()
    'share of rows with the action'
    """
    table = action_calibration(actions, behavior_probability, n_bins, labels=labels)
    half = table.standard_error * stats.norm.ppf(0.5 + 0.5 * level)
    with axes_for(ax, 4.3, 4.1) as panel:
        if np.ndim(behavior_probability) == 2:
            panel.set(xlabel="probability of the action", ylabel="share of rows with the action")
            return [draw_points(panel, table, half)]
        names = np.unique(np.asarray(actions)) if labels is None else labels
        panel.axhline(1.0, color=REFERENCE, linewidth=0.9, zorder=1)
        places = np.arange(len(names))
        points: Artist = panel.errorbar(
            places, table.observed, yerr=half, fmt="o", color=BLUE, markersize=4.2, elinewidth=0.9, capsize=2.2,
            zorder=3,
        )[0]  # fmt: skip
        panel.set(xlabel="action", ylabel="mean of 1 / probability where taken", ylim=(0.0, None))
        if len(names) <= 30:
            panel.set_xticks(places, [str(name) for name in names])
        return [points]
