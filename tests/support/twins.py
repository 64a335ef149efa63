"""Compiled kernels and the same functions run by Python, and random streams to feed both."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from unittest import mock

import numba
import numpy as np
import pytest
from hypothesis import strategies as st

from lstd._kernels import alignment, chain, products
from lstd.experiments import sweep_dense, sweep_onehot
from lstd.experiments import sweep_td as td

compiled_only = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="takes minutes without compiled kernels")

PLACES = {
    "alignment": "lstd._kernels.alignment",
    "chain": "lstd._kernels.chain",
    "products": "lstd._kernels.products",
    "sweep_dense": "lstd.experiments.sweep_dense",
    "sweep_onehot": "lstd.experiments.sweep_onehot",
    "td": "lstd.experiments.sweep_td",
}
UNIT = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99))


def python_bodies(places, lanes):
    """The kernel modules loaded anew with `kernel` doing nothing, so that inner kernels are plain Python too.

    Blocks are of `lanes` pairs, unless that is 0, for speed, and so that few pairs make several blocks.
    """
    identity = ModuleType("lstd._kernels.compilation")
    identity.kernel = identity.lean_kernel = lambda function: function
    bodies = {}
    with mock.patch.dict(sys.modules, {identity.__name__: identity}):
        for name, place in places.items():
            spec = importlib.util.find_spec(place)
            bodies[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(bodies[name])
    for module in bodies.values():
        if lanes and hasattr(module, "LANES"):
            module.LANES = lanes
    return SimpleNamespace(**bodies)


COMPILED = SimpleNamespace(
    alignment=alignment, chain=chain, products=products, sweep_dense=sweep_dense, sweep_onehot=sweep_onehot, td=td
)
PYTHON = python_bodies(PLACES, lanes=3)
BOTH = {"Python": PYTHON, "compiled": COMPILED}


def long_stream(n_steps, n, n_pairs, seed=0):
    """The generator, and rewards, discounts with episode ends, weight, target, λ and α of well-conditioned pairs."""
    random = np.random.RandomState(seed)
    discounts = np.where(random.uniform(size=n_steps + 1) < 0.9, 0.95, 0.0)
    lmbdas, alphas = random.uniform(size=n_pairs), 2.0 ** random.uniform(-4, 4, n_pairs)
    lmbdas[:1], lmbdas[1:2] = 0.0, 1.0
    weight, target = random.uniform(size=n), random.normal(size=n)
    return random, (random.normal(size=n_steps), discounts, weight, target, lmbdas, alphas)


def assert_within(actual, desired, moves):
    """Every entry within `moves` of its definition; nothing is known of one that rounding may move by its size."""
    known = moves < np.abs(desired)
    known |= moves == 0.0  # no steps
    assert np.isfinite(actual[known]).all()
    assert (np.abs(actual - desired)[known] <= moves[known]).all(), (actual, desired, moves)
