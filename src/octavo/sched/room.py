"""Whether the pool has room for one more sequence, and the memory of who found none. Decides nothing about order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octavo.kv import KVCacheManager
from octavo.sched.bounds import room_needed
from octavo.sched.cost import RECOMPUTE, Speeds, cheaper_manner
from octavo.sched.observer import Wait
from octavo.sched.request import Request
from octavo.sched.sharing import must_wait
from octavo.sched.watermark import Watermark


class Room:
    """The admission side of one pool. held_back: how often one was not let in only for the watermark's blocks."""

    def __init__(self, kv: KVCacheManager) -> None:
        self.watermark = Watermark()
        self.held_back = 0
        self._kv = kv
        self._refused = -1  # age of the head that last found no room
        self._free = self._needed = self._margin = 0  # blocks then: free ones, those it would take, those kept free

    def open(self, request: Request) -> int:
        """Open it with whatever is cached of it now, or nothing if it wants none; how many tokens that is."""
        if request.use_cache:
            return self._kv.open(request.id, request.tokens, request.namespace)
        # Opened empty, a sequence takes no cached block; the manager reads the same list as it fills again.
        tokens = request.tokens.copy()
        request.tokens.clear()
        cached = self._kv.open(request.id, request.tokens, request.namespace)
        request.tokens.extend(tokens)
        return cached

    def fits(self, sequences: Iterable[Request], tokens: int) -> bool:
        """Whether all of them can grow by `tokens` at once, or to their ends."""
        return room_needed(self._kv, sequences, tokens) <= self._kv.num_free

    def could_fit(self, sequences: Iterable[Request], tokens: int, gone: Sequence[Request]) -> bool:
        """The same if those `gone` gave their blocks back, at most: what they share with others would stay."""
        back = sum(self._kv.blocks_needed(self._kv.reserved(each.id)) for each in gone)
        return room_needed(self._kv, sequences, tokens) <= self._kv.num_free + back

    def asked_before(self, request: Request, margin: int) -> bool:
        """Whether nothing was given back since it was refused; asking again would only stir the cache."""
        return self._refused == request.age and self._kv.num_free - margin <= self._free - self._margin

    def admits(self, request: Request, others: Sequence[Request], tokens: int, margin: int) -> bool:
        """Whether `request`, just opened, may run beside `others`: all can grow, and `margin` blocks stay free."""
        needed, free = room_needed(self._kv, (*others, request), tokens), self._kv.num_free
        if needed + margin <= free:
            return True
        self.held_back += needed <= free
        self._refused, self._free, self._needed, self._margin = request.age, free, needed, margin
        return False

    def cut_back(self, victim: Request, wanted: int, speeds: Speeds) -> bool:
        """Drop the tail of `victim` that `wanted` tokens of another need. False, and nothing is dropped: it is to be
        closed, which is cheaper, or there is nothing else left."""
        kv, computed = self._kv, self._kv.committed(victim.id)
        if any(window is not None for window in kv.windows):
            return False  # what its windows have let go of is lost to a shorter sequence
        taken = 1 + -(-wanted // kv.block_size)  # of each group's; one may have to be copied
        kept = self._keeps(victim)
        keep = (-(-computed // kv.block_size) - taken) * kv.block_size
        if keep <= 0 or cheaper_manner(speeds, computed, taken, kept=kept, block_size=kv.block_size) == "close":
            return False
        kv.truncate(victim.id, keep)
        return True

    def way_back(self, victim: Request, speeds: Speeds) -> str:
        """How what is evicted of `victim`, once it is closed, comes back: the name of a tier, or RECOMPUTE."""
        return speeds.way_back(self._kv.block_size) if self._keeps(victim) else RECOMPUTE

    def why(self, head: Request, running: Sequence[Request], limit: int, budget: int) -> Wait:
        """What kept the head of the queue from being let in, read from what the planned step has left: what it lacked
        when it was refused, or what there is, if it was not even asked."""
        if len(running) >= limit and running[-1].rank < head.rank:
            return Wait("slots", limit + 1, limit)
        if not budget:
            return Wait("tokens", 1, 0)
        refused = self._refused == head.age
        if not refused and must_wait(self._kv, head, running):
            return Wait("prompt", 1, 0)
        if head.fetching:
            return Wait("tier", 1, 0)
        if not refused:
            return Wait("blocks", 0, self._kv.num_free)
        enough = self._needed <= self._free
        return Wait("watermark" if enough else "blocks", self._needed + self._margin, self._free)

    def _keeps(self, victim: Request) -> bool:
        """Whether its blocks stay matchable once it is closed, and are spilled when they are evicted."""
        return self._kv.prefix_cache and victim.use_cache
