"""Matrix products whose rows do not depend on each other's number, order or values. Knows no layers.

The last bits of a BLAS product depend on the shape of the operands, on where in the shape a row stands and on the
number of threads. So here every product is cut into pieces of fixed shapes, TILE rows by PANEL columns, too small for
BLAS to share among threads; and whether a row's place in its tile matters is not believed but tried, for each depth
that occurs (`live_rows`): where it does matter, a tile carries a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.ops.dequant import dequantize
from octavo.ops.tensor import Tensor

Floats = npt.NDArray[np.float32]

TILE = 8  # rows of a product: measured, 8 cost hardly more than 1, and more rows lose their independence in OpenBLAS
PANEL = 16  # columns of a product
DEPTH = 2048  # terms of a product; longer sums are added up from pieces. OpenBLAS shares out beyond 8 x 16 x 2048
_LOAD_ROWS = 128  # rows dequantised at once while loading, so that they stay in cache: a multiple of PANEL


@dataclass(frozen=True, slots=True)
class RowTiles:
    """How many rows of each tile carry data; the others repeat one of them, and their results are dropped."""

    live: int

    def rows(self, count: int) -> npt.NDArray[np.intp]:
        """[tiles, TILE]: the source row that each row of each tile holds, of `count` >= 1 in all."""
        starts = np.arange(0, count, self.live)[:, None]
        return np.minimum(starts + np.minimum(np.arange(TILE), self.live - 1), count - 1)

    def unpack(self, tiles: Floats, count: int) -> Floats:
        """[..., tiles, TILE, columns] -> [..., count, columns]."""
        live = tiles[..., : self.live, :]
        return live.reshape(*tiles.shape[:-3], -1, tiles.shape[-1])[..., :count, :]


def live_rows(depth: int, columns: int, *, transposed: bool = False) -> int:
    """How many rows of a [TILE, depth] x [depth, columns] product may carry data: all, or one where BLAS treats rows
    of one tile unequally, which shows as soon as equal rows give unequal results."""
    draw = np.random.default_rng(0).standard_normal
    row = draw(depth, np.float32)
    for _ in range(1 + 16 // columns):  # a few columns might agree by chance, many do not
        other = draw((columns, depth), np.float32).T if transposed else draw((depth, columns), np.float32)
        result = np.repeat(row[None], TILE, axis=0) @ other
        if not (result == result[0]).all():
            return 1
    return TILE


@dataclass(frozen=True, slots=True)
class Weight:
    """A prepared matrix [out, in]. panels: float32 [ceil(out / PANEL), in, PANEL], zeros beyond `out`."""

    panels: Floats
    out: int
    tiles: RowTiles

    @property
    def depth(self) -> int:
        """Columns of the matrix: the features that it takes."""
        return int(self.panels.shape[1])

    def rows(self, ids: npt.NDArray[np.integer]) -> Floats:
        """Rows of the matrix: [len(ids), in]."""
        panel, lane = np.divmod(ids, PANEL)
        return self.panels[panel, :, lane]

    def times(self, x: Floats) -> Floats:
        """x [N, in] -> x @ matrix.T [N, out]."""
        count = len(x)
        if not count:
            return np.empty((0, self.out), np.float32)
        tiled = x[self.tiles.rows(count)]
        columns = len(self.panels) * PANEL
        result = np.empty((len(tiled), TILE, columns), np.float32)
        # A panel meets all tiles before the next is touched: weights stream from memory once, however many rows.
        by_panel = result.reshape(len(tiled), TILE, -1, PANEL).transpose(2, 0, 1, 3)
        np.matmul(tiled[None, ..., :DEPTH], self.panels[:, None, :DEPTH], out=by_panel)
        for start in range(DEPTH, self.depth, DEPTH):
            piece = slice(start, start + DEPTH)
            by_panel += np.matmul(tiled[None, ..., piece], self.panels[:, None, piece])
        return self.tiles.unpack(result, count)[:, : self.out]


def prepare(parts: Sequence[Tensor]) -> Weight:
    """Stack matrices [out, in] along their first axis. ValueError when their depths differ."""
    depths = {part.shape[-1] for part in parts}
    if len(depths) != 1 or any(len(part.shape) != 2 for part in parts):
        raise ValueError(f"weights do not stack: {[(part.name, part.shape) for part in parts]}")
    (depth,) = depths
    out = sum(part.shape[0] for part in parts)
    panels = np.zeros((-(-out // PANEL), depth, PANEL), np.float32)
    start = 0
    for part in parts:
        for piece in _pieces(part):
            _fill(panels, start, dequantize(piece))
            start += piece.shape[0]
    pieces = {min(DEPTH, depth - first) for first in range(0, depth, DEPTH)}
    return Weight(panels, out, RowTiles(min(live_rows(piece, PANEL) for piece in pieces)))


def _pieces(part: Tensor) -> list[Tensor]:
    """The tensor in runs of rows, so that a large one is never in memory twice."""
    rows, depth = part.shape
    row_bytes = depth // part.type.block * part.type.nbytes
    if rows <= _LOAD_ROWS or rows * row_bytes != part.data.size:
        return [part]
    return [
        Tensor(
            part.name,
            (min(_LOAD_ROWS, rows - first), depth),
            part.type,
            part.data[first * row_bytes : (first + _LOAD_ROWS) * row_bytes],
        )
        for first in range(0, rows, _LOAD_ROWS)
    ]


def _fill(panels: Floats, start: int, values: Floats) -> None:
    """Rows `start` onwards of the matrix that the panels hold."""
    end = start + len(values)
    if start % PANEL or end % PANEL:
        panel, lane = np.divmod(np.arange(start, end), PANEL)
        panels[panel, :, lane] = values
    else:
        panels[start // PANEL : end // PANEL] = values.reshape(-1, PANEL, values.shape[1]).transpose(0, 2, 1)
