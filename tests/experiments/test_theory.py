"""Proposition 1 and Theorem 2 in numbers, against the double sums and power series of `naive`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd.experiments.theory import proposition1, proposition1_exact, theorem2
from tolerances import assert_close

UNIT = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
N_STANDARD_ERRORS = 4.0


@pytest.fixture(scope="module")
def first():
    return proposition1()


# ---------------------------------------------------------------- Proposition 1


@settings(max_examples=30, deadline=None, derandomize=True)
@given(T=st.integers(1, 40), lmbda=UNIT, gamma=st.floats(0.0, 0.99), mu=st.floats(-3, 3))
def test_exact_moments_equal_double_sums(T, lmbda, gamma, mu):
    exact, expected = (proposition1_exact(T, lmbda, gamma, mu, 1.5), naive.proposition1(T, lmbda, gamma, mu, 1.5))
    for variant in ("boyan", "uncorrected"):
        scale = max(1.0, abs(mu) / (1 - gamma))  # the bias is a difference of terms of this size
        bias, expected_bias = exact[variant]["bias"], expected["bias"][variant]
        assert_close(bias / scale, expected_bias / scale, "theory_exact")
        assert_close(exact[variant]["variance"], expected["variance"][variant], "theory_exact")
    assert_close(exact["ratio"], expected["ratio"], "theory_exact")


def test_rows_hold_the_exact_and_the_leading_terms():
    result = proposition1(mu=-2.0, sigma=0.5, gamma=0.8, lmbdas=[0.3, 1.0], n_steps=[20, 5], n_samples=10)
    assert [row["T"] for row in result["ratio_rows"]] == [5, 20, 5, 20]
    for row in result["rows"]:
        expected = naive.proposition1(row["T"], row["lmbda"], 0.8, -2.0, 0.5)
        assert_close(row["bias_exact"], expected["bias"][row["variant"]], "theory_exact")
        assert_close(row["variance_exact"], expected["variance"][row["variant"]], "theory_exact")
        leading = naive.proposition1_asymptotic(row["T"], 0.8, -2.0)
        assert_close(row["bias_asymptotic"], leading["bias"][row["variant"]], "theory_exact")
    for row in result["ratio_rows"]:
        expected = naive.proposition1(row["T"], row["lmbda"], 0.8, -2.0, 0.5)["ratio"]
        assert_close(row["ratio_exact"], expected, "theory_exact")
        assert_close(row["ratio_asymptotic"], 1 + 2 * 0.8 / (0.2 * row["T"]), "theory_exact")


def test_simulated_moments_are_within_standard_errors_of_the_exact(first):
    assert len(first["rows"]) == 2 * len(first["ratio_rows"]) == 48
    for row in first["rows"]:
        for name in ("bias", "variance"):
            distance = abs(row[f"{name}_simulated"] - row[f"{name}_exact"])
            assert distance < N_STANDARD_ERRORS * row[f"{name}_stderr"], row
    for row in first["ratio_rows"]:
        distance = abs(row["ratio_simulated"] - row["ratio_exact"])
        assert 0 < distance < N_STANDARD_ERRORS * row["ratio_stderr"], row


def test_standard_errors_are_the_spread_over_seeds():
    arguments = {"lmbdas": [0.5], "n_steps": [10], "n_samples": 300}
    results = [proposition1(**arguments, seed=seed) for seed in range(400)]
    rows = [result["rows"][1] | result["ratio_rows"][0] for result in results]
    for name in ("bias", "variance", "ratio"):
        spread = np.std([row[f"{name}_simulated"] for row in rows], ddof=1)
        claimed = np.mean([row[f"{name}_stderr"] for row in rows])
        assert_close(claimed, spread, "theory_stderr")


# ---------------------------------------------------------------- Theorem 2


@pytest.mark.parametrize("lmbda", [0.0, 0.7, 1.0])
def test_distances_equal_those_of_double_sums(lmbda):
    P, R, features, D, _ = naive.problem("small", "normal")
    limit_A, limit_b = naive.theorem2_limit(features, P, (P * R).sum(axis=1), D, lmbda, naive.GAMMA)
    limit_theta = np.linalg.solve(limit_A, limit_b)
    states, rewards = naive.simulate(P, R, 0.1, 110, 3)
    result = theorem2(lmbdas=[lmbda], n_steps=[100, 110], seeds=[3])
    for row in result["rows"]:
        T = row["T"]
        phi = features[states[: T + 1]]
        A = naive.MATRIX[row["variant"]](phi, lmbda, naive.GAMMA)
        b = naive.vector_b(phi, rewards[:T], lmbda, naive.GAMMA)
        distance_A = np.linalg.norm(A / T - limit_A) / np.linalg.norm(limit_A)
        distance_b = np.linalg.norm(b / T - limit_b) / np.linalg.norm(limit_b)
        distance = np.linalg.norm(np.linalg.solve(A, b) - limit_theta) / np.linalg.norm(limit_theta)
        assert_close(row["error_A"], distance_A, "theory_matrices")
        assert_close(row["error_b"], distance_b, "theory_matrices")
        for name in ("error_theta", "low_theta", "high_theta"):  # one run: its own median and quartiles
            assert_close(row[name], distance, "theory_weights")
