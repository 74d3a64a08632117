"""The paged pool of keys and values: one array, and the only place that knows its number format and its bounds.

Knows nothing of sequences: a slot is a number (block * block_size + offset), a block is a number, and what they mean is
the caller's affair. Slots that nobody wrote may hold anything, NaN included.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import numpy.typing as npt

from octavo.errors import KVError
from octavo.ops.base import KVLayout

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]


class KVPool:
    """`array`: [num_blocks, layers, 2 (K, V), kv_heads, block_size, head_size], float32, or uint16 holding bfloat16.

    A block is contiguous, so it is copied, spilled and fetched in one piece.
    """

    def __init__(self, layout: KVLayout) -> None:
        self.layout = layout
        shape = (layout.num_blocks, layout.layers, 2, layout.kv_heads, layout.block_size, layout.head_size)
        # Zeroed pages come from the system untouched: memory is used only as blocks are, and can be given back.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, layout.num_blocks * layout.block_bytes, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a system without huge pages does without
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        values = np.frombuffer(self._memory, np.float32 if layout.dtype == "float32" else np.uint16)
        self.array = values.reshape(shape)

    def write(self, slots: Ints, layer: int, k: Floats, v: Floats) -> None:
        """k, v: float32 [N, kv_heads, head_size] into slots [N] of one layer. KVError when a slot is outside."""
        self._check("slot", slots, self.layout.num_blocks * self.layout.block_size)
        block, offset = np.divmod(slots, self.layout.block_size)
        self.array[block, layer, 0, :, offset] = self._stored(k)
        self.array[block, layer, 1, :, offset] = self._stored(v)

    def gather(self, blocks: Ints, layer: int) -> tuple[Floats, Floats]:
        """Keys and values of whole blocks in the order given.

        Two of float32 [kv_heads, blocks * block_size, head_size]. KVError when a block is outside the pool or
        is -1, that is, was given back.
        """
        self._check("block", blocks, self.layout.num_blocks)
        found = self.array[blocks, layer]
        if found.dtype == np.uint16:
            found = np.left_shift(found, 16, dtype=np.uint32).view(np.float32)
        rows = (self.layout.kv_heads, len(blocks) * self.layout.block_size, self.layout.head_size)
        k, v = np.moveaxis(found, 0, 2).reshape(2, *rows)
        return k, v

    def copy_block(self, src: int, dst: int) -> None:
        """Every layer's keys and values of block `src` into block `dst`."""
        self._check("block", np.array([src, dst]), self.layout.num_blocks)
        self.array[dst] = self.array[src]

    def read_block(self, block: int) -> bytes:
        """The bytes of one block: layout.block_bytes of them."""
        self._check("block", np.array([block]), self.layout.num_blocks)
        return bytes(self.array[block].data)

    def write_block(self, block: int, data: bytes) -> None:
        """Bytes that `read_block` gave, into any block. KVError when there are too few or too many."""
        self._check("block", np.array([block]), self.layout.num_blocks)
        if len(data) != self.layout.block_bytes:
            raise KVError(f"a block takes {self.layout.block_bytes} bytes, {len(data)} were given")
        self.array[block] = np.frombuffer(data, self.array.dtype).reshape(self.array.shape[1:])

    def discard(self, first: int) -> None:
        """Give the memory of blocks from `first` on back to the system. What they held is lost; they can be used."""
        start = -(-first * self.layout.block_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if start < len(self._memory) and hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED, start, len(self._memory) - start)

    def _stored(self, values: Floats) -> npt.NDArray[np.float32 | np.uint16]:
        """Values in the pool's format; bfloat16 rounds to the nearest, ties to even, and keeps NaN."""
        if self.array.dtype == np.float32:
            return values
        bits = np.ascontiguousarray(values).view(np.uint32)
        rounded = (bits + (bits >> 16 & 1) + np.uint32(0x7FFF)) >> 16
        return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)

    @staticmethod
    def _check(what: str, numbers: Ints, limit: int) -> None:
        if numbers.size and (numbers.min() < 0 or numbers.max() >= limit):
            wrong = numbers[(numbers < 0) | (numbers >= limit)][0]
            raise KVError(f"{what} {wrong} is not one of the pool's {limit} ({what}s 0 to {limit - 1})")
