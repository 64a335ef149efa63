"""Estimators that learn from one transition at a time.

:class:`RecursiveLSTD` has the least-squares weights after every transition; :class:`TD` and :class:`TrueOnlineTD`
follow the gradient, for less time per transition and less precise weights. All have the same ``update`` and
``predict``.
"""

from __future__ import annotations

from lstd.online.recursive_lstd import RecursiveLSTD
from lstd.online.td import TD, TrueOnlineTD

__all__ = ["TD", "RecursiveLSTD", "TrueOnlineTD"]
