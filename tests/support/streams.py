"""Streams with episodes for tests: how they are drawn, cut, and what their sums are by definition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

import naive

FORMS = {"dense": np.asarray, "sparse": sparse.csr_array, "float32": lambda X: X.astype(np.float32)}
COLUMNS = ("episode", "terminated", "X_next", "discount", "importance_ratio", "trace_coefficient", "weight", "groups")


@dataclass(frozen=True)
class Stream:
    """Rows of a data set and its settings; columns that are None are not passed."""

    X: Any  # (T, n)
    y: Any  # (T,) or (T, m)
    gamma: float
    lmbda: float
    episode: Any = None
    terminated: Any = None
    X_next: Any = None
    discount: Any = None
    importance_ratio: Any = None
    groups: Any = None
    trace_coefficient: Any = None
    weight: Any = None
    variant: str = "boyan"
    fit_intercept: bool = False
    form: str = "dense"  # of features that are passed

    def __len__(self):
        return self.X.shape[0]

    @property
    def columns(self):
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    def __getitem__(self, rows):
        return replace(self, X=self.X[rows], y=self.y[rows], **{k: v[rows] for k, v in self.columns.items()})

    @property
    def data(self):
        """Arguments X, y and columns of the estimators, features in their form."""
        features = {name: FORMS[self.form](values) for name, values in self.features.items()}
        return {"y": self.y, **self.columns, **features}

    @property
    def features(self):
        """X, and X_next if given."""
        return {"X": self.X} if self.X_next is None else {"X": self.X, "X_next": self.X_next}

    @property
    def settings(self):
        return {name: getattr(self, name) for name in ("gamma", "lmbda", "variant", "fit_intercept")}

    @property
    def regressors(self):
        """The stream with the column of ones among its features, if it has an intercept."""
        if not self.fit_intercept:
            return self
        wide = {name: np.column_stack([values, np.ones(len(self))]) for name, values in self.features.items()}
        return replace(self, **wide)

    @property
    def sparse(self):
        X_next = None if self.X_next is None else sparse.csr_array(self.X_next)
        return replace(self, X=sparse.csr_array(self.X), X_next=X_next)

    @property
    def columns_of_rewards(self):
        """(T, m)."""
        return self.y[:, np.newaxis] if self.y.ndim == 1 else self.y

    @property
    def leaving(self):
        """Discount of each row's transition."""
        given = np.full(len(self), self.gamma) if self.discount is None else self.discount
        return np.where(self.ended, 0.0, given)

    @property
    def ended(self):
        return np.zeros(len(self), dtype=bool) if self.terminated is None else self.terminated

    @property
    def episodes(self):
        """Slices of the rows of each episode."""
        ids = np.zeros(len(self)) if self.episode is None else self.episode
        ends = [t for t in range(len(self)) if t == len(self) - 1 or ids[t] != ids[t + 1] or self.ended[t]]
        return [slice(start + 1, end + 1) for start, end in pairwise([-1, *ends])]


def draw_rows(draw, random, n_rows, n):
    """Features (n_rows, n): normal numbers, or with zeros among them, rows that repeat, unit vectors, zeros alone."""
    rows = random.normal(size=(n_rows, n))
    kind = draw(st.sampled_from(["dense", "sparse", "repeated", "one-hot", "zero"]))
    if kind == "sparse":
        return rows * (random.uniform(size=rows.shape) < 0.5)
    if kind == "repeated":
        return rows[random.randint(min(2, n_rows), size=n_rows)]
    if kind == "one-hot":
        return np.eye(n)[random.randint(n, size=n_rows)]
    return np.zeros((n_rows, n)) if kind == "zero" else rows


def parts(random, n_rows, most):
    """Up to `most` lengths, zeros among them, that add to `n_rows`."""
    cuts = np.sort(random.integers(0, n_rows + 1, random.integers(0, most)))
    return np.diff([0, *cuts, n_rows]).tolist()


@st.composite
def streams(draw, *, successors=None):
    """Streams of up to 24 rows: episodes, discounts, ratios, zeros among the features, NaN in horizon rows.

    Numbers come from a generator whose seed is drawn, since most of those that Hypothesis draws are zero.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = random.integers(8, 25) if draw(st.sampled_from([True, True, False])) else draw(st.integers(0, 7))
    n = draw(st.integers(1, 4))
    m = draw(st.sampled_from([None, 1, 3]))
    lengths = [length for length in parts(random, n_rows, 5) if length]
    ending = (random.uniform(size=len(lengths)) < 0.4).tolist()
    with_ids = draw(st.booleans())
    if not with_ids:
        ending = [True] * len(ending[:-1]) + ending[-1:]
    terminated = np.zeros(n_rows, dtype=bool)
    ends = np.cumsum(lengths, dtype=int) - 1
    terminated[ends[np.array(ending, dtype=bool)]] = True
    numbers = random.permutation(50)[: len(lengths)]
    names = draw(st.sampled_from([numbers, np.array([f"e{i}" for i in numbers], dtype="U3")]))
    given = draw(st.booleans()) if successors is None else successors
    X = random.normal(size=(n_rows, n)) * (random.uniform(size=(n_rows, n)) < 0.7)
    y = random.normal(size=(n_rows,) if m is None else (n_rows, m))
    if not given and draw(st.booleans()):
        y[ends[~np.array(ending, dtype=bool)]] = np.nan
    return Stream(
        X, y,
        gamma=random.choice([0.0, 0.5, 0.95, 1.0]),
        lmbda=random.choice([0.0, 0.3, 0.9, 1.0]),
        episode=np.repeat(names, lengths) if with_ids else None,
        terminated=terminated,
        X_next=random.normal(size=(n_rows, n)) if given else None,
        discount=random.choice([0.0, 0.5, 0.9, 1.0], n_rows) if draw(st.booleans()) else None,
        importance_ratio=random.choice([0.0, 0.5, 1.0, 1.3], n_rows) if draw(st.booleans()) else None,
        trace_coefficient=random.choice([0.0, 0.5, 1.0, 1.2], n_rows) if draw(st.booleans()) else None,
        weight=random.choice([0.0, 0.5, 1.0, 2.0], n_rows) if draw(st.booleans()) else None,
    )  # fmt: skip


@st.composite
def all_streams(draw, *, rows=(0, 1, 2, 5, 12, 24), forms=tuple(FORMS), rewards=(None, 1, 3), successors=(False, True)):
    """Streams of every kind that the data contract knows, and the settings of a model.

    Numbers of rows, forms, numbers of rewards (None: a vector), and whether successors are given are drawn from those
    passed. Features are exact in float32.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n, m = draw(st.sampled_from(rows)), draw(st.integers(1, 4)), draw(st.sampled_from(rewards))
    lengths = (
        [1] * n_rows if draw(st.integers(0, 7)) == 0 else [length for length in parts(random, n_rows, 6) if length]
    )
    kind = draw(st.sampled_from(["stream", "flags", "ids", "assumed"]))  # what says where episodes end
    lengths = [n_rows] * (n_rows > 0) if kind == "stream" else lengths
    ending = random.uniform(size=len(lengths)) < 0.5
    ending[: -1 if kind == "flags" else 0] = True
    ending &= kind in ("ids", "flags")
    ends = np.cumsum(lengths, dtype=int) - 1
    terminated = np.zeros(n_rows, dtype=bool)
    terminated[ends[ending]] = True
    names = random.permutation(90)[: len(lengths)]
    names = draw(st.sampled_from([names, np.array([f"e{i}" for i in names], dtype="U3")]))
    X = draw_rows(draw, np.random.RandomState(random.integers(2**32)), n_rows, n).astype(np.float32).astype(float)
    given = draw(st.sampled_from(successors))
    y = random.normal(size=(n_rows,) if m is None else (n_rows, m))
    if not given and draw(st.booleans()):
        y[ends[~ending]] = np.nan
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))  # of the columns that are given
    values = {
        "discount": [0.0, 0.5, 0.9, 1.0], "importance_ratio": [0.0, 0.5, 1.0, 1.3],
        "trace_coefficient": [0.0, 0.5, 1.0, 1.2], "weight": [0.0, 0.5, 1.0, 2.0],
    }  # fmt: skip
    return Stream(
        X, y,
        gamma=random.choice([0.0, 0.5, 0.95, 1.0]),
        lmbda=draw(st.sampled_from([0.0, 0.8, 1.0])),
        episode=np.repeat(names, lengths) if kind in ("ids", "assumed") else None,
        terminated=terminated if kind in ("ids", "flags") else None,
        X_next=random.normal(size=(n_rows, n)).astype(np.float32).astype(float) if given else None,
        groups=np.repeat(np.cumsum(random.uniform(size=len(lengths)) < 0.5), lengths) if draw(st.booleans()) else None,
        variant=draw(st.sampled_from(naive.VARIANTS)),
        fit_intercept=draw(st.booleans()),
        form=draw(st.sampled_from(forms)),
        **{name: random.choice(those, n_rows) for name, those in values.items() if random.uniform() < share},
    )  # fmt: skip


def cut(draw, stream):
    """The stream in consecutive chunks, some of them empty or of one row."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bounds = np.cumsum([0, *parts(random, len(stream), 8)]).tolist()
    return [stream[start:end] for start, end in pairwise(bounds)]


def definition(stream, variant):
    """A (n, n) and b (n, m) of a variant by double sums over each episode, with `naive`; literal, no recursion."""
    rewards = stream.columns_of_rewards
    n, m = stream.X.shape[1], rewards.shape[1]
    A, b = np.zeros((n, n)), np.zeros((n, m))
    ones = np.ones(len(stream))
    columns = (stream.leaving, stream.importance_ratio, stream.trace_coefficient, stream.weight)
    columns = [ones if column is None else column for column in columns]
    for rows in stream.episodes:
        X, r = stream.X[rows], rewards[rows]
        leaving, rho, coefficient, weight = (column[rows] for column in columns)
        if stream.X_next is None and not stream.ended[rows][-1]:  # the last row is only a successor
            r, leaving, rho, coefficient, weight = r[:-1], leaving[:-1], rho[:-1], coefficient[:-1], weight[:-1]
        else:
            X = np.vstack([X, np.zeros(n)])  # the terminal state
        given = (stream.lmbda * coefficient, np.append(0.0, leaving), rho, weight)
        if stream.X_next is not None:
            A += matrix_with_successors(X, stream.X_next[rows], *given, variant, stream.lmbda)
        else:
            share = {"share": stream.lmbda} if variant == "mixed" else {}
            A += naive.MATRIX[variant](X, *given, **share)
        b += naive.vector_b(X, r, *given)
    return A, b


def matrix_with_successors(phi, X_next, lmbda, discounts, rho, weight, variant, lmbda_of_stream):
    """Σ_t w_t z_t (φ_t − g φ'_t)ᵀ over an episode, less the bootstrap at its end by the variant's share."""
    A, last = np.zeros((phi.shape[1],) * 2), len(X_next) - 1
    for t in range(len(X_next)):
        z = naive.trace(phi, t, lmbda, discounts, rho)
        share = naive.SHARES[variant](lmbda_of_stream) if t == last else 1.0
        A += weight[t] * np.outer(z, phi[t] - share * discounts[t + 1] * X_next[t])
    return A
