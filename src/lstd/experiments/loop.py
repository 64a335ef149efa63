"""The paper's experiment as a plain NumPy loop: one pair (λ, α) at a time, one step at a time.

This is what the compiled sweep is timed against, and one more check of its results. Each LSTD(λ) keeps the
inverse of A_t + αI by Sherman-Morrison updates: one per step for Boyan's and Uncorrected, two for Mixed
(Osogami 2020, Lemma 2, Theorem 1, and the supplement on computational time). True online TD(λ) is that of
van Seijen et al. (2016). The error (Φθ−Φθ*)ᵀ D (Φθ−Φθ*) is taken after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lstd.experiments.protocol import GAMMA, MRP_SEED, PROBLEMS
from lstd.mrp import RandomMRP, make_features

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One simulated run of T steps on k states with n features, with what its error is measured against."""

    phi: FloatArray  # (T + 1, n) of the visited states
    rewards: FloatArray  # (T,)
    features: FloatArray  # (k, n) of all states, Φ
    weighting: FloatArray  # (k,) stationary distribution, the diagonal of D
    target: FloatArray  # (n,) weights θ* of the best fit

    @property
    def scale(self) -> float:
        """(Φθ*)ᵀ D (Φθ*), by which errors are divided."""
        return float(self.weighting @ (self.features @ self.target) ** 2)

    def error(self, theta: FloatArray) -> float:
        """(Φθ−Φθ*)ᵀ D (Φθ−Φθ*) of weights θ of shape (n,)."""
        deviation = self.features @ (theta - self.target)
        deviation *= deviation
        return float(self.weighting @ deviation)


def simulate_run(problem: str, features: str, run_seed: int, *, mrp_seed: int = MRP_SEED) -> Run:
    """Simulate one run of the paper's protocol.

    Examples
    --------
    >>> simulate_run("small", "normal", 1).phi.shape
    (101, 5)
    """
    p = PROBLEMS[problem]
    model = RandomMRP(p.n_states, p.branching, p.reward_std, seed=mrp_seed, gamma=GAMMA)
    Phi = make_features(model, features)
    trajectory = model.simulate(p.n_steps, run_seed)
    return Run(Phi[trajectory.states], trajectory.rewards, Phi, model.stationary, model.best_fit(Phi))


def boyan(run: Run, lmbda: float, alpha: float) -> float:
    """Boyan's LSTD(λ): A += z (φ − γφ₊)ᵀ."""
    theta, b, z, P, outer = _start(run, alpha)
    total = 0.0
    for phi, phi_next, r in zip(run.phi[:-1], run.phi[1:], run.rewards, strict=True):
        z *= lmbda * GAMMA
        z += phi
        _rank_one(P, z, phi - GAMMA * phi_next, outer)
        b += r * z
        np.dot(P, b, out=theta)
        total += run.error(theta)
    return _mean(run, total)


def uncorrected(run: Run, lmbda: float, alpha: float) -> float:
    """Uncorrected LSTD(λ): A += (z_t − γz_{t−1}) φᵀ."""
    theta, b, z, P, outer = _start(run, alpha)
    total = 0.0
    for phi, r in zip(run.phi[:-1], run.rewards, strict=True):
        z_last = z
        z = lmbda * GAMMA * z_last + phi
        _rank_one(P, z - GAMMA * z_last, phi, outer)
        b += r * z
        np.dot(P, b, out=theta)
        total += run.error(theta)
    return _mean(run, total)


def mixed(run: Run, lmbda: float, alpha: float) -> float:
    """Mixed LSTD(λ): A += φφᵀ − (1−λ)γ z φ₊ᵀ."""
    theta, b, z, P, outer = _start(run, alpha)
    total = 0.0
    for phi, phi_next, r in zip(run.phi[:-1], run.phi[1:], run.rewards, strict=True):
        z *= lmbda * GAMMA
        z += phi
        _rank_one(P, phi, phi, outer)
        _rank_one(P, (lmbda - 1.0) * GAMMA * z, phi_next, outer)
        b += r * z
        np.dot(P, b, out=theta)
        total += run.error(theta)
    return _mean(run, total)


def true_online_td(run: Run, lmbda: float, step_size: float) -> float:
    """True online TD(λ) (van Seijen et al. 2016, algorithm 1)."""
    theta = np.zeros(run.phi.shape[1])
    e = np.zeros_like(theta)
    decay = GAMMA * lmbda
    v_old = total = 0.0
    for phi, phi_next, r in zip(run.phi[:-1], run.phi[1:], run.rewards, strict=True):
        v, v_next = theta @ phi, theta @ phi_next
        overlap = decay * (e @ phi)
        e *= decay
        e += (step_size * (1.0 - overlap)) * phi
        theta += (r + GAMMA * v_next - v_old) * e
        theta -= (step_size * (v - v_old)) * phi
        v_old = v_next
        total += run.error(theta)
    return _mean(run, total)


LOOPS: dict[str, Callable[[Run, float, float], float]] = {
    "boyan": boyan,
    "uncorrected": uncorrected,
    "mixed": mixed,
    "true_online_td": true_online_td,
}


def run_loop(algorithm: str, run: Run, lmbda: float, alpha: float) -> float:
    """Compute the normalised mean squared error of one pair (λ, α); infinite if the weights overflow.

    `algorithm` is a key of `LOOPS`; `alpha` is the ridge coefficient, or the step size of true online TD(λ).

    Examples
    --------
    >>> run = simulate_run("deterministic", "normal", 1)
    >>> round(run_loop("true_online_td", run, 0.0, 1e-3), 10)
    1.0023869926
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return LOOPS[algorithm](run, lmbda, alpha)


def _start(run: Run, alpha: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Weights, b and trace 0, inverse I/α, and room for an (n, n) product."""
    n = run.phi.shape[1]
    return np.zeros(n), np.zeros(n), np.zeros(n), np.eye(n) / alpha, np.empty((n, n))


def _rank_one(P: FloatArray, u: FloatArray, v: FloatArray, outer: FloatArray) -> None:
    """(A + uvᵀ)⁻¹ = P − Pu vᵀP / (1 + vᵀPu), in place; `outer` is room for an (n, n) product."""
    Pu, vP = P @ u, v @ P
    Pu /= 1.0 + v @ Pu
    np.multiply(Pu[:, None], vP, out=outer)
    P -= outer


def _mean(run: Run, total: float) -> float:
    mean = total / len(run.rewards) / run.scale
    return mean if np.isfinite(mean) else np.inf
