"""Known failures of other engines' block managers, as small inputs to octavo.kv."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from fake_device import FakeDevice, FakeTier
from kv_serving import compute, prompt, serve

from octavo.errors import KVError
from octavo.kv import Fetch, KVCacheManager, Spill
from octavo.kv.keys import BlockKeys


def test_shorter_prompts_inside_a_longer_one() -> None:
    """Case A02, the part of the memory: each leaves at least its last token to compute."""
    kv = KVCacheManager(16, 16)
    assert serve(kv, 1, prompt(40)) == 0
    assert serve(kv, 2, prompt(20)) == 16
    assert serve(kv, 3, prompt(32)) == 16
    assert serve(kv, 4, prompt(33)) == 32


def test_forked_window_is_freed_once() -> None:
    """Case A03."""
    kv = KVCacheManager(16, 16, windows=(32,))
    tokens = prompt(81)
    kv.open(1, tokens)
    compute(kv, 1, 80)
    kv.fork(1, 2, tokens[:])
    compute(kv, 1, 81)
    compute(kv, 2, 81)
    kv.close(1)
    kv.close(2)
    kv.check()
    assert kv.num_free == 16
    for seq in (1, 2):
        with pytest.raises(KVError, match="not open"):
            kv.close(seq)
    kv.check()
    assert kv.num_free == 16


def test_free_list_holds_every_block_once() -> None:
    """Case A04: 10,000 random operations."""
    rng = random.Random(4)
    kv = KVCacheManager(12, 4)
    live: list[int] = []
    for seq in range(10_000):
        verb = rng.randrange(3)
        if verb == 0 and len(live) < 6:
            kv.open(seq, prompt(9, rng.randrange(3)))
            kv.extend(seq, rng.randrange(1, 6))
            live.append(seq)
        elif verb == 1 and live:
            parent = rng.choice(live)
            kv.fork(parent, seq, prompt(kv.committed(parent), 0))
            live.append(seq)
        elif live:
            kv.close(live.pop(rng.randrange(len(live))))
        free = list(kv._pool.free)
        assert len(set(free)) == len(free) == kv.num_free
    kv.check()


def test_a_thousand_cycles_of_one_block() -> None:
    """Case A05."""
    kv = KVCacheManager(4, 16)
    for seq in range(1000):
        kv.open(seq, prompt(3))
        assert kv.extend(seq, 3)
        (block,) = kv.block_ids(seq)
        assert kv._pool.refs[block] == 1
        kv.close(seq)
        kv.check()
    assert kv.num_free == 4


def test_evicted_blocks_lose_their_identity() -> None:
    """Case A06: X, then Y over X's blocks, then X again."""
    kv = KVCacheManager(8, 16)
    assert serve(kv, 1, prompt(64)) == 0
    assert serve(kv, 2, prompt(112, 5000)) == 0
    cached = kv.open(3, prompt(64))
    assert cached == 16 == len(kv.block_ids(3)) * 16  # 8 blocks: 7 of Y and the first of X, whose tail went first
    compute(kv, 3, 64)


@pytest.mark.parametrize(("more", "fits"), [(3, False), (2, True)])
def test_matched_blocks_are_touched_before_allocation(more: int, fits: bool) -> None:
    """Case A07."""
    kv = KVCacheManager(6, 16)
    tokens = prompt(64)
    kv.open(1, tokens)
    compute(kv, 1, 64)
    blocks = list(kv.block_ids(1))
    kv.close(1)
    assert kv.num_free == 6
    longer = tokens + prompt(16 * more, 900)
    assert kv.open(2, longer) == 64
    assert kv.extend(2, 16 * more) is fits
    assert list(kv.block_ids(2))[:4] == blocks
    kv.check()
    kv.close(2)
    assert kv.num_free == 6
    assert kv.open(3, longer) == 64


def test_nothing_matches_before_it_is_computed() -> None:
    """Case A08: an abort in the middle of a chunked prompt, then the same prompt twice in the same step."""
    kv = KVCacheManager(64, 16)
    tokens = prompt(256)
    kv.open(1, tokens)
    compute(kv, 1, 16)
    assert kv.extend(1, 16)
    kv.take_ops()
    assert kv.open(9, tokens) == 16
    kv.commit(1, 16)
    kv.end_step()
    assert kv.extend(1, 16)
    kv.close(1)
    assert kv.open(2, tokens) == 32
    assert kv.open(3, [*tokens, 7]) == 32
    kv.check()


def test_two_of_one_prefix_in_one_step() -> None:
    """Case A09."""
    kv = KVCacheManager(32, 16)
    for seq in (1, 2):
        assert kv.open(seq, [*prompt(64), seq]) == 0
        assert kv.extend(seq, 65)
    for seq in (1, 2):
        kv.commit(seq, 65)
    kv.close(2)
    kv.check()
    assert kv.open(3, [*prompt(64), 3]) == 64
    kv.close(1)
    kv.close(3)
    kv.check()
    stats = kv.stats()
    assert (stats.used, stats.cached, stats.free) == (0, 4, 28)


def test_a_refused_sequence_is_matched_anew() -> None:
    """Case A10: what a lookup found is not remembered across a close."""
    kv = KVCacheManager(6, 16)
    serve(kv, 1, prompt(48))
    b = prompt(48) + prompt(80, 700)
    assert kv.open(2, b) == 48
    assert not kv.extend(2, 80)
    kv.close(2)
    serve(kv, 3, prompt(96, 3000))
    assert kv.open(4, b) == 0
    kv.check()


def test_constant_hash_never_matches_other_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case A11 (a): the tokens are verified, those of the blocks before as well."""
    monkeypatch.setattr(BlockKeys, "digest", lambda self, data: bytes(32))
    kv = KVCacheManager(32, 4)
    serve(kv, 1, [1] * 4 + [2] * 4 + [0])
    assert kv.open(2, [3] * 4 + [2] * 4 + [0]) == 0
    assert kv.open(3, [1] * 9) == 4  # the second block has the tokens of the first one, under the same key
    assert kv.open(4, [1] * 9, b"tenant") == 0
    assert kv.stats().key_collisions > 0


def test_near_tokens_have_their_own_keys() -> None:
    """Case A11 (b) and (c): neighbours that differ by +31 and -1; -1 and -2, which Python's own hash confuses."""
    keys = BlockKeys(4)
    root = keys.root(b"")
    blocks = [[5, 40, 7, 9], [6, 9, 7, 9], [4, 71, 7, 9], [-1, 1, 1, 1], [-2, 1, 1, 1], [2**31 - 1, 1, 1, 1]]
    made = [keys.child(root, tokens, 0).key for tokens in blocks]
    assert len(set(made)) == len(blocks)
    assert {len(key) for key in made} == {32}
    kv = KVCacheManager(32, 4)
    for seq, tokens in enumerate(blocks):
        assert serve(kv, seq, [*tokens, 0]) == 0


@pytest.mark.parametrize("token", [2**31, -(2**31) - 1, 2**64, 1.0, "1", None])
def test_other_tokens_are_refused(token: object) -> None:
    """Case A11: nothing that does not fit the key's 32 bits is cut to size."""
    kv = KVCacheManager(4, 2)
    with pytest.raises(KVError, match="tokens 0 to 1 must be integers"):
        kv.open(1, [7, token, 7])  # type: ignore[list-item]
    tokens: list[object] = []
    kv.open(1, tokens)  # type: ignore[arg-type]
    tokens += [7, token]
    assert kv.extend(1, 2)
    with pytest.raises(KVError, match="must be integers"):
        kv.commit(1, 2)
    assert kv.committed(1) == 0
    kv.close(1)
    kv.check()


def test_adapters_share_nothing() -> None:
    """Cases A13 and A14: an adapter, or its second version, is another namespace; each is cached for itself."""
    kv = KVCacheManager(64, 16)
    for seq, namespace in enumerate((b"", b"lora:a:1", b"lora:b:1", b"lora:a:2")):
        assert serve(kv, seq, prompt(64), namespace) == 0
    assert serve(kv, 9, prompt(64), b"lora:a:1") == 48


def test_digests_enter_the_key_in_full() -> None:
    """Case A16: 5,000 images with the same placeholder tokens."""
    rng = random.Random(16)
    kv = KVCacheManager(5001, 2)
    digests = [rng.randbytes(32) for _ in range(5000)]
    for seq, digest in enumerate(digests):
        assert kv.open(seq, [9, 9, 9], digest) == 0
        assert kv.extend(seq, 2)
        kv.commit(seq, 2)
        kv.close(seq)
    assert kv.stats().cached == 5000
    assert kv.open(-1, [9, 9, 9], digests[77]) == 2


def test_namespaces_are_not_concatenated_into_tokens() -> None:
    """A16 likewise: a namespace that looks like tokens, or like a longer one, is not those."""
    keys = BlockKeys(1)
    names = [b"", b"\0", b"\0\0\0\0", bytes(8), bytes(32), b"a", b"a\0"]
    assert len({keys.root(name).key for name in names}) == len(names)
    assert BlockKeys(2).root(b"").key != keys.root(b"").key


def test_hits_count_full_blocks_that_were_there() -> None:
    """Case A18, the part of the memory: never length - 1, 0 when cold."""
    kv = KVCacheManager(16, 16)
    assert serve(kv, 1, prompt(40)) == 0
    assert serve(kv, 2, prompt(40)) == 32
    stats = kv.stats()
    assert (stats.lookups, stats.hits) == (4, 2)


def test_restored_blocks_are_whole() -> None:
    """Case A20, the part of the memory: of 20 tokens exactly the 16 of the full block go down and come back."""
    tier = FakeTier(8)
    kv = KVCacheManager(2, 16, lower_tier=tier)
    serve(kv, 1, prompt(20))
    kv.open(2, [])
    assert kv.extend(2, 32)
    (spill,) = kv.take_ops()
    assert isinstance(spill, Spill)
    tier.put(spill.key, ("bytes",) * 16)
    kv.end_step()
    kv.close(2)
    assert kv.open(3, prompt(20)) == 16
    (fetch,) = kv.take_ops()
    assert fetch == Fetch(spill.key, kv.block_ids(3)[0])
    kv.check()


def test_blocks_may_be_reused_at_once_when_spilled() -> None:
    """Case C04: out, overwritten by another owner in the same step, and back into other blocks."""
    tier = FakeTier(16)
    kv = KVCacheManager(4, 2, lower_tier=tier)
    device = FakeDevice(4, 2, tier)
    mine, other = prompt(9), prompt(8, 500)

    def step(seq: int, tokens: Sequence[int], n: int) -> None:
        start = kv.reserved(seq)
        assert kv.extend(seq, n)
        device.run_ops(kv.take_ops(), random.Random(n), set())
        for position in range(start, start + n):
            device.write(kv.block_ids(seq), position, tokens[position])
        kv.commit(seq, n)
        for key, block in kv._pool.index.items():
            device.meaning[key] = tuple(device.blocks[block])
        kv.end_step()

    kv.open(1, mine)
    step(1, mine, 8)
    kv.close(1)
    for seq in (2, 3):  # two owners, so that every block is overwritten, and the fetches land elsewhere
        kv.open(seq, other)
        step(seq, other, 3)
    kv.close(2)
    kv.close(3)
    kv.open(4, other[::-1])
    step(4, other[::-1], 8)
    kv.close(4)
    assert kv.open(5, mine) == 8
    device.run_ops(kv.take_ops(), random.Random(5), set())
    assert [device.read(kv.block_ids(5), position) for position in range(8)] == mine[:8]
    kv.end_step()
    kv.check()


def test_a_hit_ends_where_there_is_no_block_to_fetch_into() -> None:
    """Fetches need free blocks; a device hit that follows is not counted among them."""
    tier = FakeTier(16)
    kv = KVCacheManager(4, 2, lower_tier=tier)
    keys, tokens = BlockKeys(2), prompt(9)
    prefix = keys.root(b"")
    for number in range(4):
        prefix = keys.child(prefix, tokens, number)
        tier.put(prefix.key + b"\0", (0, 0))
    kv.open(1, [])
    assert kv.extend(1, 3)
    assert kv.open(2, tokens) == 4
    assert len(kv.take_ops()) == 2
    kv.check()
    assert not kv.extend(2, 1)


def test_a_tier_that_loses_a_block_costs_only_time() -> None:
    """A failed Fetch: the holders are named, and opening again finds less."""
    tier = FakeTier(4)
    kv = KVCacheManager(4, 2, lower_tier=tier)
    keys, tokens = BlockKeys(2), prompt(5)
    first = keys.child(keys.root(b""), tokens, 0)
    tier.put(first.key + b"\0", (0, 0))
    assert kv.open(1, tokens) == 2
    assert kv.open(2, tokens) == 2
    (fetch,) = kv.take_ops()
    assert isinstance(fetch, Fetch)
    tier.blocks.clear()
    assert kv.lost(fetch.block) == (1, 2)
    for seq in (1, 2):
        kv.close(seq)
    kv.end_step()
    kv.check()
    assert kv.open(3, tokens) == 0
    with pytest.raises(KVError, match="no block 4"):
        kv.lost(4)
