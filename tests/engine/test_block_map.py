"""Pictures of the pool say what is: every block's use, every request's progress; taking one changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy import make_random

from octavo import LLM, SamplingParams
from octavo.engine.block_map import block_ages, block_rows, block_states
from octavo.engine.engine import Engine
from octavo.options import RequestOptions, Tenant


def params(tokens: int, **others: Any) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True, **others)


@pytest.fixture
def llm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    monkeypatch.setenv("OCTAVO_CHECK", "2")
    with LLM(
        make_random(tmp_path), num_blocks=12, block_size=4, max_seqs=2, max_batched_tokens=64, host_kv_memory="64KiB"
    ) as llm:
        yield llm


def states(engine: Engine) -> str:
    return "".join(state[0] for state in block_states(engine.picture().pool))


def test_blocks_and_requests_of_a_busy_pool(llm: LLM) -> None:
    engine = llm.engine
    assert states(engine) == "f" * 12
    engine.pins.add(list(range(8)), 60)
    first = engine.add(list(range(10)), params(4, n=2), seed=1, options=RequestOptions(tenant=Tenant("ann")))
    waiting = engine.add([50, 51, 52], params(2), seed=2)
    for _ in range(2):
        engine.step()
    picture = engine.picture()
    ann, other = picture.requests
    assert (ann.id, ann.tenant, ann.state, ann.prompt_tokens, ann.most) == (first, "ann", "running", 10, 8)
    assert (other.id, other.tenant, other.state, other.made, other.answers[0].tables) == (waiting, "", "waiting", 0, ())
    assert ann.made == sum(answer.tokens - 10 + 1 for answer in ann.answers) > 0
    tables = [answer.tables[0] for answer in ann.answers]
    assert tables[0][:2] == tables[1][:2], "both answers share the prompt's full blocks"
    used = {block for table in tables for block in table}
    rows, found = block_rows(picture.pool), block_states(picture.pool)
    for block in range(12):
        assert rows[block] == sum(table.count(block) for table in tables)
        assert (found[block] in ("used", "shared")) == (block in used)
        assert (found[block] == "shared") == (rows[block] > 1)
    assert {block for table in tables for block in table[:2]} == set(picture.pool.kept)
    assert picture.stats.running == 2
    assert picture.cost_s > 0
    while engine.has_work:
        engine.step()
    assert sorted(states(engine)) == sorted("pp" + "c" * states(engine).count("c") + "f" * states(engine).count("f"))
    assert engine.picture().requests == ()


def test_a_picture_shows_what_lower_tiers_hold(llm: LLM) -> None:
    for start in range(0, 200, 40):
        llm.generate(list(range(start, start + 30)), params(2))
    llm.generate(list(range(30)), params(2))  # comes back from host memory
    picture = llm.engine.picture()
    assert len(picture.tiers) == 12
    held = [tiers for tiers, key in zip(picture.tiers, picture.pool.keys, strict=True) if key is not None]
    assert ("host",) in held
    assert all(not tiers for tiers, key in zip(picture.tiers, picture.pool.keys, strict=True) if key is None)


def test_ages_grow_in_powers_of_two(llm: LLM) -> None:
    llm.generate(list(range(9)), params(1))
    picture = llm.engine.picture()
    since = next(moment for moment in picture.pool.since if moment)
    for seconds, bucket in ((0.5, 0), (1.5, 1), (3.9, 2), (4.1, 3), (1000, 10)):
        later = type(picture)(since + seconds, picture.pool, (), (), picture.stats, 0.0)
        assert max(block_ages(later)) == bucket
        assert min(block_ages(later)) == -1


def test_a_cached_block_ages_from_its_last_use(llm: LLM) -> None:
    engine = llm.engine
    engine.add(list(range(9)), params(3), seed=0)
    engine.step()
    moment = time.monotonic()
    while engine.has_work:
        engine.step()
    picture = engine.picture()
    cached = [block for block, state in enumerate(block_states(picture.pool)) if state == "cached"]
    assert cached
    assert all(moment <= picture.pool.since[block] <= picture.now for block in cached)


def test_looking_changes_nothing(llm: LLM) -> None:
    """The same work with a look after every step and without: the same answers, the same figures."""

    def run(look: bool) -> Any:
        engine, told = llm.engine, []
        engine.wipe(b"")
        before = llm.stats()
        for seed in range(6):
            engine.add([seed, *range(20)], params(8, n=2), seed=seed)
        while engine.has_work:
            told += [(delta.index, delta.token_ids) for delta in engine.step()]
            if look:
                engine.picture()
        after = llm.stats()
        return told, after.steps - before.steps, after.preemptions - before.preemptions

    assert run(False) == run(True)


def test_beams_are_shown_while_they_are_searched(llm: LLM) -> None:
    engine = llm.engine
    engine.add(list(range(10)), params(6, n=2, beam_width=2), seed=0)
    seen = []
    while engine.has_work:
        engine.step()
        seen += [(request.state, len(request.answers)) for request in engine.picture().requests]
    assert ("running", 2) in seen
