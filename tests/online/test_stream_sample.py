"""The effective sample that importance ratios, trace coefficients and weights leave of a stream."""

import warnings

import numpy as np
import pytest

import naive
from lstd import LSTD, RecursiveLSTD
from lstd.errors import EffectiveSampleWarning
from tolerances import assert_close


def factors(n, seed=0):
    random = np.random.default_rng(seed)
    ratio, (weight, coefficient) = np.where(random.uniform(size=n) < 0.2, 4.2, 0.2), random.uniform(size=(2, n))
    return {"importance_ratio": ratio, "weight": weight, "trace_coefficient": 2.0 * coefficient}


def rows(n, length=12):
    random = np.random.default_rng(1)
    ends = {"terminated": np.arange(n) % length == length - 1, "episode": np.arange(n) // length}
    return {"X": random.normal(size=(n, 2)), "y": random.normal(size=n), **ends}


def updated(model, X, y, terminated, importance_ratio, episode):
    for t in range(len(y)):
        after = None if terminated[t] else X[t + 1]
        model.update(X[t], y[t], after, terminated=bool(terminated[t]), importance_ratio=importance_ratio[t])


def sizes(model):
    return model.reader.sample


@pytest.mark.parametrize("forgetting", [1.0, 0.98])
def test_it_is_that_of_the_definition(forgetting):
    given, faded = factors(84), forgetting ** np.arange(83, -1, -1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveSampleWarning)
        model = RecursiveLSTD(2, 0.9, 0.8, forgetting=forgetting).partial_fit(**rows(84), **given)
    ones, rho, w, c = np.ones(84), given["importance_ratio"], given["weight"], given["trace_coefficient"]
    most = np.minimum(c, 1.0)
    expected = [
        naive.effective_sample(ratios, 0.72, [12] * 7, faded * weights, coefficients)
        for ratios, weights, coefficients in ((rho, ones, c), (ones, w, most), (ones, ones, most))
    ]
    assert_close(sizes(model), expected, "solve")


@pytest.mark.parametrize("forgetting", [1.0, "auto"])
def test_the_warning_is_that_of_the_batch_estimator_and_comes_once(forgetting):
    data = {**rows(3000, 60), "importance_ratio": factors(3000, seed=3)["importance_ratio"]}
    with pytest.warns(EffectiveSampleWarning) as batch:
        LSTD(1.0, 1.0).fit(**data)
    model = RecursiveLSTD(2, 1.0, 1.0, forgetting=forgetting)
    with pytest.warns(EffectiveSampleWarning) as given:
        updated(model, **data)
    assert len(given) == 1
    assert str(given[0].message).partition(":")[2] == str(batch[0].message).partition(":")[2]
    again = RecursiveLSTD.restore(model.snapshot())
    with warnings.catch_warnings():
        warnings.simplefilter("error", EffectiveSampleWarning)
        again.partial_fit(**data)
