"""Values with rows weighted by visits, doubly robust values, checks of features, and the one call."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import naive
from logged_actions import PROCESS, DecisionProcess
from lstd import LSTD
from lstd.errors import EffectiveSampleWarning, InvalidInputError, SupportWarning
from lstd.ope import LSTDQ, EpsilonGreedy, compare_policies, evaluate_policy, policy_value
from lstd.ope.logged_rows import logged_data
from lstd.ope.logged_states import LoggedStates, feature_check
from tolerances import assert_close

GAMMA = 0.9
pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),  # of small logs
    pytest.mark.usefixtures("few_trees"),
]
GROUPS = np.repeat(np.eye(2), 2, axis=0)  # one feature for two states each


def simulated(n=60, length=6, seed=1, p_end=0.2, process=PROCESS):
    """Logged rows of the process, and raw columns of their states."""
    data = process.simulate(n, length, seed, p_end=p_end)
    return data, data["X"] @ np.arange(4.0)[:, np.newaxis]


def never_twice(state):
    """Raw columns with one of noise, so that no pair recurs and no table of pairs is taken."""
    return np.column_stack([state, np.random.default_rng(7).uniform(size=len(state))])


def states_of(data, state=None, **options):
    return LoggedStates.of(logged_data(data, GAMMA), GAMMA, state, **options)


def ratio_of(data):
    rows = np.arange(len(data["y"]))
    return data["target_policy"][rows, data["actions"]] / data["behavior_probability"]


def by_lstd(data, weight, rewards, alpha):
    """LSTD with ratios, and its mean value of first states."""
    full = np.flatnonzero(~np.isnan(data["y"]))
    column, y = np.ones(len(data["y"])), data["y"].copy()
    column[full], y[full] = weight, rewards
    arrays = {name: data[name] for name in ("X", "episode", "terminated")}
    model = LSTD(GAMMA, 0.0, alpha=alpha).fit(**arrays, y=y, importance_ratio=ratio_of(data), weight=column)
    return model, model.predict(data["X"][np.diff(data["episode"], prepend=-1) > 0]).mean()


def test_one_call_says_what_it_took_and_what_it_took_it_from():
    data, state = simulated()
    state = never_twice(state)
    found = evaluate_policy(gamma=GAMMA, state=state, **data)
    one, direct = found.candidates[found.method], found.candidates["action values"]
    assert (found.lower, found.upper) == (one.lower, one.upper)
    unshrunk = "" if f"{one.value:.4g}" == f"{found.value:.4g}" else f" (unshrunk {one.value:.4g})"
    assert str(found).startswith(f"{found.method}: {found.value:.4g}{unshrunk}, interval [{found.lower:.4g}, ")
    c, s = one.value - direct.value, np.linalg.norm(one.by_blocks.blocks - direct.by_blocks.blocks)
    assert_close(found.value, direct.value + max(0.0, 1.0 - s**2 / c**2) * c, "sums")
    assert {"state values", "weighted state values", "doubly robust"} <= {*found.candidates}
    full = ~np.isnan(data["y"])
    settings = found.candidates["state values"].by_blocks.fitted.settings
    squares = (data["X"][full] ** 2 * ratio_of(data)[full, np.newaxis]).sum(axis=0)
    assert_close(settings.alpha, 1e-5 * squares.mean(), "sums")
    plain = by_lstd(data, 1.0, data["y"][full], settings.alpha)[1]
    assert_close(found.candidates["state values"].value, plain, "solve")
    assert_close(found.importance_ratio, ratio_of(data)[full], "sums")
    assert found.value == evaluate_policy(gamma=GAMMA, state=state, **data).value
    assert found.lower < found.value < found.upper
    robust, weighted = (found.candidates[name].by_blocks for name in ("doubly robust", "weighted state values"))
    assert_close(found.features.difference[2], robust.value - weighted.value, "sums")
    assert_close(found.features.standard_error[2], np.linalg.norm(robust.blocks - weighted.blocks), "sums")


@pytest.mark.parametrize("coarse", [False, True])
def test_where_nothing_speaks_against_features_the_mean_of_least_variance_is_taken(coarse):
    data, state = simulated(400, 6, process=DecisionProcess(seed=6), p_end=0.1)
    state = never_twice(state)
    data |= {"X": data["X"] @ GROUPS} if coarse else {}
    found = evaluate_policy(gamma=GAMMA, state=state, **data)
    agrees = bool((found.features.p_value[:2] > 0.05).all())
    assert agrees == found.features.agrees == (not coarse)
    assert found.method == ("doubly robust" if coarse else "least-variance mean")
    names = ("doubly robust", "weighted state values")
    parts = [found.candidates[name].by_blocks for name in names]
    value, contributions = naive.least_variance_mean([one.value for one in parts], [one.blocks for one in parts])
    mean = found.candidates["least-variance mean"]
    assert_close(mean.value, value, "sums")
    assert_close(mean.by_blocks.blocks, contributions, "sums")
    assert_close(mean.standard_error, np.linalg.norm(contributions), "sums")
    assert mean.standard_error <= min(found.candidates[name].standard_error for name in names)
    full = ~np.isnan(data["y"])
    weighted = found.candidates["weighted state values"]
    assert_close(weighted.dual_weights @ data["y"][full], weighted.value, "solve")
    for one in parts:  # the same, of rewards or of errors of action values
        assert_close(mean.dual_weights, one.dual, "solve")


@pytest.mark.usefixtures("real_trees")
def test_visits_are_those_of_the_target_policy():
    process = DecisionProcess(seed=6)  # with ratios of visits from 0.66 to 1.18
    data, state = simulated(600, 8, process=process, p_end=0.1)
    log = states_of(data, state)
    start = np.full(4, 0.25)
    moves = {"log": process.mu, "target": process.pi}
    P = {name: 0.9 * np.einsum("sa,sat->st", policy, process.P) for name, policy in moves.items()}  # .1 end
    often = sum(start @ np.linalg.matrix_power(P["log"], t) for t in range(8))
    discounted = start @ np.linalg.inv(np.eye(4) - GAMMA * P["target"])
    expected = (discounted / often)[log.at[:, 0].astype(int)]
    from_nothing = log.visits(np.ones(len(log.fold)))
    for u in (log.u, from_nothing):
        assert np.abs(u / u.mean() / (expected / expected.mean()) - 1.0).max() < 0.1
    assert_close(log.u.mean(), 1.0, "sums")


def test_a_log_of_single_steps_has_a_value():
    random, n = np.random.default_rng(0), 400
    X, actions, done = np.eye(4)[random.integers(4, size=n)], random.integers(2, size=n), np.ones(n, bool)
    policies = {"target_policy": np.full((n, 2), [0.2, 0.8]), "behavior_probability": np.full(n, 0.5)}
    y = X @ np.arange(4.0) + 2.0 * actions + random.normal(size=n)
    found = evaluate_policy(X, y, gamma=GAMMA, actions=actions, episode=np.arange(n), terminated=done, **policies)
    assert found.lower < X.mean(axis=0) @ np.arange(4.0) + 1.6 < found.upper


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"episode": np.zeros(300, int), "terminated": np.arange(300) == 299},
            "`episode` must have at least 5 episodes",
        ),
        (
            {"target_policy": np.full((300, 3), [0.0, 0.0, 1.0])},
            "`target_policy` must be able to take some of the logged",
        ),
        ({"state": np.full((300, 1), np.nan)}, "`state` must have no infinite number and no column of nan alone"),
    ],
)
def test_logs_that_say_nothing_are_refused(change, message):
    rows = {"episode": np.arange(300) // 5, "terminated": np.arange(300) % 5 == 4}
    policies = {"target_policy": np.full((300, 3), 1 / 3), "behavior_probability": np.full(300, 0.5)}
    with pytest.raises(InvalidInputError, match=message):
        evaluate_policy(
            np.ones((300, 1)), np.ones(300), gamma=GAMMA, actions=np.arange(300) % 2, **rows | policies | change
        )  # fmt: skip


def test_weighted_and_doubly_robust_values_are_those_of_lstd():
    data, state = simulated()
    alpha, full = 0.1, ~np.isnan(data["y"])
    model = by_lstd(data, 1.0, data["y"][full], alpha)[0]
    log = states_of(data, state, given=model.model_)
    found = policy_value(model, data=data, state=state)
    assert_close(found.value, by_lstd(data, log.u, data["y"][full], alpha)[1], "solve")
    assert found.method == "weighted state values"

    def q(X):
        return X @ PROCESS.r + 1.0

    found = policy_value(model, data=data, state=state, q=q)
    v = (q(data["X"]) * data["target_policy"]).sum(axis=1)
    following = np.where(data["terminated"], 0.0, GAMMA * np.append(v[1:], 0.0))[full]
    delta = data["y"][full] + following - q(data["X"])[np.arange(len(v)), data["actions"]][full]
    first = np.diff(data["episode"], prepend=-1) > 0
    corrected, correction = by_lstd(data, log.u, delta, alpha)
    assert_close(found.value, v[first].mean() + correction, "solve")
    assert found.method == "doubly robust"
    values = v[first] + corrected.predict(data["X"][first])
    without = corrected.model_.influence.vectors[:, 0] @ np.append(data["X"][first].mean(axis=0), 1.0)
    assert len(without) == first.sum() == len(values)
    scatter = (values - values.mean()) / first.sum() / np.sqrt(1.0 - 1.0 / first.sum())
    assert_close(found.standard_error, np.linalg.norm(without + scatter), "solve")  # the part of q included


def test_action_values_are_fitted_out_of_fold():
    data, state = simulated()
    log, model = states_of(data, state), LSTDQ(GAMMA, alpha=0.1).fit(**data)
    taken, after, start = log.action_values(model)
    k = int(log.fold[0])
    rest = np.ones(len(data["y"]))
    rest[model.logged_.full] = log.fold != k
    other = LSTDQ(GAMMA, alpha=0.1).fit(**data, weight=rest)
    own = log.fold == k
    rows = model.logged_.full[own]
    assert_close(taken[own], other.predict(data["X"][rows], data["actions"][rows]), "solve")
    assert_close(start[0], other.state_values(data["X"][:1], data["target_policy"][:1])[0], "solve")
    assert len(after) == len(taken)
    linear = log.action_values(LinearRegression())
    again = states_of(data, state, seed=5).action_values(LinearRegression())
    assert not np.allclose(linear[0], again[0])  # other folds


def test_the_first_td_errors_are_those_of_the_definition():
    data, state = simulated(p_end=0.0)
    log = states_of(data, state)
    v = log.plain.fitted.predict(data["X"])
    sums = [
        naive.first_td_errors(data["y"][rows], v[rows], ratio_of(data)[rows], GAMMA, 5)
        for rows in (np.flatnonzero(data["episode"] == e) for e in range(60))
    ]
    assert_close(feature_check(log).difference, [log.plain.value - log.weighted.value, np.mean(sums)], "solve")


@pytest.mark.usefixtures("real_trees")
def test_coarse_features_are_noticed_and_right_ones_are_not():
    process, warned = DecisionProcess(seed=6), []
    for coarse in (False, True):
        data, state = simulated(400, 6, process=process, p_end=0.1)
        data |= {"X": data["X"] @ GROUPS} if coarse else {}
        check = feature_check(states_of(data, state))
        warned.append(check.coarse)
    assert warned == [False, True]
    assert "too coarse for the target policy; compared were: value less the weighted one" in check.text


def test_weighted_action_values_are_those_of_weighted_rows():
    data, state = simulated()
    model = LSTDQ(GAMMA, alpha=0.1).fit(**data)
    found = policy_value(model, state=state)
    log = states_of(data, state)
    weight = np.ones(len(data["y"]))
    weight[model.logged_.full] = log.u * log.ratio
    assert_close(
        found.value, policy_value(LSTDQ(GAMMA, alpha=0.1, weighting="none").fit(**data, weight=weight)).value, "solve"
    )
    assert found.method == "weighted action values"
    with pytest.raises(InvalidInputError, match="`behavior_probability` must be given, for importance ratios"):
        policy_value(LSTDQ(GAMMA).fit(**data | {"behavior_probability": None}), state=state)


def test_rows_may_be_weighted_by_ratios():
    data, state = simulated()
    weight = np.nan_to_num(0.99 * ratio_of(data) + 0.01, nan=1.0)
    one, plain = LSTDQ(GAMMA, alpha=0.1).fit(**data), LSTDQ(GAMMA, alpha=0.1, weighting="none").fit(**data)
    two = LSTDQ(GAMMA, alpha=0.1, weighting="none").fit(**data, weight=weight)
    assert_close(one.coef_, two.coef_, "solve")
    without = LSTDQ(GAMMA, alpha=0.1).fit(**data | {"behavior_probability": None})
    assert_close(plain.coef_, without.coef_, "solve")
    assert_close(*(policy_value(model, state=state).value for model in (one, plain)), "solve")  # visits replace it
    traced = [LSTDQ(GAMMA, 0.5, weighting=weighting).fit(**data).coef_ for weighting in ("auto", "none")]
    assert_close(*traced, "solve")
    compare_policies([one, plain])
    with pytest.raises(InvalidInputError, match="`behavior_probability` must be given for weighting"):
        LSTDQ(GAMMA, weighting="ratio").fit(**data | {"behavior_probability": None})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_states": np.ones((2, 4))}, "`initial_states` must not be given"),
        ({"state": np.ones((2, 1))}, "`state` must have one row per row of `X`"),
        ({"data": None}, "`data` must be given with `state` or `q` for an LSTD"),
        ({"data": {"X": 1}}, "`data` must have 'y'; it needs X, y, actions, target_policy"),
        ({"q": 3.0}, "`q` must be a regressor of scikit-learn"),
        ({"q": lambda X: X[:, 0]}, r"`q\(X\)` must have one value for each row and action"),
        ({"model": LSTD(GAMMA).fit(np.ones((9, 4)), np.ones(9))}, "`data` must be the rows that `model` was fitted to"),
    ],
)
def test_bad_input_is_refused(options, message):
    data, state = simulated()
    model = by_lstd(data, 1.0, data["y"][~np.isnan(data["y"])], 1.0)[0]
    with pytest.raises(InvalidInputError, match=message):
        policy_value(**{"model": model, "data": data, "state": state} | options)


def test_the_value_is_in_its_interval_also_with_bad_action_values():
    data, _ = simulated()
    off = 30.0 * np.random.default_rng(0).normal(size=(5, 4, 1))
    for wrong in off:
        found = evaluate_policy(gamma=GAMMA, q=lambda X: X @ wrong + np.zeros(3), **data)  # noqa: B023
        assert found.lower <= found.value <= found.upper


def test_a_model_is_compared_with_its_value_weighted_by_visits():
    data, state = simulated()
    data = {name: np.append(column, column[-1:], axis=0) for name, column in data.items()}  # one that has just begun
    data["episode"][-1], data["y"][-1], data["terminated"][-1] = 60, np.nan, False
    state = np.append(state, state[-1:], axis=0)
    columns = {name: data[name] for name in ("X", "y", "episode", "terminated")}
    model = LSTD(GAMMA, 0.0, n_blocks=20).fit(**columns, importance_ratio=ratio_of(data))
    first = data["X"][np.diff(data["episode"], prepend=-1) > 0]
    weighted = policy_value(model, data=data, state=state)
    for q in (LinearRegression(), LSTDQ(GAMMA).fit(**data), lambda X: X @ PROCESS.r):
        compare_policies([weighted, policy_value(model, data=data, state=state, q=q)])
    found = compare_policies([model, weighted], first)
    assert_close(found.difference[0, 1], policy_value(model, first).value - weighted.value, "sums")
    twice = columns | {"y": 2.0 * data["y"]}
    other = LSTD(GAMMA, 0.0, n_blocks=20).fit(**twice, importance_ratio=ratio_of(data))
    with pytest.raises(InvalidInputError, match="same rewards and weights"):
        compare_policies([other, weighted], first)


def test_wrong_probabilities_are_said_of_every_value():
    data, state = simulated(n=200)
    data["behavior_probability"] = np.where(data["actions"] == 0, 0.9, 0.05)
    with pytest.warns(SupportWarning, match="mean"):
        model = by_lstd(data, 1.0, data["y"][~np.isnan(data["y"])], 1.0)[0]
    first = data["X"][np.diff(data["episode"], prepend=-1) > 0]
    for arguments in ({"state": state}, {"initial_states": first}):
        with pytest.warns(SupportWarning, match="mean"):
            found = policy_value(model, data=data, **arguments)
        assert any("ratio" in text for text in found.said)
        assert f"ratios of mean {found.importance_ratio.mean():.3g}" in str(found)
    assert found == policy_value(model, first)


@pytest.mark.parametrize("name", ["age", "state[0]"])
def test_wrong_probabilities_are_said_of_raw_columns(name):
    random, n = np.random.default_rng(0), 4000
    state, actions = random.normal(size=(n, 1)), random.integers(2, size=n)
    p = np.where(state[:, 0] > 0.0, 0.8, 0.2)  # that action 1 is taken; said to be half
    actions = (random.uniform(size=n) < p) * 1
    state = np.where(random.uniform(size=(n, 1)) < 0.1, np.nan, state)
    with pytest.warns(SupportWarning, match=rf"of rows with {re.escape(name)} (above|not above) -0.03"):
        evaluate_policy(
            np.ones((n, 1)), np.ones(n), gamma=GAMMA, actions=actions, target_policy=np.full((n, 2), [0.3, 0.7]),
            behavior_probability=np.full(n, 0.5), episode=np.arange(n) // 4, terminated=np.arange(n) % 4 == 3,
            state=state if name != "age" else pd.DataFrame(state, columns=["age"]),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": LinearRegression}, "`q` must be a regressor of scikit-learn, a fitted LSTDQ or callable; got"),
        ({"random_state": "some"}, "`random_state` must be an integer"),
        (
            {"weight": np.ones(3)},
            "`weight` must not be given: it is no argument of evaluate_policy. Use `policy_value`",
        ),
        ({"target_policy": pd.DataFrame(np.full((400, 3), 1 / 3), columns=[*"abc"])}, r"a column for each.*\['a', 'b'"),
    ],
)
def test_bad_arguments_of_the_one_call_are_refused(change, message):
    data, _ = simulated()
    change = {name: one[: len(data["y"])] if hasattr(one, "columns") else one for name, one in change.items()}
    with pytest.raises(InvalidInputError, match=message):
        evaluate_policy(gamma=GAMMA, **data | change)


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of a small log
def test_a_function_that_could_take_the_state_or_the_features_is_refused():
    data, state = simulated()
    calls = []

    def policy(states):
        calls.append(states)
        return np.full((len(states), 3), 1 / 3)

    with pytest.raises(InvalidInputError, match=r"`policy_of` must be given with a function .*\"X\" or \"state\""):
        evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": policy})
    assert not calls
    greedy = EpsilonGreedy(LSTDQ(GAMMA, alpha=0.1).fit(**data), 0.3)
    found = evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": greedy})
    by_array = evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": greedy(data["X"])})
    assert found == by_array
    found = evaluate_policy(gamma=GAMMA, **data | {"target_policy": policy})
    assert found == evaluate_policy(gamma=GAMMA, **data | {"target_policy": policy(data["X"])})


def test_action_values_of_columns_in_another_order_are_refused():
    data, _ = simulated()
    X = pd.DataFrame(data.pop("X"), columns=[*"abcd"])
    q = LSTDQ(GAMMA, alpha=0.1).fit(X[[*"dcba"]], **data)
    with pytest.raises(InvalidInputError, match=r"`q` must be fitted to the columns of `X` in their order, \['a'"):
        evaluate_policy(X, gamma=GAMMA, q=q, **data)


@pytest.mark.filterwarnings("error")
@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_small_effective_samples_and_missing_actions_are_said():
    X, done = np.ones((400, 1)), np.ones(400, bool)
    actions, policy = np.arange(400) % 40 == 0, np.full((400, 2), [0.0, 1.0])
    mu = np.where(actions, 1 / 40, 39 / 40)
    model = LSTD(GAMMA, 0.0).fit(X, X[:, 0], terminated=done, importance_ratio=np.where(actions, 1.0, 0.0) / mu)
    with pytest.warns(EffectiveSampleWarning, match="effective sample of 10 of 400 transitions"):
        assert "effective sample" in policy_value(model, X).said[0]
    never = LSTDQ(GAMMA).fit(X, X[:, 0], actions=np.zeros(400, int), terminated=done, target_policy=policy)
    with pytest.warns(SupportWarning, match="100 % are without a like in the log"):
        policy_value(never)


def test_policies_are_compared_by_their_values():
    data, state = simulated()
    state = never_twice(state)
    found = {
        name: evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": policy[data["X"].argmax(axis=1)]})
        for name, policy in {"target": PROCESS.pi, "log": PROCESS.mu}.items()
    }
    comparison = compare_policies(found)
    assert [one.said for one in comparison.values] == [one.said for one in found.values()]
    assert comparison.values[0].importance_ratio is found["target"].importance_ratio
    one, two = (found[name].by_blocks for name in ("target", "log"))
    assert comparison.difference[0, 1] == found["target"].value - found["log"].value  # as they are printed
    assert_close(comparison.standard_error[0, 1], np.linalg.norm(one.blocks - two.blocks), "sums")
    assert_close((comparison.lower + comparison.upper)[0, 1] / 2.0, one.value - two.value, "sums")
    narrow = compare_policies(found, level=1e-6)  # where shrinking moves the difference further than its interval
    assert np.all((narrow.lower <= narrow.difference) & (narrow.difference <= narrow.upper))
    assert [one.lower <= one.value <= one.upper for one in narrow.values] == [True, True]
    other = evaluate_policy(gamma=GAMMA, state=state, **data | {"y": 2.0 * data["y"]})
    with pytest.raises(InvalidInputError, match="same rewards and weights"):
        compare_policies({"one": found["log"], "two": other})
