"""Results of inference: intervals of predictions, differences between two models, checks, the spread of one return.

The names gather here for import. The sandwich covariance and intervals are computed in `lstd.statistics.intervals`, the
rest in `lstd.estimators`, but for differences between models:

With u_e and v_e the influence of block e on two predictions (:mod:`lstd.statistics.intervals`), the squared standard
error of their difference is Σ (u_e − v_e)² if both models were fitted to the same blocks, and Σ u_e² + Σ v_e² if their
data are independent. The degrees of freedom of independent data are those of Welch and Satterthwaite,

    df = (s² + t²)² / (s⁴/df_s + t⁴/df_t),   s² = Σ u_e²,   t² = Σ v_e².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lstd.data.arguments import check_flag
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.contributions import Contributions
from lstd.estimators.linear import Points
from lstd.estimators.model import SavedModel
from lstd.estimators.model_parts import BiasCheck, MisfitCheck
from lstd.estimators.return_spread import ReturnInterval, ReturnSpread
from lstd.estimators.summary import Summary
from lstd.estimators.validate_data import checked_features
from lstd.statistics.intervals import Influence, Interval, check_level, degrees_of_freedom, interval_of
from lstd.statistics.solve import check_range
from lstd.types import Array, FeaturesLike

__all__ = [
    "BiasCheck",
    "Contributions",
    "Difference",
    "Interval",
    "MisfitCheck",
    "ReturnInterval",
    "ReturnSpread",
    "Summary",
    "difference",
]


class _Spread(NamedTuple):
    """How sure differences are, each of shape (T, m)."""

    error: Array  # standard errors
    freedom: Array  # degrees of freedom
    shift: Array  # by which intervals are not symmetric


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Interval):
    """The difference of two predictions with its interval, as :class:`lstd.inference.Interval`.

    Attributes
    ----------
    paired : bool
        Whether both models were fitted to the same blocks of data, so that the covariance between them counts.

    Examples
    --------
    Two settings of one model, from the same 20 episodes:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.inference import difference
    >>> X, y, done = np.ones((20, 1)), np.arange(20.0), np.ones(20, dtype=bool)
    >>> a, b = (LSTD(alpha=alpha, fit_intercept=False).fit(X, y, terminated=done) for alpha in (0.0, 1.0))
    >>> found = difference(a, b, [[1.0]])
    >>> found.prediction.round(2), found.standard_error.round(2), found.paired
    (array([0.45]), array([0.07]), True)
    """

    paired: bool = False


def difference(
    a: Predictor,
    b: Predictor,
    X: FeaturesLike,
    weights: ArrayLike | None = None,
    level: float = 0.95,
    *,
    X_b: FeaturesLike | None = None,
    any_gamma: bool = False,
) -> Difference:
    """Compute intervals for how much more one model predicts than another: v_a(x) − v_b(x).

    Of the two arms of an experiment (an A/B test), with a model fitted to each, it is the long-run uplift of arm a over
    arm b. The data of the two are taken as independent, or as paired if both were fitted to the same blocks: the same
    rows in the same order, with any rewards, weights, λ and α.

    Parameters
    ----------
    a, b : fitted LSTD or LSTDCV
        Models with intervals, of the same features and as many rewards.
    X : array-like, DataFrame or sparse of shape (T, n)
        Features of the rows to predict for, such as the first row of each subject.
    weights : array-like of shape (T,), optional
        Compute one interval for the weighted sum Σ wᵢ (v_a(xᵢ) − v_b(xᵢ)) instead of one per row; weights 1/T are for
        the mean.
    level : float in (0, 1), default 0.95
        Probability that an interval contains the difference of the fixed points.
    X_b : array-like, DataFrame or sparse of shape (T, n), optional
        Features to predict for with b, row by row; by default `X`.
    any_gamma : bool, default False
        Whether the two models may have different `gamma`, whose values are sums over different horizons.

    Returns
    -------
    Difference
        As :meth:`lstd.LSTD.predict_interval` returns an interval; its `prediction` is the difference.

    Raises
    ------
    InvalidInputError
        When the models differ in their features, the number of rewards or `gamma`; when one has no intervals, or an
        argument breaks a rule.

    Warns
    -----
    ExtrapolationWarning, BoundsWarning
        As by `predict` of each model.

    Notes
    -----
    The states of `X` are given, not sampled: the interval leaves out that other subjects would begin in other states.
    Where assignment to the arms is random, use the same `X` for both.

    Examples
    --------
    Two arms of 100 episodes of one step; rewards are higher by 1 in arm a:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.inference import difference
    >>> random, done = np.random.default_rng(0), np.ones(100, dtype=bool)
    >>> a, b = (
    ...     LSTD().fit(random.normal(size=(100, 1)), mean + random.normal(size=100), terminated=done)
    ...     for mean in (3.0, 2.0)
    ... )
    >>> uplift = difference(a, b, [[0.0]])
    >>> uplift.prediction.round(1), uplift.standard_error.round(2), uplift.paired
    (array([1.]), array([0.13]), False)
    """
    level = check_level(level)
    _check_alike(a, b, check_flag("any_gamma", any_gamma))
    phi = checked_features(a, X)
    phi_b = checked_features(b, X if X_b is None else X_b)
    linear = a.model_.linear
    linear_b = b.model_.linear
    one = linear.along(phi, weights)
    two = linear_b.along(phi_b, weights)
    if one.values.shape != two.values.shape:
        raise InvalidInputError(f"`X_b` must have as many rows as `X`, {len(one.values)}; got {len(two.values)}.")
    influence = linear.influence
    influence_b = linear_b.influence
    paired = influence.of_same_rows(influence_b)
    spread_of = _paired if paired else _independent
    spread = spread_of(influence, one, influence_b, two)
    interval = interval_of(one.values - two.values, spread.error, spread.freedom, spread.shift, level)
    check_range(interval.lower, interval.upper)
    linear.warn_of_unlike(a.model_, phi)
    linear_b.warn_of_unlike(b.model_, phi_b)
    return Difference(**vars(interval.at(linear.place(weights))), paired=paired)


def _check_alike(a: Predictor, b: Predictor, any_gamma: bool) -> None:
    """Refuse models that cannot be compared."""
    for name, model in (("a", a), ("b", b)):
        if getattr(model, "record_kind", None) is not SavedModel:
            raise InvalidInputError(f"`{name}` must be a fitted LSTD or LSTDCV; got {type(model).__name__}.")
    one = a._model
    two = b._model
    if one.n_features != two.n_features:
        raise InvalidInputError(
            f"`a` and `b` must have the same features; a has {one.n_features}, b has {two.n_features}. Fit both to the "
            "same columns."
        )
    for own, other in zip(one.names or (), two.names or (), strict=False):
        if own != other:
            raise InvalidInputError(
                f"`a` and `b` must have the same features in the same order; a has {own!r} where b has {other!r}. "
                "Fit both to the same columns."
            )
    m = one.statistics.n_rewards
    k = two.statistics.n_rewards
    if m != k or one.statistics.single != two.statistics.single:
        raise InvalidInputError(
            f"`a` and `b` must predict the same number of rewards, in the same form; got {m} and {k}."
        )
    if one.settings.gamma != two.settings.gamma and not any_gamma:
        raise InvalidInputError(
            f"`a` and `b` must have the same `gamma`; got {one.settings.gamma:g} and {two.settings.gamma:g}, whose "
            "values are sums over different horizons. Fit both with one, or pass any_gamma=True."
        )
    for name, reason in (("a", one.no_intervals), ("b", two.no_intervals)):
        if reason:
            raise InvalidInputError(f"`{name}` has no intervals: {reason}")


def _paired(one: Influence, rows: Points, two: Influence, others: Points) -> _Spread:
    """Compute how sure differences are if both models were fitted to the same blocks."""
    error = np.empty(rows.values.shape)
    freedom = np.empty(rows.values.shape)
    shift = np.empty(rows.values.shape)
    shares = (one.shares + two.shares) / 2.0
    parts = zip(one.along(rows.columns, rows.ones), two.along(others.columns, others.ones), strict=True)
    for (part, u, shift_u), (_, v, shift_v) in parts:
        squares = (u - v) ** 2
        error[part] = np.sqrt(squares.sum(axis=1))
        freedom[part] = degrees_of_freedom(squares, shares)
        shift[part] = shift_u - shift_v
    return _Spread(error, freedom, shift)


def _independent(one: Influence, rows: Points, two: Influence, others: Points) -> _Spread:
    """Compute how sure differences are if the data of the two models are independent."""
    s, df_s, shift_s = one.spread(rows.columns, rows.ones)
    t, df_t, shift_t = two.spread(others.columns, others.ones)
    error = np.hypot(s, t)
    is_uncertain = error > 0.0
    size = np.where(is_uncertain, error, 1.0)
    inverse = (s / size) ** 4 / df_s + (t / size) ** 4 / df_t  # of Welch and Satterthwaite, relative to the error
    known = np.where(inverse > 0.0, inverse, 1.0)
    freedom = np.where(is_uncertain, 1.0 / known, 2.0)
    return _Spread(error, freedom, shift_s - shift_t)
