"""What rows and rewards of a fit say against predictions, and rows to be predicted beyond them: said, and only then."""

import copy
import gc
import pickle
import warnings
import weakref
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

import lstd
from lstd import LSTD, LSTDCV, HorizonLSTD, LSTDStatistics
from lstd._kernels.scales import any_outside
from lstd.errors import (
    BoundsWarning,
    ExtrapolationWarning,
    InvalidInputError,
    MissingTerminationWarning,
    SupportWarning,
    UnobservedWarning,
)
from lstd.report import write_fit_report
from support.tolerances import assert_close


def stream(n=400):
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(size=n), random.uniform(20.0, 60.0, n), np.full(n, 0.1)])
    return X, X[:, 0] + random.normal(size=n)


@pytest.fixture(scope="module")
def model():
    return LSTD(0.9).fit(*stream())


def changed(column, by):
    X = stream()[0]
    X[:, column] = by(X[:, column])
    return X


@pytest.mark.parametrize(
    ("column", "by", "said"),
    [
        (1, lambda age: 12.0 * age, r"x1 of 100 % of the rows, from 24\d\S* to 7\d\d\S* \(20\.\d+ to 59\.\d+ in"),
        (0, lambda x: x - 9.0, r"x0 of (9\d|100) % of the rows"),
        (0, lambda x: np.where(np.arange(400) % 25 == 0, 10.0, x), r"x0 of 4 % of the rows"),
    ],
)
def test_features_far_outside_of_their_range_are_named(model, column, by, said):
    X, y = changed(column, by), stream()[1]
    for use in (LSTD.predict, LSTD.predict_interval, lambda one, X: one.score(X, y, terminated=False)):
        model = pickle.loads(pickle.dumps(model))
        with pytest.warns(ExtrapolationWarning, match=said + r".*Check their units") as given:
            use(model, X)
        assert len(given) == 1
        use(model, X)  # said once


def told(act):
    """The categories of the warnings that an act gives."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        act()
    return [warning.category for warning in given]


@pytest.mark.parametrize("make", [partial(LSTD, 0.9), partial(HorizonLSTD, 3)])
def test_a_fitted_state_gives_a_warning_once_for_each_feature(make):
    X, y = stream()
    model = make().fit(X, y)
    far = [X + 100.0 * (np.arange(3) == j) for j in range(3)]
    batches = [far[0], far[0][:50], far[1], far[0] + far[1] - X, far[1][::3]]
    assert told(lambda: [model.predict(batch) for batch in batches]) == 2 * [ExtrapolationWarning]
    with pytest.warns(ExtrapolationWarning, match="fit: x2 of 100 % of the rows") as given:  # not x0 once more
        model.predict(far[0] + far[2] - X)
    assert len(given) == 1
    assert told(lambda: make().fit(X, y).predict(far[0])) == [ExtrapolationWarning]
    assert told(lambda: [copy.copy(model).predict(batch) for batch in batches]) == []  # the same state
    for anew in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), lambda one: clone(one).fit(X, y)):
        again = anew(model)
        assert told(lambda: [again.predict(batch) for batch in batches]) == 2 * [ExtrapolationWarning]  # noqa: B023
    assert told(lambda: model.fit(X, y).predict(far[0])) == [ExtrapolationWarning]
    assert ExtrapolationWarning not in told(lambda: model.partial_fit(X, y).predict(far[0]))  # the same stream
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(ExtrapolationWarning):
                model.predict(far[1])


@pytest.mark.parametrize("make", [partial(LSTD, 0.99), partial(HorizonLSTD, 28)])
def test_a_score_says_once_that_little_was_observed(make):
    X, y = stream(30)
    y[2::3] = np.nan
    rows = {"episode": np.arange(30) // 3, "terminated": False}
    with pytest.warns(UnobservedWarning):
        model = make().fit(X, y, **rows)
    before = {*vars(model)}
    assert told(lambda: [model.score(X, y, **rows) for _ in range(3)]) == [UnobservedWarning]
    assert {*vars(model)} == before
    state = weakref.ref(model.model_)
    model = None
    gc.collect()
    assert state() is None  # what was said keeps no model alive


def test_a_score_asks_once_whether_ends_were_seen():
    X, y = stream()
    y[99::100] = 0.0
    rows = {"episode": np.arange(400) // 100}
    for make in (LSTD(0.5), HorizonLSTD(3)):
        model = make.fit(X, y, **rows, terminated=False)
        assert told(lambda: [model.score(X, y, **rows) for _ in range(3)]) == [MissingTerminationWarning]  # noqa: B023
    other = HorizonLSTD(3).fit(X, y, **rows, terminated=False)
    assert told(lambda: other.observed_returns(X, y, **rows)) == [MissingTerminationWarning]
    with pytest.raises(InvalidInputError, match=r"`episode` or `terminated` must be given .* 4 episodes"):
        other.score(X, y)


def test_rows_like_those_of_the_fit_give_no_warning(model):
    X = stream()[0]
    for near in (X, X[:1], X[:0], X.astype(np.float32), changed(1, lambda age: age + 15.0)):
        model.predict(near)
    model.predict(changed(1, lambda age: np.where(np.arange(400) % 60 == 0, 100.0, age)))


def test_a_feature_far_outside_that_hardly_moves_predictions_gives_no_warning(model):
    X = changed(2, lambda constant: constant + 1.0)  # of a constant feature, no weight is known but zero
    assert_close(model.predict(X), model.predict(stream()[0]), "solve")
    X = stream()[0]
    X[::25, 1] = 100.0
    model.predict(X)  # warnings are errors
    inside = X.copy()
    inside[:, 1] = np.clip(X[:, 1], stream()[0][:, 1].min(), stream()[0][:, 1].max())
    moved = model.predict(X) - model.predict(inside)
    assert 0.0 < np.mean(moved**2) < 0.02 * np.var(model.predict(inside))
    assert abs(moved.sum()) < 0.05 * abs(model.predict(inside).sum())


def test_names_of_columns_and_how_many_more():
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(50, 5)), columns=list("abcde"))
    model = LSTD(0.9).fit(X, X["a"])
    with pytest.warns(ExtrapolationWarning, match=r"[a-e] of 100 % .*; and 2 more\. Predictions continue"):
        model.predict(X + 1000.0)


def test_ranges_are_kept_in_files_and_need_dense_rows_of_one_fit(tmp_path, model):
    X, y = stream()
    model.save(tmp_path / "model")
    with pytest.warns(ExtrapolationWarning):
        lstd.load(tmp_path / "model").predict(X * 1000.0)
    other = LSTD(0.9).fit(sparse.csr_array(X), y)
    assert other.model_.limits.ranges is None
    with pytest.warns(BoundsWarning):  # the ranges of features are not known, what the rewards allow is
        other.predict(X * 1000.0)


def cut_early(n=20):
    """Episodes of which a tenth of the weight of the returns is observed."""
    X, y = stream()
    return X[: 11 * n], y[: 11 * n], {"episode": np.repeat(np.arange(n), 11), "terminated": np.zeros(11 * n, bool)}


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_returns_that_were_hardly_observed_are_said(tmp_path):
    X, y, columns = cut_early()
    with pytest.warns(UnobservedWarning, match=r"Only 5\.\d % of the .*`lstd.metrics.backtest`.*flag those that ended"):
        model = LSTD(0.99).fit(X, y, **columns)
    (doubt,) = model.model_.doubts
    assert doubt in str(model.summary())
    assert doubt in model.summary().document["doubts"]
    page = write_fit_report(tmp_path / "page.html", model, X, y, **columns).read_text("utf-8")
    assert doubt.split("`")[0] in page


def parts_of(table, size=110):
    """Chunks of ten episodes."""
    return [table.iloc[begin : begin + size] for begin in range(0, len(table), size)]


def summed(table, **ids):
    columns = {name: table[column].to_numpy() for name, column in ids.items()}
    return LSTDStatistics.from_arrays(
        table[["x"]].to_numpy(), table["y"].to_numpy(), gamma=0.99, lmbda=0.9, fit_intercept=True, **columns
    )


IDS = {"episode": "id", "terminated": "done"}
WAYS = {
    "fit": lambda table, parts: LSTD(0.99).fit(
        table[["x"]], table["y"], episode=table["id"], terminated=table["done"]
    ),
    "partial_fit": lambda table, parts: fitted_in_chunks(
        table[["x"]].to_numpy(), table["y"].to_numpy(), {name: table[column] for name, column in IDS.items()}, [55, 275]
    ),
    "fit_statistics": lambda table, parts: LSTD(0.99).fit_statistics([summed(part, **IDS) for part in parts]),
    "sum": lambda table, parts: LSTD(0.99).fit_statistics(sum(summed(part, **IDS) for part in parts)),
    "fit_chunks": lambda table, parts: lstd.fit_chunks(
        [{"X": part[["x"]].to_numpy(), "y": part["y"].to_numpy()} | {k: part[c].to_numpy() for k, c in IDS.items()}
         for part in parts], gamma=0.99, lmbda=0.9, alpha=1.0, n_jobs=1,
    ),
    "fit_tables": lambda table, parts: lstd.fit_tables(
        parts, features=["x"], reward="y", **IDS, gamma=0.99, lmbda=0.9, alpha=1.0, n_jobs=1
    ),
    "a table for each": lambda table, parts: lstd.fit_tables(
        parts_of(table, 11), features=["x"], reward="y", **IDS, gamma=0.99, lmbda=0.9, alpha=1.0, n_jobs=1,
        independent=True,
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_fit_says_that_returns_were_hardly_observed(way):
    X, y, columns = cut_early(36)
    table = pd.DataFrame({"x": X[:, 0], "y": y, "id": columns["episode"], "done": False})
    with pytest.warns(UnobservedWarning, match=r"Only 5\.\d % of the"):
        assert WAYS[way](table, parts_of(table)).coef_.shape == (1,)
    table["done"] = table.index % 11 == 10
    assert WAYS[way](table, parts_of(table)).model_.doubts == ()


def test_ratios_that_are_wrong_are_said_when_scored():
    X, y = stream()
    columns = {"terminated": np.zeros(400, bool), "importance_ratio": np.random.default_rng(2).choice([0.5, 1.5], 400)}
    model = LSTD(0.9).fit(X, y, **columns)
    model.score(X, y, **columns)
    with pytest.warns(SupportWarning, match="of all rows is 2"):
        model.score(X, y, **columns | {"importance_ratio": 2.0 * columns["importance_ratio"]})


@pytest.mark.parametrize("outside", [any_outside, any_outside.py_func])
def test_whether_an_entry_is_outside_of_its_range(outside):
    random = np.random.default_rng(3)
    for T, n in ((0, 2), (1, 1), (1, 3), (7, 4)):
        X, ranges = random.normal(size=(T, n)), np.tile([[-2.0], [2.0]], n)
        assert outside(X, ranges) == bool((np.abs(X) > 2.0).any())
        assert not outside(X, 10.0 * ranges)
        if T:
            X[-1, -1] = -3.0
            assert outside(X, ranges)
    assert not outside(np.full((2, 2), np.nan), np.tile([[-np.inf], [np.inf]], 2))


# ---------------------------------------------------------------- what the rewards allow


PLAIN = {"fit_intercept": False}


def chain(n=200, reward=lambda state: 1.0 + state):
    """Episodes of three states in a row."""
    states = np.tile(np.arange(3), n)
    return np.eye(3)[states], reward(states), {"terminated": states == 2}


def bounds_of(model):
    return model.model_.bounds[:, 0].tolist()


@pytest.mark.parametrize(
    ("rewards", "gamma", "ends", "bounds"),
    [
        ([1.0, 3.0], 0.5, True, [1.0, 6.0]),
        ([1.0, 3.0], 0.5, False, [2.0, 6.0]),
        ([-1.0, 3.0], 0.5, True, [-2.0, 6.0]),
        ([-3.0, -1.0], 0.5, True, [-6.0, -1.0]),
        ([-3.0, -1.0], 0.5, False, [-6.0, -2.0]),
        ([1.0, 3.0], 1.0, True, [1.0, np.inf]),
        ([-1.0, 3.0], 1.0, True, [-np.inf, np.inf]),
        ([-3.0, -1.0], 1.0, True, [-np.inf, -1.0]),
    ],
)
def test_bounds_follow_from_the_least_and_the_greatest_reward(rewards, gamma, ends, bounds):
    y = np.resize(rewards, 20)
    X = np.random.default_rng(0).normal(size=(20, 1))
    model = LSTD(gamma, lmbda=0.0).fit(X, y, terminated=np.arange(20) % 5 == 4 if ends else None)
    assert_close(bounds_of(model), bounds, "solve")


def test_bounds_know_discounts_variants_and_a_missing_intercept():
    X, y = np.random.default_rng(0).normal(size=(20, 1)), np.resize([1.0, 3.0], 20)
    assert_close(bounds_of(LSTD(0.9).fit(X, y, discount=np.full(20, 0.5))), [1.0, 6.0], "solve")
    assert_close(bounds_of(LSTD(0.5, variant="mixed").fit(X, y)), [1.0, 6.0], "solve")
    assert_close(bounds_of(LSTD(0.5, fit_intercept=False).fit(X, y)), [0.0, 6.0], "solve")


def test_rewards_that_are_not_used_are_no_bounds():
    X, y = np.random.default_rng(0).normal(size=(40, 1)), np.tile([1.0, 3.0, 2.0, np.nan], 10)
    model = LSTD(0.5).fit(X, y, episode=np.arange(40) // 4, terminated=np.zeros(40, bool))
    assert_close(bounds_of(model), [2.0, 6.0], "solve")


@pytest.mark.parametrize("estimator", [LSTD(0.5, 1.0, **PLAIN), LSTDCV(0.5, [1.0], [1e-3], **PLAIN)])
@pytest.mark.filterwarnings("ignore::lstd.errors.MisfitWarning")
def test_fit_score_summary_and_files_say_so(tmp_path, estimator):
    X, y, columns = far_from_zero()
    with pytest.warns(BoundsWarning, match=r"% are below 0, down to -.*At least \d+ % of their variance"):
        estimator.fit(X, y, **columns)
    (doubt,) = estimator.model_.doubts
    assert doubt in str(estimator.summary())
    with pytest.warns(BoundsWarning, match="below 0"):
        estimator.score(X, y, **columns)
    estimator.save(tmp_path / "model")
    loaded = lstd.load(tmp_path / "model")
    assert loaded.model_.doubts == (doubt,)
    assert bounds_of(loaded) == bounds_of(estimator)


@pytest.mark.filterwarnings("ignore::lstd.errors.BoundsWarning")
@pytest.mark.parametrize("m", [0, 1, 2])
def test_clipped_predictions_are_within_the_bounds(tmp_path, m):
    X, y, columns = far_from_zero()
    y = np.column_stack([y, -y][:m]) if m else y
    model = LSTD(0.5, 1.0, **PLAIN).fit(X, y, **columns)
    plain, bounds = model.predict(X), model.model_.bounds
    assert_close(model.predict(X, clip=True), np.clip(plain, *(bounds if m else bounds[:, 0])), "sums")
    assert (model.predict(X, clip=True) != plain).any()
    model.save(tmp_path / "model")
    value, error = lstd.load(tmp_path / "model").predict(X, True, clip=True)
    assert_close(value, model.predict(X, clip=True), "sums")
    assert_close(error, model.predict(X, return_std=True)[1], "sums")


def test_clip_needs_rewards_and_is_a_flag():
    X, y, columns = far_from_zero()
    model = LSTD(0.5, 1.0, **PLAIN).fit_statistics(LSTDStatistics.from_arrays(X, y, gamma=0.5, lmbda=1.0, **columns))
    model.predict(1000.0 * X)
    with pytest.raises(InvalidInputError, match=r"`clip` must be False for a model fitted to chunks.*`numpy.clip`"):
        model.predict(X, clip=True)
    with pytest.raises(InvalidInputError, match="`clip`"):
        model.predict(X, clip="yes")


def far_from_zero(n=4000):
    """Rewards about one and a feature about zero, which cannot follow them without an intercept."""
    X, y = np.linspace(-2.0, 2.5, n)[:, np.newaxis], np.resize([0.5, 1.5], n)
    return X, y, {"terminated": np.ones(n, bool)}


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_a_right_model_is_silent(gamma):
    X, y, columns = chain()
    model = LSTD(gamma, alpha=1e-6).fit(X, y, **columns)
    assert model.model_.doubts == ()
    assert model.score(X, y, **columns) > 0.9


def test_a_line_through_rewards_that_are_never_negative_is_doubted():
    x = np.random.default_rng(0).uniform(size=(400, 1))
    with pytest.warns(BoundsWarning, match=r"\d\d % are below .*, down to -0\.1"):
        model = LSTD(0.9).fit(x, x[:, 0] ** 8, terminated=np.ones(400, bool))
    excess = np.maximum(-model.predict(x), 0.0)
    assert excess.mean() > 0.1 * model.predict(x).std()
    assert (excess**2).mean() < 0.15 * model.predict(x).var()


def test_each_of_several_rewards_has_bounds():
    X, y, columns = far_from_zero()
    with pytest.warns(BoundsWarning, match="below 0"):
        model = LSTD(0.5, 1.0, **PLAIN).fit(X, np.column_stack([np.abs(X[:, 0]) + X[:, 0], y]), **columns)
    assert model.model_.bounds.shape == (2, 2)


# ---------------------------------------------------------------- the same after `partial_fit`, once


def episodes(n_episodes=40, length=11, seed=0):
    random = np.random.default_rng(seed)
    n = n_episodes * length
    return random.normal(size=(n, 2)), random.normal(size=n), np.repeat(np.arange(n_episodes), length)


def fitted_in_chunks(X, y, columns, at, **parameters):
    model = LSTD(0.99, **parameters)
    for part in np.split(np.arange(len(X)), at):
        model.partial_fit(X[part], y[part], **{name: values[part] for name, values in columns.items()})
    return model


@settings(max_examples=30, deadline=None)
@given(
    at=st.lists(st.integers(0, 44), max_size=6).map(sorted),
    kind=st.sampled_from(["stream", "ends", "cuts"]),
    discount=st.booleans(),
    seed=st.integers(0, 9),
)
def test_limits_do_not_depend_on_chunks(at, kind, discount, seed):
    X, y, episode = episodes(4, 11, seed)
    columns = (
        {} if kind == "stream" else {"episode": episode, "terminated": (np.arange(44) % 11 == 10) & (kind == "ends")}
    )
    columns |= {"discount": np.full(44, 0.5)} if discount else {}
    with warnings.catch_warnings(action="ignore"):
        one = LSTD(0.99).fit(X, y, **columns).model_
        two = fitted_in_chunks(X, y, columns, at).model_
    assert_close(two.bounds, one.bounds, "sums")
    assert_close(two.limits.ranges, one.limits.ranges, "sums")
    assert two.limits.n_rows == one.limits.n_rows


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_returns_that_were_hardly_observed_are_said_once():
    X, y, episode = episodes()
    columns = {"episode": episode, "terminated": np.zeros(len(X), bool)}
    model = fitted_in_chunks(X[:330], y[:330], {name: values[:330] for name, values in columns.items()}, [55])
    with pytest.warns(UnobservedWarning, match=r"Only 5\.\d % of the"):
        model.predict(X)
    assert any(doubt.startswith("Only 5.") for doubt in model.model_.doubts)
    model.partial_fit(X[330:], y[330:], **{name: values[330:] for name, values in columns.items()})
    model.predict(X)


# ---------------------------------------------------------------- the same of tables


def unlike_rewards():
    """Predictions that rewards do not allow."""
    X, y, columns = far_from_zero(400)
    return pd.DataFrame({"x": X[:, 0], "y": y, "id": np.arange(400), "done": columns["terminated"]})


def growing_table():
    """A feature that only grows within one cohort of episodes, which are cut off."""
    X, y, episode = episodes(60)
    return pd.DataFrame({"x": np.arange(len(X)) % 11, "y": y, "id": episode, "done": False})


def unsupported():
    """Importance ratios of a log that does not take all actions."""
    X, y, episode = episodes(200)
    done = np.arange(len(X)) % 11 == 10
    return pd.DataFrame({"x": X[:, 0], "y": y, "id": episode, "done": done, "rho": np.resize([0.5, 0.7], len(X))})


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning", "ignore::lstd.errors.UnobservedWarning")
@pytest.mark.parametrize(
    ("table", "category", "intercept", "size"),
    [
        (unlike_rewards(), BoundsWarning, False, 11),
        (growing_table(), ExtrapolationWarning, True, 11),
        (growing_table(), ExtrapolationWarning, True, 100),
        (unsupported(), SupportWarning, True, 100),
        (unsupported(), SupportWarning, True, 10**6),
    ],
)
def test_tables_are_doubted_as_the_same_rows_in_memory_are(table, category, intercept, size):
    """Also where each episode is a table, or goes on in the next one."""
    ratio = {"importance_ratio": "rho"} if "rho" in table else {}
    columns = {name: table[column].to_numpy() for name, column in (IDS | ratio).items()}
    parameters = {"gamma": 0.99, "lmbda": 0.5, "alpha": 1.0, "fit_intercept": intercept}
    with pytest.warns(category) as given:
        one = LSTD(**parameters).fit(table[["x"]], table["y"], **columns).model_
    parts = parts_of(table, size)
    with pytest.warns(category) as found:
        model = lstd.fit_tables(parts, features="x", reward="y", **IDS, **ratio, **parameters, n_jobs=1)
    assert [str(warning.message) for warning in found] == [str(warning.message) for warning in given]
    assert model.model_.doubts == one.doubts
    assert_close(model.model_.bounds, one.bounds, "solve")
    assert_close(model.model_.limits.ranges, one.limits.ranges, "sums")
    assert model.model_.limits.n_rows == len(table)


@pytest.mark.parametrize("lmbda", [0.0, 0.4, 1.0])
def test_bounds_depend_on_what_a_variant_does_and_not_on_its_name(lmbda):
    """Mixed is Boyan's at λ = 0, and Uncorrected at λ = 1; a stream without an end has no value near one reward."""
    X, y = stream()
    bounds = {v: LSTD(0.9, lmbda, variant=v).fit(X, y + 9.0).model_.bounds for v in ("boyan", "uncorrected", "mixed")}
    assert bounds["boyan"][0, 0] > 5.0 * bounds["uncorrected"][0, 0]
    assert bounds["mixed"].tolist() == bounds["boyan" if lmbda == 0.0 else "uncorrected"].tolist()


@pytest.mark.parametrize("make", [lambda: LSTD(0.8, alpha=1e-9), lambda: HorizonLSTD(5, alpha=1e-9, check=False)])
def test_predictions_far_outside_of_what_rewards_allow_are_told_of_rows_within_the_ranges(make):
    """Two features that hardly differ in the fit: where they do, weights that the data do not determine decide."""
    random = np.random.default_rng(0)
    one = random.normal(size=600)
    X = np.column_stack([one, one + 1e-3 * random.normal(size=600)])
    model = make().fit(X, random.uniform(size=600), terminated=np.arange(600) % 10 == 9)
    model.predict(X)  # warnings are errors
    model.predict(random.normal(size=(10, 1)) * [1.0, -1.0])  # too few rows
    with pytest.warns(BoundsWarning, match="outside of what the rewards allow"):
        model.predict(random.normal(size=(50, 1)) * [1.0, -1.0])
