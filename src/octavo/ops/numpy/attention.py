"""Paged attention in float32. Reads keys and values only through a block table; knows no layers and no scheduler.

The result of a query depends, to the last bit, on its own position, its sequence's keys and values and nothing else:
keys are taken in tiles of KEYS at fixed absolute positions, a tile's products have one fixed shape, and the tiles'
sums are added one by one in order of position. Positions that a query does not see weigh exactly nothing, because
their score is replaced, never scaled or added to.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.errors import KVError
from octavo.ops.base import Attention, AttentionMeta, KVSlot
from octavo.ops.kv_pool import KVPool
from octavo.ops.numpy.products import RowTiles

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]
Array = npt.NDArray[np.generic]

KEYS = 64  # key positions of a tile
_QUERIES = 64  # query positions taken together: bounds the scores in memory, has no influence on results
_DEAD = np.float32(-np.inf)


class Sequence:
    """One sequence's keys and values in one layer, read through its row of a block table."""

    def __init__(self, pool: KVPool, layer: int, table: Ints) -> None:
        self._pool, self._layer, self._table = pool, layer, table

    def read(self, first: int, end: int) -> tuple[Floats, Floats]:
        """Positions first to end - 1, and no others, in whole tiles from the one that holds `first`; zeros elsewhere.
        Two of [kv_heads, tiles, KEYS, head_size]."""
        layout = self._pool.layout
        size = layout.block_size
        if end > len(self._table) * size:
            raise KVError(f"a sequence of {end} tokens has a table of {len(self._table)} blocks of {size}")
        blocks = self._table[first // size : -(-end // size)]
        start = first // KEYS * KEYS
        tiles = -(-end // KEYS) - start // KEYS
        both = []
        for found in self._pool.gather(blocks, self._layer):
            live = found[:, first % size : first % size + end - first]
            padded = np.zeros((layout.kv_heads, tiles * KEYS, layout.head_size), np.float32)
            padded[:, first - start : end - start] = live
            both.append(padded.reshape(layout.kv_heads, tiles, KEYS, layout.head_size))
        return both[0], both[1]


def attend(
    q: Floats, pool: KVPool, slot: KVSlot, attention: Attention[Floats], meta: AttentionMeta[Array], tiles: RowTiles
) -> Floats:
    """q [N, heads * head_size] -> the same shape."""
    offsets = meta.cu_seqlens_q.tolist()
    lengths = meta.seq_lens.tolist()
    if offsets[0] != 0 or offsets[-1] != len(q) or len(offsets) != len(lengths) + 1:
        raise ValueError(f"{len(q)} queries of {len(lengths)} sequences do not match row offsets {offsets}")
    heads = q.reshape(len(q), attention.num_heads, attention.head_size)
    out = np.empty_like(heads)
    for row, length in enumerate(lengths):
        begin, end = offsets[row], offsets[row + 1]
        if not 0 <= end - begin <= length:
            raise ValueError(f"sequence {row} has {end - begin} new tokens of {length}")
        sequence = Sequence(pool, slot.index, meta.block_table[slot.group, row])
        for start in range(begin, end, _QUERIES):
            stop = min(start + _QUERIES, end)
            out[start:stop] = _attend_run(heads[start:stop], length - end + start, sequence, attention, tiles)
    return out.reshape(q.shape)


def _attend_run(q: Floats, first: int, sequence: Sequence, attention: Attention[Floats], tiles: RowTiles) -> Floats:
    """Queries [n, heads, head_size] at positions first to first + n - 1 of one sequence."""
    count = len(q)
    start = 0 if attention.window is None else max(0, first - attention.window + 1)
    keys, values = sequence.read(start, first + count)
    if count > 1 and not np.isfinite(values).all():
        # A weight of zero times infinity is not zero: here each query must meet only the values that it sees.
        each = [_attend_run(q[i : i + 1], first + i, sequence, attention, tiles) for i in range(count)]
        return np.concatenate(each)

    kv_heads, group = attention.num_kv_heads, attention.num_heads // attention.num_kv_heads
    by_head = q.reshape(count, kv_heads, group, -1).swapaxes(0, 1).reshape(kv_heads, count * group, -1)
    rows = tiles.rows(count * group)  # row r is query r // group, head r % group of its key head
    scores = np.matmul(by_head[:, rows][:, :, None], keys[:, None].swapaxes(-1, -2))
    scores *= np.float32(attention.scale)  # [kv_heads, row tiles, key tiles, TILE, KEYS]

    slopes, sinks = _per_row(attention.alibi_slopes, rows, kv_heads), _per_row(attention.sinks, rows, kv_heads)
    distance = _distance(first + rows // group, start // KEYS, keys.shape[1])
    _shape_scores(scores, distance, slopes, attention)

    peak = scores.max(axis=(2, 4))
    if sinks is not None:
        peak = np.maximum(peak, sinks)
    weights = np.exp(scores - peak[:, :, None, :, None])
    tile_sums = weights.sum(axis=-1)
    total = np.zeros_like(peak) if sinks is None else np.exp(sinks - peak)
    mixed = np.zeros((*peak.shape, q.shape[-1]), np.float32)
    for tile in range(keys.shape[1]):
        total += tile_sums[:, :, tile]
        mixed += np.matmul(weights[:, :, tile], values[:, None, tile])
    mixed /= total[..., None]
    return tiles.unpack(mixed, count * group).reshape(kv_heads, count, group, -1).swapaxes(0, 1).reshape(q.shape)


def _per_row(per_head: Floats | None, rows: npt.NDArray[np.intp], kv_heads: int) -> Floats | None:
    """[heads] -> [kv_heads, row tiles, TILE]."""
    if per_head is None:
        return None
    by_kv_head = per_head.reshape(kv_heads, -1)
    return by_kv_head[:, rows % by_kv_head.shape[1]]


def _distance(positions: npt.NDArray[np.intp], first_tile: int, key_tiles: int) -> npt.NDArray[np.intp]:
    """Key position minus query position: [row tiles, key tiles, TILE, KEYS]."""
    keys = (first_tile * KEYS + np.arange(key_tiles * KEYS)).reshape(1, key_tiles, 1, KEYS)
    return keys - positions[:, None, :, None]


def _shape_scores(
    scores: Floats, distance: npt.NDArray[np.intp], slopes: Floats | None, attention: Attention[Floats]
) -> None:
    """Soft cap, then ALiBi, then the mask, in place."""
    if attention.softcap is not None:
        cap = np.float32(attention.softcap)
        scores[:] = cap * np.tanh(scores / cap)
    if slopes is not None:
        scores += slopes[:, :, None, :, None] * distance.astype(np.float32)
    unseen = distance > 0
    if attention.window is not None:
        unseen |= distance <= -attention.window
    np.copyto(scores, _DEAD, where=unseen)
