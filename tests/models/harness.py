"""Runs a decoder without an engine: block tables made by hand, any cutting of sequences into steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from octavo.models.decoder import Decoder
from octavo.models.load import read_model
from octavo.ops.base import AttentionMeta, StepInputs
from octavo.ops.numpy import NumpyOps

Floats = npt.NDArray[np.float32]
BLOCK = 16


class Runner:
    """A model and the KV of up to `sequences` sequences of at most `capacity` tokens.

    Blocks lie scattered. Those that a window has passed are poisoned with NaN and read as -1 in the table, so a key
    outside the window cannot be read unseen. length: see `read_model`.
    """

    def __init__(self, path: Path, *, capacity: int = 128, sequences: int = 1, length: int | None = None) -> None:
        self.files = read_model(path, length=length)
        columns = -(-capacity // BLOCK)
        groups = len(self.files.spec.groups)
        layout = self.files.spec.kv_layout(groups * sequences * columns, BLOCK)
        self.ops = NumpyOps(layout)
        self.decoder = Decoder(self.files.spec, self.ops, self.files.tensors)
        order = np.random.default_rng(0).permutation(layout.num_blocks).astype(np.int32)
        self._all_blocks = order.reshape(groups, sequences, columns)
        self.restart()

    def restart(self) -> None:
        """Forget all sequences."""
        self.table = self._all_blocks.copy()
        self._done = [0] * self.table.shape[1]

    def step(self, chunks: Sequence[Sequence[int]], *, last_only: bool = False) -> list[Floats]:
        """Logits [tokens, vocabulary] of each sequence's next tokens (of its last one alone on request)."""
        counts = np.array([len(chunk) for chunk in chunks])
        ends = np.cumsum(counts)
        starts = np.array(self._done[: len(chunks)])
        positions = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, counts, strict=True)]).astype(np.int32)
        owner = np.repeat(np.arange(len(chunks)), counts)
        column, offset = np.divmod(positions, BLOCK)
        meta = AttentionMeta(
            cu_seqlens_q=np.concatenate([[0], ends]).astype(np.int32),
            seq_lens=(starts + counts).astype(np.int32),
            block_table=self.table[:, : len(chunks)].copy(),
            slot_mapping=self.table[:, owner, column].astype(np.int64) * BLOCK + offset,
            max_query_len=int(counts.max()),
            max_seq_len=int((starts + counts).max()),
        )
        wanted = (ends - 1 if last_only else np.arange(ends[-1])).astype(np.int32)
        ids = np.concatenate([np.asarray(chunk, np.int32) for chunk in chunks])
        result = self.decoder(StepInputs(ids, positions, wanted, meta))
        logits = np.asarray(result.logits, np.float32)
        self.hidden = np.asarray(result.hidden, np.float32)
        for sequence, count in enumerate(counts.tolist()):
            self._done[sequence] += count
        self._give_back()
        return list(np.split(logits, len(chunks) if last_only else ends[:-1]))

    def logits(self, tokens: Sequence[int], *, chunks: Sequence[int] = ()) -> Floats:
        """Logits [len(tokens), vocabulary] of one sequence, in chunks of the given sizes and then the rest."""
        self.restart()
        cuts = [0, *np.cumsum(chunks).tolist(), len(tokens)]
        return np.concatenate([self.step([tokens[a:b]])[0] for a, b in pairwise(cuts) if b > a])

    def greedy(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """`count` tokens for each prompt: all prompts in one step, then a token each a step."""
        self.restart()
        out: list[list[int]] = [[] for _ in prompts]
        rows: Sequence[Sequence[int]] = prompts
        for _ in range(count):
            best = [int(logits[0].argmax()) for logits in self.step(rows, last_only=True)]
            rows = [[token] for token in best]
            for tokens, token in zip(out, best, strict=True):
                tokens.append(token)
        return out

    def _give_back(self) -> None:
        for group, window in enumerate(self.files.spec.groups):
            for sequence, done in enumerate(self._done):
                dead = max(0, done - window) // BLOCK if window is not None else 0
                gone = self.table[group, sequence, :dead]
                self.ops.pool.array[gone[gone >= 0]] = np.nan
                self.table[group, sequence, :dead] = -1


def relative_difference(ours: Floats, theirs: Floats) -> float:
    """Largest difference of logits, relative to the standard deviation of the reference's."""
    return float(np.abs(ours - theirs).max() / theirs.std())
