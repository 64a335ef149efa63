"""Identities between the definitions in `naive`: if these hold, the judge itself can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import naive
from tolerances import assert_close

UNIT = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99))
bounded = settings(max_examples=30, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Stream:
    phi: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    rho: np.ndarray

    def head(self, end):
        return Stream(self.phi[: end + 1], self.rewards[:end], self.discounts[: end + 1], self.rho[:end])


@st.composite
def streams(draw, min_steps=0, ratios=True):
    """Up to 9 steps of up to 4 features; some discounts are 0 (episode boundaries) and some features too."""
    n_steps, n = draw(st.integers(min_steps, 9)), draw(st.integers(1, 4))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    phi = random.normal(size=(n_steps + 1, n)) * (random.uniform(size=(n_steps + 1, n)) < 0.7)
    discounts = random.uniform(0.3, 1.0, n_steps + 1) * (random.uniform(size=n_steps + 1) < 0.8)
    rho = random.uniform(0.0, 2.0, n_steps) if ratios else np.ones(n_steps)
    return Stream(phi, random.normal(size=n_steps), discounts, rho)


def matrix(variant, stream, lmbda):
    return naive.MATRIX[variant](stream.phi, lmbda, stream.discounts, stream.rho)


def vector(stream, lmbda):
    return naive.vector_b(stream.phi, stream.rewards, lmbda, stream.discounts, stream.rho)


def trace(stream, t, lmbda):
    return naive.trace(stream.phi, t, lmbda, stream.discounts, stream.rho)


# ---------------------------------------------------------------- identities between the variants


@bounded
@given(stream=streams(min_steps=1), lmbda=UNIT)
def test_the_family_is_one_matrix_and_a_rank_one_term(stream, lmbda):
    end = stream.discounts[-1] * np.outer(trace(stream, len(stream.rewards) - 1, lmbda), stream.phi[-1])
    A = matrix("uncorrected", stream, lmbda)
    assert_close(matrix("boyan", stream, lmbda), A - end, "sums")
    assert_close(matrix("mixed", stream, lmbda), A - (1 - lmbda) * end, "sums")


@bounded
@given(stream=streams(ratios=False), alpha=st.floats(0.1, 10))
def test_lambda_one_is_ridge_regression_of_the_returns(stream, alpha):
    for end in range(len(stream.phi)):
        head = stream.head(end)
        returns = naive.discounted_returns(head.rewards, head.discounts)
        expected = naive.ridge(head.phi[:-1], returns, alpha)
        for variant in ("uncorrected", "mixed"):
            actual = naive.weights(matrix(variant, head, 1.0), vector(head, 1.0), alpha)
            assert_close(actual, expected, "solve")


@bounded
@given(stream=streams(ratios=False))
def test_lambda_zero_of_boyan_and_mixed_is_plain_lstd(stream):
    phi, phi_next = stream.phi[:-1], stream.phi[1:]
    plain = phi.T @ (phi - stream.discounts[1:, None] * phi_next)
    assert_close(matrix("boyan", stream, 0.0), plain, "sums")
    assert_close(matrix("mixed", stream, 0.0), plain, "sums")
    assert_close(vector(stream, 0.0), phi.T @ stream.rewards, "sums")


@bounded
@given(stream=streams(), lmbda=UNIT, variant=st.sampled_from(naive.VARIANTS), alpha=st.floats(0.1, 10))
def test_weights_at_every_step_grouped_by_later_row(stream, lmbda, variant, alpha):
    for end in range(len(stream.phi)):
        A = matrix(variant, stream.head(end), lmbda)
        assume(np.linalg.cond(A + alpha * np.eye(len(A))) < 1e4)
    arguments = (variant, stream.phi, stream.rewards, lmbda, alpha, stream.discounts, stream.rho)
    theta = naive.weights_every_step(*arguments)
    assert_close(naive.weights_every_step_grouped(*arguments), theta, "solve")
    assert not theta[0].any()


# ---------------------------------------------------------------- Lemma 1, Proposition 1, Theorem 2


def walk(P, n_steps, seed):
    return naive.simulate(P, np.zeros_like(P), 0.0, n_steps, seed)[0]


@bounded
@given(lmbda=UNIT, gamma=st.floats(0.0, 0.95), n_steps=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_lemma_1_bounds_the_hypothetical_estimator(lmbda, gamma, n_steps, seed):
    random = np.random.RandomState(seed)
    P = random.dirichlet(np.ones(4), 4)
    r, features = random.normal(size=4), random.normal(size=(4, 2))
    states = walk(P, n_steps, seed)
    b = naive.vector_b(features[states], r[states[:-1]], lmbda, gamma)
    b_star = naive.hypothetical_b(features, P, r, states, r[states[:-1]], lmbda, gamma)
    bound = np.abs(features).max() * np.abs(r).max() * gamma / (1 - gamma)
    bound *= (1 - (lmbda * gamma) ** n_steps) / (1 - lmbda * gamma)
    assert (np.abs(b_star - b) <= bound * (1 + 1e-12) + 1e-12).all()


def test_theorem_2_at_lambda_one_is_the_best_fit():
    P, R, features, D, theta_star = naive.problem("small", "binary")
    A, b = naive.theorem2_limit(features, P, (P * R).sum(axis=1), D, 1.0, naive.GAMMA)
    assert_close(np.linalg.solve(A, b), theta_star, "power_series")


# ---------------------------------------------------------------- temporal differences


@bounded
@given(stream=streams(ratios=False), lmbda=UNIT, step_size=st.floats(0.01, 0.3))
def test_true_online_td_is_the_online_lambda_return_algorithm(stream, lmbda, step_size):
    arguments = (stream.phi, stream.rewards, lmbda, step_size, stream.discounts)
    assert_close(naive.true_online_td(*arguments), naive.online_lambda_return(*arguments), "sums")
