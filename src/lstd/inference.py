"""What is known of a prediction: its interval, its difference to that of another model, and checks of the model."""

from lstd.estimators.check_results import BiasCheck, MisfitCheck
from lstd.estimators.contrast import Difference, difference
from lstd.estimators.intervals import Interval
from lstd.estimators.summary import Summary

__all__ = ["BiasCheck", "Difference", "Interval", "MisfitCheck", "Summary", "difference"]
