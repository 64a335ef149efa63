"""Fixtures of tests of fits."""

import pytest


@pytest.fixture
def no_bias_or_misfit(monkeypatch):
    """Leave out two checks of a HorizonLSTD, which take half the time of a fit, and on which nothing else depends."""
    monkeypatch.setattr("lstd.estimators.step_checks.or_why", lambda check: "not made")
