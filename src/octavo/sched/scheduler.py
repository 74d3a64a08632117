"""Which tokens run next. Knows block counts through `octavo.kv` alone: no arrays, no text, no clock.

There is no prefill and no decode here, only sequences with tokens to catch up. A policy ranks them
(`octavo.sched.policies`). A step goes through them in order of rank: those that run are served, those that wait are let
in at their place, and where slots or blocks are wanting those with the worst rank go back to wait, which then have no
row yet. `octavo.sched.bounds` says what that guarantees.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Mapping, Sequence

from octavo.errors import KVError
from octavo.kv import KVCacheManager
from octavo.sched.admissions import Admissions
from octavo.sched.bounds import running_limit
from octavo.sched.check import check_queues, check_slots
from octavo.sched.cost import CUT, Speeds
from octavo.sched.door import admissible_max_tokens, blocks_needed, check_ids, check_width
from octavo.sched.limits import Limits
from octavo.sched.observer import Observer
from octavo.sched.outlook import Outlook, look_ahead
from octavo.sched.plan import Plan
from octavo.sched.policies import Policy, RankedQueue, by_arrival
from octavo.sched.portions import Portions
from octavo.sched.queue import Queue
from octavo.sched.request import Finished, FinishReason, Request, rank_of
from octavo.sched.room import Room
from octavo.sched.sharing import fork, horizon_for, is_beam_alone, must_wait, source_for, take_over
from octavo.sched.stats import SchedulerStats
from octavo.sched.step import Step
from octavo.sched.victims import Victims


class Scheduler:
    """Plans steps (`schedule`) and lands them (`apply`), strictly in turn; `add`, `abort` and `finish` at any time.

    policy: who goes first, a fresh one; by default first come, first served. observer: is told why.
    """

    def __init__(
        self, kv: KVCacheManager, limits: Limits, *, policy: Policy | None = None, observer: Observer | None = None
    ) -> None:
        self.kv = kv
        self.limits = limits
        self.speeds = Speeds()  # as measured; whoever measures them sets them
        self.running_limit = running_limit(limits.max_batched_tokens, limits.max_seqs)
        self._observer = observer or Observer()
        self._victims = Victims(self._observer)
        self._live: dict[int, Request] = {}
        self._running: list[Request] = []  # in order of rank
        # It holds those that wait, and is false when nobody does.
        self._policy = RankedQueue(by_arrival, overtakes=False) if policy is None else policy
        self._queue = Queue(self._policy, limits.batch_window_s, self.running_limit, limits.max_batched_tokens)
        self._slots = list(range(self.running_limit))  # a heap of the free ones
        self._ended: list[int] = []  # since the last step
        self._flight: Plan | None = None  # scheduled and not yet applied
        self._admissions = Admissions()
        self._room = Room(kv)
        self._short_of_blocks = 0  # preemptions of the step that is planned for want of blocks
        self._now = 0.0  # of the step that is planned
        self._arrivals = self._steps = 0
        self._computed_tokens = 0

    # -- requests come and go ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request and its children.

        Raises InvalidRequest (`context_length_exceeded`, `pool_too_small`, `duplicate_id`), and nothing is queued.
        """
        check_ids(request, self._live)
        check_width(request, self.running_limit)
        request.max_tokens = admissible_max_tokens(
            request, self.kv, self.limits.max_model_len, self._policy.most_blocks(request)
        )
        if not self._live:
            self._queue.gather(request.arrival)
        for each in (request, *(request.child(seq) for seq in request.children)):
            each.age = self._arrivals
            self._arrivals += 1
            self._live[each.id] = each
            self._queue.push(each)

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

    def schedule(self, now: float = 0.0) -> Step:
        """Choose the next step's rows and reserve their blocks; every step must be applied before the next. now:
        seconds, by the clock of the arrivals."""
        if self._flight is not None:
            raise RuntimeError("the last step was not applied; call apply() before schedule()")
        plan = Plan(self.limits)
        self._now = now
        if self.wait_s(now) > 0:
            return self._launch(plan)
        self._short_of_blocks = 0
        self._fork_waiting(plan)
        self._fill(plan)
        self._room.watermark.step(self._short_of_blocks, self.kv.num_blocks)
        head = self._policy.head(now)
        if head is not None:
            self._observer.waits(head, self._room.why(head, self._running, self.running_limit, plan.budget))
        if not plan.rows and self.has_work:
            free = f"{self.kv.num_free} of {self.kv.num_blocks} blocks free"
            raise KVError(f"no sequence can advance: {self.running} running, {self.waiting} waiting, {free}")
        return self._launch(plan)

    def wait_s(self, now: float) -> float:
        """Seconds for which `schedule` would have nothing to run: the first of an idle engine waits for company, or all
        that wait are held by a quota. 0.0 when it has, or nobody is there."""
        return 0.0 if self._running or not self._live else self._queue.wait_s(now)

    def recall(self, sequences: Sequence[int]) -> Step:
        """Before the rows of the step in flight run: these sequences turned out to lack what they were opened with (a
        tier lost a block), so they are closed and wait again. Those with a worse rank that run go with them, since
        nobody is served before the better. The step to run and apply in place of the former one.
        """
        plan = self._flight
        if plan is None:
            raise RuntimeError("no step is in flight; recall() comes between schedule() and apply()")
        first = min((place for place, each in enumerate(self._running) if each.id in sequences), default=None)
        victims = [] if first is None else self._running[first:]
        for victim in reversed(victims):
            new = self._admissions.in_flight(victim)
            self._victims.recalled(victim, ran=not new)
            if new:
                computes = self._admissions.undo(victim)
                if victim.parent is None:
                    self._policy.undone(victim, computes)
            self._running.pop()
            self._stop(victim)
            self._queue.push(victim)
        return plan.recall(victims)

    def apply(self, step: Step, sampled: Mapping[int, int]) -> list[Finished]:
        """Land a step: its tokens' KV is there, and `sampled[seq]` is the next token of each row with `sample` (but
        of a beam, which lacks nothing from then on until `branch`).

        Returns the sequences that it ended, already closed. Rows of sequences that ended meanwhile are passed over.
        """
        plan = self._flight
        if plan is None or plan.step is not step:
            raise RuntimeError(f"step {step.id} is not the one in flight")
        rows = [row for row in step.rows if self._live.get(row.seq) is plan.requests[row.seq]]
        for row in rows:
            if row.sample and row.seq not in sampled and not plan.requests[row.seq].beams:
                raise ValueError(f"step {step.id} has no sampled token for sequence {row.seq}")
        self._flight = None
        self._admissions.land()
        finished, made = [], self._policy.made
        for row in rows:
            request = plan.requests[row.seq]
            self.kv.commit(row.seq, row.count)
            self._computed_tokens += row.count
            caught_up = row.start + row.count == len(request.tokens)
            if row.sample and not request.beams:
                request.tokens.append(sampled[row.seq])
                made(request)
            reason = request.ending() if caught_up else None
            if reason is not None:
                stop = request.tokens[-1] if reason == "stop" else None
                finished.append(Finished(row.seq, reason, stop, request.cached_tokens or 0, request.preemptions))
                self._end(request)
        return finished

    def branch(self, beams: Mapping[int, tuple[int, int]]) -> None:
        """Between steps: beams of one search go on, each with the tokens of one that has landed its row and itself
        goes on, and with one token more. beams: sequence -> (whose tokens, the next token).
        A beam that runs shares all blocks of the one that it takes over; where that one was closed meanwhile, it waits
        again, and whoever ranks after it. One that waits will share when it is let in.
        """
        tokens = {seq: [*self._live[source].tokens, token] for seq, (source, token) in beams.items()}
        for request in sorted((self._live[seq] for seq in beams), key=rank_of, reverse=True):
            source = self._live[beams[request.id][0]]
            if source is not request and request.slot is not None:
                self._ended.append(request.id)  # what is kept about its slot is stale
                if source.slot is None:
                    self._wait_again_from(request)
                else:
                    take_over(self.kv, source, request)
            if request.slot is None:
                self._queue.rewrite(request, tokens[request.id])
            else:
                request.tokens[:] = tokens[request.id]
            self._policy.made(request)

    # -- what can be asked ---------------------------------------------------------------------------------------

    def outlook(self, request: Request) -> Outlook:
        """What stands before `request` if it came now and nobody after it."""
        return look_ahead(self._policy.ahead(request), request.prompt_len, len(self._slots), self.kv)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._policy)

    @property
    def queued(self) -> Portions:
        """Tokens of all that wait, prompts and what was made before a preemption."""
        return self._queue.tokens

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def largest_need(self) -> int:
        """Blocks, at most, that one live sequence or search needs at its longest; a smaller pool cannot serve it."""
        return max((blocks_needed(each, self.kv, each.total) for each in self._live.values()), default=0)

    def request(self, seq: int) -> Request:
        """The live sequence `seq` (a child too), to read. KeyError once it has ended."""
        return self._live[seq]

    def tokens(self, seq: int) -> Sequence[int]:
        """The tokens of a live sequence so far, to read. KeyError once it has ended."""
        return self._live[seq].tokens

    def stats(self) -> SchedulerStats:
        return SchedulerStats(
            self.running,
            self.waiting,
            self._steps,
            self._victims.counts.total(),
            self._admissions.prompt_tokens,
            self._admissions.cached_tokens,
            self._computed_tokens,
            self._room.watermark.blocks,
            self._room.held_back,
            dict(self._victims.counts),
        )

    def check(self) -> None:
        """Raise KVError if an invariant of this class does not hold; costs time in proportion to what is queued."""
        waiting = list(self._policy)
        check_queues(self._running, waiting, self._live, overtakes=self._policy.overtakes)
        if sum(len(each.tokens) for each in waiting) != self._queue.tokens.total:
            raise KVError("scheduler: the queue's tokens are miscounted")
        check_slots(self._running, waiting, self._slots, self.running_limit)
        if not self._policy.overtakes and any(self._unreserved(each) > 1 for each in self._running[:-1]):
            raise KVError("scheduler: two prompts are in the making at once")

    # -- the parts of a step -------------------------------------------------------------------------------------

    def _fork_waiting(self, plan: Plan) -> None:
        """Let the head of the queue in while it can share what one that runs has; who ranks behind a beam gives way."""
        while True:
            head, last = self._policy.head(self._now), self._running[-1:]
            source = None if head is None else source_for(self.kv, head, self._running)
            if head is None or source is None or any(self._unreserved(each) > 1 for each in last):
                return
            if self._slots:
                fork(self.kv, source, head)
                if self._room.admits(head, self._running, horizon_for(head, self._running, self.kv.block_size), 0):
                    self._start(head, cached=0)
                    continue
                self.kv.close(head.id)
            if not head.beams or last[0].rank < head.rank:
                return
            self._preempt_last(plan, head)

    def _fill(self, plan: Plan) -> None:
        """Serve all in order of rank: rows for those that run, and those that wait come in at their place.

        So a victim, worse in rank than all who got a row, has none; and nobody comes in past one that could not.
        """
        place, open_to_more, contested = 0, True, self._contested()
        while True:
            last, head = place >= len(self._running), None
            if open_to_more and (last or contested) and self._may_admit(place, plan):
                head = self._policy.head(self._now)
            if head is not None and (last or head.rank < self._running[place].rank):
                if not self._admit(head, place, plan):
                    open_to_more = False
                    continue
                contested = self._contested()
            elif last:
                return
            self._serve(place, plan)
            place += 1

    def _contested(self) -> bool:
        """Whether one that waits ranks before one that runs."""
        if not (self._policy.overtakes and self._running):
            return False
        head = self._policy.head(self._now)
        return head is not None and head.rank < self._running[-1].rank

    def _may_admit(self, place: int, plan: Plan) -> bool:
        """Whether budget is left beyond one token for each from `place` on that could run beside one more."""
        return plan.budget > min(len(self._running), self.running_limit - 1) - place and not plan.short

    def _serve(self, place: int, plan: Plan) -> None:
        """Give the sequence at `place` as many of the tokens it lacks as budget and blocks allow; none if both are
        spent. Those behind it keep one token each."""
        request, behind = self._running[place], len(self._running) - 1 - place
        if request.cut_back and not self._may_grow_again(request):
            plan.short = True
            return
        lacking, budget = self._lacking(request), plan.budget
        if not lacking:  # a beam that waits for the others of its search
            return
        start = len(request.tokens) - lacking
        if lacking == 1 and budget and self.kv.extend(request.id, 1):  # what most do in most steps
            plan.take(request, start, 1)
            return
        count = self._reserve(request, min(lacking, plan.limit(request, start, behind)), plan)
        if count:
            plan.take(request, start, count)
        plan.short |= count < min(lacking, budget)

    def _may_grow_again(self, request: Request) -> bool:
        """Whether one that was cut back goes on: under the condition of being let in again, or when it is the best."""
        ahead = horizon_for(request, self._running, self.kv.block_size)
        request.cut_back = self._running[0] is not request and not self._room.fits(self._running, ahead)
        if not request.cut_back:
            self._observer.admitted(request)
        return not request.cut_back

    def _reserve(self, request: Request, wanted: int, plan: Plan) -> int:
        """Make room for `wanted` tokens, or fewer; only when not even one has room do those behind give way."""
        while wanted:
            count = wanted
            while count:
                if self.kv.extend(request.id, count):
                    return count
                count //= 2
            if self._running[-1] is request:
                return 0
            self._short_of_blocks += 1
            if not self._cut_back(wanted, plan, request):
                self._preempt_last(plan, request)
        return 0

    def _cut_back(self, wanted: int, plan: Plan, by: Request) -> bool:
        """Take only the tail of the last in rank, whose blocks nobody would find again once it is closed: as much as
        `by` needs for `wanted` tokens. It stays, and goes on when all that run can grow."""
        victim = self._running[-1]
        if not self._room.cut_back(victim, wanted, self.speeds):
            return False
        if not victim.cut_back:
            self._victims.gave_way(victim, by, CUT)
            victim.cut_back = True
        plan.preempted.append(victim.id)
        plan.short = True
        return True

    def _preempt_last(self, plan: Plan, by: Request) -> None:
        """Close the last in rank that runs; it waits at its place and is opened again with all its tokens."""
        victim = self._running.pop()
        self._victims.gave_way(victim, by, self._room.way_back(victim, self.speeds))
        self._stop(victim)
        self._queue.push(victim)
        plan.preempted.append(victim.id)
        plan.short = True

    def _admit(self, request: Request, place: int, plan: Plan) -> bool:
        """Let `request` in at `place` with whatever is cached of it now, if all that run can then grow. Those behind
        give way for it where that is enough; else nothing changes."""
        if place == len(self._running) == self.running_limit:
            return False
        alone = is_beam_alone(request, self._running)
        margin = self._room.watermark.blocks if place == len(self._running) and not alone else 0
        if place and ((request.fetching and not alone) or self._room.asked_before(request, margin)):
            return False  # while blocks are fetched for one, all that run would wait for a lower tier
        if must_wait(self.kv, request, self._running):
            return False
        cached = self._room.open(request)
        ahead = horizon_for(request, self._running, self.kv.block_size)
        better, behind = self._running[:place], self._running[place:]
        if not place or self._room.could_fit((*better, request), ahead, behind):
            while len(self._running) > place and not (
                self._slots and self._room.fits((*self._running, request), ahead)
            ):
                self._preempt_last(plan, request)
        if place and not self._room.admits(request, self._running, ahead, margin):
            self.kv.close(request.id)
            return False
        self._start(request, cached=0 if request.parent is not None else cached)
        return True

    def _lacking(self, request: Request) -> int:
        """Tokens of `request` whose KV is not there yet."""
        return len(request.tokens) - self.kv.committed(request.id)

    def _unreserved(self, request: Request) -> int:
        """The same less the tokens of the step in flight."""
        return len(request.tokens) - self.kv.reserved(request.id)

    def _start(self, request: Request, cached: int) -> None:
        self._queue.remove(request)
        insort(self._running, request, key=rank_of)
        request.slot = heapq.heappop(self._slots)
        self._policy.started(request, self._admissions.note(request, cached))
        self._observer.admitted(request)

    def _wait_again_from(self, first: Request) -> None:
        """Close `first` and all that rank after it; they wait again. Nobody needs their room: it is no preemption."""
        while first.slot is not None:
            request = self._running.pop()
            self._observer.recalled(request)
            self._stop(request)
            self._queue.push(request)
            self._ended.append(request.id)

    def _stop(self, request: Request) -> None:
        """Give back the blocks and the slot of one that no longer runs."""
        assert request.slot is not None
        self.kv.close(request.id)
        heapq.heappush(self._slots, request.slot)
        request.slot = None
        request.cut_back = False
        self._policy.stopped(request)

    def _end(self, request: Request) -> None:
        del self._live[request.id]
        if request.slot is None:
            self._queue.remove(request)
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
