"""Figures of coefficients and of the influence of blocks show what intervals are made from; all take axes."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from lstd import LSTD
from lstd.errors import InvalidInputError
from lstd.report import plot_blocks, plot_calibration, plot_coefficients, plot_grid, plot_predictions, plot_sweep
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


# ---------------------------------------------------------------- axes of the user, in every figure


def draw(plot, model, ax):
    """Draw one of the figures of rows, with two rewards."""
    random = np.random.default_rng(2)
    X, y = random.normal(size=(60, 3)), random.normal(size=(60, 2))
    return plot(model, X, y, terminated=np.arange(60) % 10 == 9, ax=ax)


@pytest.mark.parametrize("plot", [plot_calibration, plot_predictions])
def test_figures_with_a_panel_for_each_reward_take_axes_for_each(model, plot):
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert [artist.axes for artist in draw(plot, model, axes)] == list(axes)
    assert figure.axes == list(axes)
    assert [ax.get_title(loc="left") for ax in axes] == ["reward_0", "reward_1"]
    for wrong, found in ((axes[0], "1 axes"), ([*axes, axes[0]], "3 axes"), (figure, "an object of type Figure")):
        message = (
            rf"`ax` must be 2 Matplotlib axes, one for each reward; got {found}\. Pass what `figure\.subplots\(2\)"
        )
        with pytest.raises(InvalidInputError, match=message):
            draw(plot, model, wrong)


GRID = {"lmbda": [0, 0, 1, 1], "alpha": [1, 2, 1, 2], "mean_test_score": [0.4, 0.5, 0.7, 0.6], "observed_share": [0.8]}


@pytest.mark.parametrize(
    "plot",
    [
        lambda model, ax: plot_grid(GRID, 1, 2, ax=ax),
        lambda model, ax: plot_coefficients(model, ax=ax),
        lambda model, ax: plot_blocks(model, np.ones((1, 3)), ax=ax),
    ],
    ids=["grid", "coefficients", "blocks"],
)
def test_figures_of_one_panel_draw_into_it_and_leave_the_others_alone(model, plot):
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    other, ax = figure.subplots(1, 2)
    assert plot(model, ax)[0].axes is ax
    assert not other.has_data()
    figure.draw_without_rendering()
    assert ax.get_position().width > 0.25  # nothing far from the panel takes space
    assert plot(model, None)[0].figure is not figure
    for wrong, found in (([ax, other], "2 axes"), ("left", "an object of type str")):
        with pytest.raises(InvalidInputError, match=rf"`ax` must be one Matplotlib axes; got {found}\. Pass what"):
            plot(model, wrong)


def test_the_grid_in_given_axes_has_its_scale_beside_it():
    ax = Figure().subplots()
    colours, star = plot_grid(GRID, 1, 2, ax=ax)
    assert [panel.get_ylabel() for panel in ax.figure.axes] == [
        "trace decay λ", "error ÷ lowest error; 80\N{NO-BREAK SPACE}% of the returns observed"
    ]  # fmt: skip
    assert star.get_xydata().tolist() == [[1, 1]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["chosen", "lowest error"]
    assert_close(colours.get_array().min(), 1.0, "sums")


def test_a_sweep_shows_the_lowest_mean_over_runs_at_each_lmbda():
    errors = np.random.default_rng(1).random((4, 3, 5))
    diverged = np.full((4, 3, 5), np.inf)
    lines = plot_sweep({"boyan": errors, "td": diverged}, [0.0, 0.5, 1.0])
    assert_close(lines[0].get_ydata(), errors.mean(axis=0).min(axis=1), "sums")
    assert np.isnan(lines[1].get_ydata()).all()
    with pytest.raises(InvalidInputError, match=r"`errors\['boyan'\]` must have shape \(n_runs, 2, n_alphas\)"):
        plot_sweep({"boyan": errors}, [0.0, 1.0])
