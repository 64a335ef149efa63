"""Eligibility traces of a batch of rows, as the left factor of a matrix product.

With γ_t the discount of row t's transition, u_t = γ_{t−1} z_{t−1} the incoming trace, λ_t = c_t λ with the trace
coefficient c_t, ρ_t the importance ratio and w_t the weight:

    z_t = ρ_t (λ_t u_t + φ_t),   A += (w_t z_t − w_{t−1} u_t) φ_tᵀ,   b += w_t z_t r_{t+1}

The kernels compute the left factor for a batch, add to b, and update u from batch to batch.
"""

from __future__ import annotations

from lstd._kernels.compilation import kernel


@kernel
def dense_traces(phi, rewards, discounts, ratios, lmbdas, weights, kept, before, u, z, left, b):  # type: ignore[no-untyped-def]
    """Compute traces of rows with dense features.

    Parameters: `phi` (T, n); `rewards` (T, m); `discounts` (T,), zero where the trace ends; `ratios`, `lmbdas` and
    `weights` (T,); `kept`, the factor of u in the result, 1 or 0; `before`, the weight of the row before the first;
    `u` (n,), the trace that enters the first row, replaced by the one that enters the row after the last; `z` (n,),
    scratch; `left` (T, n), overwritten by w_t z_t − kept w_{t−1} u_t; `b` (m, n), added to.
    """
    n = len(u)
    if rewards.shape[1] == 1:  # the usual case, without a second pass over z
        for t in range(len(discounts)):
            ratio, discount, lmbda, weight = ratios[t], discounts[t], lmbdas[t], weights[t]
            subtracted, reward, before = kept * before, weight * rewards[t, 0], weight
            for i in range(n):
                z_i = ratio * (lmbda * u[i] + phi[t, i])
                left[t, i] = weight * z_i - subtracted * u[i]
                u[i] = discount * z_i
                b[0, i] += reward * z_i
        return
    for t in range(len(discounts)):
        ratio, discount, lmbda, weight = ratios[t], discounts[t], lmbdas[t], weights[t]
        subtracted, before = kept * before, weight
        for i in range(n):
            z_i = ratio * (lmbda * u[i] + phi[t, i])
            left[t, i] = weight * z_i - subtracted * u[i]
            u[i] = discount * z_i
            z[i] = z_i
        _add_rewards(weight, rewards[t], z, b)


@kernel
def sparse_traces(  # type: ignore[no-untyped-def]
    indptr, indices, values, rewards, discounts, ratios, lmbdas, weights, kept, before, u, z, left, b
):
    """Compute traces as `dense_traces` does; row t has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`."""
    n = len(u)
    for t in range(len(discounts)):
        ratio, discount, lmbda, weight = ratios[t], discounts[t], lmbdas[t], weights[t]
        subtracted, before = kept * before, weight
        for i in range(n):
            z[i] = lmbda * u[i]
        for k in range(indptr[t], indptr[t + 1]):
            z[indices[k]] += values[k]
        for i in range(n):
            z_i = ratio * z[i]
            left[t, i] = weight * z_i - subtracted * u[i]
            u[i] = discount * z_i
            z[i] = z_i
        _add_rewards(weight, rewards[t], z, b)


@kernel
def _add_rewards(weight, rewards, z, b):  # type: ignore[no-untyped-def]
    """b ← b + w r zᵀ."""
    for j in range(len(rewards)):
        reward = weight * rewards[j]
        for i in range(len(z)):
            b[j, i] += reward * z[i]


@kernel
def trace_shares(discounts, ratios, lmbda, e, d):  # type: ignore[no-untyped-def]
    """Compute the share of a trace entering the first row that enters each row (e) and stays in its trace (d).

    e_0 = 1, d_t = ρ_t λ_t e_t, e_{t+1} = γ_t d_t, with `ratios` ρ_t c_t; return the share that leaves the last row.
    """
    share = 1.0
    for t in range(len(discounts)):
        e[t] = share
        d[t] = ratios[t] * lmbda * share
        share = discounts[t] * d[t]
        if share < 1e-290:  # far below the rounding of any sum it enters, and denormals are slow
            share = 0.0
    return share


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
    """Compute the sums of an effective sample size, which `lstd.data.effective_sample` defines.

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
