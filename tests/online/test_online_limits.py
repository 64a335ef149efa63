"""Transitions that would make the sums of RecursiveLSTD overflow, and what is said of its digits in any units."""

import warnings

import numpy as np
import pytest

from lstd import RecursiveLSTD
from lstd.errors import BrokenEpisodeWarning, EffectiveSampleWarning, InvalidInputError
from online_streams import entries
from tolerances import assert_close
from twins import compiled_only

# ---------------------------------------------------------------- sums that would overflow

X0, X1 = np.array([1.0, -0.5, 0.25]), np.array([0.5, 2.0, -1.0])
TOO_LARGE = {
    "x": ((X0 * 1e200, 1.0, X1), {}, "`x` must be below 1e"),
    "x_next": ((X0, 1.0, X1 * 1e146), {}, "`x_next` must be below 1e"),
    "x, ends": ((X0 * 1e200, 1.0, X1), {"truncated": True}, "`x` must be below 1e"),
    "x, no successor": ((X0 * 1e200, 1.0, None), {"terminated": True}, "`x` must be below 1e"),
    "entries": ((entries(X0 * 1e200), 1.0, entries(X1)), {}, "`x` must be below 1e"),
    "next entries": ((entries(X0), 1.0, entries(X1 * 1e200)), {}, "`x_next` must be below 1e"),
    "reward": ((X0, 1e308, X1), {}, "`reward` and `importance_ratio` must be so small"),
    "negative reward": ((X0, -1e300, X1), {}, "`reward` and `importance_ratio` must be so small"),
    "ratio": ((X0, 1.0, X1), {"importance_ratio": 1e146}, "`reward` and `importance_ratio` must be so small"),
    "both": ((X0, 1e200, X1), {"importance_ratio": 1e100}, "`reward` and `importance_ratio` must be so small"),
}


def assert_same(snapshot, before):
    """All but whether there was a warning of a gap, is the same."""
    for name, array in snapshot.items():
        if name != "document":
            np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_transition_that_would_make_sums_overflow_is_refused(case, gap):
    arguments, options, message = TOO_LARGE[case]
    model, twin = RecursiveLSTD(3), RecursiveLSTD(3)
    for each in (model, twin):
        each.update(X1, 1.0, X1 if gap else X0)
    before = model.snapshot()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenEpisodeWarning)
        with pytest.raises(InvalidInputError, match=message):
            model.update(*arguments, **options)
        assert_same(model.snapshot(), before)
        for each in (model, twin):
            each.update(X0, 2.0, X1)
    np.testing.assert_array_equal(model.weights, twin.weights)


@pytest.mark.parametrize("ratio", [2.0, 1e30])
def test_a_trace_that_grows_without_bound_is_refused_in_time(ratio):
    model = RecursiveLSTD(2, gamma=1.0, lmbda=1.0)
    x = np.array([1.0, 0.5])

    def grow():
        for _ in range(1000):
            model.update(x, 1.0, x, importance_ratio=ratio)

    with pytest.raises(InvalidInputError, match="look for huge importance ratios"):
        grow()
    n_updates = model.n_updates
    model.update(x, 1.0, x, importance_ratio=0.5)
    assert model.n_updates == n_updates + 1 > 4


@compiled_only
def test_weights_that_overflow_are_refused_and_others_are_not():
    model = RecursiveLSTD(1, alpha=1e-300)
    model.update([1e-150], 1e250, [0.0], terminated=True)
    with pytest.raises(InvalidInputError, match="overflowed"):
        model.weights  # noqa: B018
    model.update([1.0], 1.0, [0.0], terminated=True)
    assert_close(model.weights, [1e100], "solve")


def powers(random, low, high):
    """One half of the time 1, else a power of ten."""
    return 10.0 ** random.uniform(low, high) if random.uniform() < 0.5 else 1.0


@pytest.mark.parametrize("seed", range(12))
def test_an_update_of_any_size_learns_or_is_refused_and_changes_nothing(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 6))
    settings = random.choice([0.0, 0.5, 1.0]), random.choice([1e-300, 1e-10, 1.0]), random.choice(["boyan", "mixed"])
    model = RecursiveLSTD(n, 0.9, *settings, check_every=int(random.choice([1, 3, 1000])))
    for _ in range(40):
        x, x_next = random.normal(size=(2, n)) * powers(random, -160, 153) * (random.uniform(size=(2, n)) < 0.6)
        if seed % 2:
            x, x_next = entries(x), entries(x_next)
        numbers = {"importance_ratio": powers(random, -3, 150), "truncated": random.uniform() < 0.3}
        before = model.snapshot()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BrokenEpisodeWarning)
            warnings.simplefilter("ignore", EffectiveSampleWarning)  # the ratios are huge
            try:
                model.update(x, powers(random, -200, 307), x_next, **numbers)
            except InvalidInputError:
                assert_same(model.snapshot(), before)
