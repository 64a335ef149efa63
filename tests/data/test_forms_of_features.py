"""Features in every form of NumPy, SciPy and pandas, in any mix of X and X_next: the same model."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from lstd import LSTD, LSTDStatistics, RecursiveLSTD, fit_chunks
from tolerances import assert_close

T, N = 40, 4
RNG = np.random.default_rng(0)
DRAWN = RNG.normal(size=(2, T, N)).astype(np.float32) * (RNG.random((2, T, N)) < 0.6)  # float32 holds them exactly
X, CUT = DRAWN.astype(np.float64)
LAST = np.arange(T) % 5 == 4
X_NEXT = np.where(LAST[:, np.newaxis], CUT, np.roll(X, -1, axis=0))
Y = RNG.normal(size=T)
COLUMNS = {"episode": np.arange(T) // 5, "terminated": np.arange(T) % 10 == 4}


def long_indices(phi):
    rows = sparse.csr_array(phi)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


def read_only(phi):
    phi = phi.copy()
    phi.flags.writeable = False
    return phi


def frame_of(phi):
    return pytest.importorskip("pandas").DataFrame(phi, columns=list("abcd"))


def sparse_frame(phi):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(phi), columns=list("abcd"))


def frame_sparse_about_nan(phi):
    return frame_of(phi).astype("Sparse[float]")


def frame_of_sparse_types(phi):
    pd = pytest.importorskip("pandas")
    return sparse_frame(phi).astype({"a": pd.SparseDtype("float32", 0.0)})


FORMS = {
    "dense": np.array, "float32": lambda phi: phi.astype(np.float32), "Fortran": np.asfortranarray,
    "read-only": read_only, "other bytes": lambda phi: phi.astype(">f8"),
    "view": lambda phi: np.repeat(phi, 2, 1)[:, ::2],
    "list": np.ndarray.tolist, "csr": sparse.csr_array, "csc": sparse.csc_array, "coo": sparse.coo_array,
    "csr matrix": sparse.csr_matrix, "csc matrix": sparse.csc_matrix, "coo matrix": sparse.coo_matrix,
    "csr of 64 bits": long_indices, "csr of float32": lambda phi: sparse.csr_array(phi.astype(np.float32)),
    "lil": sparse.lil_array, "dok": sparse.dok_array, "bsr": sparse.bsr_array, "dia": sparse.dia_array,
    "frame": frame_of, "sparse frame": sparse_frame, "frame sparse about NaN": frame_sparse_about_nan,
    "frame of sparse types": frame_of_sparse_types,
}  # fmt: skip


def rows(phi, part):
    if sparse.issparse(phi):
        return phi.tocsr()[part]
    return phi.iloc[part] if hasattr(phi, "iloc") else phi[part]


def of_fit(one, two):
    return LSTD(0.9).fit(one, Y, X_next=two, **COLUMNS).coef_


def of_partial_fit(one, two):
    model = LSTD(0.9)
    for part in (slice(13), slice(13, 20), slice(20, T)):
        columns = {name: values[part] for name, values in COLUMNS.items()}
        model.partial_fit(rows(one, part), Y[part], X_next=rows(two, part), **columns)
    return model.coef_


def of_mixed_chunks(one, two):
    """The first chunk in the given forms, and the second dense with sparse successors."""
    model = LSTD(0.9)
    first, second = slice(13), slice(13, T)
    forms = [(first, rows(one, first), rows(two, first)), (second, X[second], sparse.csr_array(X_NEXT[second]))]
    for part, phi, phi_next in forms:
        columns = {name: values[part] for name, values in COLUMNS.items()}
        model.partial_fit(phi, Y[part], X_next=phi_next, **columns)
    return model.coef_


def of_statistics(one, two):
    sums = LSTDStatistics.from_arrays(one, Y, gamma=0.9, lmbda=0.9, X_next=two, **COLUMNS)
    return sums.solve(1.0, "boyan").weights


def of_chunks(one, two):
    return fit_chunks([{"X": one, "y": Y, "X_next": two, **COLUMNS}], gamma=0.9).coef_


def of_products(one, two):
    return LSTD(0.9, solver="iterative").fit(one, Y, X_next=two, **COLUMNS).coef_


def of_recursion(one, two):
    return RecursiveLSTD(N, 0.9, 0.9, 1.0).partial_fit(one, Y, X_next=two, **COLUMNS).weights


def of_intervals(one, two):
    return LSTD(0.9).fit(one, Y, X_next=two, **COLUMNS).predict_interval(X[:3]).standard_error


def of_score(one, two):
    return LSTD(0.9).fit(X, Y, X_next=X_NEXT, **COLUMNS).score(one, Y, X_next=two, **COLUMNS)


ROUTES = [
    of_fit, of_partial_fit, of_mixed_chunks, of_statistics, of_chunks, of_products, of_recursion, of_intervals,
    of_score,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:X .* feature names")  # where only some chunks are frames
@pytest.mark.parametrize("route", ROUTES)
def test_forms_of_features_in_any_mix(route):
    kind = "iterative" if route is of_products else "sums"  # the condition number is about 3
    expected = route(X, X_NEXT)
    now, following = ({name: form(phi) for name, form in FORMS.items()} for phi in (X, X_NEXT))
    pairs = [*itertools.product(FORMS, FORMS)]
    if route is not of_statistics:  # each form in each place twice; other pairs on each route
        pairs = pairs[ROUTES.index(route) :: 11]
    for one, two in pairs:
        assert_close(route(now[one], following[two]), expected, kind, err_msg=f"{one}, {two}")
