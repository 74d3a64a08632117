"""Step -> flat arrays: the only encoder between the scheduler's plain values and a backend. Computes no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.kv import KVCacheManager
from octavo.ops.base import AttentionMeta, StepInputs
from octavo.sched.step import Row, Step

Int32 = npt.NDArray[np.int32]
HostArray = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class LogitSpan:
    """Which logits belong to a row: logits[first : first + count] predict the tokens after positions
    start ... start + count - 1 of sequence `seq`. When `sample`, the last one yields the next token."""

    seq: int
    first: int
    count: int
    start: int
    sample: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's rows as arrays. inputs: see StepInputs. spans: one for each row that wants logits, in row order."""

    inputs: StepInputs[HostArray]
    spans: tuple[LogitSpan, ...]


class BlockTables:
    """Block tables of the running sequences as one array [groups, max_seqs, max_blocks], kept up to date by deltas.

    A running sequence's table changes only at its end (appended blocks, a copied last block) and where a window lets
    go of blocks that are never read again, so a row rewrites its table from the first block that it writes. A slot
    whose sequence is new, was reopened or was forked is filled anew.
    """

    def __init__(self, groups: int, max_seqs: int, max_blocks: int) -> None:
        self._table: Int32 = np.full((groups, max_seqs, max_blocks), -1, dtype=np.int32)
        self._owner: list[tuple[int, int] | None] = [None] * max_seqs  # (sequence, position that it reaches)

    def forget(self, sequences: Sequence[int]) -> None:
        """The sequences were closed: whatever their slots hold is stale."""
        gone = set(sequences)
        if gone:
            self._owner = [None if owner is not None and owner[0] in gone else owner for owner in self._owner]

    def update(self, row: Row, kv: KVCacheManager) -> None:
        """Bring the row's slot up to date with the manager's table."""
        fresh = self._owner[row.slot] != (row.seq, row.start)
        first = 0 if fresh else row.start // kv.block_size
        for group in range(len(kv.windows)):
            ids = kv.block_ids(row.seq, group)
            self._table[group, row.slot, first : len(ids)] = ids[first:]
        self._owner[row.slot] = (row.seq, row.start + row.count)

    def gather(self, slots: Int32, columns: int) -> Int32:
        """[groups, len(slots), columns], contiguous."""
        return np.ascontiguousarray(self._table[:, slots, :columns])


class BatchEncoder:
    """Builds batches; owns the array form of the block tables and nothing else. tokens_of: a sequence's tokens."""

    def __init__(
        self, kv: KVCacheManager, tokens_of: Callable[[int], Sequence[int]], *, max_seqs: int, max_model_len: int
    ) -> None:
        self._kv = kv
        self._tokens_of = tokens_of
        blocks = -(-max_model_len // kv.block_size)
        self._tables = BlockTables(len(kv.windows), max_seqs, blocks)

    def forget(self, step: Step) -> None:
        """Tables of sequences that ended or were preempted are stale; `encode` does this itself."""
        self._tables.forget(step.preempted)
        self._tables.forget(step.finished)

    def encode(self, step: Step, scored: Mapping[int, int]) -> Batch:
        """scored: for sequences whose prompt wants log-probabilities, how many leading positions have logits that
        somebody reads."""
        self.forget(step)
        ids: list[int] = []
        for row in step.rows:
            self._tables.update(row, self._kv)
            ids.extend(self._tokens_of(row.seq)[row.start : row.start + row.count])
        starts = np.array([row.start for row in step.rows], dtype=np.int32)
        counts = np.array([row.count for row in step.rows], dtype=np.int32)
        offsets = np.zeros(len(step.rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        spans, logit_rows = _logit_spans(step.rows, offsets.tolist(), scored)
        row_of = np.repeat(np.arange(len(step.rows)), counts)
        positions = np.arange(len(ids), dtype=np.int32) - offsets[row_of] + starts[row_of]
        inputs: StepInputs[HostArray] = StepInputs(
            ids=np.array(ids, dtype=np.int32),
            positions=positions,
            logit_rows=np.array(logit_rows, dtype=np.int32),
            meta=self._meta(step.rows, starts + counts, offsets, row_of, positions),
        )
        return Batch(inputs, spans)

    def _meta(
        self, rows: tuple[Row, ...], seq_lens: Int32, offsets: Int32, row_of: npt.NDArray[np.intp], positions: Int32
    ) -> AttentionMeta[HostArray]:
        size = self._kv.block_size
        longest = int(seq_lens.max())
        table = self._tables.gather(np.array([row.slot for row in rows], dtype=np.int32), -(-longest // size))
        slots = table[:, row_of, positions // size].astype(np.int64) * size + positions % size
        return AttentionMeta(
            cu_seqlens_q=offsets,
            seq_lens=seq_lens,
            block_table=table,
            slot_mapping=slots,
            max_query_len=max(row.count for row in rows),
            max_seq_len=longest,
        )


def _logit_spans(
    rows: tuple[Row, ...], offsets: list[int], scored: Mapping[int, int]
) -> tuple[tuple[LogitSpan, ...], list[int]]:
    spans: list[LogitSpan] = []
    wanted: list[int] = []
    for row, offset in zip(rows, offsets, strict=False):
        last = row.count - 1 if row.sample else row.count
        # Positions [start, read) are scored; the sampling position comes after them and is always wanted.
        read = min(max(scored.get(row.seq, 0) - row.start, 0), last)
        chosen = [*range(read), *([last] if row.sample else [])]
        if chosen:
            spans.append(LogitSpan(row.seq, len(wanted), len(chosen), row.start, row.sample))
            wanted.extend(offset + index for index in chosen)
    return tuple(spans), wanted
