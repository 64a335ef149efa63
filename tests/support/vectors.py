"""The vectors of `conformance/`: cases, their numbers as float64, and the tolerance."""

import importlib
import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

from tolerances import TOLERANCES

FOLDER = Path(__file__).parents[2] / "conformance"


def cases(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]


def load(name):
    """A program of the folder as a module, with the folder on the path while it is loaded."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def numbers(value):
    """Numbers as float64, correctly rounded; null as NaN."""
    return np.array(_floats(value))


def _floats(value):
    if isinstance(value, list):
        return [_floats(v) for v in value]
    return float("nan") if value is None else float(Fraction(value))


def assert_vector(found, expected, condition=1):
    """Assert that every number is within the tolerance, relative to the largest one expected."""
    expected = expected if isinstance(expected, np.ndarray) else numbers(expected)
    assert np.shape(found) == expected.shape
    most = TOLERANCES["conformance"].rtol * condition * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=most)
