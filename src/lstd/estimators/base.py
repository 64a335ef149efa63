"""What fitted models share: predictions, their errors and intervals, and the score."""

from __future__ import annotations

import os
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from lstd.data.checks import check_flag, check_real, to_real_array
from lstd.data.returns import TOLERANCE
from lstd.data.rows import Rows, check_rows
from lstd.errors import InvalidInputError
from lstd.errors import warn as give_warning
from lstd.estimators.bias_check import BiasCheck, check_bias
from lstd.estimators.inputs import checked_features, present, rows_of
from lstd.estimators.intervals import Interval
from lstd.estimators.metrics import returns_of_rows
from lstd.estimators.model import Model
from lstd.estimators.saving import read_model, write_model
from lstd.statistics.statistics import LSTDStatistics

Array = NDArray[np.float64]


class Predictor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor whose whole fitted state is `model_`."""

    model_: Model

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predicted discounted sum of future rewards of each row, whatever rows were seen before.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        return_std : bool, default False
            Return the standard error of each prediction too.

        Returns
        -------
        prediction : ndarray of shape (T,) or (T, m)
        standard_error : ndarray of the same shape
            Only with `return_std`. It is that of the value, an expectation, and not the spread of returns about it.
            Zero where no data bears on a prediction: `predict_interval` flags such rows.

        Raises
        ------
        InvalidInputError
            When a standard error is asked for, and the model was fitted to too few episodes or rows for one.
        """
        check_is_fitted(self)
        return_std = check_flag("return_std", return_std)
        phi = checked_features(self, X)
        prediction = self.model_.predict(phi)
        if not return_std:
            return prediction
        return prediction, self.model_.influence.standard_error(phi).reshape(prediction.shape)

    def predict_interval(self, X: Any, level: float = 0.95) -> Interval:
        """Intervals for the values of rows: for the LSTD(λ) fixed point, that is, to which endless data would lead.

        With λ < 1 and features that cannot represent the values, the values themselves may lie outside:
        see :func:`bias_check`.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        level : float in (0, 1), default 0.95
            Share of data sets whose interval holds the fixed point, for each row by itself.

        Returns
        -------
        Interval
            With `lower`, `upper`, `prediction`, `standard_error`, `degrees_of_freedom` and `flagged`, each of shape
            (T,) or (T, m). Rows are flagged on which too little data bears.

        Raises
        ------
        InvalidInputError
            When the model was fitted to too few episodes or rows, or keeps no sums over stretches of the data.
        """
        check_is_fitted(self)
        level = check_real("level", level, 0.0, np.inf)
        if not 0.0 < level < 1.0:
            raise InvalidInputError(f"`level` must be between 0 and 1, as 0.95 is; got {level:g}.")
        return self.model_.interval(checked_features(self, X), level)

    def bias_check(
        self,
        X: Any,
        y: ArrayLike,
        *,
        episode: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        X_next: Any = None,
        discount: ArrayLike | None = None,
        importance_ratio: ArrayLike | None = None,
    ) -> BiasCheck:
        """Look for gross bias from bootstrapping: compare the predictions of this λ with those of λ = 1.

        Both are fitted to the data given, the same as for `fit`, with a ridge term that hardly counts. A difference
        that chance does not explain means that the features cannot represent the values, and that values may lie
        outside of the intervals. No such difference does not prove that there is no bias.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio
            As in :meth:`LSTD.fit`.

        Returns
        -------
        BiasCheck
            With `difference`, `expected`, `size`, `p_value` and `biased`.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule, there are too few episodes or rows, or λ is 1 already.

        Warns
        -----
        BiasWarning
            When the p-value is below 0.01.
        """
        check_is_fitted(self)
        columns = {
            "episode": episode, "terminated": terminated, "X_next": X_next, "discount": discount,
            "importance_ratio": importance_ratio,
        }  # fmt: skip
        rows = rows_of(self, X, y, columns, self.model_.settings)
        _check_rewards(rows, self.model_)
        return check_bias(rows, self.model_)

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
            As in :meth:`fit`, rows in time order. Without `episode` and `terminated` they are one stream that has not
            ended. Importance ratios are not taken into account: returns are those of the policy that was followed.
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
            When an array breaks a rule; when fewer than two rows count; when the model was fitted to several episodes,
            or with `X_next`, and neither `episode` nor `terminated` is given.
        """
        check_is_fitted(self)
        tolerance = check_real("tolerance", tolerance, 0.0, 1.0, open_low=True)
        told = episode is not None or terminated is not None
        if not told:
            _check_one_stream(self.model_.statistics)
        phi = checked_features(self, X)
        rows = check_rows(
            phi, present(y), gamma=self.model_.settings.gamma, episode=episode, terminated=terminated, discount=discount
        )
        _check_rewards(rows, self.model_)
        weights = None if sample_weight is None else _check_weights(sample_weight, len(rows))
        observed = returns_of_rows(rows, tolerance)
        counts = observed.counts
        if counts.sum() < 2:
            _refuse_or_warn(int(counts.sum()), rows, observed.unobserved, tolerance, told)
            return float("nan")
        if weights is not None and not weights[counts].any():
            raise InvalidInputError(
                "`sample_weight` must be above 0 for some row whose return was observed; got 0 for all of them."
            )
        returns = observed.returns.reshape(len(rows), -1)[counts]
        predicted = self.model_.predict(phi[counts]).reshape(returns.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            found = float(r2_score(returns, predicted, sample_weight=None if weights is None else weights[counts]))
        if not np.isfinite(found):
            raise InvalidInputError(
                "`X`, `y` and `sample_weight` must not be so large that the sum of squares overflows."
            )
        return found

    @property
    def statistics_(self) -> LSTDStatistics:
        """Sums over the data."""
        check_is_fitted(self)
        return self.model_.statistics

    @property
    def coef_(self) -> Array:
        """Weights, shape (n_features,) or (n_rewards, n_features)."""
        check_is_fitted(self)
        return self.model_.coef

    @property
    def intercept_(self) -> float | Array:
        """Weight of the column of ones, a number or of shape (n_rewards,)."""
        check_is_fitted(self)
        return self.model_.intercept

    @property
    def coef_covariance_(self) -> Array:
        """Covariance of the weights, shape (n_features, n_features) or (n_rewards, n_features, n_features)."""
        check_is_fitted(self)
        covariance = self.model_.influence.covariance()
        return covariance[0] if self.model_.statistics.single else covariance

    @property
    def condition_number_(self) -> float:
        """Condition number of the system that was solved."""
        check_is_fitted(self)
        return self.model_.solution.condition_number

    @property
    def n_transitions_(self) -> int:
        """Full transitions seen."""
        return self.statistics_.n_transitions

    @property
    def n_episodes_(self) -> int:
        """Episodes begun."""
        return self.statistics_.n_episodes

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        check_is_fitted(self)
        return self.model_.n_features

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the features, if `X` had names that are all strings."""
        check_is_fitted(self)
        if self.model_.names is None:
            raise AttributeError(f"This {type(self).__name__} was fitted to features without names.")
        return np.array(self.model_.names, dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, whole or not at all; an existing file is replaced. It holds nothing executable.

        Parameters
        ----------
        path : path-like

        Raises
        ------
        InvalidInputError
            When the first or last episode's id is neither an integer nor a float nor text.
        OutputError
            When the file could not be written.
        """
        check_is_fitted(self)
        write_model(self.model_, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote: as :func:`lstd.load`, for a file of this class only."""
        model = read_model(path)
        saved = "LSTD" if model.selection is None else "LSTDCV"
        if saved != cls.__name__:
            raise InvalidInputError(
                f"{path} must hold an {cls.__name__}; it holds an {saved}. Load it with `lstd.load`."
            )
        return cls.of_model(model)

    @classmethod
    def of_model(cls, model: Model) -> Self:
        """Return an estimator that holds `model`."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # its targets are returns, not the rewards in `y`
        return tags


def _check_one_stream(statistics: LSTDStatistics) -> None:
    """Refuse to take rows as one stream that has not ended for a model that was fitted to something else."""
    if statistics.n_episodes > 1:
        was = f"to {statistics.n_episodes} episodes: else the rows are taken as one"
    elif statistics.successors:
        was = "with `X_next`: returns are those of rows that follow one another (flags that are all False say so)"
    else:
        return
    raise InvalidInputError(
        f"`episode` or `terminated` must be given to `score` a model that was fitted {was}. In a Pipeline or search, "
        "route them with set_score_request."
    )


def _check_rewards(rows: Rows, model: Model) -> None:
    if rows.y.shape[1] != model.statistics.b.shape[1]:
        raise InvalidInputError(
            f"`y` must have the rewards that the model predicts, {model.statistics.b.shape[1]}; got {rows.y.shape[1]}."
        )


def _check_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    weights = np.asarray(to_real_array("sample_weight", sample_weight), dtype=np.float64)
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
    give_warning(message, UndefinedMetricWarning)
