"""Aligned text tables, printed row by row as they are measured. Formats no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO


class Table:
    """Columns of right-aligned text. titles set the width; `stream` None shows nothing."""

    def __init__(self, stream: IO[str] | None, titles: Sequence[str]) -> None:
        self._stream = stream
        self._widths = [max(len(title), 7) for title in titles]
        self.row(titles)

    def row(self, cells: Sequence[str]) -> None:
        """Print one row at once: the next may take minutes."""
        if self._stream is not None:
            padded = (cell.rjust(width) for cell, width in zip(cells, self._widths, strict=True))
            print("  ".join(padded), file=self._stream, flush=True)
