"""The paper's experiments: sweeps over (λ, α), timing, theory, and all of them in one command.

A problem and features by name, or a model of your own, come in; errors over a grid, such as the paper's `LMBDAS` and
`ALPHAS`, or the figures, tables and page of the whole paper, go out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd.experiments.protocol import ALPHAS, LMBDAS, STEP_SIZES
    from lstd.experiments.sweep import run_sweep

__all__ = ["ALPHAS", "LMBDAS", "STEP_SIZES", "run_sweep"]


def __getattr__(name: str) -> Any:  # processes that draw need no kernels
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lstd.experiments import protocol

    if name != "run_sweep":
        return getattr(protocol, name)
    from lstd.experiments import sweep

    return sweep.run_sweep
