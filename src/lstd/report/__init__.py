"""Figures and pages of a fitted model, and what other pages share with it; with Matplotlib."""

from __future__ import annotations

from lstd.report.fit_figures import plot_calibration, plot_predictions
from lstd.report.fit_report import write_fit_report
from lstd.report.fit_settings import plot_degrees_of_freedom, plot_grid

__all__ = ["plot_calibration", "plot_degrees_of_freedom", "plot_grid", "plot_predictions", "write_fit_report"]
