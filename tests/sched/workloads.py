"""Random workloads for the scheduler, drawn the same way by Hypothesis and by a seeded generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fake_engine import Engine, Job, Shape, Windows

from octavo.kv import KVCacheManager
from octavo.options import Tenant
from octavo.sched import Request, Scheduler, Step
from octavo.sched.door import blocks_needed

Draw = Callable[[int, int], int]  # a number between two, both included
WINDOWS: tuple[Windows, ...] = ((None,), (None,), (None, None), (None, 6), (3,), (8, 8), (None, 3, 7))


@dataclass(frozen=True)
class Abort:
    """Before step `tick`, or while it is in flight, the caller of sequence `seq` goes away."""

    tick: int
    seq: int
    in_flight: bool


@dataclass(frozen=True)
class Workload:
    shape: Shape
    arrivals: tuple[tuple[int, Job], ...]  # the tick before which each arrives
    aborts: tuple[Abort, ...]


def draw_workload(
    draw: Draw, most_jobs: int = 10, most_len: int = 40, policy: str = "fcfs", *, searches: bool = False
) -> Workload:
    """Pools from the smallest that holds the largest job alone, which forces preemption, to ones that hold many.

    The same draws give the same work under every policy, but for what it alone looks at. searches: most jobs are beam
    searches.
    """
    size, windows, max_len = max(1, draw(-3, 5)), WINDOWS[draw(0, len(WINDOWS) - 1)], draw(4, most_len)
    tick, arrivals, tenants = 0, [], draw_tenants(draw) if policy == "fair" else ()
    for _ in range(draw(1, most_jobs)):
        tick += max(0, draw(-4, 4))
        arrivals.append((tick, draw_treatment(draw, draw_job(draw, max_len, searches), policy, tenants)))
    probe = KVCacheManager(1, size, windows=windows)
    jobs = [job for _, job in arrivals]
    widest = max((job.n for job in jobs if job.beams), default=1)
    shape = Shape(
        num_blocks=max(smallest_pool(job, probe) for job in jobs) + max(0, draw(-10, 10)),
        block_size=size,
        windows=windows,
        prefix_cache=draw(0, 3) > 0,
        budget=max(draw(1, 24), 2 * widest if widest > 1 else 1),
        max_seqs=max(draw(1, 9), widest),
        max_model_len=max_len,
        scored=None if draw(0, 1) else draw(1, 6),
        policy=policy,
        window_s=float(max(0, draw(-9, 3))) if policy == "fair" else 0.0,
    )
    sequences = sum(job.n for _, job in arrivals)
    aborts = [Abort(draw(0, tick + 30), draw(0, sequences - 1), draw(0, 1) == 1) for _ in range(max(0, draw(-4, 4)))]
    return Workload(shape, tuple(arrivals), tuple(aborts))


def smallest_pool(job: Job, kv: KVCacheManager) -> int:
    """Blocks with which the door takes `job` in."""
    request = Request(0, list(job.prompt), n=job.n, children=tuple(range(1, job.n)), beams=job.beams)
    return blocks_needed(request, kv, len(job.prompt) + (1 if job.max_tokens is None else job.max_tokens))


def draw_job(draw: Draw, max_len: int, searches: bool) -> Job:
    """Prompts of one family share their beginnings, so that the prefix cache has something to find."""
    length, family = draw(1, max_len - 1), draw(0, 2)
    common = draw(0, length)
    prompt = [family + at % 3 for at in range(common)] + [draw(0, 60) for _ in range(length - common)]
    max_tokens = None if draw(0, 5) == 0 else draw(0, max_len - length)
    n = draw(1, 4) if searches else max(1, draw(-4, 4))
    return Job(
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        min_tokens=draw(0, max_tokens or 0),
        stop_ids=frozenset(range(max(0, draw(-6, 6)))),
        n=n,
        beams=n > 1 and max_tokens != 0 and (searches or draw(0, 1) == 0),
        use_cache=draw(0, 5) > 0,
        namespace=b"other" if draw(0, 7) == 0 else b"",
    )


def draw_tenants(draw: Draw) -> tuple[Tenant, ...]:
    """Half of them with quotas: one that waits beyond it, two that borrow."""
    if draw(0, 1):
        return Tenant("a"), Tenant("b"), Tenant("c", weight=2.0)
    return (
        Tenant("a", tokens_a_minute=draw(200, 1200), hard=True),
        Tenant("b", kv_blocks=draw(1, 12)),
        Tenant("c", tokens_a_minute=draw(20, 1200)),
    )


def draw_treatment(draw: Draw, job: Job, policy: str, tenants: Sequence[Tenant]) -> Job:
    """What a policy looks at; nothing is drawn where it does not."""
    if policy == "priority":
        return replace(job, priority=draw(-2, 2))
    if policy == "fair":
        return replace(job, tenant=tenants[draw(0, 2)])
    return job


def play(workload: Workload, scheduler_type: Callable[..., Scheduler] = Scheduler) -> Engine:
    """Run a workload to its end, with every check on the way."""
    engine = Engine(workload.shape, scheduler_type)
    arrivals, tick = list(workload.arrivals), 0
    while arrivals or engine.scheduler.has_work:
        while arrivals and arrivals[0][0] <= tick:
            engine.add(arrivals.pop(0)[1])
        due = [abort for abort in workload.aborts if abort.tick == tick]
        for abort in due:
            if not abort.in_flight:
                engine.abort(abort.seq)

        def in_flight(_: Step, due: list[Abort] = due) -> None:
            for abort in due:
                if abort.in_flight:
                    engine.abort(abort.seq)

        engine.in_flight = in_flight
        if engine.scheduler.has_work:
            engine.step()
        tick += 1
    engine.check_idle()
    return engine
