"""State of a recursion over transitions: one array, and views of its parts."""

from __future__ import annotations

import numpy as np

from lstd._kernels.blocked import BLOCK
from lstd._kernels.change_detection import N_CHART
from lstd._kernels.compilation import kernel

# The state is one array. Its rows are these vectors, then four panels with a row per gathered change, then the two
# matrices, then θ of each reward after the first, then b of these. P = INVERSE − Σ_k Q_kᵀR_k over the rows of the first
# two panels, Aᵀ = SYSTEM − Σ_k Q_kᵀR_k over those of the others. P_NEXT and NEXT_P are products with INVERSE alone;
# SCALE is the caller's; RIDGE is the diagonal of R, ALPHA what it is restored to. COUNTS are integers in the same
# memory, as each array among the arguments of a call takes 50 ns. CHART, of six vectors, are those of
# `change_detection`, SAMPLE that of `sample_size`. Vectors after it are scratch.
Y, WEIGHTS, TRACE, MOMENT, NEXT, P_NEXT, NEXT_P, SCALE, RIDGE, ALPHA, SCALARS, COUNTS, CHART, SAMPLE = *range(13), 18
PHI, P_PHI, PHI_P, CHANGE, LANES = range(19, 24)
N_VECTORS = LANES + 8
Q_INVERSE, R_INVERSE, Q_SYSTEM, R_SYSTEM = range(4)
INVERSE, SYSTEM = range(2)
# Entries of SCALARS: λ; the discount of the transition before, for the trace, and times its weight, for A (0 where that
# one is closed); one entry of the caller's; the fraction of the boundary term that weights are read with; f and g;
# weight and trace coefficient of the transition to take, 1 between calls.
LMBDA, DECAY, BOOTSTRAP, CONDITION, FRACTION, FORGETTING, GROWTH, WEIGHT, COEFFICIENT = range(9)
N_SCALARS = 7  # of the state between transitions
# Counts: features, rows of a panel, rewards after the first; changes waiting in the panels; whether P_NEXT and NEXT_P
# are products with NEXT; transitions so far, the transition to check at, how weights are read, and the number of
# transitions in which the ridge of each feature is restored once.
FEATURES, PANEL, OTHERS, WAITING_INVERSE, WAITING_SYSTEM, AHEAD, UPDATES, CHECK_AT, READING, ROTATION = range(10)
# The transition from which on a block of the stream may end, 0 for none; with episodes, it ends with one. Episodes that
# are over, and whether the charts say that the stream has changed.
BLOCK_AT, EPISODES, CHANGED = range(10, 13)
N_COUNTS = 16  # the others are the caller's
FAST = 0  # the READING that needs no correction
GROWN = 100.0  # a read-out that may multiply errors by more than this is corrected

# What a transition returns. RESCALE: done, and all is to be divided by g; MARK: done, and a block ends or the stream
# has changed; CHECK: done, and a check is due. After a
# negative code nothing has changed. BAD: an argument is invalid, or so large that the sums would overflow. JUMP: `x` is
# not the `x_next` of the last transition. ASK: of recorded rows, one that the caller must learn.
DONE, RESCALE, MARK, CHECK = range(4)
BAD, JUMP, ASK = -1, -2, -3
# Kinds of recorded rows: the successor is the next row, or terminal; none is known; the episode is cut off there.
GOES_ON, TERMINATES, WAITS, IS_CUT = range(4)

LOST = 1e-6  # a denominator this much smaller than its terms, or larger than 1 / LOST, loses six digits: check at once
RESCALED_AT = 2.0**32  # g at which all is divided
# Largest feature and entry of the trace, and its square the largest product of trace and reward: products are then so
# far below the largest float64, 1.8e308, that no stream is long enough for their sums to reach it.
HUGE = 1e145


@kernel
def counts_of(state):  # type: ignore[no-untyped-def]
    """Return a view of the counts."""
    return state[COUNTS].view(np.int64)


@kernel
def panel(state, counts, which):  # type: ignore[no-untyped-def]
    """Return a view of a panel."""
    first = N_VECTORS + which * counts[PANEL]
    return state[first : first + counts[PANEL]]


@kernel
def matrix(state, counts, which):  # type: ignore[no-untyped-def]
    """Return a view of a matrix."""
    length = state.shape[1]
    first = N_VECTORS + 4 * counts[PANEL] + which * length
    return state[first : first + length]


@kernel
def others_of(state, counts):  # type: ignore[no-untyped-def]
    """Return a view (2, m, …) of θ and b of the rewards after the first."""
    first, more = N_VECTORS + 4 * counts[PANEL] + 2 * state.shape[1], counts[OTHERS]
    return state[first : first + 2 * more].reshape((2, more, state.shape[1]))


@kernel
def rows_of(counts):  # type: ignore[no-untyped-def]
    """Return how many rows of a matrix may be other than zero, rounded up to a multiple of four."""
    return (counts[FEATURES] + 3) // 4 * 4


@kernel
def lanes_of(state):  # type: ignore[no-untyped-def]
    """Return a view of scratch for eight blocks of lanes."""
    return state[LANES:N_VECTORS].reshape(-1)[: 8 * BLOCK]


@kernel
def charts_of(state):  # type: ignore[no-untyped-def]
    """Return a view of the charts of errors, (2, N_CHART)."""
    return state[CHART:SAMPLE].reshape(-1)[: 2 * N_CHART].reshape((2, N_CHART))


@kernel
def decay_of(state):  # type: ignore[no-untyped-def]
    """Return cλγ, what is left of the trace on arrival."""
    return state[SCALARS, COEFFICIENT] * state[SCALARS, LMBDA] * state[SCALARS, DECAY]


@kernel
def weight_of(state):  # type: ignore[no-untyped-def]
    """Return the weight of the transition to take."""
    return state[SCALARS, WEIGHT] * state[SCALARS, GROWTH]


@kernel
def lost_digits(denominator, size):  # type: ignore[no-untyped-def]
    """Return whether `denominator`, a sum of terms of this size, cancelled, is large or is NaN: digits are lost."""
    return not (abs(denominator) >= LOST * size and LOST * abs(denominator) <= 1.0)
