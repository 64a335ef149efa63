"""Parameters of a model that is fitted to tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd.data.checks import check_choice, check_real
from lstd.statistics.statistics import VARIANTS


@dataclass(frozen=True)
class Settings:
    """Parameters as of :class:`lstd.LSTD`; raises InvalidInputError when one breaks its rule.

    Attributes
    ----------
    lmbda, alpha : float or None
        None leaves the choice to the data.
    """

    gamma: float
    lmbda: float | None = 0.9
    alpha: float | None = 1.0
    variant: str = "boyan"
    fit_intercept: bool = False

    def __post_init__(self) -> None:
        check_real("gamma", self.gamma, 0.0, 1.0)
        if self.lmbda is not None:
            check_real("lmbda", self.lmbda, 0.0, 1.0)
        if self.alpha is not None:
            check_real("alpha", self.alpha, 0.0, np.inf)
        check_choice("variant", self.variant, VARIANTS)
