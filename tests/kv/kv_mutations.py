"""One broken rule of octavo.kv each: what a careless change would do. `MUTATIONS` maps a name to the patch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_device import FakeTier

from octavo.kv import Copy, KVCacheManager, manager
from octavo.kv.keys import BlockKeys, Prefix, index_key
from octavo.kv.ledger import StepLedger
from octavo.kv.matcher import IN_TIER, Hit, first_needed
from octavo.kv.ops import Fetch
from octavo.kv.pool import BlockPool
from octavo.kv.sequence import SequenceState

Patch = pytest.MonkeyPatch
MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def mutation(change: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTATIONS[change.__name__] = change
    return change


def nothing(*_: Any) -> None:
    return None


def one_byte_hash(self: BlockKeys, data: bytes) -> bytes:
    """Two values only: nearly everything collides."""
    return bytes((sum(data) % 2,)) * 32


@mutation
def copy_source_is_not_pinned(patch: Patch) -> None:
    patch.setattr(StepLedger, "pin_copy_source", nothing)


@mutation
def copy_target_is_not_pinned(patch: Patch) -> None:
    patch.setattr(StepLedger, "pin_copy_target", nothing)


@mutation
def fetch_target_is_not_pinned(patch: Patch) -> None:
    patch.setattr(StepLedger, "pin_fetch_target", nothing)


@mutation
def pins_end_with_planning(patch: Patch) -> None:
    """Step N ends and takes the pins of step N + 1, which is still being planned, with it."""
    original = StepLedger.end

    def end(self: StepLedger, pool: BlockPool) -> None:
        original(self, pool)
        while self._pinned:
            pool.unpin(self._pinned.pop())

    patch.setattr(StepLedger, "end", end)


@mutation
def copies_chain_within_a_step(patch: Patch) -> None:
    patch.setattr(StepLedger, "origin", lambda self, block: None)


@mutation
def copies_chain_after_a_fetch(patch: Patch) -> None:
    original = StepLedger.origin

    def origin(self: StepLedger, block: int) -> Copy | Fetch | None:
        found = original(self, block)
        return found if isinstance(found, Copy) else None

    patch.setattr(StepLedger, "origin", origin)


@mutation
def published_at_allocation(patch: Patch) -> None:
    original = KVCacheManager._grow

    def grow(self: KVCacheManager, state: SequenceState, n: int) -> bool:
        done = original(self, state, n)
        if done and self.prefix_cache:
            self._publish_full(state, min(state.reserved, len(state.tokens)))
        return done

    patch.setattr(KVCacheManager, "_grow", grow)


@mutation
def shared_blocks_are_not_copied(patch: Patch) -> None:
    patch.setattr(KVCacheManager, "_groups_to_copy", lambda self, state: [])


@mutation
def published_blocks_are_written(patch: Patch) -> None:
    patch.setattr(BlockPool, "is_writable", lambda self, block: self.refs[block] - self.pins[block] == 1)


@mutation
def blocks_of_others_are_written(patch: Patch) -> None:
    patch.setattr(BlockPool, "is_writable", lambda self, block: self.keys[block] is None)


@mutation
def fork_keeps_the_fast_path(patch: Patch) -> None:
    original = KVCacheManager.fork

    def fork(self: KVCacheManager, parent: int, child: int, tokens: Any) -> None:
        limit = self._sequences[parent].write_limit if parent in self._sequences else 0
        original(self, parent, child, tokens)
        self._sequences[parent].write_limit = limit

    patch.setattr(KVCacheManager, "fork", fork)


@mutation
def truncate_keeps_the_fast_path(patch: Patch) -> None:
    original = KVCacheManager.truncate

    def truncate(self: KVCacheManager, seq: int, n: int) -> None:
        limit = self._sequences[seq].write_limit if seq in self._sequences else 0
        original(self, seq, n)
        self._sequences[seq].write_limit = min(limit, self._blocks_for(n) * self.block_size)

    patch.setattr(KVCacheManager, "truncate", truncate)


@mutation
def truncate_keeps_the_keys(patch: Patch) -> None:
    original = KVCacheManager.truncate

    def truncate(self: KVCacheManager, seq: int, n: int) -> None:
        chain = self._sequences[seq].chain[:] if seq in self._sequences else []
        original(self, seq, n)
        self._sequences[seq].chain = chain

    patch.setattr(KVCacheManager, "truncate", truncate)


@mutation
def tokens_are_not_verified(patch: Patch) -> None:
    patch.setattr(BlockKeys, "digest", one_byte_hash)
    patch.setattr(BlockPool, "verify", lambda self, known, asked: True)


@mutation
def only_the_block_is_verified(patch: Patch) -> None:
    patch.setattr(BlockKeys, "digest", one_byte_hash)
    patch.setattr(BlockPool, "verify", lambda self, known, asked: known.tokens == asked.tokens)


@mutation
def namespace_is_ignored(patch: Patch) -> None:
    patch.setattr(BlockKeys, "root", lambda self, namespace: Prefix(None, b"", bytes(32)))


@mutation
def evicted_blocks_keep_their_identity(patch: Patch) -> None:
    patch.setattr(BlockPool, "unpublish", nothing)


@mutation
def a_second_block_takes_the_key(patch: Patch) -> None:
    def publish(self: KVCacheManager, state: SequenceState, number: int, group: int, block: int) -> None:
        prefix = state.chain[number + 1]
        self._pool.publish(block, index_key(prefix, group), prefix)

    patch.setattr(KVCacheManager, "_publish_block", publish)


@mutation
def hits_are_touched_after_allocating(patch: Patch) -> None:
    def take(self: KVCacheManager, state: SequenceState, hit: Hit) -> None:
        for group, found in enumerate(hit.found):
            first = hit.first[group]
            state.given_back[group] = first
            state.tables[group] = [-1] * first + [
                self._fetch_block(hit.chain[number], group) if found[number] == IN_TIER else found[number]
                for number in range(first, hit.blocks)
            ]
            for number in range(first, hit.blocks):
                if found[number] != IN_TIER:
                    self._pool.retain(found[number])
        state.chain.extend(hit.chain[: hit.blocks])
        state.committed = state.reserved = hit.blocks * self.block_size

    patch.setattr(KVCacheManager, "_take_hit", take)


@mutation
def windows_end_one_block_early(patch: Patch) -> None:
    def sooner(tokens: int, window: int | None, block_size: int) -> int:
        return first_needed(tokens + block_size, window, block_size)  # 0 without a window

    patch.setattr(manager, "first_needed", sooner)


@mutation
def windows_end_one_position_early(patch: Patch) -> None:
    def sooner(tokens: int, window: int | None, block_size: int) -> int:
        return first_needed(tokens + 2, window, block_size)

    patch.setattr(manager, "first_needed", sooner)


@mutation
def truncate_reaches_into_what_was_given_back(patch: Patch) -> None:
    patch.setattr(KVCacheManager, "_refuse_given_back", nothing)


@mutation
def a_refusal_allocates_first(patch: Patch) -> None:
    original = KVCacheManager._grow

    def grow(self: KVCacheManager, state: SequenceState, n: int) -> bool:
        while n > 1 and not original(self, state, n):
            n -= 1
            original(self, state, n)
        return n == 1 and original(self, state, n)

    patch.setattr(KVCacheManager, "_grow", grow)


@mutation
def fork_takes_no_references(patch: Patch) -> None:
    original = KVCacheManager.fork

    def fork(self: KVCacheManager, parent: int, child: int, tokens: Any) -> None:
        original(self, parent, child, tokens)
        for table in self._sequences[child].tables:
            for block in table:
                if block >= 0:
                    self._pool.release(block)

    patch.setattr(KVCacheManager, "fork", fork)


@mutation
def lost_names_nobody(patch: Patch) -> None:
    original = KVCacheManager.lost

    def lost(self: KVCacheManager, block: int) -> tuple[int, ...]:
        original(self, block)
        return ()

    patch.setattr(KVCacheManager, "lost", lost)


@mutation
def lost_forgets_the_copies(patch: Patch) -> None:
    """A fork that cut into the block and wrote on has a copy of it instead."""
    patch.setattr(StepLedger, "made_from", lambda self, block: {block})


@mutation
def lost_blocks_still_match(patch: Patch) -> None:
    patch.setattr(
        KVCacheManager,
        "lost",
        lambda self, block: tuple(s for s, state in self._sequences.items() if any(block in t for t in state.tables)),
    )


@mutation
def the_tier_breaks_its_promise(patch: Patch) -> None:
    patch.setattr(FakeTier, "contains", lambda self, key: key in self.blocks)


@mutation
def pinned_blocks_are_evicted(patch: Patch) -> None:
    patch.setattr(BlockPool, "_keep", nothing)


@mutation
def pins_miss_what_is_published_later(patch: Patch) -> None:
    def publish(self: BlockPool, block: int, key: bytes, prefix: Prefix) -> None:
        self.index[key], self.keys[block], self.prefixes[block] = block, key, prefix

    patch.setattr(BlockPool, "publish", publish)


@mutation
def the_pool_shrinks_under_a_planned_spill(patch: Patch) -> None:
    patch.setattr(StepLedger, "idle", property(lambda self: not self._running))


@mutation
def the_pool_shrinks_under_a_step(patch: Patch) -> None:
    patch.setattr(StepLedger, "idle", True)


@mutation
def blocks_beyond_the_end_are_given_out(patch: Patch) -> None:
    patch.setattr(BlockPool, "_leave", lambda self, block: self.free.push_head(block))
