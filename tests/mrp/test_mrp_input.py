"""Bad input to `lstd.mrp`: every message begins with the argument at fault and holds the value found."""

import numpy as np
import pytest

from lstd.errors import InvalidInputError, LSTDError
from lstd.mrp import MRP, BoyanChain, RandomMRP, RandomWalk, make_features


def two_states(**options):
    return MRP([[0.5, 0.5], [0.0, 1.0]], np.ones((2, 2)), **options)


BAD_MODELS = {
    "not square": (lambda: MRP(np.ones((2, 3)) / 3, np.zeros((2, 3))), "transition", r"\(2, 3\)"),
    "sum above one": (lambda: MRP([[1, 0], [0.5, 0.6]], np.ones((2, 2))), "transition", "row 1 has 1.1"),
    "negative": (lambda: MRP([[1.5, -0.5], [0, 1]], np.ones((2, 2))), "transition", "row 0 has -0.5"),
    "NaN": (lambda: MRP([[1, 0], [np.nan, 1]], np.ones((2, 2))), "transition", "entry 1, 0 is nan"),
    "ragged": (lambda: MRP([[1.0], [0.5, 0.5]], np.ones((2, 2))), "transition", "real numbers"),
    "reward shape": (lambda: MRP(np.eye(2), np.ones((2, 1))), "reward", r"\(2, 2\); got \(2, 1\)"),
    "rewards of states": (lambda: MRP(np.eye(2), np.ones(3)), "reward", r"\(2,\); got \(3,\)"),
    "noise negative": (lambda: two_states(reward_std=-0.1), "reward_std", "-0.1"),
    "gamma above one": (lambda: two_states(gamma=1.01), "gamma", "1.01"),
    "start a fraction": (lambda: two_states(start=0.5), "start", "0.5"),
    "start sum": (lambda: two_states(start=[0.5, 0.6]), "start", "1.1"),
    "termination reward": (lambda: two_states(termination_reward=[1.0]), "termination_reward", r"\(1,\)"),
    "no states": (lambda: RandomMRP(0, 1, 0.1, 1), "n_states", "0"),
    "too many successors": (lambda: RandomMRP(10, 11, 0.1, 1), "branching", "11"),
    "seed negative": (lambda: RandomMRP(10, 3, 0.1, -1), "seed", "-1"),
    "chain too short": (lambda: BoyanChain(2), "n_states", "2"),
    "chain of no knots": (lambda: BoyanChain(14).interpolating_features, "n_states", "14"),
    "walk even": (lambda: RandomWalk(4), "n_states", "4"),
    "steps negative": (lambda: two_states().simulate(-1, 0), "n_steps", "-1"),
    "features shape": (lambda: two_states().best_fit(np.ones((3, 1))), "features", r"\(3, 1\)"),
    "feature name": (lambda: make_features(RandomWalk(5), "fourier"), "features", "'fourier'"),
    "normal features": (lambda: make_features(RandomWalk(5), "normal"), "features", "RandomWalk"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_input_is_named(case):
    call, argument, found = BAD_MODELS[case]
    with pytest.raises(InvalidInputError, match=rf"(?s)^`{argument}` .*{found}") as caught:
        call()
    assert isinstance(caught.value, (ValueError, LSTDError))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("ask", ["values", "best_fit", "limit", "fixed_point"])
def test_discount_one_is_refused_where_a_process_can_go_on_for_ever(ask):
    for P in ([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.0], [0.0, 1.0]]):  # without end; with an end from one state only
        model = MRP(P, np.ones((2, 2)), gamma=1.0)
        calls = {
            "values": lambda model=model: model.values,
            "best_fit": lambda model=model: model.best_fit(np.eye(2)),
            "limit": lambda model=model: model.lstd_limit(np.eye(2), 1.0),
            "fixed_point": lambda model=model: model.fixed_point(np.eye(2), 1.0),
        }
        with pytest.raises(InvalidInputError, match=r"^`gamma` must be below 1"):
            calls[ask]()


def test_inputs_are_copied():
    P, R = np.array([[0.5, 0.5], [0.0, 1.0]]), np.ones((2, 2))
    model = MRP(P, R)
    P[0] = R[0] = 7.0
    np.testing.assert_array_equal(model.transition[0], [0.5, 0.5])
    np.testing.assert_array_equal(model.reward[0], [1.0, 1.0])


def test_arrays_of_a_model_are_read_only():
    model = MRP([[0.5, 0.5], [0.0, 1.0]], np.ones((2, 2)))
    for array in (model.transition, model.reward, model.start, model.termination_reward):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
