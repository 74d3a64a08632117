"""Which tokens run next. Knows block counts through `octavo.kv` alone: no arrays, no text, no clock.

There is no prefill and no decode here, only sequences with tokens to catch up. Sequences stand in order of age, the
older ones running, the younger waiting; one moves across that border when it is admitted, and back, youngest first,
when blocks run out. `octavo.sched.policy` says what that order guarantees.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from octavo.errors import InvalidRequest, KVError
from octavo.kv import KVCacheManager
from octavo.sched.door import admissible_max_tokens
from octavo.sched.observer import Observer, Wait
from octavo.sched.plan import Plan
from octavo.sched.policy import horizon, room_needed, running_limit
from octavo.sched.request import Finished, FinishReason, Request
from octavo.sched.step import Step


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Counts since the start. prompt_tokens and cached_tokens are of first admissions: their ratio is the hit rate.
    computed_tokens: all that landed, those computed again after a preemption too."""

    running: int
    waiting: int
    steps: int
    preemptions: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int


class Scheduler:
    """Plans steps (`schedule`) and lands them (`apply`), strictly in turn; `add`, `abort` and `finish` at any time.

    max_batched_tokens: tokens a step computes at most. max_seqs: slots; `running_limit` of them are used.
    max_model_len: longest sequence, prompt and answer. max_scored_tokens: tokens a step computes at most of prompts
    whose every position has logits (use_cache False), since logits are large. All in tokens, at least 1. observer: is
    told why.
    """

    def __init__(
        self,
        kv: KVCacheManager,
        *,
        max_batched_tokens: int,
        max_seqs: int,
        max_model_len: int,
        max_scored_tokens: int | None = None,
        observer: Observer | None = None,
    ) -> None:
        if min(max_batched_tokens, max_seqs, max_model_len, max_scored_tokens or 1) < 1:
            raise ValueError(
                f"max_batched_tokens {max_batched_tokens}, max_seqs {max_seqs}, max_model_len {max_model_len} and"
                f" max_scored_tokens {max_scored_tokens} must all be at least 1"
            )
        self.kv = kv
        self.max_batched_tokens = max_batched_tokens
        self.max_model_len = max_model_len
        self.max_scored_tokens = max_batched_tokens if max_scored_tokens is None else max_scored_tokens
        self.running_limit = running_limit(max_batched_tokens, max_seqs)
        self._observer = observer or Observer()
        self._live: dict[int, Request] = {}
        self._running: list[Request] = []  # oldest first; all of them older than all that wait
        self._waiting: OrderedDict[int, Request] = OrderedDict()  # oldest first; leaves from any place at no cost
        self._slots = list(range(self.running_limit))  # a heap of the free ones
        self._ended: list[int] = []  # since the last step
        self._flight: Plan | None = None  # scheduled and not yet applied
        self._admitted: list[Request] = []  # by the step in flight, for the first time
        self._refused = (-1, 0, 0)  # age of the head that last found no room, the free blocks then, and those needed
        self._arrivals = self._steps = self._preemptions = 0
        self._prompt_tokens = self._cached_tokens = self._computed_tokens = 0

    # -- requests come and go ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request and its children behind all others.

        Raises InvalidRequest (`context_length_exceeded`, `pool_too_small`, `duplicate_id`), and nothing is queued.
        """
        ids = (request.id, *request.children)
        if request.n != len(ids):
            raise ValueError(f"n is {request.n} and there are {len(request.children)} children, not {request.n - 1}")
        if len(set(ids)) < len(ids) or any(seq in self._live for seq in ids):
            raise InvalidRequest(f"a sequence of {ids[:8]} is already in use", code="duplicate_id")
        request.max_tokens = admissible_max_tokens(request, self.kv, self.max_model_len)
        for each in (request, *(request.child(seq) for seq in request.children)):
            each.age = self._arrivals
            self._arrivals += 1
            self._live[each.id] = self._waiting[each.id] = each

    def abort(self, seq: int) -> bool:
        """End a sequence wherever it is; its blocks are free at once. False if it is unknown or has ended.

        If a step in flight has a row of it, `apply` passes over that row; one that has not run yet must not be run.
        """
        return self.finish(seq, "abort")

    def finish(self, seq: int, reason: FinishReason) -> bool:
        """End a sequence for a reason that only the caller can see, such as a stop string. Otherwise like `abort`."""
        request = self._live.get(seq)
        if request is None:
            return False
        self._end(request)
        return True

    # -- one step ------------------------------------------------------------------------------------------------

    def schedule(self) -> Step:
        """Choose the next step's rows and reserve their blocks; every step must be applied before the next."""
        if self._flight is not None:
            raise RuntimeError("the last step was not applied; call apply() before schedule()")
        plan = Plan(self.max_batched_tokens, self.max_scored_tokens)
        self._fork_children()
        self._serve_running(plan)
        self._admit_waiting(plan)
        if self._waiting:
            head = next(iter(self._waiting.values()))
            self._observer.waits(head, self._why_waits(head, plan))
        if not plan.rows and self.has_work:
            raise KVError(
                f"no sequence can advance: {self.running} running, {self.waiting} waiting,"
                f" {self.kv.num_free} of {self.kv.num_blocks} blocks free"
            )
        return self._launch(plan)

    def recall(self, sequences: Sequence[int]) -> Step:
        """Before the rows of the step in flight run: these sequences turned out to lack what they were opened with (a
        tier lost a block), so they are closed and wait again, at the head. Younger ones that run go with them, since
        nobody overtakes. The step to run and apply in place of the former one.
        """
        plan = self._flight
        if plan is None:
            raise RuntimeError("no step is in flight; recall() comes between schedule() and apply()")
        first = min((place for place, each in enumerate(self._running) if each.id in sequences), default=None)
        victims = [] if first is None else self._running[first:]
        for victim in reversed(victims):
            self._observer.recalled(victim)
            self._running.pop()
            self._stop(victim)
            self._wait_at_head(victim)
            if victim in self._admitted:
                self._forget_admission(victim)
            else:
                victim.preemptions += 1
                self._preemptions += 1
        return plan.recall(victims)

    def apply(self, step: Step, sampled: Mapping[int, int]) -> list[Finished]:
        """Land a step: its tokens' KV is there, and `sampled[seq]` is the next token of each row with `sample`.

        Returns the sequences that it ended, already closed. Rows of sequences that ended meanwhile are passed over.
        """
        plan = self._flight
        if plan is None or plan.step is not step:
            raise RuntimeError(f"step {step.id} is not the one in flight")
        rows = [row for row in step.rows if self._live.get(row.seq) is plan.requests[row.seq]]
        for row in rows:
            if row.sample and row.seq not in sampled:
                raise ValueError(f"step {step.id} has no sampled token for sequence {row.seq}")
        self._flight = None
        self._admitted.clear()
        finished = []
        for row in rows:
            request = plan.requests[row.seq]
            self.kv.commit(row.seq, row.count)
            self._computed_tokens += row.count
            caught_up = row.start + row.count == len(request.tokens)
            if row.sample:
                request.tokens.append(sampled[row.seq])
            reason = request.ending() if caught_up else None
            if reason is not None:
                stop = request.tokens[-1] if reason == "stop" else None
                finished.append(Finished(row.seq, reason, stop, request.cached_tokens or 0, request.preemptions))
                self._end(request)
        return finished

    # -- what can be asked ---------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def largest_need(self) -> int:
        """Blocks, at most, that one of the live sequences needs at its longest; a smaller pool could not serve it."""
        return max((self.kv.blocks_needed(each.total) for each in self._live.values()), default=0)

    def request(self, seq: int) -> Request:
        """The live sequence `seq` (a child too), to read. KeyError once it has ended."""
        return self._live[seq]

    def tokens(self, seq: int) -> Sequence[int]:
        """The tokens of a live sequence so far, to read. KeyError once it has ended."""
        return self._live[seq].tokens

    def cached_tokens(self, seq: int) -> int:
        """Prompt tokens that a live sequence found cached when it was first admitted; 0 before that."""
        return self._live[seq].cached_tokens or 0

    def preemptions(self, seq: int) -> int:
        """How often a live sequence was preempted."""
        return self._live[seq].preemptions

    def stats(self) -> SchedulerStats:
        return SchedulerStats(
            self.running,
            self.waiting,
            self._steps,
            self._preemptions,
            self._prompt_tokens,
            self._cached_tokens,
            self._computed_tokens,
        )

    def check(self) -> None:
        """Raise KVError if an invariant of this class does not hold; costs time in proportion to what is queued."""
        order = [*self._running, *self._waiting.values()]
        slots = [each.slot for each in self._running if each.slot is not None]
        for sound, what in (
            (all(a.age < b.age for a, b in pairwise(order)), "sequences out of order of age"),
            ({each.id: each for each in order} == self._live, "a live sequence neither runs nor waits"),
            (sorted((*slots, *self._slots)) == list(range(self.running_limit)), "a slot is lost or shared"),
            (len(slots) == len(self._running), "a running sequence has no slot"),
            (all(each.slot is None for each in self._waiting.values()), "a waiting sequence has a slot"),
            (all(self._unreserved(each) <= 1 for each in self._running[:-1]), "two prompts are in the making at once"),
        ):
            if not sound:
                raise KVError(f"scheduler: {what}")

    # -- the parts of a step -------------------------------------------------------------------------------------

    def _fork_children(self) -> None:
        """Children share the prompt's blocks in the one moment when their parent has computed it and nothing more.

        Each then lacks the prompt's last token only, and samples its own first one from it. A child that finds no
        slot or no room now is opened later like any other sequence, through the prefix cache.
        """
        while self._waiting and len(self._running) < self.running_limit:
            child = next(iter(self._waiting.values()))
            parent = child.parent
            if parent is None or parent.slot is None or child.preemptions:
                return
            if self.kv.committed(parent.id) != parent.prompt_len or parent.output_len != 1:
                return
            self.kv.fork(parent.id, child.id, child.tokens)
            self.kv.truncate(child.id, child.prompt_len - 1)
            if room_needed(self.kv, (*self._running, child), self.kv.block_size) > self.kv.num_free:
                self.kv.close(child.id)
                return
            self._start(child, cached=0)

    def _serve_running(self, plan: Plan) -> None:
        """Rows for those that run. Oldest first, so that a victim, younger than all who got a row, has none."""
        for position in range(len(self._running)):
            if position < len(self._running):  # the youngest may have been preempted meanwhile
                self._serve(self._running[position], plan)

    def _serve(self, request: Request, plan: Plan) -> None:
        """Give `request` as many of the tokens it lacks as budget and blocks allow; none if both are spent."""
        lacking, budget = self._lacking(request), plan.budget
        start = len(request.tokens) - lacking
        if lacking == 1 and budget and self.kv.extend(request.id, 1):  # what most do in most steps
            plan.take(request, start, 1)
            return
        count = self._reserve(request, min(lacking, plan.limit(request, start)), plan)
        if count:
            plan.take(request, start, count)
        plan.short |= count < min(lacking, budget)

    def _reserve(self, request: Request, wanted: int, plan: Plan) -> int:
        """Make room for `wanted` tokens, or fewer; only when not even one has room do younger ones give way."""
        while wanted:
            count = wanted
            while count:
                if self.kv.extend(request.id, count):
                    return count
                count //= 2
            if self._running[-1] is request:
                return 0
            self._preempt_youngest(plan, request)
        return 0

    def _preempt_youngest(self, plan: Plan, by: Request) -> None:
        """Close the youngest that runs; it waits at the head of the queue and is opened again with all its tokens."""
        victim = self._running.pop()
        self._observer.preempted(victim, by)
        self._stop(victim)
        victim.preemptions += 1
        self._preemptions += 1
        self._wait_at_head(victim)
        plan.preempted.append(victim.id)
        plan.short = True

    def _admit_waiting(self, plan: Plan) -> None:
        """Let the head of the queue in while slots, budget and blocks last; nobody passes it."""
        while self._waiting and plan.budget and not plan.short and len(self._running) < self.running_limit:
            request = next(iter(self._waiting.values()))
            if self._parent_is_ahead(request) or not self._open(request):
                return
            self._serve(request, plan)

    def _parent_is_ahead(self, child: Request) -> bool:
        """Whether the parent is about to compute the prompt that the child will share."""
        parent = child.parent
        return parent is not None and parent.slot is not None and self.kv.committed(parent.id) < parent.prompt_len

    def _open(self, request: Request) -> bool:
        """Admit `request` with whatever is cached of it now, if all that run can then grow; else change nothing."""
        free = self.kv.num_free
        head, free_then, _ = self._refused
        if self._running and head == request.age and free <= free_then:
            return False  # nothing was given back since; asking again would only stir the cache
        cached = self._open_blocks(request)
        ahead = horizon(request.preemptions, self.kv.block_size)
        if self._running:
            needed = room_needed(self.kv, (*self._running, request), ahead)
            if needed > self.kv.num_free:
                self._refused = request.age, free, needed
                self.kv.close(request.id)
                return False
        self._start(request, cached=0 if request.parent is not None else cached)
        return True

    def _open_blocks(self, request: Request) -> int:
        if request.use_cache:
            return self.kv.open(request.id, request.tokens, request.namespace)
        # Opened empty, a sequence takes no cached block; the manager reads the same list as it fills again.
        tokens = request.tokens.copy()
        request.tokens.clear()
        cached = self.kv.open(request.id, request.tokens, request.namespace)
        request.tokens.extend(tokens)
        return cached

    def _why_waits(self, head: Request, plan: Plan) -> Wait:
        """What kept the head of the queue from being let in, read from what the planned step has left."""
        age, free, needed = self._refused
        if len(self._running) >= self.running_limit:
            return Wait("slots", self.running_limit + 1, self.running_limit)
        if not plan.budget:
            return Wait("tokens", 1, 0)
        if self._parent_is_ahead(head):
            return Wait("prompt", 1, 0)
        return Wait("blocks", needed if age == head.age else 0, free if age == head.age else self.kv.num_free)

    def _lacking(self, request: Request) -> int:
        """Tokens of `request` whose KV is not there yet."""
        return len(request.tokens) - self.kv.committed(request.id)

    def _unreserved(self, request: Request) -> int:
        """The same less the tokens of the step in flight."""
        return len(request.tokens) - self.kv.reserved(request.id)

    def _start(self, request: Request, cached: int) -> None:
        del self._waiting[request.id]
        self._running.append(request)
        request.slot = heapq.heappop(self._slots)
        if request.cached_tokens is None:  # later admissions only find again what was already paid for
            request.cached_tokens = cached
            self._admitted.append(request)
            if request.parent is None:
                self._prompt_tokens += request.prompt_len
                self._cached_tokens += cached
        self._observer.admitted(request)

    def _forget_admission(self, request: Request) -> None:
        """It was admitted by the step in flight, and that came to nothing."""
        if request.parent is None:
            self._prompt_tokens -= request.prompt_len
            self._cached_tokens -= request.cached_tokens or 0
        request.cached_tokens = None

    def _wait_at_head(self, request: Request) -> None:
        self._waiting[request.id] = request
        self._waiting.move_to_end(request.id, last=False)

    def _stop(self, request: Request) -> None:
        """Give back the blocks and the slot of one that no longer runs."""
        assert request.slot is not None
        self.kv.close(request.id)
        heapq.heappush(self._slots, request.slot)
        request.slot = None

    def _end(self, request: Request) -> None:
        del self._live[request.id]
        if request.slot is None:
            del self._waiting[request.id]
        else:
            self._running.remove(request)
            self._stop(request)
        self._ended.append(request.id)

    def _launch(self, plan: Plan) -> Step:
        self._steps += 1
        step = plan.seal(self._steps, self.kv.take_ops(), tuple(self._ended))
        self._ended = []
        self._flight = plan
        return step
