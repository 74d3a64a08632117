"""Bills, events and explanations: they say what happened, and what is billed sums to what the engine spent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy import make_random

from octavo import LLM, SamplingParams
from octavo.engine.events import EventLog
from octavo.engine.outputs import RequestMetrics
from octavo.errors import InvalidRequest

ROOT = [(index * 37) % 200 for index in range(60)]


@pytest.fixture(scope="module", params=[None, 10], ids=["full", "window"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp(f"window{request.param}"), window=request.param)


def params(tokens: int, **others: Any) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True, **others)


def traffic(llm: LLM, seed: int, requests: int) -> list[RequestMetrics]:
    """Random work with forks, beams and aborts; the bills of all."""
    rng, engine, bills = random.Random(seed), llm.engine, []
    live: list[int] = []
    while requests or engine.has_work:
        if requests and rng.random() < 0.7:
            requests -= 1
            prompt = ROOT[rng.choice([0, 0, 8]) :][: rng.randint(1, 40)]
            width = rng.choice([1, 1, 1, 2, 3])
            job = params(rng.randint(1, 20), n=rng.choice([1, 1, 3]))
            if width > 1:  # all beams must fit at once
                prompt, job = prompt[:12], params(rng.randint(1, 6), n=width, beam_width=width)
            live.append(engine.add(prompt, job, seed=requests))
        if live and rng.random() < 0.05:
            engine.abort(rng.choice(live))
        bills += [delta.output.metrics for delta in engine.step() if delta.output is not None]
    return bills


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tiers", [{}, {"host_kv_memory": "64KiB"}], ids=["alone", "host"])
def test_bills_sum_to_what_the_engine_spent(model: Path, seed: int, tiers: dict[str, str]) -> None:
    """Case A18: what is found again after a preemption is no hit. Beams among them."""
    with LLM(model, num_blocks=16, block_size=4, max_seqs=6, max_batched_tokens=64, **tiers) as llm:  # type: ignore[arg-type]
        bills = traffic(llm, seed, 80)
        stats = llm.stats()
    full = model.name.startswith("windowNone")  # a window gives blocks back before they are wanting
    assert (stats.preemptions > 0) or not full
    assert sum(stats.preempted.values()) == stats.preemptions
    assert set(stats.preempted) <= ({"host"} if tiers else {"recompute"})
    assert stats.copies > 0
    assert sum(bill.computed_tokens for bill in bills) == stats.computed_tokens
    assert sum(bill.copies for bill in bills) == stats.copies
    assert sum(bill.preemptions for bill in bills) == stats.preemptions
    assert sum(bill.block_seconds for bill in bills) == pytest.approx(stats.block_seconds, rel=1e-6)
    assert sum(bill.cached_tokens for bill in bills) == stats.cached_tokens
    hits = stats.hits
    assert hits.prompt + hits.conversation + hits.tier + hits.restart == stats.cached_tokens
    assert hits.recovered > 0 or not full
    assert (hits.tier > 0) == bool(tiers)
    assert sum(bill.fetched_blocks for bill in bills) == stats.fetched_blocks
    assert sum(bill.recomputed_tokens for bill in bills) > 0 or not full
    for bill in bills:
        assert 0 <= bill.recomputed_tokens <= bill.computed_tokens
        times = bill.queued_s, bill.prefill_s, bill.decode_s, bill.preempted_s, bill.block_seconds
        assert min(times) >= 0
        assert bill.queued_s + bill.prefill_s + bill.decode_s == pytest.approx(bill.total_s)
        assert (bill.preempted_s > 0) <= (bill.preemptions > 0)


@pytest.mark.parametrize("below", ["host", "disk", "both"])
def test_time_in_each_tier_is_billed_apart(tmp_path: Path, below: str) -> None:
    """Four blocks that were spilled ten seconds ago; of "both", host memory has room for two blocks and kept the last
    that came."""
    model, now = make_random(tmp_path / "model"), [0.0]
    with LLM(model, num_blocks=8, block_size=4) as llm:
        block_bytes = llm.engine._parts.block_bytes
    host = {"host_kv_memory": str(block_bytes * (2 if below == "both" else 64))}
    disk = {"disk_kv": tmp_path / "d", "disk_kv_size": "1MiB"}
    tiers: dict[str, Any] = {"host": host, "disk": disk, "both": host | disk}[below]
    with LLM(model, num_blocks=8, block_size=4, **tiers) as llm:
        llm.engine._journal._clock = lambda: now[0]
        llm.generate(ROOT[:17], params(1))
        llm.generate([5] * 29, params(1))
        now[0] = 10.0
        bill = llm.generate(ROOT[:17], params(1))[0].metrics
    assert bill.fetched_blocks == 4
    fetched_from_host = {"host": 4, "disk": 0, "both": 2}[below]
    assert (bill.host_block_seconds, bill.disk_block_seconds) == (
        fetched_from_host * 10.0,
        (4 - fetched_from_host) * 10.0,
    )


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LLM]:
    with LLM(make_random(tmp_path), num_blocks=14, block_size=4, max_seqs=4) as llm:
        yield llm


def test_a_next_turn_and_a_shared_prompt_are_told_apart(tmp_path: Path) -> None:
    with LLM(make_random(tmp_path), num_blocks=40, block_size=4) as llm:
        first = llm.generate(ROOT[:10], params(9))[0].choices[0].tokens
        llm.generate([*ROOT[:9], 77], params(1))
        assert (llm.stats().hits.prompt, llm.stats().hits.conversation) == (8, 0)
        llm.generate([*ROOT[:10], *first, 5, 6], params(1))
        assert (llm.stats().hits.prompt, llm.stats().hits.conversation) == (8, 16)


def test_hits_after_a_restart_have_their_own_cause(tmp_path: Path) -> None:
    model = make_random(tmp_path / "model")
    for restart in (0, 12):
        with LLM(model, num_blocks=14, block_size=4, disk_kv=tmp_path / "d", disk_kv_size="1MiB") as llm:
            llm.generate(ROOT[:15], params(2))
            assert llm.stats().hits.restart == restart


def test_a_request_is_explained_while_it_waits_and_after_it_ended(tmp_path: Path) -> None:
    with LLM(make_random(tmp_path), num_blocks=14, block_size=4, max_seqs=4) as llm:
        engine = llm.engine
        first, second = (engine.add(ROOT[at : at + 20], params(12), seed=0) for at in (0, 20))
        engine.step()
        running = engine.explain(first)
        assert running is not None
        assert running.state == "running"
        assert [len(held.blocks[0]) for held in running.held] == [5]
        engine.step()
        third = engine.add([1] * 20, params(12), seed=0)
        engine.step()
        waiting = engine.explain(third)
        assert waiting is not None
        assert waiting.state == "waiting"
        assert waiting.waits[-1].why.reason == "blocks"
        assert "blocks were needed" in str(waiting)
        ended = {}
        while engine.has_work:
            ended.update({delta.request_id: delta.output for delta in engine.step() if delta.output is not None})
        assert set(ended) == {first, second, third}
        told = engine.explain(third)
        assert told is not None
        assert told.state == "ended"
        assert told.held == ()
        assert sum(wait.seconds for wait in told.waits) > 0
        preempted = [engine.explain(request) for request in (first, second, third)]
        stories = {each.request_id: each.preemptions for each in preempted if each is not None}
        assert sum(map(len, stories.values())) == llm.stats().preemptions > 0
        assert all((each.by, each.how) == (first, "recompute") for each in stories[second])
        assert f"gave way to request {first}" in str(preempted[1])
        assert "is computed again" in str(preempted[1])
        gave_way = [event for event in engine.events() if event.kind == "preempted"]
        assert {event.how for event in gave_way} == {"recompute"}
        assert engine.explain(999) is None


def test_answers_to_one_prompt_are_told_to_share(tmp_path: Path) -> None:
    with LLM(make_random(tmp_path), num_blocks=40, block_size=4) as llm:
        request = llm.engine.add(ROOT[:21], params(12, n=3), seed=0)
        for _ in range(4):
            llm.engine.step()
        told = llm.engine.explain(request)
        assert told is not None
        assert [held.shared for held in told.held] == [((request, 10),)] * 3
        assert llm.stats().sharing_ratio > 1.5
        llm.engine.abort(request)


def test_events_tell_what_happened_without_any_text(small: LLM) -> None:
    with pytest.raises(InvalidRequest):
        small.engine.add(ROOT, params(200), seed=0)
    traffic(small, 1, 30)
    kinds = {event.kind for event in small.engine.events()}
    assert {"arrived", "refused", "admitted", "resumed", "preempted", "evicted", "finished", "aborted"} <= kinds
    assert all(isinstance(event.count, int) for event in small.engine.events())
    times = [event.time for event in small.engine.events()]
    assert times == sorted(times)


def test_the_ring_forgets_the_oldest() -> None:
    log = EventLog(lambda: 0.0, size=3)
    for number in range(5):
        log.note("arrived", number, 1)
    assert [event.request for event in log.events()] == [2, 3, 4]


def test_nothing_is_kept_of_requests_that_ended(small: LLM) -> None:
    """Case E06: but for a bounded number of explanations."""
    journal = small.engine._journal
    small.generate([[1, 2, 3]] * 300, params(1))
    assert not journal._tracks
    assert not journal._stories
    assert len(journal._past) == 256


def test_a_miss_is_explained_by_what_was_evicted(tmp_path: Path) -> None:
    with LLM(make_random(tmp_path), num_blocks=10, block_size=4) as llm:
        llm.generate(ROOT[:17], params(1))
        llm.generate([5] * 37, params(1))
        assert llm.stats().evictions > 0
        again = llm.engine.add(ROOT[:17], params(1), seed=0)
        waiting = llm.engine.explain(again)
        assert waiting is not None
        assert waiting.missed is not None
        assert waiting.missed.reason == "evicted"
        while llm.engine.has_work:
            llm.engine.step()
        ended = llm.engine.explain(again)
        assert ended is not None
        assert ended.missed is not None
        assert ended.missed.reason == "evicted"
        assert "was evicted in step" in str(ended)
        assert llm.stats().regretted_evictions == ended.prompt_tokens // 4 - (ended.cached_tokens or 0) // 4
        new = llm.engine.add([9] * 9, params(1), seed=0)
        told = llm.engine.explain(new)
        assert told is not None
        assert "the nearest one differs at token 0" in str(told)
        llm.engine.abort(new)
