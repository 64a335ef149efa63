"""Eligibility traces of a batch of rows, as the left factor of a matrix product, and what is counted beside them.

With γ_t the discount of row t's transition, u_t = γ_{t−1} z_{t−1} the incoming trace, λ_t = c_t λ with the trace
coefficient c_t, ρ_t the importance ratio and w_t the weight:

    z_t = ρ_t (λ_t u_t + φ_t),   A += (w_t z_t − v_t) φ_tᵀ,   b += w_t z_t r_{t+1},   v_t = w_{t−1} u_t

The kernels compute the left factor for a batch, or the products of sparse rows too, add to b, and update u from batch
to batch. Traces may be longer than the features, which then are zero at the end.
"""

from __future__ import annotations

from lstd._kernels.compilation import lean_kernel as kernel

# Sums of an effective sample: the traces e and f, in the next row u and v; Σ g and the double sum.
E, F, TOTAL, SQUARE = range(4)
# What rows do to (1, v, observed weight), each a row of a matrix.
ONE, ENTERING, OBSERVED = range(3)


@kernel
def dense_traces(phi, rewards, discounts, ratios, lmbdas, weights, cut, kept, u, left, b):  # type: ignore[no-untyped-def]
    """Compute traces of rows with dense features.

    Parameters: `phi` (T, n); `rewards` (T, m); `discounts`, zero where the trace ends, `ratios`, `lmbdas` and
    `weights`, (T,), or (1,) for all rows; `cut`, likewise, horizon rows, which add nothing to b and leave no trace;
    `kept`, the factor of v in the result, 1 or 0; `u`, at least (k,), the trace that enters the first row, replaced by
    the one that enters the row after the last; `left` (T, k), overwritten by w_t z_t − kept v_t, but in the first row
    by w_t z_t alone; `b` (m, …), added to.
    """
    n = phi.shape[1]
    width = left.shape[1]
    before = 0.0
    for t in range(len(phi)):
        ratio = _of(ratios, t)
        discount = _of(discounts, t)
        lmbda = _of(lmbdas, t)
        weight = _of(weights, t)
        if _of(cut, t):
            ratio = 0.0
            discount = 0.0
        for j in range(1, rewards.shape[1]):
            _add_trace(weight * rewards[t, j] * ratio, lmbda, phi[t], u, b[j], width)
        subtracted = kept * before
        reward = weight * rewards[t, 0]
        before = weight
        for i in range(n):
            z_i = ratio * (lmbda * u[i] + phi[t, i])
            left[t, i] = weight * z_i - subtracted * u[i]
            u[i] = discount * z_i
            b[0, i] += reward * z_i
        for i in range(n, width):
            z_i = ratio * lmbda * u[i]
            left[t, i] = weight * z_i - subtracted * u[i]
            u[i] = discount * z_i
            b[0, i] += reward * z_i


@kernel
def add_transition(phi, rewards, ratio, discount, lmbda, weight, u, v, sums):  # type: ignore[no-untyped-def]
    """Add the transition that leaves a row: (w z − v) φᵀ to A and w z r to b.

    Parameters: `phi`, features, of which the last may be left out if it is one; `rewards` (m,); `u` and `v` (k,), the
    traces that enter the row, replaced by those that enter the next; `sums` (n + m, k), A and below it b, transposed.
    """
    n = len(sums) - len(rewards)
    width = len(u)
    given = len(phi)
    for j in range(n):
        x = phi[j] if j < given else 1.0
        for i in range(width):
            sums[j, i] += x * (weight * ratio * lmbda * u[i] - v[i])
        for i in range(given):
            sums[j, i] += x * (weight * ratio * phi[i])
        for i in range(given, n):
            sums[j, i] += x * (weight * ratio)
    for j in range(len(rewards)):
        _add_trace(weight * rewards[j] * ratio, lmbda, phi, u, sums[n + j], width)
        for i in range(given, n):
            sums[n + j, i] += weight * rewards[j] * ratio
    for i in range(width):
        z_i = ratio * lmbda * u[i]
        if i < given:
            z_i += ratio * phi[i]
        elif i < n:
            z_i += ratio
        u[i] = discount * z_i
        v[i] = weight * discount * z_i


@kernel
def add_few(phi, rewards, discounts, ratios, lmbdas, weights, cut, u, v, sums, cuts):  # type: ignore[no-untyped-def]
    """Add a few rows, with dense features and without successors, as `add_transition` does; where `cut`, φ vᵀ to B.

    Rows: `phi` (T, n), or (T, n − 1) without the column of ones; `rewards` (T, m); `cut` (T,); the others (T,), or (1,)
    for all rows. `cuts` (n, k) is B, transposed.
    """
    for t in range(len(rewards)):
        if cut[t]:
            for j in range(len(cuts)):
                x = phi[t, j] if j < phi.shape[1] else 1.0
                for i in range(len(v)):
                    cuts[j, i] += x * v[i]
            u[:] = 0.0
            v[:] = 0.0
        else:
            factors = _of(ratios, t), _of(discounts, t), _of(lmbdas, t), _of(weights, t)
            add_transition(phi[t], rewards[t], *factors, u, v, sums)


@kernel
def _of(column, t):  # type: ignore[no-untyped-def]
    """Return the number of row t in a column, which may have one number for all rows."""
    return column[t] if len(column) > 1 else column[0]


@kernel
def _add_trace(factor, lmbda, phi, u, goal, width):  # type: ignore[no-untyped-def]
    """goal ← goal + factor · (λ u + φ)."""
    for i in range(len(phi)):
        goal[i] += factor * (lmbda * u[i] + phi[i])
    for i in range(len(phi), width):
        goal[i] += factor * lmbda * u[i]


@kernel
def sparse_sums(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    values,
    rewards,
    discounts,
    ratios,
    lmbdas,
    weights,
    cut,
    inner,
    outgoing,
    indptr_next,
    indices_next,
    values_next,
    u,
    v,
    left,
    sums,
    cuts,
):
    """Add Σ (w_t z_t − v_t) φ_tᵀ to the transpose of A; where `cut`, subtract it from that of B.

    With successors, add Σ w_t z_t (φ_t − γ_t φ'_t)ᵀ, the second term where `inner`; to that of B where `cut`.

    Row t has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`; its successor likewise, if `indptr_next` is not
    empty. `discounts` are those of the traces, zero where one ends; they, `ratios`, `lmbdas` and `weights` are (T,), or
    (1,) for all rows. `outgoing` (T,) are the discounts of successors. `u` and `v` (k,) enter the first row, and are
    replaced; `sums` (n + m, k) are A and b, transposed; `cuts` (n, k) B. `left` (k,) is scratch: a row stays in the
    cache until it is multiplied by the few entries of φ_t.
    """
    b = sums[len(sums) - rewards.shape[1] :]
    given = len(indptr_next) > 0
    for t in range(len(rewards)):
        row = slice(indptr[t], indptr[t + 1])
        ends = cut[t] and not given
        active = 0.0 if ends else 1.0
        ratio = active * _of(ratios, t)
        discount = active * _of(discounts, t)
        factors = (ratio, discount, _of(lmbdas, t), _of(weights, t), 0.0 if given else 1.0)
        _sparse_trace(indices[row], values[row], rewards[t], factors, u, v, left, b)
        _add_columns(indices[row], values[row], -1.0 if ends else 1.0, left, cuts if ends else sums)
        if given:
            ahead = slice(indptr_next[t], indptr_next[t + 1])
            if inner[t]:
                _add_columns(indices_next[ahead], values_next[ahead], -outgoing[t], left, sums)
            if cut[t]:
                _add_columns(indices_next[ahead], values_next[ahead], outgoing[t], left, cuts)


@kernel
def _sparse_trace(indices, values, rewards, factors, u, v, left, b):  # type: ignore[no-untyped-def]
    """One row of the sums over sparse rows: first with the entering trace alone, then with the features."""
    ratio, discount, lmbda, weight, subtracted = factors
    kept = ratio * lmbda
    reward = weight * rewards[0]
    for m in range(1, len(rewards)):
        for i in range(len(u)):
            b[m, i] += weight * rewards[m] * kept * u[i]
    for i in range(len(u)):
        z_i = kept * u[i]
        left[i] = weight * z_i - subtracted * v[i]
        u[i] = discount * z_i
        v[i] = weight * discount * z_i
        b[0, i] += reward * z_i
    for k in range(len(indices)):
        i = indices[k]
        z_i = ratio * values[k]
        left[i] += weight * z_i
        u[i] += discount * z_i
        v[i] += weight * discount * z_i
        for m in range(len(rewards)):
            b[m, i] += weight * rewards[m] * z_i


@kernel
def _add_columns(indices, values, factor, left, goal):  # type: ignore[no-untyped-def]
    """Add the outer product of factor · values and left to the rows `indices` of goal."""
    for k in range(len(indices)):
        value = factor * values[k]
        row = goal[indices[k]]
        for i in range(len(left)):
            row[i] += value * left[i]


@kernel
def add_later_sums(sums, later, u, v):  # type: ignore[no-untyped-def]
    """Add to sums (k, n + 2) those of a later chunk without its last two columns, in which u and v enter."""
    n = len(u) - 2
    width = len(u)
    for i in range(len(sums)):
        by_u = later[i, n]
        by_v = later[i, n + 1]
        for j in range(width):
            sums[i, j] += by_u * u[j] + by_v * v[j]
        for j in range(n):
            sums[i, j] += later[i, j]


@kernel
def add_entries(factors, shift, indptr, indices, values, starts, rows, entries, goal):  # type: ignore[no-untyped-def]
    """Add Σ_t f_t φ_{t−shift} r_tᵀ, t from `shift`, to the transpose of `goal`, entry by entry.

    Row t of φ has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`; column j of r has `entries` at `rows` from
    `starts[j]` to `starts[j + 1]`. So a row of the goal stays in the cache until it is complete.
    """
    for j in range(len(starts) - 1):
        row = goal[j]
        for k in range(starts[j], starts[j + 1]):
            t = rows[k] - shift
            factor = factors[rows[k]] * entries[k]
            if t >= 0:
                for i in range(indptr[t], indptr[t + 1]):
                    row[indices[i]] += factor * values[i]


@kernel
def carry_observed(discounts, full, coefficients, weights, observed):  # type: ignore[no-untyped-def]
    """Carry the observed weight of `lstd.statistics` through rows; `observed` (3, 3) is replaced.

    Rows: `full` (T,), false in horizon rows; `discounts`, `coefficients` and `weights`, (T,), or (1,) for all rows.
    """
    v = 0.0
    by_v = 1.0
    seen = 0.0
    seen_by_v = 0.0
    one_kept = min(coefficients[0], 1.0) if len(coefficients) == 1 else 1.0
    one_weight = weights[0] if len(weights) == 1 else 1.0
    for t in range(len(full)):
        if not full[t]:
            v = 0.0
            by_v = 0.0
            continue
        discount = _of(discounts, t)
        kept = min(coefficients[t], 1.0) if len(coefficients) > 1 else one_kept
        weight = weights[t] if len(weights) > 1 else one_weight
        seen += (1.0 - discount) * (weight + kept * v)
        seen_by_v += (1.0 - discount) * kept * by_v
        v = (discount * kept) * v + discount * weight  # one fused step from row to row
        by_v = (discount * kept) * by_v if by_v > 1e-290 else 0.0  # denormals are slow
    for k in range(3):
        entering = observed[ENTERING, k]
        observed[ENTERING, k] = v * observed[ONE, k] + by_v * entering
        observed[OBSERVED, k] += seen * observed[ONE, k] + seen_by_v * entering


@kernel
def sample_sums(full, ratios, weights, coefficients, decay, sums):  # type: ignore[no-untyped-def]
    """Add rows to the sums of effective samples, (12,), of `lstd.statistics`.

    Rows: `full`, false in horizon rows; `ratios`, `weights`, `coefficients` and `decay`, the decays λγ on leaving.
    """
    for t in range(len(full)):
        kept = 0.0
        if full[t]:
            add_to_samples(ratios[t], weights[t], coefficients[t], sums)
            kept = decay[t]
        for k in range(0, 12, 4):
            sums[k + E] *= kept
            sums[k + F] *= kept


@kernel
def add_to_samples(ratio, weight, coefficient, samples):  # type: ignore[no-untyped-def]
    """Add a transition to the sums of effective samples, (12,): with ratios alone, with weights alone, without both.

    u and v, which enter it, become its e and f.
    """
    for k in range(0, 12, 4):
        kept = min(coefficient, 1.0)
        of_e = 1.0
        of_g = 1.0
        if k == 0:
            kept = coefficient
            of_e = ratio
        if k == 4:
            of_g = weight
        e = of_e * (kept * samples[k + E] + 1.0)
        g = of_g * e
        f = g + kept * samples[k + F]
        samples[k + E] = e
        samples[k + F] = f
        samples[k + TOTAL] += g
        samples[k + SQUARE] += g * (2.0 * f - g)
