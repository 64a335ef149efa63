"""One transition of recursive LSTD(λ), dense or sparse features, and predictions between two transitions.

With φ the features of a row, φ₊ those of its successor, ρ the importance ratio, c the trace coefficient, w the weight,
r the reward, γ the discount and w₋ the weight of the transition before, and P = (A + αI)⁻¹, the state is z, y = Pz and
θ = Pb:

    z' = ρ(cλγ z + φ),   u = w z' − w₋γ z,   A' = A + u φᵀ,   b' = b + w r z'
    P' = P − q (φᵀP),   q = Pu / (1 + φᵀPu),   y' = P'z',   θ' = θ − q φᵀθ + w r y'

(Sherman–Morrison; `sherman_morrison` forms y' without the terms that cancel where φᵀp is large, as they do
with a small α.) If the denominator is large, P' is smaller than P along φ by that factor, and loses as many digits. If
its terms cancel, it loses digits itself. Weights are then solved for until P is computed anew.

The names of `state`, `numbers`, `counts` and `buffer` are in `lstd._kernels.online_state`, P in
`lstd._kernels.inverse`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from lstd._kernels.blocked import (
    LARGEST,
    copy,
    count_larger,
    count_larger_sums,
    differs,
    dots,
    increasing,
    load,
    scatter,
    valid,
)
from lstd._kernels.change_detection import LENGTH, LEVEL, N_CHART, OPEN, REWARD, VALUE, add_error
from lstd._kernels.compilation import lean_kernel as kernel
from lstd._kernels.inverse import project, project_sparse, restore_ridge, sherman_morrison

from lstd._kernels.online_state import (  # isort: skip
    AHEAD, ARRIVES, ASK, BAD, BOOTSTRAP, BUFFERED, CHANGED, CHARTS, COEFFICIENT, DECAY, DISCOUNT, DONE, DOTS, EPISODE,
    EPISODES, FACTORS, FEATURES, FORGETTING, FRACTION, GROWN_AT, GROWTH, HUGE, IS_CUT, JUMP, LMBDA, LOOK,
    MOST_GROWN, NEXT, OF_ROW, OF_TRACE, OFF_POLICY, P_PHI, PHI, PHI_P, Q_AT, R_AT, RATIO, RENEW_AT, REWARDS, RUNS,
    SAMPLED, SAMPLES, SOLVED, TERMINAL, TERMINATES, THETA, TRACE, UPDATES, WAITING, WAITS, WEIGHT, Y,
)  # fmt: skip
from lstd._kernels.traces import SQUARE, TOTAL, E, F, add_to_samples


@kernel
def step(x, x_next, reward, discount, ratio, terminated, state, numbers, counts, buffer):  # type: ignore[no-untyped-def]
    """Take one transition with features `x` and `x_next` (n,); return one of the codes above."""
    if len(x) != counts[FEATURES] or len(x_next) != len(x) or not valid(reward, discount, ratio):
        return BAD
    # The successor goes to scratch, as NEXT must hold the row to come until all is known to be right.
    if load(x, state[PHI], HUGE) + load(x_next, state[ARRIVES], HUGE) > 0:
        return BAD
    code = enter(reward, discount, ratio, terminated, state, numbers, counts, buffer)
    if code < DONE:
        return code
    project(state, numbers, counts, not terminated)
    return advance(state, numbers, counts, buffer)


@kernel
def step_forgetting(x, x_next, reward, discount, ratio, terminated, state, numbers, counts, buffer):  # type: ignore[no-untyped-def]
    """Take one transition as `step` does, and restore the ridge, which fades where the stream forgets."""
    code = step(x, x_next, reward, discount, ratio, terminated, state, numbers, counts, buffer)
    return restored(code, state, numbers, counts)


@kernel
def step_sparse(  # type: ignore[no-untyped-def]
    indices, values, next_indices, next_values, reward, discount, ratio, terminated, state, numbers, counts, buffer
):
    """Take one transition as `step` does; features have `values` at increasing `indices`."""
    n = counts[FEATURES]
    if len(indices) != len(values) or len(next_indices) != len(next_values) or not valid(reward, discount, ratio):
        return BAD
    if not (increasing(indices, n) and increasing(next_indices, n)):
        return BAD
    if count_larger(values, HUGE) + count_larger(next_values, HUGE) > 0:
        return BAD
    scatter(indices, values, state[PHI])
    scatter(next_indices, next_values, state[ARRIVES])
    code = enter(reward, discount, ratio, terminated, state, numbers, counts, buffer)
    if code < DONE:
        return code
    project_sparse(indices, values, state, counts)
    code = advance(state, numbers, counts, buffer)
    return restored(code, state, numbers, counts)


@kernel
def stream(X, X_next, y, columns, kinds, first, predictions, state, numbers, counts, buffer):  # type: ignore[no-untyped-def]
    """Take the transitions of recorded rows from `first` on, as `step` does; return the next row and a code.

    `X`, `X_next` (T, n), `y` (T, m); `columns` (T, 4): discount, importance ratio, trace coefficient, weight. Fills
    `predictions`, (T, m + 2) or with no rows, with those for each row before its transition, and then with the level of
    the charts of errors, NaN before alarms begin. Stops after a row with a code other than DONE, and with a negative
    code before a row that the caller must learn.
    """
    m = y.shape[1]
    n = X.shape[1]
    for t in range(first, len(y)):
        if kinds[t] == IS_CUT or count_larger(y[t, 1:], HUGE) > 0:
            return t, ASK
        if len(predictions) > 0:
            if np.isnan(predict(X[t], predictions[t, :m], LARGEST, state, numbers, counts)):
                return t, ASK
            level = max(numbers[CHARTS + LEVEL], numbers[CHARTS + N_CHART + LEVEL])
            predictions[t, m] = level if level >= 0.0 else np.nan
        if kinds[t] == WAITS:
            continue
        terminated = kinds[t] == TERMINATES
        copy(y[t, 1:], buffer[counts[BUFFERED], 2 * n + 1 : 2 * n + m])
        numbers[COEFFICIENT] = columns[t, 2]
        numbers[WEIGHT] = columns[t, 3]
        successor = X[t] if terminated else X_next[t]
        code = step(X[t], successor, y[t, 0], columns[t, 0], columns[t, 1], terminated, state, numbers, counts, buffer)
        code = restored(code, state, numbers, counts)
        numbers[WEIGHT] = numbers[COEFFICIENT] = 1.0
        if code != DONE:
            return t + (code > DONE), code
    return len(y), DONE


# ---------------------------------------------------------------- predictions


@kernel
def predict(x, values, most, state, numbers, counts):  # type: ignore[no-untyped-def]
    """Return the prediction for `x` (n,) of the first reward, and fill `values` (m,), or (0,), with those of each.

    xᵀθ_c = (x + a φ₊)ᵀθ,  a = c xᵀy / (1 − c φ₊ᵀy): the read-out of the weights, with a fraction c of the boundary
    term. NaN if one is not finite, if weights are to be solved for, if this may multiply their errors by more than
    `most`, or `x` is to be checked.
    """
    if counts[SOLVED] != 0 or len(x) != counts[FEATURES]:
        return np.nan
    along = 0.0  # a
    c = numbers[FRACTION] * numbers[BOOTSTRAP]
    if c != 0.0:
        rest, grown = denominator(state, numbers, counts)
        if not (grown <= most and grown <= numbers[MOST_GROWN]):
            return np.nan
        along = c * dot(x, 0.0, state[NEXT], state[Y]) / rest
    first = np.nan
    for j in range(counts[REWARDS]):
        value = dot(x, along, state[NEXT], state[THETA + j])
        if not abs(value) <= LARGEST:
            return np.nan
        if j == 0:
            first = value
        if j < len(values):
            values[j] = value
    return first


@kernel
def denominator(state, numbers, counts):  # type: ignore[no-untyped-def]
    """Return 1 − c φ₊ᵀy and 1 + c |φ₊|ᵀ|y| / |1 − c φ₊ᵀy|, by which reading weights out may multiply their errors."""
    total = 0.0
    size = 0.0
    c = numbers[FRACTION] * numbers[BOOTSTRAP]
    for i in range(counts[FEATURES]):
        term = state[NEXT, i] * state[Y, i]
        total += term
        size += abs(term)
    return 1.0 - c * total, 1.0 + c * size / abs(1.0 - c * total)


@kernel
def growth(state, numbers, counts):  # type: ignore[no-untyped-def]
    """Return the factor by which reading weights out may multiply their errors."""
    return denominator(state, numbers, counts)[1]


@kernel
def dot(x, along, phi, a):  # type: ignore[no-untyped-def]
    """Return (x + along · φ)ᵀa over the entries of `x`, whose length may be no multiple of BLOCK."""
    s0 = 0.0
    s1 = 0.0
    s2 = 0.0
    s3 = 0.0
    whole = len(x) // 4 * 4
    for i in range(0, whole, 4):
        s0 += (x[i] + along * phi[i]) * a[i]
        s1 += (x[i + 1] + along * phi[i + 1]) * a[i + 1]
        s2 += (x[i + 2] + along * phi[i + 2]) * a[i + 2]
        s3 += (x[i + 3] + along * phi[i + 3]) * a[i + 3]
    for i in range(whole, len(x)):
        s0 += (x[i] + along * phi[i]) * a[i]
    return (s0 + s1) + (s2 + s3)


# ---------------------------------------------------------------- the transition


@kernel
def enter(reward, discount, ratio, terminated, state, numbers, counts, buffer):  # type: ignore[no-untyped-def]
    """Put the transition from PHI to ARRIVES into the buffer, and ARRIVES into NEXT; return a code, negative for none.

    The rewards after the first are in the buffer already. All is checked before anything changes, but that products
    formed for another successor are dropped. The names in capitals are places: rows of `state`, and entries of
    `numbers`, `counts` and `row`.
    """
    own = numbers[WEIGHT]
    most = max(1.0, ratio * max(1.0, own * numbers[GROWTH]) * max(1.0, abs(reward) / HUGE))
    decay = numbers[COEFFICIENT] * numbers[LMBDA] * numbers[DECAY]
    if count_larger_sums(decay, state[TRACE], state[PHI], HUGE / most) > 0:
        return BAD
    if not decay * numbers[SAMPLES + E] + 1.0 <= HUGE / most:  # the trace of a feature that is always one
        return BAD
    if (numbers[BOOTSTRAP] != 0.0 or counts[AHEAD] == 1) and differs(state[PHI], state[NEXT]) > 0:
        if numbers[BOOTSTRAP] != 0.0:
            return JUMP
        counts[AHEAD] = 0  # products were formed for another row
    copy(state[ARRIVES], state[NEXT])
    row = buffer[counts[BUFFERED]]
    n = counts[FEATURES]
    for i in range(n):
        row[i] = state[PHI, i]
        row[n + i] = state[ARRIVES, i]
    row[2 * n] = reward
    row[DISCOUNT] = discount
    row[RATIO] = ratio
    row[TERMINAL] = terminated
    row[OF_TRACE] = numbers[COEFFICIENT]
    row[OF_ROW] = own
    row[EPISODE] = counts[EPISODES]
    numbers[GROWTH] /= numbers[FORGETTING]
    return DONE


@kernel
def advance(state, numbers, counts, buffer):  # type: ignore[no-untyped-def]
    """Update P, y, θ and z with the last row of the buffer, and return the code.

    The order matters: q and y' need p = Pφ and y of before, θ' needs q and y', and `phi_theta` is of θ before. Names
    in capitals are places: rows of `state`, and entries of `numbers`, `counts` and `row`.
    """
    row = buffer[counts[BUFFERED]]
    k = counts[WAITING]
    phi = state[PHI]
    p = state[P_PHI]
    y = state[Y]
    z = state[TRACE]
    q = state[counts[Q_AT] + k]
    lanes = numbers[DOTS:]
    ratio = row[RATIO]
    weight = row[OF_ROW] * numbers[GROWTH]
    bootstrap = numbers[BOOTSTRAP]
    decay = row[OF_TRACE] * numbers[LMBDA] * numbers[DECAY]
    phi_y, phi_p, phi_theta = dots(phi, y, p, state[THETA], lanes)
    if numbers[CHARTS + LENGTH] > 0.0:
        here = phi_theta / (1.0 - numbers[FRACTION] * bootstrap * phi_y)  # the prediction for φ = φ₊
        note_error(row[2 * counts[FEATURES]], here, False, numbers, counts)
    lost = sherman_morrison(phi_p, phi_y, p, y, q, ratio, weight, decay, bootstrap)
    copy(state[PHI_P], state[counts[R_AT] + k])
    note_sample(row, numbers[LMBDA] * numbers[DECAY], numbers)
    for i in range(len(z)):
        z[i] = ratio * (decay * z[i] + phi[i])
    for j in range(counts[REWARDS]):
        theta = state[THETA + j]
        gain = weight * row[2 * counts[FEATURES] + j]
        if j > 0:
            phi_theta, _, _ = dots(phi, theta, theta, theta, lanes)
        for i in range(len(theta)):
            theta[i] = theta[i] - q[i] * phi_theta + gain * y[i]
    counts[WAITING] = k + 1
    return finish(lost, weight, row[DISCOUNT], row[TERMINAL] == 1.0, state, numbers, counts, len(buffer))


@kernel
def finish(lost, weight, discount, terminated, state, numbers, counts, size):  # type: ignore[no-untyped-def]
    """Prepare for the next transition; return the code."""
    numbers[DECAY] = 0.0 if terminated else discount
    numbers[BOOTSTRAP] = weight * numbers[DECAY]
    counts[UPDATES] += 1
    counts[BUFFERED] += 1
    if terminated:
        counts[EPISODES] += 1
        note_error(0.0, 0.0, True, numbers, counts)
    if lost:
        counts[SOLVED] = 1
    due = counts[BUFFERED] >= size or counts[UPDATES] >= counts[RENEW_AT] or numbers[GROWTH] >= GROWN_AT
    due = due or (numbers[FACTORS] == 1.0 and counts[UPDATES] % SAMPLED == 0)
    return LOOK if lost or due or counts[CHANGED] == 1 else DONE


@kernel
def restored(code, state, numbers, counts):  # type: ignore[no-untyped-def]
    """Restore the ridge of a stream that forgets after a transition with this code; return its code now."""
    if code < DONE or numbers[FORGETTING] == 1.0 or not restore_ridge(state, numbers, counts):
        return code
    counts[SOLVED] = 1
    return LOOK


# ---------------------------------------------------------------- errors, and the effective sample


@kernel
def note_error(reward, here, over, numbers, counts):  # type: ignore[no-untyped-def]
    """Add the error of the transition before to the charts, now that the value of its successor is known.

    `here` is that value, and `reward` follows it, unless the episode is over.
    """
    fast = numbers[CHARTS : CHARTS + N_CHART]
    slow = numbers[CHARTS + N_CHART : CHARTS + 2 * N_CHART]
    if fast[OPEN] == 1.0 and counts[SOLVED] == 0 and not few_runs(numbers):
        error = fast[REWARD] + numbers[DECAY] * here - fast[VALUE]
        if add_error(error, fast, slow):
            counts[CHANGED] = 1
    fast[VALUE] = here
    fast[REWARD] = reward
    fast[OPEN] = not over


@kernel
def note_sample(row, decay, numbers):  # type: ignore[no-untyped-def]
    """Add a transition, a row of the buffer, to the effective sample sizes of `lstd.statistics`.

    `decay` is λγ on arrival, 0 at the start of an episode. All that came before counts f times as much.
    """
    ratio = row[RATIO]
    weight = row[OF_ROW]
    coefficient = row[OF_TRACE]
    f = numbers[FORGETTING]
    if ratio != 1.0:
        numbers[OFF_POLICY] = 1.0
    if ratio != 1.0 or weight != 1.0 or coefficient != 1.0:
        numbers[FACTORS] = 1.0
    for first in range(SAMPLES, CHARTS, 4):
        numbers[first + E] *= decay
        numbers[first + F] *= decay * f
        numbers[first + TOTAL] *= f
        numbers[first + SQUARE] *= f * f
    add_to_samples(ratio, weight, coefficient, numbers[SAMPLES:CHARTS])


@kernel
def few_runs(numbers):  # type: ignore[no-untyped-def]
    """Return whether importance ratios leave fewer than RUNS runs of rows."""
    return (
        numbers[OFF_POLICY] == 1.0
        and numbers[SAMPLES + TOTAL] * numbers[SAMPLES + TOTAL] < RUNS * numbers[SAMPLES + SQUARE]
    )


# ---------------------------------------------------------------- signatures: other argument types are not compiled

_ROW = types.Array(types.float64, 1, "C", readonly=True)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_INDICES = types.Array(types.int64, 1, "C", readonly=True)
_TRANSITION = (types.float64, types.float64, types.float64, types.boolean)
_STATE = (types.float64[:, ::1], types.float64[::1], types.int64[::1])
_BUFFER = types.float64[:, ::1]
SIGNATURES = {
    "step": (_ROW, _ROW, *_TRANSITION, *_STATE, _BUFFER),
    "step_forgetting": (_ROW, _ROW, *_TRANSITION, *_STATE, _BUFFER),
    "step_sparse": (_INDICES, _ROW, _INDICES, _ROW, *_TRANSITION, *_STATE, _BUFFER),
    "stream": (_ROWS, _ROWS, _ROWS, _ROWS, types.int8[::1], types.int64, types.float64[:, ::1], *_STATE, _BUFFER),
    "predict": (_ROW, types.float64[::1], types.float64, *_STATE),
    "growth": _STATE,
}
