"""The settings of an estimator: its variants, default values and grids to choose from, each listed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd.data.arguments import check_choice, check_flag, check_grid, check_integer, check_real, is_single
from lstd.data.variants import SHARES, VARIANT
from lstd.errors import InvalidInputError
from lstd.types import FeaturesLike

AUTO = "auto"  # in place of a number: chosen by cross-validation
SPREAD, RAW = PENALTIES = ("spread", "raw")  # of a model of the next steps, in place of factors of features
GAMMA, LMBDA, ALPHA = 0.99, 0.9, 1.0
SOLVERS = ("auto", "direct", "iterative")
TOL = 1e-8
MAX_ITER = 1000
_LOOSE = 1e4  # tolerance of the solves for intervals, in units of `tol`; it falls by 10⁴ where `tol` falls by 100
DENSE_UP_TO = 3000  # features
LMBDAS: NDArray[np.float64] = np.append(np.arange(10) / 10, np.arange(91, 101) / 100)
ALPHAS: NDArray[np.float64] = np.exp2(np.arange(-8, 5), dtype=np.float64)  # in the unit of LSTDCV


def boundary_share(variant: str, lmbda: float) -> float:
    """Return the share of the boundary term γ z_{T−1} φ_Tᵀ that a variant subtracts from A where the data end.

    Raises InvalidInputError when there is no such variant.

    Examples
    --------
    >>> from lstd.data.settings import boundary_share
    >>> boundary_share("mixed", 0.75)
    0.25
    """
    share_of = SHARES[check_choice("variant", variant, SHARES)]
    return share_of(lmbda)


def check_ridge(name: str, values: ArrayLike, n_features: int | None = None) -> NDArray[np.float64]:
    """Return ridge coefficients of features, at least 0, or raise InvalidInputError."""
    ridge = check_grid(name, values, 0.0, np.inf)
    if n_features is not None and len(ridge) != n_features:
        rule = "have one number" if name == "penalty" else "be one number, or one"
        numbers = "1 number" if len(ridge) == 1 else f"{len(ridge)} numbers"
        raise InvalidInputError(f"`{name}` must {rule} for each of the {n_features} features; got {numbers}.")
    return ridge


def alphas_for(n_features: int, n_transitions: int) -> NDArray[np.float64]:
    """Return the ridge coefficients to choose from, up to 16 n/T for n features and T transitions, in [1, 16].

    With few features, larger ones would leave more to chance; with many, the noise of the returns needs them.

    Examples
    --------
    >>> from lstd.data.settings import alphas_for
    >>> [float(alphas_for(n, 100).max()) for n in (10, 30, 150)]
    [1.0, 4.0, 16.0]
    """
    largest = max(1.0, 16.0 * n_features / max(1, n_transitions))
    return ALPHAS[: np.searchsorted(ALPHAS, largest, side="right")]


@dataclass(frozen=True)
class Settings:
    """Checked settings of an estimator, as the parameters of :class:`lstd.LSTD` and :class:`lstd.LSTDCV`."""

    gamma: float = GAMMA
    lmbda: float = LMBDA
    alpha: float | tuple[float, ...] = ALPHA
    variant: str = VARIANT
    fit_intercept: bool = True
    choose: tuple[str, ...] = ()  # which of "lmbda" and "alpha" the data choose; their values are only defaults then
    penalty: tuple[float, ...] | None = None  # factor of `alpha` for each feature
    unpenalised: tuple[str, ...] = ()  # names of features, until their places are known
    centre: tuple[float, ...] | None = None  # of each feature, subtracted before it is summed; None if all are zero

    def __post_init__(self) -> None:
        single = is_single(self.alpha)
        object.__setattr__(self, "gamma", check_real("gamma", self.gamma, 0.0, 1.0))
        object.__setattr__(self, "lmbda", check_real("lmbda", self.lmbda, 0.0, 1.0))
        if single:
            object.__setattr__(self, "alpha", check_real("alpha", self.alpha, 0.0, np.inf))
        else:
            object.__setattr__(self, "alpha", tuple(check_ridge("alpha", self.alpha).tolist()))
        if self.penalty is not None:
            object.__setattr__(self, "penalty", tuple(check_ridge("penalty", self.penalty).tolist()))
        if self.unpenalised and not single:
            raise InvalidInputError(
                "`alpha` must be one number if `unpenalised` is given; got one per feature. Give only one of the two."
            )
        check_choice("variant", self.variant, SHARES)
        object.__setattr__(self, "fit_intercept", check_flag("fit_intercept", self.fit_intercept))

    @classmethod
    def with_choice(
        cls,
        gamma: float,
        lmbda: float | str,
        alpha: float | ArrayLike,
        variant: str = VARIANT,
        fit_intercept: bool = True,
        unpenalised: tuple[str, ...] = (),
    ) -> Self:
        """Return settings in which "auto" leaves `lmbda` or `alpha` to the data."""
        choose = []
        for name, value in (("lmbda", lmbda), ("alpha", alpha)):
            if isinstance(value, str) and value == AUTO:
                choose.append(name)
            elif value is None or isinstance(value, str):
                raise InvalidInputError(f'`{name}` must be a number or "auto"; got {value!r}.')
        if "lmbda" in choose:
            lmbda = LMBDA
        if "alpha" in choose:
            alpha = ALPHA
        return cls(
            gamma,
            lmbda,  # type: ignore[arg-type]  # checked by the settings, as is the next one
            alpha,  # type: ignore[arg-type]
            variant,
            fit_intercept,
            tuple(choose),
            unpenalised=unpenalised,
        )

    @property
    def given_lmbda(self) -> float | str:
        """The trace decay as a parameter: a number, or "auto"."""
        if "lmbda" in self.choose:
            return AUTO
        return self.lmbda

    @property
    def given_alpha(self) -> float | tuple[float, ...] | str:
        """The ridge coefficient as a parameter: a number, one per feature, or "auto"."""
        if "alpha" in self.choose:
            return AUTO
        return self.alpha

    @property
    def shared_alpha(self) -> float:
        """The ridge coefficient that features share: `alpha`, or 1 if that is one per feature."""
        if isinstance(self.alpha, tuple):
            return 1.0
        return self.alpha

    def factors(self, n_features: int) -> NDArray[np.float64]:
        """Return the factor of the shared ridge coefficient for each feature, (n_features,).

        Raises InvalidInputError when `alpha` or `penalty` have another number.
        """
        factors = np.ones(n_features)
        if isinstance(self.alpha, tuple):
            factors *= check_ridge("alpha", self.alpha, n_features)
        if self.penalty is not None:
            factors *= check_ridge("penalty", self.penalty, n_features)
        return factors

    @property
    def cuts_are_ends(self) -> bool:
        """Whether the variant takes places where the data were cut off as ends, at least in part."""
        return boundary_share(self.variant, self.lmbda) < 1.0

    def ridge(self, n_features: int) -> NDArray[np.float64]:
        """Return the ridge coefficient of each feature, (n_features,); raises InvalidInputError on another number."""
        return self.shared_alpha * self.factors(n_features)

    def uncentred(self, weights: NDArray[np.float64], sign: float = 1.0) -> NDArray[np.float64]:
        """Return weights (…, n) of the features from those of the features less their `centre`; −1 for the reverse."""
        if self.centre is None:
            return weights
        intercept = weights[..., -1] - sign * (weights[..., :-1] @ np.array(self.centre))
        return np.concatenate([weights[..., :-1], intercept[..., np.newaxis]], axis=-1)

    def named(self, features: Sequence[str]) -> Self:
        """Return these settings for features of these names, with `unpenalised` in `penalty`."""
        missing = [name for name in self.unpenalised if name not in features]
        if missing:
            raise InvalidInputError(
                f"`unpenalised` must name features; {missing[0]!r} is not one of the {len(features)}. Correct the name."
            )
        if not self.unpenalised:
            return self
        penalty = tuple(float(name not in self.unpenalised) for name in features)
        return replace(self, penalty=penalty, unpenalised=())


class StepsParameters(TypedDict, total=False):
    """Parameters of :class:`lstd.HorizonLSTD` that are not settings."""

    low: float | None
    high: float | None
    penalty: str | ArrayLike
    age: str | int | None
    check: bool


@dataclass(frozen=True)
class Solver:
    """How a system is solved: the checked parameters `solver`, `tol` and `max_iter` of :class:`lstd.LSTD`."""

    solver: str = "auto"
    tol: float = TOL
    max_iter: int = MAX_ITER

    def __post_init__(self) -> None:
        check_choice("solver", self.solver, SOLVERS)
        check_real("tol", self.tol, 0.0, 1.0, open_low=True)
        check_integer("max_iter", self.max_iter, 1)

    @property
    def loose(self) -> Solver:
        """The solver for intervals."""
        factor = max(1.0, _LOOSE * min(1.0, self.tol / TOL))
        return replace(self, tol=min(0.1, self.tol * factor))

    def takes(self, X: FeaturesLike, n_features: int) -> bool:
        """Return whether so many features, of which X are some rows or parts, are fitted without the matrix."""
        if self.solver != "auto":
            return self.solver == "iterative"
        return sparse.issparse(X) and n_features > DENSE_UP_TO
