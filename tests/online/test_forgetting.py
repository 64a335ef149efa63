"""Forgetting: the weights of the batch estimator with weights f^{T−1−t}, and a ridge that does not vanish."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from lstd import LSTD, RecursiveLSTD
from lstd.errors import BrokenEpisodeWarning, IllConditionedWarning, InvalidInputError, LostDigitsWarning
from online_streams import FORMS, UNIT, VARIANTS, check_reading, read_weights, streams, system
from tolerances import assert_close

RATES = (0.05, 0.5, 0.9, 0.97, 0.999)


def faded(stream, forgetting):
    """The stream as the last update sees it: the weight of each transition times f^{T−1−t}."""
    last = len(stream) - 1
    return [step._replace(weight=step.weight * forgetting ** (last - t)) for t, step in enumerate(stream)]


def check_reading_of(model, stream, variant, alpha):
    """The weights of a variant are those of the definition."""
    n = len(stream[0].x)
    A, b = system(faded(stream, model.forgetting), variant, model.lmbda)
    M = A + np.diag(naive.forgotten_ridge(np.broadcast_to(alpha, n), len(stream), model.forgetting))
    found, warned = read_weights(model, variant)
    if not warned:
        check_reading(found, warned, M, np.linalg.solve(M, b))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    streams(most=14, widths=(1, 3, 17), weighted=True), st.sampled_from(VARIANTS), UNIT, st.sampled_from(RATES),
    st.sampled_from([0.1, 1.0, "each"]), st.sampled_from(["dense", "entries"]),
)  # fmt: skip
def test_weights_are_those_of_the_definition(stream, variant, lmbda, forgetting, alpha, form):
    alpha = np.linspace(0.5, 2.0, len(stream[0].x)) if alpha == "each" else alpha
    with warnings.catch_warnings():
        for category in (LostDigitsWarning, IllConditionedWarning, BrokenEpisodeWarning):
            warnings.simplefilter("ignore", category)
        model = RecursiveLSTD(len(stream[0].x), lmbda=lmbda, alpha=alpha, variant=variant, forgetting=forgetting)
        for t, step in enumerate(stream):
            step.feed(model, FORMS[form])
            check_reading_of(model, stream[: t + 1], variant, alpha)
        for other in VARIANTS:
            check_reading_of(model, stream, other, alpha)


def drawn(n_rows=400, n=4, m=None, seed=0):
    random = np.random.default_rng(seed)
    shape = (n_rows,) if m is None else (n_rows, m)
    episode = np.repeat(np.arange(-(-n_rows // 37)), 37)[:n_rows]
    last = np.append(episode[1:] != episode[:-1], True)
    rows = {"episode": episode, "terminated": last & (episode % 2 == 0)}
    rows |= {"weight": random.uniform(0.5, 2.0, n_rows), "trace_coefficient": random.uniform(0.2, 1.0, n_rows)}
    return random.normal(size=(n_rows, n)), random.normal(size=shape), rows


@pytest.mark.parametrize("forgetting", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("m", [None, 2])
@pytest.mark.parametrize("variant", VARIANTS)
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
    assert model.residual() < 1e-11
    assert_close(model.n_effective, np.sum(forgetting ** np.arange(model.n_updates)), "sums")


def test_updates_and_recorded_rows_are_the_same_and_survive_saving():
    X, y, _ = drawn(120, m=2)
    one, two, single = (RecursiveLSTD(4, 0.9, 0.6, forgetting=0.8, n_rewards=m) for m in (2, 2, None))
    found = [one.partial_fit(X[:50], y[:50], return_predictions=True)]
    file = io.BytesIO()
    np.savez(file, **one.snapshot())
    file.seek(0)
    one = pickle.loads(pickle.dumps(copy.deepcopy(RecursiveLSTD.restore(np.load(file)))))
    found.append(one.partial_fit(X[50:], y[50:], return_predictions=True))
    expected = []
    for t in range(120):
        expected.append(two.predict(X[t]))
        if t < 119:
            two.update(X[t], y[t], X[t + 1])
            single.update(X[t], y[t, 0], X[t + 1])
    assert np.concatenate(found).tolist() == np.array(expected).tolist()
    assert one.weights.tolist() == two.weights.tolist()
    assert two.weights[0].tolist() == single.weights.tolist()
    assert one.forgetting == 0.8
    assert repr(one).startswith("RecursiveLSTD(4, gamma=0.9, lmbda=0.6, alpha=1, variant='boyan', forgetting=0.8")


def test_no_forgetting_is_what_it_was():
    X, y, rows = drawn(100)
    one, two = RecursiveLSTD(4), RecursiveLSTD(4, forgetting=1.0)
    assert one.partial_fit(X, y, **rows).weights.tolist() == two.partial_fit(X, y, **rows).weights.tolist()
    assert one.n_effective == one.n_updates


def test_a_change_is_forgotten():
    model, still = RecursiveLSTD(1, gamma=0.0, forgetting=0.9), RecursiveLSTD(1, gamma=0.0)
    rewards = np.repeat([0.0, 1.0], [300, 60])
    for each in (model, still):
        each.partial_fit(np.ones((360, 1)), rewards)
    assert abs(model.weights[0] - 1.0) < 0.1  # the ridge is a tenth of the effective sample
    assert still.weights[0] < 0.2


def test_a_ridge_of_features_that_are_never_seen_stays():
    X, y, _ = drawn(3000, n=3)
    X[:, 2] = 0.0
    model = RecursiveLSTD(3, 0.9, 0.5, forgetting=0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, y)
    assert model.weights[2] == 0.0
    assert model.n_repairs == 0


@pytest.mark.parametrize("forgetting", [0.0, 1.1, np.nan, "no"])
def test_a_rate_that_is_none_is_refused(forgetting):
    with pytest.raises(InvalidInputError, match="`forgetting` must be"):
        RecursiveLSTD(2, forgetting=forgetting)
