"""The paper's experiments: sweeps over (λ, α), timing, theory, and all of them in one command.

A problem and features by name, or a model of your own, come in; errors over the grid (`run_sweep`), or the figures,
tables and page of the whole paper (`lstd.experiments.reproduce.run.reproduce`), go out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd.experiments.sweep import run_sweep

__all__ = ["run_sweep"]


def __getattr__(name: str) -> Any:  # processes that draw need no kernels
    if name in __all__:
        from lstd.experiments import sweep

        return sweep.run_sweep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
