"""What a model holds beside sums: results of the choice of settings and of checks, without their code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Self, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from lstd.statistics.intervals import Influence
from lstd.statistics.solve import Solution
from lstd.types import Array
from lstd.version import __version__

PerReward = float | Annotated[Array, "m"]
Results = Annotated[NDArray[np.intp], "k"] | Annotated[Array, "k nan"]
Flags = bool | Annotated[NDArray[np.bool_], "m"]

SIGNIFICANT = 0.01  # p-value below which there is a warning,
MATERIAL = 0.01  # if what was found is at least this share of the mean squared residual


def two_digits(value: SupportsFloat) -> str:
    """Return a number rounded to two significant digits, in plain notation where that is short.

    Examples
    --------
    >>> two_digits(1632.4), two_digits(0.01234)
    ('1600', '0.012')
    """
    return f"{float(f'{float(value):.2g}'):g}"


def _short(value: object) -> str:
    """Write numbers of rewards with two digits."""
    numbers = np.asarray(value)
    write = str if numbers.dtype.kind in "bO" else two_digits
    words = [write(number) for number in numbers.reshape(-1)]
    if numbers.ndim == 0:
        return words[0]
    return f"[{', '.join(words)}]"


class _PerReward:
    """A result with numbers for each of m rewards, (m,)."""

    @property
    def _found(self) -> Flags:
        """Whether something was found of each reward."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name = type(self).__name__
        texts = (f"{key}={_short(value)}" for key, value in vars(self).items())
        return f"{name}({', '.join(texts)})"

    def first(self) -> Self:
        """Return the result of the only reward, with numbers."""
        numbers = {name: None if values is None else values[0].item() for name, values in vars(self).items()}
        return type(self)(**numbers)

    def shown(self, *names: str) -> list[str]:
        """Return numbers of the clearest reward as texts; None for one that is not known."""
        values = [vars(self)[name] for name in names]
        return ["" if value is None else two_digits(np.atleast_1d(value)[self.clearest]) for value in values]

    @property
    def found_from(self) -> str:
        """Say how clear and how large it must be to count."""
        least = two_digits(0.1 * np.atleast_1d(vars(self)["residual"])[self.clearest])
        return f"What counts has p below 0.01 and is at least a tenth of the residual, {least}"

    @property
    def clearest(self) -> int:
        """Number of the reward with the smallest p-value, of those of which something was found, if any."""
        p_value = np.atleast_1d(vars(self)["p_value"])
        found = np.atleast_1d(self._found)
        if found.any():
            p_value = np.where(found, p_value, np.inf)
        return int(np.argmin(p_value))


@dataclass(frozen=True, eq=False, repr=False)
class BiasCheck(_PerReward):
    """Predictions with λ compared with predictions with λ = 1; numbers, or arrays of shape (m,) for m rewards.

    Attributes
    ----------
    difference : float or ndarray
        Root mean square of the difference of the predictions, over the full transitions, by weight.
    expected : float or ndarray
        Expectation of `difference` by chance alone.
    size : float or ndarray
        Root mean square of the predictions with λ = 1.
    residual : float or ndarray
        Root mean squared residual of the returns with λ = 1.
    p_value : float or ndarray
        Probability of a difference at least as large without bias.
    biased : bool or ndarray of bool
        Whether the p-value is below 0.01, and the difference is above a quarter of the standard error and a tenth of
        the residual.

    Examples
    --------
    One constant feature cannot tell the first state of an episode, of value 2, from the second, of value 1:

    >>> import warnings
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> X, y, done = np.ones((400, 1)), np.tile([0.0, 3.0], 200), np.tile([False, True], 200)
    >>> y += np.random.default_rng(0).normal(size=400)
    >>> model = LSTD(gamma=0.5, lmbda=0.0, fit_intercept=False).fit(X, y, terminated=done)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     model.bias_check(X, y, terminated=done).biased
    True
    """

    difference: PerReward
    expected: PerReward
    size: PerReward
    residual: PerReward
    p_value: PerReward
    biased: Flags

    @property
    def _found(self) -> Flags:
        return self.biased

    def message(self, lmbda: float) -> str:
        """Say what the check found for the clearest reward, and what to do."""
        difference, expected, size = self.shown("difference", "expected", "size")
        return (
            f"Predictions with `lmbda` {lmbda:g} differ from predictions with 1 by {difference} (root mean square, of "
            f"values of {size}); chance alone would give {expected}. So the features do not represent the values, and "
            "bootstrapping biases the predictions, beyond their intervals. Add features, such as squares, products or "
            "bins; if there are none to add, use a larger `lmbda`."
        )


@dataclass(frozen=True, eq=False, repr=False)
class MisfitCheck(_PerReward):
    """Returns compared with what any weighted sum of the features can predict; arrays have shape (m,), for m rewards.

    Attributes
    ----------
    systematic : float or ndarray
        Root mean square, over full transitions, of the part of the expected returns that squares, products and a
        boosted tree of the features predict, or the steps since the episode or the log began, and no weighted sum of
        the features does; less what chance contributes, at least 0.
    expected : float or ndarray
        What chance alone would contribute.
    standard_error : float, ndarray or None
        Mean standard error of the model's predictions; None if the model has no intervals.
    residual : float or ndarray
        Root mean squared residual of the returns.
    p_value : float or ndarray
        Probability of a dependence at least as clear by chance.
    of_age : bool or ndarray of bool
        Whether the p-value is below 0.01 and the steps since the episode began show the dependence most clearly; then
        the systematic part is theirs.
    misfit : bool or ndarray of bool
        Whether the p-value is below 0.01, and the systematic part is above its own noise and a tenth of the residual;
        in `fit` of :class:`lstd.HorizonLSTD`, also whether its advice helps: a trial lowers the error of held-out rows
        by 1 %, for the reward with the smallest p-value.
    of_time : bool or ndarray of bool
        As `of_age`, of the steps since the earliest time of the log, if times are known.
    has_age : bool or ndarray of bool
        Whether the model has columns of the age already, by `age` of :class:`lstd.HorizonLSTD`.

    Examples
    --------
    >>> from lstd.inference import MisfitCheck
    >>> check = MisfitCheck(
    ...     systematic=3.0, expected=0.5, standard_error=1.0, residual=6.0, p_value=0.001, of_age=False, misfit=True
    ... )
    >>> check.dominates
    True
    """

    systematic: PerReward
    expected: PerReward
    standard_error: PerReward | None
    residual: PerReward
    p_value: PerReward
    of_age: Flags
    misfit: Flags
    of_time: Flags = False
    has_age: Flags = False

    @property
    def _found(self) -> Flags:
        return self.misfit

    @property
    def has_little_to_gain(self) -> bool:
        """Whether the advice about what is clear and large was tried, for the clearest reward, and did not help."""
        j = self.clearest
        is_clear = np.atleast_1d(self.p_value)[j] < SIGNIFICANT
        is_material = np.atleast_1d(self.systematic)[j] ** 2 >= MATERIAL * np.atleast_1d(self.residual)[j] ** 2
        return bool(is_clear and is_material and not np.any(self.misfit))

    @property
    def dominates(self) -> bool:
        """Whether, for some reward, there is a misfit that exceeds the mean standard error of the predictions."""
        return self.standard_error is not None and bool(np.any(self.misfit & (self.systematic > self.standard_error)))

    @property
    def message(self) -> str:
        """What the check found for the clearest reward, and what to do."""
        size, error, residual = self.shown("systematic", "standard_error", "residual")
        beside = f"root mean square, beside residuals of {residual}"
        if error:
            beside += f" and a mean standard error of {error}"
        share = f"by {size} ({beside}). Intervals leave this out, and more data does not reduce it"
        if np.atleast_1d(self.of_age)[self.clearest]:
            of_age = (
                "Returns depend on the steps since the episode began in ways that no weighted sum of the features can "
                f"follow: {share}."
            )
            if np.atleast_1d(self.has_age)[self.clearest]:
                return (
                    f"{of_age} The model has the columns of `age` already. Add features of when the subject began, "
                    "such as its year, or of the stage that it has reached; leave `age` out if a backtest "
                    "(`lstd.metrics.backtest`) is better without it."
                )
            return (
                f"{of_age} Add the age of the episode as exp(-age), exp(-age / 4) and so on, and their "
                "products with other features; HorizonLSTD does so with `age`. Leave it out again if "
                "predictions then give an ExtrapolationWarning about it: no row of the fit was as old."
            )
        if np.atleast_1d(self.of_time)[self.clearest]:
            return (
                "Returns depend on the time in ways that no weighted sum of the features can follow: the same features "
                f"were followed by other returns early in the log than later, {share}. Fit to the rows since the "
                "change, or give earlier rows less `weight`; add features of what changed, such as a season, a price "
                "or a campaign, if they are known ahead; and compare predictions with what came "
                "(`lstd.metrics.backtest`), at several cuts."
            )
        return (
            f"Returns depend on the features in ways that no weighted sum of them can follow: {share}. Add features "
            "such as squares, products or bins, or an intercept if the model has none. Keep them only if a backtest "
            "(`lstd.metrics.backtest`) is better with them: squares of features that grow with time can be far off for "
            "the last rows. A larger `lmbda` does not help."
        )


@dataclass(frozen=True, eq=False)
class Checks:
    """Results of the checks that follow a choice of settings, or why a check could not run."""

    bias: BiasCheck | str
    misfit: MisfitCheck | str

    def texts(self, lmbda: float) -> dict[str, str]:
        """Say what each check found, by its name; `lmbda` is that of the predictions."""
        texts = {name: f"not checked. {why}" for name, why in vars(self).items()}
        if isinstance(self.bias, BiasCheck):
            difference, p = self.bias.shown("difference", "p_value")
            none = f"none found: predictions differ by {difference} from those with lmbda 1 (p = {p})"
            none += f". {self.bias.found_from}"
            texts["bias"] = f"found. {self.bias.message(lmbda)}" if np.any(self.bias.biased) else none
        if isinstance(self.misfit, MisfitCheck):
            size, p = self.misfit.shown("systematic", "p_value")
            beyond = f"{size} of returns is beyond weighted sums of the features (p = {p})"
            none = f"none found: {beyond}. {self.misfit.found_from}"
            if self.misfit.has_little_to_gain:
                none = (
                    f"little to gain: {beyond}, but what a warning would advise, an age or squares and products, "
                    "lowers the error by less than 1 %"
                )
            texts["misfit"] = f"found. {self.misfit.message}" if np.any(self.misfit.misfit) else none
        return texts


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions compared with returns of folds of rows that they were not fitted to."""

    score: float  # R²; the mean over several rewards
    n_rows: int
    n_folds: int


@dataclass(frozen=True, eq=False)
class Selection:
    """The settings that cross-validation chose, and the scores of all pairs."""

    lmbda: float
    alpha: float
    score: float  # R² of the chosen pair on held-out rows; the mean over several rewards
    n_folds: int
    n_rows: int  # in all folds
    results: dict[str, Results]  # as `LSTDCV.cv_results_`

    @property
    def observed_share(self) -> float:
        """Share of the discounted weight of held-out returns that was observed."""
        return float(self.results["observed_share"][0])

    @property
    def at_end(self) -> str:
        """Say at which end of several ridge coefficients the chosen one lies; empty if at none."""
        alphas = self.results["alpha"]
        least = alphas.min()
        largest = alphas.max()
        if least == largest:
            return ""
        if self.alpha == largest:
            return "largest"
        return "least" if self.alpha == least else ""

    @property
    def observed_score(self) -> float:
        """Score of the chosen pair in units of the variance of the returns before they are completed."""
        chosen = (self.results["lmbda"] == self.lmbda) & (self.results["alpha"] == self.alpha)
        return float(self.results["observed_test_score"][chosen][0])

    @property
    def arbitrary_scores(self) -> tuple[float, float] | None:
        """Least and largest of the best scores of each trace decay, if chance explains their differences; else None.

        It does if, over the folds, no mean difference to the chosen pair exceeds its standard error times the 0.975
        quantile of Student's t.
        """
        from scipy import special  # takes 0.1 s to import

        lmbdas = self.results["lmbda"]
        mean = np.nan_to_num(self.results["mean_test_score"], nan=-np.inf)
        best = []  # places of the best pair of each λ
        for lmbda in np.unique(lmbdas):
            pairs = np.flatnonzero(lmbdas == lmbda)
            place = pairs[np.argmax(mean[pairs])]
            if np.isfinite(mean[place]):
                best.append(place)
        if len(best) < 2 or self.n_folds < 2:
            return None
        folds = np.array([self.results[f"split{k}_test_score"] for k in range(self.n_folds)])
        chosen = np.flatnonzero((lmbdas == self.lmbda) & (self.results["alpha"] == self.alpha))[0]
        with np.errstate(over="ignore", invalid="ignore"):  # of scores without a bound, which chance does not explain
            difference = folds[:, [chosen]] - folds[:, best]
            error = difference.std(axis=0, ddof=1) / np.sqrt(self.n_folds)
            is_chance = np.abs(difference.mean(axis=0)) <= special.stdtrit(self.n_folds - 1, 0.975) * error
        if not is_chance.all():
            return None
        return float(mean[best].min()), float(mean[best].max())


_INSTEAD = {
    "coef_covariance_": "`predict_interval` with `weights` gives the error of any weighted sum of predictions",
    "condition_number_": "`residual_` and `n_iter_` say how well the system was solved",
    "partial_fit": "Fit to all rows at once",
}


def needs_matrix(name: str) -> str:
    """Say that an attribute or method needs the matrix, and what to do."""
    instead = f" {_INSTEAD[name]}." if name in _INSTEAD else ""
    return (
        f"`{name}` needs the matrix of the features, which the iterative solver does not form.{instead} If the matrix "
        'fits in memory, solver="direct" forms it; if not, hash the features to fewer columns, as '
        "`sklearn.feature_extraction.FeatureHasher` does."
    )


@dataclass(frozen=True, eq=False)
class MatrixFree:
    """What a model that was fitted without the matrix holds in place of sums over its n features."""

    names: tuple[str, ...] | None  # of the features, if given
    unseen: Annotated[NDArray[np.bool_], "wide"]  # those that are zero wherever a full transition starts
    n_iter: int  # products with the matrix
    residual: Annotated[float, (0.0, np.inf)]  # relative, of the scaled system


@dataclass(frozen=True, eq=False)
class Solved:
    """Weights that do not come from sums in memory, and the influence of blocks on them."""

    solution: Solution
    influence: Influence | None
    no_intervals: str  # why there is no influence; empty if there is


@dataclass(frozen=True)
class Origin:
    """The files that a model was fitted to."""

    files: tuple[str, ...]  # names, in the order of reading
    rows: int
    transitions: int
    episodes: int
    date: str  # date and time of the fit, in ISO 8601
    lstd: str = __version__
    columns: Mapping[str, str] = field(default_factory=dict)  # that were used, by role: episode, terminated, …
    fills: Mapping[str, float] = field(default_factory=dict)  # of features that may be missing
    next_features: tuple[str, ...] = ()
