"""Intervals of returns that mostly agree, against their definition and the interval of Clopper and Pearson."""

import warnings

import numpy as np
import pytest
from scipy import stats

import naive
from lstd import LSTD
from lstd.errors import EffectiveSampleWarning, InvalidInputError, MisfitWarning
from lstd.ope import LSTDQ, compare_policies, evaluate_policy, importance_sampling, policy_value
from tolerances import assert_close

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),  # of small logs
    pytest.mark.usefixtures("few_trees"),
]


def patients(n, home, n_steps=3, seed=0):
    """A log of patients of `n_steps` days, of whom some go home, reward 1 on the last day."""
    random = np.random.default_rng(seed)
    T = n * n_steps
    ends = np.arange(T) % n_steps == n_steps - 1
    y = np.zeros(T)
    y[np.flatnonzero(ends)[:home]] = 1.0
    actions = random.integers(2, size=T)
    return {
        "X": np.eye(n_steps)[np.arange(T) % n_steps], "y": y, "actions": actions, "terminated": ends,
        "episode": np.arange(T) // n_steps, "behavior_probability": np.full(T, 0.5),
        "target_policy": np.full((T, 2), [0.3, 0.7]),
    }  # fmt: skip


def on_policy(data):
    return {name: data[name] for name in ("X", "y", "terminated", "episode")}


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("n", [5, 12, 80])
@pytest.mark.parametrize("home", [False, True])
def test_the_interval_of_equal_returns_is_that_of_clopper_and_pearson(n, home, level):
    data = on_policy(patients(n, n if home else 0))
    found = importance_sampling(**data, gamma=1.0, bounds=(0.0, 1.0), level=level)
    tail = (1.0 - level) / 2.0
    exact = (stats.beta.ppf(tail, n, 1), 1.0) if home else (0.0, stats.beta.ppf(1.0 - tail, 1, n))
    assert_close((found.lower, found.upper), exact, "sums")
    assert found.little_data or n == 80
    assert str(found).endswith("little data") == found.little_data
    assert found.bounds == (0.0, 1.0)


@pytest.mark.parametrize("bounds", [None, (-0.5, 2.0)])
@pytest.mark.parametrize("home", [30, 22])
def test_intervals_are_those_of_the_definition(home, bounds):
    data = patients(30, home)
    data["groups"] = data["episode"] // 2
    model = LSTDQ(0.9, alpha=1e-6, fit_intercept=False).fit(**data)
    found = policy_value(model, bounds=bounds)
    part = found.by_blocks
    half = stats.t.ppf(0.975, found.degrees_of_freedom) * np.hypot(found.standard_error, found.shift)
    largest = [np.abs(found.dual_weights[data["groups"] == e]).max() for e in range(15)]
    within = (0.0, 0.81) if bounds is None else bounds
    assert naive.are_tied([1.0] * home + [0.0] * (30 - home), [], None)
    exact = naive.tied_interval(part.value, half, largest, within, 0.95)
    assert_close((found.lower, found.upper), exact, "sums")


@pytest.mark.parametrize("estimator", ["is", "pdis", "wis", "wpdis"])
def test_those_of_importance_sampling_count_episodes_by_their_products_of_ratios(estimator):
    data = patients(20, 18)
    found = importance_sampling(**data, gamma=0.9, estimator=estimator, bounds=(0.0, 1.0))
    ratio = np.where(data["actions"] == 1, 1.4, 0.6).reshape(20, 3)
    products = ratio.cumprod(axis=1)
    products = np.repeat(products[:, -1:], 3, axis=1) if estimator in ("is", "wis") else products
    g = 0.9 ** np.arange(3) * (products / products.sum(axis=0) if estimator[0] == "w" else products / 20)
    half = stats.t.ppf(0.975, found.degrees_of_freedom) * found.standard_error
    exact = naive.tied_interval(found.value, half, g.max(axis=1), (0.0, 1.0), 0.95)
    assert_close((found.lower, found.upper), exact, "sums")


def test_untied_returns_keep_their_interval():
    data = patients(40, 40)
    data["y"] += np.random.default_rng(0).normal(size=len(data["y"]))
    found = importance_sampling(**on_policy(data), gamma=0.9)
    known = importance_sampling(**on_policy(data), gamma=0.9, bounds=(-100.0, 100.0))
    assert known.bounds == (-100.0, 100.0)  # returns within a hundredth of 200 are tied
    half = stats.t.ppf(0.975, found.degrees_of_freedom) * found.standard_error
    assert_close((found.lower, found.upper), (found.value - half, found.value + half), "sums")
    assert found.bounds is None
    known = importance_sampling(**on_policy(data), gamma=0.9, bounds=(-10.0, 10.0))
    assert_close((known.lower, known.upper), (found.lower, found.upper), "sums")
    assert known.bounds == (-10.0, 10.0)


def is_widened(found):
    half = stats.t.ppf(0.975, found.degrees_of_freedom) * found.standard_error
    return abs((found.upper - found.lower) - 2.0 * half) > 1e-13


def test_of_half_and_half_none_is_tied_and_of_one_more_they_are():
    assert not is_widened(importance_sampling(**on_policy(patients(20, 10)), gamma=1.0))
    assert is_widened(importance_sampling(**on_policy(patients(20, 11)), gamma=1.0))
    for sums in ([1.0, 1.0 + 1e-12, 5.0], [1.0, 1.0 + 1e-6, 5.0], [2.0], [0.0, 0.0]):
        X, done = np.ones((len(sums), 1)), np.ones(len(sums), bool)
        if len(sums) > 1:
            found = importance_sampling(X, sums, gamma=1.0, terminated=done)
            tied = is_widened(found) or "All returns of the log are 0" in str(found.said)
            assert tied == naive.are_tied(sums, sums)


def test_returns_of_zero_without_bounds_are_said():
    data = patients(10, 0)
    with pytest.warns(EffectiveSampleWarning, match=r"All returns of the log are 0, .* Give `bounds=\(a, b\)`"):
        found = importance_sampling(**on_policy(data), gamma=0.9)
    assert (found.lower, found.upper) == (0.0, 0.0)
    for call in (
        lambda **one: evaluate_policy(**data, gamma=0.9, **one),
        lambda **one: policy_value(LSTDQ(0.9).fit(**data), **one),
    ):
        assert any("All returns of the log are 0" in text for text in call().said)
        found = call(bounds=(0.0, 1.0))
        assert not any("All returns" in text for text in found.said)
        assert found.upper > 0.2


@pytest.mark.parametrize("n", [5, 10, 20, 100])
@pytest.mark.parametrize("chance", [0.01, 0.1])
def test_without_bounds_intervals_of_rare_returns_hold_or_warn(n, chance):
    random = np.random.default_rng(0)
    X, done = np.ones((n, 1)), np.ones(n, bool)
    good = 0
    for _ in range(200):
        y = np.where(random.random(n) < chance, 10.0, 1.0)
        found = importance_sampling(X, y, gamma=1.0, terminated=done)
        said = any("Give `bounds=(a, b)`" in text for text in found.said)
        good += said or found.lower <= 1.0 + 9.0 * chance <= found.upper
    assert good >= 190


@pytest.mark.parametrize(("reward", "outside"), [(1.0, r"\[0, 1\]"), (-2.5, r"\[-2.5, 0\]")])
def test_equal_returns_without_bounds_are_said(reward, outside):
    T = 8
    data = {"X": np.ones((T, 1)), "y": np.full(T, reward), "terminated": np.ones(T, bool)}
    actions = np.arange(T) % 2
    policy = {"actions": actions, "target_policy": np.full((T, 2), 0.5), "behavior_probability": np.full(T, 0.5)}
    model = LSTDQ(0.9, alpha=1e-6, fit_intercept=False).fit(**data, **policy)
    calls = (
        lambda **one: importance_sampling(**data, gamma=0.9, **one),
        lambda **one: policy_value(model, **one),
        lambda **one: evaluate_policy(**data, **policy, gamma=0.9, **one),
    )
    for call in calls:
        with pytest.warns(
            EffectiveSampleWarning, match=f"outside of {outside} as impossible, .* Give `bounds="
        ) as given:
            found = call()
        assert sum("`bounds=" in str(one.message) for one in given) == 1
        assert sum("`bounds=" in text for text in found.said) == 1
        assert not any("`bounds" in text for text in call(bounds=(-5.0, 5.0)).said)


def test_untied_or_many_returns_need_no_bounds():
    few = importance_sampling(np.ones((6, 1)), np.arange(6.0), gamma=1.0, terminated=np.ones(6, bool))
    many = importance_sampling(**on_policy(patients(400, 360)), gamma=1.0)
    for found in (few, many):
        assert not any("`bounds" in text for text in found.said)


def test_cut_off_episodes_do_not_bound_the_value():
    T = 400
    data = {"X": np.ones((T, 1)), "y": np.ones(T), "episode": np.arange(T) // 20, "terminated": np.zeros(T, bool)}
    actions = np.arange(T) % 2
    model = LSTDQ(0.99, alpha=0.0, fit_intercept=False).fit(**data, actions=actions, target_policy=np.full((T, 2), 0.5))
    found = policy_value(model)
    assert_close(found.value, 100.0, "solve")
    assert found.lower < 100.0


def test_an_lstd_has_the_returns_of_its_data():
    data = patients(30, 30)
    ratio = np.where(data["actions"] == 1, 1.4, 0.6)
    model = LSTD(0.9, 0.0, 1e-3, fit_intercept=False).fit(**on_policy(data), importance_ratio=ratio)
    first = data["X"][::3]
    plain = policy_value(model, first)
    assert plain.bounds is None
    known = policy_value(model, first, data=data)
    assert known.bounds is None
    assert known.lower < plain.lower
    with pytest.raises(InvalidInputError, match="`bounds` must not be given without the log"):
        policy_value(model, first, bounds=(0.0, 1.0))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0.0,), "`bounds` must be two numbers"),
        (3.0, "`bounds` must be two numbers"),
        (("a", "b"), "`bounds` must be two numbers"),
        ((1.0, 0.0), r"the smaller one first; got \(1, 0\)"),
        ((0.0, np.inf), "`bounds` must be finite"),
        ((-1.0, 0.5), r"that which begins in row 0 has 0.81, outside of \(-1, 0.5\)"),
    ],
)
def test_bad_bounds_are_refused(bounds, message):
    data = patients(10, 9)
    for call in (importance_sampling, evaluate_policy):
        with pytest.raises(InvalidInputError, match=message):
            call(**data, gamma=0.9, bounds=bounds)


def untied(n=12):
    """Episodes of one row: action 0 is always good, action 1 never."""
    actions = np.arange(n) % 2
    y = np.repeat([1.0, 0.0], 3)[np.arange(n) % 6]
    data = {"X": np.ones((n, 1)), "y": y, "actions": actions, "terminated": np.ones(n, bool)}
    return data | {"behavior_probability": np.full(n, 0.5), "target_policy": np.full((n, 2), [0.1, 0.9])}


def values_of(data, **one):
    """Return values of the log by each way."""
    model = LSTDQ(1.0, alpha=1e-6, fit_intercept=False).fit(**data)
    ratio = data["target_policy"][np.arange(len(data["y"])), data["actions"]] / data["behavior_probability"]
    alone = {name: data[name] for name in ("X", "y", "terminated")}
    found = {name: importance_sampling(**data, gamma=1.0, estimator=name, **one) for name in ("is", "wis", "wpdis")}
    found["pairs"] = policy_value(model, **one)
    found["rows"] = policy_value(model, state=data["X"], **one)
    found["chosen"] = evaluate_policy(**data, gamma=1.0, **one)
    found["ratios"] = evaluate_policy(**alone, importance_ratio=ratio, gamma=1.0, **one)
    return found


@pytest.mark.parametrize("n", [6, 12, 30])
def test_bounds_cut_values_and_intervals_of_untied_returns(n):
    data = untied(n)
    without = values_of(data)
    for bounds in ((0.0, 1.0), (-0.25, 1.5), (-9.0, 9.0)):
        for name, found in values_of(data, bounds=bounds).items():
            assert found.bounds == bounds
            assert without[name].bounds is None
            a, b = bounds
            assert a <= found.lower <= found.value <= found.upper <= b
            if name in ("is", "wis", "wpdis", "pairs"):
                one = without[name]
                value = min(max(one.value, a), b)
                half = (one.upper - one.lower) / 2.0
                assert_close((found.value, found.lower), (value, max(value - half, a)), "solve")
                assert_close(found.upper, min(value + half, b), "solve")


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_a_value_outside_of_the_bounds_is_cut(bounds):
    data = untied()
    data["y"] = (data["actions"] == 1) * 1.0
    data["target_policy"] = np.full((12, 2), [0.0, 1.0])
    data["behavior_probability"] = np.where(data["actions"] == 1, 0.3, 0.7)
    found = importance_sampling(**data, gamma=1.0, estimator="is", bounds=bounds)
    exact = 5.0 / 3.0 if bounds is None else 1.0
    assert_close(found.value, exact, "sums")
    assert (found.upper > 1.0) == (bounds is None)


def test_bounds_are_kept_in_comparisons():
    found = [
        evaluate_policy(**untied(30) | {"target_policy": np.full((30, 2), p)}, gamma=1.0, bounds=(0.0, 1.0))
        for p in ([0.1, 0.9], [0.7, 0.3])
    ]
    wider = compare_policies(found, level=0.999999)
    for one in wider.values:
        assert one.bounds == (0.0, 1.0)
        assert 0.0 <= one.lower <= one.upper <= 1.0


@pytest.mark.parametrize("n", [5, 6, 12])
def test_differences_are_cut_at_the_width_of_the_bounds(n):
    data = untied(n)
    policies = [data | {"target_policy": np.full((n, 2), p)} for p in ([0.1, 0.9], [0.95, 0.05], [0.5, 0.5])]
    free = [evaluate_policy(**one, gamma=1.0) for one in policies]
    assert (compare_policies(free, level=0.999).upper > 1.0).any()
    for bounds in ((0.0, 1.0), (-1.0, 3.0)):
        values = [evaluate_policy(**one, gamma=1.0, bounds=bounds) for one in policies]
        width = bounds[1] - bounds[0]
        found = compare_policies(values, level=0.999)
        assert (found.lower >= -width).all()
        assert (found.upper <= width).all()
        assert (found.lower <= found.difference).all()
        assert (found.difference <= found.upper).all()


def test_values_with_different_bounds_are_not_compared():
    data = untied(30)
    calls = {bounds: evaluate_policy(**data, gamma=1.0, bounds=bounds) for bounds in (None, (0.0, 1.0), (0.0, 2.0))}
    for one, two, said in (
        ((0.0, 1.0), (0.0, 2.0), r"'one' has \(0, 1\), 'two' has \(0, 2\)"),
        (None, (0.0, 2.0), r"'one' has none, 'two' has \(0, 2\)"),
    ):
        with pytest.raises(InvalidInputError, match=rf"same bounds of the return; {said}\. Give the same `bounds="):
            compare_policies({"one": calls[one], "two": calls[two]})


def test_differences_of_tied_returns_are_those_of_the_definition():
    data = patients(30, 30)
    policies = {"one": [0.3, 0.7], "two": [0.8, 0.2], "three": [0.5, 0.5]}
    T = len(data["y"])
    models = {
        name: LSTDQ(0.9, alpha=1e-6, fit_intercept=False).fit(**data | {"target_policy": np.full((T, 2), p)})
        for name, p in policies.items()
    }
    found = compare_policies(models)
    weights = [np.abs(one.dual_weights).reshape(30, 3).max(axis=1) for one in found.values]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        exact = naive.tied_difference(0.0, weights[i], weights[j], (0.0, 0.81), 1.0 - 0.05 / 3)
        np.testing.assert_allclose((found.upper - found.lower)[i, j] / 2, exact, atol=1e-6)  # standard errors of 1e-7
    values = {name: policy_value(model, bounds=(-1.0, 2.0)) for name, model in models.items()}
    wider = compare_policies(values)
    assert [one.bounds for one in wider.values] == [(-1.0, 2.0)] * 3
    i, j = 0, 1
    exact = naive.tied_difference(0.0, weights[0], weights[1], (-1.0, 2.0), 1.0 - 0.05 / 3)
    np.testing.assert_allclose((wider.upper - wider.lower)[0, 1] / 2, exact, atol=1e-6)
    same = compare_policies({"one": values["one"], "again": values["one"]})
    assert same.upper[0, 1] == 0.0


@pytest.mark.usefixtures("real_trees")
@pytest.mark.parametrize(("seed", "noise"), [(0, False), (0, True), (1, False)])
def test_no_check_fires_on_differences_of_rounding(seed, noise):
    """Without noise in the state, trees predict exactly, and what is left of the rewards is rounding."""
    data = patients(60, 60, seed=seed)
    data["y"] = data["y"] * 0.7
    state = np.random.default_rng(seed).normal(size=(180, 3)) if noise else None
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = evaluate_policy(**data, gamma=0.97, state=state)
    assert not [one for one in given if issubclass(one.category, MisfitWarning)]
    assert (found.hidden.z == 0.0) == (not noise)
    assert found.upper <= 0.7 * 0.97**2 + 1e-12
    assert found.lower < 0.63
