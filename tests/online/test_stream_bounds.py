"""Predictions of a live stream outside of what its rewards so far allow: one warning, which names the remedy."""

import warnings

import numpy as np
import pytest

from lstd import RecursiveLSTD
from lstd.errors import BoundsWarning


def persistent(seed, n=200):
    """A short persistent series by its last two numbers, as quarters of inflation."""
    random, y = np.random.default_rng(seed), np.empty(n + 3)
    y[0] = 4.0
    for t in range(n + 2):
        y[t + 1] = 0.08 + 0.98 * y[t] + random.normal()
    return np.column_stack([y[2:-1], y[1:-2], np.ones(n)]), y[3:]


def followed(variant, size, seed=5, gamma=0.97, restored=False):
    """Return the predictions of a model that follows the series in chunks, and the warnings."""
    X, y = persistent(seed)
    model = RecursiveLSTD(3, gamma, 0.9, 1.0, variant)
    predictions = []
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for first in range(0, len(y), size):
            rows = slice(first, first + size)
            predictions.append(model.partial_fit(X[rows], y[rows], return_predictions=True))
            if restored:
                model = RecursiveLSTD.restore(model.snapshot())
    return np.concatenate(predictions), [str(one.message) for one in given if one.category is BoundsWarning]


@pytest.mark.parametrize(("size", "restored"), [(1, False), (7, True), (200, False)])
def test_boyan_warns_once_and_names_the_variant_that_stays_inside(size, restored):
    predictions, texts = followed("boyan", size, restored=restored)
    assert np.abs(predictions[30:]).max() > 1000.0
    (text,) = texts
    assert "rewards so far allow" in text
    assert 'variant="uncorrected"' in text


@pytest.mark.parametrize("size", [1, 200])
def test_uncorrected_stays_inside_and_is_silent(size):
    predictions, texts = followed("uncorrected", size)
    assert np.abs(predictions[30:]).max() < 200.0
    assert texts == []


def test_only_predictions_that_are_asked_for_are_compared():
    X, y = persistent(5)
    model = RecursiveLSTD(3, 0.97, 0.9, 1.0).partial_fit(X, y)
    assert model.snapshot()["beyond"].sum() == 0.0


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_states_whose_values_are_known_are_silent(gamma):
    states = np.tile(np.arange(3), 60)
    model = RecursiveLSTD(3, gamma, alpha=0.1)
    model.partial_fit(np.eye(3)[states], 1.0 + states, terminated=states == 2, return_predictions=True)
    assert model.snapshot()["beyond"][0, 0] == 180.0
