"""What each request cost and what happened to it, kept as the scheduler and the block manager tell. Changes nothing."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo.engine.events import EventKind, EventLog
from octavo.engine.explain import Explanation, HeldBlocks, Preempted, Waited
from octavo.engine.outputs import HitTokens
from octavo.engine.request import LiveRequest
from octavo.kv import Fetch, KVCacheManager, Miss, Op, SequenceUsage, Spill
from octavo.sched.observer import Observer, Wait
from octavo.sched.request import Request
from octavo.sched.victims import LOST
from octavo.tiers import TierStack

KEPT = 256  # requests that ended and can still be explained
NOTES = 16  # waits, and preemptions, of one request that are remembered
WAITS = 256  # changes of what the head of the queue waited for
SPILLS = 1 << 15  # blocks whose way down is remembered; others in the tiers count as from an earlier run
ANSWERS = 8192  # beginnings that reach into an answer, to tell a conversation's next turn from a shared prompt


@dataclass(slots=True)
class _Track:
    """One sequence: whose it is, how far it was ever computed, since when it waits (None: it runs), whether it
    ever ran, its cached tokens by cause."""

    story: _Story
    index: int
    waiting: float | None
    reached: int = 0
    admitted: bool = False
    hits: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Story:
    """One request and what happened to it."""

    live: LiveRequest
    sequences: tuple[int, ...]
    ahead: int
    namespace: bytes
    use_cache: bool
    cached: int | None = None
    missed: Miss | None = None
    waits: deque[Waited] = field(default_factory=lambda: deque(maxlen=NOTES))
    preemptions: deque[Preempted] = field(default_factory=lambda: deque(maxlen=NOTES))


class Journal(Observer):
    """Belongs to one engine; `watch` before anything happens. What it costs a step does not depend on how many run.

    `log` has what happened lately; bills are with the requests themselves, `LiveRequest.bill`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.log = EventLog(clock)
        self._clock = clock
        self._hits: Counter[str] = Counter()
        self._tracks: dict[int, _Track] = {}
        self._stories: dict[int, _Story] = {}  # of live requests
        self._past: OrderedDict[int, Explanation] = OrderedDict()  # of the last KEPT that ended
        self._waits: deque[tuple[float, int, Wait]] = deque(maxlen=WAITS)
        self._answers: OrderedDict[bytes, None] = OrderedDict()
        self._spilled: dict[bytes, float] = {}  # when, by key
        self._evictions = 0

    def watch(self, kv: KVCacheManager, tiers: TierStack | None) -> None:
        """The blocks that everything is about, and what is below them."""
        self._kv = kv
        self._tiers = tiers

    @property
    def hits(self) -> HitTokens:
        """Cached tokens by cause, since the start."""
        return HitTokens(**self._hits)

    # -- what the engine tells -----------------------------------------------------------------------------------

    def arrived(self, live: LiveRequest, request: Request, ahead: int) -> None:
        """It is queued behind `ahead` others, as the sequences of `request`: one for each answer, or for each beam."""
        sequences = (request.id, *request.children)
        story = _Story(live, sequences, ahead, request.namespace, request.use_cache)
        self._stories[live.id] = story
        for index, seq in enumerate(sequences):
            self._tracks[seq] = _Track(story, index, live.arrived)
        self.log.note("arrived", live.id, len(live.prompt_tokens))

    def refused(self, prompt_tokens: int) -> None:
        """A request could not be served."""
        self.log.note("refused", None, prompt_tokens)

    def moved(self, ops: Sequence[Op], lost: int) -> None:
        """A step's block operations have run; `lost` fetches failed."""
        evictions = self._kv.evictions
        if evictions != self._evictions:
            self.log.note("evicted", None, evictions - self._evictions)
            self._evictions = evictions
        if not ops:
            return
        now, spilled = self._clock(), 0
        for op in ops:
            if isinstance(op, Spill):
                spilled += 1
                self._spilled[op.key] = now
        while len(self._spilled) > SPILLS:
            del self._spilled[next(iter(self._spilled))]
        fetched = sum(isinstance(op, Fetch) for op in ops)
        counts: tuple[tuple[EventKind, int], ...] = (("spilled", spilled), ("fetched", fetched - lost), ("lost", lost))
        for kind, count in counts:
            if count:
                self.log.note(kind, None, count)

    def ended(self, live: LiveRequest) -> None:
        """Its last answer has ended."""
        story = self._stories.pop(live.id)
        self._past[live.id] = self._tell(story, ended=True)
        if len(self._past) > KEPT:
            self._past.popitem(last=False)
        for seq in story.sequences:
            track = self._tracks.pop(seq)
            if track.waiting is not None and track.admitted:
                live.bill.preempted_s += self._clock() - track.waiting
        reasons = {answer.finish_reason for answer in live.answers}
        kind: EventKind = "failed" if "error" in reasons else "aborted" if "abort" in reasons else "finished"
        self.log.note(kind, live.id, sum(len(answer.tokens) for answer in live.answers))

    # -- what the block manager tells ----------------------------------------------------------------------------

    def closed(self, seq: int, usage: SequenceUsage) -> None:
        """A sequence gave its blocks back, for good or for now."""
        track = self._tracks.get(seq)
        if track is None:
            return
        track.story.live.bill.add(usage, track.reached)
        if usage.committed > usage.opened:
            track.reached = max(track.reached, usage.committed)
            self._remember_answer(seq, track)

    # -- what the scheduler tells --------------------------------------------------------------------------------

    def admitted(self, request: Request) -> None:
        """Its blocks are open, for the first time or again."""
        track = self._tracks[request.id]
        live, now, found = track.story.live, self._clock(), self._kv.committed(request.id)
        if live.started is None:
            live.started = now
        if track.waiting is not None:
            track.story.waits.extend(self._waits_since(track.waiting))
            live.bill.preempted_s += now - track.waiting if track.admitted else 0.0
        fetched = self._bill_fetched(request.id, live)
        if track.admitted:
            self._hits["recovered"] += found
        elif request.parent is None:
            track.story.cached, track.story.missed = found, self._miss_then(request, found)
            track.hits = self._hits_of(request.id, found, fetched)
            self._hits.update(track.hits)
        else:
            track.reached = found  # of the prompt, which another answer computed
        self.log.note("resumed" if track.admitted else "admitted", live.id, found)
        track.waiting, track.admitted = None, True

    def waits(self, head: Request, why: Wait) -> None:
        """Remember when the reason changes."""
        story = self._tracks[head.id].story
        if self._waits:
            _, last, reason = self._waits[-1]
            if last == story.live.id and reason.reason == why.reason:
                return
        self._waits.append((self._clock(), story.live.id, why))

    def preempted(self, victim: Request, by: Request, how: str) -> None:
        """It gives its blocks to another."""
        self._stop(victim, self._tracks[by.id].story.live.id, how)

    def recalled(self, victim: Request) -> None:
        """What it was opened with is lost; if it had computed nothing, its admission never was."""
        self._stop(victim, None, LOST)
        track = self._tracks[victim.id]
        if victim.cached_tokens is not None and not track.reached and victim.parent is None:
            self._hits.subtract(track.hits)
            track.admitted, track.hits = False, Counter()

    # -- what can be asked ---------------------------------------------------------------------------------------

    def explain(self, request_id: int, *, operator: bool = True) -> Explanation | None:
        """None for a request that is unknown or ended long ago. operator: for one who may know of other namespaces."""
        story = self._stories.get(request_id)
        return self._past.get(request_id) if story is None else self._tell(story, ended=False, operator=operator)

    def _tell(self, story: _Story, *, ended: bool, operator: bool = True) -> Explanation:
        live = story.live
        held = [seq for seq in story.sequences if self._kv.is_open(seq)]  # also by one that was cut back, and waits
        running = any(self._tracks[seq].waiting is None for seq in held)
        waiting = [since for seq in story.sequences if (since := self._tracks[seq].waiting) is not None]
        waits = list(story.waits)
        if waiting and not running and not ended:
            waits += self._waits_since(min(waiting))
        return Explanation(
            request_id=live.id,
            state="ended" if ended else "running" if running else "waiting",
            prompt_tokens=len(live.prompt_tokens),
            cached_tokens=story.cached,
            missed=story.missed if ended or story.cached is not None else self._miss_now(story, operator),
            ahead=story.ahead,
            held=tuple(self._held(seq) for seq in held),
            waits=tuple(waits[-NOTES:]),
            preemptions=tuple(story.preemptions),
        )

    def _miss_now(self, story: _Story, operator: bool) -> Miss | None:
        """Why the prompt of one that was never admitted would not be cached whole."""
        if not story.use_cache:
            return None
        return self._kv.misses.explain(story.live.prompt_tokens, story.namespace, operator=operator)

    def _miss_then(self, request: Request, found: int) -> Miss | None:
        """The eviction that `request`, just admitted for the first time, is short of."""
        size = self._kv.block_size
        if not request.use_cache or found // size >= (request.prompt_len - 1) // size:
            return None
        return self._kv.misses.evicted(request.tokens, request.namespace, found // size)

    def _held(self, seq: int) -> HeldBlocks:
        tables = self._tables(seq)
        mine = {block for table in tables for block in table if block >= 0}
        shared: Counter[int] = Counter()
        for other, track in self._tracks.items():
            if other != seq and self._kv.is_open(other):
                theirs = {block for table in self._tables(other) for block in table}
                shared[track.story.live.id] += len(mine & theirs)
        return HeldBlocks(self._tracks[seq].index, tables, tuple(sorted((+shared).items())))

    def _tables(self, seq: int) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self._kv.block_ids(seq, group)) for group in range(len(self._kv.windows)))

    # -- one small thing each ------------------------------------------------------------------------------------

    def _stop(self, victim: Request, by: int | None, how: str) -> None:
        track = self._tracks[victim.id]
        now, tokens = self._clock(), self._kv.committed(victim.id)
        track.waiting = now
        track.story.preemptions.append(Preempted(now, by, tokens, how))
        self.log.note("recalled" if by is None else "preempted", track.story.live.id, tokens, by, how)

    def _waits_since(self, since: float) -> list[Waited]:
        """What the head of the queue lacked from `since` to now, the last few reasons, the oldest first."""
        found, until = deque[Waited](), self._clock()
        for began, head, why in reversed(self._waits):
            if until <= since or len(found) == NOTES:
                break
            found.appendleft(Waited(max(began, since), until - max(began, since), why, head))
            until = began
        return [each for each in found if each.seconds > 0]

    def _bill_fetched(self, seq: int, live: LiveRequest) -> Counter[str]:
        """Blocks of an opened sequence that come from below the pool, by cause; and the bill for their time there."""
        causes, now = Counter[str](), self._clock()
        for key in self._kv.usage(seq).fetched:
            since = self._spilled.get(key)
            causes["restart" if since is None else "tier"] += 1
            tier = None if self._tiers is None else self._tiers.promised_by(key)
            if since is not None and tier is not None:
                live.bill.add_tier(tier, now - since)
        return causes

    def _hits_of(self, seq: int, found: int, fetched: Counter[str]) -> Counter[str]:
        """`found` tokens of a prompt by cause."""
        if not found:
            return Counter()
        size, groups = self._kv.block_size, len(self._kv.windows)
        hits = Counter({cause: blocks * size // groups for cause, blocks in fetched.items()})
        turn = any(key in self._answers for key in self._kv.prefix_keys(seq))
        hits["conversation" if turn else "prompt"] += found - hits.total()
        return hits

    def _remember_answer(self, seq: int, track: _Track) -> None:
        """The beginning that ends with the first block that holds a token of the answer."""
        keys = self._kv.prefix_keys(seq)
        place = len(track.story.live.prompt_tokens) // self._kv.block_size
        if place < len(keys):
            self._answers[keys[place]] = None
            self._answers.move_to_end(keys[place])
            if len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
