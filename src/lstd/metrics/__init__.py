"""How good predictions are: against exact values, against returns, and how much of them the data decided.

Predictions, or estimators that predict, come in with exact values or rows of data. Errors, returns and tables of
predictions beside what was observed go out.
"""

from lstd.data.returns import ObservedReturns
from lstd.metrics.backtest import Backtest, backtest
from lstd.metrics.calibration import Calibration, calibration
from lstd.metrics.measures import effective_degrees_of_freedom, observed_returns, value_error

__all__ = [
    "Backtest",
    "Calibration",
    "ObservedReturns",
    "backtest",
    "calibration",
    "effective_degrees_of_freedom",
    "observed_returns",
    "value_error",
]
