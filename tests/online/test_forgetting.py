"""Forgetting: the weights of the batch estimator with weights f^{T−1−t}, and a ridge that does not vanish."""

import warnings

import numpy as np
import pytest

import naive
from lstd import LSTD, RecursiveLSTD
from lstd.errors import InvalidInputError
from tolerances import assert_close
from twins import compiled_only


def drawn(n_rows=400, n=4, m=None, seed=0):
    random = np.random.default_rng(seed)
    shape = (n_rows,) if m is None else (n_rows, m)
    episode = np.repeat(np.arange(-(-n_rows // 37)), 37)[:n_rows]
    last = np.append(episode[1:] != episode[:-1], True)
    rows = {"episode": episode, "terminated": last & (episode % 2 == 0)}
    rows |= {"weight": random.uniform(0.5, 2.0, n_rows), "trace_coefficient": random.uniform(0.2, 1.0, n_rows)}
    return random.normal(size=(n_rows, n)), random.normal(size=shape), rows


@compiled_only
@pytest.mark.parametrize(("forgetting", "m", "variant"), [(0.5, None, "boyan"), (0.9, 2, "mixed")])
def test_a_long_stream_equals_the_batch_estimator(forgetting, m, variant):
    """So long that the sums are divided by the growth of the weights, many times at f = 0.5."""
    X, y, rows = drawn(m=m)
    alpha = np.array([0.5, 1.0, 2.0, 0.1])
    model = RecursiveLSTD(4, 0.9, 0.6, alpha, variant, forgetting=forgetting, n_rewards=m)
    model.partial_fit(X, y, **rows)
    last = np.append(rows["episode"][1:] != rows["episode"][:-1], True)
    full = ~last | rows["terminated"]
    after = full.sum() - np.cumsum(full)  # updates after each row's
    batch = LSTD(0.9, 0.6, naive.forgotten_ridge(alpha, model.n_updates, forgetting), variant, fit_intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch.fit(X, y, **rows | {"weight": rows["weight"] * forgetting ** after.astype(float)})
    assert_close(model.weights, batch.coef_, "solve")
    assert_close(model.n_effective, np.sum(forgetting ** np.arange(model.n_updates)), "sums")


# ---------------------------------------------------------------- the rate chosen from the stream


def jumping(n_rows=1200, seed=5):
    """Rows of one stream whose mean reward jumps every 300 rows."""
    random = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), random.normal(size=n_rows)])
    return X, np.repeat(random.normal(0.0, 5.0, -(-n_rows // 300)), 300)[:n_rows] + random.normal(size=n_rows)


def test_the_rate_that_is_chosen_is_that_of_the_definition():
    """Errors of recursions that run by themselves, in blocks; then the rate after each block."""
    gamma, horizon, length = 0.8, 21, 5  # 0.8^21 < 1 %; 1 / (1 − γ)
    X, y = jumping()
    tried = [1 - 1 / (5 * factor) for factor in (1, 5, 25, 125)] + [1.0]
    V = [RecursiveLSTD(2, gamma, 0.5, forgetting=f).partial_fit(X, y, return_predictions=True) for f in tried]
    V, powers = np.transpose(V), gamma ** np.arange(horizon)
    E = [V[t] - powers @ y[t : t + horizon] - gamma**horizon * V[t + horizon] for t in range(len(y) - horizon)]
    blocks = (np.array(E)[: len(E) // length * length] ** 2).reshape(-1, length, 5).mean(axis=1)
    model, found = RecursiveLSTD(2, gamma, 0.5, forgetting="auto"), []
    for t in range(len(y) - 1):
        expected = tried[naive.chosen_rate(blocks[: max(0, t - horizon) // length])]
        found.append(model.forgetting_)
        assert_close(found[-1], expected, "sums")
        if t % 100 == 0:
            assert_close(model.predict(X[t]), V[t, tried.index(expected)], "solve")
        model.update(X[t], y[t], X[t + 1])
    assert len(set(found)) >= 2
    assert_close(model.n_effective, 1 / (1 - model.forgetting_), "long_stream")


def test_a_horizon_row_is_predicted_before_its_episode_is_cut_off():
    """With γ = 0 an error is known once the row after the next has come, or at the end of its episode."""
    random, n_rows = np.random.default_rng(0), 150
    X = np.column_stack([np.ones(n_rows), random.integers(0, 2, n_rows)])
    y = np.repeat(random.normal(0.0, 5.0, 5), 30) + random.normal(size=n_rows)
    ends = random.random(n_rows) < 0.2
    rows = {"episode": np.cumsum(np.append(0, ends[:-1])), "terminated": ends & (random.random(n_rows) < 0.5)}
    tried = [1 - 1 / (2 * factor) for factor in (1, 5, 25, 125)] + [1.0]
    models = [RecursiveLSTD(2, 0.0, 1.0, forgetting=f) for f in tried]
    V = np.transpose([model.partial_fit(X, y, **rows, return_predictions=True) for model in models])
    full, expected = ~ends | rows["terminated"], []
    full[-1] = False
    for t in range(n_rows):
        known = np.flatnonzero(full[:t] & ((np.arange(t) < t - 1) | rows["terminated"][:t]))
        expected.append(V[t, naive.chosen_rate((V[known] - y[known, np.newaxis]) ** 2)])
    for size in (n_rows, 7, 1):
        model, found = RecursiveLSTD(2, 0.0, 1.0, forgetting="auto"), []
        for first in range(0, n_rows, size):
            part = {name: values[first : first + size] for name, values in rows.items()}
            chunk = X[first : first + size], y[first : first + size]
            found += model.partial_fit(*chunk, **part, return_predictions=True).tolist()
        assert_close(found, expected, "solve")


@pytest.mark.parametrize("forgetting", [1.0, 0.9, "auto"])
def test_predictions_and_blocks_do_not_depend_on_chunks(forgetting):
    """Not in the last bit, with episodes of a single row and cuts at the ends of chunks."""
    X, y = jumping(900)
    ends = np.random.default_rng(1).random(900) < 0.3
    rows = {"episode": np.cumsum(np.append(0, ends[:-1])), "terminated": ends & (np.arange(900) % 2 == 0)}
    found, blocks = [], []
    for size in (900, 11):
        model, predictions = RecursiveLSTD(2, 0.8, 0.5, forgetting=forgetting), []
        for first in range(0, 900, size):
            part = {name: values[first : first + size] for name, values in rows.items()}
            chunk = X[first : first + size], y[first : first + size]
            predictions += model.partial_fit(*chunk, **part, return_predictions=True).tolist()
        found.append(predictions)
        blocks.append(model.predict(X[:5], return_std=True)[1].tolist())
    assert found[0] == found[1]
    assert blocks[0] == blocks[1]


def test_near_a_singular_system_the_next_longer_memory_predicts():
    """At row 1366 of this stream, reading the weights of the shortest memory out multiplies errors by more than ten."""
    random, at = np.random.default_rng(8), 1366
    X = np.column_stack([np.ones(1500), random.normal(size=(1500, 2))])
    y = np.repeat(random.normal(0.0, 5.0, 15), 100) + random.normal(size=1500)
    short, longer = (RecursiveLSTD(3, 0.8, 0.5, forgetting=1 - 1 / memory) for memory in (5, 25))
    V = np.transpose([model.partial_fit(X, y, return_predictions=True) for model in (short, longer)])
    found = RecursiveLSTD(3, 0.8, 0.5, forgetting="auto").partial_fit(X, y, return_predictions=True)
    assert found[at - 1] == V[at - 1, 0]
    assert found[at] == V[at, 1]
    assert found[at + 1] == V[at + 1, 0]


def test_a_steady_stream_is_not_forgotten():
    X, y = jumping(300)
    model = RecursiveLSTD(2, 0.8, 0.5, forgetting="auto")
    model.partial_fit(X, y)
    assert model.forgetting_ == 1.0
    assert model.weights.tolist() == RecursiveLSTD(2, 0.8, 0.5).partial_fit(X, y).weights.tolist()


def test_bad_rows_leave_all_rates_as_they_were():
    X, y = jumping(300)
    model = RecursiveLSTD(2, 0.8, 0.5, forgetting="auto")
    model.partial_fit(X, y)
    before = model.snapshot()
    for bad in ([np.nan, 1.0], [1e200, 1.0], [1.0]):
        with pytest.raises(InvalidInputError, match="`x` must"):
            model.update(bad, 1.0, X[0])
    with pytest.raises(InvalidInputError, match="`reward` must"):
        model.update(X[0], np.inf, X[0])
    with pytest.raises(InvalidInputError, match="`y` must"):
        model.partial_fit(X, np.where(np.arange(300) == 7, np.nan, y))
    for name, values in model.snapshot().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    for name, value in (("choice.about", [-1, 9]), ("choice.sums", np.zeros(3)), ("choice.window", [99, 0, 0])):
        with pytest.raises(InvalidInputError, match="`snapshot` must"):
            RecursiveLSTD.restore(before | {name: np.array(value)})
