"""A fitted model as a table: coefficients with standard errors and intervals, and what decides them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np

from lstd.estimators.model import Model
from lstd.estimators.model_parts import two_digits
from lstd.statistics.intervals import FEW, Interval
from lstd.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """A fitted model as a table: plain text by `str`, HTML in notebooks; n features, m rewards.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> summary = LSTD(gamma=0.5, fit_intercept=False).fit(X, y, terminated=done).summary()
    >>> summary.names, summary.coefficients[:, 0].round(2), summary.ridge_shares.round(2)
    (('x0', 'x1'), array([1.43, 0.95]), array([0.05, 0.05]))
    """

    model: Model
    estimator: str
    level: float = 0.95

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients: the features, and ``(intercept)`` last if there is one."""
        return (*self.model.feature_names, *(["(intercept)"] if self.model.settings.fit_intercept else []))

    @property
    def coefficients(self) -> Array:
        """Coefficients, shape (n, m), or (n + 1, m) with an intercept."""
        return self.model.solution.weights

    @cached_property
    def interval(self) -> Interval | None:
        """Standard errors and intervals of the coefficients, arrays of the same shape; None if the model has none."""
        return None if self.model.no_intervals else coefficient_interval(self.model, self.level)

    @cached_property
    def ridge_shares(self) -> Array:
        """Share of each coefficient that the ridge term decides and not the data, shape (n,).

        One less :func:`lstd.metrics.effective_degrees_of_freedom`.
        """
        return 1.0 - self.model.degrees_of_freedom

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of the returns that was observed; None if it is not known.

        That of held-out returns for :class:`lstd.LSTDCV`, else :attr:`lstd.LSTDStatistics.observed_share`.
        """
        chosen = self.model.selection
        return self.model.statistics.observed_share if chosen is None else chosen.observed_share

    def table(self, reward: int = 0, *, ridge: bool = True) -> list[list[str]]:
        """Return the lines of the table of one reward, the heading first; the last column marks little data."""
        low, found, marks = 0.5 - 0.5 * self.level, self.interval, [""] * len(self.names)
        columns = [[self.model.reward_names[reward], *self.names]]
        columns.append(["coef", *(f"{value:.6g}" for value in self.coefficients[:, reward])])
        if found is not None:
            columns.append(["std err", *map(two_digits, found.standard_error[:, reward])])
            for quantile, bounds in ((low, found.lower), (1.0 - low, found.upper)):
                columns.append([f"{quantile:.4g}", *(f"{bound:.4g}" for bound in bounds[:, reward])])
            marks = np.where(found.little_data[:, reward], "*", "").tolist()
        if ridge:
            columns.append(["ridge", *map(_percent, self.ridge_shares), *["0 %"] * self.model.settings.fit_intercept])
        return [[*line] for line in zip(*columns, ["", *marks], strict=True)]

    @property
    def notes(self) -> Iterator[str]:
        """Explain what the tables have."""
        if self.interval is None:
            yield f"No intervals. {self.model.no_intervals}"
        elif self.interval.little_data.any():
            yield f"* little data: fewer than {FEW:g} degrees of freedom, or none at all"
        yield from self.model.doubts
        yield "ridge: share of the coefficient that the ridge term decides, not the data"

    def _facts(self) -> dict[str, str]:
        model, s, share = self.model, self.model.statistics, self.observed_share
        unknown = "unknown; see lstd.metrics.observed_returns"
        chosen = "" if model.selection is None else ", chosen"
        return {
            "gamma": f"{model.settings.gamma:g}",
            "lmbda": f"{model.settings.lmbda:g}{chosen}",
            "alpha": ridge_text(model, chosen),
            "variant": model.settings.variant,
            "transitions": str(s.n_transitions),
            "episodes": str(s.n_episodes),
            **({} if s.n_groups is None else {"groups": str(s.n_groups)}),
            "condition number": f"{model.solution.condition_number:.2g}" + ", singular" * model.solution.singular,
            "returns observed": unknown if share is None else _percent(share),
            "decided by ridge term": _percent(self.ridge_shares.mean()),
            **({} if self.interval is None else {"blocks for intervals": str(len(model.influence.shares))}),
        }

    def __str__(self) -> str:
        facts = self._facts()
        width = max(map(len, facts)) + 2
        lines = [self.estimator, *(f"{name:<{width}}{value}" for name, value in facts.items())]
        for reward in range(len(self.model.reward_names)):
            lines += ["", *aligned(self.table(reward))]
        return "\n".join([*lines, "", *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in self._facts().items())
        tables = []
        for reward in range(len(self.model.reward_names)):
            (head, *rows) = ([escape(cell) for cell in line] for line in self.table(reward))
            body = "".join(f"<tr><th>{row[0]}</th><td>{'</td><td>'.join(row[1:])}</td></tr>" for row in rows)
            heads = f"<thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead>"
            tables.append(f"<table>{heads}<tbody>{body}</tbody></table>")
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{escape(self.estimator)}</caption>"
        return f"<div><table>{caption}<tbody>{facts}</tbody></table>{''.join(tables)}{notes}</div>"


def coefficient_interval(model: Model, level: float) -> Interval:
    """Compute intervals of the coefficients, arrays of shape (n, m); with an intercept, its own come last."""
    found = model.influence.of_weights(model.solution.weights, level)
    found.little_data[: model.n_features] |= model.unseen[:, np.newaxis]
    return found


def ridge_text(model: Model, note: str = "") -> str:
    """Return α with a note, the range of the ridge coefficients if they differ from it, and features that have none."""
    ridge = model.ridge[: model.n_features]
    some = ridge[ridge > 0.0] if ridge.any() else ridge
    text = f"{some.min():g}" if some.min() == some.max() else f"{some.min():g} to {some.max():g}"
    free = [
        name for name, value in zip(model.feature_names, ridge, strict=True) if value == 0.0 and len(some) < len(ridge)
    ]
    text = f"{text} (0 for {', '.join(free)})" if free else text
    alpha = "" if isinstance(model.settings.alpha, tuple) else f"{model.settings.alpha:g}"
    return text + note if alpha in ("", text) else f"{alpha}{note}; ridge {text}"


def aligned(table: list[list[str]]) -> list[str]:
    """Return the lines of a table in columns: names to the left, numbers to the right."""
    first, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    return [
        "  ".join([f"{line[0]:<{first}}", *(f"{cell:>{w}}" for cell, w in zip(line[1:], widths, strict=True))]).rstrip()
        for line in table
    ]


def _percent(share: float) -> str:
    return f"{round(100.0 * share)} %"
