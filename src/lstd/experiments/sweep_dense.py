"""LSTD(λ) error curves for dense features: all three variants, many pairs (λ, α) side by side.

The recursion of the design runs on P = (A_Uncorrected + αI)⁻¹ (Sherman–Morrison), with y = P z:

    p = Pφ,  ρ = φᵀP,  o = (1−λ)γ_t,  s = 1 / (1 + φᵀp − o φᵀy),  q = s (p − o y)
    y' = s (1 − γ_t φᵀy) p + (λγ_t + s o (λγ_t φᵀy + φᵀp)) y,   θ' = θ − q (φᵀθ) + r y',   P' = P − q ρ

(y' is λγ_t y + p − q (λγ_t φᵀy + φᵀp), written so that nothing cancels when α is small), and the weights of a variant
are θ_c = θ' + κ y', κ = c φ₊ᵀθ' / (1 − c φ₊ᵀy'), with c = 0 (Uncorrected),
γ_{t+1} (Boyan) or (1−λ)γ_{t+1} (Mixed), φ₊ the features of the next row.

Each innermost loop runs over LANES pairs, which the compiler turns into vector instructions.
"""

from __future__ import annotations

import numpy as np

from lstd._kernels.alignment import aligned_zeros
from lstd._kernels.compilation import kernel

LANES = 64  # pairs side by side; measured: 32 takes 1.8 times as long, 128 takes 1.3 times


@kernel
def lstd_dense(phi, rewards, discounts, weight, target, lmbdas, alphas, errors):  # type: ignore[no-untyped-def]
    """Sum over the steps of Σ_i weight_i (θ_i − target_i)², for every variant and pair.

    Parameters: `phi` (T + 1, n) the features of the rows, in a basis where the error is diagonal; `rewards` (T,);
    `discounts` (T + 1,) on arrival in each row; `weight`, `target` (n,); `lmbdas`, `alphas` (pairs,), the λ and α
    of each pair; `errors` (3, pairs), overwritten: rows Boyan, Uncorrected, Mixed.
    """
    for first in range(0, len(lmbdas), LANES):
        total = _block(phi, rewards, discounts, weight, target, lanes(lmbdas, first), lanes(1.0 / alphas, first))
        errors[:, first : first + LANES] = total[:, : len(lmbdas) - first]


@kernel
def lanes(values, first):  # type: ignore[no-untyped-def]
    """LANES values from the first on; zeros after the last."""
    taken = np.zeros(LANES)
    for k in range(min(LANES, len(values) - first)):
        taken[k] = values[first + k]
    return taken


@kernel
def _block(phi, rewards, discounts, weight, target, lmbda, inverse_alpha):  # type: ignore[no-untyped-def]
    """`lstd_dense` for LANES pairs; lanes of no pair have 1/α = 0 and stay at zero weights."""
    n = phi.shape[1]
    P = aligned_zeros(n * n, LANES).reshape((n, n, LANES))
    y = aligned_zeros(n, LANES)  # Pz
    theta = aligned_zeros(n, LANES)
    p = aligned_zeros(n, LANES)  # Pφ
    q = aligned_zeros(n, LANES)
    rho = aligned_zeros(n, LANES)  # φᵀP
    dots = aligned_zeros(2, LANES)  # φᵀy, φᵀθ
    total = aligned_zeros(3, LANES)
    for i in range(n):
        for k in range(LANES):
            P[i, i, k] = inverse_alpha[k]
    _update_inverse(P, p, q, rho, phi[0])
    for t in range(len(rewards)):
        _update_weights(phi[t], phi[t + 1], rewards[t], discounts[t], lmbda, p, y, q, theta, dots)
        _add_errors(weight, target, discounts[t + 1], lmbda, theta, y, dots, total)
        _update_inverse(P, p, q, rho, phi[t + 1])
    return total


@kernel
def _update_weights(  # type: ignore[no-untyped-def]
    phi, phi_next, reward, discount, lmbda, p, y, q, theta, dots
):
    """Update q, y and θ for one transition; `dots` enters with φᵀy and φᵀθ, and leaves with φ₊ᵀy' and φ₊ᵀθ'."""
    n = len(phi)
    phi_p = np.zeros(LANES)
    next_dots = np.zeros((2, LANES))
    for i in range(n):
        for k in range(LANES):
            phi_p[k] += phi[i] * p[i, k]
    scale = np.empty(LANES)
    along_p = np.empty(LANES)  # y' in terms of p and y
    along_y = np.empty(LANES)
    for k in range(LANES):
        decay = lmbda[k] * discount
        ahead = (1.0 - lmbda[k]) * discount  # o
        scale[k] = 1.0 / (1.0 + phi_p[k] - ahead * dots[0, k])
        along_p[k] = scale[k] * (1.0 - discount * dots[0, k])
        along_y[k] = decay + scale[k] * ahead * (decay * dots[0, k] + phi_p[k])
    for i in range(n):
        for k in range(LANES):
            q_ik = (p[i, k] - (1.0 - lmbda[k]) * discount * y[i, k]) * scale[k]
            y_ik = along_p[k] * p[i, k] + along_y[k] * y[i, k]
            theta_ik = theta[i, k] - q_ik * dots[1, k] + reward * y_ik
            q[i, k] = q_ik
            y[i, k] = y_ik
            theta[i, k] = theta_ik
            next_dots[0, k] += phi_next[i] * y_ik
            next_dots[1, k] += phi_next[i] * theta_ik
    for k in range(LANES):
        dots[0, k] = next_dots[0, k]
        dots[1, k] = next_dots[1, k]


@kernel
def _add_errors(weight, target, discount, lmbda, theta, y, dots, total):  # type: ignore[no-untyped-def]
    """Add the errors of the three variants, κ from φ₊ᵀy' and φ₊ᵀθ' in `dots`."""
    kappa = np.empty((2, LANES))
    for k in range(LANES):
        phi_y = dots[0, k]
        phi_theta = dots[1, k]
        ahead = (1.0 - lmbda[k]) * discount  # o of the next row
        kappa[0, k] = discount * phi_theta / (1.0 - discount * phi_y)
        kappa[1, k] = ahead * phi_theta / (1.0 - ahead * phi_y)
    for i in range(len(weight)):
        for k in range(LANES):
            uncorrected = theta[i, k] - target[i]
            boyan = uncorrected + kappa[0, k] * y[i, k]
            mixed = uncorrected + kappa[1, k] * y[i, k]
            total[0, k] += weight[i] * boyan * boyan
            total[1, k] += weight[i] * uncorrected * uncorrected
            total[2, k] += weight[i] * mixed * mixed


@kernel
def _update_inverse(P, p, q, rho, phi_next):  # type: ignore[no-untyped-def]
    """P ← P − qρ, and in the same pass p = Pφ₊ and ρ = φ₊ᵀP for the next row."""
    n = len(phi_next)
    for i in range(n):
        for k in range(LANES):
            p[i, k] = 0.0
        for j in range(n):
            for k in range(LANES):
                P_ijk = P[i, j, k] - q[i, k] * rho[j, k]
                P[i, j, k] = P_ijk
                p[i, k] += P_ijk * phi_next[j]
    for j in range(n):
        for k in range(LANES):
            rho[j, k] = 0.0
        for i in range(n):
            for k in range(LANES):
                rho[j, k] += phi_next[i] * P[i, j, k]
