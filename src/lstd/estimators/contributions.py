"""Why predictions are what they are: what each feature contributes to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd.data.age_columns import AgeColumns
from lstd.data.feature_arrays import Features, dense
from lstd.errors import InvalidInputError
from lstd.estimators.linear import Linear
from lstd.estimators.model_parts import two_digits
from lstd.statistics.intervals import Influence
from lstd.types import Array, Flags


@dataclass(frozen=True, eq=False, repr=False)
class Contributions:
    """Why predictions are what they are: the contribution of each feature; T rows, n features, m rewards.

    A prediction is the one for a row with the mean of every feature, plus coef · (x − mean) for each feature, moved to
    the nearest of the bounds `low` and `high` of a HorizonLSTD if it is beyond. The mean is over the rows of the fit,
    or a part of them from all over if they are many.

    Attributes
    ----------
    values, standard_error : ndarray of shape (T, n) or (T, m, n)
        Contributions, which with `base` and `by_bounds` add up to the predictions, and their standard errors over data
        sets with the means as given; NaN if the model has no intervals. Features that go together share their effect in
        one way or another, so their errors are large: then look at sums of contributions.
    base : float or ndarray of shape (m,)
        Prediction at the means.
    x : ndarray of shape (T, n)
        The features of the rows.
    means : ndarray of shape (n,)
    coef : ndarray of shape (n,) or (m, n)
        Of a HorizonLSTD with an age, the slopes of the predictions at each row, as `values`: the contribution of a
        feature has that of its products with functions of the age.
    names : tuple of str
        Names of the features.
    by_bounds : ndarray of shape (T,) or (T, m)
        By how much the bounds of predictions move each; zero without bounds, or within them.

    Examples
    --------
    >>> import numpy as np
    >>> from lstd import LSTD
    >>> X, y, done = np.tile(np.eye(2), (20, 1)), np.ones(40), np.tile([False, True], 20)
    >>> found = LSTD(gamma=0.5, alpha=0.0).fit(X, y, terminated=done).contributions([[1.0, 0.0]])
    >>> float(found.base), found.values.round(3).tolist()
    (1.25, [[0.125, 0.125]])
    """

    values: Array
    standard_error: Array
    base: float | Array
    x: Array
    means: Array
    coef: Array
    names: tuple[str, ...]
    by_bounds: Array

    @classmethod
    def of(
        cls,
        linear: Linear,
        phi: Features,
        means: Array | None = None,
        columns: slice | None = None,
        names: tuple[str, ...] | None = None,
    ) -> Contributions:
        """Compute the contributions of checked features (T, n); raises as :meth:`lstd.LSTD.contributions`.

        By default, `means` are those of the rows of the fit, and the features have all `columns` of weights, and their
        `names`.
        """
        if means is None:
            if linear.limits is None:
                raise InvalidInputError(
                    "`contributions` needs the means of the features, which a model of chunks or statistics does not "
                    "know. Fit it with `fit` or `fit_tables`."
                )
            if not linear.limits.n_rows:
                raise InvalidInputError(
                    "`contributions` needs the means of the features, and the model has seen no rows. Fit it to some."
                )
            means = linear.limits.total / linear.limits.n_rows
        x = np.asarray(dense(phi), dtype=np.float64)
        if linear.age is not None:
            return cls._with_age(linear, linear.age, x, means)
        if columns is None:
            columns = slice(linear.n_features)
        coef = linear.coef[..., columns]
        error = np.full(coef.shape, np.nan)
        if not linear.no_intervals:
            error = linear.influence.of_weights_error()[..., columns].reshape(coef.shape)
        distance = x - means
        if not linear.single:
            distance = distance[:, np.newaxis]
        base = coef @ means + linear.intercept
        values = distance * coef
        if names is None:
            names = linear.feature_names
        by_bounds = _moved_by_bounds(linear, base, values)
        return cls(values, np.abs(distance) * error, base, x, means, coef, names, by_bounds)

    @classmethod
    def _with_age(cls, linear: Linear, age: AgeColumns, x: Array, means: Array) -> Contributions:
        """Compute the contributions of features (T, n), one of which is the age, from means of its columns."""
        coef = linear.coef
        distance = age.columns(x) - means
        weights = coef if linear.single else coef[:, np.newaxis]
        parts = distance * weights  # (T, c), or (m, T, c)
        of_features = np.arange(age.n_given) == age.sources[:, np.newaxis]  # (c, n): columns count with their feature
        values = parts @ of_features
        error = np.full(values.shape, np.nan)
        if not linear.no_intervals:
            error = _error_of_sums(linear.influence, distance, of_features).reshape(error.shape)
        if not linear.single:
            values = values.swapaxes(0, 1)
            error = error.swapaxes(0, 1)
        of_age = age.total / max(1, age.n_rows)
        # The other features are the first columns: see `AgeColumns.sources`.
        means_of_features = np.insert(means[: age.n_given - 1], age.place, of_age)
        base = coef @ means + linear.intercept
        return cls(
            values=values,
            standard_error=error,
            base=base,
            x=x,
            means=means_of_features,
            coef=age.slopes(x, coef),
            names=linear.feature_names,
            by_bounds=_moved_by_bounds(linear, base, values),
        )

    def table(self, row: int = 0, reward: int = 0) -> list[list[str]]:
        """Return the lines of the table of one row and reward, the heading first, the largest contribution on top."""
        of = row if self.values.ndim == 2 else (row, reward)
        values = self.values[of]
        error = self.standard_error[of]
        coef = np.atleast_2d(self.coef)[reward]
        if self.coef.shape == self.values.shape:  # coefficients of each row, as with an age
            coef = self.coef[of]
        base = float(np.ravel(self.base)[reward])

        head = ["feature", "x", "mean", "coef", "contribution", "std err"]
        lines = [head, ["(at the means)", "", "", "", f"{base:.4g}", ""]]
        for j in np.argsort(-np.abs(values), kind="stable"):
            numbers = (self.x[row, j], self.means[j], coef[j], values[j])
            lines.append([self.names[j], *(f"{number:.4g}" for number in numbers), two_digits(error[j])])
        moved = float(self.by_bounds.reshape(len(self.x), -1)[row, reward])
        if moved:
            lines.append(["(by the bounds)", "", "", "", f"{moved:.4g}", ""])
        lines.append(["prediction", "", "", "", f"{base + values.sum() + moved:.4g}", ""])
        return lines

    def __str__(self) -> str:
        which = "one row"
        if len(self.x) > 1:
            which = f"row 0 of {len(self.x)}"
        return "\n".join([f"Contributions to the prediction of {which}", *aligned(self.table())])

    __repr__ = __str__


def _moved_by_bounds(linear: Linear, base: float | Array, values: Array) -> Array:
    """Return by how much bounds move predictions, (T,) or (T, m), from contributions (T, n) or (T, m, n)."""
    unlimited = base + values.sum(axis=-1)
    return np.asarray(linear.limited(unlimited) - unlimited)


def _error_of_sums(influence: Influence, distance: Array, of_features: Flags) -> Array:
    """Compute standard errors (m, T, n) of the sums of columns (T, c) times weights, over those of each feature."""
    vectors = influence.vectors[:, :, : distance.shape[1]]  # (E blocks, m, c), without the ones
    errors = []
    for own in of_features.T:
        moves = np.einsum("tc,emc->emt", distance[:, own], vectors[:, :, own])
        errors.append(np.sqrt(np.sum(moves**2, axis=0)))
    return np.stack(errors, axis=-1)


def aligned(table: list[list[str]]) -> list[str]:
    """Return the lines of a table in columns: names to the left, numbers to the right."""
    first, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    lines = []
    for name, *numbers in table:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths, strict=True)]
        lines.append("  ".join([f"{name:<{first}}", *cells]).rstrip())
    return lines
