"""Results of inference: intervals of predictions, differences between two models, checks, the spread of one return.

The names gather here for import. The sandwich covariance is computed in `lstd.statistics.intervals`, intervals in
`lstd.statistics.intervals`, the rest in `lstd.estimators`.
"""

from lstd.estimators.compare import Difference, difference
from lstd.estimators.contributions import Contributions
from lstd.estimators.model_parts import BiasCheck, MisfitCheck
from lstd.estimators.return_spread import ReturnInterval, ReturnSpread
from lstd.estimators.summary import Summary
from lstd.statistics.intervals import Interval

__all__ = [
    "BiasCheck",
    "Contributions",
    "Difference",
    "Interval",
    "MisfitCheck",
    "ReturnInterval",
    "ReturnSpread",
    "Summary",
    "difference",
]
