"""Compare `lstd` with published packages that compute the same weights, on the same data.

    python benchmarks/neighbours.py [--quick]

Packages that are not installed are skipped. `pip install -e ".[bench]"` installs SwiftTD 0.2.0. Release 0.2.2 has no
wheel for Linux, and its sources set an option that the build tool they require refuses. MushroomRL pins NumPy 1.24.4,
on which `lstd` does not run, and seven other packages, so it cannot be in an extra. It also runs with other versions:

    pip install --no-deps mushroom-rl==1.10.2
    pip install torch tqdm opencv-python-headless pygame
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from lstd import LSTD, TrueOnlineTD
from ratios import Ratio, in_turn, note, run_alone, timed

HOW = """\
SwiftTD with a meta step size of 0, no decay and a bound out of reach is true online TD(λ): checked before timing,
its weights are those of `TrueOnlineTD` to the rounding of its float32. It adapts step sizes, and computes what that
needs even when they cannot change. It takes one step per call, given as a Python list of numbers or of pairs, where
`lstd` takes arrays. LSPI of MushroomRL with one action and one iteration is LSTD(0) with α = 0: checked before timing,
its weights are the same to the rounding of float64. It goes through a list of transitions one by one; the second row
leaves out reading that list, timed after it. All on one thread; seconds per step of TD, and per fit."""
GAMMA = 0.99
LMBDA = 0.9
STEP_SIZE = 0.01
SWIFT = {
    "lambda_": LMBDA,
    "alpha": STEP_SIZE,
    "gamma": GAMMA,
    "epsilon": 0.0,
    "eta": 1.0,
    "decay": 1.0,
    "meta_step_size": 0.0,
    "eta_min": 1e-10,
}
FLOAT32 = 1e-5  # differences of weights that may come from rounding
FLOAT64 = 1e-9  # as shares of the largest weight
N_ENTRIES = 10
N_ROWS = 64

Step = Callable[[int], None]


def ratios(quick: bool = False) -> Iterator[Ratio]:
    """Time all neighbours that are installed."""
    for package, (module, measure) in NEIGHBOURS.items():
        note(f"neighbours: {package}")
        try:
            import_module(module)
            with threadpool_limits(1):
                yield from measure(quick)
        except ImportError as error:
            yield Ratio(f"`{package}`", skipped=f"it cannot be imported ({error}); see benchmarks/neighbours.py")
        except OtherWeightsError as error:
            yield Ratio(f"`{package}`", skipped=str(error))


class OtherWeightsError(Exception):
    """A neighbour computes other weights than `lstd`, so their times cannot be compared."""


def check(name: str, theirs: Any, weights: Any, share: float) -> None:
    """Refuse weights that differ by more than a share of the largest."""
    difference = float(np.abs(theirs - weights).max() / np.abs(weights).max())
    if not difference <= share:
        raise OtherWeightsError(f"weights of {name} differ by {difference:.1e} of the largest")


# ---------------------------------------------------------------- SwiftTD


def swift_td(quick: bool) -> Iterator[Ratio]:
    """Time dense rows of 100 features, one by one and as a stream, and sparse and binary rows of 1000."""
    count, pairs = (500, 2) if quick else (5000, 9)
    random = np.random.default_rng(0)
    dense = random.normal(size=(N_ROWS, 100)) / 10
    places = [np.sort(random.permutation(1000)[:N_ENTRIES]) for _ in range(N_ROWS)]
    values = np.abs(random.normal(size=(N_ROWS, N_ENTRIES))) / 3  # positive: SwiftTD drops negative traces
    ones = np.ones(N_ENTRIES)
    sparse = list(zip(places, values, strict=True))
    binary = [(place, ones) for place in places]
    kinds: tuple[tuple[str, str, int, list[Any], list[Any]], ...] = (
        ("n = 100", "SwiftTDNonSparse", 100, list(dense), dense.tolist()),
        (
            f"{N_ENTRIES} entries of n = 1000",
            "SwiftTD",
            1000,
            sparse,
            [list(zip(place.tolist(), value.tolist(), strict=True)) for place, value in sparse],
        ),
        (f"{N_ENTRIES} ones of n = 1000", "SwiftTDBinaryFeatures", 1000, binary, [place.tolist() for place in places]),
    )
    for data, name, n, rows, lists in kinds:
        model = TrueOnlineTD(n, GAMMA, LMBDA, STEP_SIZE)
        other = _swift(name, n)
        update = _steps(model, rows)
        step = _swift_steps(other, lists)
        update(500)
        step(500)
        _check_swift(other, name, model.weights)
        seconds = in_turn(lambda u=update: u(count), lambda s=step: s(count), pairs)  # type: ignore[misc]
        yield _per_step(f"`TrueOnlineTD.update`, {data}, beside `{name}.step`", seconds, count)
    X = dense[np.arange(count + 1) % N_ROWS]
    y = np.ones(count + 1)
    model = TrueOnlineTD(100, GAMMA, LMBDA, STEP_SIZE)
    step = _swift_steps(_swift("SwiftTDNonSparse", 100), dense.tolist())
    seconds = in_turn(lambda: model.partial_fit(X, y), lambda: step(count), pairs)
    yield _per_step("`TrueOnlineTD.partial_fit`, n = 100, beside `SwiftTDNonSparse.step` in a loop", seconds, count)


def _swift(name: str, n: int) -> Any:
    return getattr(import_module("swifttd"), name)(num_of_features=n, **SWIFT)


def _steps(model: TrueOnlineTD, rows: list[Any]) -> Step:
    place = [0]

    def run(count: int) -> None:
        for t in range(place[0], place[0] + count):
            model.update(rows[t % N_ROWS], 1.0, rows[(t + 1) % N_ROWS])
        place[0] += count

    return run


def _swift_steps(model: Any, rows: list[Any]) -> Step:
    place = [0]
    model.step(rows[0], 0.0)

    def run(count: int) -> None:
        for t in range(place[0], place[0] + count):
            model.step(rows[(t + 1) % N_ROWS], 1.0)
        place[0] += count

    return run


def _check_swift(model: Any, name: str, weights: Any) -> None:
    """Compare its weights, read by predictions of unit vectors, with those of `lstd`."""
    unit: dict[str, Callable[[int], list[Any]]] = {
        "SwiftTDNonSparse": lambda i: np.eye(len(weights))[i].tolist(),
        "SwiftTD": lambda i: [(i, 1.0)],
        "SwiftTDBinaryFeatures": lambda i: [i],
    }
    theirs = np.array([model.predict(unit[name](i)) for i in range(len(weights))])
    check(name, theirs, weights, FLOAT32)


def _per_step(claim: str, seconds: tuple[list[float], list[float]], count: int) -> Ratio:
    ours, beside = ([each / count for each in times] for times in seconds)
    return Ratio(claim, ours, beside)


# ---------------------------------------------------------------- MushroomRL


def mushroom(quick: bool) -> Iterator[Ratio]:
    """Time one iteration of LSPI with one action."""
    n_rows, n, pairs = (1000, 20, 2) if quick else (20_000, 100, 7)
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows + 1, n))
    y = random.normal(size=n_rows + 1)
    dataset = import_module("mushroom_rl.utils.dataset")
    zeros = np.zeros(n_rows)
    listed = dataset.arrays_as_dataset(X[:-1], zeros[:, np.newaxis], y[:-1], X[1:], zeros, zeros)
    model = LSTD(GAMMA, 0.0, 0.0, fit_intercept=False)
    agent = _lspi(n)
    model.fit(X, y)
    agent.fit(listed)
    check("LSPI", agent.approximator.get_weights(), model.coef_, FLOAT64)
    ours, beside = in_turn(lambda: model.fit(X, y), lambda: agent.fit(listed), pairs)
    reading = [timed(lambda: dataset.parse_dataset(listed)) for _ in range(pairs)]
    claim = f"`LSTD(lmbda=0).fit`, {n_rows} rows of {n} features, beside `LSPI.fit`"
    yield Ratio(claim, ours, beside)
    rest = [whole - part for whole, part in zip(beside, reading, strict=True)]
    yield Ratio(f"{claim} without reading its list", ours, rest)


def _lspi(n: int) -> Any:
    """Make an agent whose fit is one solve: the first change of weights is below `epsilon`."""
    core, policy, spaces = (import_module(f"mushroom_rl.{name}") for name in ("core", "policy", "utils.spaces"))
    value = import_module("mushroom_rl.algorithms.value")
    parameters = import_module("mushroom_rl.utils.parameters")
    info = core.MDPInfo(spaces.Box(-np.inf, np.inf, shape=(n,)), spaces.Discrete(1), GAMMA, 1)
    greedy = policy.EpsGreedy(parameters.Parameter(0.0))
    return value.LSPI(info, greedy, {"input_shape": (n,), "output_shape": (1,)}, epsilon=1e300)


NEIGHBOURS: dict[str, tuple[str, Callable[[bool], Iterator[Ratio]]]] = {
    "swifttd": ("swifttd", swift_td),
    "mushroom-rl": ("mushroom_rl.algorithms.value", mushroom),
}


if __name__ == "__main__":
    run_alone(__doc__, ratios)
