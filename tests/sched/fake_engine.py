"""A whole engine around the scheduler, without a model: every KV slot holds a hash of its sequence's prefix.

The next token is a hash of all that attention would read, so a lost, stale, shared or overwritten block, a token that
was not recomputed and a row that was applied twice all change the text, which is compared with `solo`, computed
without any KV. `Engine.step` asserts in every step what must hold in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo.errors import KVError
from octavo.kv import Copy, KVCacheManager
from octavo.options import Tenant
from octavo.sched import Finished, Limits, Request, Row, Scheduler, Step, preemption_bound, running_limit
from octavo.sched.policies import Fair, make_policy
from octavo.sched.policies.fair import OUTPUT_COST

VOCABULARY = 61
Windows = tuple[int | None, ...]


@dataclass(frozen=True)
class Shape:
    """The settings of one engine."""

    num_blocks: int = 64
    block_size: int = 4
    windows: Windows = (None,)
    prefix_cache: bool = True
    budget: int = 16
    max_seqs: int = 8
    max_model_len: int = 64
    scored: int | None = None  # max_scored_tokens
    policy: str = "fcfs"
    window_s: float = 0.0  # batch_window_s; a step is a second


@dataclass(frozen=True)
class Job:
    """A request as the caller states it."""

    prompt: tuple[int, ...]
    max_tokens: int | None = 8
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    n: int = 1
    use_cache: bool = True
    namespace: bytes = b""
    priority: int = 0
    tenant: Tenant = field(default_factory=Tenant)
    beams: bool = False


@dataclass
class Outcome:
    tokens: list[int]
    reason: str
    stop_token: int | None = None
    cached_tokens: int = 0
    preemptions: int = 0


def extend_hash(previous: int, token: int) -> int:
    return hash((previous, token))


def next_token(seen: Sequence[tuple[int, ...]], index: int) -> int:
    """The model: `seen` holds, for each group, the slot values that the last token attends to."""
    return hash((tuple(seen), index)) % VOCABULARY


def visible_from(position: int, window: int | None) -> int:
    return 0 if window is None else max(0, position - window + 1)


def solo(job: Job, index: int, windows: Windows, most: int) -> Outcome:
    """What answer `index` of `job` must be, from the definition, in at most `most` new tokens."""
    tokens, chain = list(job.prompt), []
    for token in tokens:
        chain.append(extend_hash(chain[-1] if chain else hash(job.namespace), token))
    for made in range(1, most + 1):
        seen = [tuple(chain[visible_from(len(chain) - 1, window) :]) for window in windows]
        token = next_token(seen, index)
        tokens.append(token)
        chain.append(extend_hash(chain[-1], token))
        if made > job.min_tokens and token in job.stop_ids:
            return Outcome(tokens, "stop", token)
    return Outcome(tokens, "length")


def next_beams(values: Sequence[int], width: int) -> list[tuple[int, int]]:
    """The search: from what each beam's row came to, whom each beam goes on with and its next token."""
    mixed = hash(tuple(values))
    return [(hash((mixed, place)) % len(values), hash((mixed, place, 1)) % VOCABULARY) for place in range(width)]


def solo_beams(job: Job, windows: Windows, most: int) -> list[list[int]]:
    """What the beams of `job` must be after `most` new tokens, from the definition."""
    chain: list[int] = []
    for token in job.prompt:
        chain.append(extend_hash(chain[-1] if chain else hash(job.namespace), token))
    beams = [(list(job.prompt), chain)]
    for _ in range(most):
        values = [
            hash(tuple(tuple(chain[visible_from(len(chain) - 1, window) :]) for window in windows))
            for _, chain in beams
        ]
        beams = [
            ([*beams[source][0], token], [*beams[source][1], extend_hash(beams[source][1][-1], token)])
            for source, token in next_beams(values, job.n)
        ]
    return [tokens for tokens, _ in beams]


@dataclass
class Group:
    """A beam search in flight. lines: the sequence of each beam; landed: what their rows came to."""

    job: Job
    seqs: tuple[int, ...]
    lines: list[int]
    landed: dict[int, int] = field(default_factory=dict)

    def advance(self) -> dict[int, tuple[int, int]]:
        """For Scheduler.branch. Who is gone on with goes on himself; the others take over in order."""
        beams = next_beams([self.landed.pop(seq) for seq in self.lines], self.job.n)
        spare = [seq for seq in self.seqs if seq not in {self.lines[source] for source, _ in beams}]
        lines: list[int] = []
        for source, _ in beams:
            own = self.lines[source]
            lines.append(own if own not in lines else spare.pop(0))
        branches = {seq: (self.lines[source], token) for seq, (source, token) in zip(lines, beams, strict=True)}
        self.lines = lines
        return branches


@dataclass
class Engine:
    """Runs jobs on a scheduler and a manager. `scheduler_type` lets a test break the scheduler."""

    shape: Shape
    scheduler_type: Callable[..., Scheduler] = Scheduler
    check_every: int = 1  # steps between looks at all blocks, which take long in a large pool
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    jobs: dict[int, tuple[Job, int]] = field(default_factory=dict)  # sequence -> its job and index
    in_flight: Callable[[Step], None] | None = None  # called between schedule and apply

    def __post_init__(self) -> None:
        shape = self.shape
        self.kv = KVCacheManager(
            shape.num_blocks, shape.block_size, windows=shape.windows, prefix_cache=shape.prefix_cache
        )
        self.policy = make_policy(shape.policy, self.kv.blocks_needed)
        self.scheduler = self.scheduler_type(
            self.kv,
            Limits(shape.budget, shape.max_seqs, shape.max_model_len, shape.scored, shape.window_s),
            policy=self.policy,
        )
        self.device: dict[int, list[int]] = {}
        self.requests: dict[int, Request] = {}
        self.deadline: dict[int, int] = {}  # sequence -> step by which it must have ended
        self.overtaken: dict[int, int] = {}  # sequence -> how many came later and rank before it
        self.slots: dict[int, int] = {}  # of sequences that run, as last seen
        self.reported: set[int] = set()
        self.emitted: dict[int, list[int]] = {}  # what a stream would have shown
        self.groups: dict[int, Group] = {}  # sequence -> its beam search
        self.next_id = 0

    # -- the callers' side

    def add(self, job: Job) -> tuple[int, ...]:
        ids = tuple(range(self.next_id, self.next_id + job.n))
        request = Request(
            ids[0],
            list(job.prompt),
            max_tokens=job.max_tokens,
            min_tokens=job.min_tokens,
            stop_ids=job.stop_ids,
            n=job.n,
            children=ids[1:],
            namespace=job.namespace,
            use_cache=job.use_cache,
            scored=not job.use_cache,
            arrival=float(len(self.steps)),
            priority=job.priority,
            tenant=job.tenant,
            beams=job.beams,
        )
        self.scheduler.add(request)
        self.next_id += job.n
        if job.beams:
            self.groups |= dict.fromkeys(ids, Group(job, ids, [ids[0]]))
        for index, seq in enumerate(ids):
            self.jobs[seq] = job, index
            self.requests[seq] = self.scheduler.request(seq)
            self.expect(self.requests[seq])
        return ids

    def expect(self, new: Request) -> None:
        """The bounds of sched.bounds: all that ranks before it, and itself, one token a step; whom it overtakes
        waits for it, and for what it makes one of those that go before compute again."""
        live = sorted(
            (each for seq, each in self.requests.items() if seq not in self.outcomes), key=lambda each: each.rank
        )
        place = live.index(new)
        self.overtaken[new.id] = 0
        self.deadline[new.id] = (
            len(self.steps) + int(self.shape.window_s) + sum(self.work(each) for each in live[: place + 1])
        )
        for behind in range(place + 1, len(live)):
            self.overtaken[live[behind].id] += 1
            again = max(self.work(each) for each in live[: behind + 1])
            self.deadline[live[behind].id] += self.work(new) + again

    def work(self, request: Request) -> int:
        """Steps that it may hold up others: one for each token; beams may have to catch up at each."""
        return request.total * request.total if request.beams else request.total

    def abort(self, seq: int) -> bool:
        for beam in self.groups[seq].seqs if seq in self.groups else ():
            if beam != seq and beam not in self.outcomes:
                self.scheduler.abort(beam)
                self.outcomes[beam] = Outcome(self.requests[beam].tokens, "abort")
        live = seq in self.requests and seq not in self.outcomes
        assert self.scheduler.abort(seq) is live
        if live:
            self.outcomes[seq] = Outcome(self.requests[seq].tokens, "abort")
            assert not self.is_open(seq), "whatever it was doing, it has no blocks any more"
        return live

    def is_open(self, seq: int) -> bool:
        try:
            self.kv.committed(seq)
        except KVError:
            return False
        return True

    def run(self, most_steps: int = 100_000) -> None:
        for _ in range(most_steps):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"still working after {most_steps} steps")

    # -- one step

    def step(self) -> list[Finished]:
        scheduler = self.scheduler
        step = scheduler.schedule(float(len(self.steps)))
        self.steps.append(step)
        self.check_step(step)
        sampled = self.execute(step)
        if self.in_flight is not None:
            self.in_flight(step)
        live = [seq for seq in sampled if seq not in self.outcomes and seq not in self.groups]
        finished = scheduler.apply(step, sampled)
        for seq in live:
            self.emitted.setdefault(seq, []).append(sampled[seq])
        for each in finished:
            tokens = self.requests[each.seq].tokens
            self.outcomes[each.seq] = Outcome(
                tokens, each.reason, each.stop_token, each.cached_tokens, each.preemptions
            )
        self.land_beams(step, sampled)
        self.kv.end_step()
        if len(self.steps) % self.check_every == 0:
            self.kv.check()
            scheduler.check()
        if isinstance(self.policy, Fair):
            self.check_shares(self.policy)
        late = [seq for seq in self.requests if seq not in self.outcomes and len(self.steps) >= self.deadline[seq]]
        assert not late or self.shape.policy == "fair", f"starved: {late}"
        return finished

    def land_beams(self, step: Step, sampled: dict[int, int]) -> None:
        for row in step.rows:
            group = self.groups.get(row.seq)
            if group is None or row.seq in self.outcomes or not row.sample:
                continue
            group.landed[row.seq] = sampled[row.seq]
            if set(group.lines) <= set(group.landed):
                branches = group.advance()
                self.scheduler.branch(branches)
                request = self.requests[group.seqs[0]]
                if len(request.tokens) == request.total:
                    self.end_beams(group)

    def end_beams(self, group: Group) -> None:
        for seq in group.seqs:
            assert self.scheduler.finish(seq, "length")
            self.outcomes[seq] = Outcome(self.requests[seq].tokens, "length")

    def check_step(self, step: Step) -> None:
        shape, limit = self.shape, running_limit(self.shape.budget, self.shape.max_seqs)
        assert sum(row.count for row in step.rows) <= shape.budget
        scored = [row.count for row in step.rows if self.requests[row.seq].scores(row.start)]
        assert sum(scored) <= (shape.budget if shape.scored is None else shape.scored)
        assert all(row.count >= 1 for row in step.rows)
        assert len(step.rows) <= self.scheduler.running <= limit <= shape.max_seqs
        seqs = [row.seq for row in step.rows]
        assert len(set(seqs)) == len(seqs)
        assert not set(seqs) & set(step.preempted)
        assert [row.count > 1 for row in step.rows] == sorted(row.count > 1 for row in step.rows)
        ended = {seq for seq in step.finished if seq not in self.groups or seq in self.outcomes}
        assert not self.reported & ended, "ended twice"
        self.reported.update(ended)
        for seq in (*step.preempted, *step.finished):
            self.slots.pop(seq, None)
        for row in step.rows:
            assert self.slots.setdefault(row.seq, row.slot) == row.slot, "a slot moved"
            request = self.requests[row.seq]
            assert row.start == self.kv.committed(row.seq)
            assert row.start + row.count <= self.kv.reserved(row.seq)
            assert row.sample == (row.start + row.count == len(request.tokens) and request.max_tokens != 0)
            bound = preemption_bound(shape.max_model_len, shape.block_size) + self.overtaken[row.seq]
            assert request.preemptions <= bound or shape.policy == "fair"
        served, most = {row.seq for row in step.rows}, 2 * len(shape.windows)  # each group: a copy, and a new block
        if self.kv.num_free >= most and shape.scored is None:
            idle = set(self.slots) - set(self.outcomes) - served
            assert idle <= set(self.groups), "one that runs got no token, though there is room"
        assert len(set(self.slots.values())) == len(self.slots)
        assert set(self.slots.values()) <= set(range(limit))

    def check_shares(self, policy: Fair) -> None:
        """The bounds of sched.policies.fair."""
        tenants = {job.tenant.name: job.tenant for job, _ in self.jobs.values()}
        live = [each for seq, each in self.requests.items() if seq not in self.outcomes]
        for name, tenant in tenants.items():
            held = [
                self.kv.blocks_needed(each.total) for each in live if each.slot is not None and each.tenant == tenant
            ]
            assert not (tenant.hard and tenant.kv_blocks) or sum(held) <= tenant.kv_blocks, f"{name} is over its quota"
        if any(tenant.kv_blocks or tenant.tokens_a_minute for tenant in tenants.values()):
            return
        waiting = {each.tenant.name for each in live if each.cached_tokens is None and each.parent is None}
        most = max((each.prompt_len + OUTPUT_COST * each.total for each in self.requests.values()), default=0)
        at_once = self.scheduler.running_limit + max((job.n for job, _ in self.jobs.values()), default=0)
        served = {name: account.served for name in waiting if (account := policy.account(name)) is not None}
        for ahead in served:
            gap = served[ahead] - min(served.values())
            assert gap <= at_once * most / tenants[ahead].weight, f"{ahead} got {gap} more than its share"

    def execute(self, step: Step) -> dict[int, int]:
        for op in step.ops:
            assert isinstance(op, Copy), "no lower tier here"
            self.device[op.dst] = list(self.slots_of(op.src))
        sampled = {}
        for row in step.rows:
            self.write(row)
            if row.sample and row.seq in self.groups:
                sampled[row.seq] = hash(tuple(self.read(row)))
            elif row.sample:
                sampled[row.seq] = next_token(self.read(row), self.jobs[row.seq][1])
        return sampled

    def slots_of(self, block: int) -> list[int]:
        assert 0 <= block < self.shape.num_blocks, "a table names a block that is not there"
        return self.device.setdefault(block, [0] * self.shape.block_size)

    def write(self, row: Row) -> None:
        size, tokens = self.shape.block_size, self.requests[row.seq].tokens
        for group in range(len(self.shape.windows)):
            table = self.kv.block_ids(row.seq, group)
            for position in range(row.start, row.start + row.count):
                before = position - 1
                previous = (
                    self.slots_of(table[before // size])[before % size]
                    if position
                    else hash(self.jobs[row.seq][0].namespace)
                )
                self.slots_of(table[position // size])[position % size] = extend_hash(previous, tokens[position])

    def read(self, row: Row) -> list[tuple[int, ...]]:
        size, last = self.shape.block_size, row.start + row.count - 1
        seen = []
        for group, window in enumerate(self.shape.windows):
            table = self.kv.block_ids(row.seq, group)
            positions = range(visible_from(last, window), last + 1)
            seen.append(tuple(self.slots_of(table[at // size])[at % size] for at in positions))
        return seen

    # -- at the end

    def check_idle(self) -> None:
        """Everything came back: blocks, slots, queues; every answer is its solo run, aborted ones a beginning of it."""
        assert not self.scheduler.has_work
        assert (self.scheduler.running, self.scheduler.waiting) == (0, 0)
        assert self.kv.num_free == self.kv.num_blocks
        assert set(self.outcomes) == set(self.requests)
        stats = self.scheduler.stats()
        assert sum(stats.victims.values()) == stats.preemptions
        assert stats.preemptions == sum(request.preemptions for request in self.requests.values())
        for seq, outcome in self.outcomes.items():
            job, index = self.jobs[seq]
            if job.beams:
                self.check_beam(seq, outcome)
                continue
            assert self.emitted.get(seq, []) == outcome.tokens[len(job.prompt) :], "shown twice, or never"
            expected = solo(job, index, self.shape.windows, self.requests[seq].max_tokens)
            if outcome.reason == "abort":
                assert expected.tokens[: len(outcome.tokens)] == outcome.tokens
            else:
                got = outcome.tokens, outcome.reason, outcome.stop_token
                assert got == (expected.tokens, expected.reason, expected.stop_token)

    def check_beam(self, seq: int, outcome: Outcome) -> None:
        group, request = self.groups[seq], self.requests[seq]
        if outcome.reason == "length":
            assert request.max_tokens is not None
            expected = solo_beams(group.job, self.shape.windows, request.max_tokens)
            assert outcome.tokens == expected[group.lines.index(seq)]
