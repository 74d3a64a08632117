"""Figures about scheduling, as a value. Knows nothing of how they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Counts since the start. prompt_tokens and cached_tokens are of first admissions: their ratio is the hit rate.
    computed_tokens: all that landed, those computed again after a preemption too. watermark: blocks that admission
    keeps free now; held_back: how often it let nobody in for these alone. victims: preemptions by manner, see
    `octavo.sched.victims`."""

    running: int
    waiting: int
    steps: int
    preemptions: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    watermark: int = 0
    held_back: int = 0
    victims: Mapping[str, int] = field(default_factory=dict)
