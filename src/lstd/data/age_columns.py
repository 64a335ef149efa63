"""The columns that take the place of the age of a subject: what is new, decays.

Let s be the steps since the subject was first seen, and x the other features. Short-lived effects of a beginning are
weighted sums of e^(−s/4ᵏ), k = 0, 1, … while 4ᵏ ≤ H, for horizons up to H. All are 1 at entry, and none grows, so that
predictions for subjects older than any that was seen stay in range. The products of x with the first and the last of
them let the effect of each feature change with age: at once, and as slowly as the horizon can show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.arguments import check_integer
from lstd.data.feature_arrays import Features, check_finite, dense
from lstd.data.ids import first_true
from lstd.data.rows import Record, Rows
from lstd.errors import InvalidInputError
from lstd.types import Array

_BASE = 4.0  # ratio of two scales
_PER_OCTAVE = 8  # bins of the ages of rows, each from one power of 2 to the next
_BINS = 256  # of which those above 2³² − 1 steps are in the last one
_AS_OLD = 0.1  # most full rows as old as the median of rows to predict: 0 in one cohort, 1/4 if subjects join always


@dataclass(frozen=True, eq=False)
class AgeColumns(Record):
    """Where the age is among n features, the columns that replace it, and the ages of the rows of a fit.

    Attributes
    ----------
    place : int
        Number of the feature that is the age.
    n_given : int
        Number of features, n.
    n_scales : int
        Number of decays, e^(−s/4ᵏ).
    counts : ndarray of shape (n_bins,)
        Full transitions of the fit by age.
    total : float
        Sum of the ages of all rows of the fit,
    n_rows : int
        and their number.
    """

    place: int
    n_given: int
    n_scales: int
    counts: Annotated[Array, "_"]
    total: float = 0.0
    n_rows: int = 0

    @classmethod
    def in_place_of(cls, age: Any, names: tuple[str, ...] | None, n_given: int, horizon: int) -> AgeColumns:
        """Return the columns of a name or a number of a feature, before any row.

        Raises InvalidInputError when there is no such feature.
        """
        if isinstance(age, str):
            if names is None or age not in names:
                has = "features without names"
                if names is not None:
                    has = f"{list(names)!r:.200}"
                raise InvalidInputError(f"`age` must be the name of a feature; got {age!r}, and `X` has {has}.")
            place = names.index(age)
        else:
            place = check_integer("age", age, 0, n_given - 1)
        n_scales = 1
        while _BASE**n_scales <= horizon:
            n_scales += 1
        return cls(place, n_given, n_scales, np.zeros(_BINS))

    @property
    def _others(self) -> NDArray[np.intp]:
        """Numbers of the other features."""
        return np.delete(np.arange(self.n_given), self.place)

    @property
    def _multiplied(self) -> list[int]:
        """Numbers of the decays that the other features are multiplied by."""
        return sorted({0, self.n_scales - 1})

    @property
    def sources(self) -> NDArray[np.intp]:
        """Number of the feature with which each column counts: the age for its decays, x for the products of x."""
        decays = np.full(self.n_scales, self.place)
        return np.concatenate([self._others, decays, *[self._others] * len(self._multiplied)])

    def names(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the columns from those of the features."""
        age = given[self.place]
        scales = [f"exp(-{age})", *(f"exp(-{age}/{_BASE**k:g})" for k in range(1, self.n_scales))]
        others = [given[j] for j in self._others.tolist()]
        products = [f"{name} * {scales[k]}" for k in self._multiplied for name in others]
        return (*others, *scales, *products)

    def age(self, phi: Features) -> Array:
        """Return the ages of rows, (T,), from their features (T, n).

        Raises InvalidInputError when one is negative.
        """
        found = dense(phi[:, [self.place]])[:, 0]
        if (row := first_true(found < 0.0)) is not None:
            raise InvalidInputError(
                f"`age` must be a feature of steps since the subject was first seen, at least 0; row {row} has "
                f"{found[row]:g}. Correct it, or name another feature."
            )
        return np.asarray(found, np.float64)

    def columns(self, phi: Features, names: tuple[str, ...] | None = None) -> Features:
        """Return the columns of rows from their features (T, n), which must be finite and have these names."""
        check_finite("X", phi, names)
        scales = _BASE ** np.arange(self.n_scales)
        decays = np.exp(-self.age(phi)[:, np.newaxis] / scales)
        others = phi[:, self._others]
        if sparse.issparse(phi):
            products = [sparse.diags_array(decays[:, k]) @ others for k in self._multiplied]
            return sparse.hstack([others, sparse.csr_array(decays), *products], format="csr")
        products = [others * decays[:, [k]] for k in self._multiplied]
        return np.hstack([others, decays, *products])

    def slopes(self, phi: Array, coef: Array) -> Array:
        """Return the derivatives by the features (T, n) of columns times weights (…, n_columns), (T, …, n)."""
        scales = _BASE ** np.arange(self.n_scales)
        decays = np.exp(-phi[:, [self.place]] / scales)
        n = len(self._others)
        others = phi[:, self._others]
        by_age = (coef[..., n : n + self.n_scales] / -scales) @ decays.T  # (…, T)
        by_others = np.broadcast_to(coef[..., :n], (len(phi), *coef.shape[:-1], n)).copy()
        first = n + self.n_scales
        for k in self._multiplied:
            weights = coef[..., first : first + n]
            by_age = by_age - (weights @ others.T) * decays[:, k] / scales[k]
            by_others += np.multiply.outer(decays[:, k], weights)
            first += n
        return np.insert(by_others, self.place, np.moveaxis(by_age, -1, 0), axis=-1)

    def without(self, rows: Rows) -> Rows:
        """Return rows without the age."""
        names = rows.names
        if names is not None:
            names = tuple(names[j] for j in self._others.tolist())
        return rows.changed(X=rows.X[:, self._others], names=names)

    # ------------------------------------------------------------ ages of the fit

    def then(self, rows: Rows) -> AgeColumns:
        """Return the columns with the ages of the next rows of a fit."""
        age = self.age(rows.X)
        counts = self.counts + np.bincount(_bins(age[rows.full]), minlength=_BINS)
        return self.changed(counts=counts, total=self.total + float(age.sum()), n_rows=self.n_rows + len(rows))

    def doubt(self, phi: Features, name: str) -> str:
        """Say that rows to predict for are older than almost all that were followed; empty if they are not."""
        if not self.counts.any():
            return ""
        median = float(np.median(self.age(phi)))
        (bin_of_median,) = _bins(np.array([median])).tolist()
        older = self.counts[bin_of_median:].sum() / self.counts.sum()
        if older > _AS_OLD:
            return ""
        return (
            f"Half of these rows have a `{name}` of {median:.4g} or more; {100.0 * older:.2g} % of the rows of the fit "
            "that were followed by others are as old. What comes at such ages was hardly seen, and predictions may be "
            "far off. Compare models by `lstd.metrics.backtest`, or leave `age` out."
        )


def _bins(age: Array) -> NDArray[np.intp]:
    """Return the bin of each age."""
    octaves = np.log2(1.0 + age)
    return np.asarray(np.minimum(_PER_OCTAVE * octaves, _BINS - 1), dtype=np.intp)
