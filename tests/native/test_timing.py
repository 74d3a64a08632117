"""Kernel timings: what a call is said to do is what it does, and what is timed runs."""

from __future__ import annotations

import pytest

from octavo.ops.native import _native, timing
from octavo.ops.native.timing import AttentionCase, KernelTimer
from octavo.ops.tensor import StorageType

ISAS = _native.instruction_sets()


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data, few runs."""
    monkeypatch.setattr(timing, "COLD_BYTES", 1 << 16)
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    monkeypatch.setattr(timing, "LEAST_RUNS", 3)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", [StorageType.Q4_1, StorageType.Q8_0, StorageType.BF16, StorageType.F32])
def test_products(isa: str, kind: StorageType) -> None:
    one, many = KernelTimer(isa, 2).linear(kind, (64, 96), [1, 5])
    assert (one.operations, many.operations) == (2 * 64 * 96, 2 * 5 * 64 * 96)
    assert one.bytes == many.bytes >= 64 * 96 // kind.block * kind.nbytes
    for each in (one, many):
        assert 0 < each.least <= each.median <= each.most


def test_a_gate_is_timed_as_a_gate() -> None:
    (each,) = KernelTimer(ISAS[-1], 1).linear(StorageType.Q8_0, (64, 96), [2], gated=True)
    assert each.least > 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_size", [16, 1200])
@pytest.mark.parametrize(("batch", "keys", "new"), [(4, 70, 1), (1, 70, 70), (2, 70, 9), (1, 1200, 1)])
def test_attention_counts_each_key_once_and_each_visible_pair(
    threads: int, block_size: int, batch: int, keys: int, new: int
) -> None:
    each = KernelTimer(ISAS[-1], threads).attention(AttentionCase(6, 2, 32, batch, keys, new), block_size)
    pairs = sum(position + 1 for position in range(keys - new, keys))
    assert each.operations == batch * 6 * pairs * (2 * 32 + 2 * 32)
    assert each.bytes == batch * keys * 2 * (2 * 32 * 2)  # keys and values of two heads of 32, 2 bytes each
    assert 0 < each.least <= each.median <= each.most


def test_small_operations_read_no_memory() -> None:
    timer = KernelTimer(ISAS[-1], 2)
    for each in (timer.norm(96, 8), timer.rope(3, 32, 8)):
        assert each.bytes == 0
        assert each.least > 0


@pytest.mark.parametrize("isa", ISAS)
def test_every_limit_is_measured(isa: str) -> None:
    limits = KernelTimer(isa, 1).limits()
    for name in ("read_bytes", "int8", "exact_int8", "bf16", "f32"):
        assert getattr(limits, name) > 1e8, name
    assert 0 < limits.fork_join < 1
