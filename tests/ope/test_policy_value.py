"""Values of policies, their intervals, dual weights and what no data bears on."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import naive
from logged_actions import PROCESS, TRACES, DecisionProcess, logged, systems
from lstd import LSTD
from lstd.errors import EffectiveSampleWarning
from lstd.ope import LSTDQ, EpsilonGreedy, compare_policies, policy_value
from tolerances import assert_close


def first_rows(data):
    return np.flatnonzero(np.diff(data["episode"], prepend=-1))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("variant", ["boyan", "uncorrected"])
@pytest.mark.parametrize("trace", TRACES)
def test_dual_weights_of_rewards_give_the_value(trace, variant, intercept):
    data = logged(30, p_end=0.1)
    data["groups"] = data["episode"] % 7
    model = LSTDQ(0.9, 0.7, trace, alpha=0.0, fit_intercept=intercept, variant=variant)
    model.fit(**data, weight=np.random.default_rng(0).uniform(0.5, 2.0, len(data["y"])))
    found = policy_value(model)
    rows = model.logged_.rows
    assert_close(found.dual_weights @ rows.y[model.logged_.full, 0], found.value, "solve")
    g = found.dual_weights
    assert_close(found.effective_sample_size, g.sum() ** 2 / (g**2).sum(), "sums")


@pytest.mark.filterwarnings("ignore::lstd.errors.EffectiveSampleWarning")  # of twelve episodes
@pytest.mark.filterwarnings("ignore::lstd.errors.SupportWarning")
def test_the_standard_error_is_the_jackknife_of_weights_and_initial_states():
    data = logged(12, 5, p_end=0.0)
    model = LSTDQ(0.9, 0.5, alpha=0.0, fit_intercept=False).fit(**data)
    found = policy_value(model)
    pi = data["target_policy"]
    starts = np.array([naive.expected_pair(data["X"][t], pi[t]) for t in first_rows(data)])
    parts = [
        systems({name: values[data["episode"] == e] for name, values in data.items()}, 0.5, "retrace", "boyan", 0.9)
        for e in range(12)
    ]
    changes = [sum(naive.value_without_episodes(parts, starts, e)) * np.sqrt(1 - 1 / 12) for e in range(12)]
    assert_close(found.standard_error, np.sqrt(np.sum(np.square(changes))), "solve")
    assert_close(found.value, starts.mean(axis=0) @ model.coef_, "solve")
    assert found.sample == "episodes"
    assert found.lower < found.value < found.upper
    fixed = policy_value(model, sample="fixed")
    changes = [naive.value_without_episodes(parts, starts, e)[0] * np.sqrt(1 - 1 / 12) for e in range(12)]
    assert_close(fixed.standard_error, np.sqrt(np.sum(np.square(changes))), "solve")
    other = policy_value(model, sample="independent")
    scatter = np.var(starts @ model.coef_, ddof=1) / 12
    assert_close(other.standard_error, np.hypot(fixed.standard_error, np.sqrt(scatter)), "solve")


def test_initial_states_may_be_given_with_weights():
    data = logged(30)
    model = LSTDQ(0.9, 0.5).fit(**data)
    X, P = data["X"][:5], data["target_policy"][:5]
    weights = np.arange(5.0)
    found = policy_value(model, X, target_policy=P, weights=weights)
    assert_close(found.value, weights @ model.state_values(X, P) / 10.0, "sums")
    assert found.sample == "independent"
    assert policy_value(model, X[:1], target_policy=P[:1]).sample == "fixed"
    called = LSTDQ(0.9, 0.5).fit(**data | {"target_policy": lambda X: np.full((len(X), 3), [0.2, 0.3, 0.5])})
    assert_close(policy_value(called, X).value, called.state_values(X).mean(), "sums")


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of little data
@pytest.mark.parametrize("seed", range(5))
def test_it_is_linear_mql_mwl_dualdice_and_doubly_robust_with_its_own_weights(seed):
    data = DecisionProcess(seed=seed).simulate(200, 5, seed, p_end=0.2)
    model = LSTDQ(0.9, alpha=0.0, fit_intercept=False).fit(**data)
    found, log = policy_value(model), model.logged_
    phi, rewards = log.pairs(slice(None)), log.rows.y[log.full, 0]
    after = log.expected(slice(None)) * log.rows.discount[log.full, np.newaxis]
    X, P = model.initial()
    initial = np.mean([naive.expected_pair(x, p) for x, p in zip(X, P, strict=True)], axis=0)
    values, weights = naive.linear_minimax(phi, after, rewards, initial)
    for name in values:
        assert_close(values[name], found.value, "solve")
    for one in weights.values():
        assert_close(found.dual_weights, one, "solve")
    errors = rewards + after @ model.coef_ - phi @ model.coef_
    assert_close(initial @ model.coef_ + found.dual_weights @ errors, found.value, "solve")


@pytest.mark.filterwarnings("ignore::lstd.errors.UnobservedWarning")
def test_state_values_with_importance_ratios_have_values_of_policies_too():
    data = PROCESS.simulate(60, 5, 1)
    rows = np.arange(len(data["y"]))
    ratio = data["target_policy"][rows, data["actions"]] / data["behavior_probability"]
    arrays = {name: data[name] for name in ("X", "y", "episode", "terminated")}
    model = LSTD(0.9, 0.0, alpha=0.01, fit_intercept=False).fit(**arrays, importance_ratio=ratio)
    states = data["X"][first_rows(data)]
    found = policy_value(model, states)
    assert_close(found.value, model.predict(states).mean(), "sums")
    full = ~np.isnan(data["y"])
    assert_close(found.effective_sample_size, ratio[full].sum() ** 2 / (ratio[full] ** 2).sum(), "sums")
    assert found.sample == "episodes"
    assert found.unlogged_share is None
    assert found.standard_error != model.predict_interval(states, weights=np.full(60, 1 / 60)).standard_error
    fixed = policy_value(model, states, sample="fixed")
    expected = model.predict_interval(states, weights=np.full(60, 1 / 60))
    assert_close([fixed.lower, fixed.upper], [expected.lower, expected.upper], "sums")
    assert policy_value(LSTD(0.9).fit(**arrays), states).effective_sample_size is None


@pytest.mark.filterwarnings("ignore::lstd.errors.SupportWarning")  # as it should be
def test_pairs_that_were_never_logged_are_counted():
    data = PROCESS.simulate(30, 5, 1)
    data["actions"] = np.where(data["X"][:, 0] == 1.0, 1, data["actions"])  # in state 0, other actions never
    model = LSTDQ(0.9).fit(**data)
    after = np.diff(data["episode"], prepend=-1) == 0
    states = np.concatenate([np.flatnonzero(after), first_rows(data)])
    mass = data["target_policy"][states][:, [0, 2]].sum(axis=1) * data["X"][states, 0]
    found = policy_value(model)
    assert_close(found.unlogged_share, mass.mean(), "sums")
    assert found.little_data
    called = LSTDQ(0.9, features=lambda X, a: np.einsum("ti,tj->tij", np.eye(3)[a], X).reshape(len(X), -1)).fit(**data)
    assert_close(policy_value(called).unlogged_share, found.unlogged_share, "sums")
    assert policy_value(LSTDQ(0.9).fit(**PROCESS.simulate(60, 5, 1))).unlogged_share == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": "some"}, "`sample` must be one of"),
        (
            {"initial_states": np.ones((2, 3)), "sample": "episodes", "target_policy": np.ones((2, 3)) / 3},
            "one row for each of the 30 episodes",
        ),
        ({"initial_states": np.ones((2, 3))}, "`target_policy` must be given"),
        ({"initial_states": np.ones((2, 2))}, "2 features"),
        ({"weights": np.zeros(30)}, "`weights` one above 0"),
        ({"weights": -np.ones(30)}, "`weights` must be finite and at least 0"),
        ({"weights": [np.nan] * 30}, "row 0 has nan. Correct it, or drop this row of `initial_states`"),
        ({"weights": np.ones(3)}, r"`weights` must have one weight per row of `initial_states`, shape \(30,\)"),
        ({"target_policy": np.ones((30, 3))}, "must sum to 1|must hold probabilities"),
        ({"model": "model"}, "`model` must be a fitted LSTDQ"),
        ({"model": LSTD(0.9).fit(np.ones((9, 1)), np.ones(9))}, "`initial_states` must be given"),
    ],
)
def test_bad_input_is_refused(options, message):
    arguments = {"model": LSTDQ(0.9).fit(**logged(30))} | options
    with pytest.raises(ValueError, match=message):
        policy_value(**arguments)


def test_models_that_were_not_fitted_are_told():
    for function in (
        lambda: policy_value(LSTD(), [[1.0]]), lambda: EpsilonGreedy(LSTDQ())([[1.0]]), lambda: policy_value(LSTDQ()),
        lambda: policy_value(LSTDQ(), state=[[1.0]]), lambda: compare_policies([LSTDQ(), LSTDQ()]),
    ):  # fmt: skip
        with pytest.raises(NotFittedError, match="not fitted yet"):
            function()


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of the fits
@pytest.mark.parametrize(("lmbda", "gamma", "spread"), [(0.9, 0.99, 1.0), (1.0, 1.0, 0.6), (0.5, 1.0, 1.6)])
def test_an_effective_sample_is_held_against_the_number_of_transitions(lmbda, gamma, spread):
    random, n = np.random.default_rng(0), 2000
    X, y, done = np.ones((n, 1)), random.normal(size=n), np.arange(n) % 20 == 19
    rows = {"episode": np.arange(n) // 20, "terminated": done}
    ratio = np.exp(spread * random.normal(size=n) - spread**2 / 2)
    model = LSTD(gamma, lmbda, fit_intercept=False).fit(X, y, importance_ratio=ratio, **rows)
    with pytest.warns(EffectiveSampleWarning) as given:
        found = policy_value(model, X[:100])
    size = found.effective_sample_size
    assert size < 100
    assert any(f"an effective sample of {size:.2g} of 2000 transitions" in str(one.message) for one in given)


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of the fit
def test_long_traces_are_no_small_effective_sample():
    random, n = np.random.default_rng(0), 2000
    X, y, done = np.ones((n, 1)), random.normal(size=n), np.arange(n) % 50 == 49
    rows = {"episode": np.arange(n) // 50, "terminated": done}
    ratio = np.exp(0.1 * random.normal(size=n) - 0.005)
    model = LSTD(1.0, 1.0, fit_intercept=False).fit(X, y, importance_ratio=ratio, **rows)
    found = policy_value(model, X[:40])
    assert found.effective_sample_size < 50
    assert not [text for text in found.said if "effective sample" in text]
