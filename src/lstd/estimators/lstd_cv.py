"""LSTD(λ) with λ and α chosen by cross-validation, as a scikit-learn regressor."""

from __future__ import annotations

import sys
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import Any, Self, Unpack

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from lstd.data.doubts import backtest_of
from lstd.data.rows import Columns
from lstd.data.settings import GAMMA, MAX_ITER, TOL, Settings, Solver
from lstd.data.takes import LSTD_COLUMNS, Takes
from lstd.data.variants import VARIANT
from lstd.estimators.base import Fitted, Predictor
from lstd.estimators.choose_settings import choose_settings
from lstd.estimators.lstd import LSTD
from lstd.estimators.model import CV_OPTIONS, Model
from lstd.estimators.model_parts import BiasCheck, MisfitCheck, Results
from lstd.estimators.sparse_solver import fit_without_matrix
from lstd.estimators.validate_data import checked_rows
from lstd.statistics.blocks import check_n_blocks
from lstd.types import Array, FeaturesLike

_FIT = Takes("LSTDCV.fit", LSTD_COLUMNS)
_SECONDS = 5.0  # after which progress is reported, and between two reports


class LSTDCV(Predictor):
    """LSTD(λ) with λ and the ridge coefficient α chosen by cross-validation, then fitted to all data.

    Parameters
    ----------
    gamma, variant, fit_intercept, n_blocks
        As in :class:`lstd.LSTD`. Intervals do not account for the choice of the pair.
    lmbdas : array-like of shape (n_lmbdas,), optional
        Trace decays to choose from; by default 0, 0.1, …, 0.9, 0.91, …, 1, or 0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 1 with
        64 features or more.
    alphas : array-like of shape (n_alphas,), optional
        Ridge coefficients to choose from. The default grid is in a unit, Σⱼ mean((xⱼ − mⱼ)²)/penaltyⱼ over transitions
        and their weights, which is 1 for one-hot features. It has the powers of two from 2⁻⁸ to 1, or to 16 n/T but at
        most 16 if n features have fewer than 16 n transitions T. While the best pair lies at an end, it grows by four
        powers, at most to 2⁻²⁰ and 2⁸, if that improves held-out R² by more than 10⁻⁴ and two standard errors; one
        is enough in one stream, and with 64 features or more. With so many, it has every second power, to 16 n/E or
        more for E whole groups or episodes, at most 16. All pairs of a grid that is given are tried.
    cv : int, optional
        Number of folds, by default 10. A fold has whole groups, whole episodes if there are no `groups`, or rows if
        there are fewer than 5 episodes.
    n_jobs : int, optional
        Number of trace decays to work on at a time, in threads, as in scikit-learn: None is 1, −1 is all cores.
    verbose : int, default 0
        With 1 or more, print a line to stderr for each trace decay that is done. With 0, one every 5 seconds if a
        choice takes longer and stderr is a terminal, or Python is interactive.
    penalty : array-like of shape (n_features,), optional
        Factor, at least 0, by which the chosen ridge coefficient is multiplied for each feature; 0 leaves a feature
        without a penalty. By default the squared spread sⱼ², so that units of features make no difference: the mean of
        (xⱼ − mⱼ)² over the rows with xⱼ ≠ mⱼ, and 1 for constant features. The centre mⱼ is the value that at least
        half of the rows have, else the mean; 0 without an intercept.

    solver, tol, max_iter
        As in :class:`lstd.LSTD`. The iterative solver solves one system for each pair without each fold, to a relative
        residual of 10⁻⁵ or `tol`, from the weights of the pair before. By default it chooses from 7 trace decays, every
        second of the ridge coefficients and 5 folds: 210 solves, and 168 more each time that the best
        pair lies at an end of the grid, as it often does: 378 or 546 are usual. All their weights are kept meanwhile.

    Attributes
    ----------
    lmbda_, alpha_ : float
        The pair that was chosen.
    ridge_ : ndarray of shape (n_features,)
        Ridge coefficient of each feature, `alpha_` times its penalty; ``LSTD(gamma, lmbda_, ridge_)`` is the same model
        up to rounding.
    best_score_ : float
        R² of the chosen pair on held-out rows, against discounted returns; the mean over several rewards. Where an
        episode was cut off, a prediction completes the return, so the score says little if `observed_share_` is small.
    observed_share_ : float
        Share of the discounted weight of these returns that was observed.
    cv_results_ : dict of ndarray of shape (n_lmbdas * n_alphas,)
        Each time a new dictionary of read-only arrays, with an entry for each pair that was tried: ``lmbda``,
        ``alpha``, ``mean_test_score`` and ``std_test_score`` over the folds, and ``split0_test_score`` and so on;
        ``cautious_test_score``, the mean less a margin, or a score on λ-returns where these decided, and
        ``rank_test_score`` by it; ``condition_number``, the largest over
        all data and the data without each fold; ``observed_share``, the same for all pairs; ``observed_test_score``,
        the R² of the observed part alone: the same errors, against the variance of the rewards' discounted sum up to
        the cut. Pairs with an ill-conditioned system have NaN as scores and the last rank. With the iterative solver,
        ``n_iter`` takes the place of the condition number: the largest number of products of a solve, infinite if some
        did not converge within `max_iter`, which leaves the pair out.
    n_folds_ : int
    arbitrary_scores_ : tuple of float, or None
        If chance explains the differences among the best scores of each λ: the least and the largest. Then λ is
        arbitrary as far as the data tell; more features may help where no λ does.
    bias_check_ : BiasCheck or str
        Result of :meth:`bias_check` with whole groups or episodes from all over the rows, the same ones each time: up
        to 2¹⁶ features in all, or 2000 rows or 64 groups if these are more; or why it could not run.
    misfit_check_ : MisfitCheck or str
        The same of :meth:`misfit_check`, without its boosted tree. `fit` gives the warnings of both checks. If both
        warn, add features first: a larger λ removes only the bias.
    coef_, intercept_, statistics_, coef_covariance_, condition_number_, n_iter_, residual_, n_transitions_,
    n_episodes_, n_unused_rewards_, n_features_in_, feature_names_in_
        As in :class:`lstd.LSTD`.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTDCV
    >>> X, random = np.eye(3)[np.arange(300) % 3], np.random.default_rng(0)
    >>> model = LSTDCV(gamma=0.5).fit(X, np.arange(300) % 3 + random.normal(scale=0.1, size=300))
    >>> model.predict(np.eye(3)).round(1)
    array([1.1, 2.3, 2.6])
    """

    lmbda_: Fitted[Model, float] = Fitted(attrgetter("selection.lmbda"))
    alpha_: Fitted[Model, float] = Fitted(attrgetter("selection.alpha"))
    ridge_: Fitted[Model, Array] = Fitted(lambda model: model.ridge[: model.n_features])
    best_score_: Fitted[Model, float] = Fitted(attrgetter("selection.score"))
    observed_share_: Fitted[Model, float] = Fitted(attrgetter("selection.observed_share"))
    cv_results_: Fitted[Model, dict[str, Results]] = Fitted(attrgetter("selection.results"))
    n_folds_: Fitted[Model, int] = Fitted(attrgetter("selection.n_folds"))
    arbitrary_scores_: Fitted[Model, tuple[float, float] | None] = Fitted(attrgetter("selection.arbitrary_scores"))
    bias_check_: Fitted[Model, BiasCheck | str] = Fitted(attrgetter("checks.bias"))
    misfit_check_: Fitted[Model, MisfitCheck | str] = Fitted(attrgetter("checks.misfit"))

    def __init__(
        self,
        gamma: float = GAMMA,
        lmbdas: ArrayLike | None = None,
        alphas: ArrayLike | None = None,
        variant: str = VARIANT,
        cv: int | None = None,
        n_jobs: int | None = None,
        fit_intercept: bool = True,
        n_blocks: int | str = "auto",
        verbose: int = 0,
        penalty: ArrayLike | None = None,
        solver: str = "auto",
        tol: float = TOL,
        max_iter: int = MAX_ITER,
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
        self.penalty = penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: FeaturesLike, y: ArrayLike, **columns: Unpack[Columns]) -> Self:
        """Choose a pair, then fit to all rows; any earlier fit is forgotten.

        Parameters, errors and warnings are those of :meth:`lstd.LSTD.fit`. It is also an error if there are too few
        transitions to hold some out, or if no pair has a well-conditioned system.

        Returns
        -------
        self
        """
        penalty: Any = self.penalty
        settings = Settings(self.gamma, variant=self.variant, fit_intercept=self.fit_intercept, penalty=penalty)
        solver = Solver(self.solver, self.tol, self.max_iter)
        check_n_blocks(self.n_blocks)
        rows = checked_rows(
            BaseEstimator(), X, y, columns, _FIT, gamma=settings.gamma, reset=True, warn=True, sort=True
        )
        settings.ridge(rows.n_features)  # checks the number of factors
        without_matrix = solver.takes(rows.X, rows.n_features)
        with_ones = rows
        if settings.fit_intercept:
            with_ones = rows.with_ones()
        settings, selection, checks = choose_settings(
            with_ones,
            settings,
            lmbdas=self.lmbdas,
            alphas=self.alphas,
            cv=self.cv,
            n_jobs=self.n_jobs,
            solver=solver if without_matrix else None,
            on_progress=_report_progress if self.verbose else _SlowProgress(),
        )
        options = {name: getattr(self, name) for name in CV_OPTIONS}
        fit = Model.of_rows
        if without_matrix:
            fit = partial(fit_without_matrix, solver=solver)
        model = fit(rows, settings, options=options, selection=selection, checks=checks)
        self.model_ = model.described(tested=backtest_of(self)).checked().with_doubts(rows)
        return self


def estimator_of(model: Model) -> LSTD | LSTDCV:
    """Return an estimator with this fitted state: an LSTDCV if its settings were chosen, else an LSTD."""
    if model.selection is None:
        return LSTD.of_model(model)
    return LSTDCV.of_model(model)


class _SlowProgress:
    """Report the progress of a choice that takes more than 5 seconds, every 5 seconds, where somebody looks on."""

    def __init__(self) -> None:
        self._next = monotonic() + _SECONDS

    def __call__(self, text: str, done: float, total: float) -> None:
        is_watched = sys.stderr is not None and (sys.stderr.isatty() or hasattr(sys, "ps1"))
        if is_watched and done < total and monotonic() > self._next:
            self._next = monotonic() + _SECONDS
            _report_progress(text, done, total)


def _report_progress(text: str, done: float, total: float) -> None:
    """Print a line of progress to stderr."""
    print(f"{text}: {done:g} of {total:g}", file=sys.stderr)
