"""The fitted function of a model is built once, and never stale."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

from lstd import LSTD, LSTDCV
from lstd.estimators.model import Model

RANDOM = np.random.default_rng(11)
X, Y = RANDOM.normal(size=(120, 3)), RANDOM.normal(size=120)
ROWS = {"episode": np.arange(120) // 6, "terminated": np.arange(120) % 6 == 5}
KINDS = {
    "LSTD": lambda: LSTD(0.9),
    "LSTDCV": lambda: LSTDCV(0.9, lmbdas=[0.5, 1.0], alphas=[1.0, 2.0]),
    "without a matrix": lambda: LSTD(0.9, solver="iterative"),
}


@pytest.fixture(params=KINDS)
def fitted(request):
    """A model of each kind that has predicted, with an interval."""
    model = KINDS[request.param]().fit(X, Y, **ROWS)
    model.predict_interval(X[:2])
    return model


def answers(model):
    """Return predictions and the ends of their intervals."""
    interval = model.predict_interval(X)
    return np.array([model.predict(X), interval.lower, interval.upper])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_model_that_has_predicted_predict_the_same(fitted, copied):
    np.testing.assert_array_equal(answers(copied(fitted)), answers(fitted))


def test_a_model_that_has_predicted_is_freed_without_the_collector(fitted):
    """A fitted function that held its model would keep the sums of the data in memory until a collection."""
    state = weakref.ref(fitted.model_)
    gc.disable()
    try:
        del fitted.model_
        assert state() is None
    finally:
        gc.enable()


def test_predictions_follow_the_next_chunk_and_the_next_fit():
    model = LSTD(0.9).fit(X[:60], Y[:60])
    model.predict(X)
    model.partial_fit(X[60:], Y[60:])
    np.testing.assert_array_equal(answers(model), answers(LSTD(0.9).fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])))
    model.fit(X, 2.0 * Y)
    np.testing.assert_array_equal(answers(model), answers(LSTD(0.9).fit(X, 2.0 * Y)))


def test_what_is_said_about_a_model_reaches_its_fitted_function():
    state = LSTD(0.9).fit(X, Y, **ROWS).model_
    assert state.linear.compared
    assert not state.described(compared=False).linear.compared
    assert state.described(limits=None).linear.bounds is None
    assert isinstance(state, Model)
    assert state.changed(blocks=state.blocks.scaled(0.5)).linear is not state.linear
