"""The host tier and the books of slots: least recently used out, pins hold, a wiped namespace is zeros."""

from __future__ import annotations

import random

import pytest
from faulty_files import block, key

from octavo.errors import TierError
from octavo.tiers import HostTier

SIZE = 64


def test_the_least_recently_used_goes_first() -> None:
    tier = HostTier(3 * SIZE + 5, SIZE)
    for number in range(3):
        assert tier.put(key(number), b"", block(number, SIZE))
    assert tier.get(key(0)) == block(0, SIZE)
    assert tier.put(key(3), b"", block(3, SIZE))
    assert [tier.has(key(number)) for number in range(4)] == [True, False, True, True]
    assert (tier.stats().capacity, tier.stats().used, tier.stats().evictions) == (3, 3, 1)


def test_what_was_looked_up_stays_until_it_is_let_go() -> None:
    tier = HostTier(2 * SIZE, SIZE)
    for number in range(2):
        tier.put(key(number), b"", block(number, SIZE))
    promised = [tier.lookup(key(number)) for number in range(2)]
    assert not tier.put(key(2), b"", block(2, SIZE))
    assert tier.stats().dropped == 1
    assert promised[0] is not None
    tier.unpin(promised[0])
    assert tier.put(key(2), b"", block(2, SIZE))
    assert tier.has(key(1))
    assert not tier.has(key(0))


def test_a_wiped_namespace_leaves_no_trace() -> None:
    tier = HostTier(8 * SIZE, SIZE)
    for number in range(8):
        tier.put(key(number), b"theirs" if number % 2 else b"ours", block(0xAB00 + number, SIZE))
    assert tier.wipe(b"theirs") == 4
    assert tier.wipe(b"theirs") == 0
    arena = bytes(tier._arena)
    for number in range(8):
        assert tier.has(key(number)) == (number % 2 == 0)
        assert (block(0xAB00 + number, SIZE) in arena) == (number % 2 == 0)
    tier.check()


def test_a_pin_of_what_was_wiped_binds_nobody() -> None:
    tier = HostTier(SIZE, SIZE)
    tier.put(key(1), b"n", block(1, SIZE))
    promised = tier.lookup(key(1))
    assert promised is not None
    tier.wipe(b"n")
    tier.put(key(1), b"n", block(2, SIZE))
    again = tier.lookup(key(1))
    assert again is not None
    tier.unpin(promised)
    tier.check()
    assert not tier.put(key(3), b"", block(3, SIZE)), "the second promise was broken"
    tier.unpin(again)
    assert tier.put(key(3), b"", block(3, SIZE))


def test_too_small_for_a_block() -> None:
    with pytest.raises(TierError, match="63 bytes of host memory hold no block: one takes 64"):
        HostTier(63, 64)


def test_the_books_balance_after_every_one_of_5000_operations() -> None:
    """Case C05."""
    rng = random.Random(5)
    tier = HostTier(12 * SIZE, SIZE)
    promised = []
    for _ in range(5000):
        number = rng.randrange(40)
        match rng.randrange(8):
            case 0 | 1 | 2:
                tier.put(key(number), bytes((number % 3,)), block(number, SIZE))
            case 3 | 4:
                assert tier.get(key(number)) in (None, block(number, SIZE))
            case 5:
                promised += [entry for entry in [tier.lookup(key(number))] if entry is not None]
            case 6 if promised:
                tier.unpin(promised.pop(rng.randrange(len(promised))))
            case 7 if rng.randrange(20) == 0:
                tier.wipe(bytes((number % 3,)))
        tier.check()
        stats = tier.stats()
        assert 0 <= stats.used <= stats.capacity == 12
