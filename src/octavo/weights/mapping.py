"""Maps a file into memory, read-only. Knows no format."""

from __future__ import annotations

import mmap
from pathlib import Path

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
