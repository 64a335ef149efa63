"""Digits of RecursiveLSTD: right, or a warning says that the system does not determine them."""

import warnings
from functools import cache

import numpy as np
import pytest
from scipy import signal

from lstd import LSTD
from lstd.errors import IllConditionedWarning, RidgeWarning
from lstd.online import RecursiveLSTD
from online_streams import (
    VARIANTS,
    Transition,
    check_reading,
    exact_every_step,
    read_weights,
    system,
    trace,
    transitions,
)  # fmt: skip
from tolerances import assert_close
from twins import compiled_only


def feed(model, stream):
    for step in stream:
        step.feed(model)
    return model


# ---------------------------------------------------------------- against 50 digits

SCALES = np.array([1.0, 1e6, 1e-4])


def scaled(random, n_rows):
    return random.normal(size=(n_rows, 3)) * SCALES


def repeated(random, n_rows):
    X = random.normal(size=(n_rows, 4))
    return np.c_[X, X]


def nearly_repeated(random, n_rows):
    X = random.normal(size=(n_rows, 3))
    return np.c_[X, X + 1e-5 * random.normal(size=X.shape)]


def plain(random, n_rows):
    return random.normal(size=(n_rows, 4))


ILL = {  # features, ridge coefficient, digits of predictions, whether LSTD warns
    "scales": (scaled, 1e-6, 1e-13, False),
    "scales, strong ridge": (scaled, 1.0, 1e-13, False),
    "repeated, alpha 1e-11": (repeated, 1e-11, 1e-12, True),
    "repeated, alpha 1e-9": (repeated, 1e-9, 1e-12, True),
    "repeated, alpha 1e-7": (repeated, 1e-7, 1e-12, False),
    "repeated, alpha 1e-5": (repeated, 1e-5, 1e-9, False),
    "repeated, alpha 1e-3": (repeated, 1e-3, 1e-9, False),
    "nearly repeated": (nearly_repeated, 1e-12, 1e-4, True),
    "hardly any ridge": (plain, 1e-13, 1e-12, False),
}


READ_AFTER = (0, 1, 2, 5, 15, 16, 17, 30, 31, 32, 33, 60, 100, 149)


@cache
def ill_stream(case):
    """Features, transitions, and the exact weights after those of READ_AFTER."""
    make, alpha, _, _ = ILL[case]
    random = np.random.default_rng(0)
    X, y = make(random, 151), random.normal(size=151)
    stream = transitions(X, y)
    return (
        X,
        stream,
        dict(zip(READ_AFTER, exact_every_step(stream, VARIANTS, 0.8, alpha, steps=READ_AFTER), strict=True)),
    )


@pytest.mark.parametrize("case", ILL)
@pytest.mark.parametrize("variant", ["boyan", "mixed"])
def test_readings_at_any_time_are_right_or_warn(case, variant):
    """Against 50 digits: soon after the start, long after a repair, and as often as not in between."""
    _, alpha, prediction, warns = ILL[case]
    X, stream, exact = ill_stream(case)
    model = RecursiveLSTD(X.shape[1], 0.95, 0.8, alpha, variant, check_every=50)
    for t, step in enumerate(stream):
        step.feed(model)
        if t in exact:
            for read in VARIANTS:
                found, warned = read_weights(model, read)
                check_reading(found, warned, *exact[t][read])
    found, warned = read_weights(model, variant)
    expected = exact[READ_AFTER[-1]][variant][1]
    assert np.linalg.norm(X @ (found - expected)) <= prediction * np.linalg.norm(X @ expected)
    assert warned == warns


@pytest.mark.parametrize("case", ILL)
def test_warnings_of_readings_are_those_of_the_batch(case):
    make, alpha, _, _ = ILL[case]
    random = np.random.default_rng(1)
    X, y = make(random, 301), random.normal(size=301)
    with warnings.catch_warnings(record=True) as batch:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", RidgeWarning)  # which is about the data, not about digits
        LSTD(0.95, 0.8, alpha, fit_intercept=False).fit(X, y)
    model = RecursiveLSTD(X.shape[1], 0.95, 0.8, alpha)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        feed(model, transitions(X, y))
    for _ in range(2):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            model.predict(X)
        assert [w.category for w in given] == [w.category for w in batch]


@compiled_only
def test_a_long_stream_does_not_drift():
    random, n_steps, n = np.random.RandomState(0), 200_000, 6
    model = RecursiveLSTD(n, gamma=0.95, lmbda=0.8, alpha=0.01)
    basis = random.normal(size=(64, n))
    states, rewards = random.randint(64, size=n_steps + 1), random.normal(size=n_steps) + 1.0
    rows = list(basis)
    for s, reward, s_next in zip(states[:-1].tolist(), rewards.tolist(), states[1:].tolist(), strict=True):
        model.update(rows[s], reward, rows[s_next])
    phi = basis[states]
    traces = signal.lfilter([1.0], [1.0, -0.8 * 0.95], phi[:-1], axis=0)
    A, b = traces.T @ (phi[:-1] - 0.95 * phi[1:]), traces.T @ rewards
    assert_close(model.weights, np.linalg.solve(A + 0.01 * np.eye(n), b), "long_recursion")


@compiled_only
def test_a_singular_system_is_told_and_mended_by_more_data():
    model = RecursiveLSTD(2, gamma=1.0, lmbda=0.0, alpha=1.0, check_every=1)
    x = np.array([1.0, 0.0])
    model.update(x, 1.0, 2.0 * x, truncated=True)  # A + α = 1 (1 − 2) + 1 = 0 there
    with pytest.warns(IllConditionedWarning, match="singular"):
        assert np.isfinite(model.weights).all()
    model.update(x, 1.0, 0.5 * x, truncated=True)
    assert_close(model.weights, [2.0 / (-1.0 + 0.5 + 1.0), 0.0], "solve")
    assert_close(model.weights_for("uncorrected"), [2.0 / (2.0 + 1.0), 0.0], "solve")
    for _ in range(20):
        model.update(x, 1.0, 0.5 * x, truncated=True)
    assert_close(model.weights, [22.0 / (-1.0 + 21 * 0.5 + 1.0), 0.0], "solve")


@pytest.mark.parametrize("excess", [1e-3, 1e-6, 1e-9, 1e-12])
def test_denominators_of_read_outs_may_nearly_vanish(excess):
    random = np.random.default_rng(0)
    stream = transitions(random.normal(size=(41, 3)), random.normal(size=41))
    head = stream[:-1]
    A, _ = system([*head, stream[-1]._replace(terminated=True)], "boyan", 0.8)
    y = np.linalg.solve(A + np.eye(3), trace(stream, len(head), 0.8))
    x_next = y * ((1.0 - excess) / (0.95 * float(y @ y)))  # 1 − γ φ₊ᵀy is the excess
    last = Transition(stream[-1].x, 1.0, x_next, False, False, 0.95, 1.0)
    again = feed(RecursiveLSTD(3, 0.95, 0.8, 1.0), [*stream[:-1], last])
    (exact,) = exact_every_step([*stream[:-1], last], VARIANTS, 0.8, 1.0, last_only=True)
    for variant in VARIANTS:
        check_reading(*read_weights(again, variant), *exact[variant])
