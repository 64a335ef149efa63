"""The roles of the columns of a table or data frame: which are features, rewards, ids, flags and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lstd.data.doubts import assumed_cut
from lstd.data.rows import COLUMNS
from lstd.errors import InvalidInputError

NAMED = ("episode", "terminated", "truncated", "groups", *COLUMNS, "time")  # roles of one column each


@dataclass(frozen=True)
class Roles:
    """The roles of the columns of a table or data frame."""

    features: tuple[str, ...] | None  # None: all that have no other role, but for the index that pandas wrote
    rewards: tuple[str, ...] = ()
    episode: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    groups: str | None = None
    transitions: Mapping[str, str] = field(default_factory=dict)  # columns of numbers, by argument
    next_features: tuple[str, ...] = ()  # in the order of `features`; or a pattern, where * stands for their names
    time: str | None = None  # increases within each episode; may be a feature too
    kept: tuple[str, ...] = ()  # are copied to the output; may have another role too
    excluded: tuple[str, ...] = ()
    prepared: bool = False  # whether errors name the options of the shell that prepare features
    no_ends: bool = False  # whether no end was seen, in place of a column that says which episodes terminated
    spans: bool = False  # whether rows are intervals, each of which is a transition

    def __post_init__(self) -> None:
        if not self.next_features:
            return
        pattern = self.pattern
        if self.features is None:
            if pattern is None:
                raise InvalidInputError(
                    "`next_features` must be a pattern such as 'next_*' if no features are named, so that each feature "
                    "can be matched to its successor."
                )
            return
        if pattern is not None:
            object.__setattr__(self, "next_features", tuple(pattern.replace("*", name) for name in self.features))
        if len(self.next_features) != len(self.features):
            raise InvalidInputError(
                f"`next_features` must name one column per feature, {len(self.features)}; got "
                f"{len(self.next_features)}."
            )

    @classmethod
    def of(
        cls,
        features: tuple[str, ...] | None,
        rewards: tuple[str, ...],
        named: Mapping[str, str | Literal[False] | None],
        **others: Any,
    ) -> Roles:
        """Return the roles of a table, with the columns of `NAMED` by their roles, of which some may be None.

        False in place of the column `terminated` says that no end was seen.

        Raises InvalidInputError when `truncated` comes without `terminated`.
        """
        if named.get("truncated") is not None and named.get("terminated") is None:
            raise InvalidInputError(
                "`truncated` must come with `terminated`: an episode that is not flagged as truncated may have "
                "terminated or not. Name both columns, or give `terminated=False` if no end was seen."
            )
        if named.get("terminated") is False:
            others["no_ends"] = True
        numbers: dict[str, str] = {}
        single: dict[str, Any] = {}
        for role, column in named.items():
            if column is None or column is False:
                continue
            if role in COLUMNS:
                numbers[role] = column
            else:
                single[role] = column
        return cls(features, rewards, transitions=numbers, **single, **others)

    @property
    def pattern(self) -> str | None:
        """The pattern of the names of successors, if that is what `next_features` are; * stands for a feature."""
        if len(self.next_features) == 1 and "*" in self.next_features[0]:
            return self.next_features[0]
        return None

    @property
    def are_transitions(self) -> bool:
        """Whether every row is a full transition, as it has its successor or is an interval."""
        return self.spans or bool(self.next_features)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of roles that have one, by role."""
        found = {}
        for role in NAMED:
            column = self.transitions.get(role, getattr(self, role, None))
            if column is not None:
                found[role] = column
        return found

    @property
    def doubt_of_ends(self) -> str:
        """Ask whether ends were seen, if nothing says which episodes terminated; else empty."""
        if self.episode is None or self.terminated is not None or self.no_ends or self.are_transitions:
            return ""
        return assumed_cut("No column says which episodes terminated")

    @property
    def others(self) -> tuple[str, ...]:
        """Columns with a role other than that of a feature."""
        successors: tuple[str, ...] = ()
        if self.pattern is None:
            successors = self.next_features
        return (*self.rewards, *self.columns.values(), *successors)

    @property
    def numbers(self) -> frozenset[str]:
        """The columns of numbers that have no other role, with all features by name."""
        transitions = set(self.transitions.values())
        texts = {*self.kept, *self.columns.values()} - transitions
        features = self.features or ()
        numbers = {*features, *self.rewards, *self.next_features, *transitions}
        return frozenset(numbers - texts)
