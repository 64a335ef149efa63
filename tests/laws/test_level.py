"""The level of intervals is checked by one rule, whatever computes or draws them."""

from functools import cache

import numpy as np
import pytest

from lstd import LSTD, RecursiveLSTD, inference, ope, report
from lstd.errors import InvalidInputError

RANDOM = np.random.default_rng(0)
X, Y, ENDS, ACTIONS = RANDOM.normal(size=(40, 2)), RANDOM.normal(size=40), np.ones(40), RANDOM.integers(2, size=40)
EVEN = np.full((40, 2), 0.5)
LOG = {"X": X, "y": Y, "actions": ACTIONS, "episode": np.arange(40), "terminated": ENDS}


@cache
def model():
    return LSTD(0.9).fit(X, Y, terminated=ENDS)


@cache
def online():
    return RecursiveLSTD(2).partial_fit(np.tile(X, (10, 1)), np.tile(Y, 10), terminated=np.ones(400))


@cache
def values():
    return ope.LSTDQ(0.9, features=ope.StateActionFeatures(2)).fit(**LOG, target_policy=EVEN)


def sampled(**options):
    return ope.importance_sampling(**LOG, target_policy=EVEN, behavior_probability=np.full(40, 0.5), **options)


WAYS = {  # each computes or draws intervals of a level
    "predict_interval": lambda level: model().predict_interval(X, level),
    "summary": lambda level: model().summary(level),
    "RecursiveLSTD": lambda level: online().predict_interval(X[0], level),
    "difference": lambda level: inference.difference(model(), model(), X, None, level),
    "policy_value": lambda level: ope.policy_value(values(), level=level),
    "compare_policies": lambda level: ope.compare_policies([values(), values()], level=level),
    "importance_sampling": lambda level: sampled(gamma=0.9, estimator="pdis", level=level),
    "plot_predictions": lambda level: report.plot_predictions(model(), X, Y, terminated=ENDS, level=level),
    "plot_coefficients": lambda level: report.plot_coefficients(model(), level=level),
    "plot_action_calibration": lambda level: report.plot_action_calibration(ACTIONS, EVEN, level=level),
}


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_level_is_above_0_and_below_1(way):
    assert WAYS[way](0.5) is not None
    for level in (0.0, 1.0, 95, -0.5):
        rule = rf"^`level` must be above 0 and below 1, such as 0\.95; got {level:g}\.$"
        with pytest.raises(InvalidInputError, match=rule):
            WAYS[way](level)
    for level, rule in ((np.nan, "finite"), ("0.95", "a number"), (True, "a number")):
        with pytest.raises(InvalidInputError, match=f"^`level` must be {rule}; got"):
            WAYS[way](level)
