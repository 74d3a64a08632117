"""The invariants of the manager, each checked from scratch. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from octavo.errors import KVError
from octavo.kv.keys import BlockKeys, index_key
from octavo.kv.ledger import StepLedger
from octavo.kv.matcher import first_needed
from octavo.kv.pinned import PinnedPrefixes
from octavo.kv.pool import BlockPool
from octavo.kv.sequence import GIVEN_BACK, SequenceState

Sequences = Mapping[int, SequenceState]


def _require(holds: bool, invariant: str, *facts: object) -> None:
    if not holds:
        raise KVError(f"invariant broken: {invariant} {facts}")


def check_invariants(
    pool: BlockPool,
    ledger: StepLedger,
    sequences: Sequences,
    pinned: PinnedPrefixes,
    keys: BlockKeys,
    windows: tuple[int | None, ...],
) -> None:
    """Raise KVError that names the first invariant found broken, with what was seen."""
    _require(pinned.check(), "wanted and kept = pinned", pool.wanted, pool.kept)
    _check_references(pool, ledger, sequences)
    _check_free_list(pool)
    _check_index(pool, keys)
    for seq, state in sequences.items():
        _check_sequence(seq, state, keys.block_size, windows)
        _check_contents(pool, seq, state, keys)
    _check_writers(pool, sequences, keys.block_size)


def _check_references(pool: BlockPool, ledger: StepLedger, sequences: Sequences) -> None:
    pins = Counter([*ledger.pinned(), *pool.kept])
    rows = Counter(
        block for state in sequences.values() for table in state.tables for block in table if block != GIVEN_BACK
    )
    for block in range(len(pool.refs)):
        _require(
            pool.pins[block] == pins[block],
            "pins = pins of steps and of kept blocks",
            block,
            pool.pins[block],
            pins[block],
        )
        expected = rows[block] + pins[block]
        _require(pool.refs[block] == expected, "refs = table rows + pins", block, pool.refs[block], expected)


def _check_free_list(pool: BlockPool) -> None:
    free = list(pool.free)
    _require(len(free) == len(set(free)) == pool.free.count, "a free block is listed once", len(free), pool.free.count)
    unused = {block for block, refs in enumerate(pool.refs[: pool.num_blocks]) if refs == 0}
    _require(set(free) == unused, "free <=> refs 0", set(free) ^ unused)
    held = sum(1 for refs in pool.refs[: pool.num_blocks] if refs > 0)
    gone = [block for block in range(pool.num_blocks, len(pool.refs)) if not pool.refs[block]]
    _require(all(pool.keys[block] is None for block in gone), "what left the pool is not found", gone)
    _require(len(free) + held == pool.num_blocks, "free + held = total", len(free), held, pool.num_blocks)
    _require(all((block in pool.free) == (block in unused) for block in range(pool.num_blocks)), "membership", free)


def _check_index(pool: BlockPool, keys: BlockKeys) -> None:
    published = {block for block, key in enumerate(pool.keys) if key is not None}
    _require(set(pool.index.values()) == published, "index <=> published", set(pool.index.values()) ^ published)
    _require(len(pool.index) == len(published), "one live block a key", len(pool.index), len(published))
    for key, block in pool.index.items():
        prefix = pool.prefixes[block]
        _require(pool.keys[block] == key and prefix is not None, "index and block name one key", block)
        if prefix is not None and prefix.parent is not None:
            digest = keys.digest(prefix.parent.key + prefix.tokens)
            _require(prefix.key == digest and key == index_key(prefix, key[-1]), "the key is that of the tokens", block)


def _check_sequence(seq: int, state: SequenceState, block_size: int, windows: tuple[int | None, ...]) -> None:
    _require(0 <= state.committed <= state.reserved, "committed <= reserved", seq, state.committed, state.reserved)
    _require(state.committed <= len(state.tokens), "committed tokens are known", seq, state.committed)
    rows = -(-state.reserved // block_size)
    for table, gone, window in zip(state.tables, state.given_back, windows, strict=True):
        _require(len(table) == rows, "a table covers what is reserved", seq, len(table), rows)
        _require(all(block == GIVEN_BACK for block in table[:gone]), "given back means -1", seq, gone, table)
        _require(all(block >= 0 for block in table[gone:]), "only the front is given back", seq, gone, table)
        # A truncation may have gone one position below what first_needed keeps; the next query reads from here on.
        reads_from = 0 if window is None else max(0, state.committed - window + 1)
        _require(gone * block_size <= reads_from, "what a query reads is there", seq, gone, reads_from)
        kept = first_needed(state.committed, window, block_size)
        _require(gone >= kept, "what no query reads is given back", seq, gone, kept)
    held = [block for table in state.tables for block in table if block != GIVEN_BACK]
    _require(len(held) == len(set(held)), "a sequence holds a block once", seq, held)
    _require(state.write_limit in (0, rows * block_size), "write_limit is the table's end", seq, state.write_limit)


def _check_contents(pool: BlockPool, seq: int, state: SequenceState, keys: BlockKeys) -> None:
    """Full committed blocks that are published are published as this sequence's tokens."""
    prefix = state.chain[0]
    for number in range(len(state.chain) - 1):
        prefix = keys.child(prefix, state.tokens, number)
        _require(state.chain[number + 1].key == prefix.key, "the chain is that of the tokens", seq, number)
        for group, table in enumerate(state.tables):
            key = None if table[number] == GIVEN_BACK else pool.keys[table[number]]
            _require(key in (None, index_key(prefix, group)), "a row holds its own tokens", seq, number, group)
    full = state.committed // keys.block_size
    _require(len(state.chain) - 1 in (0, full), "the chain reaches what is committed", seq, len(state.chain) - 1, full)


def _check_writers(pool: BlockPool, sequences: Sequences, block_size: int) -> None:
    """Writable <=> one table row and unpublished. A fork may share the block that its parent is about to write to:
    then there is one writer still, and the others read only what is below."""
    readers: dict[int, list[tuple[int, int, int]]] = {}
    for seq, state in sequences.items():
        for table in state.tables:
            for number, block in enumerate(table):
                if block != GIVEN_BACK:
                    low, high = number * block_size, (number + 1) * block_size
                    read = min(state.committed, high) - low
                    write = state.reserved - low if state.reserved > max(state.committed, low) else 0
                    readers.setdefault(block, []).append((seq, read, write if state.committed < high else 0))
    for block, views in readers.items():
        writers = [(seq, read) for seq, read, write in views if write > 0]
        _require(len(writers) <= 1, "one writer a block", block, views)
        if writers:
            _require(pool.keys[block] is None, "published content never changes", block, views)
            _require(all(read <= writers[0][1] for _, read, _ in views), "others read what is written", block, views)
    for seq, state in sequences.items():
        if state.write_limit and state.reserved % block_size:
            last = [table[-1] for table in state.tables]
            _require(all(pool.is_writable(block) for block in last), "a writer has its block alone", seq, last)
