"""A model on the native backend: its decoder recorded once, then run as a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from octavo.ops.backends import Limits, Loaded, MakeDecoder, StepOutput
from octavo.ops.base import KVLayout, StepInputs
from octavo.ops.native import _native
from octavo.ops.native.backend import NativeOps
from octavo.ops.native.program import step_symbols
from octavo.ops.native.sampling import NativeRowSampler
from octavo.ops.tensor import Tensor


class NativeBackend:
    """See `octavo.ops.backends.Backend`."""

    kv_dtype: Literal["float32", "bfloat16"] = "bfloat16"

    def weight_bytes(self, tensors: Iterable[Tensor]) -> int:
        """Packed matrices, their codes as in the file; vectors in float32."""
        return sum(
            _native.packed_bytes(tensor.type.name, *tensor.shape) if len(tensor.shape) == 2 else tensor.size * 4
            for tensor in tensors
        )

    def load(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> Loaded:
        """The decoder is called here, and never again."""
        ops = NativeOps(layout, max_tokens=limits.max_tokens, threads=limits.threads, isa=limits.isa)
        program = ops.compile(make_decoder(ops)(step_symbols()), largest=limits.sampled)

        def forward(inputs: StepInputs[Any]) -> StepOutput:
            return StepOutput(program(inputs), program.largest_ids)

        return Loaded(forward, ops.pool, NativeRowSampler(ops.runtime), f"native {ops.isa}")
