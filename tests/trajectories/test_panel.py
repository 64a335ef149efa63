"""When a log of events is taken for a panel, whose first events are like the others."""

import warnings

import numpy as np
import pytest

from lstd import Trajectories
from lstd.errors import PanelWarning

pd = pytest.importorskip("pandas")


def yearly(n_ids=11, n_years=12, n_each=1, missing=0.0, seed=0):
    """Figures of some firms, each year unless they are missing."""
    random = np.random.default_rng(seed)
    firm = np.repeat(np.arange(n_ids), n_years * n_each)
    year = np.tile(np.repeat(np.arange(n_years), n_each), n_ids) + 0.5
    log = pd.DataFrame({"firm": firm, "year": year, "sales": random.lognormal(size=len(firm))})
    return log[random.random(len(log)) >= missing]


def read(log, **arguments):
    names = {"episode": "firm", "time": "year", "amount": "sales", "step": 1.0, "until": 12.0}
    return Trajectories.from_events(log, **(names | {"window": 2} | arguments))


def said(log, **arguments):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", PanelWarning)
        read(log, **arguments)
    return [str(one.message) for one in given]


@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_a_panel_is_named_with_the_remedy(missing):
    (text,) = said(yearly(missing=missing))
    assert 'Compare with `first="counted"` by `lstd.metrics.backtest`' in text
    assert f"{1.0 - missing:.0%}"[0] == text[0]


def test_the_remedy_is_followed_by_silence_and_by_rates_of_all_figures():
    log = yearly()
    assert not said(log, first="counted")
    data = read(log, first="counted")
    rate = data.X[:, data.feature_names.index("all_rate_sales")]
    assert rate[data.episode == 0][0] > 0.0


@pytest.mark.parametrize(
    "log",
    [
        yearly(missing=0.3),  # customers who pause
        yearly(n_each=3),  # several events a step, of which the first one is little
        yearly(n_ids=1, n_years=12),
        yearly(n_ids=4, n_years=12),  # 44 steps are too few to know
    ],
    ids=["pauses", "several", "one id", "few steps"],
)
def test_other_logs_are_not_panels(log):
    assert not said(log)


def test_totals_lose_nothing_and_need_no_warning():
    assert not said(yearly(), window=None)
