"""NativeOps: the compute interface recorded on a tape. Holds the KV pool's memory; computes nothing itself."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from octavo.ops.base import Activation, Attention, AttentionMeta, KVLayout, KVSlot, NormKind, Rope
from octavo.ops.kv_pool import KVPool
from octavo.ops.native import _native
from octavo.ops.native.program import Floats, Handle, NativeProgram
from octavo.ops.tensor import Tensor


class NativeOps:
    """Implements `Ops[Handle, Matrix]` by recording: call a decoder once with `step_symbols()`, then `compile`.

    layout: of the pool, `pool`, that it owns. max_tokens: of one step, max_length: of a sequence (longer ones take more
    memory when they come); workspace is planned for them. threads: that compute; None for every core that this process
    may use. isa: the instruction set; None for the widest that this machine runs.
    """

    def __init__(
        self,
        layout: KVLayout,
        *,
        max_tokens: int,
        max_length: int = 0,
        threads: int | None = None,
        isa: str | None = None,
    ) -> None:
        self.pool = KVPool(layout)
        self.isa = isa or _native.instruction_sets()[-1]
        self._threads = _native.Pool(threads or default_threads())
        self.runtime = _native.Runtime(self.isa, self._threads)
        self._arena = _native.Arena()
        self._limits = max_tokens, max_length
        self._geometry = _native.Geometry(
            layout.num_blocks,
            layout.layers,
            layout.kv_heads,
            layout.block_size,
            layout.head_size,
            layout.dtype == "bfloat16",
        )
        self.restart()

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self._threads.threads

    def restart(self) -> None:
        """Forget what was recorded since the last `compile`."""
        memory = self.pool.array.reshape(-1).view(np.uint8)
        self._tape = _native.Tape(self.runtime, memory, self._geometry, *self._limits)
        self._logits: _native.View | None = None

    def compile(
        self, output: Handle | None, *, largest: int = 0, rows: int = 0, kept: Handle | None = None
    ) -> NativeProgram:
        """What was recorded, as a function of a step that gives `output` (None: it only writes KV). rows: of output to
        make room for; more take memory when they come. kept: see `NativeProgram.kept`."""
        view = None if output is None else _view(output)
        logits = view is not None and view is self._logits
        compiled = self._tape.compile(view, largest, _optional_view(kept))
        program = NativeProgram(compiled, logits=logits, largest=largest, rows=rows)
        self.restart()
        return program

    def input(self, columns: int) -> Handle:
        """Floats [N, columns] that every run is given."""
        return self._tape.input(columns)

    def prepare(self, parts: Sequence[Tensor]) -> _native.Matrix:
        """Packed for this instruction set, codes unchanged. ValueError on unequal depths or wrong sizes."""
        listed = [(part.type.name, part.shape[0], np.ascontiguousarray(part.data)) for part in parts]
        return _native.Matrix(self.isa, listed, _depth(parts), self._threads, self._arena)

    def constant(self, values: Floats) -> Handle:
        """A copy of the values."""
        return _native.Constant(np.ascontiguousarray(values, np.float32).reshape(-1))

    def embed(self, ids: Handle, table: _native.Matrix, *, scale: float = 1.0) -> Handle:
        """[N] ids -> [N, in]."""
        return self._tape.embed(table, scale)

    def linear(
        self,
        x: Handle,
        weight: _native.Matrix,
        *,
        bias: Handle | None = None,
        activation: Activation | None = None,
        residual: Handle | None = None,
    ) -> Handle:
        """[N, in] -> [N, out]: residual + activation(x @ weight.T + bias)."""
        return self._tape.linear(_view(x), weight, _constant(bias), activation, _optional_view(residual))

    def gated(self, x: Handle, gate_up: _native.Matrix, activation: Activation) -> Handle:
        """[N, in] -> [N, out / 2]: activation(gate) * up."""
        return self._tape.gated(_view(x), gate_up, activation)

    def split(self, x: Handle, sizes: Sequence[int]) -> tuple[Handle, ...]:
        """Consecutive column ranges of x, as views."""
        return tuple(_view(x).split(list(sizes)))

    def norm(
        self,
        x: Handle,
        weight: Handle,
        *,
        eps: float,
        kind: NormKind = "rms",
        bias: Handle | None = None,
        residual: Handle | None = None,
    ) -> Handle:
        """residual + normalised x * weight + bias over groups of len(weight) columns."""
        scale = _constant(weight)
        return self._tape.norm(_view(x), scale, eps, kind == "layer", _constant(bias), _optional_view(residual))

    def rope(self, x: Handle, positions: Handle, rope: Rope[Handle]) -> Handle:
        """x [N, heads * head_size] rotated by its rows' positions."""
        numbers = _native.RopeNumbers(_constant(rope.inv_freq), rope.head_size, rope.style == "interleaved", rope.scale)
        return self._tape.rope(_view(x), numbers)

    def write_kv(self, k: Handle, v: Handle, slot: KVSlot, meta: AttentionMeta[Handle]) -> None:
        """k, v [N, kv_heads * head_size] into the pool, rounded to its number format."""
        self._tape.write_kv(_view(k), _view(v), slot.group, slot.index)

    def attend(self, q: Handle, slot: KVSlot, attention: Attention[Handle], meta: AttentionMeta[Handle]) -> Handle:
        """q [N, heads * head_size] -> the same shape."""
        if attention.window is not None and attention.window < 1:
            raise ValueError(f"a window of {attention.window} sees nothing; None sees everything")
        numbers = _native.AttendNumbers(
            attention.num_heads,
            attention.scale,
            attention.window or 0,
            attention.softcap or 0.0,
            _constant(attention.alibi_slopes),
            _constant(attention.sinks),
        )
        heads = attention.num_kv_heads, attention.head_size
        return self._tape.attend(_view(q), *heads, slot.group, slot.index, numbers)

    def add(self, a: Handle, b: Handle) -> Handle:
        """a + b, of one shape."""
        return self._tape.add(_view(a), _view(b))

    def logits(self, x: Handle, weight: _native.Matrix, rows: Handle, *, softcap: float | None = None) -> Handle:
        """float32 [R, vocabulary] of the step's logit rows alone; only `compile` can take it."""
        self._logits = self._tape.logits(_view(x), weight, softcap or 0.0)
        return self._logits


class NativePlanner(NativeOps):
    """Records like NativeOps, but of the weights it takes the shapes alone: for what the program will take."""

    def prepare(self, parts: Sequence[Tensor]) -> _native.Matrix:
        """A shape; the parts' data is not touched."""
        return _native.Matrix.shaped(self.isa, [(part.type.name, part.shape[0]) for part in parts], _depth(parts))

    def measure(self, output: Handle, rows: int, *, kept: Handle | None = None) -> int:
        """Bytes beside pool and weights of what was recorded, `rows` rows of output among them."""
        view = _view(output)
        return self._tape.measure(view, _optional_view(kept)) + rows * view.columns * 4


def instruction_sets() -> Sequence[str]:
    """Those that this build has and this machine runs, narrowest first."""
    return _native.instruction_sets()


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _depth(parts: Sequence[Tensor]) -> int:
    depths = {part.shape[-1] for part in parts}
    if len(depths) != 1 or any(len(part.shape) != 2 for part in parts):
        raise ValueError(f"weights do not stack: {[(part.name, part.shape) for part in parts]}")
    return depths.pop()


def _view(handle: Handle) -> _native.View:
    if not isinstance(handle, _native.View):
        raise TypeError(f"{handle!r} is not an activation")
    return handle


def _optional_view(handle: Handle | None) -> _native.View | None:
    return None if handle is None else _view(handle)


def _constant(handle: Handle | None) -> _native.Constant | None:
    if handle is not None and not isinstance(handle, _native.Constant):
        raise TypeError(f"{handle!r} is not a constant")
    return handle
