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
The ridge shrinks beside them, and is restored one feature at a time (`ridge_restoration`). Passes over P are in
`inverse_products`. A is kept transposed, so that a sparse φ changes few of its rows.
"""

from __future__ import annotations

import numpy as np
from numba import types

from lstd._kernels.blocked import (
    LARGEST,
    add,
    beyond,
    copy,
    differs,
    dots,
    increasing,
    load,
    negate,
    scatter,
    sum_beyond,
    valid,
)
from lstd._kernels.change_detection import COUNT, LARGEST_ERROR, LENGTH, OPEN, REWARD, SIZE, SUM, VALUE, end_block
from lstd._kernels.compilation import kernel
from lstd._kernels.inverse_products import apply, project, project_sparse
from lstd._kernels.recursive_state import (
    AHEAD,
    ASK,
    BAD,
    BLOCK_AT,
    BOOTSTRAP,
    CHANGE,
    CHANGED,
    CHART,
    CHECK,
    CHECK_AT,
    COEFFICIENT,
    DECAY,
    DONE,
    EPISODES,
    FAST,
    FEATURES,
    FORGETTING,
    FRACTION,
    GROWN,
    GROWTH,
    HUGE,
    IS_CUT,
    JUMP,
    LMBDA,
    MARK,
    MOMENT,
    NEXT,
    OTHERS,
    P_PHI,
    PHI,
    PHI_P,
    Q_INVERSE,
    Q_SYSTEM,
    R_INVERSE,
    R_SYSTEM,
    READING,
    RESCALE,
    RESCALED_AT,
    SAMPLE,
    SCALARS,
    SYSTEM,
    TERMINATES,
    TRACE,
    UPDATES,
    WAITING_INVERSE,
    WAITING_SYSTEM,
    WAITS,
    WEIGHT,
    WEIGHTS,
    Y,
    charts_of,
    counts_of,
    decay_of,
    lanes_of,
    lost_digits,
    matrix,
    others_of,
    panel,
    rows_of,
    weight_of,
)
from lstd._kernels.ridge_restoration import restore_ridge
from lstd._kernels.sample_size import BEGUN, add_to_sample, few_runs


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
def growth(state):  # type: ignore[no-untyped-def]
    """Return the factor 1 + c |φ₊|ᵀ|y| / |1 − c φ₊ᵀy| by which reading weights out may multiply their errors."""
    c = state[SCALARS, FRACTION] * state[SCALARS, BOOTSTRAP]
    next_y, size = dot_and_size(state[NEXT], state[Y], counts_of(state)[FEATURES])
    return 1.0 + c * size / abs(1.0 - c * next_y)


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
    if monitored(state, counts):
        error = state[CHART, REWARD] + state[SCALARS, DECAY] * here - state[CHART, VALUE]
        add_error(error, state, counts)
    state[CHART, VALUE], state[CHART, REWARD], state[CHART, OPEN] = here, reward, 1.0


@kernel
def monitored(state, counts):  # type: ignore[no-untyped-def]
    """Return whether the error of the last transition, once known, is added to the chart."""
    return state[CHART, OPEN] == 1.0 and counts[READING] == FAST and not few_runs(state[SAMPLE])


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
        if monitored(state, counts):
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
    "growth": (_STATE,),
    "predict": (_ROW, types.float64[::1], _STATE),
    "transposed_system": (types.float64, _STATE, types.float64[:, ::1]),
}  # fmt: skip
