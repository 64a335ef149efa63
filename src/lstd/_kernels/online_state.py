"""Names of the parts of a recursion's state, which is in the arrays `state`, `numbers`, `counts` and `buffer`."""

from __future__ import annotations

from lstd._kernels.blocked import BLOCK
from lstd._kernels.change_detection import N_CHART

# Rows of `state`: these vectors, of which those from PHI on are scratch, eight of them LANES; then θ of each reward, Q,
# R and M. RIDGE is the diagonal of R, ALPHA what it is restored to; P_NEXT and NEXT_P are products of M with NEXT.
Y, TRACE, NEXT, P_NEXT, NEXT_P, RIDGE, ALPHA, PHI, P_PHI, PHI_P, ARRIVES, LANES, THETA = *range(12), 19

# Entries of `numbers`. λ; the discount of the transition before, for the trace, and times its weight, for A (0 where
# its boundary term is closed); the fraction of the boundary term that weights are read with; f and g; weight and trace
# coefficient of the transition to take, 1 between calls; the growth of errors above which a read-out is solved for.
LMBDA, DECAY, BOOTSTRAP, FRACTION, FORGETTING, GROWTH, WEIGHT, COEFFICIENT, MOST_GROWN = range(9)
# Whether a ratio was other than one, and whether any factor was. Effective samples with ratios alone, with weights
# alone, and without both, as in `lstd._kernels.traces`. Then the charts of `lstd._kernels.change_detection`.
OFF_POLICY = 9
FACTORS = 10
SAMPLES = 11
CHARTS = 23
# Scratch for inner products, from a cache line on.
DOTS = -(-(CHARTS + 2 * N_CHART) // 8) * 8
N_NUMBERS = DOTS + 3 * BLOCK

# Entries of `counts`. Features, rewards, rows of a panel; where Q, R and M begin; the number of transitions in which
# the ridge of each feature is restored once.
FEATURES, REWARDS, PANEL, Q_AT, R_AT, M_AT, ROTATION = range(7)
# Changes that wait in the panels, and whether P_NEXT and NEXT_P are known. Transitions so far, those in the buffer,
# those after which P was computed anew and is to be again, and how many were to be in between. Whether weights are
# solved for. Episodes that are over, and whether one was cut off. Whether the charts say that the stream has changed.
WAITING, AHEAD, UPDATES, BUFFERED, RENEWED, RENEW_AT, INTERVAL, SOLVED, EPISODES, CUT, CHANGED, N_COUNTS = range(7, 19)

# Last columns of `buffer`, in which transitions wait: x, x₊, the rewards, and these.
DISCOUNT, RATIO, OF_TRACE, OF_ROW, EPISODE, TERMINAL = range(-6, 0)
PLACES = {  # of the columns of rows that the kernels take, in the order in which `stream` takes them
    "discount": DISCOUNT,
    "importance_ratio": RATIO,
    "trace_coefficient": OF_TRACE,
    "weight": OF_ROW,
}

# What a transition returns. LOOK: done, and the buffer is full, P is to be computed anew, or the stream has changed.
# After a negative code nothing has changed. BAD: an argument is invalid, or so large that sums would overflow. JUMP:
# `x` is not the `x_next` of the last transition. ASK: of recorded rows, one that the caller must learn.
DONE = 0
LOOK = 1
BAD = -1
JUMP = -2
ASK = -3
# Kinds of recorded rows: the successor is the next row, or terminal; none is known; the episode is cut off there.
GOES_ON, TERMINATES, WAITS, IS_CUT = range(4)

RUNS = 50.0  # of rows, with which errors are those of the stream and not of weights that few products of ratios decide
SAMPLED = 1024  # transitions between two looks at the effective sample of a stream with ratios or weights
GROWN_AT = 2.0**32  # g at which P is computed anew, relative to the last weight
LOST = 1e-6  # a denominator this much smaller than its terms, or larger than 1 / LOST, loses six digits
# Largest feature and entry of the trace, and its square the largest product of trace and reward: products are then so
# far below the largest float64, 1.8e308, that no stream is long enough for their sums to reach it.
HUGE = 1e145
