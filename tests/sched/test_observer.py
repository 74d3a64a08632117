"""What the scheduler tells of its decisions: every admission, preemption and recall, and why the head waits."""

from __future__ import annotations

from octavo.kv import KVCacheManager
from octavo.sched import Limits, Request, Scheduler
from octavo.sched.observer import Observer, Wait


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[tuple[object, ...]] = []

    def admitted(self, request: Request) -> None:
        self.notes.append(("admitted", request.id))

    def waits(self, head: Request, why: Wait) -> None:
        self.notes.append(("waits", head.id, why))

    def preempted(self, victim: Request, by: Request, how: str) -> None:
        self.notes.append(("preempted", victim.id, by.id, how))

    def recalled(self, victim: Request) -> None:
        self.notes.append(("recalled", victim.id))

    def take(self) -> list[tuple[object, ...]]:
        notes, self.notes = self.notes, []
        return notes


def make(num_blocks: int, *, max_batched_tokens: int = 64, max_seqs: int = 4) -> tuple[Scheduler, Notes]:
    notes = Notes()
    kv = KVCacheManager(num_blocks, 4)
    scheduler = Scheduler(kv, Limits(max_batched_tokens, max_seqs, 64), observer=notes)
    return scheduler, notes


def step(scheduler: Scheduler) -> None:
    planned = scheduler.schedule()
    scheduler.apply(planned, {row.seq: 7 for row in planned.rows if row.sample})
    scheduler.kv.end_step()


def test_who_waits_for_a_place_is_told_so() -> None:
    scheduler, notes = make(64, max_seqs=1)
    scheduler.add(Request(0, [1, 2], max_tokens=8))
    scheduler.add(Request(1, [3, 4], max_tokens=8))
    step(scheduler)
    assert notes.take() == [("admitted", 0), ("waits", 1, Wait("slots", 2, 1))]


def test_who_waits_for_tokens_is_told_so() -> None:
    scheduler, notes = make(64, max_batched_tokens=8)
    scheduler.add(Request(0, list(range(20)), max_tokens=8))
    scheduler.add(Request(1, [3, 4], max_tokens=8))
    step(scheduler)
    assert notes.take() == [("admitted", 0), ("waits", 1, Wait("tokens", 1, 0))]


def test_who_waits_for_blocks_is_told_how_many() -> None:
    scheduler, notes = make(6)
    scheduler.add(Request(0, list(range(15)), max_tokens=8))
    scheduler.add(Request(1, list(range(30, 38)), max_tokens=8))
    step(scheduler)
    # The first holds 4 blocks and may need 1 more; the second needs 2 for its prompt and 1 to grow: 4 of 2 free ones.
    assert notes.take() == [("admitted", 0), ("waits", 1, Wait("blocks", 4, 2))]
    step(scheduler)  # nothing was given back since: the same answer
    assert notes.take() == [("waits", 1, Wait("blocks", 4, 2))]


def test_a_child_waits_for_the_prompt_that_it_shares() -> None:
    scheduler, notes = make(64, max_batched_tokens=8, max_seqs=8)
    scheduler.add(Request(0, list(range(12)), max_tokens=4, n=2, children=(1,)))
    step(scheduler)
    assert notes.take() == [("admitted", 0), ("waits", 1, Wait("tokens", 1, 0))]
    step(scheduler)
    assert notes.take() == [("waits", 1, Wait("prompt", 1, 0))]
    step(scheduler)
    assert notes.take() == [("admitted", 1)]


def test_preemption_names_both() -> None:
    scheduler, notes = make(6)
    for seq in (0, 1):
        scheduler.add(Request(seq, [seq] * 7, max_tokens=9))
    while scheduler.has_work and not any(note[0] == "preempted" for note in notes.notes):
        step(scheduler)
    told = notes.take()
    assert ("preempted", 1, 0, "recompute") in told
    assert told[-1][:2] == ("waits", 1)
    while scheduler.has_work:
        step(scheduler)
    assert ("admitted", 1) in notes.take()


def test_recall_is_told() -> None:
    scheduler, notes = make(16)
    scheduler.add(Request(0, [1, 2], max_tokens=8))
    scheduler.schedule()
    scheduler.recall([0])
    assert notes.take() == [("admitted", 0), ("recalled", 0)]


def test_computed_tokens_count_each_token_as_often_as_it_was_computed() -> None:
    scheduler, _ = make(6)
    for seq in (0, 1):
        scheduler.add(Request(seq, [seq] * 7, max_tokens=9))
    counted = 0
    while scheduler.has_work:
        planned = scheduler.schedule()
        counted += sum(row.count for row in planned.rows)
        scheduler.apply(planned, {row.seq: 7 for row in planned.rows if row.sample})
        scheduler.kv.end_step()
    assert scheduler.stats().computed_tokens == counted > 2 * 15  # the last token of each is never computed


def test_who_is_cut_back_is_told_when_it_stops_and_when_it_goes_on() -> None:
    notes = Notes()
    kv = KVCacheManager(20, 4, prefix_cache=False)
    scheduler = Scheduler(kv, Limits(64, 4, 64), observer=notes)
    for seq in range(2):
        scheduler.add(Request(seq, [seq * 100 + at for at in range(20)], max_tokens=24))
    while scheduler.has_work:
        step(scheduler)
    told = [note[:2] for note in notes.take() if note[0] != "waits"]
    assert told == [("admitted", 0), ("admitted", 1), ("preempted", 1), ("admitted", 1)]
