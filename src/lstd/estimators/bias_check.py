"""Check for bias from bootstrapping: predictions with λ compared with predictions with λ = 1, from the same data.

With λ < 1 and features that cannot represent the values, LSTD(λ) does not converge to the best fit of the values, as
λ = 1 does. Both are solved for with the same small ridge coefficient and the same blocks of data, as for intervals
(:mod:`lstd.statistics.covariance`). Let d be the difference of their weights, D_e the difference of their influence
vectors q_e, G the mean of φφᵀ and W = D G Dᵀ. Box's F

    F = dᵀ G d / tr W,   ν₁ = (tr W)² / tr((GΣ)²),   ν₂ as the degrees of freedom of Σ W_ee,

compares the mean squared difference of the predictions with its expectation by chance. tr((GΣ)²) is estimated without
the bias from E blocks (Bai and Saranadasa 1996).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lstd.data.feature_arrays import Features, check_finite, dense
from lstd.data.rows import Rows
from lstd.errors import BiasWarning, InvalidInputError, warn
from lstd.estimators.check_results import SIGNIFICANT, BiasCheck, two_digits
from lstd.estimators.folds import times_weights
from lstd.estimators.model import QUIET, Model
from lstd.statistics.blocks import Blocks, no_blocks
from lstd.statistics.intervals import degrees_of_freedom
from lstd.statistics.ridge_warning import grows_without_bound
from lstd.statistics.solve import check_range
from lstd.types import Array

_MATERIAL = 0.25  # of the standard error of predictions: intervals cover a smaller difference
_FEWEST = (5, 20)  # episodes, and rows of one
_RIDGE = (
    2.0**-6
)  # in units of the mean square or variance of a feature; a larger one alone would make the two estimates differ


@np.errstate(over="ignore", invalid="ignore")  # `check_range` reports overflow
def check_bias(rows: Rows, model: Model, blocks: tuple[Blocks, Blocks] | None = None, *, note: str = "") -> BiasCheck:
    """Compare predictions of λ and of λ = 1, both fitted to `rows`; see :meth:`lstd.LSTD.bias_check`.

    If the model has an intercept, the rows must have the column of ones. `blocks` are those of the rows with λ and with
    λ = 1, if known. A warning ends with `note`.
    """
    lmbda = model.statistics.lmbda
    if lmbda == 1.0:
        raise InvalidInputError("`lmbda` must be below 1 for a check of bias; got 1, which does not bootstrap.")
    check_enough("bias", rows, *_FEWEST)
    check_finite("X", rows.X)
    gram = mean_product(rows, rows.X, rows.X)
    check_range(gram)
    square = gram.diagonal()
    if model.settings.fit_intercept:  # about the mean: the weight of the ones must not take over what α shrinks
        square = np.maximum((square - gram[-1] ** 2)[:-1], 2.0**-40 * square[:-1])
    penalty = np.array(model.settings.penalty or (1.0,) * len(square))
    penalty = np.where(penalty > 0.0, penalty, np.where(square > 0.0, square, 1.0))
    alpha = _RIDGE * float(np.mean(square / penalty)) * total_weight(rows) / len(rows)
    settings = replace(model.settings, alpha=alpha, penalty=tuple(penalty.tolist()), centre=None)
    with_lmbda, with_one = (
        Model(one, replace(settings, lmbda=one.total.lmbda), warned=QUIET)
        for one in blocks or [no_blocks(rows, decay, "auto").extended(rows) for decay in (lmbda, 1.0)]
    )
    _check_bounded(with_lmbda, with_one)
    check = _compared(with_lmbda, with_one, gram)
    if np.any(check.biased):
        warn(_message(check, lmbda) + note, BiasWarning)
    if not model.statistics.single:
        return check
    return BiasCheck(**{name: value[0].item() for name, value in vars(check).items()})


def _check_bounded(*models: Model) -> None:
    """Refuse to compare values that are infinite: the ridge term decides them, and not the features."""
    for model in models:
        s, intercept = model.statistics, model.settings.fit_intercept
        sums = (s.matrix(model.settings.variant), s.b, model.ridge, model.solution.weights)
        if s.gamma == 1.0 and (model.solution.unbounded or grows_without_bound(*sums, intercept=intercept)):
            raise InvalidInputError(
                "A check of bias needs finite values: at `gamma` 1, states from which no end is reached have infinite "
                "values. Drop these states, or use a `gamma` below 1."
            )


def total_weight(rows: Rows) -> float:
    """Return the sum of the weights of all rows."""
    return float(rows.weight.sum()) or 1.0


def mean_product(rows: Rows, one: Features, two: Features) -> Array:
    """Compute the mean over the rows of products of two functions of them, (T, n) and (T, m), by weight."""
    return dense(one.T @ times_weights(two, rows.weight)) / total_weight(rows)


def check_enough(what: str, rows: Rows, n_groups: int, n_rows: int) -> None:
    """Refuse to check fewer than `n_groups` groups or episodes, or fewer than `n_rows` rows of one stream."""
    count = int(rows.begins.sum()) if len(rows) else 0
    grouped = rows.groups is not None
    if count < n_groups and (grouped or count != 1 or len(rows) < n_rows):
        needed = f"{n_groups} groups" if grouped else f"{n_groups} episodes, or {n_rows} rows of one stream"
        raise InvalidInputError(
            f"A check of {what} needs at least {needed}; got {len(rows)} rows of {count} "
            f"{'group' if grouped else 'episode'}{'s' * (count != 1)}. Pass more."
        )


def _compared(with_lmbda: Model, with_one: Model, gram: Array) -> BiasCheck:
    one, other = with_one.influence, with_lmbda.influence
    weights = with_one.solution.weights.T + one.shift
    d = weights - with_lmbda.solution.weights.T - other.shift  # (m, n)
    D = (one.vectors - other.vectors).transpose(1, 0, 2)  # (m, E, n)
    check_range(d, D)
    difference = np.einsum("mi,ij,mj->m", d, gram, d)
    expected, p_value = np.empty((2, len(d)))
    for j, changes in enumerate(D):
        W = changes @ gram @ changes.T
        expected[j] = np.trace(W)
        p_value[j] = _p_value(difference[j], W, one.shares, len(gram))
    size = np.sqrt(np.einsum("mi,ij,mj->m", weights, gram, weights))
    check_range(difference, expected, size)
    error = np.sqrt(np.einsum("emi,ij,emj->m", other.vectors, gram, other.vectors))
    biased = (p_value < SIGNIFICANT) & (np.sqrt(difference) > _MATERIAL * error)
    return BiasCheck(np.sqrt(difference), np.sqrt(expected), size, p_value, biased)


def _p_value(difference: float, W: Array, shares: Array, n_features: int) -> float:
    n_blocks, trace = len(W), float(np.trace(W))
    if not trace > 0.0:
        return 1.0
    squares = (n_blocks - 1) ** 2 / ((n_blocks - 2) * (n_blocks + 1))
    squares *= float(np.sum((W / trace) ** 2)) - 1.0 / (n_blocks - 1)  # in units of the squared trace
    nu1 = float(np.clip(1.0 / max(squares, 1e-300), 1.0, n_features))
    nu2 = float(degrees_of_freedom(np.diag(W)[np.newaxis, :, np.newaxis], shares)[0, 0])
    from scipy import special  # takes 0.1 s to import

    return float(special.fdtrc(nu1, nu2, difference / trace))


def _message(check: BiasCheck, lmbda: float) -> str:
    j = int(np.argmin(check.p_value))
    difference, expected, size = (
        two_digits(np.atleast_1d(x)[j]) for x in (check.difference, check.expected, check.size)
    )  # fmt: skip
    return (
        f"Predictions with `lmbda` {lmbda:g} differ from predictions with 1 by {difference} (root mean square, of "
        f"values of {size}); chance alone would give {expected}. So the features do not represent the values, and "
        "bootstrapping biases the predictions, beyond their intervals. Add features, such as squares, products or "
        "bins; if there are none to add, use a larger `lmbda`."
    )
