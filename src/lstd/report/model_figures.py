"""Figures without rows: coefficients, degrees of freedom, influence of blocks, values of policies, logged actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from lstd.data.arguments import check_integer
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.contributions import Contributions
from lstd.estimators.linear import Linear
from lstd.estimators.validate_data import checked_features
from lstd.ope.action_calibration import action_calibration
from lstd.ope.logged_rows import LoggedRows
from lstd.ope.policy_comparison import PolicyComparison
from lstd.ope.policy_value import PolicyValue
from lstd.ope.step_ratios import step_ratios
from lstd.report.figure_data import LEVEL
from lstd.report.model_kinds import OF_RETURNS, check_kind
from lstd.report.row_figures import draw_points
from lstd.report.style import BLUE, POINTS, REFERENCE, WIDE, name_rows, panels
from lstd.statistics.intervals import check_level
from lstd.types import Array, FeaturesLike

MAX_NAMED = 40  # features that have a line and a name each
_MAX_BARS = 20


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
        When the model is of another kind or has no intervals, or an argument breaks a rule.

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
    linear = linear_with(model, reward)
    n = linear.n_features
    interval = linear.interval_of_weights(check_level(level)).at((slice(n), reward))
    with panels(ax, 4.4, 0.9 + 0.2 * max(2, n)) as (panel,):
        panel.set_xlabel(f"coefficient, {100 * level:g} % interval")
        return _named_intervals(
            panel, linear.feature_names, interval.prediction, interval.lower, interval.upper, at=0.0
        )


def _named_intervals(
    ax: Axes,
    names: Sequence[str],
    values: Array,
    low: Array,
    high: Array,
    *,
    at: float | None,
    **look: Any,
) -> ErrorbarContainer:
    """Draw values with intervals, one below the other with its name, and a line `at` a value."""
    name_rows(ax, names)
    if at is not None:
        ax.axvline(at, color=REFERENCE, linewidth=0.9, zorder=1)
    return ax.errorbar(values, np.arange(len(names)), xerr=[values - low, high - values], **POINTS, **look)


def plot_contributions(
    model: Predictor, x: FeaturesLike, *, level: float = LEVEL, reward: int = 0, ax: Axes | None = None
) -> BarContainer:
    """Draw what each feature contributes to the prediction for one row, the largest contribution on top.

    With the prediction at the mean of every feature, the bars add up to the prediction. Their intervals take the means
    as given. Of more than 20 features, those with the smallest contributions are one bar.

    Parameters
    ----------
    x : array-like or DataFrame of shape (1, n)
        Features of the row.
    model, level, reward, ax
        As in :func:`plot_coefficients`, with the same errors but for models without intervals, whose bars have none;
        see :meth:`lstd.LSTD.contributions`.

    Returns
    -------
    matplotlib.container.BarContainer

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.report import plot_contributions
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> len(plot_contributions(LSTD().fit(X, y, terminated=done), [[1.0, 0.0]]))
    2
    """
    linear = linear_with(model, reward)
    contributions = model.contributions(x)
    _check_one_row(contributions.x.shape, linear.n_features)
    return draw_contributions(linear, contributions, check_level(level), reward, ax)


def draw_contributions(
    linear: Linear, contributions: Contributions, level: float, reward: int = 0, ax: Axes | None = None
) -> BarContainer:
    """Draw the figure of :func:`plot_contributions`."""
    values = np.atleast_2d(contributions.values[0])[reward]
    half = np.zeros(len(contributions.names))  # widths of intervals
    if not linear.no_intervals:
        of_coef = linear.interval_of_weights(level).at((slice(len(values)), reward))
        half = np.abs(contributions.x - contributions.means)[0] * (of_coef.upper - of_coef.prediction)
    order = np.argsort(-np.abs(values), kind="stable")
    shown = order[:_MAX_BARS]
    rest = order[_MAX_BARS:]
    names = [f"{contributions.names[j]} = {contributions.x[0, j]:.4g}" for j in shown]
    lengths = values[shown]
    halves = half[shown]
    if len(rest):
        names.append(f"{len(rest)} more")
        lengths = np.append(lengths, values[rest].sum())
        halves = np.append(halves, 0.0)
    base = float(np.ravel(contributions.base)[reward])
    bars = None
    if halves.any():
        bars = halves
    with panels(ax, 6.0, 1.1 + 0.24 * max(2, len(names))) as (panel,):
        artists = panel.barh(
            np.arange(len(names)),
            lengths,
            xerr=bars,
            color=BLUE,
            height=0.7,
            error_kw={"elinewidth": 0.9, "capsize": 2.2},
        )
        panel.axvline(0.0, color=REFERENCE, linewidth=0.9, zorder=1)
        name_rows(panel, names)
        panel.grid(False, axis="y")
        panel.set_xlabel(f"contribution: {base:.4g} at the means, {base + values.sum():.4g} for this row")
    return artists


def linear_with(model: Predictor, reward: int) -> Linear:
    """Return the fitted function of a model.

    Raises InvalidInputError for a model of another kind, or without a reward of that number.
    """
    check_kind("model", model, OF_RETURNS)
    check_is_fitted(model)
    linear = model.model_.linear
    m = len(linear.rewards)
    if check_integer("reward", reward, 0) >= m:
        raise InvalidInputError(f"`reward` must be one of the {m} rewards, 0 to {m - 1}; got {reward}.")
    return linear


def _check_one_row(shape: tuple[int, ...], n: int) -> None:
    """Refuse several rows of n features."""
    if shape[0] != 1:
        raise InvalidInputError(f"`x` must be one row of features, shape (1, {n}); got {shape}.")


def plot_blocks(model: Predictor, x: FeaturesLike, *, reward: int = 0, ax: Axes | None = None) -> BarContainer:
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
    linear = linear_with(model, reward)
    phi = checked_features(model, x)
    _check_one_row(phi.shape, linear.n_features)
    ((_, u, _),) = linear.influence.along(phi)
    with panels(ax, 6.0, 2.8) as (panel,):
        artists = panel.bar(np.arange(1, u.shape[1] + 1), u[0, :, reward], color=BLUE)
        panel.set(xlabel="block of the data, in order", ylabel="influence on the prediction")
    return artists


def plot_policy_values(
    values: PolicyComparison | Mapping[Any, PolicyValue] | Sequence[PolicyValue],
    *,
    truth: float | None = None,
    ax: Axes | None = None,
) -> ErrorbarContainer:
    """Draw the values of policies with their intervals, the largest value first.

    Of a comparison, policies that the data cannot tell apart from the first one have filled points, and the others
    have open ones.

    Parameters
    ----------
    values : PolicyComparison, or dict or sequence of PolicyValue
        Of :func:`lstd.ope.compare_policies`, :func:`lstd.ope.policy_value` or :func:`lstd.ope.importance_sampling`.
    truth : float, optional
        A value to draw a line at, such as the mean return of the policy that logged the data.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

    Returns
    -------
    matplotlib.container.ErrorbarContainer
        The points, with their intervals.

    Raises
    ------
    InvalidInputError
        When there are no values, or other objects among them.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import importance_sampling
    >>> from lstd.report import plot_policy_values
    >>> X, y, done = np.ones((20, 1)), np.arange(20.0), np.arange(20) % 2 == 1
    >>> values = {gamma: importance_sampling(X, y, gamma=gamma, terminated=done) for gamma in (0.5, 1.0)}
    >>> artists = plot_policy_values(values)
    >>> [label.get_text() for label in artists[0].axes.get_yticklabels()]
    ['1.0', '0.5']
    """
    by_name = _by_name(values)
    names = sorted(by_name, key=lambda name: -by_name[name].value)
    best: Sequence[Any] = names
    if isinstance(values, PolicyComparison):
        best = values.best
    x = np.array([by_name[name].value for name in names])
    low = np.array([by_name[name].lower for name in names])
    high = np.array([by_name[name].upper for name in names])
    with panels(ax, 4.4, 0.9 + 0.28 * max(2, len(names))) as (panel,):
        artists = _named_intervals(panel, list(map(str, names)), x, low, high, at=truth, mfc="white")
        filled = np.flatnonzero([name in best for name in names])
        panel.plot(x[filled], filled, "o", color=BLUE, zorder=4)
        level = by_name[names[0]].level
        panel.set_xlabel(f"value of the policy, {100 * level:g} % interval")
    return artists


def plot_policy_diagnostics(value: PolicyValue, *, ax: Any = None) -> list[Axes]:
    """Draw what the value of a policy rests on: ratios by time step, their products, their tail, weights of episodes.

    The mean ratio of each step, with two standard errors, should be 1. The products of ratios up to a step leave an
    effective share of the episodes, which importance sampling of whole episodes rests on. The tail is the share of rows
    with a larger ratio. The last panel has the sum of the dual weights of each episode, the largest first: an episode
    far above the others decides the value.

    Parameters
    ----------
    value : PolicyValue
        Of :func:`lstd.ope.evaluate_policy`, or of :func:`lstd.ope.policy_value` with `state` or `q`, or for an LSTDQ
        with `behavior_probability`.
    ax : sequence of 4 matplotlib.axes.Axes, optional
        By default those of a new figure.

    Returns
    -------
    list of matplotlib.axes.Axes

    Raises
    ------
    InvalidInputError
        When the value has no ratios or no dual weights.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.ope import LSTDQ, policy_value
    >>> from lstd.report import plot_policy_diagnostics
    >>> X, actions, policy = np.ones((400, 1)), np.arange(400) % 2, np.full((400, 2), [0.25, 0.75])
    >>> model = LSTDQ(gamma=0.5, alpha=0.0, fit_intercept=False).fit(
    ...     X, 1.0 * actions, actions=actions, terminated=np.ones(400, dtype=bool), target_policy=policy,
    ...     behavior_probability=np.full(400, 0.5),
    ... )
    >>> [panel.get_ylabel() for panel in plot_policy_diagnostics(policy_value(model))]
    ['mean ratio', 'effective share', 'share of rows above', 'sum of dual weights']
    """
    check_kind("value", value, (PolicyValue,))
    log: LoggedRows | None = getattr(value.by_blocks, "log", None)
    dual = value.dual_weights
    if log is None or log.ratio is None or dual is None:
        raise InvalidInputError(
            "`value` must have ratios and dual weights; got none. Use `evaluate_policy`, or `policy_value` of an LSTDQ "
            "that was fitted with `behavior_probability`."
        )
    by_step = step_ratios(log)
    steps = np.arange(len(by_step.mean))
    several = by_step.standard_error > 0.0
    rho = np.sort(log.ratio[log.ratio > 0.0])
    above = np.arange(len(rho), 0, -1) / len(log.ratio)
    sums = np.sort(np.bincount(np.cumsum(log.begins) - 1, dual))[::-1]
    with panels(ax, WIDE, 4.6, 4, 2) as axes:
        error = 2.0 * by_step.standard_error[several]
        axes[0].errorbar(steps[several], by_step.mean[several], yerr=error, **POINTS)
        axes[0].axhline(1.0, color=REFERENCE, linewidth=0.9, zorder=1)
        axes[0].set(xlabel="step of the episode", ylabel="mean ratio")
        axes[1].plot(steps, by_step.sizes / len(sums), color=BLUE)
        axes[1].set(xlabel="step of the episode", ylabel="effective share", ylim=(0.0, 1.05))
        axes[2].step(rho, above, color=BLUE, where="pre")
        axes[2].set(xscale="log", yscale="log", xlabel="importance ratio", ylabel="share of rows above")
        axes[3].plot(np.arange(1, len(sums) + 1), sums, color=BLUE)
        axes[3].set(xlabel="episodes, the largest first", ylabel="sum of dual weights")
    return axes


def _by_name(values: Any) -> dict[Any, PolicyValue]:
    """Return values of policies by name, or by number in a sequence; raises InvalidInputError for anything else."""
    if isinstance(values, PolicyComparison):
        return dict(zip(values.names, values.values, strict=True))
    by_name: dict[Any, Any] = {}
    what = type(values).__name__
    if isinstance(values, Mapping):
        by_name = dict(values)
    elif isinstance(values, Iterable):
        by_name = dict(enumerate(values))
    if isinstance(values, Iterable):
        what += f" of {len(by_name)}"
    if not by_name or not all(isinstance(value, PolicyValue) for value in by_name.values()):
        raise InvalidInputError(
            f"`values` must be a PolicyComparison, or one or more PolicyValue by name or in a list; got {what}."
        )
    return by_name


def plot_action_calibration(
    actions: ArrayLike,
    behavior_probability: ArrayLike,
    *,
    n_bins: int = 10,
    labels: Any = None,
    level: float = 0.95,
    ax: Any = None,
) -> list[Artist]:
    """Draw how often actions were taken against their probabilities, with the diagonal.

    There is a point for each bin of each action.

    Parameters
    ----------
    actions, behavior_probability, n_bins, labels
        As in :func:`lstd.ope.action_calibration`, with the same errors and warnings.
    level : float in (0, 1), default 0.95
        Level of the bars.
    ax : matplotlib.axes.Axes, optional
        As in :func:`plot_predictions`.

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
    level = check_level(level)
    table = action_calibration(actions, behavior_probability, n_bins, labels=labels)
    half = table.standard_error * stats.norm.ppf(0.5 + 0.5 * level)
    with panels(ax, 4.3, 4.1) as (panel,):
        panel.set(xlabel="probability of the action", ylabel="share of rows with the action")
        return [draw_points(panel, table, half)]
