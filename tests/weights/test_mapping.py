"""Mapped files: what a reader is given, and that dropped pages leave the process and come back."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from octavo.errors import ModelFormatError, ModelNotFound
from octavo.weights.mapping import drop_pages, map_file

PAGES = 1 << 10


@pytest.fixture
def mapped(tmp_path: Path) -> npt.NDArray[np.uint8]:
    path = tmp_path / "file"
    np.arange(PAGES * mmap.PAGESIZE // 4, dtype=np.uint32).tofile(path)
    return np.frombuffer(map_file(path), np.uint8)


def resident(of: npt.NDArray[np.uint8]) -> int:
    """Bytes of the mapping that begins at `of` which are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.startswith(f"{of.ctypes.data:x}-"):
            return next(int(each.split()[1]) for each in lines if each.startswith("Rss:")) * 1024
    raise AssertionError("not mapped")


def test_dropped_pages_are_gone_and_come_back_with_their_content(mapped: npt.NDArray[np.uint8]) -> None:
    before = int(mapped.sum(dtype=np.uint64))
    assert resident(mapped) == mapped.nbytes
    inside = mapped[3 * mmap.PAGESIZE + 5 : -7]  # its first and last page are dropped whole
    drop_pages(inside)
    assert resident(mapped) <= 3 * mmap.PAGESIZE
    assert int(mapped.sum(dtype=np.uint64)) == before


def test_what_is_no_mapping_is_left_alone() -> None:
    for data in (np.ones(3 * mmap.PAGESIZE, np.uint8), np.frombuffer(b"\1" * 3 * mmap.PAGESIZE, np.uint8)):
        drop_pages(data)
        assert data.all()


def test_a_file_that_is_missing_empty_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        map_file(tmp_path / "none")
    (tmp_path / "empty").touch()
    assert map_file(tmp_path / "empty") == b""
    with pytest.raises(ModelFormatError, match="cannot be read"):
        map_file(tmp_path)
