"""What bills, events and explanations cost: python bench/overhead.py [--rounds N] [--batch B].

Rounds alternate between an engine that keeps its journal and the same engine with all of it unplugged. Reports the CPU
time of the process, one thread, so that neighbours on the machine weigh little; and what a step pays in microseconds on
a model that computes nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from time import process_time

from octavo import LLM, SamplingParams
from octavo.engine.journal import Journal
from octavo.kv import Accounting, KVCacheManager
from octavo.sched import Limits, Request, Scheduler
from octavo.sched.observer import Observer


class NoJournal(Journal):
    """Hears nothing and writes nothing."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)

    arrived = refused = moved = ended = lambda self, *_: None  # type: ignore[assignment]


def switch(llm: LLM) -> Callable[[bool], None]:
    """A function that plugs the engine's journal in or out; call it between requests."""
    engine = llm.engine
    journal, observer, on_close = engine._journal, engine._scheduler._observer, engine._kv._on_close
    silent = NoJournal()

    def turn(on: bool) -> None:
        engine._journal = journal if on else silent
        engine._scheduler._observer = observer if on else Observer()
        engine._kv._on_close = on_close if on else None

    return turn


def cpu_seconds(llm: LLM, batch: int, draw: int) -> float:
    rng = random.Random(draw)
    prompts = [[rng.randrange(40_000) for _ in range(14)] for _ in range(batch)]
    begun = process_time()
    llm.generate(prompts, SamplingParams(max_tokens=48, temperature=0.0, ignore_eos=True), progress=False)
    return process_time() - begun


def on_a_model(rounds: int, batch: int) -> None:
    with LLM("smollm2-135m", kv_memory="512MiB", max_model_len=512, threads=1) as llm:
        turn = switch(llm)
        cpu_seconds(llm, batch, 0)
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for on in (number % 2 == 0, number % 2 == 1):
                turn(on)
                times[on].append(cpu_seconds(llm, batch, number + 1))
    ratios = sorted(on / off - 1 for on, off in zip(times[True], times[False], strict=True))
    with_it, without = statistics.median(times[True]), statistics.median(times[False])
    spread = f"{statistics.median(ratios):+.2%} ({ratios[0]:+.2%} to {ratios[-1]:+.2%})"
    print(f"batch {batch}: {with_it:.3f} s of CPU with, {without:.3f} without; median of {rounds} ratios {spread}")


def on_nothing(journaled: bool, steps: int) -> float:
    """Microseconds of a step of 64 sequences that end after 100 tokens each, planned and landed without a model."""
    journal = Journal(process_time) if journaled else NoJournal()
    kv = KVCacheManager(4096, 16, accounting=Accounting(on_close=journal.closed if journaled else None))
    journal.watch(kv)
    observer = journal if journaled else Observer()
    scheduler = Scheduler(kv, Limits(max_batched_tokens=2048, max_seqs=64, max_model_len=512), observer=observer)
    rng, seq = random.Random(0), 0
    spent = 0.0
    for _ in range(steps):
        while scheduler.waiting < 4:
            request = Request(seq, [rng.randrange(1 << 20) for _ in range(14)], max_tokens=rng.randint(50, 150))
            journal.arrived(_live(seq, request), request, scheduler.waiting)
            scheduler.add(request)
            seq += 1
        begun = process_time()
        step = scheduler.schedule()
        journal.moved(step.ops, 0)
        for finished in scheduler.apply(step, {row.seq: 7 for row in step.rows if row.sample}):
            if journaled:
                journal.ended(journal._stories[finished.seq].live)
        kv.end_step()
        spent += process_time() - begun
    return spent / steps * 1e6


def _live(seq: int, request: Request):  # type: ignore[no-untyped-def]
    from octavo.engine.request import LiveRequest

    return LiveRequest(seq, None, tuple(request.tokens), (), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    arguments = parser.parse_args()
    each = [(on_nothing(True, 1000), on_nothing(False, 1000)) for _ in range(5)]
    with_it, without = (statistics.median(column) for column in zip(*each, strict=True))
    print(f"a step of 64 sequences without a model: {with_it:.0f} us with, {without:.0f} us without")
    for batch in arguments.batch:
        on_a_model(arguments.rounds, batch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
