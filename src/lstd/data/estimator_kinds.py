"""Which kinds of estimator, of this package or another one, can be compared with what came: by what they have."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from numpy.typing import ArrayLike

from lstd.types import Array, FeaturesLike


class Parametrised(Protocol):
    """An estimator, as scikit-learn has them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""


@runtime_checkable
class EstimatorOfReturns(Parametrised, Protocol):
    """An estimator of the discounted sum of all rewards that follow."""

    gamma: float

    def fit(self, X: FeaturesLike, y: ArrayLike, **columns: Any) -> Self:
        """Fit to rows in time order."""

    def predict(self, X: FeaturesLike) -> Array:
        """Predict the sum from each row."""


@runtime_checkable
class EstimatorOfSteps(Parametrised, Protocol):
    """An estimator of the sums of the rewards in the next 1, 2, … steps."""

    gamma: float
    horizon: int

    def fit(self, X: FeaturesLike, y: ArrayLike, **columns: Any) -> Self:
        """Fit to rows in time order."""

    def predict(self, X: FeaturesLike, horizon: int | None = None) -> Array:
        """Predict the sum over some steps from each row, by default over the most."""


@runtime_checkable
class KnowsUnobserved(Protocol):
    """A fitted state that knows whether too few of the returns were observed."""

    @property
    def unobserved(self) -> str:
        """Why predictions are doubtful; empty if they are not."""
