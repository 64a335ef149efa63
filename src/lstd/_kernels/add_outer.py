"""The sum of two matrices and an outer product in one pass, which merges the sums of two chunks."""

from __future__ import annotations

from lstd._kernels.compilation import kernel


@kernel
def add_with_outer(one, two, u, v, out):  # type: ignore[no-untyped-def]
    """out ← one + two + u vᵀ; matrices (k, n), `u` (k,), `v` (n,)."""
    for i in range(len(u)):
        u_i = u[i]
        for j in range(len(v)):
            out[i, j] = one[i, j] + two[i, j] + u_i * v[j]
