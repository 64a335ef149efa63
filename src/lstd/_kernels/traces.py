"""Eligibility traces of a batch of rows, as the left factor of a matrix product.

With γ_t the discount of row t's transition, u_t = γ_{t−1} z_{t−1} the incoming trace, λ_t = c_t λ with the trace
coefficient c_t, ρ_t the importance ratio and w_t the weight:

    z_t = ρ_t (λ_t u_t + φ_t),   A += (w_t z_t − w_{t−1} u_t) φ_tᵀ,   b += w_t z_t r_{t+1}

The kernels compute the left factor for a batch, or the products of sparse rows too, add to b, and update u from batch
to batch.
"""

from __future__ import annotations

from lstd._kernels.compilation import kernel


@kernel
def dense_traces(phi, rewards, discounts, ratios, lmbdas, weights, cut, kept, before, u, z, left, b):  # type: ignore[no-untyped-def]
    """Compute traces of rows with dense features.

    Parameters: `phi` (T, n); `rewards` (T, m); `discounts` (T,), zero where the trace ends; `ratios`, `lmbdas` and
    `weights` (T,); `cut` (T,), horizon rows, which add nothing to b and leave no trace; `kept`, the factor of u in the
    result, 1 or 0; `before`, the weight of the row before the first; `u` (n,), the trace that enters the first row,
    replaced by the one that enters the row after the last; `z` (n,), scratch; `left` (T, n), overwritten by
    w_t z_t − kept w_{t−1} u_t; `b` (m, n), added to.
    """
    n = len(u)
    if rewards.shape[1] == 1:  # the usual case, without a second pass over z
        for t in range(len(discounts)):
            ratio, discount, lmbda, weight = ratios[t], discounts[t], lmbdas[t], weights[t]
            if cut[t]:
                ratio, discount = 0.0, 0.0
            subtracted, reward, before = kept * before, weight * rewards[t, 0], weight
            for i in range(n):
                z_i = ratio * (lmbda * u[i] + phi[t, i])
                left[t, i] = weight * z_i - subtracted * u[i]
                u[i] = discount * z_i
                b[0, i] += reward * z_i
        return
    for t in range(len(discounts)):
        ratio, discount, lmbda, weight = ratios[t], discounts[t], lmbdas[t], weights[t]
        if cut[t]:
            ratio, discount = 0.0, 0.0
        subtracted, before = kept * before, weight
        for i in range(n):
            z_i = ratio * (lmbda * u[i] + phi[t, i])
            left[t, i] = weight * z_i - subtracted * u[i]
            u[i] = discount * z_i
            z[i] = z_i
        _add_rewards(weight, rewards[t], z, b)


@kernel
def sparse_traces(  # type: ignore[no-untyped-def]
    indptr, indices, values, rewards, discounts, ratios, lmbdas, weights, cut, kept, before, u, left, b
):
    """Compute traces as `dense_traces` does; row t has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`."""
    for t in range(len(discounts)):
        row, active = slice(indptr[t], indptr[t + 1]), 1.0 - cut[t]
        factors = (active * ratios[t], active * discounts[t], lmbdas[t], weights[t], kept * before)
        _sparse_trace(indices[row], values[row], rewards[t], factors, u, left[t], b)
        before = weights[t]


@kernel
def sparse_sums(  # type: ignore[no-untyped-def]
    indptr, indices, values, rewards, discounts, ratios, lmbdas, weights, cut, before, u, left, b, A, B
):
    """Add Σ (w_t z_t − w_{t−1} u_t) φ_tᵀ to the transpose of A; where `cut`, subtract it from that of B.

    `left` (n,) is scratch: a row stays in the cache until it is multiplied by the few entries of φ_t.
    """
    for t in range(len(discounts)):
        row, active = slice(indptr[t], indptr[t + 1]), 1.0 - cut[t]
        factors = (active * ratios[t], active * discounts[t], lmbdas[t], weights[t], before)
        _sparse_trace(indices[row], values[row], rewards[t], factors, u, left, b)
        before = weights[t]
        _add_columns(indices[row], values[row], -1.0 if cut[t] else 1.0, left, B if cut[t] else A)


@kernel
def sparse_sums_of_pairs(  # type: ignore[no-untyped-def]
    indptr, indices, values, rewards, discounts, ratios, lmbdas, weights, cut, inner, outgoing,
    indptr_next, indices_next, values_next, u, left, b, A, B,
):  # fmt: skip
    """Add Σ w_t z_t (φ_t − γ_t φ'_t)ᵀ to the transpose of A, the second term where `inner`; to that of B where `cut`.

    `discounts` (T,) are those of the traces, zero where one ends, and `outgoing` those of the successors.
    """
    for t in range(len(discounts)):
        row, ahead = slice(indptr[t], indptr[t + 1]), slice(indptr_next[t], indptr_next[t + 1])
        factors = (ratios[t], discounts[t], lmbdas[t], weights[t], 0.0)
        _sparse_trace(indices[row], values[row], rewards[t], factors, u, left, b)
        _add_columns(indices[row], values[row], 1.0, left, A)
        if inner[t]:
            _add_columns(indices_next[ahead], values_next[ahead], -outgoing[t], left, A)
        if cut[t]:
            _add_columns(indices_next[ahead], values_next[ahead], outgoing[t], left, B)


@kernel
def _sparse_trace(indices, values, rewards, factors, u, left, b):  # type: ignore[no-untyped-def]
    """One row of `sparse_traces`: first with the entering trace alone, then with the features."""
    ratio, discount, lmbda, weight, subtracted = factors
    kept, reward = ratio * lmbda, weight * rewards[0]
    for m in range(1, len(rewards)):
        for i in range(len(u)):
            b[m, i] += weight * rewards[m] * kept * u[i]
    for i in range(len(u)):
        z_i = kept * u[i]
        left[i] = weight * z_i - subtracted * u[i]
        u[i] = discount * z_i
        b[0, i] += reward * z_i
    for k in range(len(indices)):
        i, z_i = indices[k], ratio * values[k]
        left[i] += weight * z_i
        u[i] += discount * z_i
        for m in range(len(rewards)):
            b[m, i] += weight * rewards[m] * z_i


@kernel
def _add_columns(indices, values, factor, left, goal):  # type: ignore[no-untyped-def]
    """Add the outer product of factor · values and left to the rows `indices` of goal."""
    for k in range(len(indices)):
        value, row = factor * values[k], goal[indices[k]]
        for i in range(len(left)):
            row[i] += value * left[i]


@kernel
def add_entries(factors, shift, indptr, indices, values, starts, rows, entries, goal):  # type: ignore[no-untyped-def]
    """Add Σ_t f_t φ_{t−shift} r_tᵀ, t from `shift`, to the transpose of `goal`, entry by entry.

    Row t of φ has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`; column j of r has `entries` at `rows` from
    `starts[j]` to `starts[j + 1]`. So a row of the goal stays in the cache until it is complete.
    """
    for j in range(len(goal)):
        row = goal[j]
        for k in range(starts[j], starts[j + 1]):
            t, factor = rows[k] - shift, factors[rows[k]] * entries[k]
            if t >= 0:
                for i in range(indptr[t], indptr[t + 1]):
                    row[indices[i]] += factor * values[i]


@kernel
def _add_rewards(weight, rewards, z, b):  # type: ignore[no-untyped-def]
    """b ← b + w r zᵀ."""
    for j in range(len(rewards)):
        reward = weight * rewards[j]
        for i in range(len(z)):
            b[j, i] += reward * z[i]


@kernel
def carry_factors(discounts, ratios, lmbdas, weights, cut, outgoing, before, share, factors):  # type: ignore[no-untyped-def]
    """Compute what a trace that enters the first row changes; return the rows in which it counts, and its decay.

    With e_0 = `share`, d_t = ρ_t λ_t e_t and e_{t+1} = γ_t d_t, `factors` (4, T) becomes: the factor of φ_t in a,
    w_t d_t − w_{t−1} e_t; that of φ_t in h, w_{t−1} e_t where `cut`; that of the rewards in c, w_t d_t; that of a
    successor, γ_t w_t d_t with γ_t from `outgoing`. If `outgoing` is not empty, rows are given with successors: the
    first factor is w_t d_t, and no row is a horizon row. `before` is the weight of the row before the first.
    """
    reach, pairs = 0, len(outgoing) > 0
    for t in range(len(discounts)):
        if share < 1e-290:  # far below the rounding of any sum it enters, and denormals are slow
            return reach, 0.0
        cuts = cut[t] and not pairs
        d = 0.0 if cuts else ratios[t] * lmbdas[t] * share
        if share >= 2.0**-200:  # below, an entering trace is far below rounding at any scale of the features
            reach = t + 1
            factors[0, t] = weights[t] * d if pairs else 0.0 if cuts else weights[t] * d - before * share
            factors[1, t] = before * share if cuts else 0.0
            factors[2, t] = weights[t] * d
            factors[3, t] = outgoing[t] * weights[t] * d if pairs else 0.0
        share, before = discounts[t] * d, weights[t]
    return reach, 0.0 if share < 1e-290 else share


@kernel
def behind_cuts(discounts, full, coefficients, weights):  # type: ignore[no-untyped-def]
    """Compute the sums of `lstd.data.observed_share`: behind, leaving, behind_share, decay.

    Rows: `discounts`; `full`, false in horizon rows; `coefficients` and `weights`, empty if all are one.
    """
    behind, u, share, e = 0.0, 0.0, 0.0, 1.0
    for t in range(len(discounts)):
        if not full[t]:
            behind, u, share, e = behind + u, 0.0, share + e, 0.0
            continue
        discount, kept = discounts[t], min(coefficients[t], 1.0) if len(coefficients) else 1.0
        behind += (1.0 - kept) * u
        share += (1.0 - kept) * e
        u = (discount * kept) * u + discount * (weights[t] if len(weights) else 1.0)  # one fused step from row to row
        e = (discount * kept) * e if e > 1e-290 else 0.0  # denormals are slow
    return behind, u, share, e


@kernel
def sample_sums(ratios, weights, coefficients, decay, step, weight, square):  # type: ignore[no-untyped-def]
    """Compute the sums of an effective sample size, which `lstd.data.effective_sample_size` defines.

    Rows: `ratios`, `weights`, `coefficients` and `decay`, the decays λγ on leaving. `step` (3, 3), the unit matrix,
    becomes M; added to are `weight` (3,), w, and `square` (3, 3), K.
    """
    u, v = step[1], step[2]
    for t in range(len(ratios)):
        ratio, coefficient = ratios[t], coefficients[t]
        for i in range(3):
            u[i] = ratio * (coefficient * u[i] + (1.0 if i == 0 else 0.0))
            v[i] = weights[t] * u[i] + coefficient * v[i]
            weight[i] += weights[t] * u[i]
        for i in range(3):
            g = weights[t] * u[i]
            for j in range(3):
                square[i, j] += g * v[j] + v[i] * weights[t] * u[j] - g * weights[t] * u[j]
        for i in range(3):
            u[i] *= decay[t]
            v[i] *= decay[t]
