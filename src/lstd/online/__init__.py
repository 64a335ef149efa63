"""Estimators that learn from one transition at a time: exact least squares, and TD at less time per transition.

In: features of a row and of its successor, reward, and the end of the episode if there is one.
Out: weights and predictions after every transition.
"""

from __future__ import annotations

from lstd.online.recursive_lstd import RecursiveLSTD
from lstd.online.td import TD, TrueOnlineTD

__all__ = ["TD", "RecursiveLSTD", "TrueOnlineTD"]
