"""Charts of the one-step errors of a stream, which tell a change from what the model's own history allows.

The errors δ_t = r_{t+1} + γ v_{t+1} − v_t, each v predicted before its transition was learned, sum to the error against
the completed return: G_t − v_t = Σ_k γ^k δ_{t+k}. While neighbouring errors of returns share most of their rewards,
one-step errors are nearly uncorrelated, and show a change at once.

Errors are cut to a multiple of their mean size, and averaged in blocks: short ones for the fast chart, whole numbers of
these for the slow one, which notices what is small beside the noise of a short block, or shows at rare moments. The
mean of a short block is taken over the mean size of its errors, so that clusters of large errors look like no change
of the mean. A block's mean, and the square root of its mean size, are each regressed on those of the block before.
What is left, over its standard deviation, is made a normal score z, exact from the first blocks on (Hawkins 1987,
self-starting; the approximation to Student's t by Wallace 1959). In the regressions of the slow chart, which has few
blocks, values count as if their scores were at most 2.5, so that a change does not hide itself. With a reference
value K, a chart has

    S⁺ = max(0, S⁺ + z − K),   S⁻ = max(0, S⁻ − z − K)          of the mean
    S  = max(0, S + z − K)                                      of the size

How high they go without a change is learned from the excursions that are over: the excesses of their maxima over LOW
are exponential with a mean m (Lundberg), so that a limit of LOW + RARE · m is passed as rarely as wanted, whatever
tails and clusters the errors have.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lstd._kernels.compilation import lean_kernel as kernel

# Entries of a chart. Of the block: its length (0 for no chart), errors in it, their sum and the sum of their sizes. Of
# the errors: their number, and their mean size. Blocks so far, and errors before the first. The highest of the three
# sums over its limit, NOT_YET before alarms begin, and which it is, those of the mean preferred. In the fast chart
# alone: prediction and reward of the last transition, whether the next error needs them, and the size at which errors
# are cut. The sums, and the maxima of their excursions; number and sum of the excesses of those that are over, of the
# mean and of the size. Two regressions.
LENGTH, COUNT, SUM, SIZE, ERRORS, SCALE, BLOCKS, SKIPPED, LEVEL, HIGHEST, VALUE, REWARD, OPEN, LARGEST_ERROR = range(14)
UP = 14
DOWN = 15
LARGE = 16
OF_MEAN, OF_SIZE = range(2)  # kinds of sums
MOST = 17
N_OVER = 20
SUM_OVER = 22
MEAN_OF = 24
SIZE_OF = 32
N_CHART = 40
NOT_YET = -1.0
FAST, SLOW = range(2)
# Of a regression: number of pairs, means of x and y, sums of squares and products, the last y, whether there is one.
PAIRS, MEAN_X, MEAN_Y, XX, XY, YY, LAST, HAS_LAST = range(8)

# Errors in a block of the fast chart: 1/(1 − γ), but at least and at most
SHORTEST = 16.0
LONGEST = 32.0
SLOWER = 5.0  # times SHORTEST or 1/(1 − γ), errors in a block of the slow chart
FARTHEST = 10_000.0  # errors taken for 1/(1 − γ) where γ is 1
FEWEST = 8  # blocks with which scores begin
NEGLIGIBLE = 0.02  # times the mean size of errors, a change of their mean; without noise, learning itself is a trend
CUT = 8.0  # times their mean size, at which errors are cut
MOST_MEAN = 3.0  # largest score of a mean
MOST_SIZE = 5.0  # largest score of a size
LOW = 1.5
PRIOR = 4.0  # excursions known in advance
# Of a chart: blocks with which alarms begin; K; RARE; the score beyond which a value is cut in the regression; and the
# mean excess known in advance, of the mean. That of the size is larger by 0.5.
OF_FAST = (100.0, 1.0, 8.0, np.inf, 0.5)
OF_SLOW = (24.0, 0.5, 9.0, 2.5, 1.0)


def begin(charts: NDArray[np.float64], gamma: float, n_features: int) -> None:
    """Begin the charts (2, N_CHART) anew."""
    ahead = 1.0 / max(1.0 - gamma, 1.0 / FARTHEST)
    charts[:] = 0.0
    charts[:, LEVEL] = NOT_YET
    length = round(min(max(SHORTEST, ahead), LONGEST))
    charts[FAST, LENGTH] = length
    charts[SLOW, LENGTH] = length * round(SLOWER * max(SHORTEST, ahead) / length)
    charts[:, SKIPPED] = 10.0 * np.maximum(n_features, charts[:, LENGTH])
    charts[FAST, LARGEST_ERROR] = np.finfo(np.float64).max


@kernel
def add_error(error, fast, slow):  # type: ignore[no-untyped-def]
    """Add a one-step error, unless it is NaN, to the charts; return whether the stream has changed."""
    if error != error:
        return 0
    error = min(max(error, -fast[LARGEST_ERROR]), fast[LARGEST_ERROR])
    fast[SUM] += error
    fast[SIZE] += abs(error)
    fast[COUNT] += 1.0
    if fast[COUNT] < fast[LENGTH]:
        return 0
    for entry in range(COUNT, SIZE + 1):
        slow[entry] += fast[entry]
    add_block(fast, FAST)
    if fast[SCALE] > 0.0:
        fast[LARGEST_ERROR] = CUT * fast[SCALE]
    if slow[COUNT] >= slow[LENGTH]:
        add_block(slow, SLOW)
    return 1 if max(fast[LEVEL], slow[LEVEL]) > 1.0 else 0


@kernel
def add_block(chart, which):  # type: ignore[no-untyped-def]
    """Add a block to a chart."""
    chart[ERRORS] += chart[LENGTH]
    chart[SCALE] += (chart[SIZE] - chart[LENGTH] * chart[SCALE]) / chart[ERRORS]
    unit = chart[SIZE] if which == FAST and chart[SIZE] > 0.0 else chart[LENGTH]
    mean = chart[SUM] / unit
    size = math.sqrt(chart[SIZE] / chart[LENGTH])
    least = NEGLIGIBLE * (1.0 if which == FAST else chart[SCALE])
    # of a square root: d√s = ds / (2√s)
    least_size = NEGLIGIBLE * math.sqrt(chart[SCALE]) / 2.0
    chart[COUNT] = chart[SUM] = chart[SIZE] = 0.0
    if chart[ERRORS] <= chart[SKIPPED]:
        return
    chart[BLOCKS] += 1.0
    warm, k, rare, outlying, expected = OF_FAST if which == FAST else OF_SLOW
    score_of_mean = score(mean, least, outlying, chart[MEAN_OF:SIZE_OF])
    score_of_size = score(size, least_size, outlying, chart[SIZE_OF:N_CHART])
    z = min(max(score_of_mean, -MOST_MEAN), MOST_MEAN)
    w = min(max(score_of_size, -MOST_SIZE), MOST_SIZE)
    climb(UP, z - k, OF_MEAN, chart)
    climb(DOWN, -z - k, OF_MEAN, chart)
    climb(LARGE, w - k, OF_SIZE, chart)
    mean_limit = LOW + rare * (PRIOR * expected + chart[SUM_OVER]) / (PRIOR + chart[N_OVER])
    size_limit = LOW + rare * (PRIOR * (expected + 0.5) + chart[SUM_OVER + 1]) / (PRIOR + chart[N_OVER + 1])
    level_of_mean = max(chart[UP], chart[DOWN]) / mean_limit
    level_of_size = chart[LARGE] / size_limit
    chart[LEVEL] = max(level_of_mean, level_of_size) if chart[BLOCKS] > warm else NOT_YET
    if level_of_size > 2.0 * level_of_mean:  # the mean is preferred, which says in which direction
        chart[HIGHEST] = LARGE
    elif chart[UP] > chart[DOWN]:
        chart[HIGHEST] = UP
    else:
        chart[HIGHEST] = DOWN


@kernel
def climb(at, score, kind, chart):  # type: ignore[no-untyped-def]
    """Move a sum by a score less the reference value; count its excursion if that is over."""
    most = MOST + at - UP
    chart[at] = max(0.0, chart[at] + score)
    if chart[at] == 0.0:
        if chart[most] > LOW:
            chart[N_OVER + kind] += 1.0
            chart[SUM_OVER + kind] += chart[most] - LOW
        chart[most] = 0.0
    chart[most] = max(chart[most], chart[at])


@kernel
def score(y, least, outlying, pairs):  # type: ignore[no-untyped-def]
    """Return the normal score of y given the one before, 0 with few pairs; then add y, cut, to the regression.

    The standard deviation of what is left is at least `least`.
    """
    n = pairs[PAIRS]
    z = 0.0
    if n >= FEWEST:
        # A slope within its error of zero only adds noise.
        slope = pairs[XY] / pairs[XX] if pairs[XX] > 0.0 else 0.0
        slope = min(max(slope - 2.0 * (1.0 - slope) / math.sqrt(n), 0.0), 0.98)
        square = (pairs[YY] - 2.0 * slope * pairs[XY] + slope * slope * pairs[XX]) / (n - 2.0)
        square = max(square, least * least)
        if square > 0.0:
            x = pairs[LAST] - pairs[MEAN_X]
            spread = 1.0 + 1.0 / n + (x * x / pairs[XX] if pairs[XX] > 0.0 else 0.0)
            expected = pairs[MEAN_Y] + slope * x
            error = math.sqrt(square * spread)
            t = (y - expected) / error
            nu = n - 2.0
            z = math.copysign((8.0 * nu + 1.0) / (8.0 * nu + 3.0) * math.sqrt(nu * math.log1p(t * t / nu)), t)
            if abs(t) > outlying:
                y = expected + math.copysign(outlying * error, t)
    if pairs[HAS_LAST] == 1.0:
        pairs[PAIRS] = n + 1.0
        dx = pairs[LAST] - pairs[MEAN_X]
        dy = y - pairs[MEAN_Y]
        pairs[MEAN_X] += dx / (n + 1.0)
        pairs[MEAN_Y] += dy / (n + 1.0)
        pairs[XX] += dx * (pairs[LAST] - pairs[MEAN_X])
        pairs[XY] += dx * (y - pairs[MEAN_Y])
        pairs[YY] += dy * (y - pairs[MEAN_Y])
    pairs[LAST] = y
    pairs[HAS_LAST] = 1.0
    return z
