"""How far the data, rather than the ridge term, decided each weight."""

from __future__ import annotations

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lstd.types import Array


def effective_degrees_of_freedom(model: BaseEstimator) -> Array:
    """Compute how far the data, rather than the ridge term, decided each weight: the diagonal of (A + αI)⁻¹ A.

    The weights are a mixture of the solution without a ridge term and of zero. An entry is 1 if the data decides, as
    always with α = 0, and 0 if the ridge term does. The sum is the effective number of parameters. A is not symmetric,
    so entries may be a little outside [0, 1].

    Parameters
    ----------
    model : fitted LSTD or LSTDCV

    Returns
    -------
    ndarray of shape (n_features,)
        Without the intercept, which is not penalised.

    Examples
    --------
    The first feature is 1 in three rows, the second in one row; the ridge coefficient is 1:

    >>> import numpy as np
    >>> from lstd import LSTD
    >>> from lstd.metrics import effective_degrees_of_freedom
    >>> X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> model = LSTD(gamma=0.0, fit_intercept=False).fit(X, np.ones(4), terminated=[False, False, False, True])
    >>> effective_degrees_of_freedom(model)
    array([0.75, 0.5 ])
    """
    check_is_fitted(model)
    values: Array = model.model_.degrees_of_freedom
    return values
