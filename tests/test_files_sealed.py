"""A file of arrays takes no more memory than it has bytes, and holds what its document lists."""

import io
import tracemalloc
import zipfile
from hashlib import sha256

import numpy as np
import pytest

from lstd.errors import InvalidInputError
from lstd.files import read, write

ARRAYS = {"a": np.arange(3.0), "b": np.eye(2)}


def sealed(path, members, compression=zipfile.ZIP_STORED):
    """Write members under a checksum that is right."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    body = content.getvalue()
    path.write_bytes(body + b"sha256:" + sha256(body).hexdigest().encode())


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def load(path):
    return read(path, {"thing": lambda document, arrays: arrays})


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "file", "thing", {"answer": 42}, ARRAYS)
    return tmp_path / "file"


def test_what_is_written_is_read(path):
    found = load(path)
    assert list(found) == ["a", "b"]
    assert all(found[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())
    assert all(array.flags.writeable and array.flags.aligned for array in found.values())


def test_sealing_members_by_hand_gives_a_file_that_is_read(path):
    sealed(path, members_of(path))
    assert list(load(path)) == ["a", "b"]


def test_a_compressed_member_is_refused_before_it_is_inflated(path):
    members = [members_of(path)[0], ("b.npy", bytes(2**27)), members_of(path)[2]]
    sealed(path, members, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="does not hold a thing written by lstd"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members[:-1],
        lambda members: [("b.npy", members[1][1][:-8]), members[2]],
        lambda members: [("b.npy", members[1][1] + bytes(8)), members[2]],
        lambda members: [("b.npy", members[1][1].replace(b"(2, 2)", b"(2, 9)")), members[2]],
        lambda members: [("b.npy", members[1][1].replace(b"(2, 2)", b"(2**40,)")), members[2]],
        lambda members: [("b.npy", b"not an array"), members[2]],
        lambda members: [*members, ("c.npy", b"")],
    ],
    ids=["missing", "too short", "too long", "a false shape", "a vast shape", "no array", "an empty member"],
)
def test_members_that_are_no_arrays_are_refused(path, change):
    sealed(path, change(members_of(path)))
    with pytest.raises(InvalidInputError, match="does not hold a thing written by lstd"):
        load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_member_that_occurs_twice_is_refused(path):
    members = members_of(path)
    sealed(path, [*members, members[-1]])
    with pytest.raises(InvalidInputError, match="does not hold a thing written by lstd"):
        load(path)


def test_numpy_reads_it(path):
    with np.load(path) as archive:
        assert archive["a"].tolist() == [0.0, 1.0, 2.0]
