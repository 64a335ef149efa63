"""Fixtures of tests that evaluate policies."""

from few_trees import few_trees, real_trees

__all__ = ["few_trees", "real_trees"]
