"""Writing a file so that it is either there whole or not at all."""

from __future__ import annotations

from pathlib import Path

from lstd.io.files import replacing


def write_bytes(path: Path, data: bytes) -> Path:
    """Write `data` to a temporary name beside `path`, then rename it to `path`.

    Parameters
    ----------
    path : Path
        The file to write; its folder is made when it does not exist.
    data : bytes
        The whole content.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    OutputError
        If the folder cannot be written or the disk is full; nothing half-written is left behind.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder) / "tables" / "a.csv", b"x,1").read_text()
    'x,1'
    """
    with replacing(path) as file:
        file.write(data)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8, escaping what is no text, with its line ends as they are; see :func:`write_bytes`."""
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))
