"""Loops over vectors whose length is a multiple of BLOCK, padded with zeros.

The compiler may not reorder the terms of a sum, so a plain inner product is a chain of dependent additions. These loops
have BLOCK independent partial sums, called lanes. The order of summation is fixed: results do not depend on where or
when a kernel was compiled. Indices are unsigned, because an index that may be negative counts from the end, which
prevents vectorisation. Lanes are set to zero all at once and outside of the loop that adds to them; otherwise the
compiler does not keep them in registers.
"""

from __future__ import annotations

import numpy as np

from lstd._kernels.compilation import lean_kernel as kernel

BLOCK = 16  # measured at n = 10, 100, 1000: half or twice as many are slower at one of them
LARGEST = np.finfo(np.float64).max


@kernel
def clear(lanes):  # type: ignore[no-untyped-def]
    """Set to zero."""
    for k in range(len(lanes)):
        lanes[k] = 0.0


@kernel
def fold(lane):  # type: ignore[no-untyped-def]
    """Return the sum of BLOCK partial sums."""
    a = 0.0
    b = 0.0
    c = 0.0
    d = 0.0
    for k in range(0, BLOCK, 4):
        a += lane[k]
        b += lane[k + 1]
        c += lane[k + 2]
        d += lane[k + 3]
    return (a + b) + (c + d)


@kernel
def dots(phi, a, b, c, lanes):  # type: ignore[no-untyped-def]
    """Return φᵀa, φᵀb and φᵀc; `lanes`, (3 BLOCK,), is scratch."""
    lane0 = lanes[:BLOCK]
    lane1 = lanes[BLOCK : 2 * BLOCK]
    lane2 = lanes[2 * BLOCK : 3 * BLOCK]
    clear(lanes)
    add_products(phi, a, b, c, lane0, lane1, lane2)
    return fold(lane0), fold(lane1), fold(lane2)


@kernel
def add_products(phi, a, b, c, lane0, lane1, lane2):  # type: ignore[no-untyped-def]
    """Add the terms of `dots` to the lanes."""
    for first in range(0, len(phi), BLOCK):
        for k in range(BLOCK):
            i = np.uint64(first + k)
            lane0[k] += phi[i] * a[i]
            lane1[k] += phi[i] * b[i]
            lane2[k] += phi[i] * c[i]


@kernel
def add(factor, source, goal):  # type: ignore[no-untyped-def]
    """goal ← goal + factor · source."""
    for i in range(len(goal)):
        goal[i] += factor * source[i]


@kernel
def add_both(factor, source, goal, factor2, source2, goal2):  # type: ignore[no-untyped-def]
    """`add` twice."""
    for i in range(len(goal)):
        goal[i] += factor * source[i]
        goal2[i] += factor2 * source2[i]


@kernel
def copy(source, goal):  # type: ignore[no-untyped-def]
    """Copy `source`, of any length, to the head of `goal`."""
    for i in range(len(source)):
        goal[i] = source[i]


@kernel
def load(source, goal, most):  # type: ignore[no-untyped-def]
    """Copy `source`, of any length, to the head of `goal`; return `count_larger` of it."""
    bad = 0
    for i in range(len(source)):
        goal[i] = source[i]
        bad += not abs(source[i]) <= most
    return bad


@kernel
def not_finite(values):  # type: ignore[no-untyped-def]
    """Return the number of entries that are not finite."""
    return count_larger(values, LARGEST)


@kernel
def count_larger(values, most):  # type: ignore[no-untyped-def]
    """Return the number of entries that are larger than `most` in size, or NaN."""
    bad = 0
    for i in range(len(values)):
        bad += not abs(values[i]) <= most
    return bad


@kernel
def count_larger_sums(factor, a, b, most):  # type: ignore[no-untyped-def]
    """Return the number of entries of factor · a + b that are larger than `most` in size, or NaN."""
    bad = 0
    for i in range(len(a)):
        bad += not abs(factor * a[i] + b[i]) <= most
    return bad


@kernel
def valid(reward, discount, ratio):  # type: ignore[no-untyped-def]
    """Return whether the numbers of a transition are finite and in range; a NaN fails every comparison."""
    return abs(reward) <= LARGEST and 0.0 <= discount <= 1.0 and 0.0 <= ratio <= LARGEST


@kernel
def increasing(indices, n):  # type: ignore[no-untyped-def]
    """Return whether the indices increase and lie in [0, n)."""
    last = -1
    for j in range(len(indices)):
        if indices[j] <= last or indices[j] >= n:
            return False
        last = indices[j]
    return True


@kernel
def scatter(indices, values, goal):  # type: ignore[no-untyped-def]
    """Fill `goal` with zeros, and with `values` at `indices`."""
    for i in range(len(goal)):
        goal[i] = 0.0
    for j in range(len(indices)):
        goal[indices[j]] = values[j]


@kernel
def differs(a, b):  # type: ignore[no-untyped-def]
    """Return the number of entries in which two vectors differ."""
    count = 0
    for i in range(len(a)):
        count += a[i] != b[i]
    return count
