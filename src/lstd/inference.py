"""What is known of a prediction: its interval, and the checks of the model behind it."""

from lstd.estimators.check_results import BiasCheck, MisfitCheck
from lstd.estimators.intervals import Interval

__all__ = ["BiasCheck", "Interval", "MisfitCheck"]
