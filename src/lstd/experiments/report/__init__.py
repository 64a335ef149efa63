"""Figures, tables and the page of the paper's experiments.

The errors of finished cells, the timings and the theory come in; files of the results folder, as names and bytes, go
out. Nothing is read from or written to the disk here.
"""

from __future__ import annotations

from lstd.experiments.report.composing import compose
from lstd.experiments.report.results import Results, gather

__all__ = ["Results", "compose", "gather"]
