"""Units of features make no difference to LSTDCV, nor does what is added to a dense one if there is an intercept."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as cases
from hypothesis import strategies as st
from scipy import sparse

import lstd
import naive
from lstd import LSTD, LSTDCV, HorizonLSTD, LSTDStatistics, RecursiveLSTD, fit_tables
from lstd.data.check_rows import check_rows
from lstd.metrics import observed_returns
from lstd.ope import LSTDQ
from support.tolerances import assert_close

few_pairs = pytest.mark.usefixtures("few_pairs")
GAMMA, LMBDAS = 0.9, [0.0, 0.5, 0.9, 1.0]
MIXED = np.array([1e8, 1e-8, 3.0])
SHIFT = np.array([1e6, -1e3, 0.0])  # in standard deviations


def log(seed=0, *, next_rows=False):
    """Thirty episodes: a number, a rare state and a column that is mostly zero; half of the episodes are cut off."""
    random = np.random.default_rng(seed)
    episode = np.repeat(np.arange(30), random.integers(5, 20, 30))
    T, last = len(episode), np.append(np.diff(episode) != 0, True)
    X = random.normal(size=(T, 3))
    X[:, 1], X[:, 2] = random.random(T) < 0.05, X[:, 2] * (random.random(T) < 0.3)
    terminated = last & (episode % 2 == 0)
    y = X @ [1.0, 3.0, -1.0] + random.normal(size=T)
    columns = {"episode": episode, "terminated": terminated}
    if next_rows:
        columns["X_next"] = np.roll(X, -1, axis=0)
    else:
        y[last & ~terminated] = np.nan
    return X, y, columns


def fitted(X, y, columns, **options):
    return LSTDCV(GAMMA, LMBDAS, **options).fit(X, y, **columns)


def scaled(X, scale, shift=0.0):
    return (X + shift * X.std(axis=0)) * scale


@given(
    st.lists(st.floats(-8.0, 8.0).map(lambda k: 10.0**k), min_size=3, max_size=3),
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    st.integers(0, 3),
)
@pytest.mark.parametrize("next_rows", [False, True])
@cases(max_examples=2, deadline=None)
def test_any_scales_and_shifts(next_rows, scale, shift, seed):
    X, y, columns = log(seed, next_rows=next_rows)
    moved, others = scaled(X, scale, shift), dict(columns)
    if next_rows:
        others["X_next"] = np.roll(moved, -1, axis=0)
    plain, other = fitted(X, y, columns), fitted(moved, y, others)
    assert other.lmbda_ == plain.lmbda_
    assert_close(other.alpha_, plain.alpha_, "units")
    assert_close(other.predict(moved), plain.predict(X), "units")
    one, two = other.predict_interval(moved), plain.predict_interval(X)
    assert_close(one.standard_error, two.standard_error, "units")
    assert np.array_equal(one.little_data, two.little_data)


@few_pairs
def test_chunks_and_tables(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, columns = log()
    moved, settings = scaled(X, MIXED, SHIFT), {"gamma": GAMMA, "lmbda": "auto", "alpha": "auto"}
    plain = LSTDCV(GAMMA).fit(X, y, **columns)
    half = int(np.flatnonzero(columns["episode"] == columns["episode"][len(X) // 2])[0])
    chunks = [
        {"X": moved[part], "y": y[part], **{name: values[part] for name, values in columns.items()}}
        for part in (slice(0, half), slice(half, len(X)))
    ]
    table = pd.DataFrame(moved, columns=["a", "b", "c"]).assign(
        y=np.where(np.isnan(y), 0.0, y), id=columns["episode"], end=columns["terminated"]
    )
    table.to_csv(tmp_path / "log.csv", index=False)
    models = [
        lstd.fit_chunks(chunks, n_jobs=2, **settings),
        lstd.fit_chunks(chunks, n_jobs=1, **settings),
        *(
            lstd.fit_tables(
                source, features=["a", "b", "c"], reward="y", episode="id", terminated="end", **settings
            ) for source in (table, tmp_path / "log.csv")
        ),
    ]  # fmt: skip
    for model in models:
        assert (model.lmbda_, model.penalty) == (plain.lmbda_, None)
        assert_close(model.predict(table if model.model_.names else moved), plain.predict(X), "units")


@pytest.mark.parametrize("next_rows", [False, True])
def test_sparse_chunks_are_centred_as_dense_ones(next_rows):
    X, y, columns = log(next_rows=next_rows)
    sums = []
    for to in (np.asarray, sparse.csr_array):
        given_rows = columns | ({"X_next": to(columns["X_next"])} if next_rows else {})
        rows = check_rows(to(X), y, gamma=GAMMA, **given_rows)
        sums.append(LSTDStatistics.from_rows(rows.with_intercept([1.0, 0.0, -2.0]), 0.5))
    if next_rows:
        columns["X_next"] = columns["X_next"] - [1.0, 0.0, -2.0]
    moved = check_rows(X - [1.0, 0.0, -2.0], y, gamma=GAMMA, **columns)
    sums.append(LSTDStatistics.from_rows(moved.with_intercept(), 0.5))
    for name in ("A", "B", "b", "trace"):
        assert_close(getattr(sums[1], name), getattr(sums[0], name), "sums")
        assert_close(getattr(sums[2], name), getattr(sums[0], name), "sums")


@few_pairs
@pytest.mark.parametrize("to_input", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_ridge_is_that_of_the_same_lstd(to_input, tmp_path):
    X, y, columns = log()
    model = fitted(to_input(X * MIXED), y, columns)
    same = LSTD(GAMMA, model.lmbda_, model.ridge_).fit(to_input(X * MIXED), y, **columns)
    assert_close(same.predict(X * MIXED), model.predict(X * MIXED), "units")
    full = np.flatnonzero(np.append(np.diff(columns["episode"]) == 0, False) | columns["terminated"])
    spread = [naive.column_units(x, np.ones(len(full)))[1] for x in X[full].T * MIXED[:, np.newaxis]]
    assert_close(model.ridge_, model.alpha_ * np.array(spread), "solve")
    model.save(tmp_path / "m")
    assert (lstd.load(tmp_path / "m").ridge_ == model.ridge_).all()


@few_pairs
def test_statistics_are_those_of_the_features():
    X, y, columns = log()
    X += np.array([40.0, 0.0, 0.0])  # is centred
    model = fitted(X, y, columns)
    sums = LSTDStatistics.from_arrays(X, y, gamma=GAMMA, lmbda=model.lmbda_, fit_intercept=True, **columns)
    for name in ("A", "B", "b", "trace"):
        assert_close(getattr(model.statistics_, name), getattr(sums, name), "solve")
    both = [one.then(sums) for one in (model.statistics_, sums)]
    assert_close(both[0].A, both[1].A, "solve")
    assert model.model_.settings.centre[1:] == (0.0, 0.0)


def test_states_keep_the_unit_of_a_row():
    """One-hot columns, however rare, have spread 1, and every row but those of the usual state counts 1 in the unit."""
    X, y, columns = log()
    X = np.eye(9)[np.random.default_rng(3).integers(0, 8, len(X))]  # one is never seen
    model = LSTDCV(GAMMA, alphas=None).fit(X, y, **columns)
    assert (model.ridge_ == model.alpha_).all()
    assert np.isclose(np.log2(model.cv_results_["alpha"]) % 1.0, 0.0).all()


@few_pairs
def test_a_constant_column():
    X, y, columns = log()
    with_constants = np.column_stack([X, np.full(len(X), 7.5), np.full(len(X), 1e9), np.zeros(len(X))])
    plain, model = fitted(X, y, columns), fitted(with_constants, y, columns)
    assert_close(model.predict(with_constants), plain.predict(X), "units")
    assert (model.ridge_[3:] == model.alpha_).all()
    little = model.predict_interval(with_constants).little_data
    assert np.array_equal(little, plain.predict_interval(X).little_data)
    assert not little.all()


SMALL = np.array([1e-3, 1.0, 1.0])  # the first feature in units a thousand times larger


def texts_of_scales(act):
    """The texts of the warnings about scales that an act gives."""
    with warnings.catch_warnings(record=True) as given_warnings:
        warnings.simplefilter("always")
        act()
    return [str(one.message) for one in given_warnings if "`alpha` penalises" in str(one.message)]


def moved_in_units(make, X, y, columns, ridge, spread):
    """Mean square by which predictions would move with a penalty in units, as a share of that of the residuals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, other = (make(alpha).fit(X, y, **columns) for alpha in (ridge, ridge * spread))
    before, after = model.predict(X), other.predict(X)
    if isinstance(model, HorizonLSTD):
        found = model.observed_returns(X, y, **columns)
    else:
        found = observed_returns(y, gamma=GAMMA, prediction=before, **columns)
    return np.mean((after - before) ** 2) / np.average((found.returns - before) ** 2, weights=found.weight)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 11])  # shares from zero to 14 %, some of them near 2 %
def test_a_warning_of_scales_comes_where_predictions_would_move(seed, intercept):
    random = np.random.default_rng(seed)
    X, y, columns = log(seed)
    X = X * 10.0 ** random.uniform(-2.0, 2.0, 3)
    X[:, 0] += X[:, 0].std()
    spread = np.array([naive.column_units(x, np.ones(len(X)), centred=intercept)[1] for x in X.T])
    ridge = np.full(3, 10.0 ** random.uniform(-1.0, 2.0))
    for make in (
        lambda alpha: LSTD(GAMMA, 0.9, alpha, fit_intercept=intercept),
        lambda alpha: HorizonLSTD(5, GAMMA, 0.9, alpha, penalty="raw", fit_intercept=intercept, check=False),
    ):
        share = moved_in_units(make, X, y, columns, ridge, spread)
        assert not 0.019 < share < 0.021, "another seed: too near for spreads of some of the rows"
        texts = texts_of_scales(lambda: make(ridge[0]).fit(X, y, **columns))  # noqa: B023
        differ = np.ptp(np.log(spread)) > np.log(10.0)
        assert len(texts) == (share >= 0.02 and differ)
        assert not texts_of_scales(lambda: make(ridge[0]).fit(X / np.sqrt(spread), y, **columns))  # noqa: B023


def test_lstd_warns_of_scales_once():
    X, y, columns = log()
    for model in (LSTD(GAMMA), LSTD(GAMMA, fit_intercept=False), HorizonLSTD(5, penalty="raw")):
        (text,) = texts_of_scales(lambda: model.fit(X * SMALL, y, **columns))  # noqa: B023
        assert re.match(r"`alpha` penalises x[12] \S+ times less than x0: the squares .* it would move the", text)
        assert text in model.model_.said
    assert not texts_of_scales(lambda: HorizonLSTD(5).fit(X * SMALL, y, **columns))
    assert not texts_of_scales(lambda: LSTD(GAMMA).fit(X * [1e4, 1.0, 1.0], y, **columns))  # which changes nothing


def test_features_that_are_all_small_are_penalised_too_much():
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 3))
    y = X @ [1.0, -1.0, 2.0] + random.normal(size=3000)
    columns = {"terminated": random.random(3000) < 0.5}
    small = 0.03 * X
    (text,) = texts_of_scales(lambda: LSTD(GAMMA).fit(small, y, **columns))
    assert re.match(r"`alpha` penalises features much, as their spreads are small: x\d varies by 0\.03\. In", text)
    for factor in (1.0, 1e3):
        assert not texts_of_scales(lambda: LSTD(GAMMA).fit(small / 0.03 * factor, y, **columns))  # noqa: B023
    assert not texts_of_scales(lambda: LSTD(GAMMA, alpha=1e-3).fit(small, y, **columns))


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
def test_tables_action_values_and_streams_warn_of_scales_too():
    X, y, columns = log()
    X = X * SMALL
    names = [f"f{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(y=y, **columns)
    given = {"gamma": GAMMA, "features": names, "reward": "y", "episode": "episode", "terminated": "terminated"}
    policy = {"actions": np.arange(len(X)) % 2, "target_policy": np.full((len(X), 2), 0.5)}

    def pairs(X, actions):
        return np.column_stack([X, actions])

    for fit in (
        lambda: fit_tables(frame, **given),
        lambda: LSTD(GAMMA).partial_fit(X, y, **columns),
        lambda: LSTDQ(GAMMA, trace="none").fit(X, y, **columns, **policy),
        lambda: LSTDQ(GAMMA, trace="none", features=pairs).fit(X, y, **columns, **policy),
        lambda: RecursiveLSTD(X.shape[1], GAMMA).partial_fit(X, y, **columns),
    ):
        (text,) = texts_of_scales(fit)
        assert re.match(r"`alpha` penalises (x|f)[123] \S+ times less than (x|f)0:", text)


@few_pairs
@pytest.mark.parametrize("alpha", [0.0, [1.0, 0.0, 0.0], [1e-6, 1.0, 1.0]], ids=["none", "one column", "by column"])
def test_no_warning_of_scales_where_alpha_is_for_them(alpha):
    X, y, columns = log()
    assert not texts_of_scales(lambda: LSTD(GAMMA, alpha=alpha).fit(X * SMALL, y, **columns))
    assert not texts_of_scales(lambda: LSTDCV(GAMMA, LMBDAS).fit(X * SMALL, y, **columns))


# ---------------------------------------------------------------- the grid of α


def units_of_grid(X, y, columns):
    """The default grid in units, and the chosen α in them."""
    model = LSTDCV(GAMMA, [0.0, 0.9]).fit(X, y, **columns)
    full = np.flatnonzero(np.append(np.diff(columns["episode"]) == 0, False) | columns["terminated"])
    spread = [naive.column_units(x, np.ones(len(full)))[1] for x in X[full].T]
    unit = naive.alpha_unit(X[full], np.ones(len(full)), spread)
    return np.unique(model.cv_results_["alpha"]) / unit, model.alpha_ / unit, model


def assert_is_found_in(alphas, model, X, y, columns):
    """Where a pair lies inside the grown grid, it is where a given grid of the same α leads, or better."""
    given_grid = LSTDCV(GAMMA, [0.0, 0.9], alphas=alphas).fit(X, y, **columns)
    at = [list(zip(one.cv_results_["lmbda"], one.cv_results_["alpha"], strict=True)) for one in (model, given_grid)]
    assert_close(np.array(at[0]), np.array(at[1]), "solve")
    assert model.cv_results_["rank_test_score"][at[0].index((model.lmbda_, model.alpha_))] == 1


def test_the_grid_ends_where_the_best_pair_lies_inside():
    X, y, columns = log()
    y = y + np.random.default_rng(0).normal(scale=5.0, size=len(y))
    alphas, alpha, model = units_of_grid(X, y, columns)
    assert_close(alphas, 2.0 ** np.arange(np.log2(alphas[0]).round(), np.log2(alphas[-1]).round() + 1), "solve")
    assert alphas[0] <= alpha <= alphas[-1]
    assert_is_found_in(np.unique(model.cv_results_["alpha"]), model, X, y, columns)


def test_the_grid_grows_down_to_its_bound_for_rewards_without_noise():
    X, _, columns = log()
    X = np.column_stack([X, X[:, 0] + 1e-3 * np.random.default_rng(2).normal(size=len(X))])
    y = 1e3 * (X[:, 3] - X[:, 0])  # a difference of two columns, which a ridge coefficient hides
    columns["terminated"] = np.append(np.diff(columns["episode"]) != 0, True)
    alphas, alpha, model = units_of_grid(X, y, columns)
    assert np.isclose(alphas[0], 2.0**-20)
    assert alpha < 2.0**-8
    assert_is_found_in(np.unique(model.cv_results_["alpha"]), model, X, y, columns)


def test_the_grid_grows_up_to_its_bound_for_features_that_say_nothing():
    random = np.random.default_rng(5)
    episode = np.repeat(np.arange(60), 4)
    columns = {"episode": episode, "terminated": np.append(np.diff(episode) != 0, True)}
    X, y = random.normal(size=(240, 12)), random.normal(size=240)
    alphas, alpha, model = units_of_grid(X, y, columns)
    assert alphas[-1] <= 2.0**8 * 1.001
    assert alpha > 1.0
    assert model.ridge_.shape == (12,)
