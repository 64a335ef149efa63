"""Markov reward processes with exact values, features of their states, and simulation."""

from lstd.mrp.classic import BoyanChain, RandomWalk
from lstd.mrp.features import make_features
from lstd.mrp.model import MRP
from lstd.mrp.random import RandomMRP
from lstd.mrp.simulate import Trajectory

__all__ = ["MRP", "BoyanChain", "RandomMRP", "RandomWalk", "Trajectory", "make_features"]
