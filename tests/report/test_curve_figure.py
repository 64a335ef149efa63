"""`plot_curve`: the numbers that are drawn are those of the model."""

from __future__ import annotations

import numpy as np
import pytest

from lstd import HorizonLSTD
from lstd.errors import InvalidInputError
from lstd.report import plot_curve

pytest.importorskip("matplotlib")


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    episode = np.arange(80) // 4
    return {
        "X": random.normal(size=(80, 2)),
        "y": random.normal(size=(80, 2)),
        "episode": episode,
        "terminated": 0 * episode,
    }


def test_lines_and_bands_are_predictions_and_intervals(data):
    model = HorizonLSTD(5).fit(**data)
    lines = plot_curve(model, data["X"][:3], level=0.9)
    curve = model.predict_curve(data["X"][:3])
    np.testing.assert_allclose([line.get_ydata() for line in lines[:3]], curve[..., 0], rtol=1e-12)
    np.testing.assert_allclose([line.get_ydata() for line in lines[3:]], curve[..., 1], rtol=1e-12)
    band = lines[0].axes.collections[0].get_paths()[0].vertices
    upper = model.predict_interval(data["X"][:1], 0.9, horizon=5).upper[0, 0]
    assert np.isclose(band[band[:, 0] == 5, 1].max(), upper)


def test_one_curve_for_a_sum_of_rows(data):
    model = HorizonLSTD(5).fit(**data | {"y": data["y"][:, 0]})
    (line,) = plot_curve(model, data["X"], weights=np.ones(80))
    np.testing.assert_allclose(line.get_ydata(), model.predict_curve(data["X"]).sum(axis=0), rtol=1e-10)


def test_without_blocks_there_are_no_bands(data):
    model = HorizonLSTD(5, n_blocks=0).fit(**data)
    assert not plot_curve(model, data["X"])[0].axes.collections
    with pytest.raises(InvalidInputError, match="Intervals need"):
        plot_curve(model, data["X"], weights=np.ones(80))
