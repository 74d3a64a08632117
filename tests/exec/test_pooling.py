"""A prompt's vector from its states: the same bits however these come in, against numpy; damaged states are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import RequestFailed
from octavo.exec.batch import BatchEncoder, Span, Wanted
from octavo.exec.pooling import PromptPooler, Vector, unit
from octavo.kv import KVCacheManager
from octavo.params import Pooling
from octavo.sched.limits import Limits
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler

STATES = np.random.default_rng(0).normal(scale=30, size=(40, 17)).astype(np.float32)


def pooled(pooling: Pooling, length: int, cuts: list[int]) -> Vector:
    """As the executor does: of each piece of positions, those that are wanted."""
    pooler = PromptPooler(pooling, length)
    for start, end in zip([0, *cuts], [*cuts, length], strict=True):
        wanted = range(max(start, pooler.wanted.start), min(end, pooler.wanted.stop))
        assert pooler.vector() is None
        if wanted:
            pooler.take(STATES[wanted.start : wanted.stop])
    vector = pooler.vector()
    assert vector is not None
    assert not pooler.wanted
    return vector


@given(st.data())
def test_no_cutting_changes_a_bit(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 40))
    cuts = sorted(data.draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
    assert np.array_equal(pooled("last", length, cuts), STATES[length - 1])
    mean = pooled("mean", length, cuts)
    assert mean.tobytes() == pooled("mean", length, []).tobytes()
    np.testing.assert_allclose(mean, STATES[:length].astype(np.float64).mean(0), rtol=1e-6)


def test_a_damaged_state_is_told() -> None:
    for value in (np.nan, np.inf):
        damaged = STATES[:3].copy()
        damaged[1, 4] = value
        with pytest.raises(RequestFailed, match="NaN or an infinity"):
            PromptPooler("mean", 3).take(damaged)


def test_unit_length() -> None:
    np.testing.assert_allclose(unit(STATES[0]), STATES[0] / np.linalg.norm(STATES[0]), rtol=1e-6)
    assert unit(np.full(4, 1e30, np.float32)).tolist() == [0.5] * 4  # whose squares float32 does not hold
    assert unit(np.zeros(3, np.float32)).tolist() == [0, 0, 0]


def test_the_encoder_names_the_rows_of_the_wanted_positions() -> None:
    """Of three prompts in one budget of 12: all positions, the last one, which the first step does not reach, none."""
    kv = KVCacheManager(64, 4)
    scheduler = Scheduler(kv, Limits(max_batched_tokens=12, max_seqs=4, max_model_len=60))
    for seq, length in ((0, 5), (1, 3), (2, 9)):
        scheduler.add(Request(seq, [10 * seq + i for i in range(length)], max_tokens=0))
    encoder = BatchEncoder(kv, scheduler.tokens, max_seqs=4, max_model_len=60)
    step = scheduler.schedule()
    assert [(row.seq, row.count) for row in step.rows] == [(0, 5), (1, 3), (2, 4)]
    batch = encoder.encode(step, Wanted(pooled={0: range(1, 5), 2: range(8, 9)}))
    assert batch.pooled == (Span(0, 1, 4, 1),)
    assert batch.inputs.logit_rows.tolist() == []
    scheduler.apply(step, {})
    kv.end_step()
    assert encoder.encode(scheduler.schedule(), Wanted(pooled={2: range(8, 9)})).pooled == (Span(2, 4, 1, 8),)
