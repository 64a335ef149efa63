"""The inverse P = (A + diag(R))⁻¹ of a recursion: rank-one changes of it, and its products with features.

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

from lstd._kernels.blocked import BLOCK, add, add_both, clear, copy, dots, fold
from lstd._kernels.compilation import lean_kernel as kernel

from lstd._kernels.online_state import (  # isort: skip
    AHEAD, ALPHA, DOTS, FEATURES, GROWTH, LANES, LOST, M_AT, NEXT, NEXT_P, P_NEXT, P_PHI, PANEL, PHI, PHI_P, Q_AT, R_AT,
    REWARDS, RIDGE, ROTATION, THETA, UPDATES, WAITING, Y,
)  # fmt: skip

COLUMNS = 512  # of a matrix changed at a time: as much of a panel stays in the cache


@kernel
def sherman_morrison(phi_p, phi_y, p, y, q, ratio, weight, decay, bootstrap):  # type: ignore[no-untyped-def]
    """Set q = Pu / d and y = P'z' for A' = A + u φᵀ, d = 1 + φᵀPu; return whether digits were lost.

    `p` is Pφ, `y` is Pz, and the last four numbers are ρ, w, cλγ and w₋γ:

        z' = ρ(cλγ z + φ),  Pu = wρ p − o y,  o = w₋γ − wρcλγ,  y' = ρ((1 − w₋γ φᵀy) p + (cλγ + w₋γ φᵀp) y) / d
    """
    o = bootstrap - weight * ratio * decay
    d = 1.0 + weight * ratio * phi_p - o * phi_y
    along_p = ratio * (1.0 - bootstrap * phi_y) / d
    along_y = ratio * (decay + bootstrap * phi_p) / d
    of_p = weight * ratio / d
    of_y = o / d
    for i in range(len(q)):
        q[i] = of_p * p[i] - of_y * y[i]
        y[i] = along_p * p[i] + along_y * y[i]
    return lost_digits(d, 1.0 + abs(weight * ratio * phi_p) + abs(o * phi_y))


@kernel
def lost_digits(denominator, size):  # type: ignore[no-untyped-def]
    """Return whether `denominator`, a sum of terms of this size, cancelled, is large or is NaN: digits are lost."""
    return not (abs(denominator) >= LOST * size and LOST * abs(denominator) <= 1.0)


# ---------------------------------------------------------------- products with P


@kernel
def project(state, numbers, counts, with_next):  # type: ignore[no-untyped-def]
    """Compute P_PHI = Pφ and PHI_P = φᵀP, with a pass over M unless the pass before has formed its products."""
    make_room(state, counts)
    if counts[AHEAD] == 1:
        copy(state[P_NEXT], state[P_PHI])
        copy(state[NEXT_P], state[PHI_P])
        counts[AHEAD] = 0
    else:
        pass_over(state, counts)
        counts[AHEAD] = with_next and counts[WAITING] + 1 < counts[PANEL]
    lanes = numbers[DOTS:]
    for k in range(counts[WAITING]):
        q = state[counts[Q_AT] + k]
        r = state[counts[R_AT] + k]
        phi_r, phi_q, _ = dots(state[PHI], r, q, q, lanes)
        add_both(-phi_r, q, state[P_PHI], -phi_q, r, state[PHI_P])


@kernel
def pass_over(state, counts):  # type: ignore[no-untyped-def]
    """Compute the products of M with φ and φ₊; those with φ₊ add a third to the time."""
    first = counts[M_AT]
    clear(state[PHI_P])
    clear(state[NEXT_P])
    lanes = state[LANES:THETA]
    for i in range(0, counts[FEATURES], 4):
        row = first + i
        read(state[row], state[row + 1], state[row + 2], state[row + 3], state, i, lanes)
        for j in range(4):
            state[P_PHI, i + j] = fold(lanes[j])
            state[P_NEXT, i + j] = fold(lanes[4 + j])


@kernel
def read(row0, row1, row2, row3, state, first_row, lanes):  # type: ignore[no-untyped-def]
    """Set lane j to the terms of row_jᵀφ and lane 4 + j to those of row_jᵀφ₊; add φ_j row_j to φᵀM, likewise φ₊ᵀM.

    ψ is φ₊, and `phi_m`, `psi_m` are the sums φᵀM and φ₊ᵀM. The letters a to d are entries i of the four rows.
    """
    phi = state[PHI]
    phi_m = state[PHI_P]
    psi = state[NEXT]
    psi_m = state[NEXT_P]
    lane0 = lanes[0]
    lane1 = lanes[1]
    lane2 = lanes[2]
    lane3 = lanes[3]
    lane4 = lanes[4]
    lane5 = lanes[5]
    lane6 = lanes[6]
    lane7 = lanes[7]
    phi0 = phi[first_row]
    phi1 = phi[first_row + 1]
    phi2 = phi[first_row + 2]
    phi3 = phi[first_row + 3]
    psi0 = psi[first_row]
    psi1 = psi[first_row + 1]
    psi2 = psi[first_row + 2]
    psi3 = psi[first_row + 3]
    for k in range(BLOCK):
        lane0[k] = lane1[k] = lane2[k] = lane3[k] = lane4[k] = lane5[k] = lane6[k] = lane7[k] = 0.0
    for first in range(0, len(phi), BLOCK):
        for k in range(BLOCK):
            i = np.uint64(first + k)
            a = row0[i]
            b = row1[i]
            c = row2[i]
            d = row3[i]
            phi_i = phi[i]
            psi_i = psi[i]
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
    p = state[P_PHI]
    phi_p = state[PHI_P]
    first = counts[M_AT]
    clear(phi_p)
    for i in range(counts[FEATURES]):
        total = 0.0
        for j in range(len(indices)):
            total += values[j] * state[first + i, np.uint64(indices[j])]
        p[i] = total
    for j in range(len(indices)):
        add(values[j], state[first + indices[j]], phi_p)
    for k in range(counts[WAITING]):
        q = state[counts[Q_AT] + k]
        r = state[counts[R_AT] + k]
        phi_q = 0.0
        phi_r = 0.0
        for j in range(len(indices)):
            phi_q += values[j] * q[indices[j]]
            phi_r += values[j] * r[indices[j]]
        add_both(-phi_r, q, p, -phi_q, r, phi_p)


# ---------------------------------------------------------------- changes of M, and of the ridge


@kernel
def make_room(state, counts):  # type: ignore[no-untyped-def]
    """Apply the panels to M if they are full: M ← M − Σ_k Q_kᵀR_k."""
    if counts[WAITING] < counts[PANEL]:
        return
    counts[WAITING] = counts[AHEAD] = 0
    n = state.shape[1]
    q = counts[Q_AT]
    r = counts[R_AT]
    m = counts[M_AT]
    for left in range(0, n, COLUMNS):
        right = left + COLUMNS
        if right > n:
            right = n
        for i in range(0, counts[FEATURES], 4):
            for k in range(0, counts[PANEL], 4):
                apply_four(
                    state[m + i],
                    state[m + i + 1],
                    state[m + i + 2],
                    state[m + i + 3],
                    state,
                    q + k,
                    i,
                    state[r + k],
                    state[r + k + 1],
                    state[r + k + 2],
                    state[r + k + 3],
                    left,
                    right,
                )


@kernel
def apply_four(row0, row1, row2, row3, Q, k, i, r0, r1, r2, r3, left, right):  # type: ignore[no-untyped-def]
    """The loop of `make_room` for rows i … i + 3 of M and changes k … k + 3: 16 coefficients stay in registers.

    `Q` is the whole state, in which the panel of change k is row `k`. The letters a to d are of the rows of M, with the
    number of the change; e to h are entries j of the four r.
    """
    k1 = k + 1
    k2 = k + 2
    k3 = k + 3
    i1 = i + 1
    i2 = i + 2
    i3 = i + 3
    a0 = Q[k, i]
    a1 = Q[k1, i]
    a2 = Q[k2, i]
    a3 = Q[k3, i]
    b0 = Q[k, i1]
    b1 = Q[k1, i1]
    b2 = Q[k2, i1]
    b3 = Q[k3, i1]
    c0 = Q[k, i2]
    c1 = Q[k1, i2]
    c2 = Q[k2, i2]
    c3 = Q[k3, i2]
    d0 = Q[k, i3]
    d1 = Q[k1, i3]
    d2 = Q[k2, i3]
    d3 = Q[k3, i3]
    for first in range(left, right, BLOCK):
        for column in range(BLOCK):
            j = np.uint64(first + column)
            e = r0[j]
            f = r1[j]
            g = r2[j]
            h = r3[j]
            row0[j] = row0[j] - a0 * e - a1 * f - a2 * g - a3 * h
            row1[j] = row1[j] - b0 * e - b1 * f - b2 * g - b3 * h
            row2[j] = row2[j] - c0 * e - c1 * f - c2 * g - c3 * h
            row3[j] = row3[j] - d0 * e - d1 * f - d2 * g - d3 * h


@kernel
def restore_ridge(state, numbers, counts):  # type: ignore[no-untyped-def]
    """Restore the ridge of the features i with ⌊iL/n⌋ = T mod L, L = ROTATION; return whether digits were lost."""
    n = counts[FEATURES]
    rotation = counts[ROTATION]
    lost = False
    phase = counts[UPDATES] % rotation
    for i in range((phase * n + rotation - 1) // rotation, n):
        if i * rotation // n != phase:
            break
        more = numbers[GROWTH] * state[ALPHA, i] - state[RIDGE, i]
        if more > 0.0:
            lost = add_ridge(i, more, state, counts) or lost
    return lost


@kernel
def add_ridge(i, more, state, counts):  # type: ignore[no-untyped-def]
    """Add `more` to the ridge of feature i; return whether digits were lost."""
    make_room(state, counts)
    first = counts[M_AT]
    k = counts[WAITING]
    y = state[Y]
    q = state[counts[Q_AT] + k]
    r = state[counts[R_AT] + k]
    copy(state[first + i], r)
    for j in range(len(q)):
        q[j] = state[first + j, i]
    for earlier in range(k):
        before = state[counts[Q_AT] + earlier]
        after = state[counts[R_AT] + earlier]
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
