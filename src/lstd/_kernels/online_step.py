"""One transition of recursive LSTD(λ), dense or sparse features, and predictions between two transitions.

With φ the features of a row, φ₊ those of its successor, ρ the importance ratio, c the trace coefficient, w the weight,
r the reward, γ the discount and w₋ the weight of the transition before, and P = (A + αI)⁻¹, the state is z, y = Pz and
θ = Pb:

    z' = ρ(cλγ z + φ),   u = w z' − w₋γ z,   A' = A + u φᵀ,   b' = b + w r z'
    P' = P − q (φᵀP),   q = Pu / (1 + φᵀPu),   y' = P'z',   θ' = θ − q φᵀθ + w r y'

(Sherman–Morrison; `sherman_morrison` forms y' without the terms that cancel where φᵀp is large, as they do
with a small α.) If the denominator is large, P' is smaller than P along φ by that factor, and loses as many digits. If
its terms cancel, it loses digits itself. Weights are then solved for until P is computed anew.

Transitions wait in a buffer, from which they are added to the sums: x, x₊, the rewards, discount, importance ratio,
trace coefficient, weight, the number of the episode, and whether it terminates.

Most of the time of a transition is spent reading P from memory. Rank-one changes are therefore gathered in panels Q and
R, P = M − Σ_k Q_kᵀR_k, and applied to M together. As φ₊ is the φ of the next transition, one pass over M forms the
products with both, and every other transition needs none. Each row is padded with zeros to whole blocks, so that no
loop has a remainder.

With forgetting f, each transition weighs 1/f times the one before it, and the ridge shrinks beside them. It is restored
one feature i at a time, with g the weight now:

    R_ii' = g α_i,  P' = P − q (e_iᵀP),  q = c P e_i / (1 + c P_ii),  c = g α_i − R_ii,  θ' = θ − q θ_i,  y' = y − q y_i
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
    scatter,
    sum_beyond,
    valid,
)
from lstd._kernels.change_detection import LENGTH, LEVEL, N_CHART, OPEN, REWARD, VALUE, add_error
from lstd._kernels.compilation import kernel
from lstd._kernels.traces import add_to_sample

# The state is one array, as each array among the arguments of a call takes 50 ns. Its rows are these vectors, of which
# COUNTS, integers in the same memory, has two and CHART six, and those from PHI on are scratch; then θ of each reward,
# Q, R and M. RIDGE is the diagonal of R, ALPHA what it is restored to; P_NEXT and NEXT_P are products of M with NEXT.
Y, TRACE, NEXT, P_NEXT, NEXT_P, RIDGE, ALPHA, SCALARS, COUNTS, SAMPLE, CHART, PHI = *range(9), 10, 11, 17
P_PHI, PHI_P, ARRIVES, LANES, THETA = 18, 19, 20, 21, 29
# λ; the discount of the transition before, for the trace, and times its weight, for A (0 where its boundary term is
# closed); the fraction of the boundary term that weights are read with; f and g; weight and trace coefficient of the
# transition to take, 1 between calls; the growth of errors above which a read-out is solved for.
LMBDA, DECAY, BOOTSTRAP, FRACTION, FORGETTING, GROWTH, WEIGHT, COEFFICIENT, MOST_GROWN = range(9)
# Features, rewards, rows of a panel; where Q, R and M begin; the number of transitions in which the ridge of each
# feature is restored once.
FEATURES, REWARDS, PANEL, Q_AT, R_AT, M_AT, ROTATION = range(7)
# Changes that wait in the panels, and whether P_NEXT and NEXT_P are known. Transitions so far, those in the buffer,
# those after which P was computed anew and is to be again, and how many were to be in between. Whether weights are
# solved for. Episodes that are over, and whether one was cut off. Whether the charts say that the stream has changed.
WAITING, AHEAD, UPDATES, BUFFERED, RENEWED, RENEW_AT, INTERVAL, SOLVED, EPISODES, CUT, CHANGED = range(7, 18)
N_COUNTS = 18
# Entries of SAMPLE: whether a ratio was other than one, and whether any factor was. Then, for the effective sample
# sizes with ratios alone, with weights alone, and without both, the traces e and f, Σ g and the double sum.
OFF_POLICY, FACTORS, SIZES = range(3)
E, F, TOTAL, SQUARE = range(4)

LOST = 1e-6  # a denominator this much smaller than its terms, or larger than 1 / LOST, loses six digits
COLUMNS = 512  # of a matrix changed at a time: as much of a panel stays in the cache

# What a transition returns. LOOK: done, and the buffer is full, P is to be computed anew, or the stream has changed.
# After a negative code nothing has changed. BAD: an argument is invalid, or so large that sums would overflow. JUMP:
# `x` is not the `x_next` of the last transition. ASK: of recorded rows, one that the caller must learn.
DONE, LOOK, BAD, JUMP, ASK = 0, 1, -1, -2, -3
# Kinds of recorded rows: the successor is the next row, or terminal; none is known; the episode is cut off there.
GOES_ON, TERMINATES, WAITS, IS_CUT = range(4)
DISCOUNT, RATIO, OF_TRACE, OF_ROW, EPISODE, TERMINAL = range(-6, 0)  # the last columns of the buffer

RUNS = 50.0  # of rows, with which errors are those of the stream and not of weights that few products of ratios decide
SAMPLED = 1024  # transitions between two looks at the effective sample of a stream with ratios or weights
GROWN_AT = 2.0**32  # g at which P is computed anew, relative to the last weight
# Largest feature and entry of the trace, and its square the largest product of trace and reward: products are then so
# far below the largest float64, 1.8e308, that no stream is long enough for their sums to reach it.
HUGE = 1e145


@kernel
def step(x, x_next, reward, discount, ratio, terminated, state, buffer):  # type: ignore[no-untyped-def]
    """Take one transition with features `x` and `x_next` (n,); return one of the codes above."""
    counts = counts_of(state)
    if len(x) != counts[FEATURES] or len(x_next) != len(x) or not valid(reward, discount, ratio):
        return BAD
    # The successor goes to scratch, as NEXT must hold the row to come until all is known to be right.
    if load(x, state[PHI], HUGE) + load(x_next, state[ARRIVES], HUGE) > 0:
        return BAD
    code = enter(reward, discount, ratio, terminated, state, counts, buffer)
    if code < DONE:
        return code
    project(state, counts, not terminated)
    return advance(state, counts, buffer)


@kernel
def step_sparse(  # type: ignore[no-untyped-def]
    indices, values, next_indices, next_values, reward, discount, ratio, terminated, state, buffer
):
    """Take one transition as `step` does; features have `values` at increasing `indices`."""
    counts = counts_of(state)
    n = counts[FEATURES]
    if len(indices) != len(values) or len(next_indices) != len(next_values) or not valid(reward, discount, ratio):
        return BAD
    if not (increasing(indices, n) and increasing(next_indices, n)):
        return BAD
    if beyond(values, HUGE) + beyond(next_values, HUGE) > 0:
        return BAD
    scatter(indices, values, state[PHI])
    scatter(next_indices, next_values, state[ARRIVES])
    code = enter(reward, discount, ratio, terminated, state, counts, buffer)
    if code < DONE:
        return code
    project_sparse(indices, values, state, counts)
    return advance(state, counts, buffer)


@kernel
def stream(X, X_next, y, numbers, kinds, first, predictions, state, buffer):  # type: ignore[no-untyped-def]
    """Take the transitions of recorded rows from `first` on, as `step` does; return the next row and a code.

    `X`, `X_next` (T, n), `y` (T, m); `numbers` (T, 4): discount, importance ratio, weight, trace coefficient. Fills
    `predictions`, (T, m + 2) or with no rows, with those for each row before its transition, and then with the level of
    the charts of errors. Stops after a row with a code
    other than DONE, and with a negative code before a row that the caller must learn.
    """
    m, n, counts = y.shape[1], X.shape[1], counts_of(state)
    for t in range(first, len(y)):
        if kinds[t] == IS_CUT or beyond(y[t, 1:], HUGE) > 0:
            return t, ASK
        if len(predictions) > 0:
            if not predict(X[t], predictions[t, :m], state):
                return t, ASK
            predictions[t, m] = charts_of(state)[:, LEVEL].max()
        if kinds[t] == WAITS:
            continue
        terminated = kinds[t] == TERMINATES
        copy(y[t, 1:], buffer[counts[BUFFERED], 2 * n + 1 : 2 * n + m])
        state[SCALARS, WEIGHT], state[SCALARS, COEFFICIENT] = numbers[t, 2], numbers[t, 3]
        successor = X[t] if terminated else X_next[t]
        code = step(X[t], successor, y[t, 0], numbers[t, 0], numbers[t, 1], terminated, state, buffer)
        state[SCALARS, WEIGHT] = state[SCALARS, COEFFICIENT] = 1.0
        if code != DONE:
            return t + (code > DONE), code
    return len(y), DONE


# ---------------------------------------------------------------- predictions


@kernel
def predict(x, values, state):  # type: ignore[no-untyped-def]
    """Fill `values` (m,) with the predictions for `x` (n,) of each reward; return whether all are finite.

    xᵀθ_c = xᵀθ + c xᵀy φ₊ᵀθ / (1 − c φ₊ᵀy): the read-out of the weights, with a fraction c of the boundary term. NaN if
    weights are to be solved for, or `x` to be checked.
    """
    counts = counts_of(state)
    a = along(x, state, counts)
    if len(values) != counts[REWARDS] or a != a:
        return False
    for j in range(len(values)):
        theta = state[THETA + j]
        values[j] = dot(x, theta)
        if a != 0.0:
            values[j] += a * dot(theta[: len(x)], state[NEXT])
    return beyond(values, LARGEST) == 0


@kernel
def along(x, state, counts):  # type: ignore[no-untyped-def]
    """Return c xᵀy / (1 − c φ₊ᵀy), or NaN."""
    if counts[SOLVED] != 0 or len(x) != counts[FEATURES]:
        return np.nan
    c = state[SCALARS, FRACTION] * state[SCALARS, BOOTSTRAP]
    if c == 0.0:
        return 0.0
    rest, grown = denominator(state, counts)
    return c * dot(x, state[Y]) / rest if grown <= state[SCALARS, MOST_GROWN] else np.nan


@kernel
def denominator(state, counts):  # type: ignore[no-untyped-def]
    """Return 1 − c φ₊ᵀy and 1 + c |φ₊|ᵀ|y| / |1 − c φ₊ᵀy|, by which reading weights out may multiply their errors."""
    total, size, c = 0.0, 0.0, state[SCALARS, FRACTION] * state[SCALARS, BOOTSTRAP]
    for i in range(counts[FEATURES]):
        term = state[NEXT, i] * state[Y, i]
        total += term
        size += abs(term)
    return 1.0 - c * total, 1.0 + c * size / abs(1.0 - c * total)


@kernel
def growth(state):  # type: ignore[no-untyped-def]
    """Return the factor by which reading weights out may multiply their errors."""
    return denominator(state, counts_of(state))[1]


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


# ---------------------------------------------------------------- the transition


@kernel
def enter(reward, discount, ratio, terminated, state, counts, buffer):  # type: ignore[no-untyped-def]
    """Put the transition from PHI to ARRIVES into the buffer, and ARRIVES into NEXT; return a code, negative for none.

    The rewards after the first are in the buffer already.
    """
    own = state[SCALARS, WEIGHT]
    most = max(1.0, ratio * max(1.0, own * state[SCALARS, GROWTH]) * max(1.0, abs(reward) / HUGE))
    decay = state[SCALARS, COEFFICIENT] * state[SCALARS, LMBDA] * state[SCALARS, DECAY]
    if sum_beyond(decay, state[TRACE], state[PHI], HUGE / most) > 0:
        return BAD
    if not decay * state[SAMPLE, SIZES + E] + 1.0 <= HUGE / most:  # the trace of a feature that is always one
        return BAD
    if (state[SCALARS, BOOTSTRAP] != 0.0 or counts[AHEAD] == 1) and differs(state[PHI], state[NEXT]) > 0:
        if state[SCALARS, BOOTSTRAP] != 0.0:
            return JUMP
        counts[AHEAD] = 0  # products were formed for another row
    copy(state[ARRIVES], state[NEXT])
    row, n = buffer[counts[BUFFERED]], counts[FEATURES]
    for i in range(n):
        row[i], row[n + i] = state[PHI, i], state[ARRIVES, i]
    row[2 * n], row[DISCOUNT], row[RATIO], row[TERMINAL] = reward, discount, ratio, terminated
    row[OF_TRACE], row[OF_ROW], row[EPISODE] = state[SCALARS, COEFFICIENT], own, counts[EPISODES]
    state[SCALARS, GROWTH] /= state[SCALARS, FORGETTING]
    return DONE


@kernel
def advance(state, counts, buffer):  # type: ignore[no-untyped-def]
    """Update P, y, θ and z with the last row of the buffer, and return the code."""
    row, k = buffer[counts[BUFFERED]], counts[WAITING]
    phi, p, y, z = state[PHI], state[P_PHI], state[Y], state[TRACE]
    q, lanes, ratio = state[counts[Q_AT] + k], state[LANES:THETA].reshape(-1), row[RATIO]
    weight, bootstrap = row[OF_ROW] * state[SCALARS, GROWTH], state[SCALARS, BOOTSTRAP]
    decay = row[OF_TRACE] * state[SCALARS, LMBDA] * state[SCALARS, DECAY]
    phi_y, phi_p, phi_theta = dots(phi, y, p, state[THETA], lanes)
    if state[CHART, LENGTH] > 0.0:
        here = phi_theta / (1.0 - state[SCALARS, FRACTION] * bootstrap * phi_y)  # the prediction for φ = φ₊
        note_error(row[2 * counts[FEATURES]], here, False, state, counts)
    lost = sherman_morrison(phi_p, phi_y, p, y, q, (ratio, weight, decay, bootstrap))
    copy(state[PHI_P], state[counts[R_AT] + k])
    note_sample(row, state[SCALARS, LMBDA] * state[SCALARS, DECAY], state[SCALARS, FORGETTING], state[SAMPLE])
    for i in range(len(z)):
        z[i] = ratio * (decay * z[i] + phi[i])
    for j in range(counts[REWARDS]):
        theta, gain = state[THETA + j], weight * row[2 * counts[FEATURES] + j]
        if j > 0:
            phi_theta, _, _ = dots(phi, theta, theta, theta, lanes)
        for i in range(len(theta)):
            theta[i] = theta[i] - q[i] * phi_theta + gain * y[i]
    counts[WAITING] = k + 1
    return finish(lost, weight, row[DISCOUNT], row[TERMINAL] == 1.0, state, counts, len(buffer))


@kernel
def finish(lost, weight, discount, terminated, state, counts, size):  # type: ignore[no-untyped-def]
    """Prepare for the next transition; return the code."""
    state[SCALARS, DECAY] = 0.0 if terminated else discount
    state[SCALARS, BOOTSTRAP] = weight * state[SCALARS, DECAY]
    counts[UPDATES] += 1
    counts[BUFFERED] += 1
    if state[SCALARS, FORGETTING] != 1.0:
        lost = restore_ridge(state, counts) or lost
    if terminated:
        counts[EPISODES] += 1
        note_error(0.0, 0.0, True, state, counts)
    if lost:
        counts[SOLVED] = 1
    due = counts[BUFFERED] >= size or counts[UPDATES] >= counts[RENEW_AT] or state[SCALARS, GROWTH] >= GROWN_AT
    due = due or (state[SAMPLE, FACTORS] == 1.0 and counts[UPDATES] % SAMPLED == 0)
    return LOOK if lost or due or counts[CHANGED] == 1 else DONE


@kernel
def charts_of(state):  # type: ignore[no-untyped-def]
    """Return the charts of errors."""
    return state[CHART:PHI].reshape(-1)[: 2 * N_CHART].reshape((2, N_CHART))


@kernel
def note_error(reward, here, over, state, counts):  # type: ignore[no-untyped-def]
    """Add the error of the transition before to the chart, now that the value of its successor is known.

    `here` is that value, and `reward` follows it, unless the episode is over.
    """
    if state[CHART, OPEN] == 1.0 and counts[SOLVED] == 0 and not few_runs(state[SAMPLE]):
        error = state[CHART, REWARD] + state[SCALARS, DECAY] * here - state[CHART, VALUE]
        counts[CHANGED] = max(counts[CHANGED], add_error(error, charts_of(state)))
    state[CHART, VALUE], state[CHART, REWARD], state[CHART, OPEN] = here, reward, not over


@kernel
def note_sample(row, decay, forgetting, sample):  # type: ignore[no-untyped-def]
    """Add a transition, a row of the buffer, to the effective sample sizes of `lstd.statistics`.

    `decay` is λγ on arrival, 0 at the start of an episode. All that came before counts `forgetting` times as much.
    """
    if row[RATIO] != 1.0:
        sample[OFF_POLICY] = 1.0
    if row[RATIO] != 1.0 or row[OF_ROW] != 1.0 or row[OF_TRACE] != 1.0:
        sample[FACTORS] = 1.0
    sums = sample[SIZES : SIZES + 12].reshape((3, 4))
    for k in range(3):
        sums[k, E] *= decay
        sums[k, F] *= decay * forgetting
        sums[k, TOTAL] *= forgetting
        sums[k, SQUARE] *= forgetting * forgetting
    add_to_sample(row[RATIO], row[OF_ROW], row[OF_TRACE], sums)


@kernel
def few_runs(sample):  # type: ignore[no-untyped-def]
    """Return whether importance ratios leave fewer than RUNS runs of rows."""
    return sample[OFF_POLICY] == 1.0 and sample[SIZES + TOTAL] ** 2 < RUNS * sample[SIZES + SQUARE]


# ---------------------------------------------------------------- one change of P


@kernel
def sherman_morrison(phi_p, phi_y, p, y, q, numbers):  # type: ignore[no-untyped-def]
    """Set q = Pu / d and y = P'z' for A' = A + u φᵀ, d = 1 + φᵀPu; return whether digits were lost.

    `numbers` are ρ, w, cλγ and w₋γ, `p` is Pφ and `y` is Pz:

        z' = ρ(cλγ z + φ),  Pu = wρ p − o y,  o = w₋γ − wρcλγ,  y' = ρ((1 − w₋γ φᵀy) p + (cλγ + w₋γ φᵀp) y) / d
    """
    ratio, weight, decay, bootstrap = numbers
    o = bootstrap - weight * ratio * decay
    d = 1.0 + weight * ratio * phi_p - o * phi_y
    along_p, along_y = ratio * (1.0 - bootstrap * phi_y) / d, ratio * (decay + bootstrap * phi_p) / d
    of_p, of_y = weight * ratio / d, o / d
    for i in range(len(q)):
        q[i] = of_p * p[i] - of_y * y[i]
        y[i] = along_p * p[i] + along_y * y[i]
    return lost_digits(d, 1.0 + abs(weight * ratio * phi_p) + abs(o * phi_y))


@kernel
def counts_of(state):  # type: ignore[no-untyped-def]
    """Return a view of the counts."""
    return state[COUNTS:SAMPLE].reshape(-1).view(np.int64)


@kernel
def lost_digits(denominator, size):  # type: ignore[no-untyped-def]
    """Return whether `denominator`, a sum of terms of this size, cancelled, is large or is NaN: digits are lost."""
    return not (abs(denominator) >= LOST * size and LOST * abs(denominator) <= 1.0)


# ---------------------------------------------------------------- products with P


@kernel
def project(state, counts, with_next):  # type: ignore[no-untyped-def]
    """Compute P_PHI = Pφ and PHI_P = φᵀP, with a pass over M unless the pass before has formed its products."""
    make_room(state, counts)
    if counts[AHEAD] == 1:
        copy(state[P_NEXT], state[P_PHI])
        copy(state[NEXT_P], state[PHI_P])
        counts[AHEAD] = 0
    else:
        pass_over(state, counts)
        counts[AHEAD] = with_next and counts[WAITING] + 1 < counts[PANEL]
    lanes = state[LANES:THETA].reshape(-1)
    for k in range(counts[WAITING]):
        q, r = state[counts[Q_AT] + k], state[counts[R_AT] + k]
        phi_r, phi_q, _ = dots(state[PHI], r, q, q, lanes)
        add_both(-phi_r, q, state[P_PHI], -phi_q, r, state[PHI_P])


@kernel
def pass_over(state, counts):  # type: ignore[no-untyped-def]
    """Compute the products of M with φ and φ₊; those with φ₊ add a third to the time."""
    first = counts[M_AT]
    clear(state[PHI_P])
    clear(state[NEXT_P])
    lanes = state[LANES:THETA].reshape(-1)[: 8 * BLOCK].reshape((8, BLOCK))
    for i in range(0, counts[FEATURES], 4):
        read(
            state[first + i], state[first + i + 1], state[first + i + 2], state[first + i + 3],
            state, i, lanes,
        )  # fmt: skip
        for j in range(4):
            state[P_PHI, i + j], state[P_NEXT, i + j] = fold(lanes[j]), fold(lanes[4 + j])


@kernel
def read(row0, row1, row2, row3, state, first_row, lanes):  # type: ignore[no-untyped-def]
    """Set lane j to the terms of row_jᵀφ and lane 4 + j to those of row_jᵀφ₊; add φ_j row_j to φᵀM, likewise φ₊ᵀM."""
    phi, phi_m, psi, psi_m = state[PHI], state[PHI_P], state[NEXT], state[NEXT_P]
    lane0, lane1, lane2, lane3 = lanes[0], lanes[1], lanes[2], lanes[3]
    lane4, lane5, lane6, lane7 = lanes[4], lanes[5], lanes[6], lanes[7]
    phi0, phi1, phi2, phi3 = phi[first_row], phi[first_row + 1], phi[first_row + 2], phi[first_row + 3]
    psi0, psi1, psi2, psi3 = psi[first_row], psi[first_row + 1], psi[first_row + 2], psi[first_row + 3]
    clear(lanes.reshape(-1))
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
    make_room(state, counts)
    counts[AHEAD] = 0
    p, phi_p, first = state[P_PHI], state[PHI_P], counts[M_AT]
    clear(phi_p)
    for i in range(counts[FEATURES]):
        total = 0.0
        for j in range(len(indices)):
            total += values[j] * state[first + i, np.uint64(indices[j])]
        p[i] = total
    for j in range(len(indices)):
        add(values[j], state[first + indices[j]], phi_p)
    for k in range(counts[WAITING]):
        q, r, phi_q, phi_r = state[counts[Q_AT] + k], state[counts[R_AT] + k], 0.0, 0.0
        for j in range(len(indices)):
            phi_q += values[j] * q[indices[j]]
            phi_r += values[j] * r[indices[j]]
        add_both(-phi_r, q, p, -phi_q, r, phi_p)


# ---------------------------------------------------------------- changes of P


@kernel
def make_room(state, counts):  # type: ignore[no-untyped-def]
    """Apply the panels to M if they are full: M ← M − Σ_k Q_kᵀR_k."""
    if counts[WAITING] < counts[PANEL]:
        return
    counts[WAITING] = counts[AHEAD] = 0
    n, q, r, m = state.shape[1], counts[Q_AT], counts[R_AT], counts[M_AT]
    for left in range(0, n, COLUMNS):
        part = slice(left, min(left + COLUMNS, n))
        for i in range(0, counts[FEATURES], 4):
            row0, row1 = state[m + i][part], state[m + i + 1][part]
            row2, row3 = state[m + i + 2][part], state[m + i + 3][part]
            for k in range(0, counts[PANEL], 4):
                apply_four(
                    row0, row1, row2, row3, state, q + k, i,
                    state[r + k][part], state[r + k + 1][part], state[r + k + 2][part], state[r + k + 3][part],
                )  # fmt: skip


@kernel
def apply_four(row0, row1, row2, row3, Q, k, i, r0, r1, r2, r3):  # type: ignore[no-untyped-def]
    """The loop of `make_room` for rows i … i + 3 of M and changes k … k + 3: 16 coefficients stay in registers."""
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
    first, k, y = counts[M_AT], counts[WAITING], state[Y]
    q, r = state[counts[Q_AT] + k], state[counts[R_AT] + k]
    copy(state[first + i], r)
    for j in range(len(q)):
        q[j] = state[first + j, i]
    for earlier in range(k):
        before, after = state[counts[Q_AT] + earlier], state[counts[R_AT] + earlier]
        add_both(-after[i], before, q, -before[i], after, r)
    denominator = 1.0 + more * q[i]
    lost = lost_digits(denominator, 1.0 + abs(more * q[i]))
    factor = more / denominator
    for j in range(len(q)):
        q[j] *= factor
    add(-y[i], q, y)
    for reward in range(counts[REWARDS]):
        theta = state[THETA + reward]
        add(-theta[i], q, theta)
    counts[WAITING] += 1
    state[RIDGE, i] += more
    return lost


# ---------------------------------------------------------------- signatures: other argument types are not compiled

_ROW = types.Array(types.float64, 1, "C", readonly=True)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_INDICES = types.Array(types.int64, 1, "C", readonly=True)
_NUMBERS = (types.float64, types.float64, types.float64, types.boolean)
_STATE = types.float64[:, ::1]
SIGNATURES = {
    "step": (_ROW, _ROW, *_NUMBERS, _STATE, _STATE),
    "step_sparse": (_INDICES, _ROW, _INDICES, _ROW, *_NUMBERS, _STATE, _STATE),
    "stream": (_ROWS, _ROWS, _ROWS, _STATE, types.int8[::1], types.int64, _STATE, _STATE, _STATE),
    "predict": (_ROW, types.float64[::1], _STATE),
    "growth": (_STATE,),
}
