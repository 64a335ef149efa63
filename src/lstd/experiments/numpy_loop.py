"""The paper's experiment as a plain NumPy loop: one pair (λ, α) at a time, one step at a time.

The compiled sweep is timed against this loop and checked by it. Each LSTD(λ) keeps the inverse of A_t + αI by
Sherman-Morrison updates: one per step for Boyan's and Uncorrected, two for Mixed (Osogami 2020, Lemma 2, Theorem 1, and
the supplement on computational time). True online TD(λ) is that of van Seijen et al. (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from lstd.experiments.protocol import GAMMA, LSTD_VARIANTS, MRP_SEED, PROBLEMS
from lstd.mrp import RandomMRP, make_features
from lstd.types import Array


@dataclass(frozen=True)
class Run:
    """One simulated run of T steps on k states with n features, and the reference for its error."""

    phi: Array  # (T + 1, n) of the visited states
    rewards: Array  # (T,)
    features: Array  # (k, n) of all states, Φ
    weighting: Array  # (k,) stationary distribution, the diagonal of D
    target: Array  # (n,) weights θ* of the best fit

    @property
    def steps(self) -> Iterator[tuple[Array, Array, float]]:
        """Features, next features and reward of each step."""
        return zip(self.phi[:-1], self.phi[1:], self.rewards, strict=True)

    @property
    def scale(self) -> float:
        """(Φθ*)ᵀ D (Φθ*), by which errors are divided."""
        return float(self.weighting @ (self.features @ self.target) ** 2)

    def error(self, theta: Array) -> float:
        """(Φθ−Φθ*)ᵀ D (Φθ−Φθ*) of weights θ of shape (n,)."""
        deviation = self.features @ (theta - self.target)
        deviation *= deviation
        return float(self.weighting @ deviation)


def simulate_run(problem: str, features: str, run_seed: int) -> Run:
    """Simulate one run of the paper's protocol.

    >>> simulate_run("small", "normal", 1).phi.shape
    (101, 5)
    """
    p = PROBLEMS[problem]
    model = RandomMRP(p.n_states, p.branching, p.reward_std, seed=MRP_SEED, gamma=GAMMA)
    Phi = make_features(model, features)
    trajectory = model.simulate(p.n_steps, run_seed)
    return Run(Phi[trajectory.states], trajectory.rewards, Phi, model.stationary, model.best_fit(Phi))


def lstd(variant: str, run: Run, lmbda: float, alpha: float) -> float:
    """Sum the errors of LSTD(λ) after each step."""
    n = run.phi.shape[1]
    P, outer = np.eye(n) / alpha, np.empty((n, n))
    b, z, theta = np.zeros(n), np.zeros(n), np.zeros(n)
    total = 0.0
    for phi, phi_next, r in run.steps:
        z_last = z
        z = lmbda * GAMMA * z_last + phi
        if variant == "boyan":
            _rank_one(P, z, phi - GAMMA * phi_next, outer)
        elif variant == "uncorrected":
            _rank_one(P, z - GAMMA * z_last, phi, outer)
        else:
            _rank_one(P, phi, phi, outer)
            _rank_one(P, (lmbda - 1.0) * GAMMA * z, phi_next, outer)
        b += r * z
        np.dot(P, b, out=theta)
        total += run.error(theta)
    return total


def true_online_td(run: Run, lmbda: float, step_size: float) -> float:
    """Sum the errors of true online TD(λ) after each step (van Seijen et al. 2016, algorithm 1)."""
    theta = np.zeros(run.phi.shape[1])
    e = np.zeros_like(theta)
    decay = GAMMA * lmbda
    v_old = total = 0.0
    for phi, phi_next, r in run.steps:
        v, v_next = float(theta @ phi), float(theta @ phi_next)
        overlap = decay * (e @ phi)
        e *= decay
        e += (step_size * (1.0 - overlap)) * phi
        theta += (r + GAMMA * v_next - v_old) * e
        theta -= (step_size * (v - v_old)) * phi
        v_old = v_next
        total += run.error(theta)
    return total


LOOPS: dict[str, Callable[[Run, float, float], float]] = {
    **{variant: partial(lstd, variant) for variant in LSTD_VARIANTS},
    "true_online_td": true_online_td,
}


def run_loop(algorithm: str, run: Run, lmbda: float, alpha: float) -> float:
    """Compute the normalised mean squared error of one pair (λ, α); infinite if the weights overflow.

    `algorithm` is a key of `LOOPS`; `alpha` is the ridge coefficient, or the step size of true online TD(λ).

    >>> run = simulate_run("deterministic", "normal", 1)
    >>> round(run_loop("true_online_td", run, 0.0, 1e-3), 10)
    1.0023869926
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = LOOPS[algorithm](run, lmbda, alpha) / len(run.rewards) / run.scale
    return mean if np.isfinite(mean) else np.inf


def _rank_one(P: Array, u: Array, v: Array, outer: Array) -> None:
    """(A + uvᵀ)⁻¹ = P − Pu vᵀP / (1 + vᵀPu), in place; `outer` is room for an (n, n) product."""
    Pu, vP = P @ u, v @ P
    Pu /= 1.0 + v @ Pu
    np.multiply(Pu[:, None], vP, out=outer)
    P -= outer
