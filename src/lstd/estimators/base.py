"""The base class of LSTD and LSTDCV: predictions with their standard errors and intervals, score and files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_is_fitted

from lstd.data.arguments import check_choice, check_flag, check_per_row
from lstd.data.doubts import SELF_SCORED, assumed_cut, backtest_of, little_observed, support_doubt, with_backtest
from lstd.data.read_only import read_only
from lstd.data.returns import TOLERANCE, ObservedReturns, check_treatment, observed
from lstd.data.rows import ARGUMENTS, Columns, PerRow, Rows
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.data.time_steps import steps_since_earliest
from lstd.errors import (
    BoundsWarning,
    InvalidInputError,
    MissingAttributeError,
    MissingTerminationWarning,
    SupportWarning,
    UnobservedWarning,
    carry_said,
    warn,
    warn_once,
)
from lstd.estimators.bias_check import check_bias
from lstd.estimators.contributions import Contributions
from lstd.estimators.limits import Limits, beyond_bounds
from lstd.estimators.linear import Linear
from lstd.estimators.misfit_check import check_misfit
from lstd.estimators.model import Model, SavedModel
from lstd.estimators.model_parts import BiasCheck, MisfitCheck, needs_matrix
from lstd.estimators.summary import Summary
from lstd.estimators.validate_data import checked_features, comparable_rows
from lstd.files import Saved
from lstd.statistics.intervals import MEAN, OF, SCALES, Interval, check_level
from lstd.statistics.merging import LSTDStatistics
from lstd.trajectories.joining import parse_times
from lstd.types import Array, FeaturesLike

T = TypeVar("T")


class State(Protocol):
    """What every fitted state has."""

    @property
    def is_reported(self) -> bool:
        """Whether the warnings about the system were given."""

    def reported(self) -> Self:
        """Give the warnings about the system, unless they were given; return the state with them."""

    @property
    def n_given(self) -> int:
        """Number of features as they are given."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features, if given."""


M = TypeVar("M", bound=State)
M_co = TypeVar("M_co", bound=State, covariant=True)

_BIAS_CHECK = Takes("bias_check", LSTD_COLUMNS)
_MISFIT_CHECK = Takes("misfit_check", LSTD_COLUMNS)
_SCORE = Takes("score", LSTD_COLUMNS)

NOT_ROUTED = dict.fromkeys(ARGUMENTS[2:])  # scikit-learn passes on what was requested


class Fitted(Generic[M, T]):
    """A read-only attribute that a function computes from the fitted state, with arrays that are read-only too.

    Some are of sums alone, and do not need the `weights`.
    """

    def __init__(self, function: Callable[[M], T], *, weights: bool = True) -> None:
        self._function = function
        self._weights = weights
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, estimator: None, owner: type) -> Self: ...
    @overload
    def __get__(self, estimator: Regressor[M], owner: type) -> T: ...
    def __get__(self, estimator: Regressor[M] | None, owner: type) -> Self | T:
        if estimator is None:  # the attribute of the class
            return self
        state = estimator._model if self._weights else estimator._state
        try:
            return read_only(self.value(state))
        except InvalidInputError as error:  # too few blocks, say: `dir` and notebooks ask for all attributes
            raise MissingAttributeError(str(error)) from error

    def value(self, state: M) -> T:
        """Return the attribute of a fitted state."""
        return self._function(state)

    def __set__(self, estimator: object, value: object) -> None:
        raise AttributeError("Fitted attributes cannot be set; fit the estimator instead.")


class OfMatrix(Fitted[Model, T]):
    """A fitted attribute that needs the matrix, which the iterative solver does not form."""

    def value(self, state: Model) -> T:
        """Return the attribute of a model; raises AttributeError if the model has no matrix."""
        if state.matrix_free is not None:
            raise AttributeError(needs_matrix(self._name))
        return super().value(state)


class Regressor(Saved, RegressorMixin, BaseEstimator, Generic[M_co]):  # type: ignore[misc]
    """A regressor of returns, as scikit-learn sees it."""

    # Routed by default, since what divides the data in a search divides it here; `score` has no use for them.
    __metadata_request__fit: ClassVar = NOT_ROUTED | {"groups": True}
    __metadata_request__partial_fit: ClassVar = NOT_ROUTED
    __metadata_request__score: ClassVar = NOT_ROUTED | {"groups": False}

    model_: M_co  # the fitted state, as a whole
    n_features_in_: Fitted[State, int] = Fitted(attrgetter("n_given"), weights=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # its targets are returns, not the rewards in `y`
        return tags

    @property
    def _state(self) -> M_co:
        """The fitted state."""
        if "model_" not in vars(self):
            check_is_fitted(self)
        return self.model_

    @property
    def _model(self) -> M_co:
        """The fitted state; the first use of its weights after `partial_fit` gives the warnings about them."""
        state = self._state
        if not state.is_reported:
            reported = state.reported()
            carry_said(state, reported)
            self.model_ = reported
            return reported
        return state

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the features; exists only if the names in `X` were all strings."""
        names = self._state.names
        if names is None:
            raise AttributeError(f"This {type(self).__name__} was fitted to features without names.")
        return read_only(np.array(names, dtype=object))

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)


class Predictor(Regressor[Model]):
    """A regressor whose fitted state is one :class:`Model`."""

    record_kind = SavedModel

    model_: Model
    statistics_: OfMatrix[LSTDStatistics] = OfMatrix(
        lambda model: model.statistics.uncentred(model.settings.centre), weights=False
    )
    coef_: Fitted[Model, Array] = Fitted(lambda model: model.coef)
    intercept_: Fitted[Model, float | Array] = Fitted(lambda model: model.intercept)
    coef_covariance_: OfMatrix[Array] = OfMatrix(
        lambda model: model.influence.covariance()[0 if model.statistics.single else slice(None)]
    )
    condition_number_: OfMatrix[float] = OfMatrix(lambda model: model.solution.condition_number)
    n_iter_: Fitted[Model, int] = Fitted(lambda model: 1 if model.matrix_free is None else model.matrix_free.n_iter)
    residual_: Fitted[Model, float | None] = Fitted(
        lambda model: None if model.matrix_free is None else model.matrix_free.residual
    )
    n_transitions_: Fitted[Model, int] = Fitted(lambda model: model.statistics.n_transitions, weights=False)
    n_unused_rewards_: Fitted[Model, int] = Fitted(lambda model: model.statistics.n_unused_rewards, weights=False)
    n_episodes_: Fitted[Model, int] = Fitted(lambda model: model.statistics.n_episodes, weights=False)

    def _at(self, horizon: None) -> Linear:
        """Return what predicts; other estimators do so for a number of steps."""
        return self._model.linear

    def _needs_matrix(self, name: str) -> None:
        if self._model.matrix_free is not None:
            raise InvalidInputError(needs_matrix(name))

    @overload
    def predict(
        self, X: FeaturesLike, return_std: Literal[False] = False, *, clip: bool = ..., return_interval: None = ...
    ) -> Array: ...
    @overload
    def predict(
        self, X: FeaturesLike, return_std: Literal[False] = False, *, clip: bool = ..., return_interval: float
    ) -> Interval: ...
    @overload
    def predict(self, X: FeaturesLike, return_std: Literal[True], *, clip: bool = ...) -> tuple[Array, Array]: ...
    def predict(
        self, X: FeaturesLike, return_std: bool = False, *, clip: bool = False, return_interval: float | None = None
    ) -> Array | tuple[Array, Array] | Interval:
        """Predict the discounted sum of future rewards from each row.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
            If the model was fitted to named columns, those of a data frame may be in any order, among others.
        return_std : bool, default False
            Whether to return the standard error of each prediction too.
        clip : bool, default False
            Whether to move predictions to the nearest value that the rewards of the fit allow.
        return_interval : float in (0, 1), optional
            Return the :class:`lstd.inference.Interval` of this level and nothing else, as :meth:`predict_interval`
            does: so a scikit-learn Pipeline gives intervals. Neither `return_std` nor `clip` may be given with it.

        Returns
        -------
        prediction : ndarray of shape (T,) or (T, m)
        standard_error : ndarray of the same shape
            Only with `return_std`. How uncertain the expected return is, not how much single returns scatter about it.
            Zero where no data bears on a prediction: `predict_interval` flags such rows.

        Raises
        ------
        InvalidInputError
            When `X` breaks a rule; `return_std` is true and the model was fitted to too few episodes or rows; or `clip`
            is true and the model does not know rewards, as it was fitted to chunks or statistics.

        Warns
        -----
        ExtrapolationWarning
            When a dense feature of more than 2 % of the rows is outside of its range in the fit, by more than half of
            that range. At most 2000 rows are looked at; models fitted to chunks or statistics know no range.
        BoundsWarning
            When predictions of 30 rows or more are far outside of what rewards allow, after `partial_fit`; `fit` warns
            itself.
        """
        return_std = check_flag("return_std", return_std)
        if return_interval is not None:
            check_alone(return_std=return_std, clip=clip)
            return self.predict_interval(X, check_level(return_interval, "return_interval"))
        model = self._model
        linear = model.linear
        phi = checked_features(self, X, raw=True)
        prediction = linear.predict(phi)
        linear.warn_of_unlike(model, phi, prediction)
        if check_flag("clip", clip):
            prediction = linear.clipped(prediction)
        if not return_std:
            return prediction
        return prediction, linear.standard_error(phi).reshape(prediction.shape)

    def predict_interval(
        self,
        X: FeaturesLike,
        level: float = 0.95,
        weights: ArrayLike | None = None,
        scale: str = "identity",
        *,
        of: str = MEAN,
    ) -> Interval:
        """Compute intervals for what the same model would predict with unlimited data, the LSTD(λ) fixed point.

        With λ < 1 and features that cannot represent the values, the fixed point is not the truth, and the values may
        lie outside of the intervals: see :meth:`bias_check`.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        level : float in (0, 1), default 0.95
            Probability that the interval of a row contains the fixed point.
        weights : array-like of shape (T,), optional
            Compute one interval for the weighted sum Σ wᵢ v(xᵢ) instead of one per row. With weights 1/T it is for the
            mean over the rows; with weights 1 and -1 for the difference of two rows.
        scale : {"identity", "log", "logit"}, default "identity"
            Scale on which intervals are symmetric: "log" keeps them positive, "logit" between 0 and 1.
        of : {"mean", "return"}, default "mean"
            Only "mean": what comes has no interval here. Use :class:`lstd.inference.ReturnSpread` for the range of one
            return, or :class:`lstd.HorizonLSTD` for a number of steps.

        Returns
        -------
        Interval
            Arrays of shape (T,) or (T, m); with `weights`, numbers or arrays of shape (m,). `little_data` is
            true where little data bears on a row.

        Raises
        ------
        InvalidInputError
            When `X` breaks a rule, the model was fitted to too few episodes or rows, or without blocks, or a prediction
            is not on the scale.

        Warns
        -----
        ExtrapolationWarning, BoundsWarning
            As by :meth:`predict`.

        Examples
        --------
        The mean value of the states of Boyan's chain, and its interval:

        >>> import numpy as np
        >>> from lstd import LSTD
        >>> from lstd.mrp import BoyanChain
        >>> chain = BoyanChain()
        >>> stream = chain.simulate(n_steps=1000, seed=1)
        >>> phi = chain.interpolating_features
        >>> rows = {"X_next": phi[stream.states[1:]], "terminated": stream.terminated}
        >>> model = LSTD(gamma=1.0, alpha=0.01).fit(phi[stream.states[:-1]], stream.rewards, **rows)
        >>> interval = model.predict_interval(phi, weights=np.full(13, 1 / 13))
        >>> bool(interval.lower < chain.values.mean() < interval.upper)
        True
        """
        model = self._model
        linear = model.linear
        check_choice("scale", scale, SCALES)
        check_choice("of", of, OF)
        level = check_level(level)
        phi = checked_features(self, X)
        interval = linear.interval(phi, level, weights, scale, of)
        linear.warn_of_unlike(model, phi)
        return interval

    def contributions(self, X: FeaturesLike) -> Contributions:
        """Compute what each feature contributes to the predictions: its coefficient times its distance to its mean.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)

        Returns
        -------
        Contributions
            With `values` and `standard_error`; ``print`` shows the table of the first row.

        Raises
        ------
        InvalidInputError
            When `X` breaks a rule, or the model was fitted to chunks or statistics, so that it does not know the means.

        Warns
        -----
        ExtrapolationWarning, BoundsWarning
            As by :meth:`predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import LSTD
        >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.arange(40.0) % 7, np.tile([False, True], 20)
        >>> print(LSTD(gamma=0.5, alpha=0.0).fit(X, y, terminated=done).contributions([[1.0, 0.0]]))
        Contributions to the prediction of one row
        feature         x  mean     coef  contribution  std err
        (at the means)                           3.588
        x0              1   0.5   0.7375        0.3688     0.12
        x1              0   0.5  -0.7375        0.3688     0.12
        prediction                               4.325
        """
        model = self._model
        linear = model.linear
        phi = checked_features(self, X)
        contributions = Contributions.of(linear, phi)
        linear.warn_of_unlike(model, phi)
        return contributions

    def summary(self, level: float = 0.95) -> Summary:
        """Return a table of the coefficients with standard errors and intervals, and of what decides them.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Level of the intervals.

        Returns
        -------
        Summary
            ``print`` shows plain text, and notebooks show HTML. With `names`, `coefficients`, `interval`,
            `ridge_shares` and `observed_share`.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import LSTD
        >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
        >>> print(LSTD(gamma=0.5, fit_intercept=False).fit(X, y, terminated=done).summary())  # doctest: +ELLIPSIS
        LSTD
        rows                   40
        ...
        """
        model = self._model
        model = model.described(tested=backtest_of(self) or model.tested)
        return Summary(model, type(self).__name__, check_level(level))

    def bias_check(self, X: FeaturesLike, y: ArrayLike, **columns: Unpack[Columns]) -> BiasCheck:
        """Check for bias from bootstrapping: compare the predictions of this λ with those of λ = 1.

        Both are fitted to the data given, which should be the data of `fit`, with a tiny ridge coefficient. If chance
        does not explain the difference, the features cannot represent the values, and the values may lie outside of
        the intervals. No difference does not prove that there is no bias.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups
            As in :meth:`LSTD.fit`. All that the fit was given must be given here too, but `X_next`, which may be left
            out for a model that was fitted with it: the next row of the episode is then the successor.

        Returns
        -------
        BiasCheck
            With `difference`, `expected`, `size`, `residual`, `p_value` and `biased`.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule or is missing, there are too few episodes or rows, λ is 1, or γ is 1 and values
            are infinite, since no end is reached.

        Warns
        -----
        BiasWarning
            When the result is `biased`.
        """
        self._needs_matrix("bias_check")
        rows = comparable_rows(self, self._model, X, y, columns, _BIAS_CHECK, ones=True)
        return check_bias(rows, self._model)

    def misfit_check(
        self, X: FeaturesLike, y: ArrayLike, *, time: PerRow = None, **columns: Unpack[Columns]
    ) -> MisfitCheck:
        """Check for misfit: whether returns depend on the features in ways that no weighted sum of them can follow.

        Squares and products of the features, functions of the steps since the episode began and, with `time`, since the
        log began, and a small boosted tree are fitted beside the features with λ = 1, and tested with groups or
        episodes as independent. Intervals leave such a misfit out, and more data does not reduce it.
        :meth:`bias_check` looks for what a larger λ would change.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups
            As in :meth:`LSTD.fit`; usually the data of `fit`. All that the fit was given must be given here too, but
            `X_next`, which may be left out for a model that was fitted with it: the next row of the episode is then the
            successor.
        time : array-like of shape (T,), optional
            Numbers or dates of the rows, such as `time` of :class:`lstd.Trajectories`, which says whether returns
            changed in the course of the log, unless all episodes began at once.

        Returns
        -------
        MisfitCheck
            With `systematic`, `expected`, `standard_error`, `residual`, `p_value`, `of_age`, `of_time` and `misfit`.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule or is missing, or there are fewer than 10 groups or episodes, or 100 rows of one
            stream.

        Warns
        -----
        MisfitWarning
            When the result is a `misfit`.

        Examples
        --------
        A straight line cannot follow rewards that are the square of the only feature:

        >>> import warnings
        >>> import numpy as np
        >>> from lstd import LSTD
        >>> x, noise = np.linspace(-1.0, 1.0, 200), np.random.default_rng(0).normal(size=200)
        >>> ends = {"episode": np.arange(200), "terminated": np.ones(200, dtype=bool)}
        >>> for X in (np.column_stack([x]), np.column_stack([x, x**2])):
        ...     model = LSTD(gamma=0.0, fit_intercept=True).fit(X, 9 * x**2 + noise, **ends)
        ...     with warnings.catch_warnings(action="ignore"):
        ...         check = model.misfit_check(X, 9 * x**2 + noise, **ends)
        ...     print(check.misfit, round(check.systematic, 1))
        True 2.6
        False 0.0
        """
        self._needs_matrix("misfit_check")
        rows = comparable_rows(self, self._model, X, y, columns, _MISFIT_CHECK, ones=True)
        if time is not None:
            rows = rows.changed(time=steps_since_earliest(times_of(time, rows), rows.last))
        return check_misfit(rows, self._model)

    def score(
        self,
        X: FeaturesLike,
        y: ArrayLike,
        sample_weight: PerRow = None,
        *,
        unobserved: str = "predict",
        tolerance: float = TOLERANCE,
        **columns: Unpack[Columns],
    ) -> float:
        """Compute R² of the predictions against discounted returns, beside the best constant.

        Where an episode was cut off, its returns are known only in part. Leaving them out would bias the score: what
        ended early is always complete, what goes on never is. By default, the prediction at the cut completes them.
        Horizon rows are not scored.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups
            As in :meth:`LSTD.fit`; R² does not depend on groups. Without `episode` and `terminated`, the rows are one
            continuing stream. With `X_next`, a return goes on while each row is the successor of the row before; the
            prediction for `X_next` completes it there. Importance ratios make the returns those of the target policy:
            G_t = v_t + ρ_t (r_{t+1} + γ G_{t+1} − v_t), with predictions v. Their noise is in R², even for exact
            predictions. A trace coefficient c_{t+1} replaces G_{t+1} by c_{t+1} G_{t+1} + (1 − c_{t+1}) v_{t+1}. The
            weights are those of R². `X_next`, `weight` and `groups` may be left out for a model that was fitted with
            them: the next row of the episode is then the successor, and each row counts alike.
        sample_weight : array-like of shape (T,), optional
            Another weight of each row in R², as scikit-learn names it; the two are multiplied.
        unobserved : {"predict", "ipcw", "drop"}, default "predict"
            "predict" completes returns by the prediction at the cut. "ipcw" scores rows whose return is complete,
            weighted by the inverse Kaplan-Meier probability that it is, by steps since the first row of the episode:
            right if cuts do not depend on what would have followed. Episodes count alike in that probability, whatever
            their weights. "drop" scores the same rows with weight 1, and raises if some episodes terminated and others
            were cut off. The prediction completes what is left.
        tolerance : float in (0, 1], default 0.01
            For "ipcw" and "drop": a return is complete if the share γ^h of what follows its h observed transitions is
            below; 0.01 requires 459 transitions at γ = 0.99. At γ = 1 only episodes that terminated are complete.

        Returns
        -------
        float
            At most 1; the unweighted mean over several rewards. NaN, with scikit-learn's UndefinedMetricWarning, if
            fewer than two rows are scored and neither `episode` nor `terminated` is given.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule; when fewer than two rows are scored; when "ipcw" would need infinite weights,
            or "drop" a biased sample; when the model was fitted to several episodes, or with `X_next`, and neither
            `episode` nor `terminated` is given; when it was fitted with importance ratios, trace coefficients or
            discounts and none are given.

        Warns
        -----
        UnobservedWarning
            When less than half of the discounted weight of the returns was observed.
        BoundsWarning
            When predictions are far outside of what the rewards, those of the fit included, allow; as by `fit`.
        ExtrapolationWarning
            When features are far outside of their range in `fit`; as by :meth:`predict`.
        SupportWarning
            When the mean importance ratio is not 1; as by `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import LSTD
        >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
        >>> round(LSTD(alpha=0.1).fit(X, y, terminated=done).score(X, y, terminated=done), 3)
        1.0
        """
        compared = compare(self, X, y, columns, _SCORE, unobserved=unobserved, tolerance=tolerance, warn=True)
        rows = compared.rows
        weight = compared.observed.weight
        model = self._model
        if np.count_nonzero(weight) < 2:
            message = _too_few(compared, tolerance, unobserved)
            if any(columns.get(name) is not None for name in ("episode", "terminated")):
                raise InvalidInputError(message)
            warn(message, UndefinedMetricWarning)
            return float("nan")
        if sample_weight is not None:
            weight = weight * check_per_row("sample_weight", sample_weight, len(weight), what="weight")
            if not weight.any():
                raise InvalidInputError("`sample_weight` must be above 0 for some row that is scored; got 0 for all.")
        value = mean_r2(compared.observed, compared.prediction, weight)
        limits = Limits.of_rows(rows) if model.limits is None else model.limits.then(rows)
        predictions = model.predict(rows.part).reshape(rows.part.shape[0], -1)
        share = replace(compared.observed, weight=weight).share
        text = with_backtest(little_observed(share, SELF_SCORED), backtest_of(self))
        warn_once(model, text, UnobservedWarning)
        warn_once(model, beyond_bounds(predictions, limits.bounds(model.settings)), BoundsWarning)
        warn_once(model, support_doubt(rows, rows.importance_ratio), SupportWarning)
        model.linear.warn_of_unlike(model, rows.X)
        return value

    def to_record(self) -> SavedModel:
        """Return what a file holds of the fitted model."""
        return SavedModel.of(self._model)

    @classmethod
    def of_record(cls, record: SavedModel, path: str | os.PathLike[str]) -> Self:
        """Return the estimator of a file; raises InvalidInputError if it is of the other class."""
        saved = "LSTD" if record.selection is None else "LSTDCV"
        if saved != cls.__name__:
            raise InvalidInputError(
                f"{path} must hold an {cls.__name__}; it holds an {saved}. Load it with `lstd.load`."
            )
        return cls.of_model(record.model())

    @classmethod
    def of_model(cls, model: Model) -> Self:
        """Return an estimator with the parameters and the fitted state of `model`."""
        values = {**vars(model.settings), **model.options}
        estimator = cls(**{name: values[name] for name in inspect.signature(cls).parameters if name in values})
        estimator.model_ = model
        return estimator


@dataclass(frozen=True, eq=False)
class Comparison:
    """Checked rows with their predictions, of shape (T, m), and returns."""

    rows: Rows
    prediction: Array
    observed: ObservedReturns

    @property
    def returns(self) -> Array:
        """Returns of shape (T, m)."""
        return self.observed.returns.reshape(self.prediction.shape)

    @classmethod
    def of(cls, linear: Linear, rows: Rows, *, unobserved: str, tolerance: float) -> Comparison:
        """Bring checked rows together with the predictions of a fitted function."""
        prediction = linear.predict(rows.X).reshape(rows.y.shape)
        ahead = None
        if rows.X_next is not None:
            ahead = linear.predict(rows.X_next).reshape(rows.y.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # scores are checked
            returns = observed(rows, prediction, ahead, unobserved=unobserved, tolerance=tolerance)
        return cls(rows, prediction, returns)


def compare(
    estimator: Predictor,
    X: FeaturesLike,
    y: Any,
    columns: Columns,
    takes: Takes,
    *,
    unobserved: str,
    tolerance: float,
    warn: bool,
) -> Comparison:
    """Check rows for an estimator, and bring them together with its predictions.

    Raises InvalidInputError when an argument breaks a rule.
    """
    tolerance = check_treatment(unobserved, tolerance)
    model = estimator._model
    rows = comparable_rows(estimator, model, X, y, columns, takes, finite=True)
    if warn and rows.assumed:
        warn_once(model, assumed_cut(), MissingTerminationWarning)
    return Comparison.of(model.linear, rows, unobserved=unobserved, tolerance=tolerance)


def times_of(time: Any, rows: Rows) -> NDArray[Any]:
    """Return times that were given, (T,), numbers or times of NumPy, in the order of the rows."""
    times = parse_times("time", time)
    if times.shape != (len(rows),):
        raise InvalidInputError(f"`time` must have one entry per row of `X`, shape ({len(rows)},); got {times.shape}.")
    if rows.order is not None:
        times = times[rows.order]
    return times


def check_alone(**others: bool) -> None:
    """Refuse other wishes beside `return_interval`, which returns an Interval."""
    for name, value in others.items():
        if value:
            raise InvalidInputError(
                f"`{name}` must not be given with `return_interval`: an interval has the prediction, its ends and its "
                "standard error. Leave one of the two out."
            )


def mean_r2(observed: ObservedReturns, prediction: Array, weight: Array) -> float:
    """Compute the mean R² of rewards; where all returns are equal, it counts as 1 if they are predicted, else as 0."""
    r2, mse = observed.scores(prediction, weight)
    return float(np.where(np.isnan(r2), mse == 0.0, r2).mean())


def _too_few(compared: Comparison, tolerance: float, unobserved: str) -> str:
    rows = compared.rows
    shares = compared.observed.unobserved
    n_scored = np.count_nonzero(compared.observed.weight)
    if unobserved == "predict":
        return (
            f"A score needs at least two rows that are followed by another one or terminate; got {n_scored} of "
            f"{len(rows)} rows. Pass more rows, or `terminated` for episodes that ended for good."
        )
    least = f"; the smallest such share is {shares[rows.full].min():.2g}" if rows.full.any() else ""
    return (
        f"A score needs at least two rows with a complete return; got {n_scored} of {len(rows)} rows. A return is "
        f"complete if the share of its discounted future that was cut off is below {tolerance:g}{least}. Use "
        'unobserved="predict", score longer episodes, pass `terminated` for those that ended for good, or raise '
        "`tolerance`."
    )
