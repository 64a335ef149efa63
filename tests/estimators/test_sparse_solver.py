"""The iterative solver: products with A by definition, and the same models as the direct solver."""

import tracemalloc
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import lstd
import naive
from lstd import LSTD, LSTDCV
from lstd.data.check_rows import check_rows
from lstd.data.settings import Settings
from lstd.errors import IllConditionedWarning, InvalidInputError, RidgeWarning
from lstd.estimators import sparse_solver
from lstd.ope import LSTDQ, policy_value
from streams import all_streams, definition
from tolerances import assert_close
from twins import BOTH

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # successors and ratios are drawn at random

SPARSE = ("sparse",)


def system_of(stream, ridge=0.0):
    """The system of a stream without the column of ones, and the settings."""
    rows = check_rows(**stream.sparse.data, gamma=stream.gamma)
    chosen = Settings(stream.gamma, stream.lmbda, ridge, stream.variant, False)
    return sparse_solver.MatrixFreeSystem(rows, chosen, chosen.ridge(rows.n_features), ones=False)


@given(all_streams(rows=(1, 2, 5, 12, 24), forms=SPARSE), st.integers(0, 2**32 - 1), st.sampled_from(sorted(BOTH)))
@settings(deadline=None, max_examples=40)
def test_products_are_those_of_the_definition(stream, seed, body):
    """b − A v of any weights, in batches of five rows."""
    A, b = definition(stream, stream.variant)
    v = np.random.default_rng(seed).normal(size=len(A))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_solver, "BATCH", 5)
        for name in ("add_td_errors", "add_squares"):
            patch.setattr(sparse_solver, name, getattr(BOTH[body].products, name))
        system = system_of(stream)
        size = max(1.0, np.abs(A).max(), np.abs(b).max())
        for j, column in enumerate(b.T):
            assert_close(system.residual(np.append(v, 0.0), j)[:-1] / size, (column - A @ v) / size, "sums")
        assert_close(-system.residual(np.append(v, 0.0))[:-1] / size, A @ v / size, "sums")
        full, weight = system.rows.full, system.rows.weight * system.rows.importance_ratio
        assert_close(system.squares()[:-1], (full * weight) @ stream.X**2, "sums")


@given(all_streams(rows=(2, 5, 24), forms=SPARSE, successors=(True,)), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_products_have_their_adjoint(stream, seed):
    """⟨u, A v⟩ = ⟨Aᵀu, v⟩, with Aᵀu by a pass forwards."""
    stream = replace(stream, variant="boyan")
    u, v = np.random.default_rng(seed).normal(size=(2, stream.X.shape[1]))
    ones = np.ones(len(stream))
    columns = (stream.trace_coefficient, stream.importance_ratio, stream.weight)
    coefficient, rho, weight = (ones if column is None else column for column in columns)
    transposed = np.zeros(len(u))
    for rows in stream.episodes:
        discounts = np.append(0.0, stream.leaving[rows])
        transposed += naive.transposed_product(
            u, stream.X[rows], stream.X_next[rows], stream.lmbda * coefficient[rows], discounts, rho[rows], weight[rows]
        )
    product = -system_of(stream).residual(np.append(v, 0.0))[:-1]
    size = max(1.0, np.abs(transposed).max(), np.abs(product).max())
    assert_close(u @ product / size, transposed @ v / size, "sums")


@given(all_streams(rows=(5, 12, 24), forms=SPARSE), st.sampled_from([1.0, 2.0**-6]))
@settings(deadline=None, max_examples=40)
def test_weights_are_those_of_the_direct_solver(stream, alpha):
    A, _ = definition(stream.regressors, stream.variant)
    ridge = np.diag(np.append(np.full(stream.X.shape[1], alpha), [0.0] * stream.fit_intercept))
    assume(np.linalg.cond(A + ridge) < 1e4)
    options = {**stream.settings, "alpha": alpha, "n_blocks": 0}
    try:
        direct = LSTD(**options).fit(**stream.data)
    except InvalidInputError:  # no full transition
        with pytest.raises(InvalidInputError):
            LSTD(**options, solver="iterative").fit(**stream.data)
        return
    model = LSTD(**options, solver="iterative", tol=1e-12).fit(**stream.data)
    size = max(1.0, np.abs(direct.coef_).max(), np.abs(direct.intercept_).max())
    assert_close(model.coef_ / size, direct.coef_ / size, "iterative")
    assert_close(np.asarray(model.intercept_) / size, np.asarray(direct.intercept_) / size, "iterative")
    for name in ("n_transitions_", "n_episodes_", "n_unused_rewards_", "n_features_in_"):
        assert getattr(model, name) == getattr(direct, name)
    assert model.residual_ <= 1e-12
    assert 0 <= model.n_iter_ <= 1000


def states(n=60, T=1500, E=90, *, seed=0, given_next=False, factors=False, cut=0.5, entries=1, rewards=None):
    """One-hot or hashed rows, with or without successors and factors; X, y and columns."""
    random = np.random.default_rng(seed)
    X = np.zeros((T, n))
    values = 1.0 if entries == 1 else random.normal(size=(T, entries))
    X[np.arange(T)[:, np.newaxis], random.integers(0, n, (T, entries))] = values
    episode = np.sort(random.integers(0, E, T))
    last = np.append(episode[1:] != episode[:-1], True)
    columns = {"episode": episode, "terminated": last & (random.uniform(size=T) > cut)}
    if given_next:
        columns["X_next"] = sparse.csr_array(random.permutation(X))
    if factors:
        columns |= {"importance_ratio": random.uniform(0.0, 2.0, T), "trace_coefficient": random.uniform(size=T)}
        columns |= {"discount": random.uniform(size=T), "weight": random.uniform(size=T)}
    y = X[:, :10].sum(axis=1) + random.normal(size=T)
    return sparse.csr_array(X), y if rewards is None else np.column_stack([y, y**2]), columns


KINDS = {
    "episodes": {}, "successors": {"given_next": True}, "factors": {"factors": True}, "one stream": {"E": 1, "cut": 1},
    "one stream with successors": {"E": 1, "cut": 1, "given_next": True}, "hashed": {"entries": 5},
    "everything": {"entries": 5, "given_next": True, "factors": True, "rewards": 2},
}  # fmt: skip


SETTINGS = (
    ("boyan", 0.0, 1.0, True),
    ("boyan", 0.8, 0.0, True),
    ("uncorrected", 0.8, 0.0, False),
    ("mixed", 0.5, 1.0, False),
)


@pytest.mark.parametrize(("kind", "chosen"), [*zip(KINDS, SETTINGS * 2, strict=False), ("everything", SETTINGS[1])])
def test_intervals_are_those_of_the_direct_solver(kind, chosen):
    X, y, columns = states(**KINDS[kind])
    options = {"gamma": 0.95} | dict(zip(("variant", "lmbda", "alpha", "fit_intercept"), chosen, strict=True))
    direct = LSTD(**options, n_blocks=20).fit(X, y, **columns)
    model = LSTD(**options, solver="iterative", tol=1e-12).fit(X, y, **columns)
    assert_close(model.coef_, direct.coef_, "iterative")
    one, two = model.predict_interval(X), direct.predict_interval(X)
    for name in ("prediction", "standard_error", "degrees_of_freedom", "shift", "lower", "upper"):
        assert_close(getattr(one, name), getattr(two, name), "iterative_intervals")
    weights = np.arange(len(y)) / len(y) - 0.5
    one, two = (each.predict_interval(X, weights=weights).standard_error for each in (model, direct))
    assert_close(one, two, "iterative_intervals")


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_standard_errors_of_categories_with_a_long_tail(alpha):
    """Many are in one block alone, so that without it the ridge term decides their weights and the intercept."""
    random = np.random.default_rng(0)
    state, T, n = np.minimum(random.zipf(1.3, 4000) - 1, 399), 4000, 400
    X, columns = (
        sparse.csr_array(np.eye(n)[state]),
        {"episode": np.arange(T) // 20, "terminated": np.arange(T) % 20 == 19},
    )
    y = state % 10 + random.normal(size=T)
    direct = LSTD(alpha=alpha, n_blocks=20).fit(X, y, **columns).predict(np.eye(n), return_std=True)[1]
    for tol, within in ((1e-8, "iterative_default"), (1e-10, "iterative_intervals")):
        model = LSTD(alpha=alpha, solver="iterative", tol=tol).fit(X, y, **columns)
        assert_close(model.predict(np.eye(n), return_std=True)[1], direct, within)


@pytest.mark.parametrize(("fit_intercept", "given_next"), [(True, False), (False, True)])
def test_states_that_are_rare_or_never_visited(fit_intercept, given_next):
    """Without a ridge term, they have the weight that a vanishing one gives."""
    X, y, columns = states(n=200, T=150, given_next=given_next)
    options = {"lmbda": 0.5, "alpha": 0.0, "fit_intercept": fit_intercept, "n_blocks": 20}
    direct = LSTD(**options).fit(X, y, **columns)
    model = LSTD(**options, solver="iterative", tol=1e-12).fit(X, y, **columns)
    assert_close(model.coef_, direct.coef_, "iterative")
    one, two = model.predict_interval(np.eye(200)), direct.predict_interval(np.eye(200))
    assert_close(one.prediction, two.prediction, "iterative")
    assert_close(one.standard_error, two.standard_error, "iterative_intervals")
    assert (one.little_data == two.little_data).all()


def test_a_coefficient_for_each_feature_groups_and_several_rewards():
    X, y, columns = states(rewards=2)
    groups = columns["episode"] % 40
    options = {"alpha": np.linspace(0.0, 3.0, 60), "n_blocks": 20}
    direct = LSTD(**options).fit(X, y, groups=groups, **columns)
    for features in (X, X.toarray()):
        model = LSTD(**options, solver="iterative", tol=1e-12).fit(features, y, groups=groups, **columns)
        assert_close(model.coef_, direct.coef_, "iterative")
        assert_close(model.predict(X, return_std=True)[1], direct.predict(X, return_std=True)[1], "iterative_intervals")


def test_indices_of_both_widths():
    X, y, columns = states()
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    one, two = (LSTD(solver="iterative").fit(each, y, **columns) for each in (X, wide))
    assert np.array_equal(one.coef_, two.coef_)


def test_auto_takes_the_iterative_solver_for_many_sparse_features_alone(monkeypatch):
    X, y, columns = states()
    assert LSTD().fit(X, y, **columns).n_iter_ == 1
    monkeypatch.setattr("lstd.data.settings.DENSE_UP_TO", 50)
    assert LSTD().fit(X, y, **columns).n_iter_ > 1
    assert LSTD().fit(X.toarray(), y, **columns).n_iter_ == 1
    assert LSTD(solver="direct").fit(X, y, **columns).n_iter_ == 1


def test_without_an_end_at_gamma_one_there_is_no_intercept():
    X, y, columns = states(cut=1.0)
    with pytest.warns(IllConditionedWarning, match="no end is reached"):
        model = LSTD(gamma=1.0, solver="iterative").fit(X, y, **columns)
    plain = LSTD(gamma=1.0, fit_intercept=False).fit(X, y, **columns)
    assert model.intercept_ == 0.0
    assert_close(model.coef_, plain.coef_, "iterative")


def test_a_tolerance_that_is_not_reached_warns():
    X, y, columns = states()
    with pytest.warns(ConvergenceWarning, match="stopped after 3 products .* `max_iter`"):
        model = LSTD(solver="iterative", max_iter=3, n_blocks=0).fit(X, y, **columns)
    assert model.residual_ > 1e-8


def test_warnings_about_rows_are_those_of_the_direct_solver():
    """The reward of the last row of a stream may be used later; no weight is no lack of ends."""
    X, y, columns = states()
    for chosen in ({}, columns, {**columns, "weight": np.zeros(len(y))}):
        texts = []
        for solver in ("direct", "iterative"):
            with warnings.catch_warnings(record=True, action="always") as caught, suppress(InvalidInputError):
                LSTD(gamma=0.9, solver=solver, n_blocks=0).fit(X, y, **chosen)
            texts.append([str(one.message) for one in caught])
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("solver", "krylov"), ("tol", 0.0), ("tol", 2.0), ("max_iter", 0), ("max_iter", 2.5), ("solver", None)],
)
def test_parameters_out_of_range(parameter, value):
    X, y, columns = states()
    with pytest.raises(InvalidInputError, match=f"`{parameter}`"):
        LSTD(**{parameter: value}).fit(X, y, **columns)


def test_what_needs_the_matrix_is_refused_by_name():
    X, y, columns = states()
    model = LSTD(solver="iterative").fit(X, y, **columns)
    for name in ("statistics_", "condition_number_", "coef_covariance_"):
        with pytest.raises(AttributeError, match=f"`{name}` needs the matrix"):
            getattr(model, name)
    calls = {
        "partial_fit": lambda: model.partial_fit(X, y),
        "bias_check": lambda: model.bias_check(X, y, **columns),
        "misfit_check": lambda: model.misfit_check(X, y, **columns),
        "fit_statistics": lambda: LSTD(solver="iterative").fit_statistics([]),
        "effective_degrees_of_freedom": lambda: lstd.metrics.effective_degrees_of_freedom(model),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidInputError, match=f"`{name}` needs the matrix"):
            call()


@pytest.mark.parametrize("call", [LSTD(solver="direct", n_blocks=0).fit, LSTD(n_blocks=0).partial_fit])
def test_a_matrix_that_does_not_fit_in_memory_is_refused(call):
    X = sparse.csr_array((np.ones(5), np.arange(5), np.arange(6)), shape=(5, 3 * 10**6))
    with pytest.raises(InvalidInputError, match=r"3000001 features, .* take 7.2e\+04 GB.* sparse.*iterative"):
        call(X, np.ones(5))


def test_features_that_overflow():
    X, y, columns = states()
    with pytest.raises(InvalidInputError, match="overflowed"):
        LSTD(solver="iterative").fit(1e200 * X, y, **columns)


def test_a_saved_model_has_the_same_predictions_and_intervals(tmp_path):
    X, y, columns = states(rewards=2)
    model = LSTD(solver="iterative").fit(X, y, **columns)
    model.save(tmp_path / "model.lstd")
    loaded = lstd.load(tmp_path / "model.lstd")
    assert (loaded.solver, loaded.n_iter_, loaded.residual_) == ("iterative", model.n_iter_, model.residual_)
    for one, two in zip(loaded.predict(X, return_std=True), model.predict(X, return_std=True), strict=True):
        assert np.array_equal(one, two)
    assert loaded.score(X, y, **columns) == model.score(X, y, **columns)
    with pytest.raises(AttributeError, match="needs the matrix"):
        loaded.statistics_  # noqa: B018


@pytest.mark.parametrize("kind", ["one stream", "factors"])
def test_the_choice_of_settings_is_that_of_the_direct_solver(kind):
    """Scores of all pairs, also where folds cut an episode."""
    X, y, columns = states(**KINDS[kind])
    options = {"gamma": 0.9, "lmbdas": [0.0, 0.9], "alphas": [0.1, 10.0], "cv": 5}
    direct, model = (LSTDCV(**options, solver=solver).fit(X, y, **columns) for solver in ("direct", "iterative"))
    assert (model.lmbda_, model.alpha_) == (direct.lmbda_, direct.alpha_)
    for name in ("mean_test_score", "split2_test_score", "cautious_test_score"):
        assert_close(model.cv_results_[name], direct.cv_results_[name], "iterative_choice")
    assert_close(model.ridge_, direct.ridge_, "sums")
    assert (model.cv_results_["n_iter"] < 100).all()
    assert "needs the matrix" in model.bias_check_


def test_pairs_that_do_not_converge_are_left_out():
    X, y, columns = states(cut=1.0)
    options = {"gamma": 0.999, "lmbdas": [0.0, 1.0], "alphas": [1e-6, 100.0], "cv": 5, "n_blocks": 0}
    model = LSTDCV(**options, variant="uncorrected", solver="iterative", max_iter=9)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # it has a smaller tolerance
        model.fit(X, y, **columns)
    left_out = np.isinf(model.cv_results_["n_iter"])
    assert left_out.any()
    assert (np.isnan(model.cv_results_["mean_test_score"]) == left_out).all()
    with pytest.raises(InvalidInputError, match="none does within `max_iter`"):
        model.set_params(lmbdas=[0.0], alphas=[1e-6]).fit(X, y, **columns)


@pytest.mark.parametrize("lmbda", [0.0, 0.7])
def test_action_values_are_those_of_the_direct_solver(lmbda, tmp_path):
    X, y, columns = states(n=20)
    random = np.random.default_rng(0)
    policy, logged = random.dirichlet(np.ones(3), len(y)), np.full(len(y), 1 / 3)
    given = {"actions": random.integers(0, 3, len(y)), "target_policy": policy, "behavior_probability": logged}
    options = {"gamma": 0.9, "lmbda": lmbda, "n_blocks": 20}
    direct, model = (
        LSTDQ(**options, solver=solver, tol=1e-12).fit(X, y, **given, **columns) for solver in ("direct", "iterative")
    )
    assert_close(model.coef_, direct.coef_, "iterative")
    one, two = policy_value(model), policy_value(direct)
    assert_close(one.value, two.value, "iterative")
    assert_close(one.standard_error, two.standard_error, "iterative_intervals")
    assert one.unlogged_share == two.unlogged_share
    assert one.dual_weights is None
    model.save(tmp_path / "model.lstd")
    assert np.array_equal(lstd.load(tmp_path / "model.lstd").action_values(X), model.action_values(X))


def test_memory_is_that_of_the_rows_and_the_features():
    """40 bytes a row, 100 a feature and, with intervals, 8 a feature and block; also where episodes are cut off."""
    T, n = 200_000, 20_000
    X = sparse.csr_array((np.ones(T), (np.arange(T) * 7 % n).astype(np.int32), np.arange(T + 1)), shape=(T, n))
    columns = {"episode": np.arange(T) // 10, "terminated": np.zeros(T, bool)}
    for n_blocks, most in ((0, 40 * T + 100 * n), (10, 40 * T + 180 * n)):
        model = LSTD(solver="iterative", n_blocks=n_blocks, tol=1e-4)
        tracemalloc.start()
        model.fit(X, np.ones(T), **columns)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most + 2**21


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    X, y, columns = states()
    monkeypatch.setattr(sparse_solver, "LEAST_ROWS", 100)
    fits = []
    for threads in (1, 3):
        monkeypatch.setattr(sparse_solver, "blas_threads", lambda threads=threads: threads)
        fits.append(LSTD(solver="iterative").fit(X, y, **columns).predict(X, return_std=True))
    assert np.array_equal(*fits)
    monkeypatch.undo()
    assert_close(LSTD(solver="iterative").fit(X, y, **columns).predict(X), fits[0][0], "iterative")


@pytest.mark.parametrize("kind", ["episodes", "everything"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_ridge_term_gives_the_warning_of_the_direct_solver(kind, fit_intercept):
    X, y, columns = states(**KINDS[kind])
    texts = []
    for solver in ("direct", "iterative"):
        with warnings.catch_warnings(record=True, action="always") as caught:
            LSTD(gamma=0.9, alpha=300.0, solver=solver, n_blocks=0, fit_intercept=fit_intercept).fit(X, y, **columns)
        texts.append([str(one.message) for one in caught if issubclass(one.category, RidgeWarning)])
    assert texts[0] == texts[1] != []
