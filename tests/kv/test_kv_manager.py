"""Rules of the manager that no slot would show: order of reuse, windows, arithmetic, figures, refusals."""

from __future__ import annotations

import random

import pytest
from fake_device import FakeTier
from kv_serving import compute, prompt, serve

from octavo.errors import KVError
from octavo.kv import Copy, Fetch, KVCacheManager
from octavo.kv.free_list import FreeList


def test_free_list_against_a_plain_list() -> None:
    rng = random.Random(0)
    free, model = FreeList(9), list(range(9))
    for _ in range(5000):
        block = rng.randrange(9)
        assert (block in free) == (block in model)
        if block in model:
            if rng.randrange(2):
                free.remove(block)
                model.remove(block)
            else:
                assert free.pop() == model.pop(0)
        elif rng.randrange(2):
            free.push_head(block)
            model.insert(0, block)
        else:
            free.push_tail(block)
            model.append(block)
        assert list(free) == model
        assert free.count == len(model)


def test_order_of_reuse() -> None:
    """Uncached blocks first, the last freed before all; then cached ones, least recently used first, tails first."""
    kv = KVCacheManager(8, 2)
    for seq, first in ((1, 10), (2, 20)):
        kv.open(seq, prompt(5, first))
        compute(kv, seq, 5)
    a, b = list(kv.block_ids(1)), list(kv.block_ids(2))
    untouched = [block for block in range(8) if block not in a + b]
    kv.close(1)
    kv.close(2)
    assert list(kv._pool.free) == [b[2], a[2], *untouched, a[1], a[0], b[1], b[0]]
    assert kv.open(3, prompt(5, 10)) == 4
    kv.close(3)
    assert list(kv._pool.free)[-4:] == [b[1], b[0], a[1], a[0]]


def test_copy_on_write_copies_once() -> None:
    kv = KVCacheManager(8, 4)
    tokens = prompt(6)
    kv.open(1, tokens)
    compute(kv, 1, 6)
    kv.fork(1, 2, [*tokens, 1])
    assert kv.stats().shared == 2
    shared = kv.block_ids(1)[1]
    assert kv.extend(2, 1)
    assert kv.extend(1, 1)
    assert kv.take_ops() == (Copy(shared, kv.block_ids(2)[1]),)
    assert kv.block_ids(1)[1] == shared
    assert kv.stats().shared == 1


def test_writing_into_a_published_block_copies_it() -> None:
    kv = KVCacheManager(8, 4)
    tokens = prompt(8)
    kv.open(1, tokens)
    compute(kv, 1, 8)
    kv.truncate(1, 7)
    old = kv.block_ids(1)[1]
    assert kv.extend(1, 1)
    assert kv.take_ops() == (Copy(old, kv.block_ids(1)[1]),)
    kv.end_step()
    tokens[7] = 1
    kv.commit(1, 1)
    kv.check()
    assert kv.open(2, [*prompt(8), 0]) == 8
    assert kv.block_ids(2)[1] == old


def test_copies_within_a_step_start_from_what_was_there_before() -> None:
    """Operations of one phase run in any order: a fork of a copy copies the original, one of a fetch fetches again."""
    tier = FakeTier(4)
    kv = KVCacheManager(8, 2, lower_tier=tier)
    tokens = prompt(3)
    kv.open(1, tokens)
    compute(kv, 1, 3)
    original = kv.block_ids(1)[1]
    kv.fork(1, 2, tokens[:])
    assert kv.extend(2, 1)
    kv.fork(2, 3, tokens[:])
    assert kv.extend(3, 1)
    assert kv.take_ops() == (Copy(original, kv.block_ids(2)[1]), Copy(original, kv.block_ids(3)[1]))
    kv.end_step()
    key = kv._pool.keys[kv.block_ids(1)[0]]
    for seq in (1, 2, 3):
        kv.close(seq)
    assert key is not None
    tier.put(key, (0, 0))
    kv._pool.unpublish(kv._pool.index[key])
    assert kv.open(4, tokens) == 2
    kv.fork(4, 5, tokens[:])
    kv.truncate(5, 1)
    assert kv.extend(5, 1)
    assert kv.take_ops() == (Fetch(key, kv.block_ids(4)[0]), Fetch(key, kv.block_ids(5)[0]))


def test_pins_hold_until_their_own_step_ends() -> None:
    """Step N + 1 is planned while step N runs: the end of N frees nothing of N + 1."""
    kv = KVCacheManager(4, 2)
    kv.open(1, prompt(9))
    compute(kv, 1, 1)
    kv.fork(1, 2, prompt(1))
    kv.take_ops()
    assert kv.extend(2, 1)
    kv.close(2)
    assert kv.num_free == 2
    kv.end_step()
    assert kv.num_free == 2
    kv.take_ops()
    kv.end_step()
    assert kv.num_free == 3
    kv.end_step()
    kv.check()


def test_windows_give_back() -> None:
    """Window 4, blocks of 2: position 5 is kept at 9 committed tokens, so that the 9th can be computed again."""
    kv = KVCacheManager(32, 2, windows=(None, 4))
    kv.open(1, prompt(20))
    compute(kv, 1, 9)
    assert list(kv.block_ids(1, 1))[:2] == [-1, -1]
    assert kv.block_ids(1, 1)[2] >= 0
    assert -1 not in kv.block_ids(1, 0)
    kv.truncate(1, 8)
    with pytest.raises(KVError, match="given back"):
        kv.truncate(1, 6)
    kv.truncate(1, 0)
    assert (list(kv.block_ids(1)), list(kv.block_ids(1, 1)), kv.num_free) == ([], [], 32)


def test_window_hits_need_only_the_window() -> None:
    """A hit needs all blocks of a full group, and of a window group only those that the window touches."""
    kv = KVCacheManager(64, 2, windows=(None, 4))
    serve(kv, 1, prompt(21))
    assert kv.open(2, prompt(21)) == 20
    assert list(kv.block_ids(2, 1))[:8] == [-1] * 8
    kv.check()
    kv.close(2)
    window = kv._pool.index
    gone = [block for key, block in window.items() if key[-1] == 1][7]
    kv._pool.free.remove(gone)
    kv._pool.unpublish(gone)
    kv._pool.free.push_head(gone)
    assert kv.open(3, prompt(21)) == 20
    kv.close(3)
    assert kv.open(4, prompt(19)) == 14  # ends at 16 and 18 would need the block that is gone
    kv.check()


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_blocks_needed_is_the_peak(chunk: int) -> None:
    """Exactly what a sequence holds at most when it grows by `chunk` tokens."""
    for windows in ((None,), (5,), (None, 1), (4, 7, None)):
        for size in (1, 2, 4):
            for n in (1, 7, 24):
                kv = KVCacheManager(400, size, windows=windows)
                kv.open(1, prompt(n))
                peak = done = 0
                while done < n:
                    count = min(chunk, n - done)
                    assert kv.extend(1, count)
                    peak = max(peak, 400 - kv.num_free)
                    kv.commit(1, count)
                    done += count
                needed = kv.blocks_needed(n, chunk)
                assert peak <= needed
                if n == 24 and chunk == 1:
                    assert peak == needed


def test_without_a_prefix_cache_nothing_is_hashed_or_kept() -> None:
    kv = KVCacheManager(4, 2, prefix_cache=False)
    assert serve(kv, 1, prompt(5)) == 0
    assert serve(kv, 2, prompt(5)) == 0
    assert (kv.stats().cached, kv.stats().lookups) == (0, 0)
    kv.open(3, ["any", "thing", "goes"])  # type: ignore[list-item]
    compute(kv, 3, 3)


def test_opened_empty_takes_no_hit_but_publishes() -> None:
    kv = KVCacheManager(8, 2)
    tokens: list[int] = []
    assert kv.open(1, tokens) == 0
    tokens += prompt(5)
    compute(kv, 1, 5)
    assert kv.open(2, prompt(5)) == 4


def test_figures() -> None:
    kv = KVCacheManager(8, 4)
    kv.open(1, prompt(6))
    compute(kv, 1, 6)
    kv.fork(1, 2, prompt(6))
    stats = kv.stats()
    assert (stats.used, stats.cached, stats.free, stats.shared) == (2, 0, 6, 2)
    assert (stats.references, stats.sequences, stats.tokens, stats.utilisation) == (4, 2, 6, 0.75)
    kv.close(1)
    kv.close(2)
    stats = kv.stats()
    assert (stats.used, stats.cached, stats.free, stats.utilisation) == (0, 1, 7, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_blocks": 0}, "num_blocks is 0"),
        ({"block_size": 0}, "block_size 0"),
        ({"windows": ()}, "windows is"),
        ({"windows": (0,)}, "windows is"),
        ({"prefix_cache": False, "lower_tier": FakeTier(1)}, "needs prefix_cache"),
    ],
)
def test_settings_are_checked(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(KVError, match=message):
        KVCacheManager(**{"num_blocks": 4, "block_size": 4, **arguments})  # type: ignore[arg-type]


def test_commit_and_fork_check_the_tokens() -> None:
    kv = KVCacheManager(4, 4)
    kv.open(1, prompt(2))
    assert kv.extend(1, 4)
    with pytest.raises(KVError, match="cannot commit 3 tokens: the sequence's list has 2"):
        kv.commit(1, 3)
    with pytest.raises(KVError, match="cannot commit 5 tokens"):
        kv.commit(1, 5)
    kv.commit(1, 2)
    with pytest.raises(KVError, match="must begin with the 2 committed tokens"):
        kv.fork(1, 2, [100, 7])
    kv.check()


def test_check_sees_what_is_broken() -> None:
    kv = KVCacheManager(4, 4)
    kv.open(1, prompt(4))
    compute(kv, 1, 4)
    kv._pool.refs[kv.block_ids(1)[0]] += 1
    with pytest.raises(KVError, match="invariant broken: refs = table rows"):
        kv.check()
