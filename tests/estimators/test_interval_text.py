"""Intervals as they are printed."""

import numpy as np

from lstd import LSTD
from lstd.inference import ReturnSpread, difference


def test_an_interval_is_printed_in_short():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = LSTD(alpha=0.1).fit(X, np.arange(300.0) % 7)
    total = model.predict_interval(X[:50], weights=np.ones(50))
    expected = f"{total.prediction:.5g}, interval [{total.lower:.5g}, {total.upper:.5g}] at level 0.95"
    assert str(total) == repr(total) == expected
    many = repr(model.predict_interval(X))
    assert "..." in many
    assert len(many) < 300
    change = difference(model, model, X[:2])
    assert repr(change) == str(change)
    assert "np.float64" not in repr(change)
    done = np.ones(300)
    y = X[:, 0]
    spread = ReturnSpread(LSTD().fit(X, y, terminated=done)).fit(X, y, terminated=done)
    ranges = repr(spread.predict_interval(X))
    assert ranges.endswith("at level 0.9")
    assert len(ranges) < 300
