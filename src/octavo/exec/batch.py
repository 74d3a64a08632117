"""Step -> flat arrays: the only encoder between the scheduler's plain values and a backend. Computes no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.exec.block_tables import BlockTables, Int32
from octavo.kv import KVCacheManager, Spill
from octavo.ops.base import AttentionMeta, StepInputs
from octavo.sched.step import Row, Step

HostArray = npt.NDArray[np.generic]
TokensOf = Callable[[int], Sequence[int]]

SPARE_COLUMNS = 8  # of a block table, so that a batch that repeats need not be built again at every new block


@dataclass(frozen=True, slots=True)
class Span:
    """Rows [first, first + count) of an array belong to positions [start, start + count) of sequence `seq`."""

    seq: int
    first: int
    count: int
    start: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody reads of prompts besides the next token, by sequence. scored: how many leading positions have
    logits for log-probabilities. pooled: the positions whose hidden states make an embedding."""

    scored: Mapping[int, int] = field(default_factory=dict)
    pooled: Mapping[int, range] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.scored or self.pooled)


NOTHING = Wanted()


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's rows as arrays. inputs: see StepInputs; its arrays are the encoder's, which may change them at its
    next call. seqs: the sequences that sample; the next token of seqs[i] comes from logits[sampled[i]]. scored: rows of
    logits for the log-probabilities of prompts. pooled: rows of hidden states for their embeddings."""

    inputs: StepInputs[HostArray]
    seqs: tuple[int, ...]
    sampled: tuple[int, ...]
    scored: tuple[Span, ...] = ()
    pooled: tuple[Span, ...] = ()


class BatchEncoder:
    """Builds batches; owns the array form of the block tables and nothing else. tokens_of: a sequence's tokens, the
    same list as long as it is live."""

    def __init__(self, kv: KVCacheManager, tokens_of: TokensOf, *, max_seqs: int, max_model_len: int) -> None:
        self._kv = kv
        self._tokens_of = tokens_of
        self._tables = BlockTables(kv, max_seqs, -(-max_model_len // kv.block_size))
        self._repeating: _Repeating | None = None

    def forget(self, step: Step) -> None:
        """Tables of sequences that ended or were preempted are stale; `encode` does this itself."""
        if step.preempted or step.finished:
            self._settle()
            self._tables.forget(step.preempted)
            self._tables.forget(step.finished)

    def encode(self, step: Step, wanted: Wanted = NOTHING) -> Batch:
        """The batch of a step that the scheduler planned; block tables are those of now."""
        self.forget(step)
        copied = not all(isinstance(op, Spill) for op in step.ops)
        if self._repeating is not None and not copied and not wanted and self._repeating.advance(step.rows):
            return self._repeating.batch
        self._settle()
        batch = self._build(step.rows, wanted, copied)
        if not (batch.scored or batch.pooled) and all(row.count == 1 and row.sample for row in step.rows):
            self._repeating = _Repeating(batch, step.rows, self._kv, self._tables, self._tokens_of)
        return batch

    def _settle(self) -> None:
        """Whatever comes next is another batch."""
        if self._repeating is not None:
            self._repeating.settle()
            self._repeating = None

    def _build(self, rows: tuple[Row, ...], wanted: Wanted, copied: bool) -> Batch:
        ids: list[int] = []
        for row in rows:
            self._tables.update(row, copied)
            tokens = self._tokens_of(row.seq)
            if row.count == 1:
                ids.append(tokens[row.start])
            else:
                ids.extend(tokens[row.start : row.start + row.count])
        counts = np.array([row.count for row in rows], dtype=np.int32)
        offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        row_of = np.repeat(np.arange(len(rows)), counts)
        starts = np.array([row.start for row in rows], dtype=np.int32)
        positions = np.arange(len(ids), dtype=np.int32) + (starts - offsets[:-1])[row_of]
        logit_rows, seqs, sampled, scored = _logit_rows(rows, wanted.scored)
        inputs: StepInputs[HostArray] = StepInputs(
            ids=np.array(ids, dtype=np.int32),
            positions=positions,
            logit_rows=np.array(logit_rows, dtype=np.int32),
            meta=self._meta(rows, starts + counts, offsets, row_of, positions),
        )
        return Batch(inputs, seqs, sampled, scored, _pooled_spans(rows, wanted.pooled))

    def _meta(
        self, rows: tuple[Row, ...], seq_lens: Int32, offsets: Int32, row_of: npt.NDArray[np.intp], positions: Int32
    ) -> AttentionMeta[HostArray]:
        size = self._kv.block_size
        columns = min(-(-int(seq_lens.max()) // size) + SPARE_COLUMNS, self._tables.columns)
        table = self._tables.gather([row.slot for row in rows], columns)
        slots = table[:, row_of, positions // size].astype(np.int64) * size + positions % size
        return AttentionMeta(
            cu_seqlens_q=offsets,
            seq_lens=seq_lens,
            block_table=table,
            slot_mapping=slots,
            max_query_len=max(row.count for row in rows),
            max_seq_len=columns * size,
        )


class _Repeating:
    """A batch in which every row is one token that samples, and so, as a rule, will the next one's be: its arrays are
    then advanced in place, which costs a few array operations instead of a few for each row."""

    def __init__(
        self, batch: Batch, rows: tuple[Row, ...], kv: KVCacheManager, tables: BlockTables, tokens_of: TokensOf
    ) -> None:
        inputs, meta = batch.inputs, batch.inputs.meta
        self._kv = kv
        self._tables = tables
        self._tokens = [tokens_of(row.seq) for row in rows]
        seqs, slots, starts, counts, samples = zip(*rows, strict=True)
        self._unchanging = seqs, slots, counts, samples
        self._next = tuple([start + 1 for start in starts])
        self._ids: Int32 = inputs.ids  # type: ignore[assignment]
        self._table: Int32 = meta.block_table  # type: ignore[assignment]  # this module made them
        self._slots: npt.NDArray[np.int64] = meta.slot_mapping  # type: ignore[assignment]
        self._counters: Int32 = np.stack([inputs.positions, meta.seq_lens])
        self.batch = Batch(
            StepInputs(inputs.ids, self._counters[0], inputs.logit_rows, _with_lengths(meta, self._counters[1])),
            batch.seqs,
            batch.sampled,
        )

    def advance(self, rows: tuple[Row, ...]) -> bool:
        """Make it the batch of `rows`; False, with nothing changed, where these do not continue it."""
        seqs, slots, starts, counts, samples = zip(*rows, strict=True)
        if starts != self._next or (seqs, slots, counts, samples) != self._unchanging:
            return False
        size = self._kv.block_size
        if max(starts) >= self._table.shape[2] * size:
            return False
        self._ids[:] = [tokens[-1] for tokens in self._tokens]
        self._counters += 1
        self._slots += 1
        for place, start in enumerate(starts):
            if start % size == 0:
                self._enter_block(place, rows[place])
        self._next = tuple([start + 1 for start in starts])
        return True

    def _enter_block(self, place: int, row: Row) -> None:
        size = self._kv.block_size
        number = row.start // size
        blocks = [self._kv.block_ids(row.seq, group)[number] for group in range(len(self._table))]
        self._table[:, place, number] = blocks
        self._slots[:, place] = [block * size for block in blocks]
        self._tables.put(row.slot, number, blocks)

    def settle(self) -> None:
        """Tell the tables how far the rows have come."""
        seqs, slots, _, _ = self._unchanging
        for seq, slot, reach in zip(seqs, slots, self._next, strict=True):
            self._tables.reach(slot, seq, reach)


def _with_lengths(meta: AttentionMeta[HostArray], seq_lens: Int32) -> AttentionMeta[HostArray]:
    return AttentionMeta(
        meta.cu_seqlens_q, seq_lens, meta.block_table, meta.slot_mapping, meta.max_query_len, meta.max_seq_len
    )


def _logit_rows(
    rows: tuple[Row, ...], scored: Mapping[int, int]
) -> tuple[list[int], tuple[int, ...], tuple[int, ...], tuple[Span, ...]]:
    """The rows whose logits are wanted; `Batch.seqs`, `sampled` and `scored`."""
    wanted: list[int] = []
    seqs: list[int] = []
    sampled: list[int] = []
    spans: list[Span] = []
    offset = 0
    for row in rows:
        if scored:
            # Positions [start, read) are scored; the sampling position comes after them and is always wanted.
            last = row.count - 1 if row.sample else row.count
            read = min(scored.get(row.seq, 0) - row.start, last)
            if read > 0:
                spans.append(Span(row.seq, len(wanted), read, row.start))
                wanted.extend(range(offset, offset + read))
        offset += row.count
        if row.sample:
            seqs.append(row.seq)
            sampled.append(len(wanted))
            wanted.append(offset - 1)
    return wanted, tuple(seqs), tuple(sampled), tuple(spans)


def _pooled_spans(rows: tuple[Row, ...], pooled: Mapping[int, range]) -> tuple[Span, ...]:
    """`Batch.pooled`."""
    spans: list[Span] = []
    offset = 0
    for row in rows if pooled else ():
        positions = pooled.get(row.seq, range(0))
        start, end = max(row.start, positions.start), min(row.start + row.count, positions.stop)
        if start < end:
            spans.append(Span(row.seq, offset + start - row.start, end - start, start))
        offset += row.count
    return tuple(spans)
