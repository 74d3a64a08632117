"""The state of one sequence: its cursors and its block tables. Knows no pool."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv.keys import Prefix

GIVEN_BACK = -1
_NEVER = 1 << 62


class SequenceState:
    """committed <= reserved: tokens whose KV is there, tokens that have room.

    tables[g][i]: the block of layer group g for positions i * block_size and on, or GIVEN_BACK; given_back[g] counts
    those, always at the front. chain[i]: the beginning of i full blocks, as far as committed (only the root without
    a prefix cache). write_limit: up to here `extend` needs no new block and no copy, 0 when that must be looked at.
    next_event: `commit` has nothing to do but count before this position. owed: block-seconds, see `Meter`; complete
    when no block is left. copied: blocks. fetched: keys. opened: committed tokens that it was
    given, not computed.
    """

    __slots__ = (
        "chain",
        "committed",
        "copied",
        "fetched",
        "given_back",
        "next_event",
        "opened",
        "owed",
        "reserved",
        "tables",
        "tokens",
        "write_limit",
    )

    def __init__(self, tokens: Sequence[int], chain: list[Prefix], groups: int) -> None:
        self.tokens = tokens
        self.chain = chain
        self.committed = self.reserved = 0
        self.tables: list[list[int]] = [[] for _ in range(groups)]
        self.given_back = [0] * groups
        self.write_limit = 0
        self.next_event = 0
        self.owed = 0.0
        self.copied = self.opened = 0
        self.fetched: list[bytes] = []

    def set_next_event(self, windows: tuple[int | None, ...], block_size: int, prefix_cache: bool) -> None:
        """The least committed length at which a block becomes full or leaves a window."""
        full = (self.committed // block_size + 1) * block_size if prefix_cache else _NEVER
        leaving = [
            (gone + 1) * block_size + window
            for gone, window in zip(self.given_back, windows, strict=True)
            if window is not None
        ]
        self.next_event = min(full, *leaving) if leaving else full
