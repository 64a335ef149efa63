"""Statistics of chunks on many workers: the same model whatever runs them, and whichever of them die."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from chunk_loaders import EDGES, N_CHUNKS, N, chunk, kept_total, load, process_context, slow, sum_chunks, whole
from lstd import LSTD, fit_chunks
from lstd.distributed.chunk_sums import merged
from lstd.errors import BrokenEpisodeWarning, InvalidInputError, LSTDError, MissingTerminationWarning, OutputError
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings(  # rewards are drawn at random
    *(f"ignore::lstd.errors.{what}Warning" for what in ("UnusedReward", "Bias", "Misfit"))
)

SETTINGS = {"gamma": 0.9, "lmbda": 0.7}
NAMED = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])


def loaders(folder, **options):
    folder.mkdir(exist_ok=True)
    return [partial(load, str(folder), place, **options) for place in range(N_CHUNKS)]


def n_calls(folder):
    return len(list(folder.iterdir()))


def processes(workers=2):
    return ProcessPoolExecutor(workers, mp_context=process_context())


def assert_same_bits(one, two):
    for name in ("sums", "B", "trace"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    for name in ("n_rows", "n_transitions", "n_episodes", "first_episode", "last_episode", "apart"):
        assert getattr(one, name) == getattr(two, name), name


@pytest.fixture(scope="module")
def reference():
    with ThreadPoolExecutor(1) as pool:
        return sum_chunks([chunk(place) for place in range(N_CHUNKS)], **SETTINGS, executor=pool)


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(4) as pool:
        yield pool


# ---------------------------------------------------------------- the tree


def halved(leaves):
    """Divide leaves before the largest power of two below their number, and so on."""
    if len(leaves) == 1:
        return leaves[0]
    middle = 2 ** (len(leaves) - 1).bit_length() // 2
    return f"({halved(leaves[:middle])} {halved(leaves[middle:])})"


def test_the_bracketing_depends_on_the_number_of_parts_only():
    for n in range(1, 40):
        leaves = [str(place) for place in range(n)]
        assert merged(iter(leaves), lambda one, two: f"({one} {two})") == halved(leaves)
    assert merged([], max) is None


def test_independent_chunks_add(threads):
    draw = np.random.RandomState(2)
    chunks = [(draw.normal(size=(T, N)), draw.normal(size=T)) for T in (5, 1, 20, 3, 9)]
    X, y = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
    ids = np.repeat(np.arange(5), [len(y) for _, y in chunks])
    expected = LSTD(**SETTINGS).fit(X, y, episode=ids, terminated=np.zeros(len(y), dtype=bool))
    found = fit_chunks(chunks, **SETTINGS, independent=True, executor=threads)
    assert_close(found.coef_, expected.coef_, "solve")
    assert (found.n_transitions_, found.n_episodes_) == (33, 5)


# ---------------------------------------------------------------- the same model


def test_chunks_come_in_all_forms_and_one_by_one(threads, reference, tmp_path):
    def forms():
        for place in range(N_CHUNKS):
            arrays = chunk(place)
            if place % 3 == 0:
                np.savez(tmp_path / f"{place}.npz", **arrays)
                yield tmp_path / f"{place}.npz"
            elif place % 3 == 1:
                yield lambda place=place: chunk(place)
            else:
                yield arrays

    assert_same_bits(sum_chunks(forms(), **SETTINGS, executor=threads), reference)


def test_a_fitted_model_goes_on_with_the_stream(threads):
    data = whole()
    found = fit_chunks([chunk(place) for place in range(5)], **SETTINGS, executor=threads)
    found.partial_fit(**{name: values[EDGES[5] :] for name, values in data.items()})
    assert_close(found.coef_, LSTD(**SETTINGS).fit(**data).coef_, "solve")


# ---------------------------------------------------------------- workers that die


def test_a_process_that_is_killed_is_replaced(reference, tmp_path):
    store = tmp_path / "store"
    chunks = loaders(tmp_path / "calls", deadly=6)
    assert_same_bits(sum_chunks(chunks, **SETTINGS, executor=processes, store=store), reference)
    assert len(chunks) + 1 <= n_calls(tmp_path / "calls") <= len(chunks) + 2  # the pool dies as a whole
    assert len(list(store.glob("*.statistics"))) == len(chunks)


def test_a_cluster_worker_that_is_killed_loses_the_chunk_it_was_at_only(client, reference, tmp_path):
    chunks = loaders(tmp_path / "calls", deadly=6)
    assert_same_bits(sum_chunks(chunks, **SETTINGS, client=client, store=tmp_path / "store"), reference)
    assert n_calls(tmp_path / "calls") == len(chunks) + 1
    assert n_calls(tmp_path / "store") == len(chunks)


def test_a_chunk_that_kills_every_worker_is_given_up_and_the_rest_is_kept(tmp_path, reference):
    deadly = loaders(tmp_path / "calls", deadly=6, always=True)
    with pytest.raises(LSTDError, match=r"4 executors in a row broke. These chunks of `source` were begun.*6"):
        sum_chunks(deadly, **SETTINGS, executor=partial(processes, 1), store=tmp_path / "store")
    assert n_calls(tmp_path / "store") >= 6


def test_a_chunk_that_kills_every_worker_of_a_cluster_is_given_up(client, tmp_path):
    deadly = loaders(tmp_path / "calls", deadly=2, always=True)
    with pytest.raises(LSTDError, match="A chunk killed its workers repeatedly"):
        sum_chunks(deadly, **SETTINGS, client=client, store=tmp_path / "store")


# ---------------------------------------------------------------- what is kept


def test_what_is_kept_is_found_again(threads, reference, tmp_path):
    calls, store = tmp_path / "calls", tmp_path / "a" / "store"
    chunks = loaders(calls)
    run = partial(sum_chunks, executor=threads, store=store)
    assert_same_bits(run(chunks[:5] + [partial(slow, p) for p in range(5, 13)], **SETTINGS), reference)
    assert n_calls(calls) == 5
    assert_same_bits(run(chunks, **SETTINGS), reference)
    assert n_calls(calls) == 13
    assert_same_bits(run(chunks, **SETTINGS), reference)
    assert n_calls(calls) == 13
    fit_chunks(chunks, **SETTINGS, alpha=3.0, variant="mixed", n_blocks=0, executor=threads, store=store)
    assert n_calls(calls) == 13
    other = run(chunks, **SETTINGS | {"lmbda": 0.8})
    assert (n_calls(calls), other.lmbda) == (26, 0.8)


def test_other_content_is_another_chunk(threads, tmp_path):
    run = partial(sum_chunks, **SETTINGS, executor=threads, store=tmp_path / "store")
    X, y = np.ones((3, 2)), np.ones(3)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    chunks = [(X, y), (2 * X, y), (sparse.csr_array(X), y), {"X": X, "y": y, "episode": ["a", "b", "b"]}]
    chunks[3]["terminated"] = [True, False, False]
    for one in chunks:
        run([one])
    run([tmp_path / "rows.npz"])
    np.savez(tmp_path / "rows.npz", X=np.ones((4, 2)), y=np.ones(4))
    assert run([tmp_path / "rows.npz"]).n_rows == 4
    assert n_calls(tmp_path / "store") == 6
    objects = {"X": X, "y": y, "episode": np.array(["a", "b", "b"], dtype=object), "terminated": [True, False, False]}
    assert run([objects]).n_episodes == 2


# ---------------------------------------------------------------- bad input


def fail():
    raise RuntimeError("no such table")


BAD = {
    "nan": ({"X": np.full((2, N), np.nan), "y": np.zeros(2)}, "`source\\[2\\]`: `X` must be finite"),
    "width": ({"X": np.zeros((2, 7)), "y": np.zeros(2)}, r"`source\[\d\]` and `source\[\d\]`: .*same number of feat"),
    "loader": (fail, r"`source\[2\]`: could not be loaded: RuntimeError\('no such table'\)"),
    "missing": ("no/such.npz", r"`source\[2\]`: no/such.npz could not be read"),
    "not_npz": (__file__, r"`source\[2\]`: .*test_distributed.py must be an .npz file of numbers"),
    "number": (3, r"`source\[2\]`: must be a mapping of arrays"),
    "no_y": ({"X": np.zeros((2, N))}, r"`source\[2\]`: must have `X` and `y`"),
    "unknown": ({"X": np.zeros((2, N)), "y": np.zeros(2), "z": 1}, r"`source\[2\]`: must have .* nothing but X, y"),
}


@pytest.mark.parametrize(("name", "where"), [*((name, "threads") for name in BAD), ("nan", "dask"), ("loader", "dask")])
def test_bad_chunks_are_named(name, where, request):
    bad, message = BAD[name]
    how = {"client": request.getfixturevalue("client")} if where == "dask" else {"executor": ThreadPoolExecutor}
    good = (np.ones((2, N)), np.ones(2))
    with pytest.raises(InvalidInputError, match=message):
        sum_chunks([good, good, bad, good], **SETTINGS, **how)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": []}, "`source` must hold at least one chunk"),
        ({"source": b"rows.npz"}, "`source` must be a list"),
        ({"source": 3}, "`source` must be a list"),
        ({"source": [np.ones((30, 2))]}, r"`source\[0\]`: .* got ndarray of shape \(30, 2\)\."),
        ({"client": NAMED}, r"`client` must be .* got DataFrame of shape \(40, 2\)\."),
        ({"executor": 3}, "`executor` must be"),
        ({"client": 3}, "`client` must be a distributed.Client"),
        ({"client": 3, "executor": ThreadPoolExecutor}, "`client` must not be given beside"),
        ({"store": __file__}, "`store` must be a folder"),
        ({"memory": NAMED}, r"`memory` must be an integer; got DataFrame of shape \(40, 2\)\.$"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_chunks(**{"source": [(np.ones((2, 1)), np.ones(2))], "gamma": 0.9, **arguments})


def test_a_store_that_cannot_be_written_is_said(threads, tmp_path):
    run = partial(sum_chunks, [(np.ones((3, 1)), np.ones(3))], **SETTINGS, executor=threads, store=tmp_path)
    run()
    (kept,) = tmp_path.iterdir()
    assert kept_total(kept).n_rows == 3
    kept.unlink()
    kept.mkdir()
    with pytest.raises(OutputError, match="could not be written"):
        run()


@pytest.mark.parametrize("where", ["threads", "dask"])
def test_what_was_assumed_is_said_once(where, request):
    how = {"client": request.getfixturevalue("client")} if where == "dask" else {"executor": ThreadPoolExecutor}
    one, two, three = ({"X": np.eye(3), "y": np.ones(3), "episode": [i, i, i + 1]} for i in (1, 3, 5))
    with pytest.warns(MissingTerminationWarning, match=r"`source\[1\]`") as told:
        fit_chunks([one | {"terminated": np.zeros(3, dtype=bool)}, two, three], **SETTINGS, **how)
    assert len(told) == 1
    assert told[0].filename == __file__
    broken = {"X": np.eye(3), "y": np.ones(3), "X_next": np.ones((3, 3))}
    with pytest.warns(BrokenEpisodeWarning, match=r"`source\[0\]`: row 1 of") as told:
        fit_chunks([broken, broken], **SETTINGS, **how)
    assert len(told) == 1
    ratios = {"importance_ratio": np.full(3, 2.0), "episode": np.zeros(3)}
    with pytest.warns(BrokenEpisodeWarning, match=r"`source\[0\]`: row 1 of .* leave the ratio out"):
        fit_chunks([broken | ratios], **SETTINGS | {"lmbda": 0.0}, **how)


@pytest.mark.parametrize("names", [(1, 2, 3, 9), ("a", "b", "c", "d")])
def test_an_id_that_reappears_in_a_later_chunk_is_refused_unless_chunks_are_independent(names, tmp_path):
    a, b, c, d = names
    rows = {"X": np.eye(4), "y": np.ones(4), "terminated": [False, True, False, True]}
    chunks = [rows | {"episode": ids} for ids in ([a, a, b, b], [c, c, d, d], [5, 5, a, a] if a == 1 else [*"eeaa"])]
    for store in (None, tmp_path, tmp_path):
        with pytest.raises(InvalidInputError, match=rf"`source\[\d\]`, or a chunk after it: `episode` {a!r} reappears"):
            fit_chunks(chunks, **SETTINGS, store=store)
    assert fit_chunks(chunks, **SETTINGS, independent=True).n_episodes_ == 6
    model = fit_chunks(chunks[:2], **SETTINGS)
    with pytest.raises(InvalidInputError, match=rf"at row 2, id '?{a}'? reappears after other episodes"):
        model.partial_fit(**chunks[2])
    assert model.n_episodes_ == 4


# ---------------------------------------------------------------- workers started from the command line


@pytest.mark.parametrize("runner", ["executor", "store", "chosen"])
def test_names_of_columns_are_kept_and_the_same_in_all_chunks(tmp_path, runner):
    options = {
        "executor": {"executor": partial(ThreadPoolExecutor, 1)},
        "store": {"store": tmp_path}, "chosen": {"lmbda": "auto"},
    }[runner]  # fmt: skip
    y = np.arange(40.0)
    chunks = [(NAMED[:20], y[:20]), (NAMED[20:30], y[20:30]), (NAMED[30:], y[30:])]
    for _ in range(2):  # the second time from the store
        assert fit_chunks(chunks, gamma=0.9, **options).feature_names_in_.tolist() == ["a", "b"]
    for names, where in ((["b", "a"], "0 is 'a' in one and 'b'"), (["a", "c"], "1 is 'b' in one and 'c'")):
        with pytest.raises(InvalidInputError, match=rf"`source\[\d\]` and `source\[2\]`: .* same features .*{where}"):
            fit_chunks([*chunks[:2], (NAMED[30:].set_axis(names, axis=1), y[30:])], gamma=0.9, **options)
