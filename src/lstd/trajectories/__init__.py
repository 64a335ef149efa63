"""Rows of the data contract from people's own data: tables, Gymnasium environments, Minari datasets."""

from __future__ import annotations

from lstd.trajectories.trajectories import Trajectories

__all__ = ["Trajectories"]
