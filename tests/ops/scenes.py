"""Attention scenes: sequences with their queries, keys and values, played through a backend in any way one likes.

However a scene is played (block size, blocks chosen, chunks, neighbours), every token's result must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import naive
import numpy as np
from backends import Backend

from octavo.ops.alibi import alibi_slopes
from octavo.ops.base import Attention, AttentionMeta, KVLayout, KVSlot

LAYERS = 2


@dataclass(frozen=True)
class Scene:
    """lengths: tokens of each sequence. The layer under test is `slot`."""

    lengths: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    seed: int = 0
    slot: KVSlot = field(default_factory=lambda: KVSlot(0, 1))

    def numbers(self) -> naive.Numbers:
        rng = np.random.default_rng(self.seed + 1)
        return naive.Numbers(
            self.heads,
            self.kv_heads,
            self.head_size,
            scale=self.head_size**-0.5 * 1.5,
            window=self.window,
            softcap=self.softcap,
            alibi=alibi_slopes(self.heads) if self.alibi else None,
            sinks=rng.standard_normal(self.heads, np.float32) if self.sinks else None,
        )

    def draw(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """q, k, v of each sequence: [length, heads * head_size]."""
        rng = np.random.default_rng(self.seed)
        widths = (self.heads * self.head_size, self.kv_heads * self.head_size, self.kv_heads * self.head_size)
        return [tuple(rng.standard_normal((n, w), np.float32) for w in widths) for n in self.lengths]  # type: ignore[misc]


@dataclass(frozen=True)
class Play:
    """How a scene is played. chunks: sizes of the steps' pieces of each sequence, repeated. together: one step takes a
    piece of every sequence, else sequences run one after the other. placement: seeds the choice of blocks. poison: what
    every slot holds before it is written. groups: how many block tables there are."""

    block_size: int = 16
    chunks: tuple[int, ...] = (1 << 30,)
    together: bool = True
    placement: int = 0
    poison: float = 0.0
    groups: int = 1


USUAL = Play()


def expected(scene: Scene, kv: Callable[[np.ndarray], np.ndarray] = lambda values: values) -> list[np.ndarray]:
    """What the formulas give. kv: what a pool keeps of keys and values."""
    numbers = scene.numbers()
    results = []
    for q, k, v in scene.draw():
        heads = [a.reshape(len(a), -1, scene.head_size) for a in (q, kv(k), kv(v))]
        results.append(naive.attend(heads[0], heads[1], heads[2], 0, numbers).reshape(q.shape))
    return results


def play(backend: Backend, scene: Scene, how: Play = USUAL) -> list[np.ndarray]:
    """Write and attend every token of every sequence: one array [length, heads * head_size] for each."""
    return _Player(backend, scene, how).run()


class _Player:
    def __init__(self, backend: Backend, scene: Scene, how: Play) -> None:
        self.backend, self.scene, self.how = backend, scene, how
        self.draws = scene.draw()
        columns = max(-(-n // how.block_size) for n in scene.lengths)
        # The pool's last block belongs to nobody: an index of -1 that is followed meets the poison in it.
        blocks = columns * len(scene.lengths) * how.groups + 5
        shuffled = np.random.default_rng(how.placement).permutation(blocks - 1)
        self.table = np.full((how.groups, len(scene.lengths), columns), -1, np.int32)
        for n, cell in enumerate(np.ndindex(self.table.shape)):
            self.table[cell] = shuffled[n]
        layout = KVLayout(blocks, LAYERS, scene.kv_heads, how.block_size, scene.head_size)
        self.ops = backend.make(layout)
        backend.fill_pool(self.ops, how.poison)
        numbers = scene.numbers()
        self.attention = Attention(
            scene.heads,
            scene.kv_heads,
            scene.head_size,
            numbers.scale,
            scene.window,
            scene.softcap,
            None if numbers.alibi is None else self.ops.constant(numbers.alibi),
            None if numbers.sinks is None else self.ops.constant(numbers.sinks),
        )
        self.done = [0] * len(scene.lengths)
        self.results: list[list[np.ndarray]] = [[] for _ in scene.lengths]

    def run(self) -> list[np.ndarray]:
        pieces = [list(self._pieces(n)) for n in self.scene.lengths]
        if self.how.together:
            while any(pieces):
                self._step([(s, rest.pop(0)) for s, rest in enumerate(pieces) if rest])
        else:
            for s, rest in enumerate(pieces):
                for piece in rest:
                    self._step([(s, piece)])
        return [np.concatenate(parts) for parts in self.results]

    def _pieces(self, length: int) -> Iterator[int]:
        turn = 0
        while length:
            size = min(length, self.how.chunks[turn % len(self.how.chunks)])
            yield size
            length -= size
            turn += 1

    def _step(self, rows: list[tuple[int, int]]) -> None:
        """One step of (sequence, new tokens) rows."""
        ranges = [(s, self.done[s], self.done[s] + n) for s, n in rows]
        q, k, v = (np.concatenate([self.draws[s][i][a:b] for s, a, b in ranges]) for i in range(3))
        positions = [np.arange(a, b) for _, a, b in ranges]
        size = self.how.block_size
        slots = np.concatenate(
            [
                self.table[:, s, p // size].astype(np.int64) * size + p % size
                for (s, _, _), p in zip(ranges, positions, strict=True)
            ],
            axis=1,
        )
        array = self.backend.from_numpy
        meta = AttentionMeta(
            cu_seqlens_q=array(np.cumsum([0] + [n for _, n in rows]).astype(np.int32)),
            seq_lens=array(np.array([b for _, _, b in ranges], np.int32)),
            block_table=array(np.ascontiguousarray(self.table[:, [s for s, _ in rows]])),
            slot_mapping=array(slots),
            max_query_len=max(n for _, n in rows),
            max_seq_len=max(b for _, _, b in ranges),
        )
        self.ops.write_kv(array(k), array(v), self.scene.slot, meta)
        out = self.backend.to_numpy(self.ops.attend(array(q), self.scene.slot, self.attention, meta))
        for (s, _, end), begin, n in zip(
            ranges, np.cumsum([0] + [n for _, n in rows]), [n for _, n in rows], strict=False
        ):
            self.results[s].append(np.array(out[begin : begin + n]))
            self.done[s] = end
            self._give_back(s)

    def _give_back(self, s: int) -> None:
        """The table forgets blocks that the window has passed, as the manager does."""
        if self.scene.window is not None:
            dead = max(0, self.done[s] - self.scene.window) // self.how.block_size
            self.table[:, s, :dead] = -1
