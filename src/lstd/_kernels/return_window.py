"""Returns of a stream, each completed by the prediction `horizon` transitions later, at O(1) per transition.

With prediction v_t of row t, reward r_{t+1}, discount γ_{t+1}, importance ratio ρ_t and trace coefficient c_t, the
return is an affine function of the next one,

    G_t = a_t + d_t G_{t+1},   d_t = ρ_t γ_{t+1} c_{t+1},
    a_t = (1 − ρ_t)v_t + ρ_t (r_{t+1} + γ_{t+1}(1 − c_{t+1}) v_{t+1}),

and G = v where it is completed. The composition of the functions in the window is kept in two parts: `heads` hold the
compositions from each of its older rows up to the last of these, `tail` that of its newer rows. When no older row is
left, all rows become older ones. So each row is composed twice, and nothing is subtracted.
"""

from __future__ import annotations

from numba import types

from lstd._kernels.compilation import lean_kernel as kernel

PREDICTION, CONSTANT, HEAD = range(3)  # of `columns` (3, h, m); `factors` (2, h) are those of CONSTANT and HEAD
FIRST, SIZE, OLDER = range(3)  # counts: place of the oldest row, rows in the window, how many of them have a head


@kernel
def push(  # type: ignore[no-untyped-def]
    prediction, reward, discount, ratio, coefficient, columns, factors, tail, counts, errors
):
    """Add a transition; put prediction − return of the row that it completes into `errors`, and return their number.

    `prediction`, `reward` (m,), discount on leaving, importance ratio, trace coefficient on arrival. `tail` (m + 1,)
    ends with its factor.
    """
    h = columns.shape[1]
    m = len(prediction)
    completed = 0
    if counts[SIZE] > 0:
        extend_tail(prediction, coefficient, columns, factors, tail, counts)
        if counts[SIZE] == h:
            pop(prediction, columns, factors, tail, counts, errors)
            completed = 1
    at = (counts[FIRST] + counts[SIZE]) % h
    for k in range(m):
        columns[PREDICTION, at, k] = prediction[k]
        columns[CONSTANT, at, k] = (1.0 - ratio) * prediction[k] + ratio * reward[k]
    factors[0, at] = ratio * discount
    counts[SIZE] += 1
    return completed


@kernel
def extend_tail(prediction, coefficient, columns, factors, tail, counts):  # type: ignore[no-untyped-def]
    """Compose the tail with the function of the newest row, now that the prediction after it is known."""
    h = columns.shape[1]
    m = len(prediction)
    at = (counts[FIRST] + counts[SIZE] - 1) % h
    left = factors[0, at] * (1.0 - coefficient)
    factors[0, at] *= coefficient
    for k in range(m):
        columns[CONSTANT, at, k] += left * prediction[k]
        tail[k] += tail[m] * columns[CONSTANT, at, k]
    tail[m] *= factors[0, at]


@kernel
def pop(values, columns, factors, tail, counts, errors):  # type: ignore[no-untyped-def]
    """Complete the return of the oldest row by `values` (m,) after the newest, and remove the row."""
    h = columns.shape[1]
    m = len(values)
    if counts[OLDER] == 0:
        turn(columns, factors, tail, counts, m)
    at = counts[FIRST]
    for k in range(m):
        after = tail[k] + tail[m] * values[k]
        errors[0, k] = columns[PREDICTION, at, k] - (columns[HEAD, at, k] + factors[1, at] * after)
    counts[FIRST] = (at + 1) % h
    counts[SIZE] -= 1
    counts[OLDER] -= 1


@kernel
def turn(columns, factors, tail, counts, m):  # type: ignore[no-untyped-def]
    """Make all rows older ones: compute their heads, backwards, and empty the tail."""
    h = columns.shape[1]
    for i in range(counts[SIZE] - 1, -1, -1):
        at = (counts[FIRST] + i) % h
        after = (at + 1) % h
        if i == counts[SIZE] - 1:  # the newest row, whose head is its own function
            factors[1, at] = factors[0, at]
            for k in range(m):
                columns[HEAD, at, k] = columns[CONSTANT, at, k]
        else:
            factors[1, at] = factors[0, at] * factors[1, after]
            for k in range(m):
                columns[HEAD, at, k] = columns[CONSTANT, at, k] + factors[0, at] * columns[HEAD, after, k]
    counts[OLDER] = counts[SIZE]
    for k in range(m):
        tail[k] = 0.0
    tail[m] = 1.0


@kernel
def close(values, columns, factors, tail, counts, errors):  # type: ignore[no-untyped-def]
    """Complete all returns by `values` (m,) after the newest row, oldest row first; return their number."""
    count = 0
    if counts[SIZE] > 0:
        extend_tail(values, 1.0, columns, factors, tail, counts)
    while counts[SIZE] > 0:
        pop(values, columns, factors, tail, counts, errors[count : count + 1])
        count += 1
    turn(columns, factors, tail, counts, len(values))
    return count


_VECTOR = types.Array(types.float64, 1, "C", readonly=True)
_STATE = (types.float64[:, :, ::1], types.float64[:, ::1], types.float64[::1], types.int64[::1], types.float64[:, ::1])
SIGNATURES = {
    "push": (_VECTOR, _VECTOR, types.float64, types.float64, types.float64, *_STATE),
    "close": (_VECTOR, *_STATE),
}
