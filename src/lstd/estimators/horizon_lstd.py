"""The value of the next h steps for all h up to a horizon, as a scikit-learn regressor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from lstd.data.age_columns import AgeColumns
from lstd.data.arguments import check_array, check_choice, check_flag, check_integer, check_real, shown
from lstd.data.doubts import SELF_SCORED, assumed_cut, backtest_of, little_observed, with_backtest
from lstd.data.follow import check_equal
from lstd.data.returns import UNOBSERVED, ObservedReturns
from lstd.data.rows import Columns, PerRow, Rows
from lstd.data.seen_ids import episodes_seen
from lstd.data.settings import ALPHA, LMBDA, PENALTIES, SPREAD, Settings
from lstd.data.takes import GIVE_HORIZON_ROWS, OF_FIT, OF_RETURNS, Takes, names_given
from lstd.data.time_steps import steps_since_earliest
from lstd.errors import InvalidInputError, MissingTerminationWarning, UnobservedWarning, carry_said, warn_once
from lstd.estimators.base import Fitted, Regressor, check_alone, mean_r2, times_of
from lstd.estimators.bias_check import rows_of_check, sizes_of_check
from lstd.estimators.contributions import Contributions
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.linear import Linear
from lstd.estimators.model_parts import BiasCheck, MisfitCheck
from lstd.estimators.rows_of_stream import RowsOfStream
from lstd.estimators.step_checks import check_bias_of_steps, check_misfit_of_steps, with_checks
from lstd.estimators.step_refit import Refit
from lstd.estimators.summary import StepsSummary
from lstd.estimators.validate_data import checked_features, checked_rows
from lstd.statistics.intervals import MEAN, OF, SCALES, Interval, check_level
from lstd.types import Array, FeaturesLike

_LONGEST = 10_000  # steps
_COLUMNS = ("episode", "terminated", "discount", "weight", "groups")
_REMEDIES = {
    "X_next": GIVE_HORIZON_ROWS,
    "importance_ratio": "Use LSTD for data of another policy.",
    "trace_coefficient": "Use LSTD for data of another policy.",
}


def _takes(method: str) -> Takes:
    """Return the columns that a method takes."""
    return Takes(f"HorizonLSTD.{method}", _COLUMNS, _REMEDIES)


_FIT = _takes("fit")
_PARTIAL_FIT = _takes("partial_fit")
_OBSERVED_RETURNS = _takes("observed_returns")
_BIAS_CHECK = _takes("bias_check")
_MISFIT_CHECK = _takes("misfit_check")
_SCORE = _takes("score")


class _Parameters(NamedTuple):
    """Checked parameters."""

    horizon: int
    settings: Settings
    bounds: tuple[float | None, float | None]  # of predictions


class HorizonLSTD(Regressor[HorizonModel]):
    """The expected sum of rewards over the next h steps, for all h up to a horizon.

    The value of h steps is fitted to the rewards that came, and to the values of fewer steps where an episode was cut
    off. No row is kept: the sums of lags determine the weights for every λ and α.

    Parameters
    ----------
    horizon : int
        Largest number of steps, H. Steps must be equal, such as weeks; :meth:`lstd.Trajectories.from_events` makes
        equal steps of a log of events.
    gamma : float in [0, 1], default 1.0
        Discount per step.
    lmbda : float in [0, 1] or "auto", default 0.9
        Trace decay. 1 uses rewards alone where they were observed, 0 those of the next step and the values after it.
    alpha : float, array-like of shape (n,) or "auto", default 1.0
        Ridge coefficient of all features, or of each, times their `penalty`. With "auto", `lmbda` or `alpha` is chosen
        by the errors on held-out groups, episodes or rows. Start with the defaults; a choice pays where the data are
        few for the columns, or `fit` warns of bias.
    fit_intercept : bool, default True
    n_blocks : int or "auto", default "auto"
        Most blocks of data for intervals: 64, or fewer if their sums would take more than 256 MiB; 0 for none.
        Intervals need a limit of ten or more, or "auto"; where memory holds fewer than five, they say so. The choice
        of settings needs two.
    low, high : float, optional
        Bounds of predictions and of the ends of intervals, such as 0 and 1 for the probability of an event. With `of`
        "return", ends of totals stay within the sums of them, so they must hold for what comes.
    penalty : {"spread", "raw"} or array-like of shape (n,), default "spread"
        Factor of `alpha` for each feature. "spread" is its squared spread over all full transitions, so that units of
        features make no difference: the mean square over the rows that are not zero, where they are fewer than half;
        else the variance, about zero without an intercept; 1 for constant features. "raw" is 1, as in
        :class:`lstd.LSTD`. Numbers, at least 0, are factors of their own; 0 leaves a feature without a penalty.
    check : bool, default True
        Whether `fit` checks the model, of `horizon` steps, for misfit and, where λ < 1, for bias, and scores it on
        held-out groups, also beside two naive forecasts. A misfit counts only if what a warning would advise lowers the
        error on such groups, and from two cuts of the log on, by 1 %. It takes whole groups or episodes from all over
        the rows, the same ones each time: up to 2¹⁶ features in all, or 2000 rows or 64 groups if these are more; to
        look ahead from cuts of the log, up to 2¹⁹.
        :func:`lstd.fit_tables` takes the same rows, whatever its chunks. `partial_fit` checks nothing, as no row
        is kept, and forgets what was found before: call :meth:`misfit_check` and :meth:`bias_check`. Files keep what
        was found.
    age : str or int, optional
        Name or number of a feature: steps since the subject was first seen, such as `since_first` of
        :class:`lstd.Trajectories`. The columns e^(−s/4ᵏ), k = 0, 1, … while 4ᵏ ≤ H, and the products of the other
        features with the first and the last of them, replace it. So an effect of a beginning may fade at any speed, and
        predictions for older subjects than any that was seen stay in range. `alpha` and `penalty` per feature count for
        the products of a feature too.

    Attributes
    ----------
    coef_ : ndarray of shape (H, n), or (H, m, n) for several rewards
        With `age`, n is the number of columns with the age replaced.
    coef_names_ : ndarray of shape (n,)
        Names of the columns of `coef_`: of the features, or of what replaces the age, such as "exp(-since_first/4)".
    intercept_ : ndarray of shape (H,) or (H, m)
    lmbda_, alpha_ : float
        The trace decay and the ridge coefficient, chosen or given; for `alpha` per feature their factor, 1.
    ridge_ : ndarray of shape (n,)
        Ridge coefficient of each feature: `alpha_` times its penalty, and times `alpha` if that is one per feature.
    cv_results_ : dict of ndarray
        After a choice, ``lmbda``, ``alpha`` and ``cost``, the error beside that of the pair that was best before.
    misfit_check_ : MisfitCheck or str
        Result of :meth:`misfit_check` in `fit`, or why it did not run.
    bias_check_ : BiasCheck or str
        The same of :meth:`bias_check`. `fit` gives the warnings of both.
    n_transitions_, n_episodes_, n_features_in_, feature_names_in_
        As in :class:`lstd.LSTD`.

    Notes
    -----
    The value of h steps is that of h − 1 steps from the next row on, plus the reward; a horizon row stands for all
    steps that are left there. With λ = 1 and episodes that are longer than H, it is ridge regression on the rewards of
    the next h steps.

    References
    ----------
    K. De Asis, A. Chan, S. Pitis, R. S. Sutton, D. Graves, "Fixed-horizon temporal difference methods for stable
    reinforcement learning", AAAI-20, arXiv 1909.03906.

    Examples
    --------
    Two customers who buy in every second week:

    >>> import numpy as np
    >>> from lstd import HorizonLSTD
    >>> X, y = np.tile(np.eye(2), (20, 1)), np.tile([1.0, 0.0], 20)
    >>> model = HorizonLSTD(horizon=4, alpha=1e-9, fit_intercept=False).fit(X, y, episode=np.repeat([1, 2], 20),
    ...     terminated=np.zeros(40, dtype=bool))
    >>> model.predict_curve(np.eye(2)).round(3)
    array([[1., 1., 2., 2.],
           [0., 1., 1., 2.]])
    >>> model.predict(np.eye(2), horizon=3).round(3)
    array([2., 1.])
    """

    record_kind = HorizonModel
    model_: HorizonModel

    def __init__(
        self,
        horizon: int,
        gamma: float = 1.0,
        lmbda: float | str = LMBDA,
        alpha: float | ArrayLike | str = ALPHA,
        fit_intercept: bool = True,
        n_blocks: int | str = "auto",
        low: float | None = None,
        high: float | None = None,
        penalty: str | ArrayLike = SPREAD,
        check: bool = True,
        age: str | int | None = None,
    ) -> None:
        self.horizon = horizon
        self.gamma = gamma
        self.lmbda = lmbda
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.n_blocks = n_blocks
        self.low = low
        self.high = high
        self.penalty = penalty
        self.check = check
        self.age = age

    def fit(self, X: FeaturesLike, y: ArrayLike, *, time: PerRow = None, **columns: Unpack[Columns]) -> Self:
        """Fit to rows in time order, of equal steps; any earlier fit is forgotten.

        Parameters
        ----------
        X, y, episode, terminated, discount, weight, groups
            As in :meth:`lstd.LSTD.fit`. The last row of an episode that did not terminate is its horizon row.
        time : array-like of shape (T,), optional
            Numbers or dates of the rows, such as `time` of Trajectories, to check that steps are equal; and, unless all
            episodes began at once, whether returns changed in the course of the log.

        Returns
        -------
        self : HorizonLSTD

        Raises
        ------
        InvalidInputError
            When a parameter or an array breaks a rule, steps are not equal, or no row is a full transition.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.
        MissingTerminationWarning
            When `episode` is given without `terminated`: the episodes are taken as cut off.
        RidgeWarning, UnobservedWarning, BoundsWarning, ExtrapolationWarning, UnusedRewardWarning
            As in :meth:`lstd.LSTD.fit`, for the sum of rewards over `horizon` steps.
        MisfitWarning, BiasWarning
            When the checks of the model find something. A MisfitWarning also says if predictions have clearly larger
            errors than a naive forecast: that each of the next steps brings what as many steps before brought, or all
            before, on average. Where no episode terminated, predictions are fitted to what was known at cuts.
        """
        rows = self._checked(None, X, y, columns, _FIT, sort=True)
        clock = None
        if time is not None:
            times = times_of(time, rows)
            clock = check_equal(times, rows)
        if not rows.full.any():
            raise InvalidInputError(
                f"`X` must hold a full transition; got n_samples={len(rows)}, and no row is followed by a row of its "
                "episode, or terminated. Pass more rows."
            )
        model = self._then(None, rows, clock=clock)
        if time is not None:  # only for the checks: a stream keeps rows without times
            rows = rows.changed(time=steps_since_earliest(times, rows.last))
        n = model.n_features
        self.model_ = self._doubted(model, rows, rows_of_check(rows, n), rows_of_check(rows, n, ahead=True))
        return self

    def partial_fit(self, X: FeaturesLike, y: ArrayLike, *, time: PerRow = None, **columns: Unpack[Columns]) -> Self:
        """Continue the stream: the first row is the successor of the last row of the previous chunk.

        It is not if that row terminated or has another `episode` id. Chunks may be empty or of one row; any split of
        the data gives the same model up to rounding. Weights are solved for when they are first used. Until there is a
        full transition, they are zero; "auto" needs blocks to choose by, and raises. A loaded model keeps its λ and α,
        and has no intervals once it is continued, since files do not keep the blocks of the data; of the ids, it
        remembers only the last.

        Parameters
        ----------
        X, y, time, episode, terminated, discount, weight, groups
            As in :meth:`fit`, with the same errors. Warnings of `predict` and other methods come once, of each
            feature, on a stream as a whole.

        Returns
        -------
        self
        """
        before: HorizonModel | None = vars(self).get("model_")
        rows = self._checked(before, X, y, columns, _PARTIAL_FIT)
        if not len(rows):
            if before is None:
                self.model_ = self._then(None, rows)
            return self
        clock = None
        if time is not None:
            clock = check_equal(times_of(time, rows), rows, before.clock if before else None)
        model = self._then(before, rows, clock=clock)
        if before is not None:
            carry_said(before, model)
        self.model_ = model
        return self

    def fit_stream(self, chunks: Iterable[tuple[Rows, NDArray[Any] | None]], rewards: tuple[str, ...]) -> Self:
        """Fit to chunks of a stream that were checked, with the times of their rows, if any; see `lstd.fit_tables`.

        Rewards have these names. The first chunk is looked at for doubts, rows from all chunks are checked.
        """
        state: HorizonModel | None = None
        first: Rows | None = None
        samples: list[RowsOfStream] = []  # for the checks, and to look ahead
        for rows, times in chunks:
            state = self._then(state, rows, keep_ids=False, rewards=rewards)
            if first is None:
                first = rows
                n = state.n_features
                samples = [RowsOfStream(*sizes_of_check(n, ahead=ahead)) for ahead in (False, True)]
            for sample in samples:
                sample.add(rows, times)
        if state is None or first is None:
            raise InvalidInputError("`source` must have at least one row; got none. Check the filter that made it.")
        some, more = samples
        self.model_ = self._doubted(state, first, some.rows, more.rows)
        return self

    def _doubted(self, model: HorizonModel, rows: Rows, some: Rows, more: Rows) -> HorizonModel:
        """Return a fitted model with what rows of the fit say against it, and checks of some, and warn of it.

        The checks look ahead by more of them.
        """
        model.check_weighted()
        model = model.reported().doubted(rows, backtest_of(self))
        if model.check:
            model = with_checks(model, some, more)
        return model

    def _checked(
        self,
        before: HorizonModel | None,
        X: FeaturesLike,
        y: Any,
        columns: Columns,
        takes: Takes,
        *,
        sort: bool = False,
    ) -> Rows:
        """Check rows that follow those of a model, if there is one."""
        rows = checked_rows(
            self if before else BaseEstimator(),
            X,
            y,
            columns,
            takes,
            gamma=self._parameters().settings.gamma,
            reset=not before,
            warn=before is None or not before.stream.total.n_rows,
            sort=sort,
            finite=True,
        )
        if before is not None:
            m = len(before.reward_names)
            if rows.y.shape[1] != m:
                raise InvalidInputError(f"`y` must have {m} rewards, as in the fit; got {rows.y.shape[1]}.")
        return rows

    def _comparable(self, X: FeaturesLike, y: Any, columns: Columns, takes: Takes, needed: Sequence[str]) -> Rows:
        """Check rows to compare with the model, which need some of the columns of its fit.

        Where these are all columns, they are in order of their groups.
        """
        model = self._model
        model.check_given(names_given(columns), needed)
        return self._checked(model, X, y, columns, takes, sort="groups" in needed)

    def _then(self, before: HorizonModel | None, rows: Rows, *, keep_ids: bool = True, **about: Any) -> HorizonModel:
        """Return the model with the next rows of a stream, or of its first rows."""
        parameters = self._parameters()
        horizon = parameters.horizon
        settings = parameters.settings
        bounds = parameters.bounds
        spreads = self._spreads
        age = None
        if self.age is not None:
            names = rows.names if before is None else before.names
            age = AgeColumns.in_place_of(self.age, names, rows.n_features, horizon)
        about["check"] = check_flag("check", self.check)
        if before is not None:
            was = (before.stream.horizon, replace(before.settings, centre=None), before.spreads, _place(before.age))
            if (horizon, settings, spreads, _place(age)) != was:
                raise InvalidInputError(
                    "Parameters must stay as they were at the first chunk. Set them back, or use `fit`."
                )
        if before is None or not before.stream.total.n_rows:
            if before is not None:
                about["warned"] = before.warned
            about["episodes"] = episodes_seen(rows) if keep_ids else None
            return HorizonModel.of_rows(
                rows, horizon, settings, self.n_blocks, age=age, bounds=bounds, spreads=spreads, **about
            )
        if keep_ids:
            goes_on = before.stream.total.continued_by(rows)
            about["episodes"] = episodes_seen(rows, before.episodes, continues=goes_on)
        return before.then(rows, bounds=bounds, **about)

    def _parameters(self) -> _Parameters:
        """Return the checked horizon, settings and bounds."""
        settings = Settings.with_choice(self.gamma, self.lmbda, self.alpha, fit_intercept=self.fit_intercept)
        penalty: Any = self.penalty
        if not isinstance(penalty, str):
            settings = replace(settings, penalty=penalty)
        if settings.penalty is None and penalty not in PENALTIES:
            raise InvalidInputError(
                f'`penalty` must be one of "spread" and "raw", or numbers; got {shown(self.penalty)}. Correct it.'
            )
        low = self._bound("low")
        high = self._bound("high")
        if low is not None and high is not None and not low < high:
            raise InvalidInputError(f"`low` must be below `high`; got {self.low} and {self.high}.")
        return _Parameters(check_integer("horizon", self.horizon, 1, _LONGEST), settings, (low, high))

    def _bound(self, name: str) -> float | None:
        """Return the bound "low" or "high" of predictions, if it is given."""
        value = getattr(self, name)
        if value is None:
            return None
        return float(check_real(name, value, -np.inf, np.inf))

    @property
    def _spreads(self) -> bool:
        """Whether the penalty of each feature is its squared spread."""
        return isinstance(self.penalty, str) and self.penalty == SPREAD

    @overload
    def predict(
        self,
        X: FeaturesLike,
        horizon: int | tuple[int, int] | None = ...,
        return_std: Literal[False] = ...,
        *,
        return_interval: None = ...,
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: FeaturesLike,
        horizon: int | tuple[int, int] | None = ...,
        return_std: Literal[False] = ...,
        *,
        return_interval: float,
    ) -> Interval: ...
    @overload
    def predict(
        self, X: FeaturesLike, horizon: int | tuple[int, int] | None, return_std: Literal[True]
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self, X: FeaturesLike, horizon: int | tuple[int, int] | None = ..., *, return_std: Literal[True]
    ) -> tuple[Array, Array]: ...
    def predict(
        self,
        X: FeaturesLike,
        horizon: int | tuple[int, int] | None = None,
        return_std: bool = False,
        *,
        return_interval: float | None = None,
    ) -> Array | tuple[Array, Array] | Interval:
        """Predict the sum of rewards over the next steps from each row.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        horizon : int or (int, int), optional
            Number of steps, from 1 to that of the model, which is the default; or a window (a, b), 0 ≤ a < b, of the
            steps a + 1, …, b, from the differences of the weights and of their influences. The bounds `low` and `high`
            hold for a window of each reward that has one sign in all rows of the fit.
        return_std : bool, default False
            Whether to return the standard error of each prediction too, (T,) or (T, m).
        return_interval : float in (0, 1), optional
            Return the intervals of this level, as :meth:`predict_interval` does: so a scikit-learn Pipeline gives them.

        Returns
        -------
        ndarray of shape (T,) or (T, m), or Interval

        Warns
        -----
        ExtrapolationWarning
            When features are far outside of their range in `fit`, or half of the rows have an `age` that at most a
            tenth of the rows had that were followed by others.
        """
        if return_interval is not None:
            check_alone(return_std=return_std)
            level = check_level(return_interval, "return_interval")
            return self.predict_interval(X, level, horizon=horizon)
        linear = self._at(horizon)
        phi = checked_features(self, X, raw=True)
        prediction = linear.predict(phi)
        linear.warn_of_unlike(self._model, phi)
        if not return_std:
            return prediction
        return prediction, linear.standard_error(phi).reshape(prediction.shape)

    def predict_curve(self, X: FeaturesLike) -> Array:
        """Predict the sums of rewards over the next 1, 2, …, H steps from each row.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)

        Returns
        -------
        ndarray of shape (T, H) or (T, H, m)

        Warns
        -----
        ExtrapolationWarning
            As by :meth:`predict`.
        """
        model = self._model
        horizon = model.stream.horizon
        linear = model.at(range(1, horizon + 1))
        phi = checked_features(self, X, raw=True)
        values = linear.predict(phi)
        linear.warn_of_unlike(model, phi)
        if model.single:
            return values
        return values.reshape(len(values), horizon, -1)

    def predict_interval(
        self,
        X: FeaturesLike,
        level: float = 0.95,
        weights: ArrayLike | None = None,
        horizon: int | tuple[int, int] | None = None,
        scale: str = "identity",
        *,
        of: str = MEAN,
    ) -> Interval:
        """Compute intervals for what the same model would predict with unlimited data, or for what will come.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        level : float in (0, 1), default 0.95
        weights : array-like of shape (T,), optional
            Compute one interval for the weighted sum Σ wᵢ v(xᵢ) instead of one per row. Bounds `low` and `high` do not
            apply to its prediction; with `of` "return", its ends stay within the sums of these bounds.
        horizon : int or (int, int), optional
            Number of steps, by default that of the model, or a window, as in :meth:`predict`.
        scale : {"identity", "log", "logit"}, default "identity"
            As in :meth:`lstd.LSTD.predict_interval`.
        of : {"mean", "return"}, default "mean"
            "mean" is the expected sum of rewards, of customers like these: single ones scatter much more. "return" is
            the sum of rewards that these rows will receive. Compare totals with what came by the latter: it has the
            variance ``Σ wᵢ² s²(xᵢ) + τ² (Σ |wᵢ v(xᵢ)|)²`` more. The variance s² is estimated from the rows that `fit`
            checks, without the folds that predictions are for; rows are taken as independent, one of each subject. τ is
            the standard deviation of a shock that all subjects share, such as a season, relative to a total, from what
            followed up to eight cuts of the log and predictions by what was known then. It is taken to be the same for
            each `horizon`, and 0 where there are no such cuts: where some episodes terminated, in one stream, and with
            fewer than six groups or episodes. The interval takes the total for normal: of few subjects with skewed
            rewards, the upper end is too low; for one subject use :class:`lstd.inference.ReturnSpread`.

        Returns
        -------
        Interval
            As of :meth:`lstd.LSTD.predict_interval`.

        Raises
        ------
        InvalidInputError
            When `X` breaks a rule, or the model has too few blocks for intervals; when `of` is "return" and `horizon` a
            window, or `fit` has checked no rows.

        Warns
        -----
        ExtrapolationWarning
            As by :meth:`predict`.

        Examples
        --------
        Each of 100 customers spends 0 or 2 a week by chance. Their total of four weeks is 400, give or take 40:

        >>> import numpy as np
        >>> from lstd import HorizonLSTD
        >>> rows = {"episode": np.repeat(np.arange(100), 20), "terminated": np.zeros(2000, dtype=bool)}
        >>> X, y = np.ones((2000, 1)), np.random.default_rng(0).integers(2, size=2000) * 2.0
        >>> y[19::20] = np.nan  # unknown, in horizon rows
        >>> model = HorizonLSTD(4, fit_intercept=False).fit(X, y, **rows)
        >>> total = model.predict_interval(np.ones((100, 1)), weights=np.ones(100), of="return")
        >>> f"{total.prediction:.0f}, from {total.lower:.0f} to {total.upper:.0f}"
        '414, from 371 to 457'
        """
        linear = self._at(horizon)
        check_level(level)
        check_choice("scale", scale, SCALES)
        check_choice("of", of, OF)
        phi = checked_features(self, X)
        interval = linear.interval(phi, level, weights, scale, of)
        linear.warn_of_unlike(self._model, phi)
        return interval

    def contributions(self, X: FeaturesLike, horizon: int | tuple[int, int] | None = None) -> Contributions:
        """Compute what each feature contributes to the predictions, as :meth:`lstd.LSTD.contributions` does.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
        horizon : int or (int, int), optional
            Number of steps, by default that of the model, or a window, as in :meth:`predict`.

        Returns
        -------
        Contributions
            With `by_bounds`, what `low` and `high` change of each prediction.

        Warns
        -----
        ExtrapolationWarning
            As by :meth:`predict`.
        """
        linear = self._at(horizon)
        phi = checked_features(self, X)
        contributions = Contributions.of(linear, phi)
        linear.warn_of_unlike(self._model, phi)
        return contributions

    def observed_returns(
        self,
        X: FeaturesLike,
        y: ArrayLike,
        *,
        horizon: int | None = None,
        unobserved: str = "predict",
        **columns: Unpack[Columns],
    ) -> ObservedReturns:
        """Compute the rewards of the next steps that predictions are compared with, for :func:`metrics.calibration`.

        Parameters
        ----------
        X, y, episode, terminated, discount, weight, groups
            As in :meth:`fit`; returns do not depend on groups. `weight` and `groups` may be left out for a model that
            was fitted with them: each row then counts alike.
        horizon : int, optional
            Number of steps, by default that of the model.
        unobserved : {"predict", "ipcw", "drop"}, default "predict"
            What to do with rows whose steps were cut off: complete them by the prediction at the cut for the steps that
            are left; score those that are complete, by the inverse of their probability to be; or leave them out, which
            is refused if some episodes terminated and others were cut off.

        Returns
        -------
        ObservedReturns

        Warns
        -----
        MissingTerminationWarning
            As by :meth:`fit`, once.
        """
        return self._observed(X, y, columns, _OBSERVED_RETURNS, horizon, unobserved)

    def _observed(
        self, X: FeaturesLike, y: ArrayLike, columns: Columns, takes: Takes, horizon: int | None, unobserved: str
    ) -> ObservedReturns:
        """Check rows, and compute the rewards of their next steps."""
        steps = self._steps(horizon)
        check_choice("unobserved", unobserved, UNOBSERVED)
        rows = self._comparable(X, y, columns, takes, OF_RETURNS)
        model = self._model
        if rows.assumed:
            warn_once(model, assumed_cut(), MissingTerminationWarning)
        return model.returns(rows, steps, unobserved)

    def summary(self, level: float = 0.95) -> StepsSummary:
        """Return a table of the coefficients of the longest horizon, and of what decides them and speaks against them.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Level of the intervals.

        Returns
        -------
        StepsSummary
            ``print`` shows plain text, and notebooks show HTML. With `names`, `coefficients`, `interval`,
            `observed_share` and `score`, R² on held-out groups or episodes of the rows that `fit` checked.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import HorizonLSTD
        >>> X, y = np.tile(np.eye(2), (20, 1)), np.tile([1.0, 0.0], 20)
        >>> print(HorizonLSTD(horizon=4, check=False).fit(X, y).summary())  # doctest: +ELLIPSIS
        HorizonLSTD
        rows              40
        ...
        """
        return StepsSummary(self._model, type(self).__name__, check_level(level), backtest_of(self))

    def misfit_check(
        self, X: FeaturesLike, y: ArrayLike, *, time: PerRow = None, **columns: Unpack[Columns]
    ) -> MisfitCheck:
        """Check for misfit: whether returns depend on the features in ways that no weighted sum of them can follow.

        Squares and products of the features, functions of the steps since the episode began and, with `time`, since the
        log began, are held against what a fit with λ = 1 leaves of the returns, with groups or episodes as independent.
        The returns are sums of rewards discounted by 1 − 1/H a step, which reach about as far as `horizon` steps, H.
        Intervals leave a misfit out, and more data does not reduce it. `fit` does the same on a part of its rows.

        Parameters
        ----------
        X, y, time, episode, terminated, discount, weight, groups
            As in :meth:`fit`; usually the data of `fit`. All that the fit was given must be given here too.

        Returns
        -------
        MisfitCheck
            With `systematic`, `expected`, `standard_error`, `residual`, `p_value`, `of_age`, `of_time` and `misfit`.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule, or there are fewer than 10 groups or episodes, or 100 rows of one stream.

        Warns
        -----
        MisfitWarning
            When the result is a `misfit`.

        Examples
        --------
        Customers who buy at first and then lose interest, and features that do not say how long ago they came:

        >>> import warnings
        >>> import numpy as np
        >>> from lstd import HorizonLSTD
        >>> random, age = np.random.default_rng(0), np.tile(np.arange(20), 100)
        >>> X, y = random.normal(size=(2000, 1)), random.poisson(np.exp(-age / 2.0)).astype(float)
        >>> ends = {"episode": np.repeat(np.arange(100), 20), "terminated": np.zeros(2000, dtype=bool)}
        >>> with warnings.catch_warnings(action="ignore"):
        ...     check = HorizonLSTD(4).fit(X, y, **ends).misfit_check(X, y, **ends)
        >>> check.misfit, check.of_age
        (True, True)
        """
        rows = self._comparable(X, y, columns, _MISFIT_CHECK, OF_FIT)
        if time is not None:
            times = times_of(time, rows)
            check_equal(times, rows)
            rows = rows.changed(time=steps_since_earliest(times, rows.last))
        return check_misfit_of_steps(Refit.of(self._model, rows))

    def bias_check(self, X: FeaturesLike, y: ArrayLike, **columns: Unpack[Columns]) -> BiasCheck:
        """Check for bias from bootstrapping: compare predictions of `horizon` steps with those of λ = 1.

        Both are fitted to the rows given, with a tiny ridge coefficient. If chance does not explain the difference, the
        features cannot represent the values of fewer steps, and the truth may lie outside of the intervals. `fit` does
        the same on a part of its rows.

        Parameters
        ----------
        X, y, episode, terminated, discount, weight, groups
            As in :meth:`fit`; usually the data of `fit`. All that the fit was given must be given here too.

        Returns
        -------
        BiasCheck
            With `difference`, `expected`, `size`, `residual`, `p_value` and `biased`.

        Raises
        ------
        InvalidInputError
            When an array breaks a rule, λ is 1, or there are fewer than 5 groups or episodes, or 20 rows of one stream.

        Warns
        -----
        BiasWarning
            When the result is `biased`.
        """
        rows = self._comparable(X, y, columns, _BIAS_CHECK, OF_FIT)
        return check_bias_of_steps(Refit.of(self._model, rows))

    def score(
        self,
        X: FeaturesLike,
        y: ArrayLike,
        sample_weight: PerRow = None,
        *,
        horizon: int | None = None,
        unobserved: str = "predict",
        **columns: Unpack[Columns],
    ) -> float:
        """Compute R² of the predictions against the rewards of the next steps; horizon rows are not scored.

        Parameters
        ----------
        X, y, horizon, unobserved, episode, terminated, discount, weight, groups
            As in :meth:`observed_returns`; R² does not depend on groups. `weight` and `groups` may be left out for a
            model that was fitted with them.
        sample_weight : array-like of shape (T,), optional
            Another weight of each row.

        Returns
        -------
        float
            At most 1; the unweighted mean over several rewards.

        Warns
        -----
        UnobservedWarning
            When less than half of the discounted steps was observed.
        MissingTerminationWarning
            As by :meth:`fit`, once.
        """
        observed = self._observed(X, y, columns, _SCORE, horizon, unobserved)
        text = with_backtest(little_observed(observed.share, SELF_SCORED), backtest_of(self))
        warn_once(self._model, text, UnobservedWarning)
        weight = observed.weight
        if sample_weight is not None:
            weight = weight * check_array("sample_weight", sample_weight, weight.shape)
        if np.count_nonzero(weight) < 2:
            raise InvalidInputError("`X` must have two rows to score: full transitions with a weight. Pass more rows.")
        return mean_r2(observed, self.predict(X, horizon), weight)

    def _steps(self, horizon: int | None) -> int:
        """Return the checked number of steps, by default that of the model."""
        longest = self._model.stream.horizon
        return longest if horizon is None else check_integer("horizon", horizon, 1, longest)

    def _at(self, horizon: int | tuple[int, int] | None) -> Linear:
        model = self._model
        return model.at([] if horizon is None else [horizon], single=model.single)

    coef_: Fitted[HorizonModel, Array] = Fitted(lambda model: model.shaped(model.parts[0]))
    intercept_: Fitted[HorizonModel, Array] = Fitted(lambda model: model.shaped(model.parts[1]))
    lmbda_: Fitted[HorizonModel, float] = Fitted(lambda model: model.solved.lmbda)
    alpha_: Fitted[HorizonModel, float] = Fitted(lambda model: model.solved.alpha)
    ridge_: Fitted[HorizonModel, Array] = Fitted(lambda model: model.ridge[: model.n_features])
    cv_results_: Fitted[HorizonModel, dict[str, Array]] = Fitted(lambda model: model.choice.results)
    coef_names_: Fitted[HorizonModel, NDArray[np.object_]] = Fitted(
        lambda model: np.array(model.column_names, dtype=object), weights=False
    )
    bias_check_: Fitted[HorizonModel, BiasCheck | str] = Fitted(lambda model: model.known_checks.bias)
    misfit_check_: Fitted[HorizonModel, MisfitCheck | str] = Fitted(lambda model: model.known_checks.misfit)
    n_transitions_: Fitted[HorizonModel, int] = Fitted(lambda model: model.n_transitions, weights=False)
    n_episodes_: Fitted[HorizonModel, int] = Fitted(lambda model: model.n_episodes, weights=False)

    def to_record(self) -> HorizonModel:
        """Return what a file holds."""
        return self._model.saved

    @classmethod
    def of_record(cls, record: HorizonModel, path: str | os.PathLike[str]) -> Self:
        """Return the estimator of a file, without the blocks of the data."""
        settings = record.settings
        penalty: str | tuple[float, ...] = record.unit_of_penalty
        if settings.penalty is not None:
            penalty = settings.penalty
        low, high = record.bounds
        model = cls(
            record.stream.horizon,
            settings.gamma,
            settings.given_lmbda,
            settings.given_alpha,
            settings.fit_intercept,
            "auto",
            low,
            high,
            penalty,
            check=record.check,
        )
        if record.age is not None:
            model.age = record.age.place
            if record.names is not None:
                model.age = record.names[record.age.place]
        model.model_ = record
        return model


def _place(age: AgeColumns | None) -> int | None:
    """Return the number of the feature that is the age, if there is one."""
    return None if age is None else age.place
