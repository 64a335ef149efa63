"""One transition of TD(λ), or a whole stream of them; dense features.

With δ = r + γ₊ φ₊ᵀθ − φᵀθ, ρ the importance ratio and v the value φᵀθ of the row as it was before the last update:

    accumulating   e = ρ(λγ e + φ),  θ ← θ + aδ e
    replacing      e = ρφ where φ ≠ 0, ρλγ e elsewhere,  θ ← θ + aδ e
    true online    e = λγ e + (1 − aλγ eᵀφ) φ,  θ ← θ + a(δ + φᵀθ − v) e − a(φᵀθ − v) φ

(van Seijen, Mahmood, Pilarski, Machado and Sutton 2016, with a discount per transition and per-decision ratios.) The
pass over the state that makes one transition also computes the inner products with which the next one begins.
"""

from __future__ import annotations

import numpy as np
from numba import types

from lstd._kernels.blocked import BLOCK, clear, fold, increasing, not_finite, scatter, valid
from lstd._kernels.compilation import kernel

# Rows of the state, (2, n); scalars: λ; the step size a; the discount of the transition before; v.
WEIGHTS, TRACE = range(2)
LMBDA, STEP_SIZE, DECAY, VALUE = range(4)
# Counts: one of the kinds below; transitions so far.
KIND, UPDATES = range(2)
ACCUMULATING, REPLACING, TRUE_ONLINE = range(3)

# What a transition returns
DONE = 0
BAD = -1  # an argument breaks a rule, and nothing was changed


@kernel
def step(x, x_next, reward, discount, ratio, terminated, state, scalars, counts):  # type: ignore[no-untyped-def]
    """Take one transition with features `x` and `x_next` (n,)."""
    n = state.shape[1]
    if len(x) != n or len(x_next) != n or not valid(reward, discount, ratio):
        return BAD
    if counts[KIND] == TRUE_ONLINE and ratio != 1.0:  # true online TD learns on-policy
        return BAD
    if not_finite(x) + not_finite(x_next) > 0:
        return BAD
    theta = state[WEIGHTS]
    e = state[TRACE]
    lanes = np.empty(3 * BLOCK)
    lane0 = lanes[:BLOCK]
    lane1 = lanes[BLOCK : 2 * BLOCK]
    lane2 = lanes[2 * BLOCK :]
    clear(lanes)
    sweep(1.0, 0.0, 0.0, 0.0, theta, e, x, x, x_next, lane0, lane1, lane2)
    now = fold(lane0)
    ahead = fold(lane1)
    phi_e = fold(lane2)
    if terminated:
        discount = 0.0
    decay, enter, along_e, along_phi = plan(reward, discount, ratio, now, ahead, phi_e, counts[KIND], scalars)
    if counts[KIND] == REPLACING:
        drop(e, x)
    sweep(decay, enter, along_e, along_phi, theta, e, x, x, x, lane0, lane1, lane2)
    counts[UPDATES] += 1
    return DONE


@kernel
def step_sparse(  # type: ignore[no-untyped-def]
    indices, values, next_indices, next_values, reward, discount, ratio, terminated, state, scalars, counts
):
    """Take one transition as `step` does; features have `values` at increasing `indices`."""
    n = state.shape[1]
    if len(indices) != len(values) or len(next_indices) != len(next_values):
        return BAD
    if not (increasing(indices, n) and increasing(next_indices, n)):
        return BAD
    rows = np.empty((2, n))
    scatter(indices, values, rows[0])
    scatter(next_indices, next_values, rows[1])
    return step(rows[0], rows[1], reward, discount, ratio, terminated, state, scalars, counts)


@kernel
def stream(X, successors, shift, rewards, discounts, ratios, full, last, state, scalars, counts):  # type: ignore[no-untyped-def]
    """Take the transitions of rows, of which no feature is checked: one that is not finite makes the weights so.

    `X` (≥ T, n); the successor of row t is row t + `shift` of `successors`, or its last row; `successors` may be `X`.
    `rewards`, `discounts` (0 where the row terminates) and `ratios` (T,); `full` (T,), whether the row is a full
    transition; `last` (T,), whether it is the last of its episode.
    """
    theta = state[WEIGHTS]
    e = state[TRACE]
    lanes = np.empty(3 * BLOCK)
    lane0 = lanes[:BLOCK]
    lane1 = lanes[BLOCK : 2 * BLOCK]
    lane2 = lanes[2 * BLOCK :]
    final = len(successors) - 1
    n_rows = len(rewards)
    kind = counts[KIND]
    known = False
    for t in range(n_rows):
        if full[t]:
            if not known:
                clear(lanes)
                there = successors[min(t + shift, final)]
                sweep(1.0, 0.0, 0.0, 0.0, theta, e, X[t], X[t], there, lane0, lane1, lane2)
            now = fold(lane0)
            ahead = fold(lane1)
            phi_e = fold(lane2)
            decay, enter, along_e, along_phi = plan(
                rewards[t], discounts[t], ratios[t], now, ahead, phi_e, kind, scalars
            )
            # The pass that makes this row's change also computes the values of the next row, if that has a transition.
            following = min(t + 1, n_rows - 1)
            known = full[following] and following > t
            if kind == REPLACING:
                drop(e, X[t])
            clear(lanes)
            there = successors[min(following + shift, final)]
            sweep(decay, enter, along_e, along_phi, theta, e, X[t], X[following], there, lane0, lane1, lane2)
            counts[UPDATES] += 1
        if last[t]:
            scalars[DECAY] = 0.0


@kernel
def plan(reward, discount, ratio, now, ahead, phi_e, kind, scalars):  # type: ignore[no-untyped-def]
    """Return the factors of `sweep` for a transition; `now`, `ahead`, `phi_e` are φᵀθ, φ₊ᵀθ and φᵀe."""
    step_size = scalars[STEP_SIZE]
    decay = scalars[LMBDA] * scalars[DECAY]
    target = reward
    if discount != 0.0:  # or the value of a successor that is not finite would count
        target = reward + discount * ahead
    error = target - now
    drift = 0.0
    enter = ratio
    if kind == TRUE_ONLINE:
        drift = now - scalars[VALUE]
        enter = 1.0 - step_size * decay * phi_e
    scalars[VALUE] = ahead
    scalars[DECAY] = discount
    return ratio * decay, enter, step_size * (error + drift), -step_size * drift


@kernel
def sweep(decay, enter, along_e, along_phi, theta, e, phi, psi, chi, lane0, lane1, lane2):  # type: ignore[no-untyped-def]
    """e ← decay · e + enter · φ, θ ← θ + along_e · e + along_phi · φ; add the terms of ψᵀθ, χᵀθ, ψᵀe to the lanes."""
    whole = len(phi) // BLOCK * BLOCK
    for first in range(0, whole, BLOCK):
        for k in range(BLOCK):
            i = np.uint64(first + k)
            e_i = decay * e[i] + enter * phi[i]
            theta_i = theta[i] + (along_e * e_i + along_phi * phi[i])
            e[i] = e_i
            theta[i] = theta_i
            lane0[k] += psi[i] * theta_i
            lane1[k] += chi[i] * theta_i
            lane2[k] += psi[i] * e_i
    for k in range(len(phi) - whole):
        i = np.uint64(whole + k)
        e_i = decay * e[i] + enter * phi[i]
        theta_i = theta[i] + (along_e * e_i + along_phi * phi[i])
        e[i] = e_i
        theta[i] = theta_i
        lane0[k] += psi[i] * theta_i
        lane1[k] += chi[i] * theta_i
        lane2[k] += psi[i] * e_i


@kernel
def drop(e, phi):  # type: ignore[no-untyped-def]
    """e ← 0 where φ ≠ 0; a condition inside `sweep` would prevent its vectorisation."""
    for i in range(len(phi)):
        e[i] = 0.0 if phi[i] != 0.0 else e[i]


# ---------------------------------------------------------------- signatures: other argument types are not compiled

_ROW = types.Array(types.float64, 1, "C", readonly=True)
_INDICES = types.Array(types.int64, 1, "C", readonly=True)
_NUMBERS = (types.float64, types.float64, types.float64, types.boolean)
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_STATE = (types.float64[:, ::1], types.float64[::1], types.int64[::1])
SIGNATURES = {
    "step": (_ROW, _ROW, *_NUMBERS, *_STATE),
    "step_sparse": (_INDICES, _ROW, _INDICES, _ROW, *_NUMBERS, *_STATE),
    "stream": (
        *(_ROWS, _ROWS, types.int64, _ROW, _ROW, _ROW),
        *(types.boolean[::1], types.boolean[::1], *_STATE),
    ),
}
