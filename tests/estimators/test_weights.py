"""Weights of rows and ridge coefficients of features, in estimators, scores, checks and files."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

import lstd
import naive
from lstd import LSTD, LSTDCV, LSTDStatistics, fit_chunks
from lstd.errors import InvalidInputError
from lstd.metrics import effective_degrees_of_freedom, observed_returns
from streams import Stream, definition
from tolerances import assert_close

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}

pytestmark = [
    pytest.mark.filterwarnings("ignore::lstd.errors.BiasWarning", "ignore::lstd.errors.MisfitWarning"),
    pytest.mark.usefixtures("few_pairs"),
]


def logs(episodes=40, length=6, n=3, seed=0):
    """Features, rewards, and columns of episodes of which every other one terminates."""
    random = np.random.default_rng(seed)
    T = episodes * length
    X, row = random.normal(size=(T, n)), np.arange(T)
    y = X @ np.arange(1.0, n + 1) + random.normal(size=T) + 3.0
    last = row % length == length - 1
    y[last & (row // length % 2 == 1)] = 0.0  # not used, as the successor is unknown
    return X, y, {"episode": row // length, "terminated": last & (row // length % 2 == 0)}


def repeated(X, y, columns, times):
    """Whole episodes as often as `times` says, each under an id of its own."""
    rows = [np.flatnonzero(columns["episode"] == i) for i, count in enumerate(times) for _ in range(count)]
    index = np.concatenate(rows)
    ids = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    return X[index], y[index], {"episode": ids, "terminated": columns["terminated"][index]}


# ---------------------------------------------------------------- weights of rows


@pytest.mark.parametrize("variant", naive.VARIANTS)
def test_integer_weights_are_repeated_episodes(variant):
    X, y, columns = logs()
    times = np.random.default_rng(1).integers(0, 4, 40)
    weighted = LSTD(**SETTINGS, variant=variant).fit(X, y, weight=times[columns["episode"]].astype(float), **columns)
    often_X, often_y, often = repeated(X, y, columns, times)
    model = LSTD(**SETTINGS, variant=variant).fit(often_X, often_y, **often)
    assert_close(weighted.coef_, model.coef_, "solve")
    assert_close(weighted.intercept_, model.intercept_, "solve")
    weight = times[columns["episode"]].astype(float)
    assert_close(weighted.score(X, y, weight=weight, **columns), model.score(often_X, often_y, **often), "solve")


def test_equal_weights_change_nothing_but_the_unit_of_alpha():
    X, y, columns = logs()
    weight = np.full(len(y), 4.0)
    one, two = LSTD(**SETTINGS).fit(X, y, **columns), LSTD(**SETTINGS, alpha=4.0).fit(X, y, weight=weight, **columns)
    for found, expected in zip(two.predict(X, return_std=True), one.predict(X, return_std=True), strict=True):
        assert_close(found, expected, "solve")
    for check in ("bias_check", "misfit_check"):
        results = (
            vars(getattr(one, check)(X, y, **columns)),
            vars(getattr(two, check)(X, y, weight=weight, **columns)),
        )
        for name, expected in results[0].items():
            assert_close(float(results[1][name]), float(expected), "misfit", err_msg=name)
    cv, weighted = LSTDCV(0.9).fit(X, y, **columns), LSTDCV(0.9).fit(X, y, weight=weight, **columns)
    assert_close(weighted.alpha_, 4.0 * cv.alpha_, "solve")
    for name in ("mean_test_score", "std_test_score", "cautious_test_score", "observed_share"):
        assert_close(weighted.cv_results_[name], cv.cv_results_[name], "solve")


def test_held_out_errors_are_weighted():
    """Against refitting without each fold; all episodes terminate, so that no prediction is in the returns."""
    X, y, columns = logs(episodes=10)
    columns["terminated"] = np.arange(60) % 6 == 5
    weight = np.random.default_rng(3).uniform(0.2, 2.0, len(y))
    model = LSTDCV(0.9, lmbdas=[0.0, 1.0], alphas=[0.0], cv=5, fit_intercept=False)
    results = model.fit(X, y, weight=weight, **columns).cv_results_
    returns = observed_returns(y, gamma=0.9, prediction=0.0 * y, **columns).returns
    for i, lmbda in enumerate((0.0, 1.0)):
        prediction = np.zeros(len(y))
        for k in range(5):
            held = columns["episode"] // 2 == k
            rest = {name: column[~held] for name, column in columns.items()}
            A, b = definition(Stream(X[~held], y[~held], 0.9, lmbda, weight=weight[~held], **rest), "boyan")
            prediction[held] = X[held] @ np.linalg.solve(A, b)[:, 0]
        assert_close(results["mean_test_score"][i], r2_score(returns, prediction, sample_weight=weight), "solve")


def test_checks_count_rows_by_weight():
    """A curve in rows of weight zero is no misfit; one in rows that count is."""
    random = np.random.default_rng(4)
    x, groups = random.uniform(-1, 1, 400), np.arange(400)
    ends = {"episode": groups, "terminated": np.ones(400, dtype=bool)}
    curved = groups % 2 == 0
    y = np.where(curved, 9.0 * x**2, 0.0) + random.normal(scale=0.3, size=400)
    model = LSTD(0.0, alpha=0.1).fit(x[:, np.newaxis], y, weight=1.0 * ~curved, **ends)
    assert not model.misfit_check(x[:, np.newaxis], y, weight=1.0 * ~curved, **ends).misfit
    with pytest.warns(lstd.errors.MisfitWarning):
        assert model.misfit_check(x[:, np.newaxis], y, weight=1.0 * curved, **ends).misfit


def test_weights_are_refused_with_reasons():
    X, y, columns = logs()
    model = LSTD(**SETTINGS).fit(X, y, **columns)
    before = model.predict(X)
    for estimator in (model, LSTDCV(0.9)):
        with pytest.raises(InvalidInputError, match="`weight` must be above 0 for some transition; got 0 for all 220"):
            estimator.fit(X, y, weight=np.zeros(len(y)), **columns)
    with pytest.raises(InvalidInputError, match="`weight` must be above 0 for some"):
        fit_chunks([{"X": X, "y": y, "weight": 0.0 * y}], gamma=0.9)
    with pytest.raises(InvalidInputError, match="`weight` must be finite and at least 0; row 0 has -1"):
        model.score(X, y, weight=-np.ones(len(y)), **columns)
    np.testing.assert_array_equal(model.predict(X), before)


# ---------------------------------------------------------------- ridge coefficients of features


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_coefficients_of_features_are_on_the_diagonal(fit_intercept, tmp_path):
    X, y, columns = logs()
    alpha = [0.0, 5.0, 0.5]
    model = LSTD(**SETTINGS, alpha=alpha, fit_intercept=fit_intercept).fit(X, y, **columns)
    ones = np.hstack([X, np.ones((len(X), 1))]) if fit_intercept else X
    A, b = definition(Stream(ones, y, 0.9, 0.7, **columns), "boyan")
    theta = np.linalg.solve(A + np.diag([*alpha, *[0.0] * fit_intercept]), b)[:, 0]
    assert_close(model.coef_, theta[:3], "solve")
    assert_close(model.statistics_.solve(alpha).weights, theta, "solve")
    assert_close(model.statistics_.solve([*alpha, *[0.0] * fit_intercept]).weights, theta, "solve")
    freedom = effective_degrees_of_freedom(model)
    assert_close(freedom[0], 1.0, "solve")
    assert (freedom[1:] < 1.0).all()
    model.save(tmp_path / "m")
    again = lstd.load(tmp_path / "m")
    assert again.alpha == (0.0, 5.0, 0.5)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(again).fit(X, y, **columns).predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda X, y: LSTD(alpha=[1.0, 2.0]).fit(X, y),
            "`alpha` must be one number, or one for each of the 3 .* got 2",
        ),
        (lambda X, y: LSTD(alpha=[1.0, -2.0, 0.0]).fit(X, y), r"`alpha\[1\]` must be in \[0, ∞\); got -2"),
        (lambda X, y: LSTD(alpha=[[1.0, 2.0, 3.0]]).fit(X, y), r"`alpha` must have shape \(any,\); got \(1, 3\)"),
        (lambda X, y: LSTD(alpha="auto").fit(X, y), "`alpha` must be a number; got 'auto'"),
        (
            lambda X, y: LSTDCV(penalty=[1.0]).fit(X, y),
            "`penalty` must have one number for each of the 3 features; got 1 number.",
        ),
        (
            lambda X, y: LSTDCV(penalty=2.0).fit(X, y),
            "`penalty` must have one number for each of the 3 features; got 1 number.",
        ),
        (
            lambda X, y: fit_chunks([(X, y)], gamma=0.9, alpha=[1.0]),
            "`alpha` must be one number, or one for each of the 3",
        ),
        (lambda X, y: LSTDStatistics.from_arrays(X, y, **SETTINGS).solve([1.0]), "`alpha` must be one number"),
    ],
)
def test_bad_coefficients_are_refused(make, message):
    X, y, _ = logs()
    with pytest.raises(InvalidInputError, match=message):
        make(X, y)


def test_features_without_a_penalty_by_name():
    X, y, columns = logs()
    cut_off = (np.arange(240) % 6 == 5) & ~columns["terminated"]
    frame = pd.DataFrame(dict(zip("abc", X.T, strict=True)) | {"r": np.where(cut_off, np.nan, y)})
    frame["id"], frame["end"] = columns["episode"], columns["terminated"]
    names = {"features": ["a", "b", "c"], "reward": "r", "episode": "id", "terminated": "end"}
    found = lstd.fit_tables(frame, **names, **SETTINGS, alpha=3.0, unpenalised="b")
    assert_close(found.coef_, LSTD(**SETTINGS, alpha=[3.0, 0.0, 3.0]).fit(X, y, **columns).coef_, "solve")
    assert found.alpha == (3.0, 0.0, 3.0)
    others = names | {"features": None}
    chosen = lstd.fit_tables(frame, **others, gamma=0.9, lmbda="auto", alpha="auto", unpenalised=["a", "c"])
    expected = LSTDCV(0.9, penalty=[0, 1, 0]).fit(X, y, **columns)
    assert_close(chosen.predict(frame[["a", "b", "c"]]), expected.predict(X), "solve")
    for options in ({}, {"features": None}, {"alpha": "auto"}):
        with pytest.raises(InvalidInputError, match="`unpenalised` must name features; 'd' is not one of the 3"):
            lstd.fit_tables(frame, **names | {"gamma": 0.9, "unpenalised": "d"} | options)
