"""The engine's counters and gauges, gathered from its parts. Keeps none of its own."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.engine.journal import Journal
from octavo.engine.memory import resident_bytes
from octavo.engine.outputs import EngineStats
from octavo.engine.pace import Pace
from octavo.exec.block_mover import BlockMover
from octavo.kv.stats import KVStats
from octavo.sched.stats import SchedulerStats


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from; the parts' own are of one moment."""

    kv: KVStats
    scheduler: SchedulerStats
    mover: BlockMover
    journal: Journal
    pace: Pace


def engine_stats(sources: Sources, block_bytes: int, generated_tokens: int, predicted_wait_s: float) -> EngineStats:
    """All of them."""
    kv, scheduler, tiers = sources.kv, sources.scheduler, sources.mover.tiers
    wasted = kv.used * kv.block_size - kv.tokens
    return EngineStats(
        running=scheduler.running,
        waiting=scheduler.waiting,
        preemptions=scheduler.preemptions,
        num_blocks=kv.num_blocks,
        blocks_used=kv.used,
        blocks_cached=kv.cached,
        blocks_pinned=kv.pinned,
        utilisation=kv.utilisation,
        steps=scheduler.steps,
        prompt_tokens=scheduler.prompt_tokens,
        cached_tokens=scheduler.cached_tokens,
        generated_tokens=generated_tokens,
        resident_bytes=resident_bytes(),
        block_utilisation=kv.used / kv.num_blocks,
        wasted_bytes=wasted * block_bytes // kv.block_size,
        sharing_ratio=kv.rows / kv.used if kv.used else 1.0,
        computed_tokens=scheduler.computed_tokens,
        hits=sources.journal.hits,
        copies=kv.copies,
        evictions=kv.evictions,
        regretted_evictions=kv.regrets,
        spilled_bytes=kv.spills * block_bytes,
        fetched_bytes=kv.fetches * block_bytes,
        key_collisions=kv.key_collisions,
        block_seconds=kv.block_seconds,
        fetched_blocks=kv.fetches,
        tiers=() if tiers is None else tiers.stats(),
        watermark=scheduler.watermark,
        held_back=scheduler.held_back,
        prefill_tokens_per_second=sources.pace.prefill.value or 0.0,
        decode_tokens_per_second=sources.pace.decode.value or 0.0,
        predicted_wait_s=predicted_wait_s,
        passed_over={} if tiers is None else dict(tiers.speeds.passed),
        kept_out={} if tiers is None else dict(tiers.speeds.kept_out),
        preempted=scheduler.victims,
    )
