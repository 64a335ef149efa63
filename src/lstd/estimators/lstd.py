"""LSTD(λ) as a scikit-learn regressor.

`fit` and `partial_fit` check rows, add them to sums, and make a :class:`Model` of the sums. They assign to the
estimator once, at the end, so a call that fails leaves it unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from lstd.data.arguments import check_flag, check_real, shown
from lstd.data.doubts import backtest_of
from lstd.data.rows import Columns
from lstd.data.settings import ALPHA, GAMMA, LMBDA, MAX_ITER, TOL, Settings, Solver
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.data.variants import VARIANT
from lstd.errors import InvalidInputError, carry_said
from lstd.estimators.base import Predictor
from lstd.estimators.model import OPTIONS, Model
from lstd.estimators.model_parts import needs_matrix
from lstd.estimators.sparse_solver import fit_without_matrix
from lstd.estimators.validate_data import checked_rows
from lstd.statistics.blocks import Blocks, empty_blocks
from lstd.statistics.merging import LSTDStatistics
from lstd.types import FeaturesLike

_FIT = Takes("LSTD.fit", LSTD_COLUMNS)
_PARTIAL_FIT = Takes("LSTD.partial_fit", LSTD_COLUMNS)
_OPTIONS_OF = operator.attrgetter(*OPTIONS)
_MERGED = (
    "Intervals need blocks of the data, which merged statistics do not have. Pass a list of ten or more, or fit the "
    "model to the data itself."
)


class LSTD(Predictor):
    """Linear prediction of the discounted sum of future rewards, by least-squares temporal differences.

    The weights are θ = (A + αI)⁻¹ b, where A and b are sums over the transitions of a stream of rows. Boyan's LSTD(λ)
    and the Uncorrected and Mixed LSTD(λ) of Osogami (AAAI-20) differ only at the end of the data. Rows are in time
    order; ``X[t]`` holds features and ``y[t]`` the reward received on leaving that row.

    Parameters
    ----------
    gamma : float in [0, 1], default 0.99
        Discount per transition, unless `discount` gives one per row.
    lmbda : float in [0, 1], default 0.9
        Trace decay: 0 bootstraps from the next row, 1 is a regression on returns.
    alpha : float, at least 0, or array-like of shape (n_features,), default 1.0
        Ridge coefficient, or one for each feature; 0 leaves a feature without a penalty.
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
        Which estimator to solve for.
    fit_intercept : bool, default True
        Add a column of ones, whose weight is not penalised. One-hot features already add up to such a column. With
        `alpha` above 0, predictions then shrink to their mean instead of to zero; with `alpha` 0, the intercept changes
        nothing.
    n_blocks : int or "auto", default "auto"
        Largest number of blocks of the data to keep for standard errors and intervals. A block is one or several
        consecutive groups or episodes, or consecutive rows of a single stream, and takes 16 n² bytes. "auto" is 64,
        less with more than 500 features, and 0 with more than 1295. With 0 there are no intervals. The iterative solver
        keeps 8 n bytes of a block, and solves a system for each in `fit`; "auto" is 20 then.
    solver : {"auto", "direct", "iterative"}, default "auto"
        "direct" forms A, which takes 8 n² bytes and some copies. "iterative" solves by products with A that pass over
        the rows, in the time and memory of the data; intervals take about ten times as long as the weights alone, so
        set `n_blocks` to 0 if you need none. "auto" is "iterative" for sparse `X` of more than 3000 features, and
        "direct" for others.
    tol : float in (0, 1], default 1e-8
        Relative residual at which the iterative solver stops, with rows and columns of the system scaled by the square
        root of its diagonal. Intervals are solved for to 10⁴ times that, but not more than 0.1; below 1e-8, to
        10¹² `tol`², but not less than `tol`.
    max_iter : int, default 1000
        Largest number of products with A for one solve of the iterative solver.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_rewards, n_features)
        Weights; after `partial_fit`, computed when first used.
    intercept_ : float or ndarray of shape (n_rewards,)
        Weight of the column of ones; zero without `fit_intercept`.
    statistics_ : LSTDStatistics
        The sums over the data; with `fit_intercept` its last feature is the column of ones.
    coef_covariance_ : ndarray of shape (n_features, n_features) or (n_rewards, n_features, n_features)
        Covariance of the weights; needs blocks, as intervals do.
    condition_number_ : float
        Estimate, in the 1-norm, of the condition number of A + αI with rows and columns scaled alike, so that the
        scale of the features does not matter; infinite if singular.
    n_iter_ : int
        Number of products with A that the iterative solver needed for the weights; 1 for the direct one.
    residual_ : float or None
        Relative residual of its solution; None for the direct one. A model of the iterative solver has neither
        `statistics_`, `coef_covariance_` nor `condition_number_`; it refuses `partial_fit`, `bias_check` and
        `misfit_check`.
    n_transitions_ : int
        Number of full transitions.
    n_episodes_ : int
        Number of episodes, including one that has not ended.
    n_unused_rewards_ : int
        Number of rewards, other than 0 and NaN, in last rows of episodes that did not terminate: they are not used, as
        their successor is unknown.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features; exists only if the names in `X` were all strings.

    Notes
    -----
    A row is a full transition if a row of its episode follows it, if it terminates, or if `X_next` is given.
    Otherwise it is a horizon row, which only serves as the successor of the row before it: its reward is not used and
    may be NaN. Without `episode` and `terminated`, the rows are one continuing stream.

    Arrays of fitted attributes are read-only, since they follow from the data. ``np.array(model.coef_)`` is a copy that
    can be changed.

    In a Pipeline, earlier steps transform `X` but not `X_next` unless the Pipeline has
    ``transform_input=["X_next"]``. With metadata routing, request `episode` and `terminated` for `fit` and `score`
    (``set_fit_request``, ``set_score_request``), and split by episode, as ``GroupKFold`` does.

    References
    ----------
    T. Osogami, "Uncorrected least-squares temporal difference with lambda-return", AAAI-20, arXiv 1911.06057.
    J. A. Boyan, "Technical update: least-squares temporal difference learning", Machine Learning 49, 2002.

    Examples
    --------
    Two episodes of two rows, of reward 1 per step, that terminate:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> y = np.ones(4)
    >>> model = LSTD(gamma=0.5, alpha=0.0).fit(X, y, episode=[1, 1, 2, 2], terminated=[False, True, False, True])
    >>> model.predict(X[:2])
    array([1.5, 1. ])
    >>> model.n_transitions_, model.n_episodes_
    (4, 2)
    """

    def __init__(
        self,
        gamma: float = GAMMA,
        lmbda: float = LMBDA,
        alpha: float | ArrayLike = ALPHA,
        variant: str = VARIANT,
        fit_intercept: bool = True,
        n_blocks: int | str = "auto",
        solver: str = "auto",
        tol: float = TOL,
        max_iter: int = MAX_ITER,
    ) -> None:
        self.gamma = gamma
        self.lmbda = lmbda
        self.alpha = alpha
        self.variant = variant
        self.fit_intercept = fit_intercept
        self.n_blocks = n_blocks
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: FeaturesLike, y: ArrayLike, **columns: Unpack[Columns]) -> Self:
        """Fit to rows in time order; any earlier fit is forgotten.

        Nothing is checked that takes longer than the fit: call :meth:`misfit_check` and :meth:`bias_check`, or use
        :class:`lstd.LSTDCV`, which does.

        Parameters
        ----------
        X : array-like, DataFrame or sparse of shape (T, n)
            Features of each row.
        y : array-like of shape (T,) or (T, m)
            Rewards received on leaving each row; ignored in the last row of an episode that did not terminate, where
            NaN is allowed.
        episode : array-like of shape (T,), optional
            Id of each row's episode; the rows of an episode follow one another.
        terminated : array-like of shape (T,) or False, optional
            Whether the row's successor is terminal, of value zero. False alone says that no end was seen.
        X_next : array-like, DataFrame or sparse of shape (T, n), optional
            Features of each row's successor, which makes every row a full transition. Rows must still be in time order,
            since traces run from row to row. Give transitions that do not follow one another different ids in
            `episode`, or use ``lmbda=0``. Terminal successors are not used, and may be NaN.
        discount : array-like of shape (T,), optional
            Discount of each row's transition, in [0, 1].
        importance_ratio : array-like of shape (T,), optional
            Importance ratio of each row's transition, at least 0.
        trace_coefficient : array-like of shape (T,), optional
            Factor of the trace decay on arrival in each row, at least 0; 1 by default; no effect at a `lmbda` of 0. For
            action values off policy:
            0, min(1, π/μ) (Retrace) or π/μ, with importance ratios of 1 and expected successors in `X_next`, as
            :class:`lstd.ope.LSTDQ` has them.
        weight : array-like of shape (T,), optional
            Weight of each row's transition in the sums, at least 0, such as the inverse of the probability with which
            it was sampled; 1 by default. A weight of 2 on a whole episode counts as the episode twice. Weights of 2 on
            all rows have the effect of half the `alpha`.
        groups : array-like of shape (T,), optional
            What the row's episode belongs to, such as a patient. Episodes of one patient may overlap or depend on one
            another; those of different patients count as independent. Blocks for intervals never divide a group. Groups
            may come in any order: the result is that of episodes sorted by group.

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
            When the system is singular or nearly so. The iterative solver only says where no end is reached at a
            `gamma` of 1; with an `alpha` of 0 it is silent about features that are zero, whose weights are then
            zero, or repeat each other.
        MissingTerminationWarning
            When `episode` is given without `terminated`: the episodes are taken as truncated.
        BrokenEpisodeWarning
            When a row is not the successor that `X_next` gives for the row before it; or when rows have importance
            ratios beside successors that look like expected ones, of more entries other than zero than any row.
        ConvergenceWarning
            When the iterative solver does not reach `tol`, of ``sklearn.exceptions``.
        RidgeWarning
            When halving `alpha` moves the predictions by more than half of their size, or, with an intercept, of their
            spread: the ridge term decides them. Also when scales of features differ, and predictions for the rows
            would move by a mean square of 2 % or more of the mean squared residual, were `alpha` in units of the
            squared spreads. Nothing is said of scales if there is an `alpha` for each feature.
        UnobservedWarning
            When ten episodes or more were cut off, and less than half of the discounted weight of the returns was
            observed.
        BoundsWarning
            When predictions are so far outside of what the rewards allow that at least 15 % of their variance is
            error. At least 30 rows are needed, and at most 2000 are looked at.
        ExtrapolationWarning
            When features only grow within one cohort of episodes, and at least a tenth of the returns lies behind the
            horizon rows, where these features have their largest values.
        UnusedRewardWarning
            When last rows of episodes that did not terminate have rewards other than 0 and NaN.
        EffectiveSampleWarning
            When products of importance ratios or trace coefficients, or weights, leave an effective sample below ten.
        SupportWarning
            When the mean importance ratio is not 1, over all rows, by a feature or by time: the log does not take all
            actions of the target policy, or the probabilities behind the ratios are wrong.

        Examples
        --------
        The standard error of a mean of twelve numbers, and of six pairs of them that depend on one another:

        >>> import numpy as np
        >>> from lstd import LSTD
        >>> X, y, done = np.ones((12, 1)), np.arange(12.0), np.ones(12, dtype=bool)
        >>> model = LSTD(alpha=0.0, fit_intercept=False).fit(X, y, terminated=done)
        >>> model.predict([[1.0]], return_std=True)[1].round(2)
        array([1.04])
        >>> model.fit(X, y, terminated=done, groups=np.arange(12) // 2).predict([[1.0]], return_std=True)[1].round(2)
        array([1.53])
        """
        settings = self._settings()
        solver = Solver(self.solver, self.tol, self.max_iter)
        rows = checked_rows(
            BaseEstimator(),
            X,
            y,
            columns,
            _FIT,
            gamma=settings.gamma,
            reset=True,
            warn=True,
            sort=True,
            summed=True,
        )
        settings.ridge(rows.n_features)  # checks the number of coefficients before rows are summed
        if solver.takes(rows.X, rows.n_features):
            model = fit_without_matrix(rows, settings, solver, self._options)
        else:
            model = Model.of_rows(rows, settings, self._options)
        if not model.statistics.n_transitions:
            raise InvalidInputError(
                f"`X` must hold at least one full transition; got n_samples={model.statistics.n_rows}, and no row is "
                "followed by a row of its episode, terminated, or given with `X_next`. Pass more rows, or call "
                "`partial_fit` as they arrive."
            )
        self.model_ = model.described(tested=backtest_of(self)).checked().with_doubts(rows)
        return self

    def partial_fit(
        self, X: FeaturesLike, y: ArrayLike, *, forgetting: float = 1.0, **columns: Unpack[Columns]
    ) -> Self:
        """Continue the stream: the first row is the successor of the last row of the previous chunk.

        It is not if that row terminated or has another `episode` id. Chunks may be empty or of one row; any split of
        the data gives the same model up to rounding. Until there is a full transition, weights are zero. `alpha` and
        `variant` may change between chunks; `gamma`, `lmbda` and `fit_intercept` may not.

        The rows of an episode, and of a group, follow one another: an id that reappears after others, in this chunk or
        a later one, raises an error. A loaded model remembers only the last id.

        Parameters
        ----------
        X, y, episode, terminated, X_next, discount, importance_ratio, trace_coefficient, weight, groups
            As in :meth:`fit`, with the same errors and warnings; those of missing flags and broken episodes come once.
            So do those of `predict` and other methods, of each feature, on a stream as a whole.
            Rows of a chunk without one of the columns of numbers have its usual value, whatever other chunks have.
        forgetting : float in (0, 1], default 1.0
            Factor of the weights of all rows of earlier chunks, in the sums, the blocks of intervals and the effective
            sample. With 0.9 and one chunk per day, a row from k days ago counts 0.9^k. The ridge term does not fade.

        Returns
        -------
        self
        """
        before: Model | None = vars(self).get("model_")
        if self.solver == "iterative" or (before is not None and before.matrix_free is not None):
            raise InvalidInputError(needs_matrix("partial_fit"))
        rate = check_real("forgetting", forgetting, 0.0, 1.0, open_low=True)
        settings = self._settings(before)
        options = self._options
        rows = checked_rows(
            self if before else BaseEstimator(),
            X,
            y,
            columns,
            _PARTIAL_FIT,
            gamma=settings.gamma,
            reset=before is None,
            warn=before is None or "ends" not in before.warned,
            summed=True,
        )
        if before is None or settings is not before.settings:
            settings.ridge(rows.n_features)  # checks the number of coefficients
        model = Model.of_rows(rows, settings, options) if before is None else before.then(rows, settings, options, rate)
        model = model.with_doubts_of_chunk(rows)
        if before is not None:
            carry_said(before, model)
        self.model_ = model
        return self

    def fit_statistics(
        self, statistics: LSTDStatistics | Iterable[LSTDStatistics], *, independent: bool = False
    ) -> Self:
        """Fit to sums over data, or to several sums, each of which is a block for intervals.

        Parameters
        ----------
        statistics : LSTDStatistics or iterable of them
            With the `gamma`, `lmbda` and `fit_intercept` of the estimator. Several are of consecutive data, in time
            order, and merged by :meth:`LSTDStatistics.then`. Intervals need at least five, with whole episodes; ten or
            more are better.
        independent : bool, default False
            Whether each begins a new episode, even if the last one of the statistics before has not ended.

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            When the statistics do not fit the parameters or one another, share a label, or hold no full transition.

        Warns
        -----
        IllConditionedWarning, UnusedRewardWarning, EffectiveSampleWarning, RidgeWarning
            As by :meth:`fit`.
        UnobservedWarning
            As by :meth:`fit`, but not of several `independent` ones: an episode may go on in another of them.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import LSTD, LSTDStatistics
        >>> X, done = np.ones((3, 1)), [False, False, True]
        >>> nights = [
        ...     LSTDStatistics.from_arrays(X, np.full(3, reward), gamma=0.5, lmbda=0.0, terminated=done)
        ...     for reward in (0.9, 1.1, 1.0, 0.8, 1.2)
        ... ]
        >>> model = LSTD(gamma=0.5, lmbda=0.0, alpha=0.0, fit_intercept=False).fit_statistics(nights)
        >>> value, standard_error = model.predict([[1.0]], return_std=True)
        >>> value.round(3), standard_error.round(2)
        (array([1.5]), array([0.11]))
        """
        if self.solver == "iterative":
            raise InvalidInputError(needs_matrix("fit_statistics"))
        settings = self._settings()
        blocks = _merged(statistics, self.n_blocks, check_flag("independent", independent))
        _check_statistics(blocks.total, settings)
        self.model_ = Model(blocks, settings, options=self._options).checked()
        return self

    @property
    def _options(self) -> dict[str, Any]:
        """The parameters that are not settings."""
        return dict(zip(OPTIONS, _OPTIONS_OF(self), strict=True))

    def _settings(self, before: Model | None = None) -> Settings:
        """Return the checked parameters; those of the model so far, if they are the same objects."""
        given: Any = (self.gamma, self.lmbda, self.alpha, self.variant, self.fit_intercept)
        if before is None:
            return Settings(*given)
        was = before.settings
        if all(map(operator.is_, given, (was.gamma, was.lmbda, was.alpha, was.variant, was.fit_intercept))):
            return was
        now = Settings(*given)
        for name in ("gamma", "lmbda", "fit_intercept"):
            old = getattr(was, name)
            new = getattr(now, name)
            if old != new:
                raise InvalidInputError(
                    f"`{name}` must stay as it was at the first chunk, {old!r}; got {new!r}. Set it back, or start "
                    "again with `fit`."
                )
        return now


def _merged(statistics: LSTDStatistics | Iterable[LSTDStatistics], n_blocks: int | str, independent: bool) -> Blocks:
    """Return merged statistics; several in blocks of one each."""
    if isinstance(statistics, LSTDStatistics):
        return Blocks(statistics, limit=0, reason=_MERGED)
    parts: list[LSTDStatistics] = []
    for part in statistics if isinstance(statistics, Iterable) else [statistics]:
        if not isinstance(part, LSTDStatistics):
            raise InvalidInputError(f"`statistics` must be LSTDStatistics or several of them; got {shown(part)}.")
        parts.append(part)
    if not parts:
        raise InvalidInputError("`statistics` must not be empty; got no statistics.")
    whole = empty_blocks(parts[0], n_blocks)
    for part in parts[1:]:
        whole = whole.then(replace(whole, total=part, prefixes=()), begins=True if independent else None)
    if independent and len(parts) > 1:  # nothing tells whether an episode was cut off or goes on in other sums
        counts = whole.total.counts.changed(observed=np.full((3, 3), np.nan))
        whole = replace(whole, total=whole.total.changed(counts=counts))
    return whole


def _check_statistics(statistics: LSTDStatistics, settings: Settings) -> None:
    """Refuse statistics that were not summed with these settings, or that hold nothing to fit."""
    for name in ("gamma", "lmbda"):
        rule = getattr(statistics, name)
        value = getattr(settings, name)
        if value != rule:
            raise InvalidInputError(f"`{name}` must equal the `{name}` of the statistics, {rule!r}; got {value!r}.")
    if not statistics.n_transitions:
        raise InvalidInputError("`statistics` must hold at least one full transition; got none.")
    if settings.fit_intercept != statistics.has_intercept:
        raise InvalidInputError(
            f"`fit_intercept` must be {statistics.has_intercept}, as when the statistics were summed; got "
            f"{settings.fit_intercept}. Change it, or sum the data again."
        )
