"""The encoder: what it keeps from step to step never shows; its arrays are those that a fresh one would make."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.exec.batch import Batch, BatchEncoder, Wanted
from octavo.kv import KVCacheManager
from octavo.sched.limits import Limits
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler

MAX_SEQS = 6
MAX_LEN = 60

arrivals = st.lists(
    st.tuples(
        st.integers(0, 12),  # at which step
        st.integers(1, 20),  # prompt tokens
        st.integers(1, 30),  # new tokens
        st.sampled_from([1, 1, 1, 2]),  # answers
        st.sampled_from([0, 1]),  # which prompt it begins with
    ),
    min_size=1,
    max_size=8,
)


def read(batch: Batch, kv: KVCacheManager) -> tuple[object, ...]:
    """All that a backend may look at: the tables as far as the sequences and their windows reach."""
    inputs, meta = batch.inputs, batch.inputs.meta
    tables = []
    for group, window in enumerate(kv.windows):
        for row, length in enumerate(meta.seq_lens.tolist()):
            count = int(meta.cu_seqlens_q[row + 1] - meta.cu_seqlens_q[row])
            first = 0 if window is None else max(0, length - count - window + 1)
            columns = slice(first // kv.block_size, -(-length // kv.block_size))
            tables.append(meta.block_table[group, row, columns].tolist())
    arrays = (inputs.ids, inputs.positions, inputs.logit_rows, meta.cu_seqlens_q, meta.seq_lens, meta.slot_mapping)
    assert [array.dtype for array in arrays] == [np.int32] * 5 + [np.int64]
    assert meta.block_table.dtype == np.int32
    assert meta.max_seq_len >= meta.seq_lens.max()
    return (*(array.tolist() for array in arrays), tables, batch.seqs, batch.sampled, batch.scored, meta.max_query_len)


@settings(deadline=None, max_examples=120)
@given(
    arrivals=arrivals,
    block_size=st.sampled_from([1, 3, 4]),
    num_blocks=st.integers(30, 80),
    budget=st.sampled_from([7, 16, 64]),
    windows=st.sampled_from([(None,), (None, 7)]),
    stop=st.sampled_from([(), (3, 9)]),
)
def test_equals_a_fresh_encoder(
    arrivals: list[tuple[int, int, int, int, int]],
    block_size: int,
    num_blocks: int,
    budget: int,
    windows: tuple[int | None, ...],
    stop: tuple[int, ...],
) -> None:
    """Batches that repeat, blocks that fill, copies, chunks, preemptions, forks, windows, aborts."""
    kv = KVCacheManager(num_blocks * len(windows), block_size, windows=windows)
    scheduler = Scheduler(kv, Limits(max_batched_tokens=budget, max_seqs=MAX_SEQS, max_model_len=MAX_LEN))
    fresh = lambda: BatchEncoder(kv, scheduler.tokens, max_seqs=MAX_SEQS, max_model_len=MAX_LEN)  # noqa: E731
    kept = fresh()
    waiting = sorted(arrivals)
    number = step_number = 0
    while waiting or scheduler.has_work:
        while waiting and waiting[0][0] <= step_number:
            _, prompt, new, n, start = waiting.pop(0)
            tokens = [start * 1000 + i for i in range(prompt)]
            children = tuple(range(number + 1, number + n))
            new = min(new, MAX_LEN - prompt, num_blocks * block_size - prompt)
            scheduler.add(Request(number, tokens, max_tokens=new, n=n, children=children))
            number += n
        if step_number in stop and number:
            scheduler.abort(number - 1)
        step_number += 1
        if not scheduler.has_work:
            continue
        step = scheduler.schedule()
        if step.rows:
            batch = kept.encode(step)
            assert read(batch, kv) == read(fresh().encode(step), kv)
        else:
            kept.forget(step)
        scheduler.apply(step, {row.seq: 100 + row.start for row in step.rows if row.sample})
        kv.end_step()


def test_a_batch_that_repeats_is_not_built_again() -> None:
    kv = KVCacheManager(64, 4)
    scheduler = Scheduler(kv, Limits(max_batched_tokens=64, max_seqs=4, max_model_len=MAX_LEN))
    encoder = BatchEncoder(kv, scheduler.tokens, max_seqs=4, max_model_len=MAX_LEN)
    for seq in range(3):
        scheduler.add(Request(seq, [seq], max_tokens=30))
    batches = []
    for _ in range(20):
        step = scheduler.schedule()
        batches.append(encoder.encode(step))
        scheduler.apply(step, dict.fromkeys(range(3), 7))
        kv.end_step()
    assert len({id(batch) for batch in batches[1:]}) == 1


def test_scored_positions_come_first() -> None:
    """A prompt whose log-probabilities are wanted, beside one that only samples and one that does neither."""
    kv = KVCacheManager(64, 4)
    scheduler = Scheduler(kv, Limits(max_batched_tokens=12, max_seqs=4, max_model_len=MAX_LEN))
    for seq, length in ((0, 3), (1, 5), (2, 9)):
        scheduler.add(Request(seq, [10 * seq + i for i in range(length)], max_tokens=2, use_cache=seq != 1))
    encoder = BatchEncoder(kv, scheduler.tokens, max_seqs=4, max_model_len=MAX_LEN)
    batch = encoder.encode(scheduler.schedule(), Wanted(scored={1: 4}))
    assert batch.inputs.logit_rows.tolist() == [2, 3, 4, 5, 6, 7]
    assert (batch.seqs, batch.sampled) == ((0, 1), (0, 5))
    assert [(span.seq, span.first, span.count, span.start) for span in batch.scored] == [(1, 1, 4, 0)]
