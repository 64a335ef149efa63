"""The vectors of `conformance/`: cases, their numbers as float64, their transitions, and the tolerance."""

from __future__ import annotations

import importlib
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

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


class Step(NamedTuple):
    """Arguments of one update; an episode that was cut off is truncated at its last transition."""

    x: np.ndarray
    reward: float
    x_next: np.ndarray
    terminated: bool
    truncated: bool
    discount: float
    importance_ratio: float


def transitions(case):
    """Transitions of a case of one reward, in order: pairs of a row number and a Step."""
    rows = [t for t, successor in enumerate(case["X_next"]) if successor is not None]
    columns = [numbers(case[name]) for name in ("X", "y", "discount", "importance_ratio")]
    result = []
    for t in rows:
        phi, reward, discount, ratio = (column[t] for column in columns)
        ends = not any(s > t and case["episode"][s] == case["episode"][t] for s in rows)
        terminated = case["terminated"][t]
        successor = numbers(case["X_next"][t])
        step = Step(
            phi, float(reward[0]), successor, terminated, ends and not terminated, float(discount), float(ratio)
        )
        result.append((t, step))
    return result
