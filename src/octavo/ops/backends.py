"""What an engine needs of a compute backend besides `Ops`, and the backends by name. Computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequest
from octavo.ops.base import KVLayout, Ops, StepInputs, StepResult
from octavo.ops.kv_pool import KVPool
from octavo.ops.sampling import RowSampler
from octavo.ops.tensor import Tensor

MakeDecoder = Callable[[Ops[Any, Any]], Callable[[StepInputs[Any]], StepResult[Any]]]
NAMES = ("native", "numpy")


@dataclass(frozen=True, slots=True)
class StepOutput:
    """logits: float32 [R, vocabulary]; hidden: float32 [N, hidden], of every token after the last norm; both valid
    until the next step. top: int32 [R], each row's largest of the leading `Limits.sampled` logits, the first among
    equals, or -1 where that is not finite; None where the backend leaves that to the caller."""

    logits: npt.NDArray[np.float32]
    hidden: npt.NDArray[np.float32]
    top: npt.NDArray[np.int32] | None = None


Forward = Callable[[StepInputs[npt.NDArray[np.generic]]], StepOutput]


@dataclass(frozen=True, slots=True)
class Limits:
    """max_tokens: of one step. max_rows: of those, how many may want logits. max_length: of a sequence. sampled:
    leading logits that may be sampled. threads, isa: None for all of the process's cores and the widest set."""

    max_tokens: int
    max_rows: int
    max_length: int
    sampled: int
    threads: int | None = None
    isa: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on a backend. forward: runs one step. pool: its KV. rows: draws tokens from logits. arithmetic: names
    what decides the bits of its results besides model and settings (instruction set, libraries), the same in every
    process on a like machine."""

    forward: Forward
    pool: KVPool
    rows: RowSampler
    arithmetic: str


class Backend(Protocol):
    """How a model gets onto one backend."""

    @property
    def kv_dtype(self) -> Literal["float32", "bfloat16"]:
        """Number format of the KV pool unless somebody chooses."""
        ...

    def weight_bytes(self, tensors: Iterable[Tensor]) -> int:
        """At most what the weights will take, before any is read."""
        ...

    def workspace_bytes(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> int | None:
        """At most what the largest step takes beside weights and pool, before any weight is read. None where nobody
        knows but the caller, who may estimate."""
        ...

    def load(self, layout: KVLayout, limits: Limits, make_decoder: MakeDecoder) -> Loaded:
        """Prepare the weights through `make_decoder` and hold a pool of this layout."""
        ...


def backend(name: str) -> Backend:
    """The backend of that name, of `NAMES`. InvalidRequest where this installation lacks it."""
    if name == "numpy":
        from octavo.ops.numpy.factory import NumpyBackend

        return NumpyBackend()
    try:
        from octavo.ops.native.factory import NativeBackend
    except ImportError as error:
        raise InvalidRequest(
            f"this installation has no native backend ({error}); build it with pip install, or take --backend numpy",
            param="backend",
        ) from error
    return NativeBackend()
