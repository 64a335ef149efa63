"""The spread of one future return about its expected value: standard deviations, and intervals by quantiles.

Let v be held-out predictions: of the rows of each fold by weights from the other folds. Returns that a cut hides are
followed on: at the last row of an episode that was cut off, the path goes on from a full row that is drawn among the
tenth of all full rows with the nearest v, by weight, until an end, a cut where the discount is below 10⁻³, or the
horizon. Along the path of row t, with discounts Γ_k and TD errors δ_k of the held-out predictions,

    G_t = Σ Γ_k r_k,   V_t = Σ Γ_k² δ_k².

If the predictions are right, V has the variance of the return as its expected value (direct variance: Sherstan et al.
2018, arXiv 1801.08287), with less noise than (G − v)². Its ridge regression on the features, with those of the model as
coefficients, gives the variance s², at least a twentieth of its mean, where a straight line would go below. If features
hide what customers keep, TD errors of one path add up, and V is too small: s² is multiplied by the mean of (G − v)²/s²,
less what chance explains of its difference from 1, d: by the factor 1 − e²/d², e its standard error over groups.

Over the rows nearest in v to the prediction of x, the residuals (G − v) / s with held-out s have quantiles q, and

    v(x) + s(x) q

are the ends of the interval. Their levels are widened by ½/g for g groups among these rows, as if their extremes lay
half a group further out; if no level is left, the range is that of all these residuals and 0. If at least the level of
a tail of these returns lies on a known bound, the end is that bound.

Predictions of two folds differ by chance, most clearly where features are constant. So where rows are near, the
held-out predictions of each fold are moved by one number, to the mean over the fold of predictions by the mean weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from lstd.data.arguments import check_integer, check_real
from lstd.data.doubts import percent
from lstd.data.feature_arrays import Features, dense, product, rows_of
from lstd.data.read_only import read_only
from lstd.data.returns import run_backwards
from lstd.data.rows import Columns, Rows
from lstd.data.takes import GIVE_HORIZON_ROWS, OF_FIT, Takes
from lstd.errors import EffectiveSampleWarning, InvalidInputError, warn_once
from lstd.estimators.base import Predictor
from lstd.estimators.folds import check_enough, folds_of, held_out_weights, times_weights
from lstd.estimators.horizon_lstd import HorizonLSTD
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.linear import Linear
from lstd.estimators.model import Model, SavedModel
from lstd.estimators.saved_kinds import estimator_of_record
from lstd.estimators.step_spread import FLOOR, beyond_chance, independent_groups
from lstd.estimators.validate_data import checked_features, comparable_rows
from lstd.files import Saved
from lstd.statistics.counts import check_weighted
from lstd.statistics.horizon_sums import LagSums, completed, lag_sums
from lstd.statistics.intervals import Interval, check_level, in_short
from lstd.statistics.solve import check_range
from lstd.statistics.system import System
from lstd.statistics.threads import one_blas_thread
from lstd.types import Array, FeaturesLike

_NEAREST = 0.1  # share of the full rows
_LEAST = 1e-3  # discount below which a cut ends the path
_MOST_CUTS = 10_000  # of one path
_MOST_DRAWN = 10_000  # rows that paths go on from
_WINDOWS = 256  # places of the nearest rows, at most
_FEWEST = (20, 200)  # groups or episodes, and rows of one stream
_FIT = Takes(
    "ReturnSpread.fit",
    ("episode", "terminated", "discount", "weight", "groups"),
    {
        "X_next": GIVE_HORIZON_ROWS,
        "importance_ratio": "Fit to data of the policy itself.",
        "trace_coefficient": "Fit to data of the policy itself.",
    },
)

Draw = Callable[[Array], NDArray[np.intp]]  # of full rows near each value


@dataclass(frozen=True, eq=False)
class ReturnInterval:
    """Ranges of single returns; arrays of shape (T,), or (T, m) for m rewards.

    Attributes
    ----------
    prediction : ndarray
        The expected return.
    lower, upper : ndarray
        Ends of the range in which one return lies with a probability of `level`.
    std : ndarray
        Standard deviation of one return.
    level : float

    Examples
    --------
    Returns of one step, uniform from 0 to 1, the range of which is 0.1 to 0.9:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.inference import ReturnSpread
    >>> X, y, done = np.ones((5000, 1)), np.random.default_rng(0).random(5000), np.ones(5000)
    >>> model = LSTD(fit_intercept=False).fit(X, y, terminated=done)
    >>> found = ReturnSpread(model).fit(X, y, terminated=done).predict_interval([[1.0]], level=0.8)
    >>> found.lower.round(1), found.upper.round(1), found.std.round(1)
    (array([0.1]), array([0.9]), array([0.3]))
    """

    prediction: Array
    lower: Array
    upper: Array
    std: Array
    level: float

    def __str__(self) -> str:
        return in_short(self.prediction, self.lower, self.upper, self.level)

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class SavedSpread:
    """What a file holds of a fitted ReturnSpread, with its model."""

    file_kind: ClassVar[str] = "spread of returns"

    model: SavedModel | HorizonModel | None  # None until it is saved
    spreads: tuple[_Spread, ...]
    horizon: int | None
    single: bool
    n_groups: int


class ReturnSpread(Saved):
    """How far single future returns lie from the expected one, such as what one customer may bring.

    The intervals of `predict_interval` of a model are for the mean of many customers of the same features, and shrink
    with more data. Those of this class are for one of them, and do not.

    Parameters
    ----------
    model : LSTD, LSTDCV or HorizonLSTD
        Fitted. Its settings are used, not its weights alone: parts of the data are held out.
    horizon : int, optional
        Number of steps, for a HorizonLSTD; by default its own.
    low, high : float, optional
        Bounds that no return can pass. By default those of a HorizonLSTD, and 0 where no reward of the fit is below, or
        none above, it.
    random_state : int, default 0
        Seed of the draws where returns were cut off.

    Attributes
    ----------
    horizon_ : int or None
        Number of steps.
    n_floored_ : int
        Number of rows of the fit, counted for each reward, whose variance was below the floor, and raised to it.
    n_groups_ : int
        Number of groups or episodes; of blocks of about one effective horizon in a single stream.

    Notes
    -----
    Ranges are right on average over customers of similar predictions. Where features do not show a difference between
    customers, such as loyal ones and others, they are too narrow for some and too wide for others. See the module
    `lstd.estimators.return_spread` for the method.

    References
    ----------
    C. Sherstan, D. R. Ashley, B. Bennett, K. Young, A. White, M. White, R. S. Sutton, "Comparing direct and indirect
    temporal-difference methods for estimating the variance of the return", UAI 2018.

    Examples
    --------
    Half of the customers spend 1 a week, half 0 or 2 by chance; a tenth leaves in every week:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.inference import ReturnSpread
    >>> random = np.random.default_rng(0)
    >>> steady, ends = np.arange(4000) // 2000, random.random(4000) < 0.1
    >>> X, y = np.eye(2)[steady], np.where(steady, 1.0, 2.0 * random.integers(2, size=4000))
    >>> model = LSTD(gamma=0.8, fit_intercept=False).fit(X, y, terminated=ends)
    >>> spread = ReturnSpread(model).fit(X, y, terminated=ends)
    >>> found = spread.predict_interval(np.eye(2), level=0.9)
    >>> found.prediction.round(1), found.std.round(1)
    (array([3.6, 3.5]), array([2. , 1.3]))
    """

    record_kind = SavedSpread

    def __init__(
        self,
        model: Predictor | HorizonLSTD,
        *,
        horizon: int | None = None,
        low: float | None = None,
        high: float | None = None,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.horizon = horizon
        self.low = low
        self.high = high
        self.random_state = random_state

    def fit(self, X: FeaturesLike, y: ArrayLike, **columns: Unpack[Columns]) -> Self:
        """Follow the returns of rows, which should be those that the model was fitted to.

        Parameters
        ----------
        X, y, episode, terminated, discount, weight, groups
            As in :meth:`lstd.LSTD.fit`. All that the fit of the model was given must be given here too, but `X_next`,
            which may be left out for a model that was fitted with it: the next row of the episode is then the
            successor.

        Returns
        -------
        self : ReturnSpread

        Raises
        ------
        InvalidInputError
            When the model is of another kind, not fitted, or fitted without the matrix; when an array breaks a rule; or
            with fewer than 20 groups or episodes, or 200 rows of one stream.
        """
        random = np.random.default_rng(check_integer("random_state", self.random_state, 0))
        with one_blas_thread():
            held = self._held_out(X, y, columns)
            rows = held.rows
            check_weighted(float(rows.weight @ rows.full), int(rows.full.sum()))
            group = _groups(held)
            spreads = []
            for j, rewards in enumerate(rows.y[rows.full].T):
                bounds = self._bounds(rewards)
                spreads.append(_Spread.of(held, j, group, bounds, random))
        self.record_ = SavedSpread(
            model=None,
            spreads=tuple(spreads),
            horizon=held.steps,
            single=rows.single,
            n_groups=int(group[-1]) + 1,
        )
        self._state = self._state_of_model
        return self

    def _held_out(self, X: FeaturesLike, y: Any, columns: Columns) -> _Held:
        """Check rows, and hold out each fold from the model."""
        if isinstance(self.model, HorizonLSTD):
            return held_out_steps(self.model, self.horizon, X, y, columns)
        if isinstance(self.model, Predictor):
            return held_out(self.model, self.horizon, X, y, columns)
        raise InvalidInputError(f"`model` must be an LSTD, LSTDCV or HorizonLSTD; got {self.model!r:.80}.")

    def _bounds(self, rewards: Array) -> Array:
        """Return the bounds of returns of these rewards, (2,)."""
        low = -np.inf
        high = np.inf
        if rewards.min() >= 0.0:
            low = 0.0
        if rewards.max() <= 0.0:
            high = 0.0
        bounds = np.array([low, high])
        for side, name in enumerate(("low", "high")):
            bound = getattr(self, name)
            if bound is None:
                bound = getattr(self.model, name, None)
            if bound is not None:
                bounds[side] = check_real(name, bound, -np.inf, np.inf)
        if not bounds[0] < bounds[1] and rewards.any():
            raise InvalidInputError(f"`low` must be below `high`; got {bounds[0]:g} and {bounds[1]:g}.")
        return bounds

    @property
    def _state_of_model(self) -> Model | HorizonModel | None:
        state: Model | HorizonModel | None = vars(self.model).get("model_")
        return state

    @property
    def _fitted(self) -> SavedSpread:
        if "record_" not in vars(self):
            raise NotFittedError("This ReturnSpread is not fitted yet. Call 'fit' with the rows of the model first.")
        if self._state is not self._state_of_model:
            raise InvalidInputError(
                "`model` must be as it was at `ReturnSpread.fit`; it was fitted again. Fit the spread again too."
            )
        return self.record_

    spreads_ = property(lambda self: read_only(self._fitted.spreads), doc="The spread of the returns of each reward.")
    horizon_ = property(lambda self: self._fitted.horizon, doc="Number of steps, or None.")
    n_groups_ = property(lambda self: self._fitted.n_groups, doc="Number of groups.")
    n_floored_ = property(lambda self: sum(one.n_floored for one in self.spreads_), doc="Number of raised variances.")

    @property
    def _linear(self) -> Linear:
        """What predicts the expected return."""
        linear: Linear = self.model._at(self.horizon_)
        return linear

    def _columns(self, X: FeaturesLike) -> Features:
        """Return the columns that have weights, from rows to predict for."""
        return self._linear.columns(checked_features(self.model, X))

    def _predicted(self, X: FeaturesLike) -> Array:
        """Predict the expected return from each row, (T,) or (T, m)."""
        linear = self._linear
        phi = checked_features(self.model, X, raw=True)
        prediction = linear.predict(phi)
        linear.warn_of_unlike(self.model._model, phi, prediction)
        return prediction

    def _mean_interval(self, X: FeaturesLike, level: float) -> Interval:
        """Compute intervals for the mean of many returns from each row; raises InvalidInputError if there are none."""
        linear = self._linear
        phi = checked_features(self.model, X)
        interval = linear.interval(phi, level)
        linear.warn_of_unlike(self.model._model, phi)
        return interval

    def to_record(self) -> SavedSpread:
        """Return what a file holds."""
        return replace(self._fitted, model=self.model.to_record())

    @classmethod
    def of_record(cls, record: SavedSpread, path: str | os.PathLike[str]) -> Self:
        """Return the spread of a file, with its model."""
        if record.model is None:
            raise InvalidInputError(f"{path} does not hold the model of the spread. Save it again.")
        spread = cls(estimator_of_record(record.model, path), horizon=record.horizon)
        spread.record_ = record
        spread._state = spread._state_of_model
        return spread

    def predict_std(self, X: FeaturesLike) -> Array:
        """Predict the standard deviation of one return from each row, always above 0 unless all returns were alike.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)

        Returns
        -------
        ndarray of shape (T,) or (T, m)

        Warns
        -----
        ExtrapolationWarning, BoundsWarning
            As by `predict` of the model.
        """
        spreads = self.spreads_
        self._predicted(X)  # which warns of rows unlike those of the fit
        phi = self._columns(X)
        std = np.column_stack([spread.std(phi) for spread in spreads])
        if self._fitted.single:
            return np.asarray(std[:, 0])
        return np.asarray(std)

    def predict_interval(self, X: FeaturesLike, level: float = 0.9) -> ReturnInterval:
        """Compute ranges in which one return from each row lies, with equal probabilities below and above.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        level : float in (0, 1), default 0.9
            Probability that one return lies in the range. Where the lower end is a known bound, such as 0, no return is
            below, and the probability is up to half of 1 − level larger.

        Returns
        -------
        ReturnInterval

        Raises
        ------
        InvalidInputError
            When `X` or `level` breaks a rule, or the model was fitted again.

        Warns
        -----
        EffectiveSampleWarning
            When the rows with the nearest predictions are of fewer groups than `level` needs, 1 / (1 − level); once for
            each fit.
        ExtrapolationWarning, BoundsWarning
            As by `predict` of the model.
        """
        spreads = self.spreads_
        tail = 0.5 * (1.0 - check_level(level))
        level = float(level)
        prediction = self._predicted(X)
        if not len(prediction):
            return ReturnInterval(prediction, prediction.copy(), prediction.copy(), prediction.copy(), level)
        phi = self._columns(X)
        values = prediction.reshape(len(prediction), -1)
        ends = [spread.ends(phi, values[:, j], tail) for j, spread in enumerate(spreads)]
        lower, upper, std, few = (np.column_stack(of_rewards) for of_rewards in zip(*ends, strict=True))
        share = float(np.mean(few))
        if share:
            warn_once(
                self.record_,
                f"{percent(share)} of the ranges are of too few groups or episodes for level {level:g}, which needs "
                f"{0.5 / tail:.3g} among the rows with the nearest predictions. They reach to the least and the "
                "greatest error there and to the prediction itself, and may hold less. Fit to more, or use a lower "
                "`level`.",
                EffectiveSampleWarning,
            )
        return ReturnInterval(
            prediction=prediction,
            lower=lower.reshape(prediction.shape),
            upper=upper.reshape(prediction.shape),
            std=std.reshape(prediction.shape),
            level=level,
        )


# ------------------------------------------------------------ held-out predictions


@dataclass(frozen=True, eq=False)
class _Held:
    """Rows, with the column of ones if the model has an intercept, in K folds, and predictions for each by the rest."""

    rows: Rows
    folds: list[slice]
    ridge: Array  # (n,)
    weights: Array  # (K, H, n, m), H = 1 without a horizon
    penalty: Array  # (n,) of a vanishing ridge term, 0 for the column of ones
    uncentred: Callable[[Array], Array]  # weights (…, n) of the features as they are given
    bounded: Callable[[Array], Array]  # predictions within the bounds of the model
    steps: int | None  # the horizon

    def values(self, j: int, h: int = 0) -> Array:
        """Return predictions (T,) of reward j for h + 1 steps."""
        values = []
        for fold, weights in zip(self.folds, self.weights, strict=True):
            values.append(rows_of(self.rows.X, fold) @ weights[h, :, j])
        return self.bounded(np.concatenate(values))

    def curve(self, j: int) -> Iterator[tuple[Array, Array]]:
        """Yield predictions (T,) of reward j for 1, 2, … steps, and their levels."""
        for h in range(self.steps or 1):
            values = self.values(j, h)
            yield values, self.level(values, j, h)

    @cached_property
    def _means(self) -> Array:
        """Mean of each feature over each fold, (K, n)."""
        return np.array([np.asarray(rows_of(self.rows.X, fold).mean(axis=0)).ravel() for fold in self.folds])

    def level(self, values: Array, j: int, h: int = 0) -> Array:
        """Return predictions whose means over each fold are those of the mean weights, to compare rows of two folds."""
        theta = self.weights[:, h, :, j]
        shifts = np.sum(self._means * (theta.mean(axis=0) - theta), axis=1)  # of each fold
        level = np.empty_like(values)
        for fold, shift in zip(self.folds, shifts, strict=True):
            level[fold] = values[fold] + shift
        unit = 1e-9 * float(np.abs(level).max(initial=0.0))
        if unit:  # ties, which rounding would part by folds
            level = np.rint(level / unit) * unit
        return self.bounded(level)


def _folds(rows: Rows) -> tuple[list[Rows], list[slice]]:
    """Return folds, and their places; raises InvalidInputError if there are too few groups or rows."""
    check_enough("A spread", rows, *_FEWEST)
    folds = folds_of(rows)
    edges = np.cumsum([0, *map(len, folds)]).tolist()
    places = [slice(first, end) for first, end in pairwise(edges)]
    return folds, places


def held_out(estimator: Predictor, horizon: int | None, X: FeaturesLike, y: Any, columns: Columns) -> _Held:
    """Hold out each fold from an LSTD or LSTDCV, of the same λ and ridge coefficients."""
    if horizon is not None:
        raise InvalidInputError("`horizon` must be None for a model without one; give HorizonLSTD for a fixed number.")
    estimator._needs_matrix("ReturnSpread")
    model = estimator._model
    settings = model.settings
    rows = comparable_rows(estimator, model, X, y, columns, _FIT, ones=True, finite=True, warn=False)
    if settings.centre is not None:
        rows = rows.less(np.append(settings.centre, 0.0))
    folds, places = _folds(rows)
    weights = np.array(held_out_weights(folds, settings))
    return _Held(
        rows=rows,
        folds=places,
        ridge=model.ridge,
        weights=weights[:, np.newaxis],
        penalty=model.system.penalty,
        uncentred=settings.uncentred,
        bounded=np.asarray,
        steps=None,
    )


def held_out_steps(estimator: HorizonLSTD, horizon: int | None, X: FeaturesLike, y: Any, columns: Columns) -> _Held:
    """Hold out each fold from a HorizonLSTD, of the same λ and ridge coefficients."""
    state = estimator._model
    steps = estimator._steps(horizon)
    rows = estimator._comparable(X, y, columns, _FIT, OF_FIT)
    rows = completed(state.prepared(rows))
    _, places = _folds(rows)
    sums = lag_sums(rows, steps, [0, *(place.stop for place in places)])
    total = reduce(LagSums.plus, sums)
    lmbda, alpha, _ = state.choice
    return _Held(
        rows=rows,
        folds=places,
        ridge=alpha * state.factors,
        weights=state.weights_of_parts((total.less(fold) for fold in sums), lmbda, alpha),
        penalty=state.penalty,
        uncentred=state.settings.uncentred,
        bounded=state.bounded,
        steps=steps,
    )


def _groups(held: _Held) -> NDArray[np.intp]:
    """Number the groups of rows, (T,); in a stream, blocks of the horizon, or of 1/(1 − γ) steps."""
    rows = held.rows
    length = held.steps
    if length is None:
        least = 1.0 / len(rows)  # of 1 − γ
        length = max(1, round(1.0 / max(1.0 - rows.gamma, least)))
    return independent_groups(rows, length)


# ------------------------------------------------------------ returns that are followed on


def nearest(values: Array, at: Array, size: int) -> NDArray[np.intp]:
    """Return where the `size` values (N,), in ascending order, that are nearest to each of `at` (T,) begin."""
    kept = len(values) - size
    sums = values[:kept] + values[size:]  # ascending; a window moves on while the value it would gain is nearer
    return np.asarray(np.searchsorted(sums, 2.0 * at))


def drawing(rows: NDArray[np.intp], values: Array, weight: Array, random: np.random.Generator) -> Draw:
    """Return a function that draws one of the `rows` nearest to each value; values and weights are of all rows."""
    rows = rows[np.argsort(values[rows], kind="stable")]
    values = values[rows]
    size = n_nearest(len(rows))
    total = np.append(0.0, np.cumsum(weight[rows]))

    def draw(at: Array) -> NDArray[np.intp]:
        first = nearest(values, at, size)
        low = total[first]
        high = total[first + size]
        drawn = low + random.random(len(at)) * (high - low)
        place = np.searchsorted(total, drawn, side="right") - 1
        return np.asarray(rows[np.clip(place, first, first + size - 1)])

    return draw


def n_nearest(n: int) -> int:
    """Return the number of full rows that count as near."""
    return int(np.ceil(_NEAREST * n))


def followed(rows: Rows, reward: Array, values: Array, level: Array, draw: Draw) -> tuple[Array, Array]:
    """Compute G and V, (T,), of full rows with held-out predictions; `draw` goes on at cuts."""
    ends = rows.last
    full = rows.full
    discount = rows.discount
    error = np.where(full, reward + discount * np.append(values[1:], 0.0) - values, 0.0)
    rewards = np.where(full, reward, 0.0)
    of_rewards = run_backwards(np.column_stack([rewards, ends & ~full]), discount, ends)
    rewards_to_end = of_rewards[:, 0]  # rewards up to the end or the cut
    to_cut = of_rewards[:, 1]  # discount up to the cut
    squares = run_backwards(error[:, np.newaxis] ** 2, discount**2, ends)[:, 0]
    last = np.flatnonzero(ends)[np.cumsum(ends) - ends]

    G = rewards_to_end.copy()
    V = squares.copy()
    factor = to_cut * full
    at = last.copy()
    for _ in range(_MOST_CUTS):
        going = np.flatnonzero(factor >= _LEAST)
        if not len(going):
            return G, V
        on = draw(level[at[going]])
        G[going] += factor[going] * rewards_to_end[on]
        V[going] += factor[going] ** 2 * squares[on]
        factor[going] *= to_cut[on]
        at[going] = last[on]
    raise InvalidInputError(
        "`terminated` must be true for more episodes, or `gamma` below 1: where nothing ends, single returns have no "
        "limit. Use a HorizonLSTD for a fixed number of steps."
    )


def followed_steps(
    rows: Rows,
    reward: Array,
    curve: Iterator[tuple[Array, Array]],
    draw_by: Callable[[Array], Draw],
) -> tuple[Array, Array]:
    """Compute G and V, (T,), of the next steps of full rows; `curve` has predictions and levels for 1, 2, … of them."""
    full = rows.full
    (cut,) = np.nonzero(~full)
    discount = np.where(full, rows.discount, 0.0)
    rewards = np.where(full, reward, 0.0)
    G = np.zeros(len(rows))
    V = np.zeros(len(rows))
    before = np.zeros(len(rows))  # predictions for a step less
    for value, level in curve:
        error = np.where(full, reward + discount * np.append(before[1:], 0.0) - value, 0.0)
        G = rewards + discount * np.append(G[1:], 0.0)
        V = error**2 + rows.discount**2 * np.append(V[1:], 0.0)
        on = draw_by(level)(level[cut])
        G[cut] = G[on]
        V[cut] = V[on]
        before = value
    return G, V


# ------------------------------------------------------------ variances and quantiles


@dataclass(frozen=True, eq=False)
class _Spread:
    """The spread of returns of one reward; N full rows in order of their predictions, n features."""

    weights: Annotated[Array, "columns"]  # of the variance
    floor: float
    values: Annotated[Array, "rows"]
    residuals: Annotated[Array, "rows"]
    on_low: Annotated[NDArray[np.bool_], "rows"]  # whether the return lies on a bound
    on_high: Annotated[NDArray[np.bool_], "rows"]
    group: Annotated[NDArray[np.int64], "rows"]
    weight: Annotated[Array, "rows"]
    bounds: Annotated[Array, "2 nan"]
    intercept: bool
    n_floored: int

    @classmethod
    def of(cls, held: _Held, j: int, group: NDArray[np.intp], bounds: Array, random: np.random.Generator) -> Self:
        """Follow the returns of reward j, and fit their variances."""
        rows = held.rows
        n_steps = held.steps or 1
        full = random.permutation(np.flatnonzero(rows.full & (rows.weight > 0.0)))  # equal predictions have no order

        def draw_by(values: Array) -> Draw:
            return drawing(full[:_MOST_DRAWN], values, rows.weight, random)

        values = held.values(j, n_steps - 1)
        level = held.level(values, j, n_steps - 1)
        if held.steps is None:
            G, V = followed(rows, rows.y[:, j], values, level, draw_by(level))
        else:
            G, V = followed_steps(rows, rows.y[:, j], held.curve(j), draw_by)
        check_range(G, V)
        weights, variance, floor = variances_of(held, V)

        s = np.sqrt(np.maximum(variance, floor))
        order = full[np.argsort(level[full], kind="stable")]
        residuals = np.divide(G - values, s, out=np.zeros_like(s), where=s > 0.0)[order]
        factor = scale_of(residuals**2, rows.weight[order], group[order])
        near = 1e-9 * max(float(np.abs(G).max()), 1e-300)
        return cls(
            weights=factor * weights,
            floor=factor * floor,
            values=level[order],
            residuals=residuals / np.sqrt(factor),
            on_low=np.abs(G - bounds[0])[order] <= near,
            on_high=np.abs(G - bounds[1])[order] <= near,
            group=group[order],
            weight=rows.weight[order],
            bounds=bounds,
            intercept=not held.penalty[-1],
            n_floored=int(np.count_nonzero(variance[full] < floor)),
        )

    def std(self, phi: Features) -> Array:
        """Return the standard deviation of one return, (T,), from features without the column of ones."""
        n = len(self.weights) - self.intercept
        variance = product("X", phi, self.weights[:n], self.weights[n:].sum())
        return np.sqrt(np.maximum(variance, self.floor))

    def ends(self, phi: Features, values: Array, tail: float) -> tuple[Array, Array, Array, Array]:
        """Return the ends of ranges, with a probability of `tail` beyond each, deviations, and of few groups, (T,)."""
        s = self.std(phi)
        size = n_nearest(len(self.values))
        n_places = max(1, len(self.values) - size)
        step = -(-n_places // _WINDOWS)  # between the windows of which quantiles are computed
        rounded = (nearest(self.values, values, size) + step // 2) // step
        windows, window_of_row = np.unique(rounded, return_inverse=True)
        begins = np.minimum(windows * step, len(self.values) - size)
        quantiles = np.array([self._quantiles(slice(first, first + size), tail) for first in begins])
        low, high, few = quantiles[window_of_row].T

        least, most = self.bounds
        lower = np.where(np.isinf(low), least, values + s * np.nan_to_num(low, neginf=0.0))
        upper = np.where(np.isinf(high), most, values + s * np.nan_to_num(high, posinf=0.0))
        return np.clip(lower, least, most), np.clip(upper, least, most), s, few

    def _quantiles(self, near: slice, tail: float) -> tuple[float, float, bool]:
        """Return the quantiles of the residuals of some rows, infinite for an end on a bound; and if groups are few.

        Of fewer groups than the level needs, the range holds the prediction too.
        """
        weight = self.weight[near]
        order = np.argsort(self.residuals[near])
        e = self.residuals[near][order]
        total = weight.sum()
        n_groups = np.count_nonzero(np.bincount(self.group[near]))
        in_tail = (tail - 0.5 / n_groups) * total  # weight of the residuals outside of each end
        is_few = in_tail < 0.0
        if is_few:
            low = min(e[0], 0.0)
            high = max(e[-1], 0.0)
        else:
            from_below = np.cumsum(weight[order])
            from_above = np.cumsum(weight[order][::-1])
            low = e[np.searchsorted(from_below, in_tail, "right")]
            high = e[::-1][np.searchsorted(from_above, in_tail, "right")]
        if weight @ self.on_low[near] >= tail * total:
            low = -np.inf
        if weight @ self.on_high[near] >= tail * total:
            high = np.inf
        return low, high, is_few


def scale_of(squares: Array, weight: Array, group: NDArray[np.intp]) -> float:
    """Return the factor of variances: the mean squared residual, as far from 1 as chance does not explain."""
    mean = float(np.average(squares, weights=weight))
    of_groups = np.bincount(group, weight * (squares - mean))
    squared_error = float(np.sum(of_groups**2) / weight.sum() ** 2)
    if not mean > 0.0:
        return 1.0
    return beyond_chance(mean, squared_error)


def variances_of(held: _Held, V: Array) -> tuple[Array, Array, float]:
    """Regress V on the features: weights (n,), held-out variances (T,), and their floor."""
    weight = held.rows.weight * held.rows.full
    parts = []  # of each fold: its Gram matrix, products with V, and weight
    for fold in held.folds:
        X = rows_of(held.rows.X, fold)
        weighted = times_weights(X, weight[fold])
        gram = dense(X.T @ weighted)
        along = dense(weighted.T @ V[fold])[:, np.newaxis]
        parts.append((gram, along, float(weight[fold].sum())))
    gram, along, total = (sum(of_folds) for of_folds in zip(*parts, strict=True))
    whole = System.of_regression(gram, along, held.ridge, penalty=held.penalty, intercept=not held.penalty[-1])

    variances = []
    for fold, (A, b, size) in zip(held.folds, parts, strict=True):
        ridge = held.ridge * ((total - size) / total)
        rest = whole.without(A, b).with_ridge(ridge)
        variances.append(rows_of(held.rows.X, fold) @ rest.solve().weights[:, 0])
    weights = held.uncentred(whole.solve().weights[:, 0])
    floor = FLOOR * float(weight @ V / total)
    return weights, np.concatenate(variances), floor
