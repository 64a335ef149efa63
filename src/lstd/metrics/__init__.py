"""How good predictions are: against exact values, against returns, and how much of them the data decided.

Predictions, or estimators that predict, come in with exact values or rows of data. Errors, returns and tables of
predictions beside what was observed go out.
"""

from lstd.data.returns import ObservedReturns
from lstd.metrics.backtest import backtest
from lstd.metrics.backtest_result import Backtest
from lstd.metrics.calibration import Calibration, calibration
from lstd.metrics.effective_degrees_of_freedom import effective_degrees_of_freedom
from lstd.metrics.observed_returns import observed_returns
from lstd.metrics.value_error import value_error

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
