"""What statistics are sums of: names of the features, whether the last is the intercept, labels, own discounts."""

from __future__ import annotations

from dataclasses import dataclass

from lstd.errors import InvalidInputError


@dataclass(frozen=True)
class About:
    """Description of summed data; None means unknown, and matches anything."""

    feature_names: tuple[str, ...] | None = None  # without the column of ones
    intercept: bool | None = None  # whether the last feature is the column of ones
    labels: frozenset[str] = frozenset()
    own_discounts: bool = False  # whether some row has another discount than `gamma`

    def check_intercept(self, other: About) -> None:
        """Raise InvalidInputError if one has an intercept and the other has none."""
        if None not in (self.intercept, other.intercept) and self.intercept != other.intercept:
            raise InvalidInputError(
                "Statistics merge only if all have an intercept or none has; one has a column of ones as its last "
                "feature, the other does not. Sum both with the same `fit_intercept`."
            )

    def merged(self, other: About) -> About:
        """Return the description of both; raises InvalidInputError when they do not fit, or share a label."""
        if self == other and not self.labels:
            return self
        self.check_intercept(other)
        names, others = self.feature_names, other.feature_names
        if names is not None and others is not None and names != others:
            place = next((i for i, (a, b) in enumerate(zip(names, others, strict=False)) if a != b), 0)
            raise InvalidInputError(
                "Statistics merge only with the same features in the same order; feature "
                f"{place} is {names[place]!r} in one and {others[place]!r} in the other. Select the columns by name."
            )
        if twice := self.labels & other.labels:
            raise InvalidInputError(
                f"Statistics merge only if they share no data; both have the label {min(twice)!r}. Leave out the "
                "second one, or give different data different labels."
            )
        intercept = other.intercept if self.intercept is None else self.intercept
        own_discounts = self.own_discounts or other.own_discounts
        return About(others if names is None else names, intercept, self.labels | other.labels, own_discounts)


UNKNOWN = About()
