"""The six verbs over paged KV memory. Knows which block holds what; knows no arrays, no model and no policy."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import KVError
from octavo.kv.check import check_invariants
from octavo.kv.keys import BlockKeys, Prefix, index_key
from octavo.kv.ledger import StepLedger
from octavo.kv.matcher import IN_TIER, Hit, Matcher, first_needed
from octavo.kv.meter import Meter
from octavo.kv.misses import EvictionLog, MissFinder
from octavo.kv.ops import LowerTier, Op, Spill
from octavo.kv.pinned import PinnedPrefixes
from octavo.kv.pool import BlockPool
from octavo.kv.sequence import GIVEN_BACK, SequenceState
from octavo.kv.snapshot import PoolSnapshot, take_snapshot
from octavo.kv.stats import Accounting, Counters, KVStats, SequenceUsage, gather_stats


class KVCacheManager:
    """`num_blocks` blocks of `block_size` tokens, shared by sequences that are named by ints.

    windows: one entry a layer group, None for layers that see everything, W for layers whose query sees the last W
    positions. Every group has its own table; all draw from one pool. prefix_cache: keep and match full blocks.
    lower_tier: where evicted blocks go and come back from (needs the prefix cache). accounting: who is told what each
    sequence cost. pins, misses: see `PinnedPrefixes` and `MissFinder`.

    `tokens` arguments are append-only lists that the caller owns; they are kept and read at `commit`. Entries past a
    `truncate` may change. Misuse raises KVError and changes nothing. One thread at a time.

    A step: open, extend, fork, truncate, close in any mix; `take_ops`; run these, then the rows; `commit`; `end_step`.
    Rows of a sequence that is closed or truncated before they run must be dropped or write to nowhere. Step N + 1 may
    be planned and its operations taken before step N ends, as long as the device runs steps in order.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        windows: tuple[int | None, ...] = (None,),
        prefix_cache: bool = True,
        lower_tier: LowerTier | None = None,
        accounting: Accounting = Accounting(),  # noqa: B008 - a value
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise KVError(f"num_blocks is {num_blocks} and block_size {block_size}; both must be 1 or more")
        if not 1 <= len(windows) <= 256 or any(window is not None and window < 1 for window in windows):
            raise KVError(f"windows is {windows}; give 1 to 256 entries, each None or 1 or more")
        if lower_tier is not None and not prefix_cache:
            raise KVError("a lower tier stores blocks by their keys: it needs prefix_cache=True")
        self.block_size = block_size
        self.windows = tuple(windows)
        self.prefix_cache = prefix_cache
        self._counters = Counters()
        self._keys = BlockKeys(block_size)
        self._ledger = StepLedger(self._counters, lower_tier is not None)
        self._evictions = EvictionLog(accounting.clock)
        self._pool = BlockPool(num_blocks, self._counters, self._evicted, Meter(num_blocks, accounting.clock))
        self._matcher = Matcher(self._pool, self._keys, self.windows, lower_tier)
        self.misses = MissFinder(self._pool, self._keys, self.windows, self._matcher, self._evictions)
        self.pins = PinnedPrefixes(self._pool, self._keys, self.windows, prefix_cache)
        self._sequences: dict[int, SequenceState] = {}
        self._on_close = accounting.on_close

    # The six verbs

    def open(self, seq: int, tokens: Sequence[int], namespace: bytes = b"") -> int:
        """Start `seq` with every leading full block that is cached: first here, then in the lower tier.

        Returns how many tokens that covers, at most len(tokens) - 1 so that there is one to compute; they are
        committed. With [] nothing is looked up. namespace: whatever makes equal tokens mean different KV (tenant,
        adapter, image, number format); blocks match within one namespace only.
        """
        self._refuse_known(seq)
        root = self._keys.root(namespace)
        state = SequenceState(tokens, [root], len(self.windows))
        if self.prefix_cache and len(tokens) > 1:
            hit = self._matcher.match(tokens, root)
            self._counters.lookups += hit.looked * len(self.windows)
            if hit.blocks:
                self._evictions.by = seq
                self._take_hit(state, hit)
        state.opened = state.committed
        state.set_next_event(self.windows, self.block_size, self.prefix_cache)
        self._sequences[seq] = state
        return state.committed

    def extend(self, seq: int, n: int) -> bool:
        """Make room to write `n` more tokens after the reserved ones, in every group: allocates, and copies the last
        block first when another sequence or the cache may read it. False: not enough free blocks, nothing changed."""
        try:
            state = self._sequences[seq]
        except KeyError:
            raise self._unknown(seq) from None
        end = state.reserved + n
        if n > 0 and end <= state.write_limit:
            state.reserved = end
            return True
        self._evictions.by = seq
        return self._grow(state, n)

    def commit(self, seq: int, n: int) -> None:
        """The KV of `n` more reserved tokens is really there: full blocks become matchable here, never earlier, and
        blocks that a window has left behind are given back."""
        try:
            state = self._sequences[seq]
        except KeyError:
            raise self._unknown(seq) from None
        end = state.committed + n
        if n < 0 or end > state.reserved:
            raise KVError(f"cannot commit {n} tokens: {state.committed} of {state.reserved} reserved are committed")
        if end > len(state.tokens):
            raise KVError(f"cannot commit {end} tokens: the sequence's list has {len(state.tokens)}")
        if end < state.next_event:
            state.committed = end
        else:
            self._commit_blocks(state, end)

    def fork(self, parent: int, child: int, tokens: Sequence[int]) -> None:
        """Start `child` with the parent's committed tokens, sharing every block that holds them; the next write to a
        shared block copies it. tokens: the child's own list, which begins with those tokens."""
        source = self._known(parent)
        self._refuse_known(child)
        committed = source.committed
        if list(tokens[:committed]) != list(source.tokens[:committed]):
            raise KVError(f"the child's tokens must begin with the {committed} committed tokens of its parent")
        state = SequenceState(tokens, source.chain[:], len(self.windows))
        state.committed = state.reserved = state.opened = committed
        state.given_back = source.given_back[:]
        rows = self._blocks_for(committed)
        for group, table in enumerate(source.tables):
            state.tables[group] = table[:rows]
            for block in table[source.given_back[group] : rows]:
                state.owed -= self._pool.retain(block)
        source.write_limit = 0
        state.set_next_event(self.windows, self.block_size, self.prefix_cache)
        self._sequences[child] = state

    def truncate(self, seq: int, n: int) -> None:
        """Keep the first `n` tokens, reserved ones counted. A window group must still have what the next query reads:
        one token less than committed is always possible."""
        state = self._known(seq)
        if not 0 <= n <= state.reserved:
            raise KVError(f"cannot truncate to {n} tokens: the sequence has {state.reserved}")
        if n < state.committed:
            self._refuse_given_back(state, n)
            state.opened += n - state.committed  # what it computed stays counted
            state.committed = n
            del state.chain[n // self.block_size + 1 :]
        state.reserved = n
        state.write_limit = 0
        self._release_rows(state, self._blocks_for(n))
        if n == 0:
            state.given_back = [0] * len(self.windows)
        state.set_next_event(self.windows, self.block_size, self.prefix_cache)

    def close(self, seq: int) -> None:
        """Give every reference back, the last block first. Published blocks stay matchable until they are reused."""
        state = self._known(seq)
        self._release_rows(state, 0)
        if self._on_close is not None:
            self._on_close(seq, _usage(state, 0.0))
        del self._sequences[seq]

    # The step

    def take_ops(self) -> tuple[Op, ...]:
        """The block operations of the step just planned, in order of phase. They must be run, also when the step has
        no rows. Each call begins a step, which one call of `end_step` ends."""
        self._evictions.step += 1
        return self._ledger.take()

    def end_step(self) -> None:
        """The oldest step whose operations were taken has run: its blocks are pinned no more."""
        self._ledger.end(self._pool)
        self._trim()

    def lost(self, block: int) -> tuple[int, ...]:
        """A Fetch into `block` failed. Call this before `commit`; the sequences returned hold the block or a copy that
        a later step makes of it. Nothing of what they compute in steps under way counts, and they must be closed (and
        opened again). It no longer matches."""
        if not 0 <= block < self.span:
            raise KVError(f"there is no block {block}: the pool has {self.span}")
        bad = self._ledger.made_from(block)
        for each in bad:
            self._pool.unpublish(each)
        sequences = self._sequences.items()
        return tuple(s for s, state in sequences if not all(bad.isdisjoint(table) for table in state.tables))

    def forget(self, namespace: bytes) -> int:
        """Nothing of `namespace` matches here any more; how many blocks that were. Open sequences keep theirs."""
        return self._pool.forget(namespace)

    # The pool

    def resize(self, num_blocks: int) -> tuple[int, ...]:
        """Give out `num_blocks` blocks from now on. What is cached in blocks beyond is spilled with the next step, and
        no block moves: the sequences returned still hold some, which stay until they are closed. Memory must reach up
        to `span`, which falls when a step ends. KVError when more is pinned than so small a pool allows."""
        if num_blocks < 1:
            raise KVError(f"num_blocks is {num_blocks}; it must be 1 or more")
        self.pins.refuse_to_shrink(num_blocks)
        self._pool.resize(num_blocks)
        self._trim()
        states = self._sequences.items()
        return tuple(s for s, state in states if any(max(t, default=0) >= num_blocks for t in state.tables))

    @property
    def num_blocks(self) -> int:
        """Blocks that are given out."""
        return self._pool.num_blocks

    @property
    def span(self) -> int:
        """Block ids are below this: `num_blocks`, or more while blocks beyond the end of a smaller pool are in use."""
        return len(self._pool.refs)

    @property
    def capacity(self) -> int:
        """Blocks that one sequence can count on: all but those that pins ask for."""
        return self._pool.num_blocks - len(self._pool.wanted)

    # Reads

    def matchable(self) -> tuple[Spill, ...]:
        """What would be spilled if every block that can be matched were evicted now, the least recently used first:
        run them, with no step under way, to keep the cache beyond this manager's life."""
        return tuple(Spill(block, key, prefix.namespace) for key, block, prefix in self._pool.by_age())

    def absent_keys(self, tokens: Sequence[int], namespace: bytes = b"") -> list[bytes]:
        """Keys of the blocks that a hit on all of `tokens` would need and that are not in the pool, in order: what is
        worth reading ahead from a lower tier."""
        return self._matcher.absent(tokens, self._keys.root(namespace))

    def block_ids(self, seq: int, group: int = 0) -> Sequence[int]:
        """The block table of `seq` in layer group `group`; -1 where given back. A live view: copy it to keep it."""
        return self._known(seq).tables[group]

    def is_open(self, seq: int) -> bool:
        """Whether `seq` was opened and not closed."""
        return seq in self._sequences

    def committed(self, seq: int) -> int:
        """Tokens whose KV is there."""
        return self._known(seq).committed

    def reserved(self, seq: int) -> int:
        """Tokens that have room, the committed ones counted."""
        return self._known(seq).reserved

    @property
    def num_free(self) -> int:
        """Blocks that nobody refers to or pins, whether they can still be matched or not."""
        return self._pool.free.count

    def blocks_needed(self, n_tokens: int, chunk: int = 1) -> int:
        """Most blocks, over all groups, that a sequence of up to `n_tokens` tokens holds at once when it grows by at
        most `chunk` tokens a step."""
        whole = self._blocks_for(n_tokens)
        spans = (
            whole if window is None else min(whole, (window + chunk - 2) // self.block_size + 2)
            for window in self.windows
        )
        return sum(spans)

    def usage(self, seq: int) -> SequenceUsage:
        """What `seq` has cost since it was opened."""
        state, pool = self._known(seq), self._pool
        held = (block for table in state.tables for block in table if block != GIVEN_BACK)
        owed = sum(pool.meter.price(block, pool.refs[block] - pool.pins[block]) for block in held)
        return _usage(state, owed)

    def prefix_keys(self, seq: int) -> Sequence[bytes]:
        """Keys of the beginnings of `seq` that end with a full committed block, the shortest first."""
        return [prefix.key for prefix in self._known(seq).chain[1:]]

    @property
    def evictions(self) -> int:
        """Cached blocks reused for something else, since the start."""
        return self._counters.evictions

    def stats(self) -> KVStats:
        """Figures of this moment; takes time in proportion to blocks and sequences."""
        return gather_stats(self._pool, self._sequences.values(), self.block_size)

    def snapshot(self) -> PoolSnapshot:
        """Every block and every table of this moment, copied: cheaper than `stats`."""
        return take_snapshot(self._pool, self._sequences, self.block_size)

    def check(self) -> None:
        """Raise KVError that names a broken invariant. Slow: for tests and for hunting faults."""
        check_invariants(self._pool, self._ledger, self._sequences, self.pins, self._keys, self.windows)

    # Rules, one small method each

    def _evicted(self, block: int, key: bytes, namespace: bytes) -> None:
        self._evictions.note(key)
        self._ledger.spill(block, key, namespace)

    def _trim(self) -> None:
        """A step under way may still write to blocks of sequences that were closed meanwhile."""
        if self._ledger.idle:
            self._pool.trim()

    def _take_hit(self, state: SequenceState, hit: Hit) -> None:
        """Touch every block that was found before allocating for those to fetch: allocation could evict them."""
        for group, found in enumerate(hit.found):
            first = hit.first[group]
            state.given_back[group] = first
            state.tables[group] = [GIVEN_BACK] * first + found[first : hit.blocks]
        self._touch(state, hit)
        for group, table in enumerate(state.tables):
            for number in range(hit.first[group], hit.blocks):
                if table[number] == IN_TIER:
                    table[number] = self._fetch_block(hit.chain[number], group)
                    state.fetched.append(index_key(hit.chain[number], group))
                else:
                    self._counters.hits += 1
        state.chain.extend(hit.chain[: hit.blocks])
        state.committed = state.reserved = hit.blocks * self.block_size

    def _touch(self, state: SequenceState, hit: Hit) -> None:
        for group, table in enumerate(state.tables):
            for block in table[hit.first[group] :]:
                if block != IN_TIER:
                    state.owed -= self._pool.retain(block)

    def _fetch_block(self, prefix: Prefix, group: int) -> int:
        """A new block that the lower tier fills, matchable at once: it is pinned until it is there."""
        key = index_key(prefix, group)
        block = self._pool.allocate()
        self._ledger.fetch(self._pool, key, block)
        self._pool.publish(block, key, prefix)
        self._counters.regrets += self._evictions.returned(key)
        return block

    def _grow(self, state: SequenceState, n: int) -> bool:
        """`extend` when it needs a closer look."""
        if n < 0:
            raise KVError(f"cannot extend by {n} tokens")
        if n == 0:
            return True
        end = state.reserved + n
        rows = len(state.tables[0])
        more = self._blocks_for(end) - rows
        copies = self._groups_to_copy(state)
        if more * len(self.windows) + len(copies) > self._pool.free.count:
            return False
        for group in copies:
            table = state.tables[group]
            shared, table[-1] = table[-1], self._pool.allocate()
            key = self._ledger.copy(self._pool, shared, table[-1])
            if key is None:
                state.copied += 1
            else:
                state.fetched.append(key)
            state.owed += self._pool.release(shared)
        for table in state.tables:
            table.extend([self._pool.allocate() for _ in range(more)])
        state.reserved = end
        state.write_limit = (rows + more) * self.block_size
        return True

    def _groups_to_copy(self, state: SequenceState) -> list[int]:
        """Groups whose last block has room, but may be read by others."""
        if state.reserved % self.block_size == 0:
            return []
        writable = self._pool.is_writable
        return [group for group, table in enumerate(state.tables) if not writable(table[-1])]

    def _commit_blocks(self, state: SequenceState, end: int) -> None:
        """`commit` past the end of a block or of a window's reach."""
        if self.prefix_cache:
            self._publish_full(state, end)
        state.committed = end
        self._give_back(state)
        state.set_next_event(self.windows, self.block_size, self.prefix_cache)

    def _publish_full(self, state: SequenceState, end: int) -> None:
        """Publish blocks that are full at `end` committed tokens and have not been yet."""
        done, full = len(state.chain) - 1, end // self.block_size
        fresh, prefix = [], state.chain[-1]
        for number in range(done, full):
            prefix = self._keys.child(prefix, state.tokens, number)
            fresh.append(prefix)
        state.chain.extend(fresh)  # nothing was changed before here: tokens may be refused
        for number in range(done, full):
            for group, table in enumerate(state.tables):
                self._publish_block(state, number, group, table[number])

    def _publish_block(self, state: SequenceState, number: int, group: int, block: int) -> None:
        """One live block a key: a second one with the same content stays private to its sequences."""
        prefix = state.chain[number + 1]
        key = index_key(prefix, group)
        live = self._pool.find(key, prefix)
        if live is None:
            self._pool.publish(block, key, prefix)
            self._counters.regrets += self._evictions.returned(key)

    def _give_back(self, state: SequenceState) -> None:
        for group, window in enumerate(self.windows):
            dead = first_needed(state.committed, window, self.block_size)  # no query of the group reads those before
            table = state.tables[group]
            for number in range(dead - 1, state.given_back[group] - 1, -1):
                state.owed += self._pool.release(table[number])
                table[number] = GIVEN_BACK
            state.given_back[group] = max(dead, state.given_back[group])

    def _release_rows(self, state: SequenceState, keep: int) -> None:
        """Release all rows from `keep` on, the last first: a beginning is worth more than what follows it."""
        for number in range(len(state.tables[0]) - 1, keep - 1, -1):
            for table in state.tables:
                if table[number] != GIVEN_BACK:
                    state.owed += self._pool.release(table[number])
        for table in state.tables:
            del table[keep:]

    def _refuse_given_back(self, state: SequenceState, n: int) -> None:
        for gone, window in zip(state.given_back, self.windows, strict=True):
            reads_from = 0 if window is None else max(0, n - window + 1)
            if n > 0 and gone > reads_from // self.block_size:
                raise KVError(
                    f"cannot truncate to {n} tokens: a window of {window} reads from {reads_from} on there, and "
                    f"the first {gone * self.block_size} were given back; close the sequence and open it again"
                )

    def _blocks_for(self, n: int) -> int:
        return -(-n // self.block_size)

    def _known(self, seq: int) -> SequenceState:
        try:
            return self._sequences[seq]
        except KeyError:
            raise self._unknown(seq) from None

    def _unknown(self, seq: int) -> KVError:
        return KVError(f"sequence {seq} is not open ({len(self._sequences)} are): opened never, or closed already")

    def _refuse_known(self, seq: int) -> None:
        if seq in self._sequences:
            raise KVError(f"sequence {seq} is open already; close it first")


def _usage(state: SequenceState, held: float) -> SequenceUsage:
    """held: block-seconds of the rows that it still has."""
    return SequenceUsage(state.owed + held, state.copied, tuple(state.fetched), state.opened, state.committed)
