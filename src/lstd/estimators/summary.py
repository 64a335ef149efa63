"""The one description of a fitted model, as text, HTML and JSON: its coefficients, and what decides them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from lstd.data.arguments import listed
from lstd.data.doubts import unused_rewards
from lstd.data.read_only import read_only
from lstd.data.settings import Settings
from lstd.estimators.contributions import aligned
from lstd.estimators.horizon_model import HorizonModel
from lstd.estimators.linear import Linear
from lstd.estimators.model import Model
from lstd.estimators.model_parts import Origin, Selection, two_digits
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
        return _with_intercept(self.model.feature_names, self.model.settings)

    @property
    def coefficients(self) -> Array:
        """Coefficients, shape (n, m), or (n + 1, m) with an intercept."""
        return self.model.linear.weights

    @cached_property
    def interval(self) -> Interval | None:
        """Standard errors and intervals of the coefficients, arrays of the same shape; None if the model has none."""
        if self.model.no_intervals:
            return None
        return self.model.linear.interval_of_weights(self.level)

    @cached_property
    def ridge_shares(self) -> Array | None:
        """Share of each coefficient that the ridge term decides and not the data, shape (n,); None without the matrix.

        One less :func:`lstd.metrics.effective_degrees_of_freedom`.
        """
        if self.model.matrix_free:
            return None
        return 1.0 - self.model.degrees_of_freedom

    @property
    def observed_share(self) -> float | None:
        """Share of the discounted weight of the returns that was observed; None if it is not known.

        That of held-out returns for :class:`lstd.LSTDCV`, else :attr:`lstd.LSTDStatistics.observed_share`.
        """
        chosen = self.model.selection
        if chosen is None:
            return self.model.statistics.observed_share
        return chosen.observed_share

    @cached_property
    def facts(self) -> dict[str, str]:
        """What decides the coefficients, by name, in the order of every description."""
        model = self.model
        facts = {
            **self._origin(),
            **self._counts(),
            "features": _features(model.n_features, model.names),
            "rewards": listed(model.reward_names),
            **self._settings(),
            **self._solution(),
        }
        share = self.observed_share
        facts["returns observed"] = "unknown; see lstd.metrics.observed_returns"
        if share is not None:
            facts["returns observed"] = _percent(share)
        if self.ridge_shares is not None:
            facts["decided by ridge term"] = _percent(self.ridge_shares.mean())
        facts["intervals"] = self._blocks()
        if model.checks is not None:
            facts |= model.checks.texts(model.settings.lmbda)
        return facts | _doubts(model.negative, model.doubts)

    def _origin(self) -> dict[str, str]:
        """Return the files of the fit and the roles of their columns, if there are any."""
        origin = self.model.origin
        facts = _files_of(origin)
        if origin is not None and origin.columns:
            facts["columns"] = ", ".join(f"{role}: {column}" for role, column in origin.columns.items())
        return facts

    def _counts(self) -> dict[str, str]:
        """Return the numbers of rows, transitions, episodes and groups, and of rewards that are not used."""
        sums = self.model.statistics
        facts = {"rows": str(sums.n_rows), "transitions": str(sums.n_transitions), "episodes": str(sums.n_episodes)}
        if sums.n_groups is not None:
            facts["groups"] = str(sums.n_groups)
        if sums.n_unused_rewards:
            facts["not used"] = unused_rewards(sums.n_unused_rewards)
        return facts

    def _settings(self) -> dict[str, str]:
        """Return the settings, and how they were chosen."""
        settings = self.model.settings
        selection = self.model.selection
        note = "" if selection is None else ", chosen"
        intercept = "with" if settings.fit_intercept else "without"
        facts = {
            "gamma": f"{settings.gamma:g}",
            "lmbda": f"{settings.lmbda:g}{note}",
            "alpha": _ridge(self.model, note),
            "variant": f"{settings.variant}, {intercept} an intercept",
        }
        if selection is None:
            return facts
        return facts | self._choice(selection)

    def _choice(self, selection: Selection) -> dict[str, str]:
        """Return the rows that settings were chosen from, and what is doubtful about the choice."""
        rows = f"all {selection.n_rows}"
        origin = self.model.origin
        if origin is not None and selection.n_rows < origin.rows:
            rows = f"the first {selection.n_rows} of {origin.rows}"
        facts = {
            "chosen from": (
                f"{rows} rows in {selection.n_folds} folds; R² {selection.score:.4g} on held-out rows; observed share "
                f"of their returns: {_percent(selection.observed_share)}"
            )
        }
        end = selection.at_end
        if end == "largest":
            facts["choice of alpha"] = (
                "the largest of the grid. Give `alphas` above it, if R² still rises there; if not, the features say "
                "little"
            )
        elif end:
            facts["choice of alpha"] = f"the {end} of the grid. Give `alphas` below it, if R² still rises there"
        scores = selection.arbitrary_scores
        if scores is not None:
            facts["choice of lmbda"] = (
                f"not decided by the data: the best R² of each value, {scores[0]:.3g} to {scores[1]:.3g}, differ by no "
                "more than chance"
            )
        return facts

    def _solution(self) -> dict[str, str]:
        """Return how well the system was solved."""
        matrix_free = self.model.matrix_free
        if matrix_free is None:
            return {"condition number": _condition(self.model.solution.condition_number)}
        residual = f"{matrix_free.residual:.1g}"
        return {"solved": f"by {matrix_free.n_iter} products with the matrix, to a relative residual of {residual}"}

    def _blocks(self) -> str:
        """Return what intervals come from, or why there are none."""
        if self.model.no_intervals:
            return f"none. {self.model.no_intervals}"
        unit = self.model.blocks.unit
        if unit == "rows":
            unit = "consecutive rows"
        return f"from {len(self.model.influence.shares)} blocks of one or more {unit}, taken as independent"

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs: facts, and numbers by name of the reward and the feature."""
        model = self.model
        sums = model.statistics
        settings = model.settings
        document: dict[str, Any] = {
            "origin": None if model.origin is None else asdict(model.origin),
            "rows": sums.n_rows,
            "transitions": sums.n_transitions,
            "episodes": sums.n_episodes,
            "groups": sums.n_groups,
            "unused_rewards": sums.n_unused_rewards,
        }
        document |= {name: getattr(settings, name) for name in _SETTINGS}
        if settings.penalty is not None:
            document["ridge"] = model.ridge[: model.n_features]
        document["selection"] = self._choice_document()
        document["condition_number"] = None if model.matrix_free else model.solution.condition_number
        document["observed_share"] = self.observed_share
        document["blocks"] = None if self.interval is None else len(model.influence.shares)
        document["no_intervals"] = model.no_intervals or None
        document["checks"] = self._checks_document()
        document["doubts"] = model.doubts
        return document | self._coefficients_document()

    def _choice_document(self) -> dict[str, Any] | None:
        """Return how settings were chosen; None if they were given."""
        selection = self.model.selection
        if selection is None:
            return None
        counts = {"rows": selection.n_rows, "folds": selection.n_folds}
        return counts | {name: getattr(selection, name) for name in _CHOICE}

    def _checks_document(self) -> dict[str, Any] | None:
        """Return the numbers of each check, or why it could not run; None if there are no checks."""
        checks = self.model.checks
        if checks is None:
            return None
        return {name: read_only(getattr(check, "__dict__", check)) for name, check in vars(checks).items()}

    def _coefficients_document(self) -> dict[str, Any]:
        """Return coefficients, their errors and shares of the ridge term, by name; None for what is not known."""
        n = self.model.n_features
        document: dict[str, Any] = {
            "coefficients": self._by_reward(self.coefficients[:n]),
            "intercept": self._by_reward(np.atleast_1d(self.model.intercept)),
            "coefficient_errors": None,
            "intercept_error": None,
            "ridge_shares": None,
        }
        if self.interval is not None:
            errors = self.interval.standard_error
            document["coefficient_errors"] = self._by_reward(errors[:n])
            if len(errors) > n:
                document["intercept_error"] = self._by_reward(errors[n])
        if self.ridge_shares is not None:
            document["ridge_shares"] = dict(zip(self.model.feature_names, self.ridge_shares.tolist(), strict=True))
        return document

    def _by_reward(self, numbers: Array) -> dict[str, Any]:
        """Return numbers of each reward, (m,), or those of each feature, (n, m), by name."""
        columns: Any = numbers.T.tolist()
        if numbers.ndim == 2:
            columns = [dict(zip(self.model.feature_names, column, strict=True)) for column in columns]
        return dict(zip(self.model.reward_names, columns, strict=True))

    def table(self, reward: int = 0) -> list[list[str]]:
        """Return the lines of the table of one reward, the heading first; the last column marks little data."""
        columns = [
            [self.model.reward_names[reward], *self.names],
            *_columns_of(self.coefficients, self.interval, reward, self.level),
        ]
        if self.ridge_shares is not None:
            columns.append(_ridge_column(self.ridge_shares, self.model.settings))
        marks = [""] * len(self.names)
        if self.interval is not None:
            marks = np.where(self.interval.little_data[:, reward], "*", "").tolist()
        columns.append(["", *marks])
        return [[*line] for line in zip(*columns, strict=True)]

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
        return _with_intercept(self.model.column_names, self.model.settings)

    @property
    def coefficients(self) -> Array:
        """Coefficients of the longest horizon, shape (n, m), or (n + 1, m) with an intercept."""
        return self.linear.weights

    @cached_property
    def interval(self) -> Interval | None:
        """Standard errors and intervals of the coefficients, arrays of the same shape; None if the model has none."""
        if self.linear.no_intervals:
            return None
        return self.linear.interval_of_weights(self.level)

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
        if self.model.held_out is None:
            return None
        return self.model.held_out.score

    @property
    def facts(self) -> dict[str, str]:
        """What decides the coefficients, by name."""
        model = self.model
        facts = {
            **_files_of(model.origin),
            "rows": str(model.stream.layout.n_rows),
            "transitions": str(model.n_transitions),
            "episodes": str(model.n_episodes),
            "features": _features(model.n_given, model.names),
            "rewards": listed(model.reward_names),
            **self._settings(),
        }
        share = self.observed_share
        facts["returns observed"] = "unknown after partial_fit without an intercept"
        if share is not None:
            facts["returns observed"] = _percent(share)
        facts["ridge term"] = f"decides {_percent(self.ridge_shares.mean())}"
        facts["held-out R²"] = self._held_out()
        if model.naive is not None:
            facts["naive forecast"] = model.naive.text
        facts |= model.shock_fact
        facts["intervals"] = self._blocks()
        facts |= model.known_checks.texts(model.solved.lmbda)
        facts["backtest"] = self.tested or _NO_BACKTEST
        return facts | _doubts(model.negative, model.said)

    def _settings(self) -> dict[str, str]:
        """Return the horizon and the settings, and which were chosen."""
        model = self.model
        settings = model.settings
        chosen = {name: ", chosen" if name in settings.choose else "" for name in ("lmbda", "alpha")}
        facts = {
            "horizon": f"{model.stream.horizon} steps",
            "gamma": f"{settings.gamma:g}",
            "lmbda": f"{model.solved.lmbda:g}{chosen['lmbda']}",
            "alpha": f"{model.solved.alpha:g}{chosen['alpha']}",
            "penalty": model.unit_of_penalty,
        }
        if model.age is not None:
            facts["age"] = self.linear.feature_names[model.age.place]
        return facts

    def _held_out(self) -> str:
        """Return R² on held-out rows, or how to know it."""
        held_out = self.model.held_out
        if held_out is None:
            if self.model.checks is not None:
                return "unknown; that needs two groups or episodes of some weight"
            return "unknown; fit with check=True"
        return f"{held_out.score:.3g} on {held_out.n_rows} rows in {held_out.n_folds} folds"

    def _blocks(self) -> str:
        """Return what intervals come from, or why there are none."""
        reason = self.model.solved.no_intervals
        if reason:
            return f"none. {reason}"
        return f"from {len(self.linear.influence.shares)} blocks"

    @property
    def tables(self) -> list[list[list[str]]]:
        """Tables of the coefficients of each reward."""
        return [self.table(j) for j in range(len(self.model.reward_names))]

    def table(self, reward: int = 0) -> list[list[str]]:
        """Return the lines of the table of one reward, the heading first."""
        head = f"{self.model.reward_names[reward]}, {self.model.stream.horizon} steps"
        columns = [
            [head, *self.names],
            *_columns_of(self.coefficients, self.interval, reward, self.level),
            _ridge_column(self.ridge_shares, self.model.settings),
        ]
        return [[*line] for line in zip(*columns, strict=True)]

    @property
    def notes(self) -> Iterator[str]:
        """Explain what the tables have."""
        yield _RIDGE_NOTE


# ------------------------------------------------------------ what both summaries have


def _files_of(origin: Origin | None) -> dict[str, str]:
    """Return the files of a fit and its time, if there are any."""
    if origin is None:
        return {}
    return {"fitted on": ", ".join(origin.files), "fitted at": f"{origin.date}, by lstd {origin.lstd}"}


def _features(count: int, names: tuple[str, ...] | None) -> str:
    """Return the number of features, and their names if they have any."""
    if names is None:
        return str(count)
    return f"{count}: {listed(names)}"


def _doubts(negative: str, said: Sequence[str]) -> dict[str, str]:
    """Return what is said against predictions, if anything is."""
    facts = {}
    if negative:
        facts["negative"] = negative
    if said:
        facts["doubt"] = " ".join(said)
    return facts


def _with_intercept(names: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Return the names of the coefficients, that of the intercept last if there is one."""
    if not settings.fit_intercept:
        return names
    return (*names, "(intercept)")


def _columns_of(coefficients: Array, interval: Interval | None, reward: int, level: float) -> list[list[str]]:
    """Return columns of one reward, their heads first: coefficients and, if known, their errors and intervals."""
    columns = [["coef", *(f"{value:.6g}" for value in coefficients[:, reward])]]
    if interval is None:
        return columns
    columns.append(["std err", *map(two_digits, interval.standard_error[:, reward])])
    low = 0.5 - 0.5 * level
    for quantile, bounds in ((low, interval.lower), (1.0 - low, interval.upper)):
        columns.append([f"{quantile:.4g}", *(f"{bound:.4g}" for bound in bounds[:, reward])])
    return columns


def _ridge_column(shares: Array, settings: Settings) -> list[str]:
    """Return the column of the shares (n,) that the ridge term decides, its head first; nothing of the intercept."""
    column = ["ridge", *map(_percent, shares)]
    if settings.fit_intercept:
        column.append("0 %")
    return column


def _ridge(model: Model, note: str = "") -> str:
    """Return α with a note, the range of the ridge coefficients if they differ from it, and features that have none."""
    ridge = model.ridge[: model.n_features]
    penalised = ridge > 0.0
    some = ridge[penalised] if ridge.any() else ridge
    text = f"{some.min():g}"
    if some.min() < some.max():
        text = f"{some.min():g} to {some.max():g}"
    if ridge.any() and not penalised.all():
        without = [name for name, has in zip(model.feature_names, penalised.tolist(), strict=True) if not has]
        text += f" (0 for {', '.join(without)})"

    alpha = model.settings.alpha
    if isinstance(alpha, tuple) or f"{alpha:g}" == text:
        return text + note
    return f"{alpha:g}{note}; ridge {text}"


def _condition(number: float) -> str:
    """Return a condition number, how many digits it leaves, and what to do if they are few."""
    if not np.isfinite(number):
        return "infinite: singular, and the weights are the limit as the ridge term vanishes; increase alpha"
    digits = sure_digits(number)
    text = f"{number:.2g}: about {digits} digits of the weights are reliable"
    if digits < _FEW_DIGITS:
        text += "; increase alpha, or drop features that repeat one another"
    return text


def _percent(share: float) -> str:
    """Return a share in percent; that of an asymmetric matrix may be outside of 0 to 1."""
    return f"{round(100.0 * min(max(share, 0.0), 1.0))} %"
