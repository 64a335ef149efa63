"""Action values in files: the model of the pairs, the actions, and what the value of the policy needs of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd.data.feature_arrays import Features
from lstd.errors import InvalidInputError
from lstd.estimators.model import SavedModel
from lstd.ope.logged_rows import TRACES
from lstd.ope.state_action_features import StateActionFeatures
from lstd.types import Array

Indices = NDArray[np.int64]


class SparseStates(NamedTuple):
    """Sparse features of states, by rows."""

    data: Annotated[Array, "entries"]
    indices: Annotated[Indices, "entries"]
    indptr: Annotated[Indices, "ends"]


@dataclass(frozen=True, eq=False)
class SavedActionValues:
    """What a file holds of an LSTDQ; raises ValueError if the parts do not fit together."""

    file_kind = "model of action values"

    pairs: SavedModel
    labels: Any
    n_features: int
    names: tuple[str, ...] | None
    trace: str
    unlogged: tuple[float, float]
    states: Annotated[Array, "episodes features"] | SparseStates
    policy: Annotated[Array, "episodes actions"]

    def __post_init__(self) -> None:
        (X, P), n, n_actions = self.initial, self.n_features, self.features.n_actions
        fitting = (
            X.shape == (len(P), n),
            P.shape[1] == n_actions,
            self.pairs.model().n_features == n * n_actions,
            self.names is None or len(self.names) == n,
            self.trace in TRACES,
        )
        if not all(fitting):
            raise ValueError(fitting)

    @cached_property
    def features(self) -> StateActionFeatures:
        """Features of pairs."""
        return StateActionFeatures(self.labels)

    @cached_property
    def initial(self) -> tuple[Features, Array]:
        """The first state of each episode, and the probabilities of actions there."""
        X = self.states
        if isinstance(X, SparseStates):
            X = sparse.csr_array(tuple(X), shape=(len(self.policy), self.n_features))
            X.check_format()
        return X, self.policy


def check_can_be_saved(features: StateActionFeatures) -> None:
    """Refuse features of pairs that are a function, and labels that are neither numbers nor text."""
    if features.phi is not None:
        raise InvalidInputError(
            "`features` must have no function to be saved, as files hold nothing executable; got "
            f"{features.phi!r:.80}. Save `lstd_`, the model of the pairs, and predict from "
            "`features_.transform(X, actions)`."
        )
    if features.labels.dtype.kind not in "biufU":
        raise InvalidInputError(
            "`features` must have labels of one type to be saved, numbers or text; got "
            f"{features.labels.tolist()!r:.80}. Number the actions 0, 1, …."
        )


def states_to_save(X: Features) -> Array | SparseStates:
    """Return features of states as a file holds them."""
    if isinstance(X, np.ndarray):
        return np.asarray(X, np.float64)
    return SparseStates(X.data.astype(np.float64), X.indices.astype(np.int64), X.indptr.astype(np.int64))
