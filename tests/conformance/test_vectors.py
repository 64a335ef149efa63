"""`lstd` gives the answers of every case in `conformance/`, within the one tolerance that its README.md states."""

import hashlib
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from lstd import LSTD, TD, LSTDStatistics, RecursiveLSTD, TrueOnlineTD
from lstd.mrp import RandomMRP, make_features
from lstd.ope import LSTDQ, StateActionFeatures, policy_value
from online_streams import Transition
from vectors import assert_vector, cases, load, numbers

VARIANTS = ("boyan", "uncorrected", "mixed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.BrokenEpisodeWarning"),  # successors that are not the next row
    pytest.mark.filterwarnings("ignore::lstd.errors.IllConditionedWarning"),  # alpha tiny
    pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning"),  # few rows
]


def each(*names):
    found = [case for name in names for case in cases(name)]
    return pytest.mark.parametrize("case", found, ids=lambda case: case["name"])


def arrays(case, rows=slice(None)):
    """Arguments of `fit`: those that a case leaves at their default are not passed.

    The discount of a row that terminated counts for nothing; here it is not 0.
    """
    y = numbers(case["y"])
    columns = {"episode": np.array(case["episode"]), "terminated": np.array(case["terminated"])}
    discount = np.where(columns["terminated"], numbers(case["gamma"]), numbers(case["discount"]))
    if (discount != numbers(case["gamma"])).any():
        columns["discount"] = discount
    for name in ("importance_ratio", "trace_coefficient", "weight"):
        if (numbers(case[name]) != 1.0).any():
            columns[name] = numbers(case[name])
    if case["successors"] == "given":
        columns["X_next"] = numbers(case["X_next"])
    columns |= {"X": numbers(case["X"]), "y": y[:, 0] if y.shape[1] == 1 else y}
    return {name: column[rows] for name, column in columns.items()}


def settings(case):
    return {name: float(numbers(case[name])) for name in ("gamma", "lmbda")}


def statistics(case, rows=slice(None)):
    return LSTDStatistics.from_arrays(**arrays(case, rows), **settings(case))


def transitions(case):
    """Transitions of a case of one reward, each with its row; an episode that was cut off is truncated at its last."""
    rows = [t for t, successor in enumerate(case["X_next"]) if successor is not None]
    X, y = numbers(case["X"]), numbers(case["y"])
    rest = [numbers(case[name]) for name in ("discount", "importance_ratio", "trace_coefficient", "weight")]
    result = []
    for t in rows:
        ended = case["terminated"][t]
        cut = not ended and not any(s > t and case["episode"][s] == case["episode"][t] for s in rows)
        numbers_of = [column[t] for column in rest]
        result.append((t, Transition(X[t], y[t, 0], numbers(case["X_next"][t]), ended, cut, *numbers_of)))
    return result


def column(coefficients):
    """`coef_` of one or several rewards as (n, m)."""
    return np.atleast_2d(coefficients).T


# ---------------------------------------------------------------- batch


@each("lstd", "weights")
def test_sums(case):
    found = statistics(case)
    for variant in VARIANTS:
        assert_vector(found.matrix(variant), case["expected"]["A"][variant])
    assert_vector(found.b, case["expected"]["b"])


def estimator(case, alpha, variant):
    return LSTD(**settings(case), alpha=float(numbers(alpha)), variant=variant, fit_intercept=False)


@each("lstd", "weights")
def test_weights(case):
    data = arrays(case)
    for s in case["expected"]["solutions"]:
        model = estimator(case, s["alpha"], s["variant"]).fit(**data)
        assert model.n_transitions_ == s["transitions"]
        assert_vector(column(model.coef_), s["weights"], s["condition"])


def with_values(rows, value):
    """The rows, with `value` in horizon rows."""
    return np.array([value if row is None else float(numbers(row)) for row in rows])


@each("actions")
def test_action_values(case):
    """From states and logged actions; the weights are those of the pairs, too."""
    data = {name: numbers(case[name]) for name in ("target_policy", "weight")}
    data |= {"episode": np.array(case["episode"]), "terminated": np.array(case["terminated"])}
    data["discount"] = np.where(data["terminated"], numbers(case["gamma"]), numbers(case["discount"]))
    data |= {"X": numbers(case["states"]), "y": numbers(case["y"])[:, 0], "actions": with_values(case["actions"], -1)}
    data["behavior_probability"] = with_values(case["behavior_probability"], np.nan)
    features = StateActionFeatures(data["target_policy"].shape[1])
    for s in case["expected"]["solutions"]:
        options = {"alpha": float(numbers(s["alpha"])), "variant": s["variant"], "fit_intercept": False}
        model = LSTDQ(**settings(case), trace=case["trace"], features=features, weighting="none", **options).fit(**data)
        assert_vector(column(model.coef_), s["weights"], s["condition"])
        omega, log = numbers(s["dual"]), model.logged_
        g = log.dual_weights(omega, 0.0, model.lmbda)
        value = numbers(case["expected"]["initial"]) @ model.coef_
        assert_vector(column([g @ log.rows.y[log.full, 0]]), np.array([[value]]), s["condition"] * s["dual_condition"])
        if case["name"] == "dual weights":  # intervals need five episodes
            found = policy_value(model).dual_weights
            np.testing.assert_allclose(found, g, rtol=0.0, atol=1e-13 * s["dual_condition"] * np.abs(g).max())


# ---------------------------------------------------------------- after each transition


def recursive(case, variant):
    alpha = case["expected"]["solutions"][0]["alpha"]
    gamma, lmbda, alpha = (float(numbers(value)) for value in (case["gamma"], case["lmbda"], alpha))
    return RecursiveLSTD(len(case["X"][0]), gamma, lmbda, alpha, variant)


@each("steps")
def test_recursive_weights(case):
    """Of each variant, from a recursion for it and from those for the other variants."""
    models = {variant: recursive(case, variant) for variant in VARIANTS}
    steps = transitions(case)
    for s in case["expected"]["solutions"]:
        for model in models.values():
            if model.n_updates < s["transitions"]:
                steps[model.n_updates][1].feed(model)
            assert_vector(column(model.weights_for(s["variant"])), s["weights"], s["condition"])
        assert_vector(column(models[s["variant"]].weights), s["weights"], s["condition"])


@each("steps")
def test_weights_row_by_row(case):
    """Of `partial_fit`, where a row whose successor is the next row counts as soon as that one is there."""
    steps = transitions(case)
    known = [t + (case["successors"] == "rows" and not step.terminated) for t, step in steps]
    for variant in VARIANTS:
        expected = [s for s in case["expected"]["solutions"] if s["variant"] == variant]
        model = estimator(case, expected[0]["alpha"], variant)
        for t in range(len(case["X"])):
            model.partial_fit(**arrays(case, slice(t, t + 1)))
            if count := sum(row <= t for row in known):
                s = expected[count - 1]
                assert model.n_transitions_ == s["transitions"] == count
                assert_vector(column(model.coef_), s["weights"], s["condition"])


# ---------------------------------------------------------------- chunks


@each("chunks")
def test_chunks_merge_to_the_whole(case):
    parts = [statistics(case, slice(*pair)) for pair in pairwise(case["edges"])]
    whole = {name: numbers(value) for name, value in case["expected"]["whole"].items()}
    left = reduce(lambda one, two: one.then(two), parts)
    right = reduce(lambda two, one: one.then(two), reversed(parts))
    for found in (statistics(case), left, right):
        for variant, share in zip(VARIANTS, (1.0, 0.0, 1.0 - numbers(case["lmbda"])), strict=True):
            assert_vector(found.matrix(variant), whole["A"] - share * whole["B"])
        assert_vector(found.b, whole["b"])


# ---------------------------------------------------------------- temporal differences


def td_models(case):
    arguments = [len(case["X"][0]), *(float(numbers(case[name])) for name in ("gamma", "lmbda", "step_size"))]
    models = {
        "accumulating": TD(*arguments),
        "replacing": TD(*arguments, trace="replacing"),
        "true_online": TrueOnlineTD(*arguments),
    }
    return [(models[name], weights) for name, weights in case["expected"].items()]


@each("td")
def test_td(case):
    for model, expected in td_models(case):
        for (_, step), weights in zip(transitions(case), expected, strict=True):
            step.feed(model)
            assert_vector(model.weights, weights)


# ---------------------------------------------------------------- random processes


def hexadecimal(value):
    return np.array([hexadecimal(v) for v in value]) if isinstance(value, list) else float.fromhex(value)


def digest(array):
    return hashlib.sha256(array.astype("<f8").tobytes()).hexdigest()


def probabilities(model, successors):
    """Those of each row of `successors`, and the whole matrix they belong to."""
    return np.take_along_axis(model.transition[: len(successors)], np.array(successors), axis=1)


@each("processes")
def test_random_processes_bit_for_bit(case):
    model = RandomMRP(case["n_states"], case["branching"], float.fromhex(case["reward_std"]), case["seed"])
    shown = len(case["successors"])
    np.testing.assert_array_equal(probabilities(model, case["successors"]), hexadecimal(case["probabilities"]))
    assert (model.transition[:shown] > 0).sum() == shown * case["branching"]
    binary = make_features(model, "binary")
    np.testing.assert_array_equal(binary[:shown], hexadecimal(case["binary"]))
    assert digest(binary) == case["sha256"]["binary"]
    for run in case["runs"]:
        assert model.simulate(len(run["rewards"]), run["seed"]).states.tolist() == run["states"]


@each("processes")
def test_normal_numbers_bit_for_bit(case, same_logarithm):
    model = RandomMRP(case["n_states"], case["branching"], float.fromhex(case["reward_std"]), case["seed"])
    for name, array in {"rewards": model.reward, "normal": make_features(model, "normal")}.items():
        np.testing.assert_array_equal(array[: len(case[name])], hexadecimal(case[name]))
        assert digest(array) == case["sha256"][name]
    for run in case["runs"]:
        rewards = model.simulate(len(run["rewards"]), run["seed"]).rewards
        np.testing.assert_array_equal(rewards, hexadecimal(run["rewards"]))


@pytest.fixture(scope="module")
def same_logarithm():
    """Skip, and say so, where the logarithm of this machine differs in the last bits from that of the file."""
    k, rows = 100, cases("processes")[1]
    _, _, rewards, _ = load("draws").random_process(k, rows["branching"], rows["seed"])
    if digest(np.array(rewards)) != rows["sha256"]["rewards"]:
        pytest.skip("the logarithm of this machine differs in last bits from that of conformance/processes.json")
