"""What the rows of a fit say against predictions, and features to be predicted beyond them: said, and only then."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import lstd
from lstd import LSTD, LSTDCV
from lstd._kernels.ranges import any_outside
from lstd.cli.describe import model_json, model_text
from lstd.errors import ExtrapolationWarning, SupportWarning, UnobservedWarning
from lstd.report import write_fit_report


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
        (2, lambda constant: constant + 1.0, r"x2 of 100 % of the rows, from 1.1 to 1.1 \(0.1 to 0.1 in the fit\)"),
        (1, lambda age: np.where(np.arange(400) % 25 == 0, 100.0, age), r"x1 of 4 % of the rows"),
    ],
)
def test_features_far_outside_of_their_range_are_named(model, column, by, said):
    X, y = changed(column, by), stream()[1]
    for use in (model.predict, model.predict_interval, lambda X: model.score(X, y, terminated=np.zeros(400, bool))):
        with pytest.warns(ExtrapolationWarning, match=said + r".*Check their units") as given:
            use(X)
        assert len(given) == 1


def test_rows_like_those_of_the_fit_give_no_warning(model):
    X = stream()[0]
    for near in (X, X[:1], X[:0], X.astype(np.float32), changed(1, lambda age: age + 15.0)):
        model.predict(near)
    model.predict(changed(1, lambda age: np.where(np.arange(400) % 60 == 0, 100.0, age)))


def test_one_row_and_many_rows_are_compared(model):
    far = np.array([[0.0, 400.0, 0.1]])
    for X in (far, np.tile(far, (50_000, 1))):
        with pytest.warns(ExtrapolationWarning, match="x1 of 100 %"):
            model.predict(X)


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
    assert doubt in model_text(model.model_, "model").replace("\n", " ")
    assert doubt.split("`")[0] in model_json(model.model_, "model")
    page = write_fit_report(tmp_path / "page.html", model, X, y, **columns).read_text("utf-8")
    assert doubt.split("`")[0] in page


@pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")
def test_a_few_cuts_and_short_discounts_are_no_reason():
    few, many = cut_early(9), cut_early(36)
    LSTD(0.99).fit(*few[:2], **few[2])
    LSTD(0.8).fit(*many[:2], **many[2])
    LSTD(0.99).fit(*stream())


def test_ratios_that_are_wrong_are_said_when_scored():
    X, y = stream()
    columns = {"terminated": np.zeros(400, bool), "importance_ratio": np.random.default_rng(2).choice([0.5, 1.5], 400)}
    model = LSTD(0.9).fit(X, y, **columns)
    model.score(X, y, **columns)
    with pytest.warns(SupportWarning, match="of all rows is 2"):
        model.score(X, y, **columns | {"importance_ratio": 2.0 * columns["importance_ratio"]})


@pytest.mark.filterwarnings("ignore::lstd.errors.MisfitWarning", "ignore::lstd.errors.BiasWarning")
def test_dense_features_far_from_zero_have_ranges_in_their_own_units():
    X, y = stream()
    model = LSTDCV(0.5).fit(X + 1e6, y)
    model.predict(X + 1e6)
    with pytest.warns(ExtrapolationWarning, match="1e\\+06"):
        model.predict(X)


def test_states_that_alternate_and_states_that_are_rare_are_in_the_range():
    states = np.tile([0, 1, 2, 1], 2500)
    states[::1000] = 3
    model = LSTD(0.9).fit(np.eye(4)[states], states * 1.0)
    model.predict(np.eye(4))
    assert model.model_.limits.ranges[:, :3].tolist() == [[0.0] * 3, [1.0] * 3]


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
