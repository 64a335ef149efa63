"""Chunks of any size give the model of the whole, whenever predictions are read."""

import warnings

import numpy as np
import pytest

import lstd
from lstd import LSTD, HorizonLSTD
from lstd.errors import IllConditionedWarning, InvalidInputError

T, N = 300, 3
RANDOM = np.random.default_rng(5)
X, Y = RANDOM.normal(size=(T, N)), RANDOM.normal(size=T)
EPISODE = np.arange(T) // 11
LAST = np.arange(T) % 11 == 10
ENDED = LAST & (EPISODE % 3 > 0)  # others are cut off
Y[LAST & ~ENDED] = 0.0


def in_chunks(sizes, read_at=()):
    """Fit in chunks, reading a prediction after some of them."""
    model = LSTD(0.9, 0.8)
    first = 0
    for k, size in enumerate(sizes):
        rows = slice(first, first + size)
        model.partial_fit(X[rows], Y[rows], episode=EPISODE[rows], terminated=ENDED[rows])
        if k in read_at:
            model.predict(X[:1])
        first += size
    return model


@pytest.mark.parametrize("read_at", [(), (45, 46, 47, 80)])
def test_chunks_of_any_size_give_the_model_of_the_whole(read_at):
    whole = LSTD(0.9, 0.8).fit(X, Y, episode=EPISODE, terminated=ENDED)
    sizes = [1] * 90 + [0, 7, 40, 1, 1] + [1] * (T - 139)
    model = in_chunks(sizes, read_at)
    for name in ("n_transitions_", "n_episodes_", "n_unused_rewards_"):
        assert getattr(model, name) == getattr(whole, name)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-9)
    for found, expected in zip(model.predict(X, return_std=True), whole.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    np.testing.assert_array_equal(model.model_.influence.marks, whole.model_.influence.marks)


@pytest.mark.parametrize(
    ("x", "y", "columns", "message"),
    [
        ([np.nan, 0, 0], 1.0, {}, r"`X` must be finite.*row 0 has nan in column 0"),
        ([[1e200, 0, 0], [1, 0, 0]], [1.0, 1.0], {}, "overflow"),
        ([1, 0, 0], [[1.0]], {}, "`y` must be a vector"),
        ([1, 0, 0], 1.0, {"episode": [1], "terminated": [0]}, "`episode` must be given for all chunks"),
        ([1, 0, 0], 1.0, {"X_next": [[1.0, 0.0, 0.0]]}, "`X_next` must be given for all chunks"),
        ([1, 0, 0], 1.0, {"groups": [1]}, "`groups` must be given for all chunks"),
    ],
)
def test_bad_rows_in_a_small_chunk_raise_at_once_and_change_nothing(x, y, columns, message):
    model = LSTD().fit(X[:50], Y[:50]).partial_fit(X[50:52], Y[50:52])
    with pytest.raises(InvalidInputError, match=message):
        model.partial_fit(np.atleast_2d(x), np.atleast_1d(y), **columns)
    np.testing.assert_allclose(model.coef_, LSTD().fit(X[:52], Y[:52]).coef_, rtol=1e-9)


def test_warnings_do_not_depend_on_what_was_read():
    """The solution of a model is silent; the first use of its weights by the estimator warns, and the next does not."""
    estimator = LSTD(alpha=0.0).partial_fit(np.zeros((2, 1)), np.zeros(2))  # a singular system
    assert np.isinf(estimator.model_.solution.condition_number)
    assert estimator.n_transitions_ == 1
    with pytest.warns(IllConditionedWarning, match="singular"):
        estimator.predict([[1.0]])
    estimator.predict([[1.0]])


def continued_from_a_file(model, path):
    """Return the model that a file holds."""
    model.save(path)
    return lstd.load(path)


def fit_read_after_each_chunk(model, features, between=lambda model: model):
    """Fit six chunks of one stream, reading the weights after each; return the warnings of the condition."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for rows in np.array_split(np.arange(T), 6):
            model.partial_fit(features[rows], Y[rows], episode=EPISODE[rows], terminated=ENDED[rows])
            assert model.coef_.size
            model = between(model)
    return [one for one in given if issubclass(one.category, IllConditionedWarning)]


STREAMS = {
    "LSTD": lambda **settings: LSTD(0.9, 0.8, **settings),
    "HorizonLSTD": lambda **settings: HorizonLSTD(4, 0.9, 0.8, check=False, penalty="raw", **settings),
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("extra", [X[:, :1], np.zeros((T, 1))], ids=["repeated", "zero"])
@pytest.mark.parametrize("through_files", [False, True])
def test_a_stream_is_told_of_its_condition_once(tmp_path, kind, extra, fit_intercept, through_files):
    features = np.hstack([X, extra])
    model = STREAMS[kind](alpha=0.0, fit_intercept=fit_intercept)
    if through_files:
        given = fit_read_after_each_chunk(model, features, lambda model: continued_from_a_file(model, tmp_path / "m"))
    else:
        given = fit_read_after_each_chunk(model, features)
    assert len(given) == 1
    with pytest.warns(IllConditionedWarning):  # of a new fit
        model.fit(features, Y, episode=EPISODE, terminated=ENDED)


# Before there is a full transition

CHUNKS = {
    "no rows": {"rows": slice(0, 0)},
    "one row": {"rows": slice(0, 1)},
    "no weight": {"rows": slice(0, 4), "weight": np.zeros(4)},
}
WITHOUT_DATA = "ignore:.*singular:lstd.errors.IllConditionedWarning"


def with_chunk(model, chunk):
    """Continue a stream with a chunk of `CHUNKS`."""
    rows = chunk["rows"]
    columns = {name: chunk[name] for name in chunk if name != "rows"}
    return model.partial_fit(X[rows], Y[rows], **columns)


@pytest.mark.filterwarnings(WITHOUT_DATA)
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("settings", [{}, {"alpha": 0.0}, {"fit_intercept": False}], ids=str)
def test_weights_are_zero_without_a_full_transition(tmp_path, kind, chunk, settings):
    model = with_chunk(STREAMS[kind](**settings), CHUNKS[chunk])
    horizons = () if kind == "LSTD" else (4,)
    for fitted in (model, continued_from_a_file(model, tmp_path / "m")):
        np.testing.assert_array_equal(fitted.coef_, np.zeros((*horizons, N)))
        np.testing.assert_array_equal(fitted.intercept_, np.zeros(horizons))
        np.testing.assert_array_equal(fitted.predict(X), np.zeros(T))
        assert str(fitted.summary())
        with pytest.raises(InvalidInputError, match="Intervals need at least 20 rows"):
            fitted.predict_interval(X)


@pytest.mark.filterwarnings(WITHOUT_DATA)
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("through_file", [False, True])
def test_a_stream_that_was_read_before_it_had_rows_goes_on_as_any_other(tmp_path, kind, through_file):
    """An offset of the features shows whether sums are about the centre of rows, and not of none."""
    model = STREAMS[kind]().partial_fit(X[:0] + 1e3, Y[:0])
    assert not model.predict(X).any()
    if through_file:
        model = continued_from_a_file(model, tmp_path / "m")
    model.partial_fit(X[:50] + 1e3, Y[:50]).partial_fit(X[50:] + 1e3, Y[50:])
    expected = STREAMS[kind]().partial_fit(X[:50] + 1e3, Y[:50]).partial_fit(X[50:] + 1e3, Y[50:])
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_contributions_without_rows_and_a_choice_without_blocks_say_what_is_missing():
    for make in STREAMS.values():
        model = make().partial_fit(X[:0], Y[:0])
        with pytest.raises(InvalidInputError, match="seen no rows"), pytest.warns(IllConditionedWarning):
            model.contributions(X)
    with pytest.raises(InvalidInputError, match='"auto" with at least two blocks'):
        _ = HorizonLSTD(4, alpha="auto").partial_fit(X[:0], Y[:0]).coef_


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_fit_refuses_data_without_a_full_transition_that_has_a_weight(kind, chunk):
    rows = CHUNKS[chunk]["rows"]
    columns = {name: CHUNKS[chunk][name] for name in CHUNKS[chunk] if name != "rows"}
    with pytest.raises(InvalidInputError, match=r"full transition|`weight`|at least one row"):
        STREAMS[kind]().fit(X[rows], Y[rows], **columns)
