"""Digits of RecursiveLSTD: right, or found lost, told and mended."""

from __future__ import annotations

import warnings
from functools import cache
from unittest import mock

import numpy as np
import pytest
from scipy import signal

from lstd import LSTD
from lstd.errors import BrokenEpisodeWarning, IllConditionedWarning, LostDigitsWarning, RidgeWarning
from lstd.online import RecursiveLSTD, recursive_predictions
from lstd.online import recursive_system as system
from lstd.statistics.solve import solve
from online_streams import VARIANTS, Transition, check_reading, exact_every_step, read_weights, transitions
from tolerances import assert_close
from twins import compiled_only

lost_digits_allowed = pytest.mark.filterwarnings("ignore::lstd.errors.LostDigitsWarning")


def feed(model, stream):
    for step in stream:
        step.feed(model)
    return model


def altered(model, change):
    """A copy of the model, whose state was changed behind its back."""
    state = model.snapshot()
    change(state)
    return RecursiveLSTD.restore(state)


def scaled_inverse(factor):
    """Multiply P: its matrix, and one of the two factors that are subtracted."""

    def change(state):
        state["matrices"][0] *= factor
        state["panels"][0] *= factor

    return change


def scaled_vector(which, factor):
    def change(state):
        state["vectors"][which] *= factor

    return change


def check_after(model, step):
    """Feed a transition after which a check is due."""

    def change(state):
        state["counts"][system.CHECK_AT] = model.n_updates + 1

    return feed(altered(model, change), [step])


def checks(model, stream):
    """Feed transitions; returns those after which a check was made."""
    made = []
    for step in stream:
        step.feed(model)
        if model.snapshot()["counts"][system.CHECKED_AT] == model.n_updates:
            made.append(model.n_updates)
    return made


def way_of_reading(model):
    return int(model.snapshot()["counts"][system.READING])


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


@lost_digits_allowed
@pytest.mark.parametrize("case", ILL)
@pytest.mark.parametrize("variant", VARIANTS)
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
    random, n_steps, n = np.random.RandomState(0), 1_000_000, 6
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
    assert model.residual() < 1e-13
    assert model.n_repairs == 0
    assert way_of_reading(model) == system.FAST


# ---------------------------------------------------------------- found, told, mended


@compiled_only
def test_loss_of_digits_is_found_told_and_mended_for_good():
    random = np.random.RandomState(0)
    n, alpha = 6, 1e-13
    model = RecursiveLSTD(n, gamma=0.9, lmbda=0.5, alpha=alpha)
    rows = 1e3 * random.normal(size=(5017, n))
    stream = transitions(rows, np.ones(len(rows)), 0.9)
    feed(model, stream[:15])
    assert model.residual() > 1e-3
    with pytest.warns(LostDigitsWarning, match=r"After 16 updates .*lost digits.*were corrected, or solved for"):
        stream[15].feed(model)  # the first check
    assert model.n_repairs == 1
    for end in (16, 5016):
        feed(model, stream[model.n_updates : end])
        assert model.residual() < 1e-13
        (expected,) = exact_every_step(stream[:end], ["boyan"], 0.5, alpha, last_only=True)
        assert_close(model.weights, expected["boyan"][1], "solve")
    assert model.n_repairs == 1


def test_the_time_to_the_next_check_grows_after_successes_and_shrinks_after_a_failure():
    random = np.random.RandomState(0)
    model = RecursiveLSTD(4, alpha=1.0, check_every=200)
    rows = random.normal(size=(2001, 4))
    stream = transitions(rows, np.ones(2001))
    checked = checks(model, stream[:439])
    model = altered(model, scaled_inverse(1.1))
    with pytest.warns(LostDigitsWarning, match=r"After 440 .*Weights read since update 240 may have as large an error"):
        checked += checks(model, stream[439:440])
    checked += checks(model, stream[440:])
    assert checked == [16, 48, 112, 240, 440, 456, 488, 552, 680, *range(880, 2001, 200)]


def test_checks_are_made_as_often_as_asked():
    model = RecursiveLSTD(1, check_every=5)
    assert checks(model, transitions(np.ones((101, 1)), np.ones(101))) == list(range(5, 101, 5))


@pytest.mark.parametrize(("off", "found"), [(1e-10, False), (3e-9, False), (3e-8, True), (1e-5, True), (0.1, True)])
def test_eight_digits_are_kept_where_weights_are_read_from_the_recursion(off, found):
    random = np.random.RandomState(0)
    rows = random.normal(size=(101, 4))
    stream = transitions(rows, random.normal(size=101))
    model = feed(RecursiveLSTD(4, alpha=1.0), stream[:-1])
    assert way_of_reading(model) == system.FAST
    model = altered(model, scaled_inverse(1.0 + off))
    assert 0.1 * off < model.residual() < 10 * off
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        model = check_after(model, stream[-1])
    assert [w.category for w in given] == [LostDigitsWarning] * found
    assert model.n_repairs == found
    assert model.residual() < (1e-14 if found else 10 * off)
    if found:
        assert "Weights read since update 48 may have as large an error" in str(given[0].message)


@lost_digits_allowed
@pytest.mark.parametrize(
    ("alpha", "reading"),
    [(1e-1, system.FAST), (1e-4, system.CORRECTED), (1e-7, system.SOLVED), (1e-300, system.SOLVED)],
)
def test_the_condition_number_decides_how_weights_are_read(alpha, reading):
    random = np.random.default_rng(0)
    X, y = repeated(random, 301), random.normal(size=301)
    model = feed(RecursiveLSTD(8, 0.95, 0.8, alpha), transitions(X, y))
    assert way_of_reading(model) == reading
    with mock.patch.object(recursive_predictions, "solve", side_effect=solve) as solved:
        found, _ = read_weights(model, "boyan")
    assert solved.called == (reading == system.SOLVED)
    expected = LSTD(0.95, 0.8, alpha, fit_intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected.fit(X, y)
    assert_close(X @ found, expected.predict(X), "solve")


def test_a_correction_is_needed_and_made_where_the_recursion_alone_is_not_enough():
    random = np.random.default_rng(0)
    X, y = repeated(random, 301), random.normal(size=301)
    stream = transitions(X, y)
    model = altered(feed(RecursiveLSTD(8, 0.95, 0.8, 1e-4), stream), scaled_vector(system.WEIGHTS, 1.01))
    (exact,) = exact_every_step(stream, ["boyan"], 0.8, 1e-4, last_only=True)
    assert_close(X @ model.weights, X @ exact["boyan"][1], "solve")
    with mock.patch.object(recursive_predictions, "solve", side_effect=AssertionError):
        assert_close(model.weights, model.weights_for("boyan"), "solve")  # the second time from memory
    first = model.weights
    first[:] = np.nan
    assert np.isfinite(model.weights).all()
    model.update(X[-1], 1e3, X[0])
    assert not np.allclose(model.weights, exact["boyan"][1], rtol=1e-3)


def ill_conditioned():
    """A stream whose system has a condition number of about 5e6, so that weights are corrected; X; exact weights."""
    random = np.random.default_rng(0)
    X, y = repeated(random, 301), random.normal(size=301)
    stream = transitions(X, y)
    (exact,) = exact_every_step(stream, ["boyan"], 0.8, 1e-4, last_only=True)
    return stream, X, exact["boyan"][1]


def test_corrections_go_on_until_they_change_nothing():
    stream, X, exact = ill_conditioned()
    model = altered(feed(RecursiveLSTD(8, 0.95, 0.8, 1e-4), stream), scaled_vector(system.WEIGHTS, 1.01))
    model = altered(model, scaled_inverse(1.01))  # each correction leaves a hundredth
    with mock.patch.object(recursive_predictions, "solve", side_effect=AssertionError):
        assert_close(X @ model.weights, X @ exact, "solve")


def test_an_inverse_that_corrections_cannot_use_is_not_used():
    stream, X, exact = ill_conditioned()
    model = altered(feed(RecursiveLSTD(8, 0.95, 0.8, 1e-4), stream), scaled_vector(system.WEIGHTS, 1.01))
    model = altered(model, scaled_inverse(3.0))
    assert_close(X @ model.weights, X @ exact, "solve")


@pytest.mark.parametrize(("off", "found"), [(1e-5, False), (5e-4, False), (5e-3, True), (0.5, True)])
def test_an_inverse_is_kept_while_it_can_correct(off, found):
    stream, X, exact = ill_conditioned()
    model = altered(feed(RecursiveLSTD(8, 0.95, 0.8, 1e-4), stream[:-1]), scaled_inverse(1.0 + off))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        model = check_after(model, stream[-1])
    assert [w.category for w in given] == [LostDigitsWarning] * found
    assert model.n_repairs == found
    assert way_of_reading(model) == system.CORRECTED
    assert_close(X @ model.weights, X @ exact, "solve")


def test_a_read_out_that_would_multiply_errors_is_corrected():
    random = np.random.default_rng(0)
    stream = transitions(random.normal(size=(41, 3)), random.normal(size=41))
    y = feed(RecursiveLSTD(3, 0.95, 0.8, 1.0), stream).snapshot()["vectors"][system.Y]
    stream[-1] = stream[-1]._replace(x_next=y * ((1.0 - 1e-4) / (0.95 * float(y @ y))))
    model = feed(RecursiveLSTD(3, 0.95, 0.8, 1.0), stream)
    assert way_of_reading(model) == system.FAST
    model = altered(model, scaled_vector(system.Y, 1.0 + 3e-9))  # as much as a check lets through
    (exact,) = exact_every_step(stream, ["boyan"], 0.8, 1.0, last_only=True)
    assert_close(model.weights, exact["boyan"][1], "solve")


def test_one_update_that_loses_digits_is_enough_to_distrust_the_recursion():
    random = np.random.default_rng(0)
    rows = random.normal(size=(201, 3))
    rows[:100, 2] = 0.0
    rows[100:, 2] *= 1e9  # six digits of P and more are lost at update 100
    stream = transitions(rows, random.normal(size=201))
    model = feed(RecursiveLSTD(3, 0.95, 0.8, 1.0), stream[:99])
    assert way_of_reading(model) == system.FAST
    with pytest.warns(LostDigitsWarning, match="were corrected, or solved for"):
        feed(model, stream[99:120])
    for end in (100, 101, 102, 120, 200):
        (exact,) = exact_every_step(stream[:end], VARIANTS, 0.8, 1.0, last_only=True)
        again = RecursiveLSTD(3, 0.95, 0.8, 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostDigitsWarning)
            feed(again, stream[:end])
        for variant in VARIANTS:
            check_reading(*read_weights(again, variant), *exact[variant])
    assert way_of_reading(again) == system.FAST


@compiled_only
def test_a_singular_system_is_told_and_mended_by_more_data():
    model = RecursiveLSTD(2, gamma=1.0, lmbda=0.0, alpha=1.0, check_every=1)
    x = np.array([1.0, 0.0])
    with pytest.warns(LostDigitsWarning, match="singular to working precision.*solves the system from the sums"):
        model.update(x, 1.0, 2.0 * x, truncated=True)  # A + α = 1 (1 − 2) + 1 = 0 there
    with pytest.warns(IllConditionedWarning, match="singular"):
        assert np.isfinite(model.weights).all()
    model.update(x, 1.0, 0.5 * x, truncated=True)
    assert_close(model.weights, [2.0 / (-1.0 + 0.5 + 1.0), 0.0], "solve")
    assert_close(model.weights_for("uncorrected"), [2.0 / (2.0 + 1.0), 0.0], "solve")
    assert model.n_repairs == 0
    for _ in range(20):
        model.update(x, 1.0, 0.5 * x, truncated=True)
    assert model.n_repairs == 1
    assert model.residual() < 1e-15
    assert_close(model.weights, [22.0 / (-1.0 + 21 * 0.5 + 1.0), 0.0], "solve")


def test_denominators_of_read_outs_may_vanish():
    model = RecursiveLSTD(1, gamma=1.0, lmbda=0.0, alpha=1.0)
    model.update([1.0], 1.0, [2.0])  # A_Boyan + α = 1 (1 − 2) + 1 = 0
    with pytest.warns(IllConditionedWarning, match="singular"):
        model.weights  # noqa: B018
    assert model.weights_for("uncorrected")[0] == 0.5
    model.update([2.0], 1.0, [0.0])
    assert_close(model.weights, [3.0 / (1.0 * (1 - 2) + 2.0 * 2.0 + 1.0)], "solve")


@pytest.mark.parametrize("excess", [1e-3, 1e-6, 1e-9, 1e-12])
def test_denominators_of_read_outs_may_nearly_vanish(excess):
    random = np.random.default_rng(0)
    stream = transitions(random.normal(size=(41, 3)), random.normal(size=41))
    model = feed(RecursiveLSTD(3, 0.95, 0.8, 1.0), stream)
    y = model.snapshot()["vectors"][system.Y]
    x_next = y * ((1.0 - excess) / (0.95 * float(y @ y)))  # 1 − γ φ₊ᵀy is the excess
    last = Transition(stream[-1].x, 1.0, x_next, False, False, 0.95, 1.0)
    again = feed(RecursiveLSTD(3, 0.95, 0.8, 1.0), [*stream[:-1], last])
    (exact,) = exact_every_step([*stream[:-1], last], VARIANTS, 0.8, 1.0, last_only=True)
    for variant in VARIANTS:
        check_reading(*read_weights(again, variant), *exact[variant])


def test_lost_digits_turned_into_an_error_come_after_the_transition_was_learned():
    random = np.random.default_rng(0)
    stream = transitions(scaled(random, 101), random.normal(size=101))
    strict, lenient = RecursiveLSTD(3, 0.95, 0.8, 1e-6), RecursiveLSTD(3, 0.95, 0.8, 1e-6)
    raised = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostDigitsWarning)
        for step in stream:
            try:
                step.feed(strict)
            except LostDigitsWarning:
                raised += 1
    with pytest.warns(LostDigitsWarning):
        feed(lenient, stream)
    assert raised >= 1
    np.testing.assert_array_equal(strict.weights, lenient.weights)


def test_a_gap_turned_into_an_error_comes_before_anything_is_learned():
    model, x = RecursiveLSTD(2), np.array([1.0, 0.0])
    model.update(x, 1.0, np.array([0.0, 1.0]))
    before = model.snapshot()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", BrokenEpisodeWarning)
            with pytest.raises(BrokenEpisodeWarning):
                model.update(x, 1.0, x)
    for name in ("counts", "matrices", "scalars"):
        np.testing.assert_array_equal(model.snapshot()[name], before[name])
