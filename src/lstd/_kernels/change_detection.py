"""Chart of the one-step errors of a stream, which tells a change from what the model's own history allows.

The errors δ_t = r_{t+1} + γ v_{t+1} − v_t, each v predicted before its transition was learned, sum to the error against
the completed return: G_t − v_t = Σ_k γ^k δ_{t+k}. While neighbouring errors of returns share most of their rewards,
one-step errors are nearly uncorrelated, and show a change at once.

Errors are cut to a multiple of their mean size, and averaged in blocks. A block's mean, and the square root of its mean
size, are each regressed on those of the block before. What is left, over its standard deviation, is made a normal score
z, exact from the first blocks on (Hawkins 1987, self-starting; the approximation to Student's t by Wallace 1959). With
a reference value K the charts are

    S⁺ = max(0, S⁺ + z − K),   S⁻ = max(0, S⁻ − z − K)          of the mean
    S  = max(0, S + z − K)                                      of the size

How high they go without a change is learned from the excursions that are over: the excesses of their maxima over LOW
are exponential with a mean m (Lundberg), so that a limit of LOW + RARE · m is passed as rarely as wanted, whatever
tails and clusters the errors have.
"""

from __future__ import annotations

import math

from lstd._kernels.compilation import kernel

# Entries of the chart. Of the block: its length (0 for no chart), errors in it, their sum and the sum of their sizes.
# Of the errors: their number, and their mean size. Blocks so far, and errors before the first. Prediction and reward of
# the last transition, and whether the next error needs them. The highest chart over its limit. The size at which errors
# are cut. The charts, and the maxima of their excursions; number and sum of the excesses of those that are over, of the
# mean and of the size. Two regressions.
LENGTH, COUNT, SUM, SIZE, ERRORS, SCALE, BLOCKS, SKIPPED, VALUE, REWARD, OPEN, LEVEL, LARGEST_ERROR = range(13)
UP, DOWN, LARGE, MOST, EXCESS, OVER = 13, 14, 15, 16, 19, 21
MEAN_OF, SIZE_OF = 23, 31
N_CHART = 39
# Of a regression: number of pairs, means of x and y, sums of squares and products, the last y, whether there is one.
PAIRS, MEAN_X, MEAN_Y, XX, XY, YY, LAST, HAS_LAST = range(8)

FEWEST, WARM = 8, 100  # blocks with which scores begin, and alarms
CUT = 8.0  # times their mean size, at which errors are cut
MOST_MEAN, MOST_SIZE = 3.0, 5.0  # largest scores
K, LOW, RARE = 1.0, 1.5, 8.0
PRIOR, EXCESS_MEAN, EXCESS_SIZE = 8.0, 0.5, 0.75  # excursions known in advance, and the mean of their excesses


@kernel
def end_block(chart):  # type: ignore[no-untyped-def]
    """End a block, with COUNT, SUM and SIZE of its errors; return whether it says that the stream has changed."""
    chart[ERRORS] += chart[LENGTH]
    chart[SCALE] += (chart[SIZE] - chart[LENGTH] * chart[SCALE]) / chart[ERRORS]
    chart[LARGEST_ERROR] = CUT * chart[SCALE]
    mean, size = chart[SUM] / chart[LENGTH], math.sqrt(chart[SIZE] / chart[LENGTH])
    chart[COUNT] = chart[SUM] = chart[SIZE] = 0.0
    if chart[ERRORS] <= chart[SKIPPED]:
        return False
    chart[BLOCKS] += 1.0
    z = min(max(score(mean, chart[MEAN_OF:SIZE_OF]), -MOST_MEAN), MOST_MEAN)
    w = min(max(score(size, chart[SIZE_OF:N_CHART]), -MOST_SIZE), MOST_SIZE)
    level = climb(z, UP, 0, EXCESS_MEAN, chart)
    level = max(level, climb(-z, DOWN, 0, EXCESS_MEAN, chart))
    level = max(level, climb(w, LARGE, 1, EXCESS_SIZE, chart))
    chart[LEVEL] = level if chart[BLOCKS] > WARM else 0.0
    return chart[LEVEL] > 1.0


@kernel
def climb(score, which, kind, expected, chart):  # type: ignore[no-untyped-def]
    """Move a chart by a score; return its height over its limit."""
    chart[which] = max(0.0, chart[which] + score - K)
    most = MOST + which - UP
    if chart[which] == 0.0:
        if chart[most] > LOW:
            chart[EXCESS + kind] += 1.0
            chart[OVER + kind] += chart[most] - LOW
        chart[most] = 0.0
    chart[most] = max(chart[most], chart[which])
    return chart[which] / (LOW + RARE * (PRIOR * expected + chart[OVER + kind]) / (PRIOR + chart[EXCESS + kind]))


@kernel
def score(y, pairs):  # type: ignore[no-untyped-def]
    """Return the normal score of y given the one before, 0 with few pairs; then add it to the regression."""
    n, z = pairs[PAIRS], 0.0
    if n >= FEWEST:
        # A slope within its error of zero only adds noise.
        slope = pairs[XY] / pairs[XX] if pairs[XX] > 0.0 else 0.0
        slope = min(max(slope - 2.0 * (1.0 - slope) / math.sqrt(n), 0.0), 0.98)
        square = (pairs[YY] - 2.0 * slope * pairs[XY] + slope * slope * pairs[XX]) / (n - 2.0)
        if square > 0.0:
            x = pairs[LAST] - pairs[MEAN_X]
            spread = 1.0 + 1.0 / n + (x * x / pairs[XX] if pairs[XX] > 0.0 else 0.0)
            t = (y - pairs[MEAN_Y] - slope * x) / math.sqrt(square * spread)
            nu = n - 2.0
            z = math.copysign((8.0 * nu + 1.0) / (8.0 * nu + 3.0) * math.sqrt(nu * math.log1p(t * t / nu)), t)
    if pairs[HAS_LAST] == 1.0:
        pairs[PAIRS] = n + 1.0
        dx, dy = pairs[LAST] - pairs[MEAN_X], y - pairs[MEAN_Y]
        pairs[MEAN_X] += dx / (n + 1.0)
        pairs[MEAN_Y] += dy / (n + 1.0)
        pairs[XX] += dx * (pairs[LAST] - pairs[MEAN_X])
        pairs[XY] += dx * (y - pairs[MEAN_Y])
        pairs[YY] += dy * (y - pairs[MEAN_Y])
    pairs[LAST], pairs[HAS_LAST] = y, 1.0
    return z
