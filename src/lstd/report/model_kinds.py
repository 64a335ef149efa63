"""Which kinds of object a figure or page takes; what is of another kind is refused, with what to call instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from lstd.data.arguments import shown
from lstd.errors import InvalidInputError
from lstd.estimators.base import Predictor
from lstd.estimators.horizon_lstd import HorizonLSTD
from lstd.estimators.return_spread import ReturnSpread
from lstd.online.one_transition import OnlinePredictor
from lstd.ope.lstdq import LSTDQ
from lstd.ope.policy_value import PolicyValue

OF_RETURNS = (Predictor,)  # what most figures take
OF_STEPS = (HorizonLSTD,)
OF_PAGES = (Predictor, HorizonLSTD)


@runtime_checkable
class ChosenFromGrid(Protocol):
    """An estimator that knows the errors over a grid of (λ, α), and the pair that was chosen from it."""

    cv_results_: Mapping[str, Any]
    lmbda_: float
    alpha_: float


_NAMES: dict[type, str] = {
    Predictor: "a fitted LSTD or LSTDCV",
    HorizonLSTD: "a fitted HorizonLSTD",
    ReturnSpread: "a fitted ReturnSpread",
    PolicyValue: "a PolicyValue",
}
_REMEDIES: dict[type, str] = {
    Predictor: "For an LSTD or LSTDCV, use `plot_predictions`, `plot_coefficients` or `write_fit_report`.",
    HorizonLSTD: "For a HorizonLSTD, use `plot_curve` or `write_fit_report`.",
    LSTDQ: "For an LSTDQ, use `plot_policy_values` or `plot_policy_diagnostics` with its `policy_value`.",
    ReturnSpread: "For a ReturnSpread, use `plot_spread`.",
    PolicyValue: "For a PolicyValue, use `plot_policy_values` or `plot_policy_diagnostics`.",
    OnlinePredictor: "For a model of a stream, fit an LSTD to the same rows.",
}


def check_kind(name: str, value: object, kinds: tuple[type, ...]) -> None:
    """Raise InvalidInputError if an argument is of none of the kinds that a figure takes."""
    if isinstance(value, kinds):
        return
    rule = " or ".join(_NAMES[kind] for kind in kinds)
    remedy = f"Pass {rule}."
    for kind, other in _REMEDIES.items():
        if isinstance(value, kind):
            remedy = other
    raise InvalidInputError(f"`{name}` must be {rule}; got {shown(value)}. {remedy}")
