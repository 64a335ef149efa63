"""The summary of a model: the numbers of its parts, as text and HTML."""

import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import lstd
import naive
from lstd import LSTD, LSTDCV, HorizonLSTD, LSTDStatistics
from lstd.data.check_rows import check_rows
from lstd.errors import InvalidInputError
from lstd.metrics import effective_degrees_of_freedom
from lstd.ope import LSTDQ
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.UnusedRewardWarning")  # rewards are drawn at random

T, NAMES = 300, ["age", "a <b> & c", "never"]
ENDS = {"episode": np.arange(T) // 10, "terminated": np.arange(T) % 10 == 9}


def rows(m=2):
    random = np.random.default_rng(1)
    X = pd.DataFrame(random.normal(size=(T, 3)) * [1, 1, 0], columns=NAMES)
    return X, random.normal(size=(T, m)) + np.arange(m)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_numbers_are_those_of_the_model(fit_intercept):
    X, y = rows()
    model = LSTD(gamma=0.9, alpha=3.0, fit_intercept=fit_intercept).fit(X, y, **ENDS)
    summary = model.summary(level=0.9)
    assert summary.names == (*NAMES, *(["(intercept)"] if fit_intercept else []))
    assert_close(summary.coefficients[:3], model.coef_.T, "sums")
    assert_close(summary.ridge_shares, 1 - effective_degrees_of_freedom(model), "sums")
    assert summary.observed_share == 1.0
    errors = np.sqrt(np.diagonal(model.coef_covariance_, axis1=1, axis2=2)).T
    assert_close(summary.interval.standard_error[:3], errors, "sums")
    for feature in range(2):
        both = pd.DataFrame([np.eye(3)[feature], np.zeros(3)], columns=NAMES)
        one_more = model.predict_interval(both, level=0.9, weights=[1.0, -1.0])
        assert_close(summary.interval.lower[feature], one_more.lower, "solve")
        assert_close(summary.interval.upper[feature], one_more.upper, "solve")
    assert summary.interval.little_data[:3].tolist() == [[False] * 2, [False] * 2, [True] * 2]
    if fit_intercept:
        assert_close(summary.coefficients[3], model.intercept_, "sums")
        at_zero = model.predict_interval(both[1:], level=0.9)
        assert_close(summary.interval.upper[3], at_zero.upper[0], "solve")


@pytest.mark.parametrize("options", [{}, {"penalty": "raw", "fit_intercept": False}, {"age": "age"}])
def test_shares_of_the_ridge_term_are_those_of_the_regression_on_sums_of_steps(options, tmp_path):
    X, y = rows(1)
    X["age"] = np.arange(T) % 10
    model = HorizonLSTD(3, alpha=20.0, check=False, **options).fit(X, y, **ENDS)
    shares = model.summary().ridge_shares
    assert_close(shares, 1.0 - effective_degrees_of_freedom(model), "sums")
    columns = model.model_.with_columns(check_rows(X, y, **ENDS, gamma=1.0)).X
    if model.fit_intercept:
        columns = columns - columns.mean(axis=0)
    gram = columns.T @ columns
    expected = 1.0 - np.diag(np.linalg.pinv(gram + np.diag(model.ridge_)) @ gram)
    assert_close(shares, expected, "sums")
    text = str(model.summary())
    assert "ridge: share of the coefficient" in text
    assert f"ridge term        decides {round(100 * shares.mean())} %" in text
    model.save(tmp_path / "model")
    assert str(lstd.load(tmp_path / "model").summary()).partition("held-out")[2] == text.partition("held-out")[2]


def test_text_and_html_say_the_same():
    X, y = rows()
    summary = LSTDCV(gamma=0.9, lmbdas=[1.0], alphas=[1.0, 2.0]).fit(X, y, **ENDS).summary()
    text = str(summary).splitlines()
    assert repr(summary) == str(summary)
    assert text[0] == "LSTDCV"
    assert {"gamma                  0.9", "lmbda                  1, chosen"} <= {*text}
    assert "returns observed       100 %" in text
    assert "transitions            300" in text
    heads = [line.split() for line in text if line.startswith("reward_")]
    assert heads == [[f"reward_{j}", "coef", "std", "err", "0.025", "0.975", "ridge"] for j in range(2)]
    assert [line.split()[-2:] for line in text if line.startswith("never")] == [["%", "*"]] * 2
    page = ET.fromstring(summary._repr_html_())
    cells = [[cell.text or "" for cell in row] for table in page.findall("table") for row in table.iter("tr")]
    words = " ".join(str(summary).replace("LSTDCV", "").split()).split(" * little data")[0]
    assert " ".join(" ".join(cell for row in cells for cell in row).split()) == words


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_contributions_are_those_of_the_definition_and_add_up_to_the_prediction(fit_intercept):
    X, y = rows()
    model = LSTD(gamma=0.9, alpha=3.0, fit_intercept=fit_intercept).fit(X, y, **ENDS)
    found = model.contributions(X[5:8])
    np.testing.assert_allclose(found.base + found.values.sum(axis=2), model.predict(X[5:8]))
    for i, j in np.ndindex(3, 2):
        row, coef, intercept = X.iloc[5 + i].tolist(), model.coef_[j], np.atleast_1d(model.intercept_)[j]
        covariance = model.coef_covariance_[j]
        values, errors, base = naive.contributions(row, X.to_numpy().tolist(), coef, intercept, covariance)
        np.testing.assert_allclose(found.values[i, j], values)
        np.testing.assert_allclose(found.standard_error[i, j], errors)
        np.testing.assert_allclose(found.base[j], base)
    lines = found.table(1, 1)
    assert [line[0] for line in lines] == ["feature", "(at the means)", *lines_by_size(found, 1, 1), "prediction"]
    assert "row 0 of 3" in str(found)


def lines_by_size(found, row, reward):
    return [found.names[k] for k in np.argsort(-np.abs(found.values[row, reward]), kind="stable")]


def test_contributions_in_chunks_with_sparse_rows_and_without_intervals_or_means(tmp_path):
    X, y = rows(1)
    y, whole = y[:, 0], LSTD(gamma=0.9).fit(X.to_numpy(), y[:, 0], **ENDS)
    found, chunked = whole.contributions(X.to_numpy()[:4]), LSTD(gamma=0.9)
    for part in (slice(0, 105), slice(105, 300)):
        part_of = {name: column[part] for name, column in ENDS.items()}
        chunked.partial_fit(sparse.csr_array(X.to_numpy()[part]), y[part], **part_of)
    of_sparse = chunked.contributions(sparse.csr_array(X.to_numpy()[:4]))
    np.testing.assert_allclose(of_sparse.means, X.mean())
    np.testing.assert_allclose(of_sparse.values, found.values)
    whole.save(tmp_path / "model")
    np.testing.assert_array_equal(LSTD.load(tmp_path / "model").contributions(X.to_numpy()[:4]).values, found.values)
    bare = LSTD(gamma=0.9, n_blocks=0).fit(X, y, **ENDS)
    assert np.isnan(bare.contributions(X[:1]).standard_error).all()
    statistics = LSTDStatistics.from_arrays(X, y, gamma=0.9, lmbda=0.9, fit_intercept=True, **ENDS)
    with pytest.raises(InvalidInputError, match="means of the features"):
        LSTD(gamma=0.9).fit_statistics(statistics).contributions(X[:1])


def explained(found, model, X, error_of):
    """Check contributions with the difference to the row that has the mean of one feature."""
    np.testing.assert_allclose(found.base + found.values.sum(axis=-1), model(X))
    for j, name in enumerate(NAMES[:2]):
        other = X.assign(**{name: X[name].mean()})
        np.testing.assert_allclose(found.values[:, j], model(X) - model(other))
        np.testing.assert_allclose(found.standard_error[0, j], error_of(pd.concat([X[:1], other[:1]]), [1.0, -1.0]))


@pytest.mark.parametrize("shares", [(0.3, None), (None, 0.7), (0.3, 0.7), (None, None)])
@pytest.mark.parametrize("age", [None, "age"])
@pytest.mark.parametrize("m", [1, 2])
def test_contributions_add_up_to_predictions_with_bounds(m, shares, age):
    """The sum of the contributions of the features is not limited: what the bounds change is an entry of its own."""
    X, y = rows(m)
    X = X.assign(age=np.arange(len(X)) % 8)
    rewards = y[:, 0] if m == 1 else y
    with warnings.catch_warnings(action="ignore"):
        free = HorizonLSTD(6, age=age, check=False).fit(X, rewards, **ENDS)
        low, high = (None if share is None else float(np.quantile(free.predict(X), share)) for share in shares)
        model = HorizonLSTD(6, low=low, high=high, age=age, check=False).fit(X, rewards, **ENDS)
    for horizon in (2, 6, (2, 6)):
        found = model.contributions(X, horizon)
        predictions = model.predict(X, horizon)
        np.testing.assert_allclose(found.base + found.values.sum(axis=-1), free.predict(X, horizon))
        np.testing.assert_allclose(found.base + found.values.sum(axis=-1) + found.by_bounds, predictions, atol=1e-12)
        for row, moved in enumerate(found.by_bounds.reshape(len(X), -1)[:9, 0]):
            *_, before, last = found.table(row)
            assert float(last[4]) == pytest.approx(np.ravel(predictions[row])[0], rel=1e-3)
            assert (before[0] == "(by the bounds)") == (moved != 0.0)
        if horizon != (2, 6):  # the bounds of a sum are not those of a difference
            moved = [naive.moved_by_bounds(value, low, high) for value in np.ravel(free.predict(X, horizon))]
            np.testing.assert_allclose(np.ravel(found.by_bounds), moved, atol=1e-12)
        if horizon == 6:
            assert np.any(found.by_bounds) == (shares != (None, None))


def test_contributions_of_the_next_steps_and_of_an_action():
    X, y = rows(1)
    horizons = HorizonLSTD(6, low=-9.0, alpha=2.0).fit(X, y[:, 0], **ENDS)
    for h in (2, 6):
        found = horizons.contributions(X, h)
        explained(
            found, lambda x, h=h: horizons.predict(x, h), X,
            lambda x, w, h=h: horizons.predict_interval(x, weights=w, horizon=h).standard_error,
        )  # fmt: skip
    assert horizons.contributions(X).names == tuple(NAMES)
    assert HorizonLSTD(6).fit(X, y[:, [0, 0]], **ENDS).contributions(X).values.shape == (T, 2, 3)

    log = {"actions": np.arange(T) % 3 % 2, "target_policy": np.full((T, 2), 0.5)}
    model = LSTDQ(gamma=0.9).fit(X, y[:, 0], **ENDS, **log)
    found = model.contributions(X, 1)
    zero = np.zeros((2, 3))
    explained(
        found, lambda x: model.predict(x, np.ones(len(x), dtype=int)), X,
        lambda x, w: model.lstd_.predict_interval(np.hstack([zero, x.to_numpy()]), weights=w).standard_error,
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="this session"):
        LSTDQ.of_record(model.to_record()).contributions(X, 1)


def test_negative_predictions_of_rewards_that_never_are_name_the_remedy(tmp_path):
    x = np.linspace(-1.0, 1.0, 60)[:, np.newaxis]
    rows = {"episode": np.arange(60), "terminated": np.ones(60, dtype=bool)}
    model = lstd.LSTD(gamma=0.0).fit(x, np.maximum(0.0, x[:, 0]), **rows)
    assert "clip=True, an argument of predict, moves them to 0" in str(model.summary())
    model.save(tmp_path / "model")
    assert "clip=True" in str(lstd.load(tmp_path / "model").summary())
    assert "clip=True" not in str(lstd.LSTD(gamma=0.0).fit(x, x[:, 0], **rows).summary())
