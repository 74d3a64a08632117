"""How much stands before a request that is about to arrive. Counts; knows no speeds and no times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from octavo.kv import KVCacheManager
from octavo.sched.request import Request


@dataclass(frozen=True, slots=True)
class Outlook:
    """tokens: of prompts (and, where preempted, answers) to compute before its own are done, its own included, as if
    nothing were cached. ends: sequences that must end before it has a place."""

    tokens: int
    ends: int


def look_ahead(ahead: Iterable[Request], own_tokens: int, slots: int, kv: KVCacheManager) -> Outlook:
    """What a request of `own_tokens` finds when those `ahead` come in first. slots: free ones."""
    tokens, waits, places, free = 0, 0, slots, kv.num_free
    for length in (*(len(each.tokens) for each in ahead), own_tokens):
        need = kv.blocks_needed(length + 1)
        if waits or not places or need > free:
            waits += 1  # nobody passes one that finds no place
        else:
            places -= 1
            free -= need
        tokens += length
    return Outlook(tokens, waits)
