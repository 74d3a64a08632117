"""What one iteration computes, as plain values. Knows no arrays, no model and no policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from octavo.kv import Op


class Row(NamedTuple):
    """A run of new tokens of one sequence: tokens[start : start + count]; `sample` when its last one yields a token.

    slot: the sequence's stable place among max_seqs while it runs (state that a backend keeps a sequence lives there).
    A named tuple, because one is made for every token: a frozen dataclass takes 2.5 times as long to make.
    """

    seq: int
    slot: int
    start: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which means nothing here
    sample: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration. ops: KV block operations to run before any row writes, in order of phase (Spill, Copy, Fetch).
    preempted: sequences that were closed to make room, or cut back, and wait again. finished: sequences that ended
    since the last step (their slots are free)."""

    id: int
    rows: tuple[Row, ...]
    ops: tuple[Op, ...]
    preempted: tuple[int, ...]
    finished: tuple[int, ...]
