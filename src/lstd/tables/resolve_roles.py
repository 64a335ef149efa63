"""Roles of the columns of open tables: all features by name, and each column in one role."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lstd.data.roles import Roles
from lstd.data.table import Table
from lstd.errors import InvalidInputError

_INDEX = re.compile(r"__index_level_\d+__")  # the index of a data frame, which pandas wrote


def resolved(roles: Roles, tables: Sequence[Table]) -> Roles:
    """Return roles with all features by name.

    Raises InvalidInputError when a table lacks a column, or a column has two roles, or there are no features.
    """
    for table in tables:
        given = roles.features or ()
        table.require((*given, *roles.others, *roles.kept, *roles.excluded))
    if roles.features is None:
        roles = replace(roles, features=_all_others(roles, tables[0]))
        for table in tables:
            table.require(roles.next_features)
            _check_same_columns(tables[0], table)
    features = roles.features or ()
    for name, count in Counter([*features, *roles.others]).items():
        is_time_too = name == roles.time and name in features
        if count - is_time_too > 1:
            raise InvalidInputError(f"column {name!r} is named {count} times; give each one role.")
    if not features:
        raise InvalidInputError(f"{tables[0].file}: no column is left for features; name at least one.")
    return roles


def _all_others(roles: Roles, table: Table) -> tuple[str, ...]:
    """Return the columns of a table without a role, which are features."""
    taken = {*roles.others, *roles.excluded}
    names = [name for name in table.names if name not in taken and not _INDEX.fullmatch(name)]
    if roles.pattern is None:
        return tuple(names)
    successors = {roles.pattern.replace("*", name) for name in names}
    return tuple(name for name in names if name not in successors)


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
