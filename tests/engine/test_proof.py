"""The engine under pressure gives what it gives without, to the bit, every slot checked; and never stands still."""

from __future__ import annotations

from pathlib import Path

import pytest
from pressure import Proof
from toy import make_random

from octavo import LLM, SamplingParams


def test_200_random_requests(tmp_path: Path) -> None:
    proof = Proof(tmp_path, seed=4)
    proof.run(200, a_round=20)
    counts = proof.counts
    met = ("preemptions", "copies on write", "evictions", "blocks fetched from tiers", "table faults injected and seen")
    assert min(counts[what] for what in (*met, "pins", "pins refused", "steps with pinned blocks")) > 0, counts
    assert counts["aborted or refused"] < 100


@pytest.mark.slow
def test_10000_random_requests(tmp_path: Path) -> None:
    proof = Proof(tmp_path, seed=0)
    proof.run(10_000)
    assert proof.counts["requests"] == 10_000


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_no_livelock_in_the_smallest_pool_that_holds_one_request(tmp_path: Path, block_size: int) -> None:
    """Each takes the whole pool at its end; twenty of them end, within the steps that one after another would take."""
    prompt, new, requests = 17, 16, 20
    num_blocks = -(-(prompt + new) // block_size)
    params = SamplingParams(max_tokens=new, temperature=0.0, ignore_eos=True)
    with LLM(make_random(tmp_path), num_blocks=num_blocks, block_size=block_size, max_seqs=8) as llm:
        ids = [llm.engine.add([at, *range(prompt - 1)], params, seed=0) for at in range(requests)]
        done: list[int] = []
        for _ in range(requests * (prompt + new)):
            done += [delta.request_id for delta in llm.engine.step() if delta.output is not None]
        assert done == ids
        assert not llm.engine.has_work
        assert llm.stats().blocks_used == 0
