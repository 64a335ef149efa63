"""`lstd.mrp` against the definitions in `naive`: draws bit for bit, exact values, simulation."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd.mrp import MRP, BoyanChain, RandomMRP, RandomWalk, make_features
from tolerances import assert_close

bounded = settings(max_examples=40, deadline=None, derandomize=True)
UNIT = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99))


def paper_model(name, seed=1000):
    n_states, branching, reward_std, _ = naive.PROBLEMS[name]
    return RandomMRP(n_states, branching, reward_std, seed)


@st.composite
def models(draw, high_gamma=0.95):
    """Up to 6 states: sparse chains with transient states, closed classes, cycles, terminations, random starts.

    Returned with the chain in which every termination is a restart, built from the deficits as drawn.
    """
    k, density = draw(st.integers(1, 6)), draw(st.sampled_from([0.2, 0.5, 1.0]))
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    links = random.uniform(size=(k, k)) < density
    links[np.arange(k), random.randint(k, size=k)] = True
    P = random.uniform(0.1, 1.0, (k, k)) * links
    stays = np.where(random.uniform(size=k) < draw(st.sampled_from([0.0, 0.5])), random.uniform(size=k), 1.0)
    P *= (stays / P.sum(axis=1))[:, None]
    start = random.dirichlet(np.ones(k)) if draw(st.booleans()) else np.eye(k)[random.randint(k)]
    options = {"gamma": random.uniform(0, high_gamma), "start": start, "termination_reward": random.normal(size=k)}
    return MRP(P, random.normal(size=(k, k)), **options), P + np.outer(1 - stays, start)


# ---------------------------------------------------------------- the paper's draws, bit for bit


@pytest.mark.parametrize("seed", [1000, 0, 7, 2**32 - 1])
@pytest.mark.parametrize("name", naive.PROBLEMS)
def test_random_mrp_and_features_are_drawn_bit_for_bit(name, seed):
    n_states, branching, _, _ = naive.PROBLEMS[name]
    model = paper_model(name, seed)
    P, R, random = naive.random_mrp(n_states, branching, seed)
    np.testing.assert_array_equal(model.transition, P)
    np.testing.assert_array_equal(model.reward, R)
    for features in ("tabular", "binary", "normal"):
        expected = naive.make_features(features, n_states, random)
        np.testing.assert_array_equal(make_features(model, features), expected)


@pytest.mark.parametrize("seed", [1, 2, 17, 50, 2**32 - 1])
@pytest.mark.parametrize("name", naive.PROBLEMS)
def test_runs_are_drawn_bit_for_bit(name, seed):
    model = paper_model(name)
    n_steps = naive.PROBLEMS[name][3]
    states, rewards, discounts, terminated = model.simulate(n_steps, seed)
    expected_states, expected_rewards = naive.simulate(model.transition, model.reward, model.reward_std, n_steps, seed)
    np.testing.assert_array_equal(states, expected_states)
    np.testing.assert_array_equal(rewards, expected_rewards)
    np.testing.assert_array_equal(discounts, np.full(n_steps + 1, 0.99))
    assert not terminated.any()


@pytest.mark.parametrize("features", ["tabular", "binary", "normal"])
@pytest.mark.parametrize("name", naive.PROBLEMS)
def test_exact_quantities_of_the_paper(name, features):
    P, R, _, D, theta_star = naive.problem(name, features)
    model = paper_model(name)
    r = (P * R).sum(axis=1)
    assert_close(model.expected_reward, r, "sums")
    assert_close(model.values, naive.true_values(P, r, naive.GAMMA), "power_series")
    assert_close(model.stationary, D, "stationary")
    assert_close(model.best_fit(make_features(model, features)), theta_star, "power_series")


# ---------------------------------------------------------------- exact quantities of any model


@bounded
@given(models())
def test_values_are_the_sum_of_discounted_rewards(drawn):
    model, _ = drawn
    r = (model.transition * model.reward).sum(axis=1)
    r += (1 - model.transition.sum(axis=1)) * model.termination_reward
    assert_close(model.expected_reward, r, "sums")
    assert_close(model.values, naive.true_values(model.transition, r, model.gamma), "power_series")


def test_rewards_of_states_are_those_of_leaving_them():
    P, r = [[0.5, 0.4], [0.0, 0.7]], np.array([1.0, -2.0])
    of_states = MRP(P, r, gamma=0.9)
    assert_close(of_states.expected_reward, r, "sums")
    np.testing.assert_array_equal(of_states.reward, np.outer(r, [1.0, 1.0]))
    np.testing.assert_array_equal(of_states.termination_reward, r)
    assert_close(MRP(P, r, gamma=0.9, termination_reward=[0.0, 0.0]).expected_reward, [0.9, -1.4], "sums")


@bounded
@given(models())
def test_stationary_distribution_is_the_long_run_average(drawn):
    model, restarted = drawn
    from_each_state = naive.stationary(restarted, slice(None))
    assert_close(model.stationary, model.start @ from_each_state, "stationary")


def test_a_rounded_row_does_not_terminate():
    P = np.array([[0.1] * 10] * 10)  # the ten tenths add up to 1 − 1.1e-16
    assert not MRP(P, P).termination.any()
    P[3, 3] -= 1e-9
    assert np.flatnonzero(MRP(P, P).termination).tolist() == [3]


@bounded
@given(models(), st.integers(1, 4), st.integers(0, 2**31))
def test_best_fit_is_the_weighted_least_squares_fit(drawn, n, seed):
    model, _ = drawn
    phi = np.random.RandomState(seed).normal(size=(model.n_states, n))
    theta, D = model.best_fit(phi), model.stationary
    assert_close(phi.T @ (D * (phi @ theta - model.values)), np.zeros(n), "normal_equations")
    assert_close(theta, naive.best_fit(phi, model.values, D), "solve")


@bounded
@given(models(), st.integers(1, 4), UNIT, st.integers(0, 2**31))
def test_limit_is_the_power_series_of_theorem_2(drawn, n, lmbda, seed):
    model, _ = drawn
    phi = np.random.RandomState(seed).normal(size=(model.n_states, n))
    A, b = model.lstd_limit(phi, lmbda)
    arguments = (phi, model.transition, model.expected_reward, model.stationary, lmbda, model.gamma)
    expected_A, expected_b = naive.theorem2_limit(*arguments)
    assert_close(A, expected_A, "power_series")
    assert_close(b, expected_b, "power_series")
    assert_close(A @ model.fixed_point(phi, lmbda), b, "normal_equations")


def test_fixed_point_of_least_norm():
    model = paper_model("deterministic")
    for lmbda in (0.0, 0.9, 1.0):
        theta = model.fixed_point(np.eye(100), lmbda)
        visited = model.stationary > 0
        assert_close(theta[visited], model.values[visited], "fixed_point")
        assert_close(theta[~visited], np.zeros(10), "fixed_point")
    assert_close(model.best_fit(np.eye(100))[~visited], np.zeros(10), "fixed_point")


# ---------------------------------------------------------------- classic processes in closed form


def test_boyan_chain_in_closed_form():
    chain = BoyanChain()
    position = 12 - np.arange(13)
    assert_close(chain.values, -2.0 * position, "sums")
    assert_close(chain.best_fit(chain.interpolating_features), [-24, -16, -8, 0], "sums")
    passed = 2 / 3 + (-1 / 2) ** np.arange(13.0) / 3  # chance of stepping on the position n below the first
    passed[12] = 1.0
    assert_close(chain.stationary, passed / passed.sum(), "stationary")


def test_boyan_chain_features_are_those_of_boyan():
    features = BoyanChain().interpolating_features
    expected = [[1, 0, 0, 0], [0.75, 0.25, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.75, 0, 0], [0, 1, 0, 0]]
    np.testing.assert_array_equal(features[:5], expected)
    np.testing.assert_array_equal(features[::-1, ::-1], features)
    np.testing.assert_array_equal(features.sum(axis=1), 1.0)


@pytest.mark.parametrize("k", [1, 3, 5, 19])
def test_random_walk_in_closed_form(k):
    place = np.arange(1, k + 1)
    walk = RandomWalk(k, left_reward=-2.0, right_reward=3.0)
    assert_close(walk.values, -2.0 + 5.0 * place / (k + 1), "sums")
    middle = (k + 1) // 2  # expected visits per episode: Green's function of the symmetric walk
    visits = 2 * np.minimum(place, middle) * (k + 1 - np.maximum(place, middle)) / (k + 1)
    assert_close(walk.stationary, visits / visits.sum(), "stationary")


# ---------------------------------------------------------------- simulation


def literal_run(model, n_steps, seed):
    """A run one draw at a time: the first index with u < cumulative probability, terminating being the last."""
    random, k = np.random.RandomState(seed), model.n_states

    def draw(probabilities):
        u, cumulative = random.uniform(), 0.0
        for outcome in np.flatnonzero(probabilities):
            cumulative += probabilities[outcome]
            if u < cumulative:
                return outcome
        return outcome

    def begin():
        return draw(model.start) if np.count_nonzero(model.start) > 1 else int(np.argmax(model.start))

    states, rewards, terminated = [begin()], [], []
    for _ in range(n_steps):
        s = states[-1]
        successor = draw(np.append(model.transition[s], model.termination[s]))
        terminated.append(successor == k)
        reward = model.termination_reward[s] if successor == k else model.reward[s, successor]
        rewards.append(reward + (random.normal(0.0, model.reward_std) if model.reward_std > 0 else 0.0))
        # With a random start its uniform is drawn at every step, used or not.
        again = begin()
        states.append(again if successor == k else successor)
    return np.array(states), np.array(rewards), np.array(terminated, dtype=bool)


@bounded
@given(models(), st.sampled_from([0.0, 0.3]), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_simulation_is_the_literal_one(drawn, reward_std, n_steps, seed):
    model, _ = drawn
    model.reward_std = reward_std
    states, rewards, discounts, terminated = model.simulate(n_steps, seed)
    expected_states, expected_rewards, expected_terminated = literal_run(model, n_steps, seed)
    np.testing.assert_array_equal(states, expected_states)
    np.testing.assert_array_equal(rewards, expected_rewards)
    np.testing.assert_array_equal(terminated, expected_terminated)
    np.testing.assert_array_equal(discounts[1:], np.where(terminated, 0.0, model.gamma))


@pytest.mark.parametrize("start", [0, [0.5, 0.5]], ids=["one start", "random start"])
def test_normals_are_those_of_numpy_where_many_pairs_are_dropped(start):
    model = MRP([[0.5, 0.4], [0.3, 0.6]], np.ones((2, 2)), reward_std=1.0, start=start)
    for n_steps, seed in [(1, seed) for seed in range(200)] + [(5000, 3)]:
        _, expected, _ = literal_run(model, n_steps, seed)
        np.testing.assert_array_equal(model.simulate(n_steps, seed).rewards, expected)


class LargestUniform:
    """Stands for a RandomState whose every uniform is the largest it can return, 1 − 2⁻⁵³."""

    def __init__(self, seed):
        pass

    seed = __init__

    def random_sample(self, size=None):
        return np.full(size, 1 - 2.0**-53) if size is not None else 1 - 2.0**-53


@pytest.mark.parametrize("behind", [0, 1, 10, 30])
def test_the_last_possible_outcome_takes_what_rounding_leaves(monkeypatch, behind):
    P = np.zeros((10 + behind, 10 + behind))
    P[:, :10] = 0.1  # cumulative probabilities end at 1 − 2⁻⁵³, with impossible states behind
    monkeypatch.setattr(np.random, "RandomState", LargestUniform)
    start = np.append(np.full(10, 0.1), np.zeros(behind))
    with ThreadPoolExecutor(1) as pool:  # each thread makes its generator once
        assert pool.submit(MRP(P, P).simulate, 1, seed=0).result().states.tolist() == [0, 9]
        assert pool.submit(MRP(P, P, start=start).simulate, 0, seed=0).result().states.tolist() == [9]
