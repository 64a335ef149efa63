"""Page and figures of a fitted model.

A fitted model and rows to compare it with come in; an HTML page or Matplotlib figures go out. The frame of every page
and the style of every figure are here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstd.report.grid_figure import plot_grid, plot_sweep
    from lstd.report.model_figures import (
        plot_action_calibration,
        plot_blocks,
        plot_coefficients,
        plot_contributions,
        plot_policy_diagnostics,
        plot_policy_values,
    )
    from lstd.report.model_page import write_fit_report
    from lstd.report.row_figures import plot_calibration, plot_curve, plot_predictions, plot_spread

__all__ = [
    "plot_action_calibration",
    "plot_blocks",
    "plot_calibration",
    "plot_coefficients",
    "plot_contributions",
    "plot_curve",
    "plot_grid",
    "plot_policy_diagnostics",
    "plot_policy_values",
    "plot_predictions",
    "plot_spread",
    "plot_sweep",
    "write_fit_report",
]


def __getattr__(name: str) -> Any:  # other pages need neither scikit-learn nor Matplotlib
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lstd.report import grid_figure, model_figures, model_page, row_figures

    modules = (grid_figure, model_figures, model_page, row_figures)
    return next(getattr(module, name) for module in modules if hasattr(module, name))
