"""Trajectories: checked rows from other libraries' data.

In: a data frame, a log of events, a Gymnasium environment and a policy, a Minari dataset, or arrays.
Out: :class:`Trajectories`, whose `to_arrays` gives the arguments of ``LSTD.fit``.
"""

from __future__ import annotations

from lstd.trajectories.trajectories import Trajectories

__all__ = ["Trajectories"]
