"""The slot canary: a shadow of the KV pool that knows whose tokens each slot holds, and checks every read against it.

It follows what the device is told to do (block operations, slot mappings, block tables as arrays), so it sees faults of
the manager, the mover and the encoder alike. Slow; for `OCTAVO_CHECK=3`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from octavo.errors import KVError
from octavo.kv import Copy, Fetch, Op, Spill
from octavo.ops.base import AttentionMeta, StepInputs
from octavo.sched.request import Request
from octavo.sched.step import Row

Tags = npt.NDArray[np.uint64]
Inputs = StepInputs[npt.NDArray[np.generic]]

EMPTY = np.uint64(0)  # never written, or lost: whoever reads it is at fault
UNKNOWN = np.uint64(1)  # from a tier that held it before this engine began
SPILLS = 1 << 16  # blocks below the pool whose tags are remembered
INJECT_EVERY = 16  # checked steps between two faults that it must see

_TOKEN = np.uint64(0x9E3779B97F4A7C15)
_PLACE = np.uint64(0xC2B2AE3D27D4EB4F)


class Canary:
    """Tags of a pool of `num_blocks` x `block_size` slots, shared by layer groups with these windows.

    The tag of a slot stands for a layer group, a namespace, and all tokens up to a position. `moved` once a step's
    block operations have run, then `check` before its rows do. Raises KVError at the first slot that a row would read
    and that does not hold what the row's tokens say. Every now and then it checks a copy with a fault put in, and
    raises if it does not see that: `faults_seen` counts them, and `slots_read` what was verified.
    """

    def __init__(self, num_blocks: int, block_size: int, windows: Sequence[int | None]) -> None:
        self._shadow: Tags = np.zeros((num_blocks, block_size), np.uint64)
        self._size = block_size
        self._windows = tuple(windows)
        self._spilled: dict[bytes, Tags] = {}
        self._steps = 0
        self.slots_read = 0
        self.faults_seen = 0

    def moved(self, ops: Sequence[Op], lost: Sequence[int]) -> None:
        """These block operations have run, but for the fetches into `lost`."""
        for op in ops:
            match op:
                case Spill(block=block, key=key):
                    self._spilled[key] = self._shadow[block].copy()
                    while len(self._spilled) > SPILLS:
                        del self._spilled[next(iter(self._spilled))]
                case Copy(src=src, dst=dst):
                    self._shadow[dst] = self._shadow[src]
                case Fetch(key=key, block=block):
                    found = self._spilled.get(key)
                    self._shadow[block] = UNKNOWN if found is None else found
                    if block in lost:
                        self._shadow[block] = EMPTY

    def check(self, rows: Sequence[Row], inputs: Inputs, request_of: Callable[[int], Request]) -> None:
        """Before the rows run: write their tags where they will write, then verify all that they will read."""
        tags = [self._tags(request_of(row.seq), row.start + row.count) for row in rows]
        self._write(rows, inputs.meta, tags)
        self._verify(rows, inputs.meta.block_table, tags)
        self._steps += 1
        if self._steps % INJECT_EVERY == 1:
            self._inject(rows, inputs.meta, tags)

    def _tags(self, request: Request, length: int) -> Tags:
        """[groups, length]: each position's tag, by all tokens up to it. uint64 arithmetic wraps."""
        tokens = np.array(request.tokens[:length], np.int64).astype(np.uint64)
        places = np.arange(1, length + 1, dtype=np.uint64)
        salt = np.frombuffer(blake2b(request.namespace, digest_size=8).digest(), np.uint64)
        whole = np.cumsum(_mix(tokens * _TOKEN + places * _PLACE), dtype=np.uint64) ^ salt
        groups = np.arange(1, len(self._windows) + 1, dtype=np.uint64)
        return np.maximum(_mix(whole[None] + groups[:, None] * _PLACE), np.uint64(2))

    def _write(self, rows: Sequence[Row], meta: AttentionMeta[npt.NDArray[np.generic]], tags: Sequence[Tags]) -> None:
        flat = self._shadow.reshape(-1)
        slots = np.asarray(meta.slot_mapping)
        starts = np.asarray(meta.cu_seqlens_q)
        for group in range(len(self._windows)):
            if len(np.unique(slots[group])) != slots.shape[1]:
                raise KVError(f"canary: two tokens of a step write to one slot of layer group {group}")
            for place, row in enumerate(rows):
                flat[slots[group, starts[place] : starts[place + 1]]] = tags[place][group, row.start :]

    def _verify(self, rows: Sequence[Row], table: npt.NDArray[np.generic], tags: Sequence[Tags]) -> None:
        for place, row in enumerate(rows):
            for group, window in enumerate(self._windows):
                first = 0 if window is None else max(0, row.start - window + 1)
                positions = np.arange(first, row.start + row.count)
                blocks = np.asarray(table[group, place])[positions // self._size]
                held = self._shadow[blocks, positions % self._size]
                wrong = (held != tags[place][group, first:]) & (held != UNKNOWN) | (blocks < 0)
                if wrong.any():
                    at = int(np.argmax(wrong))
                    raise KVError(
                        f"canary: sequence {row.seq} would read position {positions[at]} of layer group {group} from"
                        f" block {blocks[at]}, which does not hold it: please report this"
                    )
                self.slots_read += len(positions)

    def _inject(self, rows: Sequence[Row], meta: AttentionMeta[npt.NDArray[np.generic]], tags: Sequence[Tags]) -> None:
        """Point the last row's newest block at one that holds something else, in a copy of the tables: that must be
        seen."""
        place, row = len(rows) - 1, rows[-1]
        column, offset = divmod(row.start + row.count - 1, self._size)
        there = self._shadow[:, offset]
        others = np.flatnonzero((there != tags[place][0, -1]) & (there != UNKNOWN))
        if not len(others):
            return
        table, read = np.array(meta.block_table), self.slots_read
        table[0, place, column] = others[0]
        try:
            self._verify(rows, table, tags)
        except KVError:
            self.faults_seen += 1
            self.slots_read = read
            return
        raise KVError("canary: a wrong block table went unseen, so nothing that it says can be trusted")


def _mix(values: Tags) -> Tags:
    """A bijection of 64 bits that spreads every bit (the finaliser of SplitMix64)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
