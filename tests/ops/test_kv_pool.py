"""The paged pool: blocks as bytes, number formats, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same_bits

from octavo.engine.memory import resident_bytes
from octavo.errors import KVError
from octavo.ops.base import KVLayout
from octavo.ops.kv_pool import KVPool

DTYPES = ["float32", "bfloat16"]


def filled(dtype: str, seed: int = 0) -> KVPool:
    """A pool of 5 blocks in which every slot of every layer was written."""
    pool = KVPool(KVLayout(5, 2, 3, 4, 8, dtype))  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    for layer in range(2):
        k, v = (rng.standard_normal((20, 3, 8), np.float32) for _ in range(2))
        pool.write(np.arange(20), layer, k, v)
    return pool


def test_what_was_written_is_gathered_in_the_order_of_the_blocks() -> None:
    pool = KVPool(KVLayout(5, 2, 3, 4, 8))
    k, v = (np.random.default_rng(s).standard_normal((6, 3, 8), np.float32) for s in (1, 2))
    slots = np.array([12, 13, 14, 15, 4, 5])  # block 3, then half of block 1
    pool.write(slots, 1, k, v)
    keys, values = pool.gather(np.array([3, 1]), 1)
    assert keys.shape == (3, 8, 8)
    assert_same_bits(keys[:, :6], k.swapaxes(0, 1))
    assert_same_bits(values[:, :6], v.swapaxes(0, 1))
    assert not pool.array[:, 0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_travels_as_bytes(dtype: str) -> None:
    pool, other = filled(dtype), filled(dtype, seed=1)
    data = pool.read_block(3)
    assert len(data) == pool.layout.block_bytes
    before = other.array.copy()
    other.write_block(0, data)
    np.testing.assert_array_equal(other.array[0], pool.array[3])
    np.testing.assert_array_equal(other.array[1:], before[1:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copy_is_the_whole_block_and_no_other(dtype: str) -> None:
    pool = filled(dtype)
    before = pool.array.copy()
    pool.copy_block(4, 2)
    np.testing.assert_array_equal(pool.array[2], before[4])
    np.testing.assert_array_equal(pool.array[[0, 1, 3, 4]], before[[0, 1, 3, 4]])


def test_bfloat16_rounds_to_nearest_even() -> None:
    """Against the definition: the nearest of the two neighbours, the even one in the middle; NaN and infinity stay."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, 4096, dtype=np.uint32).view(np.float32)
    values[:6] = [np.inf, -np.inf, np.nan, -0.0, 1 + 2**-8, 1 + 3 * 2**-8]
    values = np.where(np.abs(values) > 3.3e38, 1, values).astype(np.float32)
    values[:3] = [np.inf, -np.inf, np.nan]
    pool = KVPool(KVLayout(1, 1, 1, 4096, 1, "bfloat16"))
    pool.write(np.arange(4096), 0, values.reshape(-1, 1, 1), values.reshape(-1, 1, 1))
    got = pool.gather(np.array([0]), 0)[0].reshape(-1)
    assert got[0] == np.inf
    assert got[1] == -np.inf
    assert np.isnan(got[2])
    assert got[4:6].tolist() == [1.0, 1 + 2**-6]
    finite = np.isfinite(values)
    lower = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    upper = ((values.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    wide = [a[finite].astype(np.float64) for a in (got, values, lower, upper)]
    best = np.minimum(np.abs(wide[2] - wide[1]), np.abs(wide[3] - wide[1]))
    np.testing.assert_array_equal(np.abs(wide[0] - wide[1]), best)
    assert np.isnan(got[np.isnan(values)]).all()


@pytest.mark.parametrize("block", [-1, 5, 1 << 40])
def test_a_block_outside_the_pool_is_refused_and_nothing_changes(block: int) -> None:
    pool = filled("float32")
    before = pool.array.copy()
    calls = [
        lambda: pool.copy_block(block, 0),
        lambda: pool.copy_block(0, block),
        lambda: pool.read_block(block),
        lambda: pool.write_block(block, bytes(pool.layout.block_bytes)),
        lambda: pool.gather(np.array([0, block]), 0),
        lambda: pool.write(np.array([0, block * 4]), 0, np.ones((2, 3, 8), np.float32), np.ones((2, 3, 8), np.float32)),
    ]
    for call in calls:
        with pytest.raises(KVError, match="the pool's"):
            call()
    np.testing.assert_array_equal(pool.array, before)


@pytest.mark.parametrize("size", [0, 1535, 1537])
def test_bytes_of_another_size_are_refused(size: int) -> None:
    with pytest.raises(KVError, match=rf"1536 bytes, {size}"):
        filled("float32").write_block(0, bytes(size))


def test_discarded_blocks_give_their_memory_back_and_can_be_used_again() -> None:
    pool = KVPool(KVLayout(64, 2, 4, 64, 64))  # 256 KiB a block
    pool.array[:] = 1.0
    before = resident_bytes()
    pool.discard(16)
    assert before - resident_bytes() > 40 * pool.layout.block_bytes
    assert pool.array[:16].all()
    assert not pool.array[17:].any()
    pool.copy_block(3, 40)
    assert_same_bits(pool.array[40], pool.array[3])
    pool.discard(64)
