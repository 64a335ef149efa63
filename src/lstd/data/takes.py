"""What each method takes of the columns with one entry per row; any other is refused, with its remedy.

A method names the columns that it computes with. A column that is added to `lstd.data.rows.Columns` is refused by each
method until that method names it, so that none passes in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lstd.data.rows import ARGUMENTS
from lstd.errors import InvalidInputError, InvalidTypeError

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


# ------------------------------------------------------------ what a fit was given, and rows that lack it


class Lacking(NamedTuple):
    """What rows without a column would be taken for, if a model was fitted with it, and what to do."""

    consequence: str
    remedy: str


_OTHER_RETURNS = "predictions would be compared with returns of"
LACKING = {
    "importance_ratio": Lacking(
        f"{_OTHER_RETURNS} another policy",
        "Pass the ratios of these rows, or 1 if the policy of the model chose the actions.",
    ),
    "discount": Lacking(f"{_OTHER_RETURNS} other discounts", "Pass the discounts of these rows, or a single number."),
    "trace_coefficient": Lacking(
        f"{_OTHER_RETURNS} the policy that chose the actions",
        "Pass the coefficients of these rows, or 1 if the policy of the model chose the actions.",
    ),
    "weight": Lacking("each row would count alike", "Pass the weights of these rows, or 1 if they count alike."),
    "groups": Lacking(
        "episodes of one group would count as independent",
        "Pass the groups of these rows, or their episodes if these are independent.",
    ),
}
OF_RETURNS = ("importance_ratio", "discount", "trace_coefficient")  # which decide what a return is
OF_FIT = tuple(LACKING)  # the same, and how much rows count, and with what


def check_not_lacking(fitted: Collection[str], given: Collection[str], needed: Sequence[str], remedy: str = "") -> None:
    """Refuse rows that lack a column which a model was fitted with, of those `needed` to compare them with it.

    Parameters
    ----------
    fitted : collection of str
        Columns of the fit that made a difference.
    given : collection of str
        Columns of the rows.
    needed : sequence of str
    remedy : str, optional
        What to do in place of passing an argument.
    """
    for name in needed:
        if name in fitted and name not in given:
            consequence, usual_remedy = LACKING[name]
            raise InvalidInputError(
                f"`{name}` must be given for a model that was fitted with it: without it, {consequence}. "
                f"{remedy or usual_remedy}"
            )


def check_one_stream(n_episodes: int, successors: bool, given: Collection[str]) -> None:
    """Refuse to take rows as one continuing stream if a model was fitted to anything else.

    Parameters
    ----------
    n_episodes : int
        Episodes of the fit.
    successors : bool
        Whether the fit was given `X_next`.
    given : collection of str
        Columns of the rows.
    """
    if not {"episode", "terminated", "X_next"}.isdisjoint(given):
        return
    if n_episodes > 1:
        was = f"to {n_episodes} episodes: without them, the rows would be taken as one stream"
    elif successors:
        was = "with `X_next`: pass `X_next`, or `terminated` with all False if the rows are one continuing stream"
    else:
        return
    raise InvalidInputError(
        f"`episode` or `terminated` must be given for a model that was fitted {was}. In a Pipeline or search, "
        "route them with set_score_request."
    )


def names_given(columns: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the columns that are not None."""
    return frozenset(name for name, values in columns.items() if values is not None)
