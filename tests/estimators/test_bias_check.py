"""The check of bias: silent where features can represent the values, loud where they cannot."""

import numpy as np
import pytest
from scipy import sparse, special

import naive
from lstd import LSTD, HorizonLSTD
from lstd.errors import BiasWarning, InvalidInputError
from tolerances import assert_close


def walk(n_episodes, seed):
    """Episodes of a random walk over seven states from the middle, reward 1 at the right end; states and columns."""
    random = np.random.default_rng(seed)
    states, rewards, episode, terminated = [], [], [], []
    for e in range(n_episodes):
        s = 3
        while 0 <= s < 7:
            states.append(s)
            s += 1 if random.uniform() < 0.5 else -1
            rewards.append(float(s == 7))
            terminated.append(not 0 <= s < 7)
            episode.append(e)
    return np.array(states), np.array(rewards), {"episode": np.array(episode), "terminated": np.array(terminated)}


def tabular(states):
    return np.eye(7)[states]


def aggregated(states):
    return np.eye(2)[(states >= 3).astype(int)]


def test_features_that_cannot_represent_the_values_do():
    states, y, columns = walk(400, 1)
    model = LSTD(gamma=1.0, lmbda=0.0).fit(aggregated(states), y, **columns)
    with pytest.warns(BiasWarning, match="Add features, .* if there are none to add, use a larger `lmbda`"):
        found = model.bias_check(aggregated(states), y, **columns)
    assert found.biased is True
    assert found.difference > 3 * found.expected
    assert found.p_value < 1e-3


def test_it_is_the_f_of_the_definition():
    states, y, columns = walk(12, 2)
    X = aggregated(states)
    gram = X.T @ X / len(X)
    alpha = 2.0**-6 * np.trace(gram) / 2
    edges = [*np.flatnonzero(np.diff(columns["episode"])) + 1, len(X)]
    sums = {lmbda: [] for lmbda in (0.0, 1.0)}
    for lmbda, found in sums.items():
        A, b = np.zeros((2, 2)), np.zeros(2)
        for first, end in zip([0, *edges[:-1]], edges, strict=True):
            phi, discounts = np.vstack([X[first:end], np.zeros(2)]), np.append(np.ones(end - first), 0.0)
            A, b = (
                A + naive.matrix_boyan(phi, lmbda, discounts),
                b + naive.vector_b(phi, y[first:end], lmbda, discounts),
            )
            found.append((A, b))
    theta, q = {}, {}
    for lmbda, found in sums.items():
        A, b = found[-1]
        S, ridge = A + alpha * np.eye(2), np.full(2, alpha)
        theta[lmbda] = np.linalg.solve(S, b)
        q[lmbda] = naive.influence([A for A, _ in found], [b for _, b in found], theta[lmbda], ridge, [1] * 12)
        theta[lmbda] = theta[lmbda] + alpha * np.linalg.solve(S, theta[lmbda])
    d, D = theta[1.0] - theta[0.0], q[1.0] - q[0.0]
    W = D @ gram @ D.T
    squares = 11**2 / (10 * 13) * (np.sum(W**2) - np.trace(W) ** 2 / 11)
    nu1 = np.clip(np.trace(W) ** 2 / squares, 1, 2)
    nu2 = naive.degrees_of_freedom(np.sqrt(np.diag(W)), [1 / 12] * 12)
    expected = special.fdtrc(nu1, nu2, d @ gram @ d / np.trace(W))
    model = LSTD(gamma=1.0, lmbda=0.0, fit_intercept=False).fit(X, y, **columns)
    for rows in (X, sparse.csr_array(X)):
        found = model.bias_check(rows, y, **columns)
        assert_close(found.p_value, expected, "solve")
        assert_close(found.difference, np.sqrt(d @ gram @ d), "solve")
        assert_close(found.expected, np.sqrt(np.trace(W)), "solve")
        assert_close(found.size, np.sqrt(theta[1.0] @ gram @ theta[1.0]), "solve")


def test_what_is_refused():
    states, y, columns = walk(30, 4)
    X = tabular(states)
    with pytest.raises(InvalidInputError, match="`lmbda` must be below 1"):
        LSTD(1.0, 1.0).fit(X, y, **columns).bias_check(X, y, **columns)
    few = columns["episode"] < 3
    with pytest.raises(InvalidInputError, match="at least 5 episodes"):
        LSTD(1.0, 0.5).fit(X, y, **columns).bias_check(
            X[few], y[few], **{name: column[few] for name, column in columns.items()}
        )
    with pytest.raises(InvalidInputError, match="`y` must have the rewards that the model predicts, 1; got 2"):
        LSTD(1.0, 0.5).fit(X, y, **columns).bias_check(X, np.column_stack([y, y]), **columns)
    X[5, 2] = np.nan
    with pytest.raises(InvalidInputError, match="row 5 has nan in column 2"):
        LSTD(1.0, 0.5).fit(tabular(states), y, **columns).bias_check(X, y, **columns)


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_infinite_values_are_no_reason_to_blame_the_features(fit_intercept):
    """States 2 and 3 follow each other without end; 0 and 1 end after five steps of ten each."""
    states = np.tile([0, 1, 0, 1, 0, 2, 3, 2, 3, 2], 40)
    columns = {"episode": np.arange(400) // 5, "terminated": np.arange(400) % 10 == 4}
    y = np.where(np.arange(400) % 10 == 9, np.nan, 1.0)
    for lmbda in (0.0, 0.5):
        model = LSTD(1.0, lmbda, fit_intercept=fit_intercept).fit(np.eye(4)[states], y, **columns)
        with pytest.raises(InvalidInputError, match=r"no end is reached have infinite values\. Drop these states"):
            model.bias_check(np.eye(4)[states], y, **columns)


@pytest.mark.parametrize("make", [lambda: LSTD(0.9, 0.9), lambda: HorizonLSTD(12, check=False)])
def test_episodes_that_are_all_alike_say_nothing_of_chance(make):
    """What rounding leaves of their differences, which is not the same on all processors, is no evidence."""
    X = np.tile(np.eye(2), (20, 1))
    rows = {"episode": np.arange(40) // 4, "terminated": np.arange(40) % 4 == 3}
    check = make().fit(X, np.ones(40), **rows).bias_check(X, np.ones(40), **rows)
    assert check.p_value == 1.0
    assert not check.biased
