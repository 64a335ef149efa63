"""A reduction in a tree whose shape depends on the number of leaves only, not on the order in which they arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Generic, TypeVar

T = TypeVar("T")


class Tree(Generic[T]):
    """Merge neighbours as soon as both are present: leaves 0 and 1, 2 and 3, …; then the pairs (0, 1) and (2, 3), ….

    If leaves arrive nearly in order, about log2 of their number are held at a time.

    Examples
    --------
    >>> tree = Tree(lambda one, two: f"({one}{two})")
    >>> for place in (4, 1, 0, 2, 3):
    ...     tree.add(place, str(place))
    >>> tree.result()
    '(((01)(23))4)'
    """

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge = merge
        self._nodes: dict[tuple[int, int], T] = {}  # of 2^level leaves, by (level, place among those of its level)

    def __len__(self) -> int:
        """Number of nodes that are held."""
        return len(self._nodes)

    def add(self, place: int, leaf: T) -> None:
        """Add the leaf of a place."""
        level, node = 0, leaf
        while (level, place ^ 1) in self._nodes:
            other = self._nodes.pop((level, place ^ 1))
            node = self._merge(other, node) if place & 1 else self._merge(node, other)
            level, place = level + 1, place >> 1
        self._nodes[level, place] = node

    def result(self) -> T | None:
        """Merge all leaves; None without leaves."""
        in_order = sorted(self._nodes, key=lambda node: node[1] << node[0], reverse=True)
        nodes = [self._nodes[node] for node in in_order]
        return reduce(lambda later, earlier: self._merge(earlier, later), nodes) if nodes else None

    def clear(self) -> None:
        """Drop all nodes."""
        self._nodes.clear()
