"""Differences between policies from the same data."""

import numpy as np
import pytest
from scipy import special

from logged_actions import PROCESS, logged
from lstd import LSTD, load
from lstd.errors import InvalidInputError
from lstd.ope import LSTDQ, compare_policies, policy_value
from tolerances import assert_close


def models(data, n=3, **settings):
    """Models of policies between the one that logged the data and the target policy."""
    policies = [(1 - share) * PROCESS.mu + share * PROCESS.pi for share in np.linspace(0.0, 1.0, n)]
    states = data["X"].argmax(axis=1)
    settings = {"gamma": 0.9, "alpha": 1e-3, "fit_intercept": False} | settings
    return [LSTDQ(**settings).fit(**data | {"target_policy": policy[states]}) for policy in policies]


def test_two_policies_have_the_interval_of_their_difference():
    data = PROCESS.simulate(40, 5, 1, noise=0.5)
    a, b = models(data, 2)
    found = compare_policies({"mu": a, "pi": b})
    one, two = policy_value(a), policy_value(b)
    assert_close(found.difference[0, 1], one.value - two.value, "sums")
    assert_close(found.difference, -found.difference.T, "sums")
    assert_close(found.lower, -found.upper.T, "sums")
    assert found.standard_error[0, 1] < np.hypot(one.standard_error, two.standard_error)
    assert found.values[0].lower == one.lower
    width = (found.upper - found.lower)[0, 1] / 2 / found.standard_error[0, 1]
    assert special.stdtrit(61, 0.975) < width < special.stdtrit(5, 0.975)


def test_a_policy_does_not_differ_from_itself():
    model = LSTDQ(0.9).fit(**logged(30))
    found = compare_policies([model, model, model])
    assert not found.standard_error.any()
    assert not found.apart.any()
    assert found.best == (0, 1, 2)


@pytest.mark.parametrize("sample", ["episodes", "independent", "fixed"])
def test_intervals_of_several_policies_are_wider_than_of_two_and_narrower_than_bonferroni(sample):
    found = models(PROCESS.simulate(40, 5, 1, noise=0.5), 4)
    pair = compare_policies(found[:2], sample=sample)
    many = compare_policies(found, sample=sample)
    again = compare_policies(found, sample=sample, seed=1)
    one, all_of_them, other = (x.upper[0, 1] - x.difference[0, 1] for x in (pair, many, again))
    assert one < all_of_them < 2.0 * one
    assert abs(other / all_of_them - 1.0) < 0.05


def changed(**columns):
    """A model of the same rows but for some columns."""
    return LSTDQ(0.9).fit(**logged(30) | columns)


WIDE = len(logged(30)["y"]) + 1


def test_weights_of_all_models_are_the_same():
    data, n = logged(30), len(logged(30)["y"])
    plain, weighted = (
        LSTD(0.9).fit(data["X"], data["y"], weight=w, episode=data["episode"], terminated=data["terminated"])
        for w in (np.ones(n), np.linspace(1.0, 2.0, n))
    )
    with pytest.raises(InvalidInputError, match="rewards and weights; those of 'a' and 'b' differ"):
        compare_policies({"a": plain, "b": weighted}, data["X"][:3])
    compare_policies([plain, plain], data["X"][:3])
    compare_policies([changed(), changed(weight=np.ones(n))])


def test_rewards_of_models_of_states_and_of_loaded_models_are_the_same(tmp_path):
    data = logged(30)
    X, y, rows = data["X"], data["y"], {"episode": data["episode"], "terminated": data["terminated"]}
    swapped = y.copy()
    swapped[:2] = y[1::-1]
    assert swapped[0] != y[0]  # the same rewards in another order
    one, other = (LSTD(0.9).fit(X, rewards, **rows) for rewards in (y, swapped))
    with pytest.raises(InvalidInputError, match="rewards and weights; those of 0 and 1 differ"):
        compare_policies([one, other], X[:3])
    in_chunks = LSTD(0.9).partial_fit(X[:7], y[:7], **{name: values[:7] for name, values in rows.items()})
    in_chunks.partial_fit(X[7:], y[7:], **{name: values[7:] for name, values in rows.items()})
    one.save(tmp_path / "one")
    compare_policies([load(tmp_path / "one"), in_chunks], X[:3])
    changed().save(tmp_path / "actions")
    loaded = load(tmp_path / "actions")
    compare_policies([loaded, changed()])
    with pytest.raises(InvalidInputError, match="rewards and weights; those of 0 and 1 differ"):
        compare_policies([loaded, changed(y=swapped)])


def test_the_ranking_names_what_the_data_cannot_tell_apart():
    X, actions, done = np.ones((400, 1)), np.arange(400) % 2, np.ones(400, dtype=bool)
    y = 1.0 + 2.0 * actions + np.random.default_rng(0).normal(size=400)
    shares = {"low": 0.1, "alike": 0.89, "high": 0.9}
    fitted = {
        name: LSTDQ(alpha=0.0, fit_intercept=False).fit(
            X, y, actions=actions, terminated=done, target_policy=np.full((400, 2), [1 - share, share])
        ) for name, share in shares.items()
    }  # fmt: skip
    found = compare_policies(fitted)
    assert found.order.tolist() == [2, 1, 0]
    assert found.best == ("high",)  # paired: their difference is known, as it is .01 times that of the actions
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines] == ["policy", "high", "alike", "low"]
    assert lines[1].endswith("none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: {"models": [one]}, "`models` must be at least two; got 1"),
        (lambda one: {"models": [one, LSTDQ(0.9).fit(**logged(31))]}, "same rows in the same order"),
        (
            lambda one: {"models": [one, changed(y=logged(30)["y"] + 1.0)]},
            "rewards and weights; those of 0 and 1 differ",
        ),
        (
            lambda one: {"models": [one, changed(weight=np.arange(1.0, WIDE))]},
            "rewards and weights; those of 0 and 1 differ",
        ),
        (lambda one: {"models": one}, "`models` must be a dict or a list; got LSTDQ"),
        (lambda one: {"models": [one, one], "target_policies": [None]}, "one policy for each of the 2 models"),
        (lambda one: {"models": [one, one], "target_policies": {0: None, "b": None}}, r"same names, \[0, 1\]; got"),
        (lambda one: {"models": [one, one], "seed": -1}, "`seed`"),
        (lambda one: {"models": [one, "two"]}, "`model` must be a fitted LSTDQ"),
    ],
)
def test_bad_input_is_refused(change, message):
    with pytest.raises(InvalidInputError, match=message):
        compare_policies(**change(LSTDQ(0.9).fit(**logged(30))))
