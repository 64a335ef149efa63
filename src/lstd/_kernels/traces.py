"""Eligibility traces of a batch of rows, as the left factor of a matrix product.

With γ_t the discount of row t's transition, u_t = γ_{t−1} z_{t−1} the incoming trace, and ρ_t the importance ratio:

    z_t = ρ_t (λ u_t + φ_t),   A += (z_t − u_t) φ_tᵀ,   b += z_t r_{t+1}

The kernels compute z − u for a batch, add to b, and update u from batch to batch.
"""

from __future__ import annotations

from lstd._kernels.compilation import kernel


@kernel
def dense_traces(phi, rewards, discounts, ratios, lmbda, kept, u, z, left, b):  # type: ignore[no-untyped-def]
    """Compute traces of rows with dense features.

    Parameters: `phi` (T, n); `rewards` (T, m); `discounts` (T,), zero where the trace ends; `ratios` (T,); `kept`, the
    factor of u in the result, 1 or 0; `u` (n,), the trace that enters the first row, replaced by the one that enters
    the row after the last; `z` (n,), scratch; `left` (T, n), overwritten by z_t − kept u_t; `b` (m, n), added to.
    """
    n = len(u)
    if rewards.shape[1] == 1:  # the usual case, without a second pass over z
        for t in range(len(discounts)):
            ratio, discount, reward = ratios[t], discounts[t], rewards[t, 0]
            for i in range(n):
                z_i = ratio * (lmbda * u[i] + phi[t, i])
                left[t, i] = z_i - kept * u[i]
                u[i] = discount * z_i
                b[0, i] += reward * z_i
        return
    for t in range(len(discounts)):
        ratio, discount = ratios[t], discounts[t]
        for i in range(n):
            z_i = ratio * (lmbda * u[i] + phi[t, i])
            left[t, i] = z_i - kept * u[i]
            u[i] = discount * z_i
            z[i] = z_i
        _add_rewards(rewards[t], z, b)


@kernel
def sparse_traces(indptr, indices, values, rewards, discounts, ratios, lmbda, kept, u, z, left, b):  # type: ignore[no-untyped-def]
    """Compute traces as `dense_traces` does; row t has `values` at `indices` from `indptr[t]` to `indptr[t + 1]`."""
    n = len(u)
    for t in range(len(discounts)):
        ratio, discount = ratios[t], discounts[t]
        for i in range(n):
            z[i] = lmbda * u[i]
        for k in range(indptr[t], indptr[t + 1]):
            z[indices[k]] += values[k]
        for i in range(n):
            z_i = ratio * z[i]
            left[t, i] = z_i - kept * u[i]
            u[i] = discount * z_i
            z[i] = z_i
        _add_rewards(rewards[t], z, b)


@kernel
def _add_rewards(rewards, z, b):  # type: ignore[no-untyped-def]
    """b ← b + r zᵀ."""
    for j in range(len(rewards)):
        reward = rewards[j]
        for i in range(len(z)):
            b[j, i] += reward * z[i]


@kernel
def trace_shares(discounts, ratios, lmbda, e, d):  # type: ignore[no-untyped-def]
    """Compute the share of a trace entering the first row that enters each row (e) and stays in its trace (d).

    e_0 = 1, d_t = ρ_t λ e_t, e_{t+1} = γ_t d_t; return the share that leaves the last row.
    """
    share = 1.0
    for t in range(len(discounts)):
        e[t] = share
        d[t] = ratios[t] * lmbda * share
        share = discounts[t] * d[t]
        if share < 1e-290:  # far below the rounding of any sum it enters, and denormals are slow
            share = 0.0
    return share
