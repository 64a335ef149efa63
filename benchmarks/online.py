"""Time the online estimators beside lean NumPy steps.

python benchmarks/online.py [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd._kernels.compilation import kernel
from lstd._kernels.online_state import GOES_ON
from lstd._kernels.online_step import SIGNATURES
from lstd.online import TD, RecursiveLSTD, TrueOnlineTD
from lstd.online.recorded_rows import learn_block
from ratios import Ratio, in_turn, run_alone

HOW = """\
Seconds per transition. Each estimator and the NumPy step it stands beside take turns, block by block of transitions, on
one thread; 64 different rows of independent normal features. `update` includes the call from Python and all checks of
its arguments, `partial_fit` those of a whole stream; the NumPy steps check nothing."""
GAMMA = 0.99
LMBDA = 0.9
ALPHA = 1.0
STEP_SIZE = 0.01
REWARD = 1.0
N_ROWS = 64  # different rows of features, taken in turn
N_ENTRIES = 10  # of a sparse row
PAIRS = 15  # measurements of each side


class Case(NamedTuple):
    """A case: `lstd` and NumPy, each a function that makes a number of transitions."""

    what: str
    ours: Callable[[int], None]
    numpy: Callable[[int], None]
    ours_count: int
    numpy_count: int
    goal: float | None = None
    seconds_goal: float | None = None


# ---------------------------------------------------------------- NumPy


class NumpyLSTD:
    """Sherman and Morrison's step for the Uncorrected inverse, without checks."""

    def __init__(self, n: int) -> None:
        self.P = np.eye(n) / ALPHA
        self.y = np.zeros(n)
        self.theta = np.zeros(n)
        self.change = np.empty((n, n))

    def step(self, phi: Any, reward: float) -> None:
        """Make one transition."""
        P = self.P
        y = self.y
        theta = self.theta
        p = P @ phi
        phi_p = phi @ P
        phi_y = phi @ y
        ahead = (1.0 - LMBDA) * GAMMA
        decay = LMBDA * GAMMA
        gain = phi @ p
        q = (p - ahead * y) / (1.0 + gain - ahead * phi_y)
        self.y = decay * y + p - q * (decay * phi_y + gain)
        self.theta = theta - q * (phi @ theta) + reward * self.y
        np.multiply(q[:, None], phi_p, out=self.change)
        P -= self.change

    def predict(self, phi: Any) -> float:
        """Predict the value of a row."""
        return float(phi @ self.theta)

    def sparse_step(self, indices: Any, values: Any, reward: float) -> None:
        """Make one transition with k entries: products in O(nk), the change of P in O(n²)."""
        P = self.P
        y = self.y
        theta = self.theta
        p = P[:, indices] @ values
        phi_p = values @ P[indices]
        phi_y = values @ y[indices]
        gain = values @ p[indices]
        ahead = (1.0 - LMBDA) * GAMMA
        decay = LMBDA * GAMMA
        q = (p - ahead * y) / (1.0 + gain - ahead * phi_y)
        self.y = decay * y + p - q * (decay * phi_y + gain)
        self.theta = theta - q * (values @ theta[indices]) + reward * self.y
        np.multiply(q[:, None], phi_p, out=self.change)
        P -= self.change


class NumpyTD:
    """TD(λ) and true online TD(λ), without checks."""

    def __init__(self, n: int) -> None:
        self.e = np.zeros(n)
        self.theta = np.zeros(n)
        self.value = 0.0

    def accumulating(self, phi: Any, reward: float, phi_next: Any) -> None:
        """Make one transition."""
        self.e *= LMBDA * GAMMA
        self.e += phi
        error = reward + GAMMA * (phi_next @ self.theta) - phi @ self.theta
        self.theta += (STEP_SIZE * error) * self.e

    def replacing(self, phi: Any, reward: float, phi_next: Any) -> None:
        """Make one transition."""
        self.e *= LMBDA * GAMMA
        np.copyto(self.e, phi, where=phi != 0.0)
        error = reward + GAMMA * (phi_next @ self.theta) - phi @ self.theta
        self.theta += (STEP_SIZE * error) * self.e

    def true_online(self, phi: Any, reward: float, phi_next: Any) -> None:
        """Make one transition."""
        e = self.e
        theta = self.theta
        now = phi @ theta
        ahead = phi_next @ theta
        e *= LMBDA * GAMMA
        e += (1.0 - STEP_SIZE * (e @ phi)) * phi
        drift = now - self.value
        theta += (STEP_SIZE * (reward + GAMMA * ahead - now + drift)) * e
        theta -= (STEP_SIZE * drift) * phi
        self.value = ahead


# ---------------------------------------------------------------- cases


def updates(n: int, rows: Sequence[Any]) -> Callable[[int], None]:
    """Make a function that learns from the next transitions of a stream of rows, which repeat."""
    model = RecursiveLSTD(n, GAMMA, LMBDA, ALPHA)
    place = [0]

    def learn(count: int) -> None:
        first = place[0]
        for t in range(first, first + count):
            model.update(rows[t % N_ROWS], REWARD, rows[(t + 1) % N_ROWS])
        place[0] = first + count

    return learn


def lstd_case(n: int, ours_count: int, numpy_count: int, goal: float, seconds: float | None = None) -> Case:
    """Make the case of dense rows."""
    rows = list(np.random.RandomState(0).normal(size=(N_ROWS, n)) / np.sqrt(n))
    plain = NumpyLSTD(n)

    def numpy(count: int) -> None:
        for t in range(count):
            plain.step(rows[t % N_ROWS], REWARD)

    return Case(f"`RecursiveLSTD.update`, n = {n}", updates(n, rows), numpy, ours_count, numpy_count, goal, seconds)


def read_case(n: int, ours_count: int, numpy_count: int, seconds: float) -> Case:
    """Make the case of an update and a prediction for the next row."""
    rows = list(np.random.RandomState(0).normal(size=(N_ROWS, n)) / np.sqrt(n))
    model = RecursiveLSTD(n, GAMMA, LMBDA, ALPHA)
    plain = NumpyLSTD(n)
    place = [0]

    def ours(count: int) -> None:
        first = place[0]
        for t in range(first, first + count):
            model.update(rows[t % N_ROWS], REWARD, rows[(t + 1) % N_ROWS])
            model.predict(rows[(t + 1) % N_ROWS])
        place[0] = first + count

    def numpy(count: int) -> None:
        for t in range(count):
            plain.step(rows[t % N_ROWS], REWARD)
            plain.predict(rows[(t + 1) % N_ROWS])

    what = f"`RecursiveLSTD.update` and `predict` of the next row, n = {n}"
    return Case(what, ours, numpy, ours_count, numpy_count, 3.0, seconds)


def recorded_case(n: int, count: int, asked: bool) -> Ratio:
    """Time `partial_fit` of a recorded stream beside the compiled loop alone."""
    X = np.random.RandomState(0).normal(size=(count, n)) / np.sqrt(n)
    X = np.vstack([X, X[:1]])  # each call goes on where the one before it ended
    y = np.full(count, REWARD)
    numbers = np.ones((count, 4))
    numbers[:, 0] = GAMMA
    model, twin = (RecursiveLSTD(n, GAMMA, LMBDA, ALPHA) for _ in range(2))
    block = X[:-1], X[1:], y[:, np.newaxis], numbers, np.full(count, GOES_ON, np.int8)
    predictions = np.empty((count if asked else 0, 3))
    ours, beside = in_turn(
        lambda: model.partial_fit(X[:-1], y, return_predictions=asked),
        lambda: learn_block(twin, twin.reader, block, 0, predictions),
        PAIRS,
    )
    more = ", with the prediction before each update" if asked else ""
    claim = f"`RecursiveLSTD.partial_fit` of {count} rows, n = {n}{more}, beside the compiled loop"
    return Ratio(claim, ours, beside, cost=True, goal=1.2)


def call_case(n: int, count: int) -> Ratio:
    """Time updates beside calls of a compiled function that takes the same arguments and does nothing."""
    rows = list(np.random.RandomState(0).normal(size=(N_ROWS, n)) / np.sqrt(n))
    pairs = [(rows[t % N_ROWS], rows[(t + 1) % N_ROWS]) for t in range(count)]  # count: a multiple of N_ROWS
    model = RecursiveLSTD(n, GAMMA, LMBDA, ALPHA)
    nothing = kernel(lambda x, x_next, reward, discount, ratio, terminated, state, numbers, counts, buffer: 0)
    nothing.compile(SIGNATURES["step"])
    arrays = np.zeros((4, 4)), np.zeros(4), np.zeros(4, np.int64), np.zeros((4, 4))

    def ours() -> None:
        for x, x_next in pairs:
            model.update(x, REWARD, x_next)

    def beside() -> None:
        for x, x_next in pairs:
            nothing(x, x_next, REWARD, GAMMA, 1.0, False, *arrays)

    claim = f"{count} calls of `RecursiveLSTD.update`, n = {n}, beside compiled calls that do nothing"
    return Ratio(claim, *in_turn(ours, beside, PAIRS), cost=True, goal=3.75)


def forgetting_case(n: int, count: int) -> Ratio:
    """Time updates with forgetting beside those without."""
    X = np.random.RandomState(0).normal(size=(count, n)) / np.sqrt(n)
    y = np.full(count, REWARD)
    models = [RecursiveLSTD(n, GAMMA, LMBDA, ALPHA, forgetting=f) for f in (0.999, 1.0)]
    ours, beside = in_turn(lambda: models[0].partial_fit(X, y), lambda: models[1].partial_fit(X, y), PAIRS)
    claim = f"`RecursiveLSTD` with `forgetting` = 1 − 10⁻³ beside none, n = {n}"
    return Ratio(claim, ours, beside, cost=True, goal=1.5)


def sparse_case(n: int, ours_count: int, numpy_count: int, numpy_sparse: bool) -> Case:
    """Make the case of rows with N_ENTRIES entries, beside NumPy's dense step or one that uses the zeros."""
    random = np.random.RandomState(0)
    pairs = [(np.sort(random.permutation(n)[:N_ENTRIES]), random.normal(size=N_ENTRIES)) for _ in range(N_ROWS)]
    rows = np.zeros((N_ROWS, n))
    for row, (indices, values) in zip(rows, pairs, strict=True):
        row[indices] = values
    plain = NumpyLSTD(n)

    def numpy(count: int) -> None:
        for t in range(count):
            if numpy_sparse:
                plain.sparse_step(*pairs[t % N_ROWS], REWARD)
            else:
                plain.step(rows[t % N_ROWS], REWARD)

    beside = "a NumPy step that uses the zeros" if numpy_sparse else "NumPy's dense step"
    what = f"`RecursiveLSTD.update`, {N_ENTRIES} entries of n = {n}, beside {beside}"
    return Case(what, updates(n, pairs), numpy, ours_count, numpy_count, None if numpy_sparse else 20.0)


def td_update_case(n: int, ours_count: int, numpy_count: int) -> Case:
    """Make the case of true online TD(λ), one update at a time."""
    rows = list(np.random.RandomState(0).normal(size=(N_ROWS, n)) / np.sqrt(n))
    model = TrueOnlineTD(n, GAMMA, LMBDA, STEP_SIZE)
    plain = NumpyTD(n)

    def ours(count: int) -> None:
        for t in range(count):
            model.update(rows[t % N_ROWS], REWARD, rows[(t + 1) % N_ROWS])

    def numpy(count: int) -> None:
        for t in range(count):
            plain.true_online(rows[t % N_ROWS], REWARD, rows[(t + 1) % N_ROWS])

    return Case(f"`TrueOnlineTD.update`, n = {n}", ours, numpy, ours_count, numpy_count, None, 2.5e-6)


def stream_case(name: str, n: int, ours_count: int, numpy_count: int) -> Case:
    """Make the case of `partial_fit` of a whole stream."""
    X = np.random.RandomState(0).normal(size=(ours_count + 1, n)) / np.sqrt(n)
    y = np.full(ours_count + 1, REWARD)
    plain = NumpyTD(n)
    makers: dict[str, Callable[[], Any]] = {
        "accumulating": lambda: TD(n, GAMMA, LMBDA, STEP_SIZE),
        "replacing": lambda: TD(n, GAMMA, LMBDA, STEP_SIZE, trace="replacing"),
        "true online": lambda: TrueOnlineTD(n, GAMMA, LMBDA, STEP_SIZE),
    }
    model = makers[name]()
    step = {"accumulating": plain.accumulating, "replacing": plain.replacing, "true online": plain.true_online}[name]

    def ours(count: int) -> None:
        model.partial_fit(X[: count + 1], y[: count + 1])

    def numpy(count: int) -> None:
        for t in range(count):
            step(X[t], REWARD, X[t + 1])

    return Case(f"`partial_fit`, {name} TD(λ), n = {n}", ours, numpy, ours_count, numpy_count, 50.0)


def cases() -> list[Callable[[], Case]]:
    """List functions that make the cases, so that only one case holds its matrices at a time."""
    return [
        lambda: lstd_case(10, 5000, 1000, 4.0, 1.5e-6),
        lambda: lstd_case(100, 3000, 500, 5.0),
        lambda: lstd_case(1000, 128, 24, 5.0),
        lambda: lstd_case(3000, 64, 6, 5.0),
        lambda: read_case(10, 5000, 1000, 4e-6),
        lambda: read_case(100, 3000, 500, 8e-6),
        lambda: sparse_case(1000, 256, 16, False),
        lambda: sparse_case(1000, 256, 16, True),
        lambda: sparse_case(3000, 128, 6, False),
        lambda: sparse_case(3000, 128, 6, True),
        lambda: td_update_case(100, 5000, 1000),
        lambda: stream_case("accumulating", 100, 10_000, 1000),
        lambda: stream_case("replacing", 100, 10_000, 1000),
        lambda: stream_case("true online", 100, 10_000, 1000),
    ]


# ---------------------------------------------------------------- measuring


def timed(block: Callable[[int], None], count: int) -> float:
    """Measure the seconds per transition."""
    begin = time.perf_counter()
    block(count)
    return (time.perf_counter() - begin) / count


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time each case, after a first measurement of both sides that does not count."""
    for make in cases():
        case = make()
        with threadpool_limits(limits=1):
            pairs = [
                (timed(case.ours, case.ours_count), timed(case.numpy, case.numpy_count))
                for _ in range(1 + (2 if quick else PAIRS))
            ]
        ours, numpy = zip(*pairs[1:], strict=True)
        yield Ratio(case.what, ours, numpy, goal=case.goal, seconds_goal=case.seconds_goal)
    for n, asked in ((10, False), (10, True), (100, True)):
        with threadpool_limits(limits=1):
            yield recorded_case(n, 2000 if quick else 20_000, asked)
    yield call_case(10, N_ROWS * (4 if quick else 100))
    for n in (10, 100):
        with threadpool_limits(limits=1):
            yield forgetting_case(n, 2000 if quick else 20_000)


if __name__ == "__main__":
    run_alone(__doc__, ratios)
