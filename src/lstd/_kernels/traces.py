"""Eligibility traces of a block of rows, as the left factor of a product of matrices.

With g_t the discount on arrival in row t, u_t = g_t z_{t−1} the trace that arrives there, and ρ_t the importance ratio:

    z_t = ρ_t (λ u_t + φ_t),   A += (z_t − u_t) φ_tᵀ,   b += z_t r_{t+1}

The kernels make z − u of a block, sum b, and carry u from block to block.
"""

from __future__ import annotations

from lstd._kernels.compilation import kernel


@kernel
def dense_traces(phi, rewards, leaving, ratios, lmbda, kept, u, z, left, b):  # type: ignore[no-untyped-def]
    """Traces of rows with dense features.

    Parameters: `phi` (T, n); `rewards` (T, m); `leaving` (T,), the discount of each row's transition, zero where the
    trace ends; `ratios` (T,); `kept`, the factor of u in the result, 1 or 0; `u` (n,), the trace that arrives in the
    first row, replaced by the one that leaves the last; `z` (n,), scratch; `left` (T, n), overwritten by
    z_t − kept u_t; `b` (m, n), added to.
    """
    n = len(u)
    if rewards.shape[1] == 1:  # the usual case, without a second pass over z
        for t in range(len(leaving)):
            ratio, discount, reward = ratios[t], leaving[t], rewards[t, 0]
            for i in range(n):
                z_i = ratio * (lmbda * u[i] + phi[t, i])
                left[t, i] = z_i - kept * u[i]
                u[i] = discount * z_i
                b[0, i] += reward * z_i
        return
    for t in range(len(leaving)):
        ratio, discount = ratios[t], leaving[t]
        for i in range(n):
            z_i = ratio * (lmbda * u[i] + phi[t, i])
            left[t, i] = z_i - kept * u[i]
            u[i] = discount * z_i
            z[i] = z_i
        _add_rewards(rewards[t], z, b)


@kernel
def sparse_traces(indptr, indices, values, rewards, leaving, ratios, lmbda, kept, u, z, left, b):  # type: ignore[no-untyped-def]
    """`dense_traces` for compressed sparse rows: those of row t are `indices`, `values` from `indptr[t]` on."""
    n = len(u)
    for t in range(len(leaving)):
        ratio, discount = ratios[t], leaving[t]
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
def arrivals(leaving, ratios, lmbda, e, d):  # type: ignore[no-untyped-def]
    """Share of a trace that arrives in the first row which arrives in each row (e) and stays in its trace (d).

    e_0 = 1, d_t = ρ_t λ e_t, e_{t+1} = leaving_t d_t; returns what leaves the last row.
    """
    share = 1.0
    for t in range(len(leaving)):
        e[t] = share
        d[t] = ratios[t] * lmbda * share
        share = leaving[t] * d[t]
        if share < 1e-290:  # far below rounding of anything it is added to, and denormals are slow
            share = 0.0
    return share
