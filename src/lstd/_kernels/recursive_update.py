"""One transition of recursive LSTD(λ), dense or sparse features.

With φ the features of a row, φ₊ those of its successor, ρ the importance ratio, c the trace coefficient, w the weight,
r the reward, γ the discount and w₋ the weight of the transition before, and P = (A + αI)⁻¹, the state is z, b, y = Pz
and θ = Pb:

    z' = ρ(cλγ z + φ),   u = w z' − w₋γ z,   A' = A + u φᵀ,   b' = b + w r z'
    p = Pφ,  P u = wρ p − (w₋ − wρcλ)γ y,   q = P u / d,   d = 1 + φᵀP u
    P' = P − q (φᵀP),   y' = P'z' = ρ((1 − w₋γ φᵀy) p + (cλγ + w₋γ φᵀp) y) / d,   θ' = θ − q φᵀθ + w r y'

(Sherman–Morrison; y' is Pz' − q φᵀPz' without the terms that cancel where φᵀp is large.) If |d| is large, P' is smaller
than P along φ by that factor, and loses as many digits. If the terms of d cancel, d itself loses digits. A is kept
beside P, so that lost digits can be measured and P recomputed.

With forgetting f, each transition weighs 1/f times the one before it: relative to the last weight, they are f^{T−1−t}.
The ridge shrinks beside them, and is restored one feature i at a time, with g the weight now:

    R_ii' = g α_i,  P' = P − q (e_iᵀP),  q = c P e_i / (1 + c P_ii),  c = g α_i − R_ii,  θ' = θ − q θ_i,  y' = y − q y_i

Most of the time is spent reading P from memory. Rank-one changes are therefore gathered in panels and applied together.
As φ₊ is the φ of the next transition, one pass over P forms the products with both, and every other transition needs
none. A is kept transposed, so that a sparse φ changes few of its rows. Each row of the state is padded with zeros to
whole blocks, so that no loop has a remainder.
"""

from __future__ import annotations

import numpy as np
from numba import types

from lstd._kernels.blocked import (
    BLOCK,
    LARGEST,
    add,
    add_both,
    beyond,
    clear,
    copy,
    differs,
    dots,
    fold,
    increasing,
    load,
    negate,
    scatter,
    sum_beyond,
    valid,
)
from lstd._kernels.change_detection import (
    COUNT,
    LARGEST_ERROR,
    LENGTH,
    N_CHART,
    OPEN,
    REWARD,
    SIZE,
    SUM,
    VALUE,
    end_block,
)  # fmt: skip
from lstd._kernels.compilation import kernel
from lstd._kernels.sample_size import BEGUN, add_to_sample

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

COLUMNS = 512  # of a matrix changed at a time: as much of a panel stays in the cache
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
def step(x, x_next, reward, discount, ratio, terminated, state):  # type: ignore[no-untyped-def]
    """Take one transition with features `x` and `x_next` (n,); return one of the codes above."""
    counts = counts_of(state)
    n = counts[FEATURES]
    if len(x) != n or len(x_next) != n or not valid(reward, discount, ratio):
        return BAD
    # The successor goes to scratch, as NEXT must hold the row to come until all is known to be right.
    if load(x, state[PHI], HUGE) + load(x_next, state[CHANGE], HUGE) > 0 or overflows(reward, ratio, state):
        return BAD
    if not arrived(state, counts):
        return JUMP
    copy(state[CHANGE], state[NEXT])
    state[SCALARS, GROWTH] /= state[SCALARS, FORGETTING]
    project(state, counts, not terminated)
    lost = advance(reward, ratio, state, counts)
    add_dense(state, counts)
    return finish(lost, discount, terminated, state, counts)


@kernel
def step_sparse(  # type: ignore[no-untyped-def]
    indices, values, next_indices, next_values, reward, discount, ratio, terminated, state
):
    """Take one transition as `step` does; features have `values` at increasing `indices`."""
    counts = counts_of(state)
    n = counts[FEATURES]
    if len(indices) != len(values) or len(next_indices) != len(next_values):
        return BAD
    if not (increasing(indices, n) and increasing(next_indices, n)):
        return BAD
    if beyond(values, HUGE) + beyond(next_values, HUGE) > 0 or not valid(reward, discount, ratio):
        return BAD
    scatter(indices, values, state[PHI])
    if overflows(reward, ratio, state):
        return BAD
    if not arrived(state, counts):
        return JUMP
    scatter(next_indices, next_values, state[NEXT])
    state[SCALARS, GROWTH] /= state[SCALARS, FORGETTING]
    project_sparse(indices, values, state, counts)
    lost = advance(reward, ratio, state, counts)
    system, change = matrix(state, counts, SYSTEM), state[CHANGE]
    for j in range(len(indices)):
        add(values[j], change, system[indices[j]])
    return finish(lost, discount, terminated, state, counts)


@kernel
def stream(X, X_next, y, numbers, kinds, first, predictions, state):  # type: ignore[no-untyped-def]
    """Take the transitions of recorded rows from `first` on, as `step` does; return the next row and a code.

    `X`, `X_next` (T, n), `y` (T, m); `numbers` (T, 4): discount, importance ratio, weight, trace coefficient. Fills
    `predictions`, (T, m) or with no rows, with those for each row before its transition. Stops after a row at which a
    check is due, and with a negative code before a row that the caller must learn.
    """
    m = y.shape[1]
    for t in range(first, len(y)):
        if kinds[t] == IS_CUT or beyond(y[t, 1:], HUGE) > 0:
            return t, ASK
        if len(predictions) > 0 and not predict(X[t], predictions[t], state):
            return t, ASK
        if kinds[t] == WAITS:
            continue
        terminated = kinds[t] == TERMINATES
        state[SCALARS, WEIGHT], state[SCALARS, COEFFICIENT] = numbers[t, 2], numbers[t, 3]
        successor = X[t] if terminated else X_next[t]
        code = step(X[t], successor, y[t, 0], numbers[t, 0], numbers[t, 1], terminated, state)
        if code >= DONE and m > 1:
            code = max(code, follow(y[t, 1:], state))
        state[SCALARS, WEIGHT] = state[SCALARS, COEFFICIENT] = 1.0
        if code < DONE:
            return t, code
        if code > DONE:
            return t + 1, code
    return len(y), DONE


# ---------------------------------------------------------------- predictions


@kernel
def value(x, state):  # type: ignore[no-untyped-def]
    """Return the prediction for `x` (n,); NaN if it needs a correction, or a check of `x`.

    xᵀθ_c = xᵀθ + c xᵀy φ₊ᵀθ / (1 − c φ₊ᵀy): the read-out of the weights, with a fraction c of the boundary term.
    """
    found = read_out(x, state[WEIGHTS], along(x, state), state)
    return found if counts_of(state)[OTHERS] == 0 and abs(found) <= LARGEST else np.nan


@kernel
def predict(x, values, state):  # type: ignore[no-untyped-def]
    """Fill `values` (m,) with what `value` is for each reward; return whether all are finite."""
    others, a = others_of(state, counts_of(state)), along(x, state)
    if len(values) != 1 + others.shape[1]:
        return False
    values[0] = read_out(x, state[WEIGHTS], a, state)
    for j in range(1, len(values)):
        values[j] = read_out(x, others[0, j - 1], a, state)
    return beyond(values, LARGEST) == 0


@kernel
def along(x, state):  # type: ignore[no-untyped-def]
    """Return c xᵀy / (1 − c φ₊ᵀy), or NaN."""
    counts = counts_of(state)
    if counts[READING] != FAST or len(x) != counts[FEATURES]:
        return np.nan
    c = state[SCALARS, FRACTION] * state[SCALARS, BOOTSTRAP]
    if c == 0.0:
        return 0.0
    next_y, size = dot_and_size(state[NEXT], state[Y], len(x))
    rest = 1.0 - c * next_y
    return c * dot(x, state[Y]) / rest if 1.0 + c * size / abs(rest) <= GROWN else np.nan


@kernel
def read_out(x, theta, a, state):  # type: ignore[no-untyped-def]
    """Return xᵀθ + a φ₊ᵀθ, NaN if `a` is."""
    if a == 0.0:
        return dot(x, theta)
    return dot(x, theta) + a * dot(theta[: len(x)], state[NEXT]) if a == a else a


@kernel
def dot(x, a):  # type: ignore[no-untyped-def]
    """Return xᵀa over the entries of `x`, whose length may be no multiple of BLOCK."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = len(x) // 4 * 4
    for i in range(0, whole, 4):
        s0 += x[i] * a[i]
        s1 += x[i + 1] * a[i + 1]
        s2 += x[i + 2] * a[i + 2]
        s3 += x[i + 3] * a[i + 3]
    for i in range(whole, len(x)):
        s0 += x[i] * a[i]
    return (s0 + s1) + (s2 + s3)


@kernel
def dot_and_size(a, b, n):  # type: ignore[no-untyped-def]
    """Return aᵀb and |a|ᵀ|b| over n entries."""
    total, size = 0.0, 0.0
    for i in range(n):
        term = a[i] * b[i]
        total += term
        size += abs(term)
    return total, size


# ---------------------------------------------------------------- checks


@kernel
def arrived(state, counts):  # type: ignore[no-untyped-def]
    """Return whether PHI may follow the last transition; products formed for another row are dropped."""
    if state[SCALARS, BOOTSTRAP] == 0.0 and counts[AHEAD] == 0:
        return True
    if differs(state[PHI], state[NEXT]) == 0:
        return True
    if state[SCALARS, BOOTSTRAP] != 0.0:
        return False
    counts[AHEAD] = 0
    return True


@kernel
def overflows(reward, ratio, state):  # type: ignore[no-untyped-def]
    """Return whether the trace with PHI, or its product with the reward, would be too large for the sums."""
    most = HUGE / max(1.0, ratio * max(1.0, weight_of(state)) * max(1.0, abs(reward) / HUGE))
    return sum_beyond(decay_of(state), state[TRACE], state[PHI], most) > 0


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


# ---------------------------------------------------------------- the O(n) part


@kernel
def advance(reward, ratio, state, counts):  # type: ignore[no-untyped-def]
    """Update y, θ, z and b, and put (q, φᵀP) into the panel and u into CHANGE; return whether digits were lost."""
    phi, p, y, theta = state[PHI], state[P_PHI], state[Y], state[WEIGHTS]
    phi_y, phi_p, phi_theta = dots(phi, y, p, theta, lanes_of(state))
    bootstrap, weight, decay = state[SCALARS, BOOTSTRAP], weight_of(state), decay_of(state)
    ahead = bootstrap - weight * ratio * decay
    denominator = 1.0 + weight * ratio * phi_p - ahead * phi_y
    note_error(reward, phi_theta, phi_y, state, counts)
    note_factors(ratio, state, counts)
    k = counts[WAITING_INVERSE]
    move(
        1.0 / denominator, ratio, weight, decay, bootstrap, reward, phi_y, phi_p, phi_theta,
        phi, p, state[PHI_P], y, theta, state[TRACE], state[MOMENT], state[CHANGE],
        panel(state, counts, Q_INVERSE)[k], panel(state, counts, R_INVERSE)[k],
    )  # fmt: skip
    counts[WAITING_INVERSE] = k + 1
    return lost_digits(denominator, 1.0 + abs(weight * ratio * phi_p) + abs(ahead * phi_y))


@kernel
def note_factors(ratio, state, counts):  # type: ignore[no-untyped-def]
    """Add the transition to the effective sample size, from the first one on that has a factor."""
    weight, coefficient = state[SCALARS, WEIGHT], state[SCALARS, COEFFICIENT]
    if ratio != 1.0 or weight != 1.0 or coefficient != 1.0 or state[SAMPLE, BEGUN] == 1.0:
        add_to_sample(
            ratio, weight, coefficient, state[SCALARS, LMBDA] * state[SCALARS, DECAY], state[SCALARS, FORGETTING],
            counts[UPDATES], state[SAMPLE],
        )  # fmt: skip


@kernel
def note_error(reward, phi_theta, phi_y, state, counts):  # type: ignore[no-untyped-def]
    """Add the error of the transition before to the chart, now that the value of its successor is known."""
    if state[CHART, LENGTH] == 0.0:
        return
    here = phi_theta / (1.0 - state[SCALARS, FRACTION] * state[SCALARS, BOOTSTRAP] * phi_y)  # `value` of φ = φ₊
    if state[CHART, OPEN] == 1.0 and counts[READING] == FAST:
        error = state[CHART, REWARD] + state[SCALARS, DECAY] * here - state[CHART, VALUE]
        add_error(error, state, counts)
    state[CHART, VALUE], state[CHART, REWARD], state[CHART, OPEN] = here, reward, 1.0


@kernel
def add_error(error, state, counts):  # type: ignore[no-untyped-def]
    """Add a one-step error to the block of the chart, unless it is NaN."""
    if error != error:
        return
    most = state[CHART, LARGEST_ERROR]
    error = min(max(error, -most), most)
    state[CHART, SUM] += error
    state[CHART, SIZE] += abs(error)
    state[CHART, COUNT] += 1.0
    if state[CHART, COUNT] >= state[CHART, LENGTH]:
        counts[CHANGED] = end_block(charts_of(state))


@kernel
def transposed_system(fraction, state, out):  # type: ignore[no-untyped-def]
    """Fill `out` (n, n) with the transpose of A − c z φ₊ᵀ, c = fraction · γ₊."""
    counts, z = counts_of(state), state[TRACE]
    M, n, c = matrix(state, counts, SYSTEM), counts[FEATURES], fraction * state[SCALARS, BOOTSTRAP]
    Q, R = panel(state, counts, Q_SYSTEM), panel(state, counts, R_SYSTEM)
    for j in range(n):
        out[j] = M[j, :n]
        if c != 0.0:
            add(-c * state[NEXT, j], z[:n], out[j])
        for k in range(counts[WAITING_SYSTEM]):
            if Q[k, j] != 0.0:
                add(-Q[k, j], R[k, :n], out[j])


@kernel
def charts_of(state):  # type: ignore[no-untyped-def]
    """Return a view of the charts of errors, (2, N_CHART)."""
    return state[CHART:SAMPLE].reshape(-1)[: 2 * N_CHART].reshape((2, N_CHART))


@kernel
def move(  # type: ignore[no-untyped-def]
    scale, ratio, weight, decay, bootstrap, reward, phi_y, phi_p, phi_theta, phi, p, row, y, theta, z, b, change, q, r
):
    """The loop of `advance`."""
    ahead, of_p, gain = bootstrap - weight * ratio * decay, weight * ratio, weight * reward
    along_p = ratio * (1.0 - bootstrap * phi_y) * scale
    along_y = ratio * (decay + bootstrap * phi_p) * scale
    for i in range(len(phi)):
        q_i = (of_p * p[i] - ahead * y[i]) * scale
        y_i = along_p * p[i] + along_y * y[i]
        z_i = ratio * (decay * z[i] + phi[i])
        change[i] = weight * z_i - bootstrap * z[i]
        theta[i] = theta[i] - q_i * phi_theta + gain * y_i
        b[i] += gain * z_i
        y[i] = y_i
        z[i] = z_i
        q[i] = q_i
        r[i] = row[i]


@kernel
def follow(rewards, state):  # type: ignore[no-untyped-def]
    """Update θ and b of the rewards after the first, of the transition that was just taken; return a code."""
    counts = counts_of(state)
    phi, y, z, lanes, others = state[PHI], state[Y], state[TRACE], lanes_of(state), others_of(state, counts)
    q = panel(state, counts, Q_INVERSE)[counts[WAITING_INVERSE] - 1]
    for j in range(len(rewards)):
        theta, b, gain = others[0, j], others[1, j], weight_of(state) * rewards[j]
        phi_theta, _, _ = dots(phi, theta, theta, theta, lanes)
        for i in range(len(phi)):
            theta[i] = theta[i] - q[i] * phi_theta + gain * y[i]
            b[i] += gain * z[i]
    lost = state[SCALARS, FORGETTING] != 1.0 and restore_ridge(state, counts)
    return CHECK if lost else DONE


@kernel
def finish(lost, discount, terminated, state, counts):  # type: ignore[no-untyped-def]
    """Set the discount for the next transition; return the code."""
    state[SCALARS, DECAY] = 0.0 if terminated else discount
    state[SCALARS, BOOTSTRAP] = weight_of(state) * state[SCALARS, DECAY]
    counts[UPDATES] += 1
    if counts[OTHERS] == 0 and state[SCALARS, FORGETTING] != 1.0:
        lost = restore_ridge(state, counts) or lost
    if terminated:
        counts[EPISODES] += 1
        if state[CHART, OPEN] == 1.0 and counts[READING] == FAST:
            error = state[CHART, REWARD] - state[CHART, VALUE]
            add_error(error, state, counts)
        state[CHART, OPEN] = 0.0
    if lost or counts[UPDATES] >= counts[CHECK_AT]:
        return CHECK
    ends = terminated or counts[EPISODES] == 0
    if counts[CHANGED] == 1 or (ends and 0 < counts[BLOCK_AT] <= counts[UPDATES]):
        return MARK
    return RESCALE if state[SCALARS, GROWTH] >= RESCALED_AT else DONE


@kernel
def add_dense(state, counts):  # type: ignore[no-untyped-def]
    """Put u φᵀ, u in CHANGE, into the panel of A, applied first when it is full."""
    Q, R = panel(state, counts, Q_SYSTEM), panel(state, counts, R_SYSTEM)
    if counts[WAITING_SYSTEM] == len(Q):
        apply(matrix(state, counts, SYSTEM), Q, R, rows_of(counts))
        counts[WAITING_SYSTEM] = 0
    negate(state[PHI], Q[counts[WAITING_SYSTEM]])
    copy(state[CHANGE], R[counts[WAITING_SYSTEM]])
    counts[WAITING_SYSTEM] += 1


# ---------------------------------------------------------------- the ridge beside growing weights


@kernel
def restore_ridge(state, counts):  # type: ignore[no-untyped-def]
    """Restore the ridge of the features i with ⌊iL/n⌋ = T mod L, L = ROTATION; return whether digits were lost."""
    n, rotation, lost = counts[FEATURES], counts[ROTATION], False
    phase = counts[UPDATES] % rotation
    for i in range((phase * n + rotation - 1) // rotation, n):
        if i * rotation // n != phase:
            break
        more = state[SCALARS, GROWTH] * state[ALPHA, i] - state[RIDGE, i]
        if more > 0.0:
            lost = add_ridge(i, more, state, counts) or lost
    return lost


@kernel
def add_ridge(i, more, state, counts):  # type: ignore[no-untyped-def]
    """Add `more` to the ridge of feature i; return whether digits were lost."""
    make_room(state, counts)
    M, Q, R = matrix(state, counts, INVERSE), panel(state, counts, Q_INVERSE), panel(state, counts, R_INVERSE)
    k, theta, y, others = counts[WAITING_INVERSE], state[WEIGHTS], state[Y], others_of(state, counts)
    q, r = Q[k], R[k]
    copy(M[i], r)
    for j in range(len(q)):
        q[j] = M[j, i]
    for earlier in range(k):
        add_both(-R[earlier, i], Q[earlier], q, -Q[earlier, i], R[earlier], r)
    denominator = 1.0 + more * q[i]
    lost = lost_digits(denominator, 1.0 + abs(more * q[i]))
    factor = more / denominator
    for j in range(len(q)):
        q[j] *= factor
    add_both(-theta[i], q, theta, -y[i], q, y)
    for other in others[0]:
        add(-other[i], q, other)
    counts[WAITING_INVERSE] += 1
    state[RIDGE, i] += more
    return lost


@kernel
def make_room(state, counts):  # type: ignore[no-untyped-def]
    """Apply the panel of P if it is full."""
    Q, R = panel(state, counts, Q_INVERSE), panel(state, counts, R_INVERSE)
    if counts[WAITING_INVERSE] == len(Q):
        apply(matrix(state, counts, INVERSE), Q, R, rows_of(counts))
        counts[WAITING_INVERSE] = counts[AHEAD] = 0


# ---------------------------------------------------------------- passes over the matrices


@kernel
def project(state, counts, with_next):  # type: ignore[no-untyped-def]
    """Compute P_PHI = Pφ and PHI_P = φᵀP, with a pass over P unless the pass before has formed them."""
    Q, R = panel(state, counts, Q_INVERSE), panel(state, counts, R_INVERSE)
    p, phi_p = state[P_PHI], state[PHI_P]
    make_room(state, counts)
    if counts[AHEAD] == 1:
        copy(state[P_NEXT], p)
        copy(state[NEXT_P], phi_p)
        counts[AHEAD] = 0
    else:
        pass_over(state, counts)
        counts[AHEAD] = with_next and counts[WAITING_INVERSE] + 1 < len(Q)
    lanes = lanes_of(state)
    for k in range(counts[WAITING_INVERSE]):
        phi_r, phi_q, _ = dots(state[PHI], R[k], Q[k], p, lanes)
        add_both(-phi_r, Q[k], p, -phi_q, R[k], phi_p)


@kernel
def pass_over(state, counts):  # type: ignore[no-untyped-def]
    """Compute the products of INVERSE with φ and φ₊; those with φ₊ add a third to the time."""
    M = matrix(state, counts, INVERSE)
    phi, p, phi_m = state[PHI], state[P_PHI], state[PHI_P]
    psi, p_next, psi_m = state[NEXT], state[P_NEXT], state[NEXT_P]
    clear(phi_m)
    clear(psi_m)
    lanes = lanes_of(state)
    lane0, lane1 = lanes[:BLOCK], lanes[BLOCK : 2 * BLOCK]
    lane2, lane3 = lanes[2 * BLOCK : 3 * BLOCK], lanes[3 * BLOCK : 4 * BLOCK]
    lane4, lane5 = lanes[4 * BLOCK : 5 * BLOCK], lanes[5 * BLOCK : 6 * BLOCK]
    lane6, lane7 = lanes[6 * BLOCK : 7 * BLOCK], lanes[7 * BLOCK :]
    for i in range(0, rows_of(counts), 4):
        clear(lanes)
        read(
            i, M[i], M[i + 1], M[i + 2], M[i + 3], phi, phi_m, psi, psi_m,
            lane0, lane1, lane2, lane3, lane4, lane5, lane6, lane7,
        )  # fmt: skip
        p[i], p[i + 1], p[i + 2], p[i + 3] = fold(lane0), fold(lane1), fold(lane2), fold(lane3)
        p_next[i], p_next[i + 1], p_next[i + 2], p_next[i + 3] = fold(lane4), fold(lane5), fold(lane6), fold(lane7)


@kernel
def read(  # type: ignore[no-untyped-def]
    first_row, row0, row1, row2, row3, phi, phi_m, psi, psi_m,
    lane0, lane1, lane2, lane3, lane4, lane5, lane6, lane7,
):  # fmt: skip
    """Add the terms of row_jᵀφ to lane j, those of row_jᵀψ to lane 4 + j, φ_j row_j to φᵀM, ψ_j row_j to ψᵀM."""
    phi0, phi1, phi2, phi3 = phi[first_row], phi[first_row + 1], phi[first_row + 2], phi[first_row + 3]
    psi0, psi1, psi2, psi3 = psi[first_row], psi[first_row + 1], psi[first_row + 2], psi[first_row + 3]
    for first in range(0, len(phi), BLOCK):
        for k in range(BLOCK):
            i = np.uint64(first + k)
            a, b, c, d, phi_i, psi_i = row0[i], row1[i], row2[i], row3[i], phi[i], psi[i]
            phi_m[i] += (phi0 * a + phi1 * b) + (phi2 * c + phi3 * d)
            psi_m[i] += (psi0 * a + psi1 * b) + (psi2 * c + psi3 * d)
            lane0[k] += a * phi_i
            lane1[k] += b * phi_i
            lane2[k] += c * phi_i
            lane3[k] += d * phi_i
            lane4[k] += a * psi_i
            lane5[k] += b * psi_i
            lane6[k] += c * psi_i
            lane7[k] += d * psi_i


@kernel
def project_sparse(indices, values, state, counts):  # type: ignore[no-untyped-def]
    """Compute what `project` does, from the rows and columns of P at these indices."""
    M, Q, R = matrix(state, counts, INVERSE), panel(state, counts, Q_INVERSE), panel(state, counts, R_INVERSE)
    p, phi_p = state[P_PHI], state[PHI_P]
    make_room(state, counts)
    counts[AHEAD] = 0
    clear(phi_p)
    for i in range(counts[FEATURES]):
        total = 0.0
        for j in range(len(indices)):
            total += values[j] * M[i, np.uint64(indices[j])]
        p[i] = total
    for j in range(len(indices)):
        add(values[j], M[indices[j]], phi_p)
    for k in range(counts[WAITING_INVERSE]):
        phi_q, phi_r = 0.0, 0.0
        for j in range(len(indices)):
            phi_q += values[j] * Q[k, indices[j]]
            phi_r += values[j] * R[k, indices[j]]
        add_both(-phi_r, Q[k], p, -phi_q, R[k], phi_p)


@kernel
def apply(M, Q, R, n_rows):  # type: ignore[no-untyped-def]
    """M ← M − Σ_k Q_kᵀR_k, in the first `n_rows` rows of M, a multiple of four as is the number of changes."""
    n = len(M)
    for first in range(0, n, COLUMNS):
        part = slice(first, min(first + COLUMNS, n))
        for i in range(0, n_rows, 4):
            for k in range(0, len(Q), 4):
                apply_four(
                    M[i][part], M[i + 1][part], M[i + 2][part], M[i + 3][part], Q,
                    R[k][part], R[k + 1][part], R[k + 2][part], R[k + 3][part], i, k,
                )  # fmt: skip


@kernel
def apply_four(row0, row1, row2, row3, Q, r0, r1, r2, r3, i, k):  # type: ignore[no-untyped-def]
    """The loop of `apply` for rows i … i + 3 of M and changes k … k + 3: 16 coefficients stay in registers."""
    a0, a1, a2, a3 = -Q[k, i], -Q[k + 1, i], -Q[k + 2, i], -Q[k + 3, i]
    b0, b1, b2, b3 = -Q[k, i + 1], -Q[k + 1, i + 1], -Q[k + 2, i + 1], -Q[k + 3, i + 1]
    c0, c1, c2, c3 = -Q[k, i + 2], -Q[k + 1, i + 2], -Q[k + 2, i + 2], -Q[k + 3, i + 2]
    d0, d1, d2, d3 = -Q[k, i + 3], -Q[k + 1, i + 3], -Q[k + 2, i + 3], -Q[k + 3, i + 3]
    for first in range(0, len(row0), BLOCK):
        for column in range(BLOCK):
            j = np.uint64(first + column)
            e, f, g, h = r0[j], r1[j], r2[j], r3[j]
            row0[j] = row0[j] + a0 * e + a1 * f + a2 * g + a3 * h
            row1[j] = row1[j] + b0 * e + b1 * f + b2 * g + b3 * h
            row2[j] = row2[j] + c0 * e + c1 * f + c2 * g + c3 * h
            row3[j] = row3[j] + d0 * e + d1 * f + d2 * g + d3 * h


# ---------------------------------------------------------------- signatures: other argument types are not compiled

_ROW = types.Array(types.float64, 1, "C", readonly=True)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_INDICES = types.Array(types.int64, 1, "C", readonly=True)
_NUMBERS = (types.float64, types.float64, types.float64, types.boolean)
_STATE = types.float64[:, ::1]
SIGNATURES = {
    "step": (_ROW, _ROW, *_NUMBERS, _STATE),
    "step_sparse": (_INDICES, _ROW, _INDICES, _ROW, *_NUMBERS, _STATE),
    "follow": (_ROW, _STATE),
    "stream": (
        _ROWS, _ROWS, _ROWS, types.float64[:, ::1], types.int8[::1], types.int64, types.float64[:, ::1], _STATE,
    ),
    "value": (_ROW, _STATE),
    "predict": (_ROW, types.float64[::1], _STATE),
    "transposed_system": (types.float64, _STATE, types.float64[:, ::1]),
}  # fmt: skip
