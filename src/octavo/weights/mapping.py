"""Maps a file into memory, read-only. Knows no format."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelFormatError, ModelNotFound

Buffer = mmap.mmap | bytes


def map_file(path: Path) -> Buffer:
    """The bytes of `path`; the file stays mapped while a view of them lives.

    Raises ModelNotFound where nothing is, ModelFormatError for what is no readable file.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
    except FileNotFoundError:
        raise ModelNotFound(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelFormatError(f"{path}: cannot be read: {error.strerror}") from error


def drop_pages(data: npt.NDArray[np.uint8]) -> None:
    """Take the mapped pages of `data` out of this process's memory, if it is a view of a mapped file. They stay in the
    system's file cache, and reading `data` again fetches them from there."""
    owner: object = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    offset = data.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = offset // mmap.PAGESIZE * mmap.PAGESIZE
    owner.madvise(mmap.MADV_DONTNEED, start, offset + data.nbytes - start)
