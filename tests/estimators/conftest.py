"""A fixture of the tests of estimators: a default grid of few pairs."""

from __future__ import annotations

import pytest

from lstd.estimators import choose_settings


@pytest.fixture
def few_pairs(monkeypatch):
    """The first, a middle and the last of the default trace decays and ridge coefficients."""
    monkeypatch.setattr(choose_settings, "LMBDAS", choose_settings.LMBDAS[[0, 9, 19]])
    alphas_for = choose_settings.alphas_for
    monkeypatch.setattr(choose_settings, "alphas_for", lambda *numbers: alphas_for(*numbers)[::4])
