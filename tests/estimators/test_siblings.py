"""What one estimator checks, its siblings check: a table of checks and estimators."""

import numpy as np
import pytest

from lstd import LSTD, HorizonLSTD, RecursiveLSTD
from lstd.errors import InvalidInputError

X = np.array([[1.0], [2.0], [3.0], [1.0], [2.0], [4.0]])
Y = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
EPISODE = np.array([1, 1, 1, 2, 2, 2])
TERMINATED = np.array([False, False, True, False, False, True])
SIBLINGS = {
    "LSTD": lambda: LSTD(0.9), "HorizonLSTD": lambda: HorizonLSTD(2, 0.9),
    "RecursiveLSTD": lambda: RecursiveLSTD(1, 0.9),
}  # fmt: skip
LARGEST = np.finfo(np.float64).max


def with_value(array, row, value):
    array = np.array(array, np.float64)
    array[row] = value
    return array


# The arguments of the second chunk that break a rule, and what the message names.
CHECKS = {
    "a huge feature": ({"X": with_value(X, 1, LARGEST)}, "1e308|below 1e"),
    "a huge negative feature": ({"X": with_value(X, 1, -LARGEST)}, "1e308|below 1e"),
    "a huge feature in the last row": ({"X": with_value(X, 4, LARGEST)}, "1e308|below 1e"),
    "a huge reward": ({"y": with_value(Y, 1, LARGEST)}, "1e308|below 1e"),
    "a huge negative reward": ({"y": with_value(Y, 1, -LARGEST)}, "1e308|below 1e"),
    "a huge weight": ({"weight": np.full(6, LARGEST)}, "1e308|below 1e"),
    "a feature that is NaN": ({"X": with_value(X, 1, np.nan)}, "`X` must be finite"),
    "an infinite reward": ({"y": with_value(Y, 1, np.inf)}, "`y` must be finite"),
    "a reward that is NaN": ({"y": with_value(Y, 1, np.nan)}, "`y` must be finite"),
    "text": ({"X": np.full((6, 1), "a")}, "`X` must be an array of real numbers"),
    "times": ({"X": np.full((6, 1), "2024-01-01", "M8[D]")}, "`X` must be an array of real numbers"),
    "objects that are times": ({"y": np.full(6, np.datetime64("2024-01-01"), object)}, "`y` must be an array of real"),
    "flags of words": ({"terminated": np.full(6, "maybe")}, "`terminated` must hold True and False"),
    "a missing id": ({"episode": np.array([3, 3, 3, 4, 4, np.nan])}, "`episode` must have an id .*; row 5"),
    "the text of a missing id": ({"episode": np.array(list("333444"), object) * np.array([1, 1, 1, 0, 1, 1])}, "row 3"),
    "an id again": ({"episode": np.array([3, 3, 3, 1, 1, 1])}, "`episode` must be contiguous"),
    "an id again as text": ({"episode": np.array([" 3", "3.0", "3", "1.0", "1", "1"])}, "`episode` must be contiguous"),
    "floats beyond integers": ({"episode": np.array([3, 3, 3, 4, 4, 2.0**53])}, "tell integers apart"),
    "a negative weight": ({"weight": np.full(6, -1.0)}, "`weight` must be finite and at least 0"),
    "rows that are missing": ({"y": Y[:5]}, "`y` must have one reward per row"),
}


@pytest.mark.parametrize("sibling", SIBLINGS)
@pytest.mark.parametrize("check", CHECKS)
def test_every_sibling_refuses_and_stays_as_it_was(check, sibling):
    changes, message = CHECKS[check]
    model = SIBLINGS[sibling]().partial_fit(X, Y, episode=EPISODE, terminated=TERMINATED)
    before = model.predict(X)
    arguments = {"X": X, "y": Y, "episode": np.array([3, 3, 3, 4, 4, 4]), "terminated": TERMINATED} | changes
    with pytest.raises(InvalidInputError, match=message):
        model.partial_fit(**arguments)
    np.testing.assert_array_equal(model.predict(X), before)
    if "huge" in check:
        with pytest.raises(InvalidInputError, match=message):
            SIBLINGS[sibling]().partial_fit(**arguments)


@pytest.mark.parametrize("sibling", SIBLINGS)
def test_every_sibling_continues_ids_of_every_kind(sibling):
    """Tuples, which NumPy would make a matrix of, and objects of several types."""
    whole = SIBLINGS[sibling]().partial_fit(X, Y, episode=EPISODE, terminated=TERMINATED)
    for one, two in [((1, "a"), (2, "b")), (True, 1), (b"\xff", "7"), (np.datetime64("2024"), "2024-01-02")]:
        ids = np.fromiter([one] * 3 + [two] * 3, dtype=object, count=6)
        model = SIBLINGS[sibling]()
        for part in (slice(2), slice(2, 4), slice(4, 6)):
            model.partial_fit(X[part], Y[part], episode=ids[part], terminated=TERMINATED[part])
        np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-9, atol=1e-9)
