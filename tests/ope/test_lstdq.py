"""Action values against their definition, and the identities between them."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import naive
from logged_actions import PROCESS, TRACES, DecisionProcess, logged, systems
from lstd import LSTD
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, UnusedRewardWarning
from lstd.ope import LSTDQ, EpsilonGreedy, StateActionFeatures, action_calibration, importance_sampling, policy_value
from tolerances import assert_close


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("variant", naive.VARIANTS)
def test_weights_are_those_of_the_definition(trace, variant):
    data = logged()
    model = LSTDQ(0.9, 0.7, trace, 0.5, False, variant, weighting="none").fit(**data)
    A, b = systems(data, 0.7, trace, variant, 0.9)
    assert_close(model.coef_, np.linalg.solve(A + 0.5 * np.eye(len(A)), b), "solve")


def pairs(X, actions):
    """The blocks of `StateActionFeatures` as a function."""
    return np.array([naive.pair_features(x, a, PROCESS.A) for x, a in zip(X, actions, strict=True)])


@pytest.mark.parametrize(
    "change",
    [
        {"X": sparse.csr_array},
        {"features": pairs},
        {"features": lambda X, actions: sparse.csr_array(pairs(X, actions))},
        {"features": StateActionFeatures(3)},
    ],
    ids=["sparse", "callable", "sparse callable", "features"],
)
def test_features_in_any_form_give_the_same_values(change):
    data = logged()
    plain = LSTDQ(0.9, 0.5).fit(**data)
    X = change.get("X", np.asarray)(data["X"])
    other = LSTDQ(0.9, 0.5, features=change.get("features")).fit(**data | {"X": X})
    assert_close(other.coef_, plain.coef_, "solve")
    assert_close(other.action_values(X), plain.action_values(data["X"]), "solve")


def test_wide_blocks_are_sparse_and_give_the_same_values(monkeypatch):
    data = logged(n=50)
    features, greedy = StateActionFeatures(3), np.eye(3)[data["actions"]]
    assert_close(features.transform(data["X"], data["actions"]).toarray(), pairs(data["X"], data["actions"]), "sums")
    assert_close(features.expected(data["X"], greedy).toarray(), pairs(data["X"], data["actions"]), "sums")
    expected = np.array([naive.expected_pair(x, p) for x, p in zip(data["X"], data["target_policy"], strict=True)])
    assert_close(features.expected(data["X"], data["target_policy"]), expected, "sums")
    one, two = (LSTDQ(0.9, 0.5, features=form).fit(**data, groups=data["episode"]) for form in (features, pairs))
    assert_close(one.action_values(data["X"]), two.action_values(data["X"]), "solve")
    monkeypatch.setattr("lstd.ope.logged_rows.ENTRIES_AT_ONCE", 3 * 150)  # chunks of three rows
    chunks = LSTDQ(0.9, 0.5).fit(**data, groups=data["episode"])
    assert_close(chunks.action_values(data["X"]), one.action_values(data["X"]), "solve")
    assert_close(policy_value(chunks).upper, policy_value(one).upper, "solve")


def without_arrays(monkeypatch):
    """Have the pairs summed without arrays of their features, as many of them are, in batches of a few rows."""
    for name, value in (
        ("logged_rows.ENTRIES_AT_ONCE", 1),
        ("logged_rows._ENTRIES", 1),
        ("logged_rows._ROWS_PER_ACTION", 2),
    ):
        monkeypatch.setattr(f"lstd.ope.{name}", value)


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("variant", naive.VARIANTS)
def test_weights_of_pairs_without_arrays_are_those_of_the_definition(trace, variant, monkeypatch):
    without_arrays(monkeypatch)
    data, random = logged(), np.random.default_rng(2)
    weight, discount = random.uniform(0.2, 2.0, len(data["y"])), random.uniform(0.5, 1.0, len(data["y"]))
    model = LSTDQ(0.9, 0.7, trace, 0.5, False, variant, weighting="none")
    model.fit(**data, weight=weight, discount=discount)
    A, b = systems(data, 0.7, trace, variant, 0.9, weight, discount)
    assert_close(model.coef_, np.linalg.solve(A + 0.5 * np.eye(len(A)), b), "solve")


@pytest.mark.parametrize("lmbda", [0.0, 0.8])
@pytest.mark.parametrize("kind", ["one episode", "groups", "successors"])
def test_sums_of_pairs_without_arrays_are_those_of_arrays(kind, lmbda, monkeypatch):
    data, random = logged(20, 9, 0.1), np.random.default_rng(3)
    data["behavior_probability"] = np.nan_to_num(data["behavior_probability"], nan=0.5)
    if kind == "one episode":  # blocks of rows, through which traces go on
        data |= {"y": np.nan_to_num(data["y"]), "episode": None, "terminated": np.zeros(len(data["y"]), dtype=bool)}
    elif kind == "groups":
        data |= {"groups": random.permutation(20)[data["episode"]] // 2, "weight": random.uniform(size=len(data["y"]))}
    else:
        data |= {"y": np.nan_to_num(data["y"]), "X_next": random.normal(size=data["X"].shape)}
        data |= {"target_policy_next": data["target_policy"][::-1], "episode": np.arange(len(data["y"])) // 2}
        data["terminated"] &= data["episode"] % 2 == 1
        data["terminated"][::2] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenEpisodeWarning)
        arrays = LSTDQ(0.9, lmbda).fit(**data)
        without_arrays(monkeypatch)
        model = LSTDQ(0.9, lmbda).fit(**data)
    one, two = arrays.lstd_.statistics_, model.lstd_.statistics_
    for name in ("A", "B", "b", "trace"):
        assert_close(getattr(two, name), getattr(one, name), "sums")
    assert (one.n_rows, one.n_transitions, one.n_episodes, one.counts.mark, one.counts.reward_mark) == (
        two.n_rows, two.n_transitions, two.n_episodes, two.counts.mark, two.counts.reward_mark,
    )  # fmt: skip
    values = [policy_value(each, data["X"][:20], target_policy=data["target_policy"][:20]) for each in (arrays, model)]
    for name in ("upper", "effective_sample_size", "degrees_of_freedom"):
        assert_close(getattr(values[1], name), getattr(values[0], name), "solve")


def test_sums_of_pairs_without_arrays_that_overflow_are_refused(monkeypatch):
    without_arrays(monkeypatch)
    data = logged()
    with pytest.raises(InvalidInputError, match="Scale features"):
        LSTDQ(0.9).fit(**data | {"X": 1e200 * data["X"]})


def test_labels_are_actions_too():
    data = logged()
    names = np.array(["c", "a", "b"])
    labelled = LSTDQ(0.9, features=StateActionFeatures(names)).fit(**data | {"actions": names[data["actions"]]})
    plain = LSTDQ(0.9).fit(**data)
    np.testing.assert_array_equal(labelled.coef_, plain.coef_)
    np.testing.assert_array_equal(
        labelled.predict(data["X"], names[data["actions"]]), plain.predict(data["X"], data["actions"])
    )


# ---------------------------------------------------------------- identities


def transitions(data):
    """Rows that are full transitions, features of pairs and of expected successors."""
    full = np.flatnonzero(data["terminated"] | (np.append(data["episode"][1:], -1) == data["episode"]))
    after = np.minimum(full + 1, len(data["y"]) - 1)
    features = StateActionFeatures(PROCESS.A)
    expected = features.expected(
        data["X"][after], np.where(data["terminated"][full, np.newaxis], 0.0, data["target_policy"][after])
    )
    ends = {"episode": data["episode"][full], "terminated": data["terminated"][full]}
    phi = features.transform(data["X"][full], data["actions"][full])
    return {"X": phi, "y": data["y"][full], "X_next": expected, **ends}


def test_without_traces_it_is_lstd_with_expected_successors_to_the_last_bit():
    data = logged()
    expected = LSTD(0.9, 0.0).fit(**transitions(data))
    for model in (LSTDQ(0.9, weighting="none"), LSTDQ(0.9, 0.8, "none", weighting="none")):
        np.testing.assert_array_equal(model.fit(**data).coef_, expected.coef_)


@pytest.mark.parametrize("trace", TRACES)
def test_exact_frequencies_give_the_exact_values(trace):
    process = DecisionProcess(2, 2, seed=3)
    data = process.every_path(3)
    s, after = data.pop("states"), data.pop("next_states")
    model = LSTDQ(process.gamma, 0.9, trace, alpha=0.0, fit_intercept=False).fit(
        **data, target_policy=process.pi[s], target_policy_next=process.pi[after],
        behavior_probability=process.mu[s], terminated=np.zeros(len(s), dtype=bool),
    )  # fmt: skip
    assert_close(model.action_values(np.eye(2)), process.q, "solve")
    assert_close(model.state_values(np.eye(2), process.pi), process.v, "solve")


def test_a_policy_may_be_a_function_and_successors_may_be_given():
    data = PROCESS.simulate(20, 5, 1)
    plain = LSTDQ(0.9, 0.5).fit(**data)
    policy = data.pop("target_policy"), lambda X: X @ PROCESS.pi
    called = LSTDQ(0.9, 0.5).fit(**data, target_policy=policy[1])
    np.testing.assert_array_equal(called.coef_, plain.coef_)
    assert_close(called.state_values(np.eye(4)), plain.state_values(np.eye(4), PROCESS.pi), "sums")
    full = ~np.isnan(data["y"])
    rows = {name: values[full] for name, values in data.items()}
    X_next = np.roll(data["X"], -1, axis=0)[full]
    after = {"target_policy": policy[0][full], "target_policy_next": X_next @ PROCESS.pi}
    for given in ({"target_policy": policy[1]}, after):
        model = LSTDQ(0.9, 0.5).fit(**rows, X_next=X_next, **given)
        assert_close(model.coef_, plain.coef_, "solve")


def test_the_greedy_rule_is_a_policy():
    greedy = EpsilonGreedy(LSTDQ(0.9).fit(**logged()), 0.3)
    data = logged()
    values = LSTDQ(0.9).fit(**logged()).action_values(data["X"])
    probabilities = greedy(data["X"])
    assert_close(probabilities.sum(axis=1), 1.0, "sums")
    assert_close(probabilities[np.arange(len(values)), values.argmax(axis=1)], 0.8, "sums")
    assert LSTDQ(0.9).fit(**data | {"target_policy": greedy}).coef_.shape == (9,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [np.nan, 0.0]], "must be finite; row 1 has nan for action 0"),
        ([[], []], r"one value for each row and action, shape \(2, n_actions\); got \(2, 0\)"),
        ([1.0, 2.0], r"got \(2,\)"),
    ],
)
def test_bad_values_of_the_greedy_rule_are_refused(values, message):
    with pytest.raises(InvalidInputError, match=message):
        EpsilonGreedy(lambda X: np.array(values))(np.eye(2))


def test_action_values_that_overflow_are_refused():
    data = logged()
    model = LSTDQ(0.9).fit(**data | {"y": 1e10 * data["y"]})
    with pytest.raises(InvalidInputError, match="predictions overflow"):
        model.action_values(1e300 * data["X"])


def test_it_follows_the_conventions_of_scikit_learn():
    model = LSTDQ(0.8, 0.3, "none", features=StateActionFeatures(3))
    copy = clone(model)
    assert copy.get_params()["trace"] == "none"
    assert not hasattr(copy, "lstd_")
    data = logged()
    fitted = copy.fit(**data)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.action_values(data["X"]), fitted.action_values(data["X"]))


# ---------------------------------------------------------------- input


def changed(name, **entries):
    """The column with some entries changed."""

    def change(data):
        values = np.array(data[name], dtype=float)
        for where, value in entries.items():
            values[int(where[1:])] = value
        return {name: values}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("target_policy", r2=0.5), r"`target_policy` must sum to 1 .* row 2 sums to 1.5"),
        (changed("target_policy", r1=[-0.5, 1.0, 0.5]), r"in \[0, 1\]; row 1 has -0.5 for action 0"),
        (changed("target_policy", r1=40.0), "row 1 has 40 for action 0. Divide percentages by 100"),
        (changed("behavior_probability", r1=-0.1), "row 1 has -0.1. Correct it"),
        (lambda data: {"actions": [[0], [0, 1]]}, "`actions` must have one number or text for each"),
        (lambda data: {"actions": [{0}] * len(data["y"])}, "`actions` must have one number or text for each"),
        (lambda data: {"target_policy_next": data["target_policy"]}, "must not be given without `X_next`, .* Leave it"),
        (
            lambda data: {
                "X_next": data["X"], "y": np.zeros(len(data["y"])), "target_policy_next": data["target_policy"],
                "target_policy": lambda X: np.full((len(X), 3), 1 / 3),
            },
            "must not be given with a function as `target_policy`",
        ),
        (lambda data: {"importance_ratio": np.ones(len(data["y"]))}, "`importance_ratio` must not .* `trace` decide"),
        (lambda data: {"trace_coefficient": np.ones(len(data["y"]))}, "`trace_coefficient` must not .* `trace` decide"),
        (lambda data: {"episodes": data["episode"]}, "`episodes` must not be given: .* correct its name"),
        (changed("target_policy", r1=np.nan), r"in \[0, 1\]; row 1 has nan for action 0"),
        (lambda data: {"target_policy": data["target_policy"][:-1]}, "one probability for each row and action"),
        (lambda data: {"target_policy": lambda X: X[:, 0]}, r"`target_policy\(X\)` must have one probability"),
        (lambda data: {"target_policy": "greedy"}, "`target_policy` must be an array of real numbers"),
        (changed("actions", r0=7), r"`actions` must hold integers in \[0, 2\]; row 0 has 7.0"),
        (lambda data: {"actions": np.array(["wait"] * len(data["y"]), object)}, "row 0 has 'wait'.* give the labels"),
        (lambda data: {"actions": np.column_stack([data["actions"]] * 2)}, "integers .*, one per row"),
        (lambda data: {"actions": data["actions"][1:]}, "`actions` must have one entry per row"),
        (lambda data: {"behavior_probability": None}, "must be given for traces, .* Without it, use lmbda=0"),
        (changed("behavior_probability", r1=0.0), "above 0 for actions that were logged; row 1 has 0"),
        (lambda data: {"behavior_probability": np.ones((len(data["y"]), 2)) / 2}, "3 in each"),
        (lambda data: {"behavior_probability": np.ones((len(data["y"]), 3)) / 6}, "sum to 1 .*; row 0 sums to 0.5"),
        (lambda data: {"behavior_probability": 0.5}, "one entry per row"),
        (lambda data: {"y": np.column_stack([data["y"]] * 2)}, "`y` must have one reward per row"),
        (lambda data: {"X": data["X"][:, :0]}, "at least one feature"),
        (lambda data: {"X_next": data["X"], "y": np.zeros(len(data["y"]))}, "`target_policy_next` must be given"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line_and_changes_nothing(change, message):
    data = logged(seed=4)
    model = LSTDQ(0.9, 0.5).fit(**data)
    before = model.coef_.copy()
    with pytest.raises(InvalidInputError, match=message) as caught:
        model.fit(**data | change(data))
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(model.coef_, before)


@pytest.mark.parametrize(("lmbda", "trace"), [(0.5, "retrace"), (0.0, "retrace"), (0.5, "none")])
def test_an_action_that_was_never_taken_is_refused_if_the_target_policy_takes_it(lmbda, trace):
    data = PROCESS.simulate(6, 4, 1)
    mu = np.tile([0.5, 0.5, 0.0], (len(data["y"]), 1))
    data["actions"] = np.minimum(data["actions"], 1)
    with pytest.raises(
        InvalidInputError, match="row 0 has 0 for action 2, which the target policy takes with probability"
    ):
        LSTDQ(0.9, lmbda, trace).fit(**data | {"behavior_probability": mu})
    LSTDQ(0.9, lmbda, trace).fit(**data | {"behavior_probability": mu, "target_policy": mu})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trace": "q"}, "`trace` must be one of"),
        ({"trace": "tree_backup"}, "`trace` must be one of 'retrace', 'none'"),
        ({"trace": "importance"}, "`trace` must be one of 'retrace', 'none'"),
        ({"lmbda": 2.0}, "`lmbda`"),
        ({"alpha": [1.0, 2.0]}, "9 features"),
        ({"features": 3}, "`features` must be StateActionFeatures or callable"),
        ({"features": StateActionFeatures(2)}, r"shape \(\d+, 2\)"),
        ({"features": lambda X, a: X[:1]}, "`phi` must return one row per pair"),
    ],
)
def test_bad_parameters_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        LSTDQ(**{"gamma": 0.9} | options).fit(**logged())


@pytest.mark.parametrize("actions", [0, [], [1, 1], [[1, 2]], 2.5, [[1], [1, 2]], [{1}, {2}]])
def test_bad_actions_are_refused(actions):
    with pytest.raises(InvalidInputError, match="`actions`"):
        StateActionFeatures(actions)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_probabilities_are_found_by_the_labels_of_actions(library):
    frame = pytest.importorskip(library).DataFrame
    data = {"X": np.ones((4, 1)), "y": [1.0, 2.0, 3.0, 4.0], "actions": ["a", "b", "c", "a"], "terminated": [True] * 4}
    model = LSTDQ(0.5, 1.0, features=StateActionFeatures(["a", "b", "c"]))
    mu, pi = np.full((4, 3), [0.5, 0.25, 0.25]), np.full((4, 3), [0.1, 0.2, 0.7])
    expected = model.fit(**data, behavior_probability=mu, target_policy=pi).state_values([[1.0]], pi[:1])

    def mixed(P):
        return frame({"c": P[:, 2], "a": P[:, 0], "b": P[:, 1]})

    assert (
        model.fit(**data, behavior_probability=mixed(mu), target_policy=mixed(pi)).state_values([[1.0]], mixed(pi[:1]))
        == expected
    )
    with pytest.raises(InvalidInputError, match=r"`target_policy` must have a column for each action, \['a', 'b', 'c'"):
        model.fit(**data, target_policy=frame({"c": pi[:, 2], "b": pi[:, 1], "d": pi[:, 0]}))


def test_actions_and_probabilities_of_horizon_rows_are_not_used():
    data = logged(p_end=0.0)
    last = np.isnan(data["y"])
    actions = np.where(last, np.nan, data["actions"])
    np.testing.assert_array_equal(
        LSTDQ(0.9, 0.5).fit(**data | {"actions": actions}).coef_, LSTDQ(0.9, 0.5).fit(**data).coef_
    )


def test_warnings_are_those_of_the_rows_of_states():
    data = logged(p_end=0.0)
    y = np.where(np.isnan(data["y"]), 1.0, data["y"])
    with pytest.warns(UnusedRewardWarning, match="6 rewards"):
        LSTDQ(0.9, 0.5).fit(**data | {"y": y})
    full = ~np.isnan(data["y"])
    rows = {name: values[full] for name, values in data.items()}
    with pytest.warns(BrokenEpisodeWarning, match="Row 1 of `X`"):
        LSTDQ(0.9, 0.5).fit(**rows, X_next=rows["X"] + 1.0, target_policy_next=rows["target_policy"])


@pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")  # of six episodes
@pytest.mark.parametrize("known", [None, StateActionFeatures(3), StateActionFeatures([0.0, 1.0, 2.0])])
@pytest.mark.parametrize(("library", "names"), [("pandas", [1, 2, 0]), ("polars", "120"), ("pyarrow", "120")])
def test_columns_named_as_numbers_are_those_of_labels(library, names, known):
    frames, data = pytest.importorskip(library), logged()
    order = [int(name) for name in names]
    columns = {name: data["target_policy"][:, i] for name, i in zip(names, order, strict=True)}
    make = frames.table if library == "pyarrow" else frames.DataFrame
    labels = None if known is None else known.labels
    found = LSTDQ(0.9, 0.5, features=known).fit(**data | {"target_policy": make(columns)})
    assert_close(found.coef_, LSTDQ(0.9, 0.5).fit(**data).coef_, "sums")
    options = {"gamma": 0.9, "labels": labels, "target_policy": make(columns)}
    assert_close(
        importance_sampling(**data | options).value, importance_sampling(**data | {"gamma": 0.9}).value, "sums"
    )
    P = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    table = [
        action_calibration(np.arange(40) % 3, given, labels=labels)
        for given in (make(dict(zip(names, P[:, order].T, strict=True))), P)
    ]
    np.testing.assert_array_equal(table[0].predicted, table[1].predicted)
    np.testing.assert_array_equal(table[0].observed, table[1].observed)
