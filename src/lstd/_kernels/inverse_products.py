"""Products with the inverse P of a recursion, and rank-one changes of it, as passes over memory.

Most of the time of a transition is spent reading P from memory. Rank-one changes are therefore gathered in panels and
applied together. As φ₊ is the φ of the next transition, one pass over P forms the products with both, and every other
transition needs none. Each row is padded with zeros to whole blocks, so that no loop has a remainder.
"""

from __future__ import annotations

import numpy as np

from lstd._kernels.blocked import BLOCK, add, add_both, clear, copy, dots, fold
from lstd._kernels.compilation import kernel
from lstd._kernels.recursive_state import (
    AHEAD,
    FEATURES,
    INVERSE,
    NEXT,
    NEXT_P,
    P_NEXT,
    P_PHI,
    PHI,
    PHI_P,
    Q_INVERSE,
    R_INVERSE,
    WAITING_INVERSE,
    lanes_of,
    matrix,
    panel,
    rows_of,
)

COLUMNS = 512  # of a matrix changed at a time: as much of a panel stays in the cache


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


@kernel
def make_room(state, counts):  # type: ignore[no-untyped-def]
    """Apply the panel of P if it is full."""
    Q, R = panel(state, counts, Q_INVERSE), panel(state, counts, R_INVERSE)
    if counts[WAITING_INVERSE] == len(Q):
        apply(matrix(state, counts, INVERSE), Q, R, rows_of(counts))
        counts[WAITING_INVERSE] = counts[AHEAD] = 0
