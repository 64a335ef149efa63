"""LSTD among scikit-learn's tools: its own checks, pipelines, searches, metadata routing, copies."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from lstd import LSTD, LSTDCV, HorizonLSTD
from lstd.errors import InvalidInputError
from tolerances import assert_close


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")  # targets are often noise, of which little is predicted
@pytest.mark.filterwarnings("ignore::lstd.errors.MisfitWarning")  # or classes, which no weighted sum follows
@pytest.mark.usefixtures("few_pairs")
@parametrize_with_checks([LSTD(), LSTDCV(cv=2), HorizonLSTD(3)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_the_whole_default_grid():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = LSTDCV().fit(X, X[:, 0])
    alphas = np.unique(model.cv_results_["alpha"])  # has grown: without noise, α is better the smaller it is
    assert len(model.cv_results_["alpha"]) == 20 * len(alphas)
    assert_close(alphas[1:], 2.0 * alphas[:-1], "solve")
    assert alphas[0] < model.alpha_ < alphas[-1] or np.isclose(len(alphas), 9 + 12)


@pytest.fixture
def data():
    """Six episodes of 20 rows, half of them truncated, as X, y and their columns."""
    random = np.random.default_rng(5)
    X = random.normal(size=(120, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
    y = 0.3 * X[:, 1] + random.normal(size=120)
    episode = np.repeat(["c", "a", "f", "b", "e", "d"], 20)
    terminated = (np.arange(120) % 20 == 19) & (np.arange(120) % 40 == 39)
    y[(np.arange(120) % 20 == 19) & ~terminated] = np.nan
    return X, y, {"episode": episode, "terminated": terminated}


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def requesting(model):
    return model.set_fit_request(episode=True, terminated=True).set_score_request(
        episode=True, terminated=True, sample_weight=True
    )


@pytest.mark.usefixtures("routing")
def test_a_search_over_a_pipeline_scores_what_loops_by_hand_score(data):
    X, y, columns = data
    weight = np.linspace(1, 2, 120)
    pipeline = Pipeline(
        [("scale", StandardScaler().set_fit_request(sample_weight=False)), ("lstd", requesting(LSTD(gamma=0.5)))]
    )
    grid = {"lstd__lmbda": [0.0, 0.9], "lstd__alpha": [1.0, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=GroupKFold(3), error_score="raise")
    search.fit(X, y, groups=columns["episode"], sample_weight=weight, **columns)

    for i, parameters in enumerate(search.cv_results_["params"]):
        for k, (train, test) in enumerate(GroupKFold(3).split(X, y, columns["episode"])):
            scale = StandardScaler().fit(X[train])
            model = LSTD(gamma=0.5, lmbda=parameters["lstd__lmbda"], alpha=parameters["lstd__alpha"])
            model.fit(scale.transform(X[train]), y[train], **{name: v[train] for name, v in columns.items()})
            by_hand = model.score(
                scale.transform(X[test]), y[test], weight[test], **{name: v[test] for name, v in columns.items()}
            )
            assert_close(search.cv_results_[f"split{k}_test_score"][i], by_hand, "solve")
    assert search.best_estimator_["lstd"].n_episodes_ == 6
    assert search.best_estimator_["lstd"].n_transitions_ == 117
    assert np.isfinite(search.score(X, y, sample_weight=weight, **columns))
    assert search.predict(X).shape == (120,)


@pytest.mark.parametrize("method", [LSTD().fit, LSTD().partial_fit, LSTDCV().fit])
def test_weights_have_the_name_weight(method):
    with pytest.raises(TypeError, match=r"`sample_weight` must not be given: .*fit\. Weights of rows are given as `w"):
        method(np.eye(3), np.ones(3), sample_weight=np.ones(3))
    with pytest.raises(InvalidInputError, match=r"`weights` must not be given: .*Leave it out, or correct its name\."):
        method(np.eye(3), np.ones(3), weights=np.ones(3))
    assert not has_fit_parameter(method.__self__, "sample_weight")  # of which scikit-learn expects what `weight` is not


@pytest.mark.usefixtures("routing")
def test_a_pipeline_transforms_successors_when_told_to(data):
    X, y, _ = data
    y = np.nan_to_num(y)
    steps = [("scale", StandardScaler()), ("lstd", LSTD(gamma=0.5).set_fit_request(X_next=True))]
    pipeline = Pipeline(steps, transform_input=["X_next"]).fit(X[:-1], y[:-1], X_next=X[1:])
    scale = StandardScaler().fit(X[:-1])
    by_hand = LSTD(gamma=0.5).fit(scale.transform(X[:-1]), y[:-1], X_next=scale.transform(X[1:]))
    assert_array_equal(pipeline["lstd"].coef_, by_hand.coef_)


@pytest.mark.usefixtures("routing")
def test_what_is_not_requested_is_refused(data):
    X, y, columns = data
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="episode"):
        Pipeline([("lstd", LSTD())]).fit(X, y, **columns)


def test_a_search_without_routing_says_that_score_needs_the_episodes(data):
    X, y, columns = data
    search = GridSearchCV(LSTD(gamma=0.5), {"alpha": [1.0]}, cv=GroupKFold(3), error_score="raise")
    with pytest.raises(ValueError, match="route them with set_score_request"):
        search.fit(X, y, groups=columns["episode"], **columns)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_names_of_features(data):
    X, y = data[0], np.nan_to_num(data[1])
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    model = LSTD().fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["u", "v", "w"]
    assert_array_equal(model.predict(frame), LSTD().fit(X, y).predict(X))
    for method in (model.predict, lambda X: model.score(X, y), lambda X: model.partial_fit(X, y)):
        with pytest.raises(InvalidInputError, match=r"`X` must have the columns .* in any order; 'u' is missing"):
            method(frame[["v", "w"]].assign(z=0.0))
        with pytest.raises(ValueError, match="X has 2 features, but LSTD is expecting 3"):
            method(X[:, :2])
    for given in (frame, X):
        with pytest.raises(InvalidInputError, match=r"`X_next` must have the columns .* 'v' is missing"):
            model.partial_fit(given, y, X_next=frame[["w", "u"]])
    assert not hasattr(model.fit(X, y), "feature_names_in_")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "batch"])
@pytest.mark.filterwarnings("error::UserWarning")
def test_columns_are_found_by_name_in_any_order_and_among_others(data, library):
    X, y = data[0], np.nan_to_num(data[1])
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    mixed = frame.assign(name="text", v_again=frame["v"])[["name", "w", "v_again", "u", "v"]]
    convert = {
        "pandas": lambda table: table,
        "polars": pl.from_pandas,
        "pyarrow": pa.Table.from_pandas,
        "batch": pa.RecordBatch.from_pandas,
    }[library]
    model, given = LSTD(gamma=0.5, n_blocks=20).fit(convert(frame), y), convert(mixed)
    twin = LSTD(gamma=0.5, n_blocks=20).fit(X, y)
    assert_array_equal(model.predict(given), twin.predict(X))
    assert_array_equal(model.predict_interval(given).lower, twin.predict_interval(X).lower)
    assert model.score(given, y) == twin.score(X, y)
    assert_array_equal(model.partial_fit(given, y).coef_, twin.partial_fit(X, y).coef_)
    one, two = (
        LSTD(lmbda=0.0, alpha=0.0, n_blocks=0).fit(convert(frame), y, X_next=successors)
        for successors in (convert(frame), given)
    )
    assert_array_equal(one.coef_, two.coef_)
