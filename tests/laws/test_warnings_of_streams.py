"""A stream has each warning of its predictions once, however often it grows; looking at a model changes nothing."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from lstd import LSTD, HorizonLSTD
from lstd.errors import ExtrapolationWarning, IllConditionedWarning, InvalidInputError, RidgeWarning

T = 60  # rows of a chunk
FAR = np.random.default_rng(1).normal(size=(T, 2)) * 100.0
MODELS = {"LSTD": LSTD(0.9), "HorizonLSTD": HorizonLSTD(3)}


def chunk(number):
    """The rows of a chunk of a stream."""
    random = np.random.default_rng(number)
    X = random.normal(size=(T, 2))
    y = X[:, 0] + 0.1 * random.normal(size=T)
    step = np.arange(T)
    return {"X": X, "y": y, "episode": 6 * number + step // 10, "terminated": step % 10 == 9}


def said_by(call):
    """Return the categories of the warnings that a call gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [each.category for each in caught]


@pytest.fixture(params=MODELS)
def model(request):
    """A model that has read one chunk of a stream."""
    return clone(MODELS[request.param]).partial_fit(**chunk(0))


def test_a_stream_has_each_warning_of_its_predictions_once(model):
    first = said_by(lambda: model.predict(FAR))
    assert ExtrapolationWarning in first
    for number in range(1, 5):
        model.partial_fit(**chunk(number))
        assert said_by(lambda: model.predict(FAR)) == []


def test_streams_that_go_on_apart_have_their_own_warnings(model):
    other = copy.copy(model)
    model.partial_fit(**chunk(1))
    assert ExtrapolationWarning in said_by(lambda: model.predict(FAR))
    other.partial_fit(**chunk(2))
    assert ExtrapolationWarning in said_by(lambda: other.predict(FAR))


@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_a_copy_warns_anew(model, again):
    first = said_by(lambda: model.predict(FAR))
    assert said_by(lambda: again(model).predict(FAR)) == first
    model.partial_fit(**chunk(1))
    assert said_by(lambda: again(model).predict(FAR)) == first


def test_a_clone_and_a_new_fit_warn_anew(model):
    first = said_by(lambda: model.predict(FAR))
    other = clone(model).partial_fit(**chunk(0))
    assert said_by(lambda: other.predict(FAR)) == first
    model.fit(**chunk(0))
    assert ExtrapolationWarning in said_by(lambda: model.predict(FAR))


LOOKS = {
    "hasattr": lambda model: hasattr(model, "coef_"),
    "dir": dir,
    "html": lambda model: model._repr_html_(),
    "repr": repr,
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_rows", [1, 2, 5, T])
def test_to_look_at_a_model_gives_no_warning_but_those_of_a_fit(look, name, n_rows):
    rows = {column: values[:n_rows] for column, values in chunk(0).items()}
    model = clone(MODELS[name]).partial_fit(**rows)
    assert {*said_by(lambda: LOOKS[look](model))} <= {IllConditionedWarning, RidgeWarning}
    assert said_by(lambda: LOOKS[look](model)) == []


def test_an_attribute_that_the_data_do_not_give_is_missing_and_says_why():
    model = LSTD(0.9).partial_fit(**{column: values[:10] for column, values in chunk(0).items()})
    assert not hasattr(model, "coef_covariance_")
    with pytest.raises(InvalidInputError, match="Intervals need at least"):
        _ = model.coef_covariance_


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize(
    "model", [LSTD(0.9, alpha=0.0), LSTD(1.0, alpha=0.0), LSTD(0.9, alpha=0.0, lmbda=1.0), HorizonLSTD(3, alpha=0.0)]
)
def test_a_file_does_not_depend_on_when_a_stream_was_read(model, tmp_path):
    read = clone(model)
    unread = clone(model)
    X = np.random.default_rng(3).normal(size=(80, 3))
    had = set()
    for first, stop in ((0, 2), (2, 5), (5, 40), (40, 80)):
        for one in (read, unread):
            one.partial_fit(X[first:stop], X[first:stop, 0] + 1.0)
        read.predict(X)
        had |= read.model_.warned
    assert had
    files = []
    for one in (read, unread):
        one.save(tmp_path / "model")
        files.append((tmp_path / "model").read_bytes())
    assert files[0] == files[1]
