"""What makes a fit doubtful by its data alone: each check says what is wrong and what to do, or nothing.

Bounds. A discounted sum of rewards between a and b, which ends at some time, is at least a if a ≥ 0, else a/(1 − γ),
and at most b if b ≤ 0, else b/(1 − γ). One that never ends lies between a/(1 − γ) and b/(1 − γ). At γ = 1 only the
finite side is a bound. Over H steps, 1 + γ + … + γ^(H−1) takes the place of 1/(1 − γ). The true values are inside, so
that the mean squared error of predictions is at least the mean of e², with e the distance to the bounds. Predictions
are doubtful if that is more than `MOST` of their variance, or the mean of e more than `MOST_OF_SPREAD` of their
standard deviation. Models of the right features stay below also where they are not exact, such as weighted sums for
values near zero.

Growing features, such as tenure and totals. Subjects who begin at about the same time have horizon rows of about the
same age, later than that of almost all full rows. A feature that grows has its largest values there, and one that
falls, such as a countdown, its least. No row shows what follows them, while predictions there complete the returns of
all rows before, so a straight line is continued where nothing was seen. A rate may grow too, towards a limit: that is
no such feature. Changes back, such as refunds, count for little
if their sum does. Ages in many cohorts are no such features: others were seen at the same age. A model says nothing of
them where predictions for horizon rows would hardly move, were they left out.

Support. Given the past, E[ρ_t] = Σ π(a|s) over the actions a that the log takes in s: 1 with support, less without. If
the probabilities behind the ratios are wrong, it is anything. So for any choice of rows by what was known before their
actions, products of the factors

    1 + κ(1 − ρ_t),  0 ≤ κ ≤ 1/M,  of which ρ_t ≤ M makes none negative,      1 + κ(ρ_t − 1),  0 ≤ κ ≤ 1,

have the expectation 1: they exceed 1/p with a probability of at most p, however the ratios are distributed (Ville;
Waudby-Smith and Ramdas 2024). A product grows if the mean of ρ is below 1, or above. The mean of several products is as
safe. A standard error is not: where a few large ratios hold the mean up, a log without one of them has a small mean and
a small standard error. M is a multiple of the largest ratio in the log, and a log says nothing about larger ones: the
text has the largest M with this evidence, above which ratios would have to be if the log takes all actions. On the
other hand, the probabilities may hold on average only, and differ among episodes. So the difference must also exceed a
quantile of Student's t times the standard error over episodes.

Episodes. Rows may not follow one another although their episode goes on. A horizon row may have a reward: it is not
used. Subjects that are still active may look closed: nearly all whom the log sees last are marked as ended.

I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import listed
from lstd.data.estimator_kinds import Parametrised
from lstd.data.feature_arrays import Features, dense
from lstd.data.ids import first_true
from lstd.data.returns import unobserved_shares
from lstd.data.rows import Rows, breaks, differ, spread
from lstd.errors import BrokenEpisodeWarning, EffectiveSampleWarning, UnusedRewardWarning, warn
from lstd.types import Array, Flags

# ------------------------------------------------------------ bounds by rewards

MOST = 0.15  # certain error, as a share of the variance of predictions,
MOST_OF_SPREAD = 0.1  # and as one of their standard deviation
FEWEST = 30  # rows below which nothing is said
_ROUNDING = 1e-9  # relative to the bounds and the predictions


def bounds_of(least: Array, most: Array, gamma: float, *, ends: bool, intercept: bool, steps: float = np.inf) -> Array:
    """Return the least and the greatest value that rewards from `least` to `most` allow, (2, m); ±inf without a bound.

    They are of the sum over some `steps`. Without an intercept, the ridge term shrinks predictions to zero, which is
    then within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd.data.doubts import bounds_of
    >>> bounds_of(np.array([1.0]), np.array([3.0]), 0.5, ends=True, intercept=True).tolist()
    [[1.0], [6.0]]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = np.divide(1.0 - gamma**steps, 1.0 - gamma) if gamma < 1.0 else steps  # 1 + γ + … + γ^(H−1)
        near = 1.0 if ends or far == np.inf else far
        low = np.where(least < 0.0, far, near) * least
        high = np.where(most > 0.0, far, near) * most
    if not intercept:
        low = np.minimum(low, 0.0)
        high = np.maximum(high, 0.0)
    return np.stack([low, high])


@np.errstate(all="ignore")  # an overflow shows as inf or NaN
def distance(prediction: Array, bounds: Array) -> Array:
    """Return how far predictions (T, m) are outside of bounds (2, m) or (2, T, m); 0 inside and for rounding."""
    low, high = bounds
    outside = np.maximum(low - prediction, prediction - high)
    bound = np.where(prediction > high, np.abs(high), 0.0)
    bound = np.where(prediction < low, np.abs(low), bound)
    size = np.abs(prediction) + bound
    return np.where(outside > _ROUNDING * size, outside, 0.0)


def sides(prediction: Array, bounds: Array) -> str:
    """Say of predictions (T,) which share is below and above bounds (2,) or (2, T), of which the last are shown."""
    low, high = bounds
    texts = []
    below = prediction < low
    if below.any():
        texts.append(f"{percent(below.mean())} are below {np.ravel(low)[-1]:.4g}, down to {prediction.min():.4g}")
    above = prediction > high
    if above.any():
        texts.append(f"{percent(above.mean())} are above {np.ravel(high)[-1]:.4g}, up to {prediction.max():.4g}")
    return " and ".join(texts)


def percent(share: float) -> str:
    """Return a share of at most one with two digits.

    Examples
    --------
    >>> from lstd.data.doubts import percent
    >>> percent(1.0), percent(0.0123)
    ('100 %', '1.2 %')
    """
    return f"{float(f'{100.0 * min(share, 1.0):.2g}'):g} %"


# ------------------------------------------------------------ observed returns and effective samples


class Hidden(NamedTuple):
    """What follows where most of the returns was not observed, and what to do."""

    effect: str
    remedy: str


_SEE_MORE = "use a smaller `gamma` or longer episodes"
COMPLETED = Hidden("they decide the model more than rewards do", _SEE_MORE)
COMPLETED_STEPS = Hidden(
    "they decide the values of many steps more than rewards do", "use a smaller `horizon` or longer episodes"
)
HARD_TO_CHOOSE = Hidden(
    "the data can hardly tell which `lmbda` and `alpha` are best: held-out R² is {:.3g}, {:.3g} of the observed part "
    "alone",
    _SEE_MORE,
)
SELF_SCORED = Hidden("the score mostly compares the model with itself", "score longer episodes")
UNTESTED = (
    "Whether totals come out right, this does not say: `lstd.metrics.backtest` does, which compares predictions with "
    "what came."
)
FEW = 10.0  # warn below this size,
_SHARE = 0.5  # and only if it is less than half of what the data alone leave


def little_observed(share: float | None, hidden: Hidden) -> str:
    """Say that less than half of the discounted weight was observed; empty if that is not so."""
    if share is None or share >= 0.5:
        return ""
    return (
        f"Only {100 * share:.2g} % of the discounted weight of the returns was observed; predictions complete the "
        f"rest, so {hidden.effect}. {UNTESTED} To observe more, {hidden.remedy}, and flag those that ended for good as "
        "terminated."
    )


def with_backtest(text: str, result: str) -> str:
    """Return a text of :func:`little_observed` with what a backtest said, if one was run, in place of its name."""
    if not result:
        return text
    return text.replace(UNTESTED, result)


# Results of backtests by estimator, with the parameters that it had.
_TESTED: WeakKeyDictionary[object, tuple[str, str]] = WeakKeyDictionary()


def remember_backtest(estimator: Parametrised, result: str) -> None:
    """Remember what a backtest said of an estimator, for texts about returns that were not observed."""
    with contextlib.suppress(TypeError):  # of estimators that have no weak references, or no hash
        _TESTED[estimator] = (_parameters_of(estimator), result)


def backtest_of(estimator: Parametrised) -> str:
    """Return what the last backtest of an estimator said; empty without one, or after a change of its parameters."""
    parameters, result = _TESTED.get(estimator, ("", ""))
    if result and parameters == _parameters_of(estimator):
        return result
    return ""


def _parameters_of(estimator: Parametrised) -> str:
    return repr(sorted(estimator.get_params().items()))


def small(size: Array, lmbda: float) -> tuple[bool, bool]:
    """Return whether ratios and weights leave little of much data; at λ = 0 there are no products of ratios."""
    ratios, weights, without = size
    few = min(FEW, _SHARE * without) if without >= FEW else 0.0
    return bool(lmbda > 0.0 and ratios < few), bool(weights < few)


def warn_of_ratios(sizes: Array, off_policy: bool, lmbda: float) -> bool:
    """Give an EffectiveSampleWarning if ratios, or weights, leave little of much data; return whether it was given.

    `sizes` (3,) and `off_policy` are those of :class:`lstd.statistics.counts.Sample`.
    """
    few_of_ratios, few_of_weights = small(sizes, lmbda)
    if few_of_ratios:
        what = "importance ratios" if off_policy else "trace coefficients"
        why = f"at `lmbda` {lmbda:g}, a few products of ratios decide the solution. Use a smaller `lmbda`"
        warn(f"With these {what} {_counted(sizes[0], sizes[2])}: {why}.", EffectiveSampleWarning)
    if few_of_weights:
        why = "a few rows decide the solution. Limit `weight` to a few times its mean, or fit more data"
        warn(f"With these weights {_counted(sizes[1], sizes[2])}: {why}.", EffectiveSampleWarning)
    return few_of_ratios or few_of_weights


def _counted(size: float, without: float) -> str:
    """Say as how much data the rows count, with and without ratios or weights."""
    left = "less than one run" if size < 1.0 else f"{size:.2g} runs"  # products above 1 count as correlations
    return f"the data count as {left} of independent rows, and as {without:.0f} without them"


# ------------------------------------------------------------ growing features

_FEWEST = 20  # horizon rows
_ROWS_AT_ONCE = 2**14
_LEAST_UNOBSERVED = 0.1  # mean share of the returns behind horizon rows
_AS_OLD = 0.1  # most full rows as old as half of the horizon rows: 0 in one cohort, 1/4 if subjects join at all times
_LEAST_GROWING = 0.2  # share of the episodes
_AT_TOP = 0.02  # most full rows at the largest value of horizon rows; a feature with a limit has more
_BACK = 0.02  # most episodes, and most of the sum of all changes, in which a feature changes back
_LATE = 0.25  # least share of the growth in the later half of episodes: 1/2 of an age, 1/5 of most shrunken rates


class Growing(NamedTuple):
    """Features, by number, that only grow within one cohort of episodes, and those that only fall."""

    grown: list[int]
    fallen: list[int]

    @property
    def features(self) -> list[int]:
        """All of them."""
        return self.grown + self.fallen


_NONE_GROWS = Growing([], [])


def growing_doubt(rows: Rows) -> str:
    """Say which features only grow within one cohort of episodes, and what to do; empty if none do."""
    found = growing(rows)
    if not found.features:
        return ""
    return text_of_growing(rows, found)


def growing(rows: Rows) -> Growing:
    """Return the features that only grow within one cohort of episodes."""
    full = rows.full
    ends = np.flatnonzero(rows.last)
    begins = np.append(0, ends[:-1] + 1)
    open_ends = ~full[ends] & (ends > begins)
    first = begins[open_ends]
    last = ends[open_ends]
    if len(last) < _FEWEST or not _one_way(rows.X[first[:_FEWEST]], rows.X[last[:_FEWEST]]).any():
        return _NONE_GROWS
    age = _by_episodes(_ages, rows)
    if np.mean(age >= np.median(age[last]), where=full) > _AS_OLD:
        return _NONE_GROWS
    if np.mean(_by_episodes(unobserved_shares, rows), where=full) < _LEAST_UNOBSERVED:
        return _NONE_GROWS
    kept = np.arange(rows.X.shape[1])
    change = rows.X[last] - rows.X[first]
    if sparse.issparse(change):  # with many features, only those that may be among them are made dense
        kept = np.flatnonzero(np.asarray((change != 0.0).sum(axis=0)) >= _LEAST_GROWING * len(last))
    path = _Path(*(dense(rows.X[at][:, kept]) for at in (first, (first + last) // 2, last)))
    grown = _growing(rows, kept, path, 1.0)
    fallen = _growing(rows, kept, path, -1.0)
    return Growing(grown, fallen)


class _Path(NamedTuple):
    """Features of the first row of each open episode, the one half-way, and the horizon row, (I, k)."""

    start: Array
    middle: Array
    stop: Array


def _growing(rows: Rows, kept: NDArray[np.intp], path: _Path, sign: float) -> list[int]:
    """Return which of the features `kept`, times `sign`, only grow."""
    moved = _moves(_Path(*(sign * values for values in path)))
    return [j for at, j in enumerate(kept.tolist()) if moved[at] and _outgrows(rows, j, path.stop[:, at], sign)]


def _moves(path: _Path) -> Flags:
    """Whether each feature, (n,), grows within episodes by more than it differs among their first rows, to the end.

    Where growth fades, as that of a shrunken rate, rows that are followed by others have nearly the largest values.
    """
    start = path.start
    stop = path.stop
    low, high = np.quantile(start, [0.25, 0.75], axis=0)
    grows = (np.mean(stop < start, axis=0) <= _BACK) & (np.mean(stop > start, axis=0) >= _LEAST_GROWING)
    growth = np.mean(stop - start, axis=0)
    late_growth = np.mean(stop - path.middle, axis=0)
    return np.asarray(grows & (growth > high - low) & (late_growth >= _LATE * growth))


def text_of_growing(rows: Rows, found: Growing) -> str:
    """Say which features only grow and only fall, and what to do."""
    both = []
    if found.grown:
        names = listed([_name(rows, j) for j in found.grown], 5)
        both.append(f"that only grow within an episode ({names}) have their largest values")
    if found.fallen:
        names = listed([_name(rows, j) for j in found.fallen], 5)
        both.append(f"that only fall within an episode ({names}) have their least values")
    return (
        f"Features {' and those '.join(both)} in horizon rows, where no row "
        "shows what follows. Predictions there complete the returns of the rows before, and may be far off. Leave "
        "them out, or use features that stay in the range seen before: recent rates, shrunken rates such as (total + "
        "a) / (age + b), or a recency with a limit. Compare predictions with what followed (`lstd.metrics.backtest`)."
    )


def _name(rows: Rows, j: int) -> str:
    return f"x{j}" if rows.names is None else repr(rows.names[j])


def _one_way(start: Features, stop: Features) -> Flags:
    """Whether each feature, (n,), is almost never less, or almost never more, in the last rows than in the first."""
    fell = np.asarray((stop < start).sum(axis=0))
    grew = np.asarray((start < stop).sum(axis=0))
    return np.asarray(np.minimum(fell, grew) <= max(1.0, _BACK * start.shape[0]))


def _by_episodes(function: Callable[[Rows], Array], rows: Rows) -> Array:
    """Compute numbers of rows, (T,), for a few episodes at a time: temporaries take some 60 bytes a row."""
    numbers = np.empty(len(rows))
    for first, end in rows.whole_episodes(_ROWS_AT_ONCE):
        numbers[first:end] = function(rows.taken(slice(first, end)))
    return numbers


def _ages(rows: Rows) -> Array:
    """Time since each episode began, (T,), in steps, or by the discounts of rows if they have their own."""
    passed = np.arange(float(len(rows)))
    if rows.own_discounts:
        steps = np.where((rows.discount > 0.0) & (rows.discount < 1.0), rows.discount, np.exp(-1.0))
        passed = np.append(0.0, np.cumsum(-np.log(steps))[:-1])
    begins = rows.begins_episode
    return np.asarray(passed - passed[begins][np.cumsum(begins) - 1])


def _outgrows(rows: Rows, j: int, stop: Array, sign: float) -> bool:
    """Whether a feature times `sign` hardly decreases, and few full rows have the largest value of horizon rows.

    `stop` has its values there.
    """
    x = sign * dense(rows.X[:, [j]])[:, 0]
    seen = x[rows.full]
    change = np.diff(x)[~rows.last[:-1]]
    if not seen.max() > seen.min() or np.mean(seen >= (sign * stop).max()) > _AT_TOP:
        return False
    return bool(-change[change < 0.0].sum() <= _BACK * change[change > 0.0].sum())


# ------------------------------------------------------------ support

_CHANCE = 1e-2  # of a warning about right probabilities with support, over all choices of rows
_SMALL = 0.05  # differences from 1 below which there is no warning, however certain they are
_TOLD = 0.7  # of the largest difference: the first choice of rows with so much is named
_LARGER = 1.5  # M over the largest ratio
_SHARES = 0.25 ** np.arange(5)  # values of κ, in units of the largest
_FINE = 2.0 ** -np.arange(0.0, 12.0, 0.25)  # those at which the largest M is looked for
_PARTS = 8  # of the log, at most,
_MOST = 2**15  # rows,
_FOR_MEANS = 2**12  # and rows for means of features
TENTHS = np.arange(1, 10) / 10
_AT_ONCE = 2**17  # entries of dense features
_FEW = 10  # groups or episodes, or rows if the log has fewer than twice as many, that a mean needs


@np.errstate(over="ignore", invalid="ignore")
def support_doubt(rows: Rows, ratio: Array, value: Array | None = None) -> str:
    """Say where the mean of `ratio`, (T,), is not one, and what to do; empty if it is.

    It is tested over full transitions, or a part of them from all over the log, by features (rows above and not above
    their mean), by time, and by tenths of the predicted `value` (T,) of states, if given.
    """
    chosen = np.flatnonzero(rows.full)
    chosen = chosen[spread(len(chosen), _MOST)]
    ratio = ratio[chosen]
    if not (ratio != 1.0).any():
        return ""
    largest_ratio = _LARGER * max(1.0, float(ratio.max()))  # M of the module header
    low = _SHARES / largest_ratio  # its κ ≤ 1/M, for a mean below 1
    high = 0.5 * _SHARES  # its κ ≤ 1, for a mean above 1
    # log(1 + κ(1 − ρ)), then log(1 + κ(ρ − 1))
    factors = np.log1p(np.append(-low, high) * (ratio - 1.0)[:, np.newaxis])
    block = np.searchsorted(np.flatnonzero(rows.begins), chosen, side="right")
    if block[-1] - block[0] < 2 * _FEW:
        block = np.arange(len(chosen))
    n_parts = min(_PARTS, 1 + (block[-1] - block[0]) // _FEW)
    choices = _Choices(rows, chosen, n_parts, value)
    sums = choices.sums(np.column_stack([np.ones_like(ratio), ratio, factors]))
    mean = sums[:, 1] / np.maximum(sums[:, 0], 1.0)
    evidence = np.logaddexp.reduce(sums[:, 2:], axis=1) - np.log(factors.shape[1])
    chance = _CHANCE / np.count_nonzero(sums[:, 0])
    off = np.where(evidence > -np.log(chance), np.abs(mean - 1.0), 0.0)
    order = np.argsort(-np.where(off > _TOLD * off.max(), np.inf, off), kind="stable")
    for choice in order[: np.count_nonzero(off)]:
        mask, words = choices.described(int(choice))
        error, most = _standard_error(ratio[mask], block[mask], chance)
        if off[choice] > max(_SMALL, most):
            larger = np.inf
            if mean[choice] < 1.0:
                larger = _larger(ratio[mask], chance / factors.shape[1])
            return _text(mean[choice], error, mean[0], words, larger)
    return ""


class _Choices:
    """Choices of rows: all, above and not above the mean of each feature, parts of the log, steps, tenths by value."""

    def __init__(self, rows: Rows, chosen: NDArray[np.intp], parts: int, value: Array | None) -> None:
        self.X = rows.X
        self.names = rows.names
        self.rows = chosen
        n_features = rows.X.shape[1]
        self.means = np.zeros(n_features)
        at_once = len(chosen)
        if not sparse.issparse(rows.X):
            self.means = rows.X[chosen[spread(len(chosen), _FOR_MEANS)]].mean(axis=0)
            at_once = max(1, _AT_ONCE // n_features)
        self.batches = [slice(begin, begin + at_once) for begin in range(0, len(chosen), at_once)]
        first = np.flatnonzero(rows.begins_episode)
        self.step = chosen - first[np.searchsorted(first, chosen, side="right") - 1]
        edges = np.unique(np.quantile(self.step, (0.0, 0.25, 0.5, 0.75), method="lower")) + 1
        part = np.arange(len(chosen)) * parts // len(chosen)
        self.labels = [part, np.searchsorted(edges, self.step, side="right")]
        self.value: NDArray[Any] = self.step
        if value is not None:
            self.value = value[chosen]
            self.labels.append(np.searchsorted(np.unique(np.quantile(self.value, TENTHS)), self.value))
        self.ends = np.cumsum([1, n_features, n_features, *(label.max() + 1 for label in self.labels[:2])])

    def above(self, part: slice, features: slice = slice(None)) -> Features:
        """Return whether features of some rows are above their means, as an array or sparse."""
        rows = self.rows[part]
        if isinstance(self.X, np.ndarray) and self.X.flags.c_contiguous and features == slice(None):
            return self.X.take(rows, axis=0) > self.means  # faster than an index
        found: Features = self.X[rows, features]
        if sparse.issparse(found):
            return found > 0.0
        return found > self.means[features]

    def sums(self, values: Array) -> Array:
        """Return sums of values (N, J) over each choice, (K, J)."""
        above = sum(self.above(batch).astype(np.float64).T @ values[batch] for batch in self.batches)
        times = [(label == np.arange(label.max() + 1)[:, np.newaxis]) * 1.0 @ values for label in self.labels]
        whole = values.sum(axis=0)
        return np.vstack([whole, above, whole - above, *times])

    def described(self, choice: int) -> tuple[Flags, str]:
        """Return whether each row is in a choice, (N,), and in words which rows are."""
        kind = int(np.searchsorted(self.ends, choice, side="right"))
        if kind == 0:
            return np.ones(len(self.rows), np.bool_), "of all rows"
        j = int(choice - self.ends[kind - 1])
        if kind < 3:
            above: Flags = np.asarray(dense(self.above(slice(None), slice(j, j + 1)))[:, 0], np.bool_)
            name = f"x{j}" if self.names is None else self.names[j]
            if kind == 1:
                return above, f"of rows with {name} above {self.means[j]:.3g}"
            return ~above, f"of rows with {name} not above {self.means[j]:.3g}"
        mask = self.labels[kind - 3] == j
        numbers = (self.rows, self.step, self.value)[kind - 3][mask]
        tenth = "of rows with a predicted value of {:.3g} to {:.3g}"
        text = ("of rows {} to {}", "of steps {} to {} of episodes", tenth)[kind - 3]
        return mask, text.format(numbers.min(), numbers.max())


def _standard_error(ratio: Array, block: NDArray[np.intp], chance: float) -> tuple[float, float]:
    """Compute the standard error of a mean of independent blocks, and the difference from it that chance explains."""
    from scipy import special  # takes 0.1 s to import

    n = len(np.unique(block))
    error = float(np.linalg.norm(np.bincount(block, ratio - ratio.mean())) / len(ratio))
    if n < _FEW:
        return error, np.inf
    return error, error * float(special.stdtrit(n - 1, 1.0 - 0.5 * chance))


def _larger(ratio: Array, chance: float) -> float:
    """Return the largest M at which a mean below 1 is not by chance: with support, some ratios must be above it."""
    kappa = _FINE / (_LARGER * max(1.0, float(ratio.max())))
    evidence = np.array([np.log1p(-k * (ratio - 1.0)).sum() for k in kappa])
    return float(1.0 / kappa[evidence >= min(-np.log(chance), evidence.max())].min())


def _text(mean: float, error: float, whole: float, rows: str, larger: float) -> str:
    """Say that the mean ratio of some rows is not 1, why that may be, and what to do; `whole` is that of all rows."""
    below = (
        f"the log does not take all actions of the target policy, or takes some more than {larger:.2g} times less "
        "often, so that these rows have too few of them; or the probabilities behind the ratios are wrong"
    )
    above = "the probabilities behind the ratios are wrong; those of logged actions are too small"
    why = below if mean < 1.0 else above
    of_all = "" if mean == whole else f" (of all rows {whole:.3g})"
    return (
        f"The mean importance ratio {rows} is {mean:.3g}, with a standard error of {error:.2g}, and not 1{of_all}: "
        f"{why}. Values of the target policy may be far off. Check the probabilities with "
        "`lstd.ope.action_calibration`, or choose a target policy whose actions the log takes."
    )


# ------------------------------------------------------------ episodes


_COUNTED_TWICE = (
    ", and rows have an `importance_ratio`. If `{X_next}` holds expected successors under the target policy, leave the "
    "ratio out: it would count that policy twice. Use it only in `trace_coefficient`, as lstd.ope.LSTDQ does."
)
_TRACED = (
    ". The trace continues, because rows are taken in time order. If `{X_next}` holds expected successors, as for "
    "action values, pass `trace_coefficient`, such as min(1, ratio), in place of any `importance_ratio`, or use "
    "lstd.ope.LSTDQ. Give transitions that do not follow one another different ids in `episode`, or use lmbda=0."
)
_APART = " Give transitions that do not follow one another different ids in `episode`."
_ROWS_COUNTED = 2**12  # the first rows, of which entries are counted,
_FEWEST_COUNTED = 20  # and the fewest of them
_REMEDY = "Append a row with the features of the state that followed and no reward, or flag the episode as terminated."
_FEWEST_ENDS = 10  # subjects that end at the latest time
_NEARLY_ALL = 0.9  # of the subjects seen at the latest time,
_MANY = 0.3  # and of all ends


class Break(NamedTuple):
    """Successors that disagree with the rows after them, in what they are used for."""

    row: int | None  # that is not the successor given for the row before; None if most successors mix features
    traced: bool  # whether a trace connects the rows; if not, ratios count for the successors
    place: Any = None  # chunk or file


def find_break(rows: Rows, lmbda: float, before: Array | None = None, *, ids: bool | None = None) -> Break | None:
    """Return the first row that is not the successor of the row before it, if that makes the sums wrong.

    It does if a trace connects the two rows. At `lmbda` 0 there are no traces, and trace coefficients say where they
    end. In both cases it does if there are ratios, and `ids` of episodes (by default: those of `rows`) that connect the
    rows. Without ids, successors that mix features as no row does show that they are expected ones.

    `before` is the successor, by `X_next`, of the row before these, if its episode continues.
    """
    if rows.X_next is None or not len(rows):
        return None
    traced = lmbda > 0.0 and "trace_coefficient" not in rows.given
    with_ratios = "importance_ratio" in rows.given
    if not traced and with_ratios and _are_mixed(rows):
        return Break(None, traced)
    if ids is None:
        ids = rows.episode is not None
    if not traced and not (with_ratios and ids):
        return None
    row = _first_break(rows, before)
    if row is None:
        return None
    if rows.order is not None:
        row = int(rows.order[row])
    return Break(row, traced)


def _first_break(rows: Rows, before: Array | None) -> int | None:
    """Return the first row that is not the successor given for the row before it; None if all are."""
    if before is not None and differ(rows.X[:1], before[np.newaxis, : rows.X.shape[1]])[0]:
        return 0
    row = first_true(breaks(rows))
    if row is None:
        return None
    return row + 1


def warn_of_breaks(rows: Rows, lmbda: float, before: Array | None = None) -> bool:
    """Warn of what :func:`find_break` returns; return whether there is one."""
    found = find_break(rows, lmbda, before)
    if found is not None:
        warn_of_break(found)
    return found is not None


def assumed_cut(what: str = "`episode` was given without `terminated`") -> str:
    """Ask whether ends were seen, where all episodes are taken as cut off; `what` says which argument is missing."""
    return (
        f"Were ends seen? {what}, so every episode is taken as cut off, and only the features of its last row are "
        "used. If some episodes ended for good, give `terminated`: true on their last rows, false elsewhere. If no end "
        "was seen, say so: `terminated=False`."
    )


def warn_of_break(found: Break, where: str = "", *, columns: bool = False) -> None:
    """Warn of a break in the arrays X and X_next, or in named `columns`, of the data named by `where`."""
    names = {"X": "X", "X_next": "X_next", "of": " of `X`"}
    if columns:
        names = {"X": "features", "X_next": "next_features", "of": " (the first row of data is 1)"}
    if found.row is None:
        text = "most rows of `{X_next}` have more entries other than zero than any row of `{X}`" + _COUNTED_TWICE
    else:
        text = "row {row}{of} is not the successor that `{X_next}` gives for the row before it, in the same episode"
        text += _TRACED if found.traced else _COUNTED_TWICE + _APART
    text = text.format(**names, row=found.row)
    text = f"{where}: {text}" if where else text[0].upper() + text[1:]
    warn(text, BrokenEpisodeWarning)


def _are_mixed(rows: Rows) -> bool:
    """Whether most successors have more entries other than zero than any row, as expected ones of one-hot actions do.

    Observed successors are rows like others. With dense features, or a policy that takes one action, it does not show.
    """
    first = slice(0, _ROWS_COUNTED)
    X_next: Features = rows.X_next
    of_rows = (rows.X[first] != 0.0).sum(axis=1)
    of_successors = (X_next[first] != 0.0).sum(axis=1)
    of_inner = of_successors[~rows.terminated[first]]
    return len(of_inner) >= _FEWEST_COUNTED and bool(np.mean(of_inner > of_rows.max()) > 0.5)


# ------------------------------------------------------------ rewards of horizon rows


def unused_rows(rows: Rows, end: int) -> NDArray[np.intp]:
    """Return the horizon rows with rewards other than 0 and NaN among the rows before `end`, none of them pending."""
    if rows.X_next is not None:
        return np.empty(0, np.intp)
    (horizon,) = (rows.cut & rows.known)[:end].nonzero()
    return horizon[rows.y[horizon].any(axis=1)]


def warn_of_unused(lost: int, count: int) -> None:
    """Warn of `count` unused rewards if any is `lost`; that of a pending row is not, as the next chunk may use it."""
    if lost:
        warn(f"{unused_rewards(count)} {_REMEDY}", UnusedRewardWarning)


def unused_rewards(count: int) -> str:
    """Return a sentence about rewards that are not used."""
    if count == 1:
        return "1 reward of a last row is not used: its successor is unknown."
    return f"{count} rewards of last rows are not used: their successor is unknown."


# ------------------------------------------------------------ subjects that look closed


class TimesOfEnds(NamedTuple):
    """Counts of rows at the earliest and the latest time of a log, and of ends; they merge exactly.

    A subject has one row at a time. Of the subjects with a row at the latest time of a log, few end just then, unless
    the log marks every last row as an end. Where all subjects begin at the earliest time, the clock may be one of each
    episode, and then the latest time is a fixed length. So nothing is said of such logs. Where a whole log is at hand,
    a last row counts as one at the latest time within a step of it, and a first row likewise.
    """

    earliest: Annotated[Any, "time"] = None
    n_earliest: int = 0
    latest: Annotated[Any, "time"] = None
    n_latest: int = 0
    ended_latest: int = 0  # of the rows at the latest time, those that terminate
    ended: int = 0

    @classmethod
    def of(cls, times: NDArray[Any] | None, terminated: Flags, last: Flags | None = None) -> TimesOfEnds:
        """Count rows (T,), if they have times; with the `last` rows of episodes of a whole log, within a usual step."""
        if times is None or not len(times):
            return cls()
        first = times.min()
        latest = times.max()
        early = times == first
        late = times == latest
        if last is not None:
            steps = (times[1:] - times[:-1])[~last[:-1]]
            if len(steps):
                usual = np.sort(steps)[len(steps) // 2]
                early |= np.append(True, last[:-1]) & (times - first < usual)
                late |= last & (latest - times < usual)
        return cls(
            earliest=first.item(),
            n_earliest=int(np.count_nonzero(early)),
            latest=latest.item(),
            n_latest=int(np.count_nonzero(late)),
            ended_latest=int(np.count_nonzero(late & terminated)),
            ended=int(np.count_nonzero(terminated)),
        )

    def scaled(self, factor: int) -> TimesOfEnds:
        """Return the counts with times in another unit."""
        if self.latest is None:
            return self
        return self._replace(earliest=factor * self.earliest, latest=factor * self.latest)

    def then(self, other: TimesOfEnds) -> TimesOfEnds:
        """Return the counts of both."""
        if self.latest is None:
            return other
        if other.latest is None:
            return self
        earliest = min(self.earliest, other.earliest)
        latest = max(self.latest, other.latest)
        at_start = [counts for counts in (self, other) if counts.earliest == earliest]
        at_end = [counts for counts in (self, other) if counts.latest == latest]
        return TimesOfEnds(
            earliest=earliest,
            n_earliest=sum(counts.n_earliest for counts in at_start),
            latest=latest,
            n_latest=sum(counts.n_latest for counts in at_end),
            ended_latest=sum(counts.ended_latest for counts in at_end),
            ended=self.ended + other.ended,
        )

    def doubt(self) -> str:
        """Say that nearly all subjects seen at the latest time are marked as ended, and many ends lie there, if so."""
        n = self.ended_latest
        if n < max(_FEWEST_ENDS, _NEARLY_ALL * self.n_latest, _MANY * self.ended):
            return ""
        if self.n_earliest >= 0.5 * self.ended:  # the clock may be one of each episode
            return ""
        return (
            f"{n} of {self.ended} ends (`terminated`) lie at the latest time of the log, where {self.n_latest} "
            "subjects have a row. A log often marks each last row as an end. Subjects who are still active then look "
            "as if they had ended for good, and their values are too low wherever rewards go on. Leave `terminated` "
            "false for them, and give each a horizon row: a last row with the features of today and no reward. Only if "
            "no reward can follow, as after the last day of a season, they have ended."
        )


NO_TIMES = TimesOfEnds()
