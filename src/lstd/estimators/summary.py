"""The one description of a fitted model, as text, HTML and JSON: its coefficients, and what decides them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from lstd.data.arguments import listed
from lstd.data.doubts import unused_rewards
from lstd.estimators.contributions import aligned
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.linear import Linear
from lstd.estimators.model import Model
from lstd.estimators.model_parts import two_digits
from lstd.statistics.intervals import FEW, Interval
from lstd.statistics.solve import sure_digits
from lstd.types import Array

_FEW_DIGITS = 6  # of the weights, below which something should be done
_NO_BACKTEST = (
    "not run. Checks look at the rows of the fit, and cannot know whether later steps are alike, such as those of "
    "another season: `lstd.metrics.backtest` compares predictions with what came, at several cuts"
)
_RIDGE_NOTE = "ridge: share of the coefficient that the ridge term decides, not the data"
_SETTINGS = ("gamma", "lmbda", "alpha", "variant", "fit_intercept")
_CHOICE = ("lmbda", "alpha", "score", "observed_share", "arbitrary_scores", "at_end")


class Description:
    """What a model is, as plain text by `str` and as HTML in notebooks: facts by name, and tables of each reward."""

    title: str

    @property
    def facts(self) -> dict[str, str]:
        """What describes the model, by name."""
        raise NotImplementedError

    @property
    def tables(self) -> list[list[list[str]]]:
        """Tables of coefficients, each of lines with the heading first."""
        raise NotImplementedError

    @property
    def notes(self) -> Iterator[str]:
        """Explain what the tables have."""
        yield from ()

    def text(self, **more: str) -> str:
        """Return the title and the facts, and `more` of them, line by line."""
        facts = self.facts | more
        width = max(map(len, facts)) + 2
        return "\n".join([self.title, *(f"{name:<{width}}{value}" for name, value in facts.items())])

    def __str__(self) -> str:
        tables = [line for table in self.tables for line in ("", *aligned(table))]
        return "\n".join([self.text(), *tables, "", *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in self.facts.items())
        tables = []
        for table in self.tables:
            (head, *rows) = ([escape(cell) for cell in line] for line in table)
            body = "".join(f"<tr><th>{row[0]}</th><td>{'</td><td>'.join(row[1:])}</td></tr>" for row in rows)
            heads = f"<thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead>"
            tables.append(f"<table>{heads}<tbody>{body}</tbody></table>")
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<div><table>{caption}<tbody>{facts}</tbody></table>{''.join(tables)}{notes}</div>"


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Description):
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
    title: str
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
    def ridge_shares(self) -> Array | None:
        """Share of each coefficient that the ridge term decides and not the data, shape (n,); None without the matrix.

        One less :func:`lstd.metrics.effective_degrees_of_freedom`.
        """
        return None if self.model.matrix_free else 1.0 - self.model.degrees_of_freedom

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of the returns that was observed; None if it is not known.

        That of held-out returns for :class:`lstd.LSTDCV`, else :attr:`lstd.LSTDStatistics.observed_share`.
        """
        chosen = self.model.selection
        return self.model.statistics.observed_share if chosen is None else chosen.observed_share

    @cached_property
    def facts(self) -> dict[str, str]:
        """What decides the coefficients, by name, in the order of every description."""
        model, origin, s, share = self.model, self.model.origin, self.model.statistics, self.observed_share
        facts = {}
        if origin is not None:
            facts = {"fitted on": ", ".join(origin.files), "fitted at": f"{origin.date}, by lstd {origin.lstd}"}
            columns = ", ".join(f"{role}: {column}" for role, column in origin.columns.items())
            facts |= {"columns": columns} if columns else {}
        counts = {"rows": s.n_rows, "transitions": s.n_transitions, "episodes": s.n_episodes, "groups": s.n_groups}
        facts |= {name: str(count) for name, count in counts.items() if count is not None}
        facts |= {"not used": unused_rewards(s.n_unused_rewards)} if s.n_unused_rewards else {}
        names = f": {listed(model.names)}" if model.names else ""
        return {
            **facts,
            "features": f"{model.n_features}{names}",
            "rewards": listed(model.reward_names),
            **self._settings(),
            **self._solution(),
            "returns observed": "unknown; see lstd.metrics.observed_returns" if share is None else _percent(share),
            **({} if self.ridge_shares is None else {"decided by ridge term": _percent(self.ridge_shares.mean())}),
            "intervals": f"none. {model.no_intervals}" if model.no_intervals else self._blocks(),
            **({} if model.checks is None else model.checks.texts(model.settings.lmbda)),
            **({"negative": model.negative} if model.negative else {}),
            **({"doubt": " ".join(model.doubts)} if model.doubts else {}),
        }

    def _settings(self) -> dict[str, str]:
        settings, chosen = self.model.settings, self.model.selection
        note = "" if chosen is None else ", chosen"
        facts = {
            "gamma": f"{settings.gamma:g}",
            "lmbda": f"{settings.lmbda:g}{note}",
            "alpha": _ridge(self.model, note),
            "variant": f"{settings.variant}, {'with' if settings.fit_intercept else 'without'} an intercept",
        }
        if chosen is None:
            return facts
        n_rows = chosen.n_rows if self.model.origin is None else self.model.origin.rows
        rows = f"the first {chosen.n_rows} of {n_rows}" if chosen.n_rows < n_rows else f"all {chosen.n_rows}"
        facts["chosen from"] = (
            f"{rows} rows in {chosen.n_folds} folds; R² {chosen.score:.4g} on held-out rows; observed share of their "
            f"returns: {_percent(chosen.observed_share)}"
        )
        if end := chosen.at_end:
            where, why = ("above", "; if not, the features say little") if end == "largest" else ("below", "")
            facts["choice of alpha"] = f"the {end} of the grid. Give `alphas` {where} it, if R² still rises there{why}"
        if (scores := chosen.arbitrary_scores) is not None:
            facts["choice of lmbda"] = (
                f"not decided by the data: the best R² of each value, {scores[0]:.3g} to {scores[1]:.3g}, differ by no "
                "more than chance"
            )
        return facts

    def _solution(self) -> dict[str, str]:
        if (free := self.model.matrix_free) is None:
            return {"condition number": _condition(self.model.solution.condition_number)}
        return {"solved": f"by {free.n_iter} products with the matrix, to a relative residual of {free.residual:.1g}"}

    def _blocks(self) -> str:
        unit = "consecutive rows" if self.model.blocks.unit == "rows" else self.model.blocks.unit
        return f"from {len(self.model.influence.shares)} blocks of one or more {unit}, taken as independent"

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs: facts, and numbers by name of the reward and the feature."""
        model, s, chosen, checks = self.model, self.model.statistics, self.model.selection, self.model.checks
        n, found, settings = model.n_features, self.interval, model.settings
        errors = None if found is None else found.standard_error
        return {
            "origin": None if model.origin is None else asdict(model.origin),
            **{name: getattr(s, f"n_{name}") for name in ("rows", "transitions", "episodes", "groups")},
            "unused_rewards": s.n_unused_rewards,
            **{name: getattr(settings, name) for name in _SETTINGS},
            **({} if settings.penalty is None else {"ridge": model.ridge[:n]}),
            "selection": chosen
            and {"rows": chosen.n_rows, "folds": chosen.n_folds} | {name: getattr(chosen, name) for name in _CHOICE},
            "condition_number": None if model.matrix_free else model.solution.condition_number,
            "observed_share": self.observed_share,
            "blocks": None if found is None else len(model.influence.shares),
            "no_intervals": model.no_intervals or None,
            "checks": checks and {name: getattr(check, "__dict__", check) for name, check in vars(checks).items()},
            "doubts": model.doubts,
            "coefficients": self._by_reward(self.coefficients[:n]),
            "intercept": self._by_reward(np.atleast_1d(model.intercept)),
            "coefficient_errors": None if errors is None else self._by_reward(errors[:n]),
            "intercept_error": None if errors is None or len(errors) == n else self._by_reward(errors[n]),
            "ridge_shares": None
            if self.ridge_shares is None
            else dict(zip(model.feature_names, self.ridge_shares.tolist(), strict=True)),
        }

    def _by_reward(self, numbers: Array) -> dict[str, Any]:
        """Return numbers of each reward, (m,), or those of each feature, (n, m), by name."""
        columns: Any = numbers.T.tolist()
        if numbers.ndim == 2:
            columns = [dict(zip(self.model.feature_names, column, strict=True)) for column in columns]
        return dict(zip(self.model.reward_names, columns, strict=True))

    def table(self, reward: int = 0) -> list[list[str]]:
        """Return the lines of the table of one reward, the heading first; the last column marks little data."""
        low, found, marks = 0.5 - 0.5 * self.level, self.interval, [""] * len(self.names)
        columns = [[self.model.reward_names[reward], *self.names]]
        columns.append(["coef", *(f"{value:.6g}" for value in self.coefficients[:, reward])])
        if found is not None:
            columns.append(["std err", *map(two_digits, found.standard_error[:, reward])])
            for quantile, bounds in ((low, found.lower), (1.0 - low, found.upper)):
                columns.append([f"{quantile:.4g}", *(f"{bound:.4g}" for bound in bounds[:, reward])])
            marks = np.where(found.little_data[:, reward], "*", "").tolist()
        if self.ridge_shares is not None:
            columns.append(["ridge", *map(_percent, self.ridge_shares), *["0 %"] * self.model.settings.fit_intercept])
        return [[*line] for line in zip(*columns, ["", *marks], strict=True)]

    @property
    def tables(self) -> list[list[list[str]]]:
        """Tables of the coefficients of each reward."""
        return [self.table(j) for j in range(len(self.model.reward_names))]

    @property
    def notes(self) -> Iterator[str]:
        """Explain what the tables have."""
        if self.interval is not None and self.interval.little_data.any():
            yield f"* little data: fewer than {FEW:g} degrees of freedom, or none at all"
        if self.ridge_shares is not None:
            yield _RIDGE_NOTE


@dataclass(frozen=True, eq=False, repr=False)
class StepsSummary(Description):
    """A model of the next steps as a table: plain text by `str`, HTML in notebooks; n features, m rewards.

    Attributes
    ----------
    model : HorizonModel
    title : str
    level : float
        Level of the intervals.
    tested : str
        What a backtest of the estimator said; empty without one.
    """

    model: HorizonModel
    title: str
    level: float = 0.95
    tested: str = ""

    @cached_property
    def linear(self) -> Linear:
        """The predictions of the longest horizon."""
        return self.model.at()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients: of the columns of `coef_`, and ``(intercept)`` last if there is one."""
        return (*self.model.feature_names, *(["(intercept)"] if self.model.settings.fit_intercept else []))

    @property
    def coefficients(self) -> Array:
        """Coefficients of the longest horizon, shape (n, m), or (n + 1, m) with an intercept."""
        coef = np.atleast_2d(self.linear.coef).T
        if not self.model.settings.fit_intercept:
            return coef
        return np.vstack([coef, np.atleast_1d(self.linear.intercept)])

    @cached_property
    def interval(self) -> Interval | None:
        """Standard errors and intervals of the coefficients, arrays of the same shape; None if the model has none."""
        if self.linear.no_intervals:
            return None
        return self.linear.influence.of_weights(self.coefficients, self.level)

    @property
    def observed_share(self) -> float | None:
        """Share of the steps of all returns, discounted, that was observed, if known: see :class:`HorizonModel`."""
        return self.model.observed_share

    @cached_property
    def ridge_shares(self) -> Array:
        """Share of each coefficient that the ridge term decides and not the data, shape (n,); as of `Summary`."""
        return 1.0 - self.model.degrees_of_freedom

    @property
    def score(self) -> float | None:
        """R² of the predictions of the longest horizon on held-out groups or episodes of the rows that were checked."""
        return None if self.model.held_out is None else self.model.held_out.score

    @property
    def facts(self) -> dict[str, str]:
        """What decides the coefficients, by name."""
        model, origin, held_out = self.model, self.model.origin, self.model.held_out
        settings = model.settings
        facts = {}
        if origin is not None:
            facts = {"fitted on": ", ".join(origin.files), "fitted at": f"{origin.date}, by lstd {origin.lstd}"}
        chosen = {name: ", chosen" if name in settings.choose else "" for name in ("lmbda", "alpha")}
        share = self.observed_share
        score = "unknown; fit with check=True"
        if held_out is not None:
            score = f"{held_out.score:.3g} on {held_out.n_rows} rows in {held_out.n_folds} folds"
        names = f": {listed(model.names)}" if model.names else ""
        age = {}
        if model.age is not None:
            age = {"age": self.linear.feature_names[model.age.place]}
        reason = model.solved.no_intervals
        return {
            **facts,
            "rows": str(model.stream.layout.n_rows),
            "transitions": str(model.n_transitions),
            "episodes": str(model.n_episodes),
            "features": f"{model.n_given}{names}",
            "rewards": listed(model.reward_names),
            "horizon": f"{model.stream.horizon} steps",
            "gamma": f"{settings.gamma:g}",
            "lmbda": f"{model.solved.lmbda:g}{chosen['lmbda']}",
            "alpha": f"{model.solved.alpha:g}{chosen['alpha']}",
            "penalty": model.unit_of_penalty,
            **age,
            "returns observed": "unknown after partial_fit without an intercept" if share is None else _percent(share),
            "ridge term": f"decides {_percent(self.ridge_shares.mean())}",
            "held-out R²": score,
            "intervals": f"none. {reason}" if reason else f"from {len(self.linear.influence.shares)} blocks",
            **model.known_checks.texts(model.solved.lmbda),
            "backtest": self.tested or _NO_BACKTEST,
            **({"negative": model.negative} if model.negative else {}),
            **({"doubt": " ".join(model.said)} if model.said else {}),
        }

    @property
    def tables(self) -> list[list[list[str]]]:
        """Tables of the coefficients of each reward."""
        return [self.table(j) for j in range(len(self.model.reward_names))]

    def table(self, reward: int = 0) -> list[list[str]]:
        """Return the lines of the table of one reward, the heading first."""
        low = 0.5 - 0.5 * self.level
        found = self.interval
        head = f"{self.model.reward_names[reward]}, {self.model.stream.horizon} steps"
        columns = [[head, *self.names], ["coef", *(f"{value:.6g}" for value in self.coefficients[:, reward])]]
        if found is not None:
            columns.append(["std err", *map(two_digits, found.standard_error[:, reward])])
            for quantile, bounds in ((low, found.lower), (1.0 - low, found.upper)):
                columns.append([f"{quantile:.4g}", *(f"{bound:.4g}" for bound in bounds[:, reward])])
        of_intercept = ["0 %"] * self.model.settings.fit_intercept
        columns.append(["ridge", *map(_percent, self.ridge_shares), *of_intercept])
        return [[*line] for line in zip(*columns, strict=True)]

    @property
    def notes(self) -> Iterator[str]:
        """Explain what the tables have."""
        yield _RIDGE_NOTE


def coefficient_interval(model: Model, level: float) -> Interval:
    """Compute intervals of the coefficients, arrays of shape (n, m); with an intercept, its own come last."""
    found = model.influence.of_weights(model.solution.weights, level)
    found.little_data[: model.n_features] |= model.unseen[:, np.newaxis]
    return found


def _ridge(model: Model, note: str = "") -> str:
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


def _condition(number: float) -> str:
    if not np.isfinite(number):
        return "infinite: singular, and the weights are the limit as the ridge term vanishes; increase alpha"
    digits = sure_digits(number)
    remedy = "; increase alpha, or drop features that repeat one another" if digits < _FEW_DIGITS else ""
    return f"{number:.2g}: about {digits} digits of the weights are reliable{remedy}"


def _percent(share: float) -> str:
    return f"{round(100.0 * min(max(share, 0.0), 1.0))} %"  # a share of an asymmetric matrix may be beyond
