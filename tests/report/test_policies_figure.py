"""The figure of values of policies shows intervals, order and what the data cannot tell apart."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from logged_actions import PROCESS
from lstd.errors import InvalidInputError
from lstd.ope import LSTDQ, compare_policies, policy_value
from lstd.ope.step_ratios import step_ratios
from lstd.report import plot_policy_diagnostics, plot_policy_values
from tolerances import assert_close


@pytest.fixture(scope="module")
def comparison():
    data = PROCESS.simulate(60, 5, 1)
    states = data["X"].argmax(axis=1)
    policies = {"logged": PROCESS.mu, "target": PROCESS.pi, "worst": np.eye(3)[PROCESS.q.argmin(axis=1)]}
    return compare_policies(
        {name: LSTDQ(0.9).fit(**data | {"target_policy": pi[states]}) for name, pi in policies.items()}
    )


def test_policies_are_in_order_with_their_intervals(comparison):
    ax = Figure().subplots()
    points, _, (lines,) = plot_policy_values(comparison, truth=0.0, ax=ax)
    order = comparison.order
    assert points.axes is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == [comparison.names[i] for i in order]
    for i, line in zip(order, lines.get_segments(), strict=True):
        assert_close(line[:, 0], [comparison.values[i].lower, comparison.values[i].upper], "sums")
    filled = ax.lines[-1].get_xdata()
    assert_close(filled, [comparison.values[comparison.names.index(name)].value for name in comparison.best], "sums")


@pytest.mark.filterwarnings("ignore::lstd.errors.LSTDWarning")  # of a small log
def test_diagnostics_have_four_panels():
    data = PROCESS.simulate(20, 5, 1)
    value = policy_value(LSTDQ(0.9).fit(**data))
    axes = plot_policy_diagnostics(value)
    steps, shares = axes[1].lines[0].get_data()
    assert_close(shares, step_ratios(value.by_blocks.log).sizes / 20, "sums")
    assert len(steps) == 5
    assert_close(axes[3].lines[0].get_ydata().sum(), value.dual_weights.sum(), "sums")
    assert axes[2].lines[0].get_ydata()[0] <= 1.0
    with pytest.raises(InvalidInputError, match="`value` must have ratios and dual weights"):
        plot_policy_diagnostics(policy_value(LSTDQ(0.9).fit(**data | {"behavior_probability": None})))
