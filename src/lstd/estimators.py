"""LSTD(λ) as a scikit-learn regressor: a thin façade over :class:`lstd.statistics.LSTDStatistics`.

`fit` and `partial_fit` sum the statistics of the rows they are given, and what is predicted follows from the sums
alone. An attempt that fails leaves a fitted object as it was: everything is worked out on a copy first.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from lstd._rows import Features, Rows, check_features, check_rows
from lstd._validation import check_choice, check_real
from lstd.errors import InvalidInputError
from lstd.returns import TOLERANCE, discounted_returns
from lstd.solve import Solution, solve
from lstd.statistics import VARIANTS, LSTDStatistics

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Fitted:
    """What a fitted model was made with, and its weights, solved for when they are first asked for."""

    statistics: LSTDStatistics
    gamma: float
    alpha: float
    variant: str
    fit_intercept: bool

    @cached_property
    def solution(self) -> Solution:
        alpha = np.full(self.statistics.n_features, self.alpha)
        if self.fit_intercept:
            alpha[-1] = 0.0
        return solve(self.statistics.matrix(self.variant), self.statistics.b, alpha)

    @cached_property
    def coef(self) -> Array:
        weights = self.solution.weights[:-1] if self.fit_intercept else self.solution.weights
        return np.ascontiguousarray(weights[:, 0] if self.statistics.single else weights.T)

    @cached_property
    def intercept(self) -> float | Array:
        weights = self.solution.weights[-1] if self.fit_intercept else np.zeros(self.statistics.b.shape[1])
        return float(weights[0]) if self.statistics.single else weights.copy()


class LSTD(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear prediction of the discounted sum of future rewards, by least-squares temporal differences.

    The weights are θ = (A + αI)⁻¹ b, where A and b sum over the transitions of a stream of rows: Boyan's LSTD(λ),
    or the Uncorrected or Mixed LSTD(λ) of Osogami (AAAI-20), which differ in how the end of the data is taken. Rows
    are in time order; ``X[t]`` holds features and ``y[t]`` the reward received on leaving that row.

    Parameters
    ----------
    gamma : float in [0, 1], default 0.99
        Discount per transition, where `discount` does not give one per row.
    lmbda : float in [0, 1], default 0.9
        Trace decay: 0 bootstraps from the next row, 1 regresses on returns.
    alpha : float, at least 0, default 1.0
        Ridge coefficient.
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
        Which estimator to solve for.
    fit_intercept : bool, default False
        Add a column of ones with a weight of its own, which the ridge term leaves alone.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_rewards, n_features)
        Weights; solved for when first asked for after `partial_fit`.
    intercept_ : float or ndarray of shape (n_rewards,)
        Weight of the column of ones; zero without `fit_intercept`.
    statistics_ : LSTDStatistics
        The sums over the data; with `fit_intercept` its last feature is the column of ones.
    condition_number_ : float
        Estimate of the condition number of A + αI in the 1-norm; infinite when singular.
    n_transitions_ : int
        Full transitions seen.
    n_episodes_ : int
        Episodes begun.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when `X` has names that are all strings.

    Notes
    -----
    A row is a full transition when a row of its episode follows it, when it terminates, or when `X_next` is given.
    Otherwise it is a horizon row: its features count as those of a successor, its reward is ignored and may be NaN.
    Without `episode` and `terminated`, the rows are one stream that has not ended.

    In a Pipeline, earlier steps transform `X` but not `X_next` unless the Pipeline has
    ``transform_input=["X_next"]``. With metadata routing, pass `episode` and `terminated` on to `fit` and to `score`
    (``set_fit_request``, ``set_score_request``), and split by episode, as ``GroupKFold`` does.

    References
    ----------
    T. Osogami, "Uncorrected least-squares temporal difference with lambda-return", AAAI-20, arXiv 1911.06057.
    J. A. Boyan, "Technical update: least-squares temporal difference learning", Machine Learning 49, 2002.

    Examples
    --------
    Two episodes of two rows, of reward 1 per step, that terminate:

    >>> import numpy as np
    >>> from lstd.estimators import LSTD
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> y = np.ones(4)
    >>> model = LSTD(gamma=0.5, alpha=0.0).fit(X, y, episode=[1, 1, 2, 2], terminated=[False, True, False, True])
    >>> model.predict(X[:2])
    array([1.5, 1. ])
    >>> model.n_transitions_, model.n_episodes_
    (4, 2)
    """

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _fitted: _Fitted

    def __init__(
        self,
        gamma: float = 0.99,
        lmbda: float = 0.9,
        alpha: float = 1.0,
        variant: str = "boyan",
        fit_intercept: bool = False,
    ) -> None:
        self.gamma = gamma
        self.lmbda = lmbda
        self.alpha = alpha
        self.variant = variant
        self.fit_intercept = fit_intercept

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        X_next: Any = None,
        discount: ArrayLike | None = None,
        importance_ratio: ArrayLike | None = None,
    ) -> Self:
        """Fit to rows in time order; what was fitted before is forgotten.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
            Features of each row.
        y : array-like of shape (T,) or (T, m)
            Rewards received on leaving each row; ignored in the last row of an episode that did not terminate, where
            NaN is allowed.
        episode : array-like of shape (T,), optional
            Id of each row's episode; the rows of an episode follow one another.
        terminated : array-like of shape (T,), optional
            Whether the row's successor is terminal, of value zero.
        X_next : array-like, DataFrame or sparse of shape (T, n), optional
            Features of each row's successor: then every row is a full transition.
        discount : array-like of shape (T,), optional
            Discount of each row's transition, in [0, 1].
        importance_ratio : array-like of shape (T,), optional
            Importance ratio of each row's transition, at least 0.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            When a parameter or an array breaks a rule, or no row is a full transition.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.
        MissingTerminationWarning
            When `episode` is given without `terminated`: the episodes are taken as truncated.
        """
        columns = {
            "episode": episode, "terminated": terminated, "X_next": X_next, "discount": discount,
            "importance_ratio": importance_ratio,
        }  # fmt: skip
        candidate = self._blank()
        chunk = candidate._statistics_of(X, y, columns, first=True, min_rows=1)
        if chunk.n_transitions == 0:
            raise InvalidInputError(
                f"`X` must hold at least one full transition; got n_samples={chunk.n_rows}, and no row is followed by "
                "a row of its episode, terminated, or given with `X_next`. Pass more rows, or `partial_fit` as they "
                "come."
            )
        candidate._set(chunk)
        _ = candidate._fitted.solution  # so that its warning comes from `fit`
        self.__dict__ = candidate.__dict__
        return self

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        X_next: Any = None,
        discount: ArrayLike | None = None,
        importance_ratio: ArrayLike | None = None,
    ) -> Self:
        """Go on with the stream: the first row succeeds the last row of the previous chunk.

        It does not when that row terminated or has another `episode` id. Chunks may be empty or of one row; any split
        of the data gives the same model up to rounding. The weights are solved for when they are next asked for.
        `alpha` and `variant` may change between chunks; `gamma`, `lmbda` and `fit_intercept` may not.

        Parameters, errors and warnings are those of :meth:`fit`; the first chunk only warns of missing `terminated`.

        Returns
        -------
        self
        """
        columns = {
            "episode": episode, "terminated": terminated, "X_next": X_next, "discount": discount,
            "importance_ratio": importance_ratio,
        }  # fmt: skip
        first = "_fitted" not in vars(self)
        candidate = self._blank() if first else copy(self)
        chunk = candidate._statistics_of(X, y, columns, first=first)
        candidate._set(chunk if first else self._fitted.statistics.then(chunk))
        self.__dict__ = candidate.__dict__
        return self

    def fit_statistics(self, statistics: LSTDStatistics, feature_names: ArrayLike | None = None) -> Self:
        """Fit to sums over data in place of the data, such as sums over parts that were merged.

        Parameters
        ----------
        statistics : LSTDStatistics
            Made with this `gamma` and `lmbda`; with `fit_intercept` its last feature is the column of ones.
        feature_names : array-like of str, shape (n_features,), optional

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from lstd.estimators import LSTD
        >>> from lstd.statistics import LSTDStatistics
        >>> halves = [LSTDStatistics.from_arrays(np.ones((3, 1)), np.ones(3), gamma=0.5, lmbda=0.0) for _ in range(2)]
        >>> LSTD(gamma=0.5, lmbda=0.0, alpha=0.0).fit_statistics(halves[0] + halves[1]).coef_
        array([2.])
        """
        candidate = self._blank()
        if statistics.lmbda != self.lmbda:
            raise InvalidInputError(
                f"`lmbda` must be that of the statistics, {statistics.lmbda:g}; got {self.lmbda!r}. Set it so."
            )
        candidate.n_features_in_ = statistics.n_features - bool(self.fit_intercept)
        if feature_names is not None:
            candidate.feature_names_in_ = np.asarray(feature_names, dtype=object)
            if candidate.feature_names_in_.shape != (candidate.n_features_in_,):
                raise InvalidInputError(
                    f"`feature_names` must have one name per feature, shape ({candidate.n_features_in_},); "
                    f"got {candidate.feature_names_in_.shape}."
                )
        candidate._set(statistics)
        self.__dict__ = candidate.__dict__
        return self

    def predict(self, X: Any) -> Array:
        """Predicted discounted sum of future rewards of each row, whatever rows were seen before.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)

        Returns
        -------
        ndarray of shape (T,) or (T, m)
        """
        check_is_fitted(self)
        phi = _checked_features(self, X, reset=False)
        return np.asarray(phi @ self._fitted.coef.T + self._fitted.intercept)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        discount: ArrayLike | None = None,
        tolerance: float = TOLERANCE,
    ) -> float:
        """R² of the predictions against the discounted returns that were observed.

        The return of a row counts when it was observed whole, up to `tolerance`: in an episode that did not
        terminate, a row with h transitions until its end counts when γ^h, the share that the end's value has in the
        row's return, is below `tolerance`. The mean over several rewards is unweighted.

        Parameters
        ----------
        X, y, episode, terminated, discount
            As in :meth:`fit`. Without `episode` and `terminated` the rows are one stream that has not ended.
        sample_weight : array-like of shape (T,), optional
            Weight of each row in R².
        tolerance : float in (0, 1], default 0.01
            Largest share of a return that may be unobserved; 0.01 asks for 459 transitions at γ = 0.99.

        Returns
        -------
        float
            At most 1. NaN, with scikit-learn's UndefinedMetricWarning, when nothing was said about episodes and fewer
            than two rows count.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule; when fewer than two rows count; when the model was fitted to several episodes
            and neither `episode` nor `terminated` is given.
        """
        check_is_fitted(self)
        tolerance = check_real("tolerance", tolerance, 0.0, 1.0, open_low=True)
        told = episode is not None or terminated is not None
        if not told and self.n_episodes_ > 1:
            raise InvalidInputError(
                f"`episode` or `terminated` must be given to `score` a model that was fitted to {self.n_episodes_} "
                "episodes: else the rows are taken as one. In a Pipeline or search, route them with set_score_request."
            )
        phi = _checked_features(self, X, reset=False)
        rows = check_rows(
            phi, _present(y), gamma=self._fitted.gamma, episode=episode, terminated=terminated, discount=discount
        )
        weights = None if sample_weight is None else _check_weights(sample_weight, len(rows))
        returns, unobserved = discounted_returns(rows.y, rows.leaving, rows.last, rows.terminated)
        counts = unobserved < tolerance
        if counts.sum() < 2:
            _refuse_or_warn(int(counts.sum()), rows, unobserved, tolerance, told)
            return float("nan")
        predicted = (phi[counts] @ self._fitted.coef.T + self._fitted.intercept).reshape(-1, returns.shape[1])
        return float(r2_score(returns[counts], predicted, sample_weight=None if weights is None else weights[counts]))

    @property
    def statistics_(self) -> LSTDStatistics:
        """Sums over the data."""
        check_is_fitted(self)
        return self._fitted.statistics

    @property
    def coef_(self) -> Array:
        """Weights, shape (n_features,) or (n_rewards, n_features)."""
        check_is_fitted(self)
        return self._fitted.coef

    @property
    def intercept_(self) -> float | Array:
        """Weight of the column of ones, a number or of shape (n_rewards,)."""
        check_is_fitted(self)
        return self._fitted.intercept

    @property
    def condition_number_(self) -> float:
        """Condition number of the system that was solved."""
        check_is_fitted(self)
        return self._fitted.solution.condition_number

    @property
    def n_transitions_(self) -> int:
        """Full transitions seen."""
        return self.statistics_.n_transitions

    @property
    def n_episodes_(self) -> int:
        """Episodes begun."""
        return self.statistics_.n_episodes

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # its targets are returns, not the rewards in `y`
        return tags

    def _blank(self) -> Self:
        """A copy that was never fitted: parameters and metadata requests only."""
        blank = copy(self)
        for name in ("_fitted", "n_features_in_", "feature_names_in_"):
            blank.__dict__.pop(name, None)
        return blank

    def _statistics_of(
        self, X: Any, y: Any, columns: dict[str, Any], *, first: bool, min_rows: int = 0
    ) -> LSTDStatistics:
        """Statistics of a chunk; sets the number and the names of the features if it is the first."""
        gamma, lmbda, _, _, fit_intercept = _settings(self)
        if not first:
            _check_unchanged(self._fitted, gamma, lmbda, fit_intercept)
        columns = dict(columns)
        X_next = columns.pop("X_next")
        phi = _checked_features(self, X, reset=first, min_rows=min_rows, finite=False)
        if X_next is not None:
            if tuple(np.shape(X_next)) != phi.shape:
                raise InvalidInputError(f"`X_next` must have the shape of `X`, {phi.shape}; got {np.shape(X_next)}.")
            X_next = _checked_features(self, X_next, reset=False, finite=False)
        rows = check_rows(phi, _present(y), gamma=gamma, X_next=X_next, warn=first, finite=False, **columns)
        if fit_intercept:
            rows = replace(rows, X=_with_ones(rows.X), X_next=None if X_next is None else _with_ones(rows.X_next))
        return LSTDStatistics.from_rows(rows, lmbda)

    def _set(self, statistics: LSTDStatistics) -> None:
        gamma, _, alpha, variant, fit_intercept = _settings(self)
        self._fitted = _Fitted(statistics, gamma, alpha, variant, fit_intercept)


def _settings(model: LSTD) -> tuple[float, float, float, str, bool]:
    """The parameters of a model, checked."""
    if not isinstance(model.fit_intercept, (bool, np.bool_)):
        raise InvalidInputError(f"`fit_intercept` must be True or False; got {model.fit_intercept!r}.")
    return (
        check_real("gamma", model.gamma, 0.0, 1.0),
        check_real("lmbda", model.lmbda, 0.0, 1.0),
        check_real("alpha", model.alpha, 0.0, np.inf),
        check_choice("variant", model.variant, VARIANTS),
        bool(model.fit_intercept),
    )


def _check_unchanged(fitted: _Fitted, gamma: float, lmbda: float, fit_intercept: bool) -> None:
    for name, before, now in (
        ("gamma", fitted.gamma, gamma),
        ("lmbda", fitted.statistics.lmbda, lmbda),
        ("fit_intercept", fitted.fit_intercept, fit_intercept),
    ):
        if before != now:
            raise InvalidInputError(
                f"`{name}` must stay as it was at the first chunk, {before!r}; got {now!r}. Set it back, or start "
                "again with `fit`."
            )


def _checked_features(model: LSTD, X: Any, *, reset: bool, min_rows: int = 0, finite: bool = True) -> Features:
    """Features as `check_features` gives them, after scikit-learn's checks of their number and names."""
    phi = validate_data(
        model, X, reset=reset, accept_sparse="csr", dtype=np.float64, order="C", ensure_all_finite=False,
        ensure_min_samples=min_rows,
    )  # fmt: skip
    return check_features("X", phi, finite=finite)


def _present(y: Any) -> Any:
    if y is None:
        raise InvalidInputError("LSTD requires y to be passed, but the target y is None: pass a reward for every row.")
    return y


def _with_ones(phi: Features) -> Features:
    ones = np.ones((phi.shape[0], 1))
    return sparse.hstack([phi, ones], format="csr") if sparse.issparse(phi) else np.hstack([phi, ones])


def _check_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise InvalidInputError(
            f"`sample_weight` must have one weight per row of `X`, shape ({n_rows},); got {weights.shape}."
        )
    bad = ~(np.isfinite(weights) & (weights >= 0.0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInputError(f"`sample_weight` must be finite and at least 0; row {row} has {weights[row]:g}.")
    return weights


def _refuse_or_warn(n_counting: int, rows: Rows, unobserved: Array, tolerance: float, told: bool) -> None:
    """Say why there is no score: an error, or a warning when nothing was said about episodes."""
    full = ~rows.last | rows.terminated
    least = f"; the smallest such share is {unobserved[full].min():.2g}" if full.any() else ""
    message = (
        f"A score needs at least two rows whose return was observed up to `tolerance`; got {n_counting} of {len(rows)} "
        f"rows in which the share of the discounted future that was cut off is below {tolerance:g}{least}. Score "
        "longer episodes, pass `terminated` for those that ended for good, or raise `tolerance`."
    )
    if told:
        raise InvalidInputError(message)
    warnings.warn(message, UndefinedMetricWarning, stacklevel=3)
