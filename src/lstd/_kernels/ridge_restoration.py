"""The ridge of a recursion that forgets, restored beside growing weights.

With forgetting f, each transition weighs 1/f times the one before it, and the ridge shrinks beside them. It is restored
one feature i at a time, with g the weight now:

    R_ii' = g α_i,  P' = P − q (e_iᵀP),  q = c P e_i / (1 + c P_ii),  c = g α_i − R_ii,  θ' = θ − q θ_i,  y' = y − q y_i
"""

from __future__ import annotations

from lstd._kernels.blocked import add, add_both, copy
from lstd._kernels.compilation import kernel
from lstd._kernels.inverse_products import make_room
from lstd._kernels.recursive_state import (
    ALPHA,
    FEATURES,
    GROWTH,
    INVERSE,
    Q_INVERSE,
    R_INVERSE,
    RIDGE,
    ROTATION,
    SCALARS,
    UPDATES,
    WAITING_INVERSE,
    WEIGHTS,
    Y,
    lost_digits,
    matrix,
    others_of,
    panel,
)


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
