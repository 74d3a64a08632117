"""Who is turned away at once: nobody for another tenant's flood."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from toy import make_toy

from octavo import AsyncEngine, EngineConfig, SamplingParams
from octavo.engine.async_engine import AsyncLimits
from octavo.engine.places import Places
from octavo.errors import Overloaded
from octavo.options import RequestOptions, Tenant

A, B = Tenant("a"), Tenant("b")
SHORT = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)


def test_the_flood_is_turned_away_and_the_other_is_not() -> None:
    places = Places(running=2, waiting=6)
    for _ in range(8):
        places.take([(A, 1)], 0.5)
    with pytest.raises(
        Overloaded, match=r"8 answers run or wait, and 1 more would pass the limit of 8 \(2 running"
    ) as no:
        places.take([(A, 1)], 0.5)
    assert no.value.predicted_wait_s == 0.5
    places.take([(B, 3)], 0.5)
    with pytest.raises(
        Overloaded, match=r"11 answers run or wait, 3 of them this tenant's, .* of 8 .* and of 4 for this"
    ):
        places.take([(B, 2)], 0.5)
    places.take([(B, 1)], 0.5)
    for _ in range(5):
        places.ended((A, 1))
        with pytest.raises(Overloaded):
            places.take([(A, 2)], 0.5)
    places.take([(A, 1)], 0.5)


def test_prompts_together_are_taken_together_or_not_at_all() -> None:
    places = Places(running=1, waiting=3)
    places.take([(A, 1), (A, 9)], 0.0)  # nothing was here
    with pytest.raises(Overloaded):
        places.take([(B, 1), (A, 1)], 0.0)
    places.give_back([(A, 10)])
    places.take([(A, 2), (B, 2)], 0.0)


@pytest.mark.parametrize(
    "limits", [AsyncLimits(max_queue=6), AsyncLimits(max_queued_tokens=4)], ids=["answers", "tokens"]
)
def test_a_tenant_finds_a_place_in_another_ones_flood(tmp_path: Path, limits: AsyncLimits) -> None:
    """And the flood is refused its surplus, as before."""
    folder = make_toy(tmp_path, ["a", "b", "c", "d"])

    async def main() -> None:
        config = EngineConfig(num_blocks=64, max_seqs=2, policy="fair")
        async with AsyncEngine(folder, config, limits=limits) as engine:
            flood = [asyncio.create_task(engine.generate("a", SHORT, RequestOptions(tenant=A))) for _ in range(60)]
            await asyncio.sleep(0)
            others = [await engine.generate("a", SHORT, RequestOptions(tenant=B)) for _ in range(5)]
            assert [output.text for output in others] == ["bcd"] * 5
            ends = await asyncio.gather(*flood, return_exceptions=True)
            refused = [end for end in ends if isinstance(end, Overloaded)]
            assert 0 < len(refused) < 60

    asyncio.run(main())
