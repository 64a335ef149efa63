"""The roles of the columns of a table: which are features, rewards, ids, flags and numbers of transitions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lstd.data.rows import COLUMNS
from lstd.errors import InvalidInputError

if TYPE_CHECKING:
    from lstd.tables.table import Table

_INDEX = re.compile(r"__index_level_\d+__")
NAMED = ("episode", "terminated", "truncated", "groups", *COLUMNS, "time")  # roles of one column each


@dataclass(frozen=True)
class Roles:
    """The roles of the columns of a table."""

    features: tuple[str, ...] | None  # None: all that have no other role, but for the index that pandas wrote
    rewards: tuple[str, ...] = ()
    episode: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    groups: str | None = None
    transitions: Mapping[str, str] = field(default_factory=dict)  # columns of numbers, by argument of `COLUMNS`
    next_features: tuple[str, ...] = ()  # in the order of `features`; or a pattern, where * stands for their names
    time: str | None = None  # increases within each episode; may be a feature too
    kept: tuple[str, ...] = ()  # are copied to the output; may have another role too
    excluded: tuple[str, ...] = ()
    prepared: bool = False  # whether errors name the options of the shell that prepare features

    def __post_init__(self) -> None:
        if self.truncated is not None and self.terminated is None:
            raise InvalidInputError(
                "`truncated` must come with `terminated`: an episode that is not flagged as truncated may have "
                "terminated or not. Name both columns."
            )
        if self.features is None or not self.next_features:
            if self.next_features and self._pattern is None:
                raise InvalidInputError(
                    "`next_features` must be a pattern such as 'next_*' if no features are named, so that each feature "
                    "can be matched to its successor."
                )
            return
        if (pattern := self._pattern) is not None:
            object.__setattr__(self, "next_features", tuple(pattern.replace("*", name) for name in self.features))
        if len(self.next_features) != len(self.features):
            raise InvalidInputError(
                f"`next_features` must name one column per feature, {len(self.features)}; got "
                f"{len(self.next_features)}."
            )

    @property
    def _pattern(self) -> str | None:
        return self.next_features[0] if len(self.next_features) == 1 and "*" in self.next_features[0] else None

    @classmethod
    def of(
        cls, features: tuple[str, ...] | None, rewards: tuple[str, ...], named: Mapping[str, str | None], **others: Any
    ) -> Roles:  # fmt: skip
        """Return roles with the columns of `NAMED` by their roles, of which some may be None."""
        numbers: dict[str, str] = {}
        for role, column in named.items():
            if column is not None:
                (numbers if role in COLUMNS else others)[role] = column
        return cls(features, rewards, transitions=numbers, **others)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of roles that have one, by role."""
        found = {}
        for role in NAMED:
            if (column := self.transitions.get(role, getattr(self, role, None))) is not None:
                found[role] = column
        return found

    @property
    def others(self) -> tuple[str, ...]:
        """Columns with a role other than that of a feature."""
        return (*self.rewards, *self.columns.values(), *(() if self._pattern is not None else self.next_features))

    @property
    def numbers(self) -> frozenset[str]:
        """The columns of numbers that have no other role, with all features by name."""
        texts = {*self.kept, *self.columns.values()} - {*self.transitions.values()}
        return frozenset(
            {*(self.features or ()), *self.rewards, *self.next_features, *self.transitions.values()} - texts
        )

    def resolved(self, tables: Sequence[Table]) -> Roles:
        """Return these roles with all features by name.

        Raises InvalidInputError when a file lacks a column, or a column has two roles, or there are no features.
        """
        roles = self
        for table in tables:
            table.require((*(self.features or ()), *self.others, *self.kept, *self.excluded))
        if self.features is None:
            taken = {*self.others, *self.excluded}
            names = [name for name in tables[0].names if name not in taken and not _INDEX.fullmatch(name)]
            if (pattern := self._pattern) is not None:
                successors = {pattern.replace("*", name) for name in names}
                names = [name for name in names if name not in successors]
            roles = replace(self, features=tuple(names))
            for table in tables:
                table.require(roles.next_features)
                _check_same_columns(tables[0], table)
        for name, count in Counter([*(roles.features or ()), *roles.others]).items():
            if count - (name == roles.time and name in (roles.features or ())) > 1:
                raise InvalidInputError(f"column {name!r} is named {count} times; give each one role.")
        if not roles.features:
            raise InvalidInputError(f"{tables[0].file}: no column is left for features; name at least one.")
        return roles


def _check_same_columns(first: Table, table: Table) -> None:
    """Refuse columns that only one table has; the index of a data frame counts only if a role names it."""
    if table is not first and table.names is first.names:
        return
    table.require([name for name in first.names if not _INDEX.fullmatch(name)])
    known = {*first.names}
    for name in table.names:
        if name not in known and not _INDEX.fullmatch(name):
            raise InvalidInputError(
                f"{table.file}: column {name!r} is not in {first.file}; give files with the same columns, or name the "
                "features."
            )
