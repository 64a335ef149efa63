"""What each method takes of the columns with one entry per row; any other is refused, with its remedy.

A method names the columns that it computes with. A column that is added to `lstd.data.rows.Columns` is refused by each
method until that method names it, so that none passes in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lstd.data.rows import ARGUMENTS
from lstd.errors import InvalidTypeError

LSTD_COLUMNS = (
    "episode",
    "terminated",
    "X_next",
    "discount",
    "importance_ratio",
    "trace_coefficient",
    "weight",
    "groups",
)

USE_WEIGHT = "Weights of rows are given as `weight`."
GIVE_HORIZON_ROWS = "Append to each episode that was cut off a horizon row: the features of its last state."
_REMEDIES = {
    "sample_weight": USE_WEIGHT,
    "time": "Rows must be in time order; make a feature of the time, if returns depend on it.",
    "truncated": "The last row of an episode that did not terminate is its horizon row: give `episode`.",
    "actions": "`lstd.ope.LSTDQ` fits action values.",
    "behavior_probability": "`lstd.ope` computes the importance ratios of a policy from it.",
}


@dataclass(frozen=True)
class Takes:
    """The columns that a method takes, with what to do in place of others."""

    method: str  # its name, for messages
    columns: tuple[str, ...]
    remedies: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = "Leave it out, or correct its name."

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse columns that the method does not take; None counts as not given.

        Raises
        ------
        InvalidTypeError
            With the first such column, and what to do instead.
        """
        for name, values in given.items():
            if name in self.columns or (values is None and name in ARGUMENTS):
                continue
            remedy = self.remedies.get(name) or _REMEDIES.get(name, self.otherwise)
            raise InvalidTypeError(f"`{name}` must not be given: it is no argument of {self.method}. {remedy}")
