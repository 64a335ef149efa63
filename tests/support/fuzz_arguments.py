"""Arguments of every kind that people pass by mistake: data that is right, changed at random."""

import decimal
import fractions

import numpy as np
import pandas as pd
from scipy import sparse

N = 3  # features


def valid(rng, n_rows=12, *, groups=False):
    """Arguments of `fit` that follow the data contract: two episodes, the second one truncated; perhaps with groups."""
    X = rng.normal(size=(n_rows, N))
    arguments = {
        "X": X,
        "y": rng.normal(size=n_rows),
        "episode": np.repeat([0, 1], [n_rows // 2, n_rows - n_rows // 2]),
        "terminated": np.arange(n_rows) == n_rows // 2 - 1,
        "X_next": np.vstack([X[1:], X[:1]]),
        "discount": rng.uniform(0.0, 1.0, n_rows),
        "importance_ratio": rng.uniform(0.0, 2.0, n_rows),
        "trace_coefficient": rng.uniform(0.0, 1.2, n_rows),
        "weight": rng.uniform(0.0, 2.0, n_rows),
    }
    if groups:
        names = [[1, 1], [1, 0], ["a", "b"]][int(rng.integers(3))]
        arguments["groups"] = np.repeat(names, [n_rows // 2, n_rows - n_rows // 2])
    kept = [name for name in arguments if name in ("X", "y") or rng.random() < 0.5]
    return {name: arguments[name] for name in kept}


def mutated(rng, arguments):
    """One to three arguments changed; "what was done" beside them."""
    changed, done, broken = dict(arguments), [], set()
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(list(changed)))
        if name in broken:
            continue
        mutation = str(rng.choice(list(_CHANGES)))
        try:
            found = _CHANGES[mutation](changed[name], rng)
        except Exception:  # this change does not apply to what another one has left
            continue
        changed[name] = found
        if mutation in ("sparse_with_indices_outside", "sparse_with_rows_that_go_back", "sparse_with_broken_parts"):
            broken.add(name)  # SciPy would end the process if it were changed once more
        done.append(f"{name}: {mutation}")
    return changed, ", ".join(done)


def scalar(rng):
    """A number, or something else where a number or a flag is expected."""
    return _SCALARS[int(rng.integers(len(_SCALARS)))]


_SCALARS = (
    None, "", "1", "nan", b"1", True, np.True_, 0, 1, -1, 10**400, 1.5, -0.0, np.nan, np.inf, -np.inf, 1e308, 1e-320,
    1e155, 1e30, 1j, [], [1.0], (1.0, 2.0), np.array(0.5), np.array([0.5]), np.float16(0.5), np.longdouble(0.5),
    np.int8(1), decimal.Decimal("0.5"), fractions.Fraction(1, 2), object(), {}, np.ma.masked, np.datetime64("NaT"),
    pd.NA, float, lambda: 1,
)  # fmt: skip


def _with(a, rng, values):
    found = np.array(a, dtype=object if isinstance(values[0], str) else np.float64)
    for value in values:
        found.reshape(-1)[int(rng.integers(found.size))] = value
    return found


def one_missing(a, rng):
    found = np.array(a, dtype=object)
    found.reshape(-1)[int(rng.integers(found.size))] = [None, pd.NA, pd.NaT, object(), {}, 10**400, "", 1j][
        int(rng.integers(8))
    ]
    return found


def of_other_type(a, rng):
    types = ["?", "i1", "u1", "i8", "u8", "f2", "f4", "g", "c8", "O", "U", "S", "M8[s]", "m8[s]", ">f8", ">i4"]
    with np.errstate(all="ignore"):
        return np.asarray(a).astype(np.dtype(types[int(rng.integers(len(types)))]))


def objects(a, rng):
    found = np.empty(len(a), dtype=object)
    found[:] = [[1.0, 2.0][: int(rng.integers(3))] for _ in range(len(a))]
    return found


def mixed(a, rng):
    values = [0, 1.0, "0", b"0", None, True, (1,), [1], np.nan, pd.Timestamp(0), frozenset(), np.array([1, 2])]
    found = np.empty(len(a), dtype=object)
    for i in range(len(a)):
        found[i] = values[int(rng.integers(len(values)))]
    return found


def by_columns(a, rng):
    found = np.asfortranarray(a)
    found.setflags(write=False)
    return found


def frame(a, rng):
    names = [["a", "b", "c"], [0, 1, 2], ["a", "a", "a"], ["c", "b", "a"], ["a", 1, None]][int(rng.integers(5))]
    return pd.DataFrame(a, columns=names[: np.shape(a)[1]])


def series(a, rng):
    kinds = (None, "category", "string", "Int64", "boolean", "Float64", object)
    return pd.Series(np.asarray(a)).astype(kinds[int(rng.integers(7))])


class Unreadable:
    """An array that is not given out, as a tensor that requires a gradient."""

    def __init__(self, a):
        self.shape = np.shape(a)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("cannot be read")


def unreadable(a, rng):
    found = Unreadable(a)
    if rng.random() < 0.5:
        del found.shape
    return found


def as_sparse(a, rng):
    kinds = ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
    found = sparse.csr_array(np.asarray(a) * (rng.random(np.shape(a)) < 0.5))
    return found.asformat(kinds[int(rng.integers(len(kinds)))])


def sparse_with_repeated_indices(a, rng):
    found = sparse.csr_array(np.asarray(a, dtype=np.float64))
    found.indices[:] = rng.integers(found.shape[1], size=found.nnz)
    found.has_canonical_format = found.has_sorted_indices = False
    return found


def sparse_with_indices_outside(a, rng):
    found = sparse.csr_array(np.asarray(a, dtype=np.float64)).asformat(["csr", "csc", "coo"][int(rng.integers(3))])
    indices = found.coords[int(rng.integers(2))] if found.format == "coo" else found.indices
    indices[int(rng.integers(len(indices)))] = [-1, N, 99, 10**6, -(10**6)][int(rng.integers(5))] + 20
    return found


def sparse_with_rows_that_go_back(a, rng):
    found = sparse.csr_array(np.asarray(a, dtype=np.float64))
    found.indptr[int(rng.integers(1, len(found.indptr)))] = [-5, 10**6, 0][int(rng.integers(3))]
    return found


def sparse_with_broken_parts(a, rng):
    """A sparse matrix of each format with one of its parts replaced, in ways that SciPy's constructors refuse."""
    breaks = list(BREAKS)
    return broken_sparse(a, *breaks[int(rng.integers(len(breaks)))])


def broken_sparse(a, kind, part):
    found = sparse.csr_array(np.asarray(a, dtype=np.float64)).asformat(kind)
    BREAKS[kind, part](found)
    return found


def _set(part, change):
    return lambda X: setattr(X, part, change(getattr(X, part)))


def _put(part, place, value):
    return lambda X: getattr(X, part).__setitem__(place, value)


BREAKS = {
    **{
        (kind, name): change
        for kind in ("csr", "csc", "bsr")
        for name, change in {
            "float indices": _set("indices", lambda a: a.astype(np.float64)),
            "unsigned indices": _set("indices", lambda a: a.astype(np.uint64)),
            "short indices": _set("indices", lambda a: a[:2]),
            "index outside": _put("indices", 0, 10**6),
            "short data": _set("data", lambda a: a[:2]),
            "no data": _set("data", lambda a: None),
            "text": _set("data", lambda a: a.astype("U")[:-1]),
            "short indptr": _set("indptr", lambda a: a[:-1]),
            "float indptr": _set("indptr", lambda a: a.astype(np.float64)),
            "long indptr": _set("indptr", lambda a: np.append(a, a[-1] + 5)),
            "indptr beyond": _put("indptr", -1, 10**6),
        }.items()
    },
    ("coo", "short data"): _set("data", lambda a: a[:1]),
    ("coo", "float indices"): _set("coords", lambda a: tuple(i.astype(np.float64) for i in a)),
    ("coo", "short indices"): _set("coords", lambda a: (a[0][:1], a[1])),
    ("coo", "no coordinates"): _set("coords", lambda a: a[:1]),
    ("lil", "index outside"): _put("rows", 0, [99]),
    ("lil", "far outside"): lambda X: X.rows[0].__setitem__(0, 10**6),
    ("lil", "negative index"): lambda X: X.rows[0].__setitem__(0, -9),
    ("lil", "float index"): lambda X: X.rows[0].__setitem__(0, 0.5),
    ("lil", "long data"): lambda X: X.data[0].extend([1.0] * 1000),
    ("lil", "short data"): lambda X: X.data[0].pop(),
    ("lil", "no list"): _put("rows", 0, None),
    ("lil", "few rows"): _set("rows", lambda a: a[:-1]),
    ("dok", "index outside"): lambda X: X._dict.__setitem__((10**6, 0), 1.0),
    ("dok", "negative index"): lambda X: X._dict.__setitem__((0, -9), 1.0),
    ("dok", "text"): lambda X: X._dict.__setitem__("ab", 1.0),
    ("dia", "many offsets"): _set("offsets", lambda a: np.append(a, [10**6] * 50)),
    ("dia", "repeated offsets"): _set("offsets", lambda a: np.zeros_like(a)),
    ("dia", "cut offsets"): _set("offsets", lambda a: a.astype(np.int64) + 2**32),
    ("dia", "float offsets"): _set("offsets", lambda a: a + 0.5),
    ("dia", "short data"): _set("data", lambda a: a[:1]),
}  # fmt: skip


def sparse_with_nan(a, rng):
    found = sparse.csr_array(np.asarray(a, dtype=np.float64))
    found.data[int(rng.integers(found.nnz))] = [np.nan, np.inf, 1e308, 0.0][int(rng.integers(4))]
    return found


_CHANGES = {
    "one_row_less": lambda a, rng: a[:-1],
    "one_row_more": lambda a, rng: np.concatenate([a, a[:1]]),
    "no_rows": lambda a, rng: a[:0],
    "one_row": lambda a, rng: a[:1],
    "no_columns": lambda a, rng: a[:, :0],
    "one_column_less": lambda a, rng: a[:, 1:],
    "one_column_more": lambda a, rng: np.hstack([a, a[:, :1]]),
    "transposed": lambda a, rng: np.transpose(a),
    "flat": lambda a, rng: np.ravel(a),
    "deeper": lambda a, rng: np.asarray(a)[..., np.newaxis],
    "two_columns": lambda a, rng: np.column_stack([a, a]),
    "no_dimension": lambda a, rng: np.asarray(a).reshape(-1)[0],
    "no_dimension_array": lambda a, rng: np.array(1.0),
    "nothing": lambda a, rng: None,
    "empty": lambda a, rng: np.empty(tuple(rng.integers(0, 2, 3))),
    "other": lambda a, rng: scalar(rng),
    "one_nan": lambda a, rng: _with(a, rng, [np.nan]),
    "one_infinite": lambda a, rng: _with(a, rng, [rng.choice([-np.inf, np.inf])]),
    "nan_and_infinities": lambda a, rng: _with(a, rng, [np.nan, np.inf, -np.inf]),
    "one_huge": lambda a, rng: _with(
        a, rng, [rng.choice([-1.0, 1.0]) * rng.choice([1e20, 1e75, 1e150, 1e160, 1e200, 1e308])]
    ),
    "all_huge": lambda a, rng: np.asarray(a) * rng.choice([1e20, 1e75, 1e150, 1e200, 1e307]),
    "all_tiny": lambda a, rng: np.asarray(a) * rng.choice([1e-20, 1e-75, 1e-150, 1e-200, 1e-307, 1e-320]),
    "of_all_sizes": lambda a, rng: np.asarray(a) * 10.0 ** rng.integers(-300, 300, np.shape(a)),
    "zeros": lambda a, rng: np.zeros_like(a),
    "constant": lambda a, rng: np.ones_like(a),
    "negative": lambda a, rng: -np.asarray(a, dtype=np.float64),
    "one_text": lambda a, rng: _with(a, rng, ["nought"]),
    "one_missing": one_missing,
    "shuffled": lambda a, rng: rng.permutation(np.asarray(a)),
    "of_other_type": of_other_type,
    "records": lambda a, rng: np.array([(1, 2.0)] * len(a), dtype=[("a", int), ("b", float)]),
    "masked": lambda a, rng: np.ma.array(a, mask=rng.random(np.shape(a)) < rng.choice([0.0, 0.2])),
    "lists": lambda a, rng: np.asarray(a).tolist(),
    "unequal_lists": lambda a, rng: [[1.0] * int(rng.integers(0, 4)) for _ in range(len(a))],
    "objects": objects,
    "mixed": mixed,
    "texts": lambda a, rng: [str(value) for value in np.asarray(a).reshape(-1)],
    "text": lambda a, rng: "a" * len(a),
    "generator": lambda a, rng: (value for value in a),
    "keys": lambda a, rng: dict(enumerate(np.asarray(a).tolist())),
    "backwards": lambda a, rng: np.asarray(a)[::-1],
    "strided": lambda a, rng: np.repeat(np.asarray(a), 2, axis=-1)[..., ::2],
    "by_columns": by_columns,
    "frame": frame,
    "series": series,
    "matrix": lambda a, rng: sparse.csr_matrix(a).todense(),
    "as_sparse": as_sparse,
    "sparse_vector": lambda a, rng: sparse.coo_array(np.asarray(a).reshape(-1)),
    "sparse_of_other_type": lambda a, rng: sparse.csr_array(a).astype(
        [np.complex128, np.int8, np.bool_, np.float32][int(rng.integers(4))]
    ),
    "sparse_with_repeated_indices": sparse_with_repeated_indices,
    "sparse_with_indices_outside": sparse_with_indices_outside,
    "sparse_with_rows_that_go_back": sparse_with_rows_that_go_back,
    "sparse_with_nan": sparse_with_nan,
    "sparse_with_broken_parts": sparse_with_broken_parts,
    "unreadable": unreadable,
}
