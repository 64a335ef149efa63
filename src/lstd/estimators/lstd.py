"""LSTD(λ) as a scikit-learn regressor: a thin façade over :class:`lstd.LSTDStatistics`.

`fit` and `partial_fit` sum the statistics of the rows they are given, and what is predicted follows from the sums
alone. Their one assignment to the object is its new :class:`Model`, so an attempt that fails leaves it as it was.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from lstd.data.rows import Rows, warn_of_breaks
from lstd.data.settings import ALPHA, GAMMA, LMBDA, VARIANT, Settings
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.inputs import names_of, rows_of
from lstd.estimators.model import Model
from lstd.statistics.blocks import Blocks, no_blocks
from lstd.statistics.statistics import LSTDStatistics

Array = NDArray[np.float64]

_MERGED = (
    "Intervals need the blocks of the data, which merged statistics do not have. Fit the model to the data itself."
)


class LSTD(Predictor):
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
    n_blocks : int or "auto", default "auto"
        Stretches of the data, at most, that are told apart for standard errors and intervals: episodes, runs of
        episodes, or runs of rows of one stream. Each takes 16 n² bytes. "auto" takes 64, fewer with more than 500
        features, none with more than 1295; 0 keeps none.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_rewards, n_features)
        Weights; solved for when first asked for after `partial_fit`.
    intercept_ : float or ndarray of shape (n_rewards,)
        Weight of the column of ones; zero without `fit_intercept`.
    statistics_ : LSTDStatistics
        The sums over the data; with `fit_intercept` its last feature is the column of ones.
    condition_number_ : float
        Estimate, in the 1-norm, of the condition number of the system that was solved: A + αI with rows and columns
        scaled alike, so that the scale of the features does not matter; infinite when singular.
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
        alpha: float = ALPHA,
        variant: str = VARIANT,
        fit_intercept: bool = False,
        n_blocks: int | str = "auto",
    ) -> None:
        self.gamma = gamma
        self.lmbda = lmbda
        self.alpha = alpha
        self.variant = variant
        self.fit_intercept = fit_intercept
        self.n_blocks = n_blocks

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
            Features of each row's successor: then every row is a full transition. Rows are in time order all the same:
            traces run from row to row of an episode. Transitions that do not follow one another need ids of their own
            in `episode`, or ``lmbda=0``.
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
        BrokenEpisodeWarning
            When a trace runs from a row to another than its successor in `X_next`.
        """
        columns = {
            "episode": episode, "terminated": terminated, "X_next": X_next, "discount": discount,
            "importance_ratio": importance_ratio,
        }  # fmt: skip
        model = self._extended(None, X, y, columns, min_rows=1)
        if not model.statistics.n_transitions:
            raise InvalidInputError(
                f"`X` must hold at least one full transition; got n_samples={model.statistics.n_rows}, and no row is "
                "followed by a row of its episode, terminated, or given with `X_next`. Pass more rows, or "
                "`partial_fit` as they come."
            )
        _ = model.solution  # so that its warning comes from `fit`
        self.model_ = model
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

        Parameters, errors and warnings are those of :meth:`fit`; each of MissingTerminationWarning and
        BrokenEpisodeWarning is given once. That an `episode` id comes again is noticed within a chunk, and where it
        comes again right after its episode terminated; else it begins an episode.

        Returns
        -------
        self
        """
        columns = {
            "episode": episode, "terminated": terminated, "X_next": X_next, "discount": discount,
            "importance_ratio": importance_ratio,
        }  # fmt: skip
        self.model_ = self._extended(vars(self).get("model_"), X, y, columns)
        return self

    def fit_statistics(self, statistics: LSTDStatistics, feature_names: ArrayLike | None = None) -> Self:
        """Fit to sums over data in place of the data, such as sums over parts that were merged.

        Parameters
        ----------
        statistics : LSTDStatistics
            Of this `gamma` and `lmbda`; with `fit_intercept` their last feature is the column of ones.
        feature_names : array-like of str, shape (n_features,), optional

        Returns
        -------
        self

        Raises
        ------
        InvalidInputError
            When the statistics do not fit the parameters, or hold no full transition; when there are not as many names
            as features.

        Warns
        -----
        IllConditionedWarning
            When the system is singular or nearly so.

        Examples
        --------
        >>> import numpy as np
        >>> from lstd import LSTD
        >>> from lstd import LSTDStatistics
        >>> halves = [LSTDStatistics.from_arrays(np.ones((3, 1)), np.ones(3), gamma=0.5, lmbda=0.0) for _ in range(2)]
        >>> LSTD(gamma=0.5, lmbda=0.0, alpha=0.0).fit_statistics(halves[0] + halves[1]).coef_
        array([2.])
        """
        settings = self._settings()
        _check_statistics(statistics, settings)
        n = statistics.n_features - settings.fit_intercept
        names = None if feature_names is None else np.asarray(feature_names, dtype=object)
        if names is not None and names.shape != (n,):
            raise InvalidInputError(f"`feature_names` must have one name per feature, shape ({n},); got {names.shape}.")
        model = Model(
            Blocks(statistics, limit=0, reason=_MERGED), settings,
            names=None if names is None else tuple(map(str, names)), options={"n_blocks": self.n_blocks},
        )  # fmt: skip
        _ = model.solution  # so that its warning comes from here
        self.model_ = model
        return self

    @classmethod
    def of_model(cls, model: Model) -> Self:
        """Return an LSTD that holds `model`."""
        settings = model.settings
        estimator = cls(
            settings.gamma, settings.lmbda, settings.alpha, settings.variant, settings.fit_intercept, **model.options
        )
        estimator.model_ = model
        return estimator

    def _settings(self) -> Settings:
        return Settings(self.gamma, self.lmbda, self.alpha, self.variant, self.fit_intercept)

    def _extended(self, before: Model | None, X: Any, y: Any, columns: dict[str, Any], *, min_rows: int = 0) -> Model:
        """Return the model of the stream before, if any, and of the chunk that follows."""
        settings = self._settings()
        if before is not None:
            _check_unchanged(before.settings, settings)
        warned = frozenset() if before is None else before.warned
        checker = BaseEstimator() if before is None else self
        rows = rows_of(
            checker, X, y, columns, settings, reset=before is None, min_rows=min_rows, warn="ends" not in warned
        )
        if before is None or not before.statistics.n_rows:
            blocks, successor = no_blocks(rows, settings.lmbda, self.n_blocks), None
        else:
            blocks, successor = before.blocks, _successor(before.statistics, rows)
        extended = blocks.extended(rows) if len(rows) else blocks
        broken = "breaks" not in warned and warn_of_breaks(rows, settings.lmbda, successor)
        return Model(
            extended, settings,
            names=names_of(checker), rewards=None if before is None else before.rewards,
            options={"n_blocks": self.n_blocks},
            warned=warned | ({"ends"} if rows.assumed else set()) | ({"breaks"} if broken else set()),
        )  # fmt: skip


def _successor(before: LSTDStatistics, rows: Rows) -> Array | None:
    """What `X_next` gave as the successor of the last row before, where these rows go on with its episode."""
    row = before.pending
    if row is None or not row.complete or not len(rows):
        return None
    return row.phi if before.goes_on_with(rows.first_episode, rows.X_next is not None) else None


def _check_statistics(statistics: Any, settings: Settings) -> None:
    if not isinstance(statistics, LSTDStatistics):
        raise InvalidInputError(f"`statistics` must be LSTDStatistics; got {statistics!r:.80}.")
    for name in ("gamma", "lmbda"):
        of_data, of_model = getattr(statistics, name), getattr(settings, name)
        if of_data != of_model:
            raise InvalidInputError(f"`{name}` must be that of the statistics, {of_data!r}; got {of_model!r}.")
    if not statistics.n_transitions:
        raise InvalidInputError("`statistics` must hold at least one full transition; got none.")
    if settings.fit_intercept and statistics.n_features == 1:
        raise InvalidInputError(
            "`statistics` must have a feature besides the column of ones, their last, for `fit_intercept`; got one."
        )


def _check_unchanged(before: Settings, settings: Settings) -> None:
    for name in ("gamma", "lmbda", "fit_intercept"):
        was, now = getattr(before, name), getattr(settings, name)
        if was != now:
            raise InvalidInputError(
                f"`{name}` must stay as it was at the first chunk, {was!r}; got {now!r}. Set it back, or start "
                "again with `fit`."
            )
