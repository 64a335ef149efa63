"""Markov reward processes with exact values.

In: transition probabilities and rewards, or the sizes and seed of a random process.
Out: values, stationary distribution, limits of LSTD(λ), features of the states, and simulated transitions.
"""

from lstd.mrp.examples import BoyanChain, RandomMRP, RandomWalk, make_features
from lstd.mrp.process import MRP
from lstd.mrp.simulate import Trajectory

__all__ = ["MRP", "BoyanChain", "RandomMRP", "RandomWalk", "Trajectory", "make_features"]
