"""Target policies in any form, successors that are given, and ratios in place of actions."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.tree import DecisionTreeClassifier

from logged_actions import PROCESS
from lstd import LSTD
from lstd.errors import InvalidInputError
from lstd.ope import LSTDQ, EpsilonGreedy, StateActionFeatures, evaluate_policy, importance_sampling, policy_value
from tolerances import assert_close

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning"),  # of small logs
    pytest.mark.usefixtures("few_trees"),
]
GAMMA = 0.9


def simulated(n=60, length=6, seed=1, p_end=0.2):
    """Logged rows of the process, and raw columns of their states."""
    data = PROCESS.simulate(n, length, seed, p_end=p_end)
    return data, data["X"] @ np.arange(4.0)[:, np.newaxis]


BEST = np.array([0, 2, 1, 1])  # the action of a policy in each state of the process


class Agent:
    """As an agent of Stable-Baselines3: `predict` returns actions and the state of the agent, drawn unless told."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        return BEST[observation[:, 0].astype(int)], None


class Learner:
    """As one of d3rlpy."""

    def predict(self, x):
        return BEST[x[:, 0].astype(int)]


# ---------------------------------------------------------------- forms of a policy


@pytest.fixture(scope="module")
def of_array():
    """What each way says of the policy as an array of probabilities; the first test computes it."""
    return {}


def values_of(data, state, policy, more):
    """Return the value by each way, of a policy in any form."""
    rows = data | {"X": state, "target_policy": policy}
    return {
        "evaluated": evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": policy}, **more),
        "coef": LSTDQ(GAMMA).fit(**rows).coef_.tolist(),
        "sampled": importance_sampling(gamma=GAMMA, **rows, estimator="pdis"),
    }


@pytest.mark.parametrize("form", ["actions", "column", "function", "column of a function", "table", "agent", "learner"])
def test_a_policy_that_takes_one_action_may_be_given_in_any_form(form, of_array):
    data, state = simulated()
    taken = BEST[state[:, 0].astype(int)]
    forms = {
        "actions": taken, "column": taken[:, np.newaxis], "function": lambda s: BEST[s[:, 0].astype(int)],
        "column of a function": lambda s: BEST[s[:, 0].astype(int)][:, np.newaxis],
        "table": pd.DataFrame({"best": taken}), "agent": Agent(), "learner": Learner(),
    }  # fmt: skip
    one = forms[form]
    asked = callable(one) or (hasattr(one, "predict") and form != "table")
    more = {"policy_of": "state"} if asked else {}
    if not of_array:
        of_array |= values_of(data, state, np.eye(3)[taken], {})
    assert values_of(data, state, one, more) == of_array


def test_a_classifier_takes_labels():
    data, state = simulated()
    names = np.array(["wait", "treat", "operate"])
    labels = [*names]
    taken = names[BEST[state[:, 0].astype(int)]]
    classifier = DecisionTreeClassifier().fit(state, taken)
    rows = data | {"actions": names[data["actions"]]}
    expected = evaluate_policy(gamma=GAMMA, state=state, labels=labels, **rows | {"target_policy": taken})
    found = evaluate_policy(
        gamma=GAMMA, state=state, labels=labels, policy_of="state", **rows | {"target_policy": classifier}
    )
    assert found == expected
    with pytest.raises(InvalidInputError, match="`target_policy` must have numbers of actions unless their labels"):
        evaluate_policy(gamma=GAMMA, **rows | {"target_policy": taken})
    with pytest.raises(
        InvalidInputError, match=r"must hold one of the actions \['wait', 'treat'\]; row \d+ has 'operate'"
    ):
        LSTDQ(GAMMA, features=StateActionFeatures(["wait", "treat"])).fit(**rows | {"target_policy": taken})


def test_a_model_of_action_values_takes_its_best_action():
    data, state = simulated()
    model = LSTDQ(GAMMA, alpha=0.1).fit(**data)
    expected = evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": EpsilonGreedy(model)})
    for more in ({}, {"policy_of": "X"}):
        assert evaluate_policy(gamma=GAMMA, state=state, **data | {"target_policy": model}, **more) == expected
        greedy = {"target_policy": EpsilonGreedy(model)}
        assert evaluate_policy(gamma=GAMMA, state=state, **data | greedy, **more) == expected
    with pytest.raises(InvalidInputError, match='`policy_of` must be "X" for a policy of `lstd`'):
        evaluate_policy(gamma=GAMMA, state=state, policy_of="state", **data | {"target_policy": model})


@pytest.mark.parametrize("grouped", [False, True])
def test_a_function_takes_what_policy_of_says_and_its_results_follow_the_rows(grouped):
    data, state = simulated()
    if grouped:  # rows are put in the order of their groups
        data["groups"] = np.random.default_rng(0).permutation(60)[data["episode"]]
    frame = pd.DataFrame({"place": state[:, 0]})
    seen = []

    def of_frame(rows):
        seen.append(list(rows.columns))
        return PROCESS.pi[rows["place"].to_numpy().astype(int)]

    expected = evaluate_policy(gamma=GAMMA, state=frame, **data)
    by_state = {"target_policy": of_frame}
    assert evaluate_policy(gamma=GAMMA, state=frame, policy_of="state", **data | by_state) == expected
    assert seen == [["place"]]
    by_features = {"target_policy": lambda X: X @ PROCESS.pi}
    found = evaluate_policy(gamma=GAMMA, state=frame, policy_of="X", **data | by_features)
    assert_close(found.value, expected.value, "solve")
    model = LSTD(GAMMA, 0.0).fit(
        **{name: data[name] for name in ("X", "y", "episode", "terminated", *["groups"] * grouped)},
        importance_ratio=np.nan_to_num(
            data["target_policy"][np.arange(len(state)), data["actions"]] / data["behavior_probability"], nan=1.0
        ),
    )
    values = [
        policy_value(model, data=data | one, state=frame, policy_of=of)
        for one, of in (({}, None), (by_state, "state"), (by_features, "X"))
    ]
    assert values[0] == values[1]
    assert_close(values[0].value, values[2].value, "solve")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy_of": "rows"}, "`policy_of` must be one of"),
        ({"policy_of": "state"}, "`policy_of` must not be given with an array"),
        (
            {"policy_of": "state", "state": None, "target_policy": lambda X: X},
            '`policy_of` must be "X" without `state`',
        ),
        (
            {"target_policy": np.linspace(0.0, 1.0, 400)},
            "its numbers are continuous, such as .* give `importance_ratio`",
        ),
        ({"target_policy": np.arange(9)}, r"must have one action per row, shape \(\d+,\)"),
        ({"actions": np.linspace(0.0, 1.0, 400)}, "`actions` must hold integers .* they are continuous, such as"),
        ({"target_policy": None}, "`target_policy` must be given, unless `importance_ratio` is"),
        ({"actions": None}, "`actions` must be given, unless"),
        ({"importance_ratio": np.ones(400)}, "`actions` must not be given with `importance_ratio`"),
        ({"state_next": np.ones((400, 1))}, "`state_next` must not be given without `X_next`"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    data, state = simulated()
    T = len(state)
    cut = {name: one[:T] if isinstance(one, np.ndarray) and len(one) == 400 else one for name, one in change.items()}
    with pytest.raises(InvalidInputError, match=message):
        evaluate_policy(**{"gamma": GAMMA, "state": state} | data | cut)


def test_continuous_actions_of_an_agent_are_named():
    class Steering:
        def predict(self, x):
            return np.column_stack([x[:, 0], 0.5 - x[:, 0]])

    data, state = simulated()
    with pytest.raises(InvalidInputError, match=r"`target_policy.predict\(X\)` must return one action .* continuous"):
        evaluate_policy(gamma=GAMMA, state=state, policy_of="state", **data | {"target_policy": Steering()})


def test_continuous_actions_of_several_numbers_are_named():
    data, state = simulated()
    several = np.random.default_rng(0).normal(size=(len(state), 2))
    with pytest.raises(InvalidInputError, match=r"`actions` must hold .* They are continuous. Give `importance_ratio`"):
        evaluate_policy(gamma=GAMMA, **data | {"actions": several})


def test_columns_are_as_good_as_vectors():
    data, state = simulated()
    names = ("y", "actions", "behavior_probability", "episode", "terminated")
    columns = {name: np.asarray(data[name])[:, np.newaxis] for name in names}
    expected = evaluate_policy(gamma=GAMMA, state=state, **data)
    assert evaluate_policy(gamma=GAMMA, state=state[:, 0], **data | columns) == expected
    np.testing.assert_array_equal(LSTDQ(GAMMA).fit(**data | columns).coef_, LSTDQ(GAMMA).fit(**data).coef_)
    assert importance_sampling(gamma=GAMMA, **data | columns) == importance_sampling(gamma=GAMMA, **data)


# ---------------------------------------------------------------- successors


def with_successors(data, state, *, unknown=np.nan):
    """The full transitions alone, with what followed each; after an end, `unknown`."""
    full = ~np.isnan(data["y"])
    ended = data["terminated"][full]
    rows = {name: values[full] for name, values in data.items()}
    after = np.minimum(np.flatnonzero(full) + 1, len(full) - 1)
    successors = {
        "X_next": data["X"][after],
        "state_next": state[after],
        "target_policy_next": data["target_policy"][after],
    }
    for values in successors.values():
        values[ended] = unknown
    return rows, state[full], successors


@pytest.mark.parametrize("kind", ["array", "array, in groups", "function of X", "function of state"])
def test_given_successors_are_those_of_rows_in_order(kind):
    data, state = simulated()
    if kind == "array, in groups":
        data = in_groups(data)
    expected = evaluate_policy(gamma=GAMMA, state=state, **data)
    rows, own, successors = with_successors(data, state)
    more = {}
    if kind.startswith("function"):
        del successors["target_policy_next"]
        functions = {
            "function of X": lambda X: X @ PROCESS.pi,
            "function of state": lambda s: PROCESS.pi[s[:, 0].astype(int)],
        }
        rows["target_policy"], more["policy_of"] = functions[kind], kind.split()[-1]
        if kind == "function of X":
            successors["X_next"][rows["terminated"]] = 0.25
    found = evaluate_policy(gamma=GAMMA, state=own, **rows, **successors, **more)
    for name in ("value", "lower", "upper", "effective_sample_size"):
        assert_close(getattr(found, name), getattr(expected, name), "solve")
    for name, one in expected.candidates.items():
        assert_close(found.candidates[name].value, one.value, "solve")
    assert_close(found.hidden.z, expected.hidden.z, "solve")
    if kind == "array":
        model = LSTDQ(GAMMA).fit(
            **rows, X_next=successors["X_next"], target_policy_next=successors["target_policy_next"]
        )
        plain = LSTDQ(GAMMA).fit(**data)
        values = policy_value(model, state=own, state_next=successors["state_next"]), policy_value(plain, state=state)
        assert_close(values[0].value, values[1].value, "solve")
        ratio = rows["target_policy"][np.arange(len(own)), rows["actions"]] / rows["behavior_probability"]
        fitted = {name: rows[name] for name in ("X", "y", "episode", "terminated")} | {"X_next": successors["X_next"]}
        states = LSTD(GAMMA, 0.0).fit(**fitted, importance_ratio=ratio)
        log = rows | {name: successors[name] for name in ("X_next", "target_policy_next")}
        found = policy_value(states, data=log, state=own, state_next=successors["state_next"])
        assert found.method == "weighted state values"


def in_groups(rows):
    """The rows with episodes in groups, which are not in order."""
    n = rows["episode"].max() + 1
    return rows | {"groups": np.random.default_rng(0).permutation(n)[rows["episode"]] % 20}


class ByPosition:
    """An agent that has the same answers whatever it is asked, first about rows and then about successors."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def predict(self, X):
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("form", "of", "given"),
    [
        ("function", "X", "rows"),
        ("function", "state", "rows"),
        ("function", "state", "successors"),
        ("agent", "X", "successors"),
        ("agent", "state", "rows"),
    ],
)
def test_answers_of_a_policy_follow_the_order_of_the_rows(form, of, given):
    """With groups, rows are sorted by them; a policy is asked about the rows as they were given."""
    data, state = simulated()
    more = {"state": state}
    rows = data
    if given == "successors":
        rows, own, more = with_successors(data, state)
        more["state"] = own
    rows = in_groups(rows)
    taken = BEST[more["state"][:, 0].astype(int)]
    tables = {"target_policy": rows["target_policy"]}
    if form == "agent":
        tables = {"target_policy": taken}
    if given == "successors":
        tables["target_policy_next"] = more.pop("target_policy_next")
        if form == "agent":
            tables["target_policy_next"] = BEST[np.nan_to_num(more["state_next"][:, 0]).astype(int)]
    expected = evaluate_policy(gamma=GAMMA, **rows | more | tables)
    agent = ByPosition(*tables.values())
    policy = agent if form == "agent" else lambda X: agent.predict(X)
    found = evaluate_policy(gamma=GAMMA, policy_of=of, **rows | more | {"target_policy": policy})
    assert found == expected
    assert not agent.answers
    if given == "rows" and form == "function":

        def seeing(asked):
            np.testing.assert_array_equal(asked, {"X": rows["X"], "state": state}[of])
            return tables["target_policy"]

        evaluate_policy(gamma=GAMMA, policy_of=of, **rows | more | {"target_policy": seeing})


@pytest.mark.parametrize(("unknown", "grouped"), [(np.nan, False), (np.nan, True), (0.0, True), (0.25, False)])
def test_a_function_is_not_asked_about_what_follows_an_end(grouped, unknown):
    data, state = simulated()
    rows, _, successors = with_successors(data, state, unknown=unknown)
    if grouped:
        rows = in_groups(rows)
    after = {"X_next": successors["X_next"], "target_policy_next": successors["target_policy_next"]}
    expected = evaluate_policy(gamma=GAMMA, **rows | after)
    thin = sparse.coo_array(after["target_policy_next"])
    assert evaluate_policy(gamma=GAMMA, **rows | after | {"target_policy_next": thin}) == expected

    def of_features(X):
        assert np.isin(X, [0.0, 1.0]).all()
        assert (X.sum(axis=1) == 1.0).all()
        return X @ PROCESS.pi

    rows["target_policy"] = of_features
    found = evaluate_policy(gamma=GAMMA, **rows, X_next=successors["X_next"])
    assert_close(found.value, expected.value, "solve")
    model = LSTDQ(GAMMA).fit(**rows, X_next=successors["X_next"])
    assert np.isfinite(model.coef_).all()


def test_a_policy_may_be_asked_about_no_successor():
    data, state = simulated()
    rows, own, _ = with_successors(data, state)
    rows |= {"episode": np.arange(len(own)), "terminated": np.ones(len(own), bool)}
    unknown = {"X_next": np.full_like(rows["X"], np.nan)}
    expected = evaluate_policy(gamma=GAMMA, **rows)
    after = {"target_policy_next": np.full_like(rows["target_policy"], np.nan)}
    assert_close(evaluate_policy(gamma=GAMMA, **rows, **unknown, **after).value, expected.value, "solve")
    rows["target_policy"] = lambda X: X @ PROCESS.pi
    assert_close(evaluate_policy(gamma=GAMMA, **rows, **unknown).value, expected.value, "solve")


@pytest.mark.parametrize(("of", "name"), [("X", "X_next"), ("state", "state_next")])
def test_a_message_about_successors_names_them(of, name):
    data, state = simulated()
    rows, own, successors = with_successors(data, state)
    del successors["target_policy_next"]
    answers = ByPosition(rows["target_policy"], rows["target_policy"] * 0.9)
    rows["target_policy"] = lambda X: answers.predict(X)
    with pytest.raises(InvalidInputError, match=rf"`target_policy\({name}\)` must sum to 1 .* row 0 sums to 0.9"):
        evaluate_policy(gamma=GAMMA, state=own, policy_of=of, **rows, **successors)
    short = successors | {"state_next": successors["state_next"][:-1]}
    rows["target_policy"] = lambda s: PROCESS.pi[np.asarray(s)[:, 0].astype(int)]
    with pytest.raises(InvalidInputError, match="`state_next` must have one row per row of `X`"):
        evaluate_policy(gamma=GAMMA, state=own, policy_of="state", **rows, **short)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("of", [None, "X", "state"])
def test_a_successor_that_is_not_known_is_refused(of, grouped):
    data, state = simulated()
    rows, own, successors = with_successors(data, state)
    if grouped:
        rows = in_groups(rows)
    functions = {"X": lambda X: X @ PROCESS.pi, "state": lambda s: PROCESS.pi[s[:, 0].astype(int)]}
    if of is not None:
        rows["target_policy"] = functions[of]
        del successors["target_policy_next"]
    row = int(np.flatnonzero(~rows["terminated"])[3])
    for name in ("state_next", "X_next"):
        values = successors[name].copy()
        values[row] = np.nan
        with pytest.raises(InvalidInputError, match=rf"`{name}` must be .*\b{row}\b.*nan"):
            evaluate_policy(gamma=GAMMA, state=own, policy_of=of, **rows, **successors | {name: values})


def test_raw_columns_that_are_not_always_known_need_not_be_in_successors():
    data, state = simulated()
    rows, own, successors = with_successors(data, state)
    measured = np.column_stack([own, np.where(np.arange(len(own)) % 3 == 0, np.nan, own[:, 0])])
    after = np.column_stack([successors["state_next"], np.full(len(own), 1.0)])
    after[::4, 1] = np.nan
    found = evaluate_policy(gamma=GAMMA, state=measured, **rows, **successors | {"state_next": after})
    assert np.isfinite(found.value)


def test_the_last_reward_of_an_episode_that_timed_out_counts():
    """Without successors, its row is a horizon row, and the reward is lost."""
    random, T = np.random.default_rng(0), 300
    last = np.arange(T) % 5 == 4
    X, actions = np.eye(5)[np.arange(T) % 5], random.integers(2, size=T)
    data = {
        "X": X, "y": np.where(last, 10.0 * actions, 0.0) + random.normal(size=T), "actions": actions,
        "behavior_probability": np.full(T, 0.5), "target_policy": np.full((T, 2), [0.2, 0.8]),
        "episode": np.arange(T) // 5, "terminated": np.zeros(T, bool),
    }  # fmt: skip
    discount = np.where(last, 0.0, 1.0)  # what follows the limit does not count
    successors = {"X_next": np.roll(X, -1, axis=0), "target_policy_next": data["target_policy"]}
    found = evaluate_policy(**data, **successors, gamma=1.0, discount=discount)
    assert found.lower < 8.0 < found.upper


def test_missing_raw_columns_of_successors_are_asked_for():
    data, state = simulated()
    rows, own, successors = with_successors(data, state)
    del successors["state_next"]
    with pytest.raises(InvalidInputError, match="`state_next` must be given with `state` and `X_next`"):
        evaluate_policy(gamma=GAMMA, state=own, **rows, **successors)
    with pytest.raises(InvalidInputError, match=r"`state_next` must have one row per row of `X`, \(\d+, 1\)"):
        evaluate_policy(gamma=GAMMA, state=own, **rows, **successors, state_next=np.ones((len(own), 2)))
    with pytest.raises(InvalidInputError, match="`state_next` must not be given without `state`"):
        policy_value(LSTDQ(GAMMA).fit(**data), state_next=own)


# ---------------------------------------------------------------- ratios


def test_ratios_may_be_given_in_place_of_actions_and_policies():
    data, state = simulated()
    by_pairs = evaluate_policy(gamma=GAMMA, state=state, **data)
    ratio = data["target_policy"][np.arange(len(state)), data["actions"]] / data["behavior_probability"]
    rows = {name: data[name] for name in ("X", "y", "episode", "terminated")}
    found = evaluate_policy(gamma=GAMMA, state=state, importance_ratio=ratio, **rows)
    assert found.method == "weighted state values"
    assert [*found.candidates] == ["state values", "weighted state values"]
    for name, one in found.candidates.items():
        assert_close(one.value, by_pairs.candidates[name].value, "solve")
        assert_close(one.upper, by_pairs.candidates[name].upper, "solve")
    assert found.hidden is None
    assert any("left out: `importance_ratio` has no pairs" in text for text in found.said)
    model = LSTD(GAMMA, 0.0).fit(**rows, importance_ratio=np.nan_to_num(ratio, nan=1.0))
    given = rows | {"importance_ratio": ratio}
    value = policy_value(model, data=given, state=state)
    pairs = policy_value(model, data=data, state=state)
    assert_close(value.value, pairs.value, "solve")
    with pytest.raises(InvalidInputError, match="`q` must not be given with `importance_ratio` in `data`"):
        policy_value(model, data=given, state=state, q=lambda X: X)
    with pytest.raises(InvalidInputError, match="`target_policy` must not be given with `importance_ratio`"):
        policy_value(model, data=given | {"target_policy": data["target_policy"]}, state=state)


def test_continuous_actions_are_evaluated_by_the_ratio_of_densities():
    random, n = np.random.default_rng(0), 600
    dose = random.normal(size=n)  # logged around 0, asked for around 0.5
    ratio = np.exp(-((dose - 0.5) ** 2) / 2 + dose**2 / 2)
    rows = {"episode": np.arange(n) // 3, "terminated": np.arange(n) % 3 == 2}
    found = evaluate_policy(np.eye(3)[np.arange(n) % 3], 2.0 * dose, gamma=1.0, importance_ratio=ratio, **rows)
    assert found.lower < 3.0 < found.upper


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_ratios_may_be_given_with_successors(with_state, grouped):
    """They need no probabilities in successors, and say the same as both policies do."""
    data, state = simulated()
    if grouped:
        data["groups"] = np.random.default_rng(0).permutation(60)[data["episode"]]
    rows, own, successors = with_successors(data, state)
    ratio = rows["target_policy"][np.arange(len(own)), rows["actions"]] / rows["behavior_probability"]
    names = ("X", "y", "episode", "terminated", *["groups"] * grouped)
    by_ratio = {name: rows[name] for name in names} | {"X_next": successors["X_next"], "importance_ratio": ratio}
    raw = {}
    if with_state:
        raw = {"state": own, "state_next": successors["state_next"]}
    by_pairs = evaluate_policy(gamma=GAMMA, **raw | rows | successors | {"state_next": raw.get("state_next")})
    found = evaluate_policy(gamma=GAMMA, **by_ratio, **raw)
    assert found.method == "weighted state values"
    for name, one in found.candidates.items():
        assert_close(one.value, by_pairs.candidates[name].value, "solve")
        assert_close(one.upper, by_pairs.candidates[name].upper, "solve")
    states = LSTD(GAMMA, 0.0).fit(**by_ratio)
    log = rows | {name: successors[name] for name in ("X_next", "target_policy_next")}
    expected = policy_value(states, data=log, state=own, state_next=successors["state_next"])
    value = policy_value(states, data=by_ratio, state=own, state_next=successors["state_next"])
    assert_close(value.value, expected.value, "solve")
    if with_state:
        with pytest.raises(InvalidInputError, match="`state_next` must be given with `state` and `X_next`"):
            evaluate_policy(gamma=GAMMA, **by_ratio, state=own)
    after = {"target_policy_next": successors["target_policy_next"]}
    with pytest.raises(InvalidInputError, match="`target_policy_next` must not be given with `importance_ratio`"):
        evaluate_policy(gamma=GAMMA, **by_ratio, **after)
    with pytest.raises(InvalidInputError, match="`target_policy_next` must not be given with `importance_ratio`"):
        policy_value(states, data=by_ratio | after, state=own, state_next=successors["state_next"])
