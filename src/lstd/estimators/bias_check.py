"""The check for bias from bootstrapping, and both checks after a choice of settings or for a report.

The check for bias compares predictions with λ and with λ = 1, from the same data.

With λ < 1 and features that cannot represent the values, LSTD(λ) does not converge to the best fit of the values, as
λ = 1 does. Both are solved for with the same small ridge coefficient and the same blocks of data, as for intervals
(:mod:`lstd.statistics.intervals`). Let d be the difference of their weights, D_e the difference of their influence
vectors q_e, G the mean of φφᵀ and W = D G Dᵀ. Box's F

    F = dᵀ G d / tr W,   ν₁ = (tr W)² / tr((GΣ)²),   ν₂ as the degrees of freedom of Σ W_ee,

compares the mean squared difference of the predictions with its expectation by chance. A difference that is clear but
less than a hundredth of the mean squared residual is no reason to warn. tr((GΣ)²) is estimated without
the bias from E blocks (Bai and Saranadasa 1996). Where all blocks say the same, there is no chance to compare with, and
the p-value is 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from lstd.data.feature_arrays import check_finite
from lstd.data.rows import Rows
from lstd.data.settings import Settings
from lstd.errors import BiasWarning, IllConditionedWarning, InvalidInputError, LSTDWarning, RidgeWarning, warn
from lstd.estimators.folds import (
    check_enough,
    lambda_returns,
    mean_product,
    mean_square,
    rows_from_all_over,
    total_weight,
)
from lstd.estimators.linear import Linear
from lstd.estimators.misfit_check import check_misfit
from lstd.estimators.model import Model
from lstd.estimators.model_parts import MATERIAL, SIGNIFICANT, BiasCheck, Checks, needs_matrix
from lstd.statistics.blocks import no_blocks
from lstd.statistics.intervals import degrees_of_freedom
from lstd.statistics.ridge import grows_without_bound
from lstd.statistics.solve import check_range
from lstd.types import Array

T = TypeVar("T")

_OF_ERROR = 0.25  # of the standard error of predictions: intervals cover a smaller difference
_ROUNDING = 1e-10  # of the predictions: where chance explains less, blocks of data differ by rounding
FEWEST = (5, 20)  # episodes, and rows of one
# In units of the mean square or variance of a feature; a larger one alone would make the two estimates differ.
RIDGE = 2.0**-6
_ENTRIES = 2**20  # features of the rows that are checked for a report, 8 MiB
ENTRIES_OF_CHECK = 2**16  # after a fit or a choice, so that checks take no longer than it,
ROWS_OF_CHECK = 2000  # or so many rows,
_GROUPS_OF_CHECK = 64  # or groups, if these are more
ENTRIES_AHEAD = 2**19  # of the rows by which a log is looked at ahead: of fewer, totals are noise


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def check_bias(rows: Rows, model: Model, *, note: str = "") -> BiasCheck:
    """Compare predictions of λ and of λ = 1, both fitted to `rows`; see :meth:`lstd.LSTD.bias_check`.

    If the model has an intercept, the rows must have the column of ones. A warning ends with `note`.
    """
    lmbda = model.statistics.lmbda
    if lmbda == 1.0:
        raise InvalidInputError("`lmbda` must be below 1 for a check of bias; got 1, which does not bootstrap.")
    check_enough("A check of bias", rows, *FEWEST)
    check_finite("X", rows.X, rows.names)
    gram = mean_product(rows, rows.X, rows.X)
    check_range(gram)
    settings = _with_small_ridge(model.settings, rows, gram)
    with_lmbda = _refitted(rows, settings, lmbda)
    with_one = _refitted(rows, settings, 1.0)
    _check_bounded(with_lmbda, with_one)
    theta = with_one.linear.weights
    residuals = lambda_returns(rows, 1.0, theta) - np.asarray(rows.X @ theta)
    residual = mean_square(rows, residuals)
    check = compared(with_lmbda.linear, with_one.linear, gram, residual)
    if np.any(check.biased):
        warn(check.message(lmbda) + note, BiasWarning)
    return check.first() if model.statistics.single else check


def _with_small_ridge(settings: Settings, rows: Rows, gram: Array) -> Settings:
    """Return settings with a small ridge coefficient, in units of mean squares; `gram` (n, n) are mean products."""
    square = gram.diagonal()
    if settings.fit_intercept:  # about the mean: the weight of the ones must not take over what α shrinks
        variance = (square - gram[-1] ** 2)[:-1]
        square = np.maximum(variance, 2.0**-40 * square[:-1])
    penalty = np.array(settings.penalty or (1.0,) * len(square))
    unpenalised = np.where(square > 0.0, square, 1.0)
    penalty = np.where(penalty > 0.0, penalty, unpenalised)
    mean_weight = total_weight(rows) / max(1, int(rows.full.sum()))
    alpha = RIDGE * float(np.mean(square / penalty)) * mean_weight
    return replace(settings, alpha=alpha, penalty=tuple(penalty.tolist()), centre=None)


def _refitted(rows: Rows, settings: Settings, lmbda: float) -> Model:
    """Return the model of rows with another trace decay."""
    blocks = no_blocks(rows, lmbda, "auto").extended(rows)
    return Model(blocks, replace(settings, lmbda=lmbda))


def _check_bounded(*models: Model) -> None:
    """Refuse to compare values that are infinite: the ridge term decides them, and not the features."""
    for model in models:
        if model.statistics.gamma < 1.0:
            continue
        if model.solution.unbounded or grows_without_bound(model.system, model.solution.weights):
            raise InvalidInputError(
                "A check of bias needs finite values: at `gamma` 1, states from which no end is reached have infinite "
                "values. Drop these states, or use a `gamma` below 1."
            )


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def compared(with_lmbda: Linear, with_one: Linear, gram: Array, residual: Array) -> BiasCheck:
    """Compare the predictions of two fits to the same blocks, with λ and with λ = 1.

    `gram` (n, n) are mean products of the features, the column of ones among them if there is one, and `residual` (m,)
    mean squared residuals with λ = 1.
    """
    one = with_one.influence
    other = with_lmbda.influence
    weights = with_one.weights.T + one.shift
    d = weights - with_lmbda.weights.T - other.shift  # (m, n)
    D = (one.vectors - other.vectors).transpose(1, 0, 2)  # (m, E, n)
    check_range(d, D)
    difference = np.maximum(np.einsum("mi,ij,mj->m", d, gram, d), 0.0)  # which rounding makes negative
    expected = np.empty(len(d))
    p_value = np.empty(len(d))
    size = np.sqrt(np.maximum(np.einsum("mi,ij,mj->m", weights, gram, weights), 0.0))
    for j, changes in enumerate(D):
        W = changes @ gram @ changes.T
        expected[j] = np.trace(W)
        p_value[j] = 1.0
        if np.sqrt(expected[j]) > _ROUNDING * size[j]:
            p_value[j] = _p_value(difference[j], W, one.shares, len(gram))
    error = np.sqrt(np.maximum(np.einsum("emi,ij,emj->m", other.vectors, gram, other.vectors), 0.0))
    check_range(difference, expected, size, error, residual)
    is_clear = p_value < SIGNIFICANT
    is_beside_intervals = np.sqrt(difference) > _OF_ERROR * error
    biased = is_clear & is_beside_intervals & (difference >= MATERIAL * residual)
    return BiasCheck(
        difference=np.sqrt(difference),
        expected=np.sqrt(expected),
        size=size,
        residual=np.sqrt(residual),
        p_value=p_value,
        biased=biased,
    )


def _p_value(difference: float, W: Array, shares: Array, n_features: int) -> float:
    """Return the probability by chance of a mean squared difference at least as large: Box's F."""
    n_blocks = len(W)
    trace = float(np.trace(W))
    squares = (n_blocks - 1) ** 2 / ((n_blocks - 2) * (n_blocks + 1))
    squares *= float(np.sum((W / trace) ** 2)) - 1.0 / (n_blocks - 1)  # tr((GΣ)²) in units of the squared trace
    nu1 = float(np.clip(1.0 / max(squares, 1e-300), 1.0, n_features))
    of_blocks = np.diag(W)[np.newaxis, :, np.newaxis]
    nu2 = float(degrees_of_freedom(of_blocks, shares)[0, 0])
    from scipy import special  # takes 0.1 s to import

    return float(special.fdtrc(nu1, nu2, difference / trace))


def checks_of_choice(rows: Rows, settings: Settings) -> Checks:
    """Check a model with chosen settings on some of its rows; with an intercept, rows have the column of ones."""
    some = rows_of_check(rows, rows.n_features)
    model = Model(no_blocks(some, settings.lmbda, "auto").extended(some), settings)
    quiet = IllConditionedWarning, RidgeWarning  # the model gives its own
    return _checks(some, model, quiet, note=note_of_check(len(some), len(rows)), tree=False)


def rows_of_check(rows: Rows, n: int, *, ahead: bool = False) -> Rows:
    """Return rows that are checked, or looked `ahead` by, after a fit of n weights: whole groups from all over."""
    return rows_from_all_over(rows, *sizes_of_check(n, ahead=ahead))


def sizes_of_check(n: int, *, ahead: bool = False) -> tuple[int, int, int]:
    """Return how many rows these are: most, at least so many groups or episodes, and the limit."""
    entries = ENTRIES_AHEAD if ahead else ENTRIES_OF_CHECK
    most = max(entries // n, ROWS_OF_CHECK)
    return most, _GROUPS_OF_CHECK, _ENTRIES // n


def note_of_check(n_checked: int, n_rows: int) -> str:
    """Say how many rows of a fit were checked; empty if all were."""
    if n_checked == n_rows:
        return ""
    return f" Checked on {n_checked} of {n_rows} rows, from all over the data."


def checks_for_report(rows: Rows, model: Model) -> Checks:
    """Check a fitted model of rows without the column of ones; gives no warnings, as the report has what they say."""
    if model.matrix_free is not None:
        return Checks(needs_matrix("bias_check"), needs_matrix("misfit_check"))
    if model.settings.fit_intercept:
        rows = rows.with_ones()
    some = rows_from_all_over(rows, _ENTRIES // model.statistics.n_features)
    return _checks(some, model, (LSTDWarning,))


def _checks(
    rows: Rows,
    model: Model,
    quiet: Iterable[type[Warning]],
    *,
    note: str = "",
    tree: bool = True,
) -> Checks:
    """Run both checks without some warnings; others end with `note`."""
    with warnings.catch_warnings():
        for category in quiet:
            warnings.simplefilter("ignore", category)
        return Checks(
            bias=or_why(partial(check_bias, rows, model, note=note)),
            misfit=or_why(partial(check_misfit, rows, model, note=note, tree=tree)),
        )


def or_why(check: Callable[[], T]) -> T | str:
    """Return what a check finds, or why it could not run."""
    try:
        return check()
    except InvalidInputError as error:
        return str(error)
