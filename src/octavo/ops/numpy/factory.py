"""A model on the numpy backend: eager, float32, whatever threads BLAS takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from octavo.ops.backends import Limits, Loaded, MakeDecoder, StepOutput
from octavo.ops.base import KVLayout, StepInputs
from octavo.ops.numpy.backend import NumpyOps
from octavo.ops.numpy.sampling import NumpyRowSampler
from octavo.ops.tensor import Tensor


class NumpyBackend:
    """See `octavo.ops.backends.Backend`. Limits have no meaning here: every step makes the arrays that it needs."""

    kv_dtype: Literal["float32", "bfloat16"] = "float32"

    def weight_bytes(self, tensors: Iterable[Tensor]) -> int:
        """Every weight in float32."""
        return sum(tensor.size for tensor in tensors) * 4

    def workspace_bytes(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> None:
        """Arrays come and go."""

    def load(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> Loaded:
        """The decoder itself, called every step."""
        ops = NumpyOps(layout)
        decoder = make_decoder(ops)

        def forward(inputs: StepInputs[Any]) -> StepOutput:
            result = decoder(inputs)
            return StepOutput(result.logits, result.hidden)

        return Loaded(forward, ops.pool, NumpyRowSampler(), _arithmetic())


def _arithmetic() -> str:
    """BLAS chooses its kernels by the processor, whose extensions numpy lists."""
    found = np.show_config("dicts")["SIMD Extensions"]["found"]
    return f"numpy {np.__version__} {' '.join(sorted(found))}"
