"""The one seam to the operating system's reads and writes. Knows no format: tests put a failing disk behind it."""

from __future__ import annotations

import errno
import os


class Files:
    """Whole reads and writes at an offset; OSError when the system refuses."""

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Up to `length` bytes; fewer where the file ends."""
        data = os.pread(fd, length, offset)
        while data and len(data) < length:  # the system may hand out large reads in pieces
            more = os.pread(fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def next_data(self, fd: int, offset: int) -> int | None:
        """Where, from `offset` on, the file may hold anything but zeros; None for nowhere."""
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return offset  # this file system does not tell
            raise

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """All of `data`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written
