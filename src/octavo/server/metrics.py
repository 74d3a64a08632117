"""Prometheus metrics: what they are called, how they are counted, their text. Knows no HTTP."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from octavo.engine.outputs import Delta, EngineStats, RequestOutput

Labels = tuple[tuple[str, str], ...]

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

GAUGES: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "octavo_requests_running": ("sequences that run", lambda stats: stats.running),
    "octavo_requests_waiting": ("sequences that wait for blocks or a place", lambda stats: stats.waiting),
    "octavo_kv_num_blocks": ("KV blocks in the pool", lambda stats: stats.num_blocks),
    "octavo_kv_blocks_used": ("KV blocks that requests refer to", lambda stats: stats.blocks_used),
    "octavo_kv_blocks_cached": ("free KV blocks with a reusable prefix", lambda stats: stats.blocks_cached),
    "octavo_kv_utilisation_ratio": ("live tokens over the room in used KV blocks", lambda stats: stats.utilisation),
    "octavo_kv_blocks_used_ratio": (
        "KV blocks that requests refer to, over all",
        lambda stats: stats.block_utilisation,
    ),
    "octavo_kv_wasted_bytes": ("room in used KV blocks without a live token", lambda stats: stats.wasted_bytes),
    "octavo_kv_sharing_ratio": ("block table entries over the KV blocks used", lambda stats: stats.sharing_ratio),
    "octavo_kv_blocks_watermark": ("KV blocks that admission keeps free now", lambda stats: stats.watermark),
    "octavo_predicted_wait_seconds": ("to the first token of one that came now", lambda stats: stats.predicted_wait_s),
    "octavo_resident_bytes": ("resident memory of the process", lambda stats: stats.resident_bytes),
}
ENGINE_COUNTERS: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "octavo_preemptions_total": (
        "sequences sent back for want of blocks",
        lambda stats: stats.preemptions,
    ),
    "octavo_held_back_total": ("times that nobody was let in for the watermark alone", lambda stats: stats.held_back),
    "octavo_engine_rebuilds_total": ("engines built anew after a fault", lambda stats: stats.rebuilds),
    "octavo_steps_total": ("steps of the engine", lambda stats: stats.steps),
    "octavo_computed_tokens_total": (
        "tokens computed, again after preemptions too",
        lambda stats: stats.computed_tokens,
    ),
    "octavo_recovered_tokens_total": (
        "tokens found cached again after preemptions, no hits",
        lambda stats: stats.hits.recovered,
    ),
    "octavo_kv_copies_total": ("KV blocks copied on write", lambda stats: stats.copies),
    "octavo_kv_evictions_total": ("cached KV blocks reused for something else", lambda stats: stats.evictions),
    "octavo_kv_regretted_evictions_total": (
        "evicted KV blocks whose content was asked for again soon",
        lambda stats: stats.regretted_evictions,
    ),
    "octavo_kv_spilled_bytes_total": ("KV offered to the tiers below the pool", lambda stats: stats.spilled_bytes),
    "octavo_kv_fetched_bytes_total": ("KV asked of the tiers", lambda stats: stats.fetched_bytes),
    "octavo_kv_key_collisions_total": ("equal block keys of unequal tokens", lambda stats: stats.key_collisions),
    "octavo_kv_block_seconds_total": ("time of KV blocks that requests held", lambda stats: stats.block_seconds),
}
HITS = "octavo_cache_hit_tokens_total"
HIT_CAUSES = ("prompt", "conversation", "tier", "restart")
COUNTERS = {
    "octavo_requests_total": "answers that ended, by how",
    "octavo_requests_aborted_total": "requests ended before they were done",
    "octavo_requests_rejected_total": "requests refused because the queue was full",
    "octavo_prompt_tokens_total": "prompt tokens of requests that ended, each counted once",
    "octavo_cached_tokens_total": "those of them found in the prefix cache",
    "octavo_generation_tokens_total": "tokens generated",
    "octavo_http_responses_total": "HTTP responses, by path and status",
}
HISTOGRAMS = {
    "octavo_queue_seconds": ("arrival to first computed", LONG),
    "octavo_time_to_first_token_seconds": ("arrival to first token", LONG),
    "octavo_inter_token_seconds": ("one token to the next", SHORT),
    "octavo_request_seconds": ("arrival to end", LONG),
}
_WITHOUT_LABELS = (
    "octavo_requests_aborted_total",
    "octavo_requests_rejected_total",
    "octavo_prompt_tokens_total",
    "octavo_cached_tokens_total",
    "octavo_generation_tokens_total",
)


class Histogram:
    """Observations in buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times

    def lines(self, name: str) -> Iterator[str]:
        """The exposition's lines."""
        below = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            below += count
            label = "+Inf" if bound == math.inf else f"{bound:g}"
            yield f'{name}_bucket{{le="{label}"}} {below}'
        yield f"{name}_sum {self.total:.9g}"
        yield f"{name}_count {below}"


class Metrics:
    """One server's counts. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counters: dict[str, dict[Labels, float]] = {name: {} for name in COUNTERS}
        for name in _WITHOUT_LABELS:
            self._counters[name][()] = 0
        self._histograms = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self._last_token: dict[int | tuple[int, int], float] = {}  # by request, and choice unless it is the first

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        values = self._counters[name]
        key = tuple(labels.items())
        values[key] = values.get(key, 0) + by

    def see(self, deltas: Sequence[Delta]) -> None:
        """Count the deltas of a step; for AsyncEngine's `observe`."""
        now, last_token, tokens = self._clock(), self._last_token, 0
        since: dict[float, int] = {}  # how many had the token before at that time, which was mostly the last step
        for delta in deltas:
            key = (delta.request_id, delta.index) if delta.index else delta.request_id
            if delta.token_ids:
                tokens += len(delta.token_ids)
                if (last := last_token.get(key)) is not None:
                    since[last] = since.get(last, 0) + 1
                last_token[key] = now
            if delta.finish_reason is not None:
                last_token.pop(key, None)
                self.count("octavo_requests_total", finish_reason=delta.finish_reason)
            if delta.output is not None:
                self._see_end(delta.output)
        for last, times in since.items():
            self._histograms["octavo_inter_token_seconds"].observe(now - last, times)
        self.count("octavo_generation_tokens_total", tokens)

    def render(self, stats: EngineStats | None, info: Mapping[str, str]) -> str:
        """The text that Prometheus reads. stats: None while there is no engine, whose figures are then left out."""
        lines = ["# HELP octavo_info what runs here", "# TYPE octavo_info gauge", f"octavo_info{_labels(info)} 1"]
        for kind, figures in (("gauge", GAUGES), ("counter", ENGINE_COUNTERS)):
            for name, (text, read) in figures.items() if stats is not None else ():
                assert stats is not None
                lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {read(stats):.17g}"]
        if stats is not None:
            lines += [f"# HELP {HITS} prompt tokens found cached, by cause", f"# TYPE {HITS} counter"]
            lines += [f'{HITS}{{cause="{cause}"}} {getattr(stats.hits, cause)}' for cause in HIT_CAUSES]
        for name, text in COUNTERS.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            lines += [f"{name}{_labels(dict(key))} {value:.17g}" for key, value in self._counters[name].items()]
        for name, (text, _) in HISTOGRAMS.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram", *self._histograms[name].lines(name)]
        return "\n".join(lines) + "\n"

    def _see_end(self, output: RequestOutput) -> None:
        bill = output.metrics
        self.count("octavo_prompt_tokens_total", bill.prompt_tokens)
        self.count("octavo_cached_tokens_total", bill.cached_tokens)
        if any(choice.finish_reason == "abort" for choice in output.choices):
            self.count("octavo_requests_aborted_total")
            return
        self._histograms["octavo_queue_seconds"].observe(bill.queued_s)
        self._histograms["octavo_time_to_first_token_seconds"].observe(bill.first_token_s)
        self._histograms["octavo_request_seconds"].observe(bill.total_s)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
