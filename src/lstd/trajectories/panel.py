"""Panels: logs with one event in nearly each step of an id, such as the yearly figures of firms.

The first event of a customer made it part of the log, and says little of what follows; so it is apart from the others
unless `first` is "counted". In a panel, the first event is a step like any other. Without it, rates have one step less
to go by, which is much where few steps are known, and ids differ far more than each of them varies. Where the rates of
all events predict worse even so, such as where figures grow from step to step, only a comparison tells.
"""

from __future__ import annotations

import numpy as np

from lstd.errors import PanelWarning, warn
from lstd.trajectories.rates import Known

_SHARE = 0.9  # of the steps have an event
_EVENTS = 1.1  # a step, at most
_FEWEST = 50  # steps from which that is known


def warn_of_panel(known: Known) -> None:
    """Warn if the log is a panel, whose first events are apart in the features `known`."""
    same_id = known.who[1:] == known.who[:-1]
    n_events = np.diff(known.sums[:, 0])[same_id]  # of each complete step
    n_ids = len(np.unique(known.who))
    if len(n_events) < _FEWEST or n_ids < 2:
        return
    share = float(np.mean(n_events > 0.0))
    if share < _SHARE or n_events.mean() > _EVENTS:
        return
    warn(
        f"{share:.0%} of the steps have an event, one each, so the log is a panel: the first event of an id is a step "
        'like any other, but the rates leave it out. Compare with `first="counted"` by `lstd.metrics.backtest`, and '
        "take what predicts better.",
        PanelWarning,
    )
