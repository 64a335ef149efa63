"""Every figure and the page draw a fitted object, or refuse it with a message that says what to call instead."""

import inspect

import numpy as np
import pytest
from matplotlib.figure import Figure

from lstd import LSTD, LSTDCV, TD, HorizonLSTD, RecursiveLSTD, TrueOnlineTD, report
from lstd.errors import InvalidInputError
from lstd.inference import ReturnSpread
from lstd.ope import LSTDQ, policy_value

pytestmark = pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of few rows

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 2))
Y = RANDOM.normal(size=200)
TERMINATED = np.arange(200) % 10 == 9
ONE_ROW = X[:1]
ACTIONS = {
    "actions": np.arange(200) % 2,
    "target_policy": np.full((200, 2), [0.25, 0.75]),
    "behavior_probability": np.full(200, 0.5),
}


def fitted(make):
    return make().fit(X, Y, terminated=TERMINATED)


def streamed(make):
    model = make()
    model.partial_fit(X, Y, terminated=TERMINATED)
    return model


def decided():
    return LSTDQ(gamma=0.5).fit(X, Y, terminated=TERMINATED, **ACTIONS)


def spread():
    model = fitted(lambda: LSTD(0.5))
    return ReturnSpread(model).fit(X, Y, terminated=TERMINATED)


OBJECTS = {
    "LSTD": lambda: fitted(lambda: LSTD(0.5)),
    "LSTDCV": lambda: fitted(lambda: LSTDCV(0.5)),
    "HorizonLSTD": lambda: fitted(lambda: HorizonLSTD(3)),
    "LSTDQ": decided,
    "ReturnSpread": spread,
    "RecursiveLSTD": lambda: streamed(lambda: RecursiveLSTD(2, 0.5)),
    "TD": lambda: streamed(lambda: TD(2, 0.5)),
    "TrueOnlineTD": lambda: streamed(lambda: TrueOnlineTD(2, 0.5)),
    "PolicyValue": lambda: policy_value(decided()),
    "number": lambda: 1.0,
    "class": lambda: LSTD,
}
OF_RETURNS = {"LSTD", "LSTDCV"}
WITH_ROWS = {"X": X, "y": Y, "terminated": TERMINATED}
FIGURES = {  # the other arguments of each, and what it draws
    "plot_blocks": ({"x": ONE_ROW}, OF_RETURNS),
    "plot_calibration": (WITH_ROWS, OF_RETURNS),
    "plot_coefficients": ({}, OF_RETURNS),
    "plot_contributions": ({"x": ONE_ROW}, OF_RETURNS),
    "plot_curve": ({"X": ONE_ROW}, {"HorizonLSTD"}),
    "plot_grid": ({"lmbda": 0.5, "alpha": 1.0}, set()),
    "plot_policy_diagnostics": ({}, {"PolicyValue"}),
    "plot_policy_values": ({}, set()),
    "plot_predictions": (WITH_ROWS, OF_RETURNS),
    "plot_spread": ({"X": ONE_ROW}, {"ReturnSpread"}),
    "plot_sweep": ({"lmbdas": [0.0, 1.0]}, set()),
    "write_fit_report": (WITH_ROWS, OF_RETURNS | {"HorizonLSTD"}),
}


def first_artist(drawn):
    while not hasattr(drawn, "figure"):
        drawn = next(iter(drawn))
    return drawn


def test_every_figure_is_in_the_table():
    of_arrays = {"plot_action_calibration"}
    assert set(FIGURES) == set(report.__all__) - of_arrays


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_figure_draws_or_says_what_to_call(tmp_path, no_pictures, kind):
    found = OBJECTS[kind]()
    for name, (arguments, drawn_of) in FIGURES.items():
        plot = getattr(report, name)
        before = [tmp_path / "page.html"] if name == "write_fit_report" else []
        if kind in drawn_of:
            drawn = plot(*before, found, **arguments)
            assert drawn.exists() if before else isinstance(first_artist(drawn).figure, Figure)
            continue
        argument = list(inspect.signature(plot).parameters)[len(before)]
        with pytest.raises(InvalidInputError, match=rf"^`{argument}` must be .*; got .*\.") as refused:
            plot(*before, found, **arguments)
        assert "HorizonLSTD" in str(refused.value) or name != "plot_curve"


def test_what_is_refused_has_a_figure_of_its_own():
    for kind, figure in (
        ("HorizonLSTD", "plot_curve"),
        ("LSTDQ", "plot_policy_values"),
        ("ReturnSpread", "plot_spread"),
    ):
        with pytest.raises(InvalidInputError, match=rf"must be a fitted LSTD or LSTDCV; got .*`{figure}`"):
            report.plot_coefficients(OBJECTS[kind]())
    with pytest.raises(InvalidInputError, match=r"must be a fitted HorizonLSTD; got LSTD.*`plot_predictions`"):
        report.plot_curve(OBJECTS["LSTD"](), ONE_ROW)
