"""Least-squares temporal-difference prediction."""

__version__ = "0.1.0.dev0"
