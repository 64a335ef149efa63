"""Figures of coefficients and of the influence of blocks show the numbers that intervals are made from."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from lstd import LSTD
from lstd.errors import InvalidInputError
from lstd.report import plot_blocks, plot_coefficients
from tolerances import assert_close


@pytest.fixture(scope="module", params=[True, False], ids=["intercept", "no intercept"])
def model(request):
    random = np.random.default_rng(1)
    X, y = random.normal(size=(300, 3)), random.normal(size=(300, 2))
    return LSTD(gamma=0.9, fit_intercept=request.param).fit(X, y, terminated=np.arange(300) % 10 == 9)


def test_coefficients_have_the_intervals_of_one_unit_more_of_a_feature(model):
    points, _, (lines,) = plot_coefficients(model, level=0.9, reward=1)
    assert_close(points.get_xdata(), model.coef_[1], "sums")
    for feature, line in enumerate(lines.get_segments()):
        rows = np.stack([np.eye(3)[feature], np.zeros(3)])
        interval = model.predict_interval(rows, level=0.9, weights=[1.0, -1.0])
        assert_close(line[:, 0], [interval.lower[1], interval.upper[1]], "solve")


def test_blocks_sum_to_the_squared_standard_error(model):
    x = np.array([[0.5, -1.0, 2.0]])
    heights = [bar.get_height() for bar in plot_blocks(model, x, reward=1)]
    assert_close(np.sqrt(np.sum(np.square(heights))), model.predict(x, return_std=True)[1][0, 1], "sums")


def test_both_draw_into_given_axes_and_refuse_what_they_cannot_draw(model):
    ax = Figure().subplots()
    assert plot_coefficients(model, ax=ax)[0].axes is ax
    assert plot_blocks(model, np.zeros((1, 3)), ax=ax)[0].axes is ax
    with pytest.raises(InvalidInputError, match=r"`x` must be one row"):
        plot_blocks(model, np.zeros((2, 3)))
    with pytest.raises(InvalidInputError, match=r"`reward` must be one of the 2 rewards"):
        plot_coefficients(model, reward=2)
    with pytest.raises(InvalidInputError, match="ntervals"):
        plot_coefficients(LSTD(n_blocks=0).fit(np.eye(3), np.ones(3)))
