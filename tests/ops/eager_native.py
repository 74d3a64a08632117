"""The native backend one operation at a time: each call records a tape of one operation and runs it on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octavo.ops.base import Attention, AttentionMeta, KVLayout, KVSlot, Rope, StepInputs
from octavo.ops.native import NativeOps, step_symbols

MAX_TOKENS = 512
SYMBOLS = step_symbols()


class EagerNative:
    """Implements `Ops[array or constant, Matrix]`, as the conformance suite drives it."""

    def __init__(self, layout: KVLayout, isa: str, threads: int = 2) -> None:
        self.native = NativeOps(layout, max_tokens=MAX_TOKENS, threads=threads, isa=isa)
        self.pool = self.native.pool
        self.prepare = self.native.prepare
        self.constant = self.native.constant

    def embed(self, ids: np.ndarray, table: Any, *, scale: float = 1.0) -> np.ndarray:
        return self._run(lambda: self.native.embed(SYMBOLS.ids, table, scale=scale), [], ids=ids)

    def linear(
        self, x: np.ndarray, weight: Any, *, bias: Any = None, activation: Any = None, residual: Any = None
    ) -> np.ndarray:
        def record(x: Any, residual: Any = None) -> Any:
            return self.native.linear(x, weight, bias=bias, activation=activation, residual=residual)

        return self._run(record, [x] if residual is None else [x, residual])

    def gated(self, x: np.ndarray, gate_up: Any, activation: Any) -> np.ndarray:
        return self._run(lambda x: self.native.gated(x, gate_up, activation), [x])

    def split(self, x: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, ...]:
        return tuple(self._run(lambda x, i=i: self.native.split(x, sizes)[i], [x]) for i in range(len(sizes)))

    def norm(
        self, x: np.ndarray, weight: Any, *, eps: float, kind: Any = "rms", bias: Any = None, residual: Any = None
    ) -> np.ndarray:
        def record(x: Any, residual: Any = None) -> Any:
            return self.native.norm(x, weight, eps=eps, kind=kind, bias=bias, residual=residual)

        return self._run(record, [x] if residual is None else [x, residual])

    def rope(self, x: np.ndarray, positions: np.ndarray, rope: Rope[Any]) -> np.ndarray:
        return self._run(lambda x: self.native.rope(x, SYMBOLS.positions, rope), [x], positions=positions)

    def write_kv(self, k: np.ndarray, v: np.ndarray, slot: KVSlot, meta: AttentionMeta[Any]) -> None:
        self._run(lambda k, v: self.native.write_kv(k, v, slot, SYMBOLS.meta), [k, v], meta=meta)

    def attend(self, q: np.ndarray, slot: KVSlot, attention: Attention[Any], meta: AttentionMeta[Any]) -> np.ndarray:
        return self._run(lambda q: self.native.attend(q, slot, attention, SYMBOLS.meta), [q], meta=meta)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._run(self.native.add, [a, b])

    def logits(self, x: np.ndarray, weight: Any, rows: np.ndarray, *, softcap: float | None = None) -> np.ndarray:
        return self._run(
            lambda x: self.native.logits(x, weight, SYMBOLS.logit_rows, softcap=softcap), [x], logit_rows=rows
        )

    def _run(
        self, record: Callable[..., Any], arrays: Sequence[np.ndarray], *, meta: Any = None, **given: np.ndarray
    ) -> np.ndarray:
        native = self.native
        native.restart()
        output = record(*[native.input(array.shape[1]) for array in arrays])
        program = native.compile(output)
        count = len(arrays[0]) if arrays else len(given["ids"])
        zeros = np.zeros(count, np.int32)
        none = np.zeros(0, np.int32)
        inputs = StepInputs(
            given.get("ids", zeros), given.get("positions", zeros), given.get("logit_rows", none), meta or _alone(count)
        )
        return program(inputs, [np.ascontiguousarray(array) for array in arrays]).copy()


def _alone(count: int) -> AttentionMeta[np.ndarray]:
    """One sequence whose keys nobody reads or writes."""
    return AttentionMeta(
        np.array([0, count], np.int32),
        np.array([count], np.int32),
        np.zeros((1, 1, 0), np.int32),
        np.zeros((1, count), np.int64),
        count,
        count,
    )
