"""LSTD: any split gives the same model, what is scored, and what is refused without a trace."""

import pickle
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score

import lstd
from lstd import LSTD
from lstd.cli import main
from lstd.errors import (
    BrokenEpisodeWarning,
    IllConditionedWarning,
    InvalidInputError,
    MissingTerminationWarning,
    UnobservedWarning,
)
from lstd.report import plot_calibration
from lstd.statistics.merging import LSTDStatistics
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # successors and rewards are drawn at random
    "ignore::lstd.errors.BrokenEpisodeWarning", "ignore::lstd.errors.UnusedRewardWarning"
)

X, y = np.random.default_rng(0).normal(size=(2, 30, 3))
y = y[:, 0]
EPISODES = {"episode": np.repeat([4, 2, 7], 10), "terminated": np.arange(30) % 10 == 9}


def state(model):
    """All that a model holds but for what it has worked out already, to be compared."""
    fitted = model.model_
    known = (fitted.settings, fitted.statistics, fitted.names, fitted.options, fitted.warned)
    return pickle.dumps(([item for item in vars(model).items() if item[0] != "model_"], known))


# ---------------------------------------------------------------- fit, partial_fit, predict


def test_fit_forgets_and_partial_fit_does_not():
    model = LSTD().fit(X, y)
    once = model.coef_.copy()
    assert model.fit(X, y).coef_.tolist() == once.tolist()
    model.partial_fit(X, y)
    assert model.n_transitions_ == 59
    assert LSTD().fit(X, y).partial_fit(X[:10], y[:10]).n_transitions_ == 39


def test_prediction_does_not_depend_on_what_was_predicted_before():
    model = LSTD().fit(X, y)
    alone = [model.predict(X[t : t + 1])[0] for t in range(30)]
    assert_close(alone, model.predict(X), "sums")
    assert model.predict(X[:0]).shape == (0,)


@pytest.mark.parametrize(("dtype", "bytes_per_row"), [(np.float64, 64), (np.float32, 64)])
def test_a_fit_takes_no_copy_of_the_features(dtype, bytes_per_row):
    """A row of 100 features has 400 or 800 bytes; blocks and batches take some megabytes."""
    phi, rewards = np.ones((40_000, 100), dtype), np.ones(40_000)
    model = LSTD(0.9, n_blocks=0, alpha=1e3)
    model.fit(phi[:200], rewards[:200])
    tracemalloc.start()
    try:
        model.fit(phi, rewards)
        assert tracemalloc.get_traced_memory()[1] < bytes_per_row * len(phi) + 4 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [np.float64, np.float32, sparse.csr_array])
def test_predict_refuses_features_that_are_not_finite_even_beside_a_weight_of_zero(kind):
    model = LSTD(fit_intercept=False, alpha=1.0).fit(X * [1.0, 0.0, 1.0], y)
    assert model.coef_[1] == 0.0
    for value in (np.nan, np.inf):
        bad = X.copy()
        bad[7, 1] = value
        with pytest.raises(InvalidInputError, match=f"`X` must be finite.*row 7 has {value} in column 1"):
            model.predict(kind(bad) if kind is sparse.csr_array else bad.astype(kind))


@pytest.mark.parametrize(
    "form", [sparse.csr_array, sparse.csc_matrix, pd.DataFrame, partial(np.asarray, order="F"), list]
)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_forms_of_features(form, fit_intercept):
    zeros = np.where(np.abs(X) < 0.5, 0.0, X)
    dense = LSTD(0.9, fit_intercept=fit_intercept).fit(zeros, y, X_next=zeros[::-1])
    other = LSTD(0.9, fit_intercept=fit_intercept).fit(form(zeros), y, X_next=form(zeros[::-1]))
    assert_close(other.predict(form(zeros)), dense.predict(zeros), "solve")


def test_weights_are_solved_for_when_they_are_asked_for():
    model = LSTD(alpha=0.0).partial_fit(np.zeros((2, 1)), np.zeros(2))  # singular, but nobody asked
    with pytest.warns(IllConditionedWarning, match="singular"):
        assert model.condition_number_ == np.inf
    with pytest.warns(IllConditionedWarning, match="singular"):
        LSTD(alpha=0.0).fit(np.zeros((2, 1)), np.zeros(2))


@pytest.mark.filterwarnings("ignore::lstd.errors.RidgeWarning")
def test_parameters_set_later_wait_for_the_next_fit():
    model = LSTD().fit(X, y)
    before = model.predict(X)
    model.set_params(alpha=100.0, gamma=0.1, fit_intercept=True)
    assert model.predict(X).tolist() == before.tolist()
    assert model.fit(X, y).intercept_ != 0.0


def test_a_single_row_and_a_single_feature():
    plain = {"gamma": 0.5, "lmbda": 0.0, "alpha": 0.0, "fit_intercept": False}
    assert LSTD(**plain).fit([[2.0]], [3.0], terminated=[True]).coef_.tolist() == [1.5]
    assert LSTD(**plain).fit([[1.0]], [1.0], X_next=[[1.0]]).coef_.tolist() == [2.0]
    waiting = LSTD(**plain).partial_fit([[1.0]], [1.0])
    assert waiting.n_transitions_ == 0
    assert waiting.partial_fit([[1.0]], [np.nan]).coef_.tolist() == [2.0]


def test_a_value_of_a_frame_that_is_not_finite_is_named_by_its_column():
    good = pd.DataFrame(X, columns=list("abc"))
    bad, model = good.copy(), LSTD().fit(good, y)
    bad.loc[4, "b"] = np.nan
    for call in (lambda: LSTD().fit(bad, y), lambda: model.predict(bad), lambda: model.score(bad, y)):
        with pytest.raises(InvalidInputError, match="row 4 has nan in column 'b'"):
            call()


def test_fit_to_merged_statistics():
    frame, settings = pd.DataFrame(X, columns=list("abc")), {"gamma": 0.99, "lmbda": 0.9}
    halves = [LSTDStatistics.from_arrays(frame[rows], y[rows], **settings) for rows in (slice(12), slice(12, 30))]
    model = LSTD(fit_intercept=False).fit_statistics(halves[0].then(halves[1]))
    assert_close(model.predict(frame), LSTD(fit_intercept=False).fit(X, y).predict(X), "solve")
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    intercept = LSTD(fit_intercept=True)
    again = LSTD(fit_intercept=True).fit_statistics(intercept.fit(X, y).statistics_)
    assert again.predict(X).tolist() == intercept.predict(X).tolist()
    with pytest.raises(InvalidInputError, match=r"`lmbda` must equal the `lmbda` of the statistics, 0\.9; got 0\.1"):
        LSTD(lmbda=0.1).fit_statistics(halves[0])
    with pytest.raises(InvalidInputError, match=r"`gamma` must equal the `gamma` of the statistics, 0\.99; got 0\.9"):
        LSTD(gamma=0.9).fit_statistics(halves[0])
    for wrong in (1, [1], [halves[0], X], "ab"):
        with pytest.raises(InvalidInputError, match="`statistics` must be LSTDStatistics or several of them; got "):
            LSTD().fit_statistics(wrong)
    with pytest.raises(InvalidInputError, match="`statistics` must not be empty"):
        LSTD().fit_statistics([])
    nothing = LSTDStatistics.empty(3, gamma=0.99, lmbda=0.9)
    with pytest.raises(InvalidInputError, match="`statistics` must hold at least one full transition"):
        LSTD().fit_statistics(nothing)
    for flag in (True, False):
        summed = LSTDStatistics.from_arrays(X, y, **settings, fit_intercept=not flag)
        with pytest.raises(InvalidInputError, match=f"`fit_intercept` must be {not flag}, as when the statistics"):
            LSTD(fit_intercept=flag).fit_statistics(summed)


# ---------------------------------------------------------------- score


def test_score_without_enough_rows_says_so():
    model = LSTD(0.99).fit(X, y)
    flags = np.zeros(30, dtype=bool)
    message = r"at least two rows .* got 0 of 30 rows. .* below 0.01; the smallest such share is 0.75. Use unobs"
    with pytest.raises(InvalidInputError, match=message):
        model.score(X, y, terminated=flags, unobserved="drop")
    with pytest.warns(UndefinedMetricWarning, match=message):
        assert np.isnan(model.score(X, y, unobserved="drop"))
    for n_rows in (0, 1):
        with pytest.raises(InvalidInputError, match=f"followed by another one or terminate; got 0 of {n_rows} rows"):
            model.score(X[:n_rows], y[:n_rows], terminated=flags[:n_rows])


def test_score_with_little_observed_says_so():
    model = LSTD(0.99).fit(X, y)
    with pytest.warns(UnobservedWarning, match="Only 14 % of the discounted weight of the returns") as caught:
        model.score(X, y)
    assert caught[0].filename == __file__
    model.score(X, y)  # said once
    weight = np.where(np.arange(30) == 0, 1.0, 1e-9)
    model.fit(X, y)
    with pytest.warns(UnobservedWarning, match="Only 25 % of"):
        model.score(X, y, weight, terminated=np.zeros(30, dtype=bool))


def test_score_with_successors_goes_on_while_rows_follow_one_another():
    model = LSTD(0.5, lmbda=0.0).fit(X[:-1], y[:-1], X_next=X[1:])
    assert_close(model.score(X[:-1], y[:-1], X_next=X[1:]), LSTD(0.5, lmbda=0.0).fit(X, y).score(X, y), "solve")
    shuffled = np.random.default_rng(0).permutation(29)
    one_step = y[shuffled] + 0.5 * model.predict(X[shuffled + 1])
    found = model.score(X[shuffled], y[shuffled], X_next=X[shuffled + 1])
    assert_close(found, r2_score(one_step, model.predict(X[shuffled])), "sums")


@pytest.mark.parametrize(
    ("name", "of", "same"), [("importance_ratio", "another policy", 1.0), ("discount", "other discounts", 0.9)]
)
def test_returns_of_another_policy_or_discount_are_refused(name, of, same, tmp_path, capsys):
    random = np.random.default_rng(0)
    X, y, ends = random.normal(size=(60, 2)), random.normal(size=60), np.arange(60) % 6 == 5
    model = LSTD(0.9, 0.5).fit(X, y, terminated=ends, **{name: random.uniform(0.5, 1.0, 60)})
    model.save(tmp_path / "model")
    chunked = LSTD(0.9, 0.5).fit(X[:6], y[:6], terminated=ends[:6])
    chunked.partial_fit(X[6:], y[6:], terminated=ends[6:], **{name: random.uniform(0.5, 1.0, 54)})
    for ways in (model, lstd.load(tmp_path / "model"), chunked):
        for method in (ways.score, ways.bias_check, ways.misfit_check, partial(plot_calibration, ways)):
            with pytest.raises(InvalidInputError, match=rf"`{name}` must be given .* {of}\. Pass"):
                method(X, y, terminated=ends)
    model.score(X, y, terminated=ends, **{name: same})
    pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y, "end": ends}).to_csv(tmp_path / "table.csv", index=False)
    shell = ["score", str(tmp_path / "model"), str(tmp_path / "table.csv"), "--reward", "y", "--terminated", "end"]
    assert main(shell) == 2
    assert f"{of}. Name its column." in capsys.readouterr().err
    LSTD(0.9).fit(X, y, terminated=ends, **{name: same}).score(X, y, terminated=ends)  # the same policy and discount


def test_score_asks_for_the_episodes_that_fit_was_given():
    model = LSTD(0.5).fit(X, y, **EPISODES)
    with pytest.raises(
        InvalidInputError, match=r"`episode` or `terminated` must be given .* 3 episodes.*set_score_req"
    ):
        model.score(X, y)
    with pytest.warns(MissingTerminationWarning):
        model.score(X, y, episode=EPISODES["episode"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tolerance": 0.0}, r"`tolerance` must be in \(0, 1\]; got 0"),
        ({"sample_weight": [1.0]}, r"`sample_weight` must have one weight per row of `X`, shape \(30,\); got \(1,\)"),
        ({"sample_weight": [-1.0] * 30}, "`sample_weight` must be finite and at least 0; row 0 has -1"),
        ({"sample_weight": ["a"] * 30}, "`sample_weight` must be an array of real numbers"),
        ({"sample_weight": np.ma.masked_less(np.arange(30.0), 3)}, "`sample_weight` must not have masked entries"),
        ({"y": np.column_stack([y, y])}, "`y` must have the rewards that the model predicts, 1; got 2"),
    ],
)
def test_score_refuses(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        LSTD(0.5).fit(X, y).score(**{"X": X, "y": y, **arguments})


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lmbda": 1.3}, r"^`lmbda` must be in \[0, 1\]; got 1\.3\.$"),
        ({"gamma": -0.1}, r"`gamma` must be in \[0, 1\]; got -0.1"),
        ({"gamma": "0.9"}, "`gamma` must be a number; got '0.9'"),
        ({"alpha": -1}, "`alpha` must be in"),
        ({"variant": "Boyan"}, "`variant` must be one of 'boyan', 'uncorrected', 'mixed'; got 'Boyan'"),
        ({"fit_intercept": "yes"}, "`fit_intercept` must be True or False; got 'yes'"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_parameters_are_checked_when_fitting(parameters, message, method):
    with pytest.raises(InvalidInputError, match=message):
        getattr(LSTD(**parameters), method)(X, y)


ALL = ("fit", "partial_fit", "predict", "score")
BAD = {  # arguments in place of good ones, and the methods that must refuse them
    "fewer features": ({"X": X[:, :2]}, ALL[1:]),
    "NaN": ({"X": np.where(X[3, 1] == X, np.nan, X)}, ALL),
    "one dimension": ({"X": X[0]}, ALL),
    "overflow": ({"X": np.full((30, 3), 1e200)}, ALL[:2]),
    "no rewards": ({"y": None}, ("fit", "partial_fit", "score")),
    "NaN rewards": ({"y": np.full(30, np.nan)}, ("fit", "partial_fit", "score")),
    "two rewards": ({"y": np.column_stack([y, y])}, ("partial_fit",)),
    "ids": ({"episode": np.arange(30) % 2, "terminated": np.zeros(30)}, ("fit", "partial_fit", "score")),
    "fewer successors": ({"X_next": X[:3]}, ALL[:2]),
    "masked": ({"X": np.ma.masked_less(X, 0.0)}, ALL),
    "text": ({"X": np.full(X.shape, "many")}, ALL),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(("bad", "method"), [(bad, method) for bad, (_, methods) in BAD.items() for method in methods])
def test_bad_input_is_refused_and_leaves_a_fitted_model_as_it_was(bad, method):
    for good in (X, pd.DataFrame(X, columns=list("abc"))):
        model = LSTD(0.5).fit(good, y)
        before = state(model)
        arguments = {"X": good, "y": y, **BAD[bad][0]}
        if method == "predict":
            del arguments["y"]
        with pytest.raises(ValueError, match=r"`|X has|Expected|requires y|same number of rewards"):
            getattr(model, method)(**arguments)
        assert state(model) == before


def test_a_failed_first_fit_leaves_no_trace():
    model = LSTD()
    for method in (model.fit, model.partial_fit):
        with pytest.raises(InvalidInputError):
            method(X, y, discount=np.full(30, 2.0))
    assert vars(model) == vars(LSTD())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gamma": 0.5}, "`gamma` must stay as it was at the first chunk, 0.99; got 0.5. Set it back, or start again"),
        ({"lmbda": 0.5}, "`lmbda` must stay as it was at the first chunk, 0.9; got 0.5"),
        ({"fit_intercept": False}, "`fit_intercept` must stay as it was at the first chunk, True; got False"),
    ],
)
def test_what_may_not_change_between_chunks(changed, message):
    model = LSTD().fit(X, y).set_params(**changed)
    before = state(model)
    with pytest.raises(InvalidInputError, match=message):
        model.partial_fit(X, y)
    assert state(model) == before


def test_fit_needs_a_transition():
    with pytest.raises(ValueError, match="at least one full transition; got n_samples=0"):
        LSTD().fit(X[:0], y[:0])
    with pytest.raises(InvalidInputError, match="at least one full transition; got n_samples=1, and no"):
        LSTD().fit(X[:1], y[:1])
    with pytest.raises(InvalidInputError, match="at least one full transition; got n_samples=3"):
        LSTD().fit(X[:3], y[:3], episode=[1, 2, 3], terminated=[False] * 3)


@pytest.mark.parametrize("first", [{}, {"terminated": np.zeros(10, dtype=bool)}, {"rows": 0}])
def test_chunks_of_a_stream_warn_whichever_misses_terminations_first(first):
    model, ids, rows = LSTD(), EPISODES["episode"], slice(0, first.get("rows", 10))
    columns = {name: value for name, value in first.items() if name != "rows"}
    if rows.stop and columns:
        model.partial_fit(X[rows], y[rows], episode=ids[rows], **columns)
    elif rows.stop:
        model.partial_fit(X[rows], y[rows], terminated=np.arange(10) == 9)
    else:
        model.partial_fit(X[:0], y[:0], episode=ids[:0])
    with pytest.warns(MissingTerminationWarning):
        model.partial_fit(X[10:20], y[10:20], episode=ids[10:20])
    model.partial_fit(X[20:], y[20:], episode=ids[20:])
    with pytest.warns(MissingTerminationWarning):
        model.fit(X, y, episode=ids)


def test_a_break_between_chunks_is_told_once():
    model = LSTD().partial_fit(X[:9], y[:9], X_next=X[1:10])
    with pytest.warns(BrokenEpisodeWarning, match="Row 0 of `X` is not the successor"):
        model.partial_fit(X[10:19], y[10:19], X_next=X[11:20])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[25:28], y[25:28], X_next=X[26:29])
        LSTD(lmbda=0.0).fit(X[::2], y[::2], X_next=X[1::2])
        new = LSTD(fit_intercept=True).partial_fit(X[:9], y[:9], X_next=X[1:10])
        new.partial_fit(X[9:12], y[9:12], X_next=X[10:13])
    with pytest.warns(BrokenEpisodeWarning):
        model.fit(X[::2], y[::2], X_next=X[1::2])


def test_empty_chunks_may_come_before_rewards_are_known():
    both = np.column_stack([y, -y])
    model = LSTD().partial_fit(X[:0], []).partial_fit(X, both).partial_fit(X[:0], [])
    assert model.coef_.tolist() == LSTD().fit(X, both).coef_.tolist()
