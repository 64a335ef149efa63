"""Products with the matrix A of LSTD(λ), which is never formed: one pass backwards over sparse rows.

With the TD errors δ_t = r_{t+1} + γ_t φ'_tᵀv − φ_tᵀv of weights v, the sums over full transitions

    b − A v = Σ w_t z_t δ_t = Σ φ_t f_t,   f_t = ρ_t (w_t δ_t + c_{t+1} λγ_t f_{t+1})

hold for any λ. So v = 0 gives b, and rewards of zero give −A v. A batch of rows is multiplied first and added last, as
short loops have more loads from memory under way at a time.
"""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import kernel

# Marks of a row, which add up
FULL = 1  # full transition
LAST = 2  # last row of its episode
CUT = 4  # its successor is dropped where the data are cut


@kernel
def add_td_errors(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    values,
    indptr_next,
    indices_next,
    values_next,
    rewards,
    discounts,
    ratios,
    coefficients,
    weights,
    marks,
    factors,
    v,
    part,
    batch,
    goal,
):
    """Add b − A v over some rows to `goal`, (n + 1,): from `part[0]` up to `part[1]`.

    Row t has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`, and a one in the last place; its successor
    likewise, or it is the next row if `indptr_next` is empty. Columns have T numbers, or one for all rows. `factors`
    are of the rewards, of the traces, and of successors at a cut. δ_t is zero in the rows from `part[2]` up to
    `part[3]`, and in rows after the part. `batch` (2, size + 1) is scratch.
    """
    p, f = batch
    size = batch.shape[1] - 1
    after = part[1]
    state = 0.0  # f of the row after the batch
    p[0] = 0.0
    if after < len(marks):
        _multiply(indptr, indices, values, v, after, after + 1, p)
    for end in range(after, part[0], -size):
        first = max(part[0], end - size)
        p[end - first] = p[0]  # φᵀv of the row after the batch
        _multiply(indptr, indices, values, v, first, end, p)
        if len(indptr_next):
            _multiply(indptr_next, indices_next, values_next, v, first, end, f)
        else:
            f[: end - first] = p[1 : end - first + 1]
        columns = (rewards, discounts, ratios, coefficients, weights)
        state = _td_errors(columns, marks, factors, part, first, end, p, f, state)
        _add_rows(indptr, indices, values, f, first, end, goal)


@kernel
def _multiply(indptr, indices, values, v, first, end, out):  # type: ignore[no-untyped-def]
    """out_t ← φ_tᵀv, counted from the first row."""
    start = indptr[first]
    one = v[len(v) - 1]
    for t in range(first, end):
        stop = indptr[t + 1]
        value = one
        for k in range(start, stop):
            value += values[k] * v[np.uint64(indices[k])]
        out[t - first] = value
        start = stop


@kernel
def _td_errors(columns, marks, factors, part, first, end, p, f, after):  # type: ignore[no-untyped-def]
    """Replace φ'_tᵀv in f by f_t, and return the first one; `after` is that of the row after the last."""
    rewards, discounts, ratios, coefficients, weights = columns
    by_ratio = len(ratios) > 1
    by_coefficient = len(coefficients) > 1
    by_weight = len(weights) > 1
    for t in range(end - 1, first - 1, -1):
        error = 0.0
        kept = 0.0
        mark = marks[t]
        if mark & FULL and not part[2] <= t < part[3]:
            ahead = discounts[t] * f[t - first]
            if mark & CUT:
                ahead *= factors[2]
            error = weights[t * by_weight] * (factors[0] * rewards[t] + ahead - p[t - first])
        if not mark & LAST:
            kept = coefficients[(t + 1) * by_coefficient] * factors[1] * discounts[t]
        after = ratios[t * by_ratio] * (error + kept * after)
        f[t - first] = after
    return after


@kernel
def _add_rows(indptr, indices, values, f, first, end, goal):  # type: ignore[no-untyped-def]
    """Add Σ φ_t f_t to goal; f is counted from the first row."""
    start = indptr[first]
    total = 0.0
    for t in range(first, end):
        stop = indptr[t + 1]
        factor = f[t - first]
        total += factor
        for k in range(start, stop):
            goal[np.uint64(indices[k])] += factor * values[k]
        start = stop
    goal[len(goal) - 1] += total


@kernel
def add_squares(indptr, indices, values, own, first, goal):  # type: ignore[no-untyped-def]
    """Add Σ own_t φ_t² over rows from the first to `goal`, (n + 1,), whose last feature is one in each row.

    That is the diagonal of A for λ = 1, and near it for others unless features often follow themselves.
    """
    for t in range(len(own)):
        goal[len(goal) - 1] += own[t]
        for k in range(indptr[first + t], indptr[first + t + 1]):
            goal[indices[k]] += own[t] * values[k] ** 2
