"""TD(λ) error curves: true online, accumulating and replacing traces, many pairs (λ, step size) side by side.

With δ_t = r_{t+1} + γ_{t+1} φ_{t+1}ᵀθ_t − φ_tᵀθ_t and v_t = φ_tᵀθ_{t−1}, the value of row t before the last update:

    true online    e_t = λγ_t e_{t−1} + (1 − α λγ_t e_{t−1}ᵀφ_t) φ_t
                   θ_{t+1} = θ_t + α (δ_t + φ_tᵀθ_t − v_t) e_t − α (φ_tᵀθ_t − v_t) φ_t
    accumulating   e_t = λγ_t e_{t−1} + φ_t,   θ_{t+1} = θ_t + α δ_t e_t
    replacing      e_t = φ_t where φ_t ≠ 0, λγ_t e_{t−1} elsewhere,   θ_{t+1} = θ_t + α δ_t e_t

(van Seijen, Mahmood, Pilarski, Machado and Sutton 2016, with a discount per transition.) Features come as the
nonzeros of each state, so that one-hot features cost no more than they need. Each innermost loop runs over LANES
pairs, which the compiler turns into vector instructions.
"""

from __future__ import annotations

from lstd._kernels.alignment import aligned_zeros
from lstd._kernels.compilation import kernel
from lstd.experiments.sweep_dense import LANES, lanes

TRUE_ONLINE, ACCUMULATING, REPLACING = range(3)


@kernel
def td(indptr, indices, values, states, rewards, discounts, metric, target, kind, lmbdas, alphas, errors):  # type: ignore[no-untyped-def]
    """Sum over the steps of (θ − target)ᵀ metric (θ − target), for every pair.

    Parameters: `indptr` (k + 1,), `indices`, `values`, the features of each state as compressed sparse rows;
    `states` (T + 1,); `rewards` (T,); `discounts` (T + 1,) on arrival in each row; `metric` (n, n) symmetric, or
    (1, n) when it is diagonal; `target` (n,); `kind` one of TRUE_ONLINE, ACCUMULATING, REPLACING; `lmbdas`,
    `alphas` (pairs,), the λ and step size of each pair; `errors` (pairs,), overwritten.
    """
    for first in range(0, len(lmbdas), LANES):
        lmbda = lanes(lmbdas, first)
        alpha = lanes(alphas, first)
        total = _block(indptr, indices, values, states, rewards, discounts, metric, target, kind, lmbda, alpha)
        errors[first : first + LANES] = total[: len(lmbdas) - first]


@kernel
def _block(indptr, indices, values, states, rewards, discounts, metric, target, kind, lmbda, alpha):  # type: ignore[no-untyped-def]
    """`td` for LANES pairs; lanes of no pair have step size 0."""
    n = len(target)
    e = aligned_zeros(n, LANES)
    theta = aligned_zeros(n, LANES)
    # Buffers of their own: in parts of one buffer, loops cannot be proved independent.
    along_e = aligned_zeros(1, LANES)[0]  # θ moves by this along e
    along_phi = aligned_zeros(1, LANES)[0]  # and by this along φ
    decay = aligned_zeros(1, LANES)[0]  # of the traces to the next row
    scratch = aligned_zeros(1, LANES)[0]
    now = aligned_zeros(1, LANES)[0]  # φᵀθ before the update
    ahead = aligned_zeros(1, LANES)[0]  # φ₊ᵀθ before the update
    before = aligned_zeros(1, LANES)[0]  # φᵀθ before the last update
    total = aligned_zeros(1, LANES)[0]
    for t in range(len(rewards)):
        here = slice(indptr[states[t]], indptr[states[t] + 1])
        there = slice(indptr[states[t + 1]], indptr[states[t + 1] + 1])
        _dot(indices[here], values[here], theta, now)
        _dot(indices[there], values[there], theta, ahead)
        _enter(indices[here], values[here], kind, alpha, e, scratch)
        for k in range(LANES):
            error = rewards[t] + discounts[t + 1] * ahead[k] - now[k]
            drift = now[k] - before[k] if kind == TRUE_ONLINE else 0.0
            along_e[k] = alpha[k] * (error + drift)
            along_phi[k] = -alpha[k] * drift
            decay[k] = lmbda[k] * discounts[t + 1]
            before[k] = ahead[k]
        _add(indices[here], values[here], along_phi, theta)
        if len(metric) < n:
            _move_diagonal(along_e, decay, e, theta, metric[0], target, total)
        else:
            _move(along_e, decay, e, theta)
            _add_errors(metric, target, theta, scratch, total)
    return total


@kernel
def _dot(indices, values, vectors, result):  # type: ignore[no-untyped-def]
    """result = φᵀ vectors."""
    for k in range(LANES):
        result[k] = 0.0
    for j in range(len(indices)):
        i = indices[j]
        value = values[j]
        for k in range(LANES):
            result[k] += value * vectors[i, k]


@kernel
def _add(indices, values, factor, vectors):  # type: ignore[no-untyped-def]
    """Vectors ← vectors + φ factor."""
    for j in range(len(indices)):
        i = indices[j]
        value = values[j]
        for k in range(LANES):
            vectors[i, k] += value * factor[k]


@kernel
def _enter(indices, values, kind, alpha, e, factor):  # type: ignore[no-untyped-def]
    """Add the features to the traces, which have decayed already; `factor` is scratch."""
    if kind == REPLACING:
        for j in range(len(indices)):
            i = indices[j]
            value = values[j]
            for k in range(LANES):
                e[i, k] = value
        return
    if kind == TRUE_ONLINE:
        _dot(indices, values, e, factor)
        for k in range(LANES):
            factor[k] = 1.0 - alpha[k] * factor[k]
    else:
        for k in range(LANES):
            factor[k] = 1.0
    _add(indices, values, factor, e)


@kernel
def _move_diagonal(along_e, decay, e, theta, metric, target, total):  # type: ignore[no-untyped-def]
    """Move θ along e, add its error to `total`, and let e decay to the next row, in one pass."""
    for i in range(len(e)):
        weight = metric[i]
        goal = target[i]
        for k in range(LANES):
            theta_ik = theta[i, k] + along_e[k] * e[i, k]
            theta[i, k] = theta_ik
            e[i, k] *= decay[k]
            total[k] += weight * (theta_ik - goal) * (theta_ik - goal)


@kernel
def _move(along_e, decay, e, theta):  # type: ignore[no-untyped-def]
    """Move θ along e, and let e decay to the next row."""
    for i in range(len(e)):
        for k in range(LANES):
            theta[i, k] += along_e[k] * e[i, k]
            e[i, k] *= decay[k]


@kernel
def _add_errors(metric, target, theta, row, total):  # type: ignore[no-untyped-def]
    """Total ← total + (θ − target)ᵀ metric (θ − target); `row` is scratch."""
    for i in range(len(target)):
        for k in range(LANES):
            row[k] = metric[i, i] * (theta[i, k] - target[i])
        for j in range(i):
            for k in range(LANES):
                row[k] += 2.0 * metric[i, j] * (theta[j, k] - target[j])
        for k in range(LANES):
            total[k] += row[k] * (theta[i, k] - target[i])
