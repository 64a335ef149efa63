"""Frequencies of logged actions against their probabilities."""

import warnings

import numpy as np
import pytest

from lstd import Trajectories
from lstd.errors import InvalidInputError, ProbabilityWarning
from lstd.ope import action_calibration
from lstd.report import plot_action_calibration

ROWS, LABELS = 4000, ["wait", "low", "high"]


def logged(seed=0):
    """Labels of actions, and probabilities of all; "high" is impossible in half of the rows."""
    random = np.random.default_rng(seed)
    P = random.dirichlet(np.ones(3), ROWS)
    P[: ROWS // 2, 2] = 0.0
    P /= P.sum(axis=1, keepdims=True)
    codes = (random.uniform(size=(ROWS, 1)) > np.cumsum(P, axis=1)[:, :2]).sum(axis=1)
    return np.array(LABELS)[codes], P


def test_frequencies_of_bins_are_those_of_each_action():
    actions, P = logged()
    table = action_calibration(actions, P, 4, labels=LABELS)
    assert repr(table).startswith(f"ActionCalibration(3 actions, {len(table.count)} bins, largest_difference=0.0")
    for a, name in enumerate(LABELS):
        mine = table.action == name
        pairs = sorted(zip(P[:, a], actions == name, strict=True))
        assert table.count[mine].sum() == ROWS
        upper = [taken for _, taken in pairs][-int(table.count[mine][-1]) :]
        np.testing.assert_allclose(table.observed[mine][-1], np.mean(upper))
    assert np.all(np.abs(table.observed - table.predicted) <= 4.0 * np.maximum(table.standard_error, 1e-3))


def test_an_action_taken_too_often_is_told_where_another_is_taken_too_rarely():
    with pytest.warns(ProbabilityWarning, match="Action 0 was taken in 1 of the rows with .* of 0.5 on average, by 20"):
        table = action_calibration(np.zeros(400, int), np.full((400, 2), 0.5))
    np.testing.assert_allclose([table.observed, table.predicted, table.action], [[1, 0], [0.5, 0.5], [0, 1]])
    random = np.random.default_rng(0)
    greedy, explores = random.integers(4, size=3000), random.uniform(size=3000) < 0.15
    P = np.full((3000, 4), 0.05)
    P[np.arange(3000), greedy] = 0.85
    right = np.where(explores, (greedy + random.integers(1, 4, 3000)) % 4, greedy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        action_calibration(right, P)
    only_one = np.where(explores, np.where(greedy == 3, 0, 3), greedy)  # every exploring step takes 3, or else 0
    with pytest.warns(ProbabilityWarning, match="Action 3 was taken in 0.1"):
        action_calibration(only_one, P)


def test_wrong_probabilities_are_told_and_right_ones_never():
    for seed in range(20):
        actions, P = logged(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            action_calibration(actions, P, labels=LABELS)
    sharp = P**2 / (P**2).sum(axis=1, keepdims=True)
    with pytest.warns(
        ProbabilityWarning, match=r"taken in .* of the rows with .* on average, by \d+\.\d standard errors"
    ):
        action_calibration(actions, sharp, labels=LABELS)


@pytest.mark.parametrize(
    ("actions", "probabilities", "message"),
    [
        ([0, 1], [[0.5, 0.5]], r"a row for each of the `actions`; got \(1, 2\)"),
        ([0, 1], [0.5, 0.5], r"must have the probabilities of all actions.*got \(2,\).*mean importance ratio"),
        ([0, 1], [[0.5, 0.5], [0.5, np.nan]], "row 1 has nan. Leave out horizon rows, or pass the Trajectories"),
        ([0, 1], [[0.5, 0.5], [-0.5, 1.5]], r"`behavior_probability` must hold probabilities in \[0, 1\]; row 1"),
        (
            [0, 0],
            [[0.5, 0.5], [0.0, 1.0]],
            "`behavior_probability` must be above 0 for actions that were logged; row 1",
        ),
        ([0, 1], [[0.5, 0.5], [0.5, 0.4]], "`behavior_probability` must sum to 1 over the actions; row 1 sums to 0.9"),
        ([0, 2], [[0.5, 0.5]] * 2, r"`actions` must hold integers in \[0, 1\]; row 1 has 2"),
        ([], [], "got"),
        ([[0], [0, 1]], [[0.5, 0.5]] * 2, "`actions` must have one number or text for each"),
    ],
)
def test_bad_input_has_one_clear_line(actions, probabilities, message):
    with pytest.raises(InvalidInputError, match=message):
        action_calibration(actions, probabilities)


def test_horizon_rows_of_trajectories_are_left_out():
    actions, P = logged()
    ends = {"X": np.ones((ROWS, 1)), "y": np.ones(ROWS), "episode": np.arange(ROWS) // 10}
    last = np.arange(ROWS) % 10 == 9
    data = Trajectories(**ends, terminated=last & (actions == "low"), actions=actions)
    full = ~data.horizon
    assert 0 < full.sum() < ROWS
    found, expected = (action_calibration(*one, labels=LABELS) for one in ((data, P), (actions[full], P[full])))
    np.testing.assert_array_equal(found.observed, expected.observed)


def test_the_figure_shows_every_bin():
    import matplotlib.pyplot as plt

    actions, P = logged()
    figure, ax = plt.subplots()
    (points,) = plot_action_calibration(actions, P, labels=LABELS, n_bins=5, ax=ax)
    np.testing.assert_allclose(points.get_xdata(), action_calibration(actions, P, 5, labels=LABELS).predicted)
    plt.close(figure)
