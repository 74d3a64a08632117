"""A recorded program as a function of one step's arrays. Records nothing and checks no index: the native side does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.ops.base import AttentionMeta, StepInputs
from octavo.ops.native import _native

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepSymbol:
    """One of a step's integer arrays, while recording: it is bound anew at every run."""

    name: str


# What a decoder is given and gives while it is recorded.
Handle = _native.View | _native.Constant | StepSymbol


def step_symbols() -> StepInputs[Handle]:
    """The inputs to call a decoder with, once, to record it."""
    meta: AttentionMeta[Handle] = AttentionMeta(
        cu_seqlens_q=StepSymbol("cu_seqlens_q"),
        seq_lens=StepSymbol("seq_lens"),
        block_table=StepSymbol("block_table"),
        slot_mapping=StepSymbol("slot_mapping"),
        max_query_len=0,
        max_seq_len=0,
    )
    return StepInputs(StepSymbol("ids"), StepSymbol("positions"), StepSymbol("logit_rows"), meta)


class NativeProgram:
    """Runs a tape. Calls from several threads take turns.

    largest: of how many leading columns of the logits `largest_ids` keeps each row's top one; 0 for none. rows: of
    output that there is room for from the beginning. kept: float32 [planned tokens, columns], an activation that was to
    be kept: the first N rows are those of the last call, and no copy.
    """

    def __init__(self, program: _native.Program, *, logits: bool, largest: int = 0, rows: int = 0) -> None:
        self._program = program
        self._logits = logits
        self._largest = largest
        self._out: Floats = np.empty((rows, program.out_columns), np.float32)
        self.largest_ids: npt.NDArray[np.int32] | None = None
        self.kept = program.kept()

    @property
    def nbytes(self) -> int:
        """Bytes of workspace and scratch that the program holds."""
        return self._program.nbytes

    def __call__(self, inputs: StepInputs[Any], floats: Sequence[Floats] = ()) -> Floats:
        """float32 [R, vocabulary] logits of inputs.logit_rows (or [N, columns] of what else was compiled). The array is
        the program's own: the next call overwrites it. floats: what `NativeOps.input` declared.

        Raises KVError for slots, blocks and tables that are not the pool's, InvalidRequest for ids outside the
        vocabulary or more tokens than planned, ValueError or TypeError for arrays that do not belong together; nothing
        has been computed or written then.
        """
        meta = inputs.meta
        step = _native.Step(
            inputs.ids,
            inputs.positions,
            inputs.logit_rows,
            meta.cu_seqlens_q,
            meta.seq_lens,
            np.ascontiguousarray(meta.block_table),
            np.ascontiguousarray(meta.slot_mapping),
        )
        rows = len(inputs.logit_rows if self._logits else inputs.ids) if self._program.out_columns else 0
        if rows > len(self._out):
            self._out = np.empty((rows, self._program.out_columns), np.float32)
        out = self._out[:rows]
        ids = np.empty(rows, np.int32) if self._largest else None
        self._program.run(step, list(floats), out, ids)
        self.largest_ids = ids
        return out

    def profile(self, on: bool) -> None:
        """From now on time every phase of the first thread, or stop. Clears what was measured."""
        self._program.profile(on)

    def times(self) -> list[tuple[str, float, int]]:
        """(operation, seconds with waiting included, runs) since `profile(True)`."""
        return self._program.times()
