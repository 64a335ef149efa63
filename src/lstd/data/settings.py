"""The settings of an estimator: its variants, default values and grids to choose from, each listed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lstd.data.checks import check_choice, check_flag, check_grid, check_real
from lstd.errors import InvalidInputError

VARIANTS = ("boyan", "uncorrected", "mixed")
AUTO = "auto"  # in place of a number: chosen by cross-validation
GAMMA, LMBDA, ALPHA, VARIANT = 0.99, 0.9, 1.0, "boyan"
LMBDAS: NDArray[np.float64] = np.array([*np.arange(10) / 10, *np.arange(91, 101) / 100], dtype=np.float64)
ALPHAS: NDArray[np.float64] = np.exp2(np.arange(-8, 1), dtype=np.float64)  # in units of the mean squared row


def check_ridge(name: str, values: Any, n_features: int | None = None) -> NDArray[np.float64]:
    """Return ridge coefficients of features, at least 0, or raise InvalidInputError."""
    ridge = check_grid(name, values, 0.0, np.inf)
    if n_features is not None and len(ridge) != n_features:
        raise InvalidInputError(
            f"`{name}` must be one number, or one for each of the {n_features} features; got {len(ridge)} numbers."
        )
    return ridge


@dataclass(frozen=True)
class Settings:
    """Checked settings of an estimator, as the parameters of :class:`lstd.LSTD`."""

    gamma: float = GAMMA
    lmbda: float = LMBDA
    alpha: float = ALPHA
    variant: str = VARIANT
    fit_intercept: bool = True
    choose: tuple[str, ...] = ()  # which of "lmbda" and "alpha" the data choose; their values are only defaults then

    def __post_init__(self) -> None:
        for name, high in (("gamma", 1.0), ("lmbda", 1.0), ("alpha", np.inf)):
            object.__setattr__(self, name, check_real(name, getattr(self, name), 0.0, high))
        check_choice("variant", self.variant, VARIANTS)
        object.__setattr__(self, "fit_intercept", check_flag("fit_intercept", self.fit_intercept))

    @classmethod
    def with_choice(
        cls, gamma: float, lmbda: Any, alpha: Any, variant: str = VARIANT, fit_intercept: bool = True
    ) -> Self:
        """Return settings in which "auto" leaves `lmbda` or `alpha` to the data."""
        choose = []
        for name, value in (("lmbda", lmbda), ("alpha", alpha)):
            if isinstance(value, str) and value == AUTO:
                choose.append(name)
            elif value is None or isinstance(value, str):
                raise InvalidInputError(f'`{name}` must be a number or "auto"; got {value!r}.')
        lmbda, alpha = LMBDA if "lmbda" in choose else lmbda, ALPHA if "alpha" in choose else alpha
        return cls(gamma, lmbda, alpha, variant, fit_intercept, tuple(choose))
