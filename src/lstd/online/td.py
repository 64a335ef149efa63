"""TD(λ) with accumulating or replacing traces, and true online TD(λ).

Recursions and sources are in `lstd._kernels.td_update`. A transition takes O(n).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstd._kernels.td_update import ACCUMULATING, REPLACING, TRUE_ONLINE
from lstd.data.checks import check_choice
from lstd.errors import InvalidInputError
from lstd.online.temporal_difference import TemporalDifference


class TD(TemporalDifference):
    """TD(λ) with accumulating or replacing traces (Sutton 1988; Singh and Sutton 1996).

    Parameters
    ----------
    n_features : int
        Number of features, n.
    gamma : float in [0, 1], default 0.99
        Discount of updates that do not give their own.
    lmbda : float in [0, 1], default 0.9
        Trace decay.
    step_size : float > 0, default 0.01
    trace : {"accumulating", "replacing"}, default "accumulating"
        Whether a feature's trace grows with every visit or is reset by it.

    Attributes
    ----------
    n_updates : int
        Number of transitions so far.

    Notes
    -----
    Importance ratios are per decision: they multiply the trace (Precup, Sutton and Singh 2000).

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import TD
    >>> model = TD(2, gamma=0.5, lmbda=0.0, step_size=0.5)
    >>> here, there = np.eye(2)
    >>> for _ in range(100):
    ...     model.update(here, 1.0, there)
    ...     here, there = there, here
    >>> model.weights.round(6)
    array([2., 2.])
    """

    def __init__(
        self,
        n_features: int,
        gamma: float = 0.99,
        lmbda: float = 0.9,
        step_size: float = 0.01,
        trace: str = "accumulating",
    ) -> None:
        self.trace = check_choice("trace", trace, ("accumulating", "replacing"))
        super().__init__(n_features, gamma, lmbda, step_size, ACCUMULATING if trace == "accumulating" else REPLACING)

    def __repr__(self) -> str:
        return (
            f"TD({self.n_features}, gamma={self.gamma:g}, lmbda={self.lmbda:g}, step_size={self.step_size:g}, "
            f"trace={self.trace!r})"
        )


class TrueOnlineTD(TemporalDifference):
    """True online TD(λ) (van Seijen, Mahmood, Pilarski, Machado and Sutton 2016).

    After every transition its weights are those of the online λ-return algorithm, exactly.

    Parameters
    ----------
    n_features, gamma, lmbda, step_size
        As for :class:`TD`.

    Attributes
    ----------
    n_updates : int
        Number of transitions so far.

    Notes
    -----
    If `x` is not the `x_next` of the update before, values are bootstrapped at `x_next` and updated at `x`.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import TrueOnlineTD
    >>> model = TrueOnlineTD(2, gamma=0.5, lmbda=0.5, step_size=0.5)
    >>> model.partial_fit(np.eye(2)[np.arange(200) % 2], np.ones(200)).weights.round(6)
    array([2., 2.])
    """

    def __init__(self, n_features: int, gamma: float = 0.99, lmbda: float = 0.9, step_size: float = 0.01) -> None:
        super().__init__(n_features, gamma, lmbda, step_size, TRUE_ONLINE)

    def __repr__(self) -> str:
        return (
            f"TrueOnlineTD({self.n_features}, gamma={self.gamma:g}, lmbda={self.lmbda:g}, step_size={self.step_size:g})"
        )

    def _check_ratios(self, ratios: Any) -> None:
        if np.any(np.asarray(ratios) != 1.0):
            raise InvalidInputError(
                "`importance_ratio` must be 1 with true online TD(λ), which learns on-policy; got another value. "
                "Use TD or RecursiveLSTD to learn off-policy."
            )
