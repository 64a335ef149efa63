"""Importance sampling against its definitions, and its identities with LSTD."""

import warnings

import numpy as np
import pandas as pd
import pytest

import naive
from logged_actions import PROCESS, logged
from lstd.errors import EffectiveSampleWarning, InvalidInputError, UnusedRewardWarning
from lstd.ope import LSTDQ, importance_sampling
from lstd.ope.step_ratios import step_ratios
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")  # of a few episodes
ESTIMATORS = ("is", "pdis", "wis", "wpdis", "dr", "wdr")


def values_of_actions(X):
    return np.column_stack([X[:, 0], X[:, 1] ** 2, X.sum(axis=1)])


def episodes(data, gamma, q=values_of_actions):
    """The episodes as :func:`naive.importance_sampling` takes them."""
    pi, q = data["target_policy"], q(data["X"])
    v = (pi * q).sum(axis=1)
    for name in dict.fromkeys(data["episode"].tolist()):
        rows = np.flatnonzero(data["episode"] == name)
        ends = data["terminated"][rows[-1]]
        full = rows if ends else rows[:-1]
        a = data["actions"][full]
        yield {
            "rewards": data["y"][full], "ratios": pi[full, a] / data["behavior_probability"][full], "q": q[full, a],
            "v": np.append(v[rows], [0.0] * int(ends)),
        }  # fmt: skip


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimates_are_those_of_the_definition(estimator):
    data = logged(8)
    found = importance_sampling(gamma=0.9, estimator=estimator, q=values_of_actions, **data)
    parts = list(episodes(data, 0.9))
    assert_close(found.value, naive.importance_sampling(estimator, parts, 0.9), "sums")
    without = [
        found.value - naive.importance_sampling(estimator, parts[:e] + parts[e + 1 :], 0.9) for e in range(8)
    ]  # the mean of v at the start is exact; with several steps, the jackknife of weighted ones too
    assert_close(found.standard_error, np.sqrt(7 / 8 * np.sum(np.square(without))), "sums")
    assert found.lower < found.value < found.upper


def test_groups_are_the_units_of_the_interval():
    data = logged(8)
    once = importance_sampling(gamma=0.9, estimator="pdis", **data)
    alone = importance_sampling(gamma=0.9, estimator="pdis", groups=data["episode"], **data)
    assert_close([once.value, once.standard_error], [alone.value, alone.standard_error], "sums")
    twice = {name: np.concatenate([values, values]) for name, values in data.items()}
    groups = twice["episode"].copy()
    twice["episode"] = np.repeat([0, 100], len(groups) // 2) + groups
    both = importance_sampling(gamma=0.9, estimator="pdis", groups=groups, **twice)
    assert_close([both.value, both.standard_error], [once.value, once.standard_error], "sums")


def test_without_a_target_policy_it_is_the_mean_return():
    data = PROCESS.simulate(40, 5, 1)
    arrays = {name: data[name] for name in ("X", "y", "episode", "terminated")}
    returns = np.array([np.polyval(one["rewards"][::-1], 0.9) for one in episodes(data, 0.9)])
    for estimator in ESTIMATORS[:4]:
        found = importance_sampling(gamma=0.9, estimator=estimator, **arrays)
        assert_close(found.value, returns.mean(), "sums")
        assert_close(found.standard_error, returns.std(ddof=1) / np.sqrt(40), "sums")
        assert_close(found.effective_sample_size, 40.0, "sums")


def test_labels_of_actions_and_data_frames_change_nothing():
    data = logged(8)
    model = LSTDQ(0.9).fit(**data)
    by_name = data | {"X": pd.DataFrame(data["X"], columns=[f"x{i}" for i in range(data["X"].shape[1])])}
    of_frame = LSTDQ(0.9).fit(**by_name)
    labels = np.array(["c", "a", "b"])
    by_label = data | {"actions": labels[data["actions"].astype(int)]}
    plain = importance_sampling(gamma=0.9, estimator="dr", q=model, **data)
    assert plain == importance_sampling(gamma=0.9, estimator="dr", q=model, labels=labels, **by_label)
    mixed = by_name | {"X": by_name["X"].iloc[:, ::-1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnusedRewardWarning)
        warnings.simplefilter("ignore", EffectiveSampleWarning)
        assert plain == importance_sampling(gamma=0.9, estimator="dr", q=of_frame, **mixed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "ips"}, "`estimator` must be one of"),
        ({"estimator": "dr"}, "`q` must be given"),
        ({"estimator": "dr", "q": 1.0}, "`q` must be a fitted LSTDQ, or callable"),
        ({"estimator": "dr", "q": lambda X: X[:, 0]}, r"`q\(X\)` must have one value for each row and action"),
        ({"actions": None}, "`actions` must be given"),
        (
            {"importance_ratio": np.ones(len(logged(8)["y"]))},
            "`target_policy` must not be given with `importance_ratio`",
        ),
        ({"target_policy": None}, "`target_policy` must be given"),
        ({"behavior_probability": None}, "`behavior_probability` must be given with `target_policy`.*use an LSTDQ"),
        ({"gamma": 1.5}, "`gamma`"),
        (
            {"estimator": "wis", "target_policy": np.eye(3)[(logged(8)["actions"].astype(int) + 1) % 3]},
            "`target_policy` must be able to take all logged actions",
        ),
        ({"groups": np.zeros(len(logged(8)["y"]))}, "at least two episodes or groups"),
    ],
)
@pytest.mark.filterwarnings("ignore::lstd.errors.SupportWarning")  # of ratios of zero
def test_bad_input_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        importance_sampling(**{"gamma": 0.9} | logged(8) | options)


@pytest.mark.parametrize("estimator", ESTIMATORS[:4])
def test_ratios_may_be_given_in_place_of_policies(estimator):
    data = logged(8)
    rows = np.arange(len(data["y"]))
    ratio = data["target_policy"][rows, data["actions"]] / data["behavior_probability"]
    arrays = {name: data[name] for name in ("X", "y", "episode", "terminated")}
    found = importance_sampling(gamma=0.9, estimator=estimator, importance_ratio=ratio, **arrays)
    other = importance_sampling(gamma=0.9, estimator=estimator, **data)
    assert found == other
    assert_close(found.step_values.sum(), found.value, "sums")
    assert_close(found.importance_ratio, ratio[~np.isnan(data["y"])], "sums")


def test_step_values_are_those_of_each_step():
    data = logged(8)
    for estimator in ("pdis", "wdr"):
        found = importance_sampling(gamma=0.9, estimator=estimator, q=values_of_actions, **data)
        assert_close(found.step_values.sum(), found.value, "sums")
    parts = list(episodes(data, 0.9))
    first = np.mean([one["ratios"][0] * one["rewards"][0] for one in parts])
    assert_close(importance_sampling(gamma=0.9, estimator="pdis", **data).step_values[0], first, "sums")


def test_ratios_by_step_and_their_products_are_those_of_the_definition():
    data = logged(8)
    by_step = step_ratios(LSTDQ(0.9).fit(**data).logged_)
    ratios = [one["ratios"] for one in episodes(data, 0.9)]
    for t in range(len(by_step.mean)):
        at_step = [one[t] for one in ratios if len(one) > t]
        assert_close(by_step.mean[t], np.mean(at_step), "sums")
        products = np.array([np.prod(one[: t + 1]) for one in ratios])
        assert_close(by_step.sizes[t], products.sum() ** 2 / (products**2).sum(), "sums")


def test_a_printed_value_has_the_mean_ratio_the_largest_and_the_share_of_zeros():
    actions, done = np.arange(200) % 4 == 0, np.ones(200, bool)
    policies = {"target_policy": np.full((200, 2), [1.0, 0.0]), "behavior_probability": np.where(actions, 0.25, 0.8)}
    found = importance_sampling(
        np.ones((200, 1)), np.arange(200.0), gamma=1.0, actions=actions, terminated=done, **policies
    )
    assert str(found).endswith(", ratios of mean 0.938, largest 1.25, 25 % zero")
    assert "ratios" not in str(importance_sampling(np.ones((200, 1)), np.arange(200.0), gamma=1.0, terminated=done))


def test_it_says_when_no_episode_is_left():
    X, actions, episode = np.ones((6, 1)), np.array([1, 0, 1, 0, 1, 1]), np.repeat([0, 1, 2], 2)
    given = {"gamma": 1.0, "actions": actions, "episode": episode, "terminated": np.arange(6) % 2 == 1}
    policies = {"target_policy": np.eye(2)[[1, 1, 1, 1, 0, 0]], "behavior_probability": np.full(6, 0.5)}
    with pytest.raises(
        InvalidInputError, match=r"of 3 episodes none is left after 1 of 2 steps.*first one in row 1\..*Mix"
    ):
        importance_sampling(X, np.ones(6), **given, **policies)


def test_few_episodes_of_the_target_policy_itself_are_said_to_be_few():
    policy = {"target_policy": np.full((30, 2), 0.5), "behavior_probability": np.full(30, 0.5)}
    with pytest.warns(EffectiveSampleWarning, match="sample of 30 of 30 episodes: these are few, and the interval"):
        importance_sampling(
            np.ones((30, 1)),
            np.arange(30.0),
            gamma=1.0,
            actions=np.arange(30) % 2,
            terminated=np.ones(30, bool),
            **policy,
        )


@pytest.mark.parametrize(("n", "few"), [(70, False), (60, True)])  # ratios of 1/2 and 3/2 leave 4/5 of them
def test_it_warns_of_an_effective_sample_below_fifty_episodes(n, few):
    X, actions, done = np.ones((n, 1)), np.arange(n) % 2, np.ones(n, dtype=bool)
    policy = {"target_policy": np.full((n, 2), [0.25, 0.75]), "behavior_probability": np.full(n, 0.5)}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = importance_sampling(X, 1.0 * actions, gamma=1.0, actions=actions, terminated=done, **policy)
        importance_sampling(X, 1.0 * actions, gamma=1.0, terminated=done)  # no ratios
    assert_close(found.effective_sample_size, 0.8 * n, "sums")
    assert [one.category for one in given] == [EffectiveSampleWarning] * few
    assert all("an effective sample of 48 of 60 episodes: a few of them" in str(one.message) for one in given)


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize(("estimator", "n_left"), [("pdis", 0), ("pdis", 1), ("wis", 1)])
def test_an_interval_without_two_episodes_that_are_left_is_infinite(estimator, n_left):
    actions = np.zeros(50, np.intp)
    actions[:n_left] = 1
    found = importance_sampling(
        np.ones((50, 1)), np.ones(50), gamma=1.0, actions=actions, target_policy=np.tile([0.0, 1.0], (50, 1)),
        behavior_probability=np.full(50, 0.5), terminated=np.ones(50, bool), estimator=estimator,
    )  # fmt: skip
    assert (found.lower, found.upper, found.little_data) == (-np.inf, np.inf, True)
