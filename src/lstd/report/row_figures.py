"""Figures of rows: predictions over time beside returns, and mean return against mean prediction."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.horizon_lstd import HorizonLSTD
from lstd.estimators.return_spread import ReturnSpread
from lstd.estimators.validate_data import checked_features
from lstd.metrics import Calibration
from lstd.report.figure_data import Evaluation, Options, evaluate, half_widths
from lstd.report.model_kinds import OF_STEPS, check_kind
from lstd.report.rendering import share
from lstd.report.style import BLUE, INK, PALE, POINTS, REFERENCE, WIDE, legend_above, name_rows, panels, plain
from lstd.statistics.intervals import Interval, check_level
from lstd.types import Array, FeaturesLike, Flags

_SHADE = "#F3F3F3"
_FOOT = 0.03  # height of the crosses, as a share of the panel's
_FEW_ROWS = 250  # that have a dot each
_ENDS = np.array([-0.01, 0.01])  # of the axis of rows, beyond the rows
_LITTLE_DATA: dict[str, Any] = {
    "label": "little data",
    "marker": "x",
    "color": INK,
    "linestyle": "",
    "markersize": 3.5,
    "markeredgewidth": 0.7,
}


def plot_predictions(
    model: Predictor, X: FeaturesLike, y: ArrayLike, *, ax: Any = None, **data: Unpack[Options]
) -> list[Line2D]:
    """Draw predictions with intervals, and returns, over consecutive rows.

    The rows begin with the first episode that has a scored row and reach over about ten horizons or episodes; at most
    400 of them are drawn. Dots are paler where less of the return was observed. The intervals are those of the value,
    which is an expectation: single returns scatter around it, and most may lie outside.

    Parameters
    ----------
    model : fitted estimator
        A fitted :class:`lstd.LSTD`.
    X, y
        As in :meth:`lstd.LSTD.score`.
    ax : matplotlib.axes.Axes, or array-like of them, optional
        Where to draw: one for each reward that is drawn. By default a new figure, ``artists[0].figure``, outside of
        pyplot.
    episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups, unobserved, tolerance
        Also as in :meth:`lstd.LSTD.score`. This figure does not depend on groups, nor on weights above 0. `X_next`,
        `weight` and `groups` may be left out for a model that was fitted with them.
    level : float in (0, 1), default 0.95
        Level of the intervals. They are left out if there is too little data for them.
    rewards : sequence of str, optional
        Names of the rewards; by default those of the columns of `y`. The first six rewards are drawn.
    time : array-like of shape (T,), optional
        Numbers or dates of the rows, such as ``Trajectories.time``, for the axis.

    Returns
    -------
    list of matplotlib.lines.Line2D
        The predictions of each reward.

    Raises
    ------
    InvalidInputError
        If the model is of another kind, an array breaks the data contract or does not fit the model, or `ax` is not one
        axes for each reward.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_predictions
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> (line,) = plot_predictions(LSTD().fit(X, y, terminated=done), X, y, terminated=done)
    >>> line.axes.get_xlabel()
    'row'
    """
    return draw_predictions(evaluate(model, X, y, **data), ax)


def draw_predictions(evaluation: Evaluation, ax: Any = None) -> list[Line2D]:
    """Draw the figure of :func:`plot_predictions`."""
    interval = evaluation.interval(evaluation.drawn)
    m = evaluation.n_panels
    with panels(ax, WIDE, 0.95 + 2.1 * m, m) as axes:
        named = [_over_time(panel, evaluation, reward, interval) for reward, panel in enumerate(axes)]
        for panel in axes:
            _name_places(panel, evaluation)
        legend_above(axes[0], named[0])
    return [artists[0] for artists in named]


def _over_time(ax: Axes, evaluation: Evaluation, reward: int, interval: Interval | None) -> list[Any]:
    """Draw one reward; returns the artists for a legend, the predictions first."""
    first, end = evaluation.window
    rows = evaluation.drawn
    _shade_episodes(ax, evaluation.episode, first, end)

    is_few = len(rows) <= _FEW_ROWS
    scored = rows[evaluation.weight[rows] > 0.0]
    prediction = evaluation.prediction[rows, reward]
    returns = evaluation.returns[scored, reward]
    alpha = 0.75 * np.clip(1.0 - evaluation.observed.unobserved[scored], 0.2, 1.0)
    size = 5
    marker = ""  # of the line: a point on each row only where there is room
    if is_few:
        size = 9
        marker = "."
    ax.scatter(scored, returns, s=size, color=to_rgba_array(REFERENCE, alpha), linewidths=0, zorder=3)
    dots = Line2D(
        [],
        [],
        color=REFERENCE,
        marker="o",
        linestyle="",
        markersize=4,
        label=f"return, {share(evaluation.share)} observed",
    )
    edge = np.diff(evaluation.episode[rows], prepend=-1, append=-1) != 0  # of an episode: no line goes beyond it
    gaps = np.flatnonzero(edge[1:-1]) + 1
    at, values = np.insert([rows * 1.0, prediction], gaps, np.nan, axis=1)
    (line,) = ax.plot(
        at,
        values,
        color=BLUE,
        linewidth=1.2,
        marker=marker,
        markersize=3,
        zorder=4,
        label="prediction",
    )
    named = [line]
    if len(scored):
        named.append(dots)
    whole = np.concatenate([prediction, returns])
    if interval is not None:
        band, whole = _band(ax, evaluation, interval.at((..., reward)), edge, whole)
        named.insert(1, band)
        little = rows[interval.little_data[:, reward]]
        if len(little):
            named += ax.plot(little, np.full(len(little), _FOOT), transform=ax.get_xaxis_transform(), **_LITTLE_DATA)
    margin = 0.05 * (np.ptp(whole) or abs(whole[0]) or 1.0)
    ax.set(
        ylim=(whole.min() - margin, whole.max() + margin),
        xlim=np.array([first - 0.5, end - 0.5]) + _ENDS * (end - first),
    )
    name = evaluation.rewards[reward]
    if len(evaluation.rewards) > 1:
        ax.set_title(plain(name), fontsize=9.5, pad=3, loc="left")
    label = "discounted return"
    if name != "reward":
        label = f"{plain(name, 24)} to come, discounted"
    ax.set_ylabel(label)
    return named


def _shade_episodes(ax: Axes, episode: NDArray[np.intp], first: int, end: int) -> None:
    """Shade every second episode of some rows."""
    begins = first + 1 + np.flatnonzero(np.diff(episode[first:end]))
    edges = [first, *begins, end]
    for start, stop in list(pairwise(edges))[1::2]:
        ax.axvspan(start - 0.5, stop - 0.5, color=_SHADE, linewidth=0, zorder=0)


def _band(ax: Axes, evaluation: Evaluation, interval: Interval, edge: Flags, whole: Array) -> tuple[Any, Array]:
    """Draw intervals, broken at edges; returns the band, and `whole` with as much of it as leaves that readable."""
    rows = evaluation.drawn
    look: dict[str, Any] = {"color": BLUE, "alpha": 0.25, "zorder": 2}
    ends = np.array([interval.lower, interval.upper])
    at, low, high = np.insert([rows * 1.0, *ends], np.flatnonzero(edge[1:-1]) + 1, np.nan, axis=1)
    label = f"{100 * evaluation.level:g} % interval"
    band = ax.fill_between(at, low, high, linewidth=0, label=label, **look)
    alone = edge[:-1] & edge[1:]  # the only row of its episode has a bar, as its band would have no area
    ax.vlines(rows[alone], *ends[:, alone], linewidth=2.0, **look)
    reach = np.ptp(whole) or 0.05 * abs(whole[0]) or 0.05
    shown = np.clip(ends, whole.min() - reach, whole.max() + reach)
    if (shown != ends).any():
        ax.text(0.995, 0.97, "band cut off", transform=ax.transAxes, ha="right", va="top", fontsize=8, color=REFERENCE)
    return band, np.append(whole, shown)


def _name_places(ax: Axes, evaluation: Evaluation) -> None:
    """Name places on the axis of rows by the ids of episodes, where they begin, and by times; else by row numbers."""
    first, end = evaluation.window
    words = []
    if evaluation.rows.episode is not None:
        words.append("episode")
    if evaluation.time is not None:
        words.append("time")
    label = " and ".join(words) or "row"
    if evaluation.step > 1:
        label += f" (one row in {evaluation.step} is drawn)"
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    if not words:
        return
    places = first + np.flatnonzero(np.diff(evaluation.episode[first:end], prepend=-1))  # where episodes begin
    if len(places) == 1:  # of one episode, rows at equal distances
        places = np.linspace(first, end - 1, 7).round().astype(np.intp)
    apart = [int(places[0])]
    for place in places[1:].tolist():
        if place - apart[-1] >= (end - first) / 9:  # else names would overlap
            apart.append(place)
    names = [_in_short_lines(evaluation.name(place)) for place in apart]
    ax.set_xticks(apart, names)


def _in_short_lines(name: str) -> str:
    """Return the name of a row with each of its lines cut to the room of a tick."""
    return "\n".join(plain(line, 16) for line in name.split("\n"))


def plot_calibration(
    model: Predictor, X: FeaturesLike, y: ArrayLike, *, n_bins: int = 10, ax: Any = None, **data: Unpack[Options]
) -> list[Artist]:
    """Draw the mean return against the mean prediction, by decile of the prediction, with the diagonal.

    Bars are intervals of the mean return. They take groups as independent, or episodes without `groups`; if fewer than
    ten episodes have scored rows, they take blocks of at least two horizons instead. Returns that were cut off are
    completed by the prediction there, corrected by what the figure shows for such predictions: see
    :func:`lstd.metrics.calibration`.

    Parameters
    ----------
    model, X, y, ax, **data
        As in :func:`plot_predictions`, with the same errors. This figure does not depend on `time`, and it depends on
        weights and on `groups`. `X_next`, `weight` and `groups` may be left out for a model that was fitted with them:
        each row then counts alike, and episodes as independent.
    n_bins : int, default 10
        Most bins; see :func:`lstd.metrics.calibration`.

    Returns
    -------
    list of matplotlib.artist.Artist
        The points of each reward, or the words that no return was observed.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_calibration
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> (points,) = plot_calibration(LSTD().fit(X, y, terminated=done), X, y, terminated=done)
    >>> points.axes.get_ylabel()
    'mean return'
    """
    return draw_calibration(evaluate(model, X, y, **data), n_bins, ax)


def draw_calibration(evaluation: Evaluation, n_bins: int = 10, ax: Any = None) -> list[Artist]:
    """Draw the figure of :func:`plot_calibration`."""
    m = evaluation.n_panels
    width = 4.3
    if m > 1:
        width = WIDE
    n_lines = -(-m // 2)
    with panels(ax, width, 4.1 * n_lines, m, min(2, m)) as axes:
        return [_in_bins(panel, evaluation, reward, n_bins) for reward, panel in enumerate(axes)]


def _in_bins(ax: Axes, evaluation: Evaluation, reward: int, n_bins: int) -> Artist:
    """Draw the calibration of one reward."""
    name = plain(evaluation.rewards[reward], 24)
    of = f" of {name}"
    if name == "reward":  # the name of a reward without one
        of = ""
    ax.set_xlabel(f"mean prediction{of}")
    label = f"mean return{of}"
    if evaluation.share != 1.0:
        label += f", {share(evaluation.share)} observed"
    ax.set_ylabel(label)
    if len(evaluation.rewards) > 1:
        ax.set_title(plain(evaluation.rewards[reward]), loc="left")
    if evaluation.calibrates:
        table = evaluation.calibration(reward, n_bins)
        return draw_points(ax, table, half_widths(table, evaluation.level))
    ax.set(xticks=[], yticks=[])
    return ax.text(0.5, 0.5, "no return was observed", transform=ax.transAxes, ha="center", color=REFERENCE)


def draw_points(ax: Axes, table: Calibration, half: NDArray[np.float64]) -> Artist:
    """Draw the bins of a calibration with bars of half a width each, NaN for none, and the diagonal."""
    known = np.isfinite(table.observed)
    predicted = table.predicted[known]
    observed = table.observed[known]
    half = np.nan_to_num(half[known])
    both = np.concatenate([predicted, observed])
    reach = np.ptp(both) or abs(both[0]) or 1.0
    # The bar of a bin with few groups can be many times longer than everything else.
    lower = np.maximum(observed - half, both.min() - reach)
    upper = np.minimum(observed + half, both.max() + reach)
    edges = np.concatenate([both, lower, upper])
    margin = 0.05 * np.ptp(edges)
    if not margin > 0.0:
        margin = 0.5 * reach
    low = edges.min() - margin
    high = edges.max() + margin
    ax.plot([low, high], [low, high], color=REFERENCE, linewidth=0.9, zorder=1)
    bars = None
    if half.any():
        bars = half
    points: Artist = ax.errorbar(predicted, observed, yerr=bars, **POINTS)[0]
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
    return points


def plot_curve(
    model: HorizonLSTD, X: FeaturesLike, *, level: float = 0.95, weights: Any = None, ax: Any = None
) -> list[Line2D]:
    """Draw the sum of rewards over the next 1, 2, …, H steps from rows, with the intervals of these means.

    Parameters
    ----------
    model : fitted HorizonLSTD
    X : array-like, DataFrame or sparse of shape (T, n)
        Rows, of which the first six are drawn.
    level : float in (0, 1), default 0.95
        Level of the intervals, which are left out if the model has none. They are for what the same model would predict
        with unlimited data, not for a single customer.
    weights : array-like of shape (T,), optional
        Draw one curve, of the weighted sum of all rows.
    ax : matplotlib.axes.Axes, or array-like of them, optional
        Where to draw: one for each reward. By default a new figure, ``artists[0].figure``, outside of pyplot.

    Returns
    -------
    list of matplotlib.lines.Line2D
        The curve of each row, for one reward after another.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import HorizonLSTD
    >>> from lstd.report import plot_curve
    >>> model = HorizonLSTD(12).fit(np.tile(np.eye(2), (20, 1)), np.ones(40), episode=np.arange(40) // 4,
    ...     terminated=np.arange(40) % 4 == 3)
    >>> len(plot_curve(model, np.eye(2)))
    2
    """
    check_kind("model", model, OF_STEPS)
    steps = np.arange(1, model.coef_.shape[0] + 1)
    m = len(model.model_.reward_names)
    linear = model.model_.at(steps.tolist())
    rows = X
    if weights is None:
        rows = _safe_indexing(X, slice(6))
    phi = checked_features(model, rows)
    if linear.no_intervals and weights is None:
        bands = [linear.predict(phi)]
    else:
        interval = linear.interval(phi, check_level(level), weights)
        bands = [interval.prediction, interval.lower, interval.upper]
    middle, *ends = (np.reshape(band, (-1, len(steps), m)).swapaxes(0, 1) for band in bands)

    lines = []
    n_rows = middle.shape[1]
    shades: Any = [BLUE]
    if n_rows > 1:
        shades = colormaps["viridis"](np.linspace(0.0, 0.8, n_rows))
    with panels(ax, WIDE, 0.95 + 2.1 * m, m) as axes:
        for reward, panel in enumerate(axes):
            for row, shade in enumerate(shades):
                lines += panel.plot(steps, middle[:, row, reward], color=shade, label=f"row {row}")
                if ends:
                    low = ends[0][:, row, reward]
                    high = ends[1][:, row, reward]
                    panel.fill_between(steps, low, high, color=shade, alpha=0.2, linewidth=0)
            panel.set(xlabel="next steps", ylabel="sum of rewards")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
            if n_rows > 1:
                legend_above(panel, lines[-n_rows:], ncols=6)
    return lines


def plot_spread(
    spread: ReturnSpread,
    X: FeaturesLike,
    *,
    level: float = 0.9,
    labels: Any = None,
    ax: Any = None,
) -> list[Rectangle]:
    """Draw where one return from each row may lie, and inside of it where the mean of many such returns does.

    Parameters
    ----------
    spread : fitted ReturnSpread
        Of one reward.
    X : array-like, DataFrame or sparse of shape (T, n)
        Rows, of which the first twelve are drawn.
    level : float in (0, 1), default 0.9
        Level of both, so that they can be compared. The intervals of the mean are left out if the model has none.
    labels : sequence of str, optional
        Names of the rows, from the top; by default their numbers.
    ax : matplotlib.axes.Axes, optional
        Where to draw. By default a new figure, ``artists[0].figure``, outside of pyplot.

    Returns
    -------
    list of matplotlib.patches.Rectangle
        The range of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.inference import ReturnSpread
    >>> from lstd.report import plot_spread
    >>> X, y, done = np.tile(np.eye(2), (100, 1)), np.random.default_rng(0).random(200), np.ones(200)
    >>> model = LSTD(fit_intercept=False).fit(X, y, terminated=done)
    >>> len(plot_spread(ReturnSpread(model).fit(X, y, terminated=done), np.eye(2)))
    2
    """
    check_kind("spread", spread, (ReturnSpread,))
    rows = _safe_indexing(X, slice(12))
    interval = spread.predict_interval(rows, level)
    if interval.lower.ndim > 1:
        raise InvalidInputError(
            f"`spread` must be of one reward; got {interval.lower.shape[1]}. Fit it to one of them."
        )
    mean = None
    with contextlib.suppress(InvalidInputError):
        mean = spread._mean_interval(rows, check_level(level))
    places = np.arange(len(interval.prediction))
    bars = None
    label = "mean of many such returns"
    if mean is not None:
        bars = np.maximum([interval.prediction - mean.lower, mean.upper - interval.prediction], 0.0)
        label += f": its {level:.0%} interval"
    if labels is None:
        labels = places
    names = [str(name) for name in labels]
    with panels(ax, WIDE, 1.15 + 0.34 * len(places), 1) as (panel,):
        ranges = panel.barh(places, interval.upper - interval.lower, 0.62, interval.lower, color=PALE)
        ranges.set_label(f"one return: {level:.0%} lie in here")
        means = panel.errorbar(
            interval.prediction,
            places,
            xerr=bars,
            fmt="o",
            color=BLUE,
            elinewidth=3.0,
            capsize=0.0,
            zorder=3,
            label=label,
        )
        name_rows(panel, names[: len(places)])
        panel.set_xlabel("return")
        panel.use_sticky_edges = False  # or the axis would end with the first range
        panel.grid(visible=False, axis="y")
        legend_above(panel, [ranges, means])
    return [*ranges]
