"""LSTD(λ) with settings chosen from the data: a scikit-learn regressor around cross-validation."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lstd.data.rows import warn_of_breaks
from lstd.data.settings import GAMMA, VARIANT, Settings
from lstd.estimators.base import Predictor
from lstd.estimators.cross_validation import select
from lstd.estimators.inputs import names_of, rows_of
from lstd.estimators.model import Model, Selection
from lstd.statistics.blocks import no_blocks

Array = NDArray[np.float64]

_OPTIONS = ("lmbdas", "alphas", "cv", "n_jobs", "n_blocks", "verbose")


class LSTDCV(Predictor):
    """LSTD(λ) with λ and the ridge coefficient α chosen from the data by cross-validation, then fitted to all of it.

    Parameters
    ----------
    gamma : float in [0, 1], default 0.99
        Discount per transition, where `discount` does not give one per row.
    lmbdas : array-like of shape (n_lmbdas,), optional
        Trace decays to choose from; by default 0, 0.1, …, 0.9, 0.91, …, 1.
    alphas : array-like of shape (n_alphas,), optional
        Ridge coefficients to choose from; by default 2⁻⁸, 2⁻⁷, …, 2⁸ times the mean squared length of a row.
    variant : {"boyan", "uncorrected", "mixed"}, default "boyan"
        Which estimator to solve for.
    cv : int, optional
        Number of folds; by default 10. They are groups of whole episodes, or of rows when there are fewer than 5.
    n_jobs : int, optional
        Trace decays that are worked on at a time, by threads, as in scikit-learn: None is 1, −1 all cores.
    fit_intercept : bool, default False
        Add a column of ones with a weight of its own, which the ridge term leaves alone.
    n_blocks : int or "auto", default "auto"
        As of :class:`lstd.LSTD`. Intervals take the chosen pair as given.
    verbose : int, default 0
        With 1 or more, a line on stderr for each trace decay that is done.

    Attributes
    ----------
    lmbda_, alpha_ : float
        The pair that was chosen.
    best_score_ : float
        R² of its predictions for held-out rows against observed discounted returns, which the end of a stream that did
        not terminate completes by a prediction; the mean over several rewards.
    cv_results_ : dict of ndarray of shape (n_lmbdas * n_alphas,)
        ``lmbda``, ``alpha``, ``mean_test_score`` and ``std_test_score`` over the folds, ``split0_test_score`` and so
        on, ``cautious_test_score``, by which the pair was chosen, ``rank_test_score`` by that, and
        ``condition_number``, the largest of those without a fold and with all data. Scores of pairs with an
        ill-conditioned system are NaN, and their ranks the last.
    n_folds_ : int
    coef_, intercept_, statistics_, condition_number_, coef_covariance_, n_transitions_, n_episodes_
        As of :class:`lstd.LSTD`.
    n_features_in_, feature_names_in_
        As of :class:`lstd.LSTD`.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTDCV
    >>> X, random = np.eye(3)[np.arange(300) % 3], np.random.default_rng(0)
    >>> model = LSTDCV(gamma=0.5).fit(X, np.arange(300) % 3 + random.normal(scale=0.1, size=300))
    >>> model.predict(np.eye(3)).round(1)
    array([1.1, 2.3, 2.6])
    """

    def __init__(
        self,
        gamma: float = GAMMA,
        lmbdas: ArrayLike | None = None,
        alphas: ArrayLike | None = None,
        variant: str = VARIANT,
        cv: int | None = None,
        n_jobs: int | None = None,
        fit_intercept: bool = False,
        n_blocks: int | str = "auto",
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.lmbdas = lmbdas
        self.alphas = alphas
        self.variant = variant
        self.cv = cv
        self.n_jobs = n_jobs
        self.fit_intercept = fit_intercept
        self.n_blocks = n_blocks
        self.verbose = verbose

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
        """Choose a pair, then fit to all rows; what was fitted before is forgotten.

        Parameters, errors and warnings are those of :meth:`lstd.LSTD.fit`; besides, it is an error when there are too
        few transitions to hold some out, and when no pair has a well-conditioned system.

        Returns
        -------
        self
        """
        columns = {
            "episode": episode, "terminated": terminated, "X_next": X_next, "discount": discount,
            "importance_ratio": importance_ratio,
        }  # fmt: skip
        settings = Settings(self.gamma, variant=self.variant, fit_intercept=self.fit_intercept)
        checker = BaseEstimator()
        rows = rows_of(checker, X, y, columns, settings, reset=True, min_rows=1, warn=True)
        selection = select(
            rows, lmbdas=self.lmbdas, alphas=self.alphas, variant=settings.variant,
            fit_intercept=settings.fit_intercept, cv=self.cv, n_jobs=self.n_jobs,
            on_progress=_tell if self.verbose else None,
        )  # fmt: skip
        settings = replace(settings, lmbda=selection.lmbda, alpha=selection.alpha)
        blocks = no_blocks(rows, settings.lmbda, self.n_blocks).extended(rows)
        warn_of_breaks(rows, settings.lmbda)
        options = {name: getattr(self, name) for name in _OPTIONS}
        model = Model(blocks, settings, names=names_of(checker), selection=selection, options=options)
        _ = model.solution  # so that its warning comes from `fit`
        self.model_ = model
        return self

    @classmethod
    def of_model(cls, model: Model) -> Self:
        """Return an LSTDCV that holds `model`, which has a selection."""
        settings = model.settings
        estimator = cls(settings.gamma, variant=settings.variant, fit_intercept=settings.fit_intercept, **model.options)
        estimator.model_ = model
        return estimator

    @property
    def lmbda_(self) -> float:
        """Trace decay that was chosen."""
        return self._selection.lmbda

    @property
    def alpha_(self) -> float:
        """Ridge coefficient that was chosen."""
        return self._selection.alpha

    @property
    def best_score_(self) -> float:
        """R² of the chosen pair for held-out returns."""
        return self._selection.score

    @property
    def cv_results_(self) -> dict[str, Array]:
        """Scores of all pairs."""
        return self._selection.results

    @property
    def n_folds_(self) -> int:
        """Number of folds."""
        return self._selection.n_folds

    @property
    def _selection(self) -> Selection:
        check_is_fitted(self)
        assert self.model_.selection is not None
        return self.model_.selection


def _tell(text: str, done: int, total: int) -> None:
    print(f"{text}: {done} of {total}", file=sys.stderr)
