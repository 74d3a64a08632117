"""A model on the native backend: its decoder recorded once, then run as a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from octavo.errors import InvalidRequest
from octavo.ops.backends import Limits, Loaded, MakeDecoder, StepOutput
from octavo.ops.base import KVLayout, StepInputs
from octavo.ops.native import _native
from octavo.ops.native.backend import NativeOps, NativePlanner, instruction_sets
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

    def workspace_bytes(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> int:
        """What a tape of the decoder asks for, recorded over shapes."""
        ops = NativePlanner(
            replace(layout, num_blocks=1),
            max_tokens=limits.max_tokens,
            max_length=limits.max_length,
            threads=limits.threads,
            isa=_known(limits.isa),
        )
        result = make_decoder(ops)(step_symbols())
        return ops.measure(result.logits, limits.max_rows, kept=result.hidden)

    def load(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> Loaded:
        """The decoder is called here, and never again."""
        ops = NativeOps(
            layout,
            max_tokens=limits.max_tokens,
            max_length=limits.max_length,
            threads=limits.threads,
            isa=_known(limits.isa),
        )
        result = make_decoder(ops)(step_symbols())
        program = ops.compile(result.logits, largest=limits.sampled, rows=limits.max_rows, kept=result.hidden)

        def forward(inputs: StepInputs[Any]) -> StepOutput:
            return StepOutput(program(inputs), program.kept[: len(inputs.ids)], program.largest_ids)

        return Loaded(forward, ops.pool, NativeRowSampler(ops.runtime), f"native {ops.isa}")


def _known(isa: str | None) -> str | None:
    if isa is not None and isa not in instruction_sets():
        raise InvalidRequest(f"this machine does not run {isa!r}, but {', '.join(instruction_sets())}", param="isa")
    return isa
