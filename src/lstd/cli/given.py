"""The options that each command takes, with the types of their values; the order is that of the help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstd.data.variants import VARIANT

# Options of `lstd fit`, in the order in which they are checked
NEED_HORIZON = ("no_check", "low", "high", "penalty", "age")
NOT_WITH_HORIZON = ("unpenalised", "independent", "categories", "impute", "variant")


@dataclass(frozen=True, kw_only=True)
class StepsOptions:
    """What `lstd steps` is given."""

    data: list[str]
    episode: str
    time: str
    step: str | float
    until: str | float
    out: str
    amount: tuple[str, ...]
    terminated: str | None
    observed_until: str | None
    ended: str | None
    start: str | float | None
    first: str
    window: int | None
    mean_at: str | float | None
    age: str | None
    force: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What `lstd fit` is given."""

    data: list[str]
    reward: tuple[str, ...]
    gamma: float
    out: str
    features: tuple[str, ...]
    all_others: bool
    exclude: tuple[str, ...]
    episode: str | None
    terminated: str | None
    no_terminated: bool
    truncated: str | None
    groups: str | None
    discount: str | None
    importance_ratio: str | None
    trace_coefficient: str | None
    weight: str | None
    next_features: tuple[str, ...]
    categories: tuple[str, ...]
    impute: bool
    time: str | None
    sort: bool
    horizon: int | None
    low: float | None
    high: float | None
    penalty: str | None
    age: str | None
    no_check: bool
    lmbda: float | str
    alpha: float | str
    unpenalised: tuple[str, ...]
    variant: str
    no_intercept: bool
    independent: bool
    jobs: int | None
    memory: int  # bytes
    report: str | None
    force: bool
    json: bool
    quiet: bool

    def first_given(self, names: Sequence[str]) -> str | None:
        """Return the first of some options that is given, if any."""
        for name in names:
            value = getattr(self, name)
            if name == "variant":
                is_given = value != VARIANT
            else:
                is_given = value is not None and value is not False and value != ()  # zero is a value
            if is_given:
                return name
        return None


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """What `lstd predict` is given."""

    model: str
    data: list[str]
    id: tuple[str, ...]
    horizon: list[int | tuple[int, int]] | None
    interval: float | None
    of: str
    contributions: bool
    out: str | None
    force: bool
    json: bool
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """What `lstd score` is given; a column that is None is that of the fit."""

    model: str
    data: list[str]
    reward: tuple[str, ...]
    episode: str | None
    terminated: str | None
    truncated: str | None
    discount: str | None
    importance_ratio: str | None
    trace_coefficient: str | None
    weight: str | None
    next_features: list[str] | None  # lists of names, not yet split: one that is empty stands for no columns
    time: str | None
    sort: bool
    backtest: list[str | float] | None
    horizon: list[int] | None
    unobserved: str
    tolerance: float
    json: bool
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """What `lstd inspect` is given."""

    model: str
    json: bool


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """What `lstd reproduce` is given."""

    problem: str
    runs: str
    out: str
    jobs: int | None
    force: bool
    json: bool
    quiet: bool
