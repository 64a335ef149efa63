"""Figures 2 to 5, Tables 1 to 3 and the page of the paper's experiments, from a results folder."""

from __future__ import annotations

from lstd.experiments.report.page import write_report
from lstd.experiments.report.results import Results, load
from lstd.experiments.report.whole import write_all

__all__ = ["Results", "load", "write_all", "write_report"]
