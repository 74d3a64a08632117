"""The compute interface: what a decoder may ask of a backend. Holds no arrays and no model, computes nothing.

`T` is a backend's handle of an activation or constant (a numpy array, a slot of a recorded tape, a device tensor) and
`W` its handle of prepared weights. A decoder treats both as opaque, so one decoder serves eager and recording backends,
and nothing here assumes host memory. Activations are [tokens, features], row-major, one row a token; every row of every
result depends on its own sequence alone, and its bits do not depend on which other rows are in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from octavo.ops.tensor import Tensor

T = TypeVar("T")
W = TypeVar("W")

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
NormKind = Literal["rms", "layer"]
RopeStyle = Literal["half", "interleaved"]


@dataclass(frozen=True, slots=True)
class AttentionMeta(Generic[T]):
    """Where the step's tokens and their KV are. There is no prefill or decode here: only rows of new tokens.

    S sequences, N new tokens in all, G layer groups (layers that share a block table), B table columns.
    cu_seqlens_q: int32 [S + 1], row offsets of each sequence's new tokens. seq_lens: int32 [S], tokens of the sequence
    whose KV exists once this step's are written. block_table: int32 [G, S, B], -1 where a block was given back because
    its group's window has passed it. slot_mapping: int64 [G, N], block * block_size + offset of each new token.
    max_query_len, max_seq_len: bounds of what there is, as close as the caller cares to keep them.
    """

    cu_seqlens_q: T
    seq_lens: T
    block_table: T
    slot_mapping: T
    max_query_len: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class StepInputs(Generic[T]):
    """What one step computes. ids, positions: int32 [N]. logit_rows: int32 [R], the rows whose logits are wanted."""

    ids: T
    positions: T
    logit_rows: T
    meta: AttentionMeta[T]


@dataclass(frozen=True, slots=True)
class StepResult(Generic[T]):
    """What a decoder makes of one step. logits: float32 [R, vocab_size] of the rows asked for. hidden: [N, hidden],
    every token's state after the last norm, from which logits and embeddings are made."""

    logits: T
    hidden: T


@dataclass(frozen=True, slots=True)
class KVSlot:
    """Which KV one layer owns: its group (whose block table it uses) and its index among the group's layers."""

    group: int
    index: int


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape and number format of the paged pool: [num_blocks, layers, 2 (K, V), kv_heads, block_size, head_size].

    `layers` is the number of layers of one group: every group has equally many and draws blocks from the one pool.
    A backend may order the values of one head's keys within a block as its kernels like (the native one does, see
    native/core/kv_pool.h), so a block's bytes mean something to the backend and layout that wrote them alone.
    """

    num_blocks: int
    layers: int
    kv_heads: int
    block_size: int
    head_size: int
    dtype: Literal["float32", "bfloat16"] = "float32"

    @property
    def block_bytes(self) -> int:
        """Bytes of one block: layers x 2 x kv_heads x head_size x block_size x bytes of a value."""
        width = 4 if self.dtype == "float32" else 2
        return self.layers * 2 * self.kv_heads * self.head_size * self.block_size * width


@dataclass(frozen=True, slots=True)
class Rope(Generic[T]):
    """Rotary embedding. inv_freq: float32 [rotary / 2], radians a position, scaling already applied; the first
    2 * len values of each head are rotated, pairing i with i + len ("half") or 2i with 2i + 1 ("interleaved").
    scale: factor on cos and sin (YaRN's attention factor)."""

    inv_freq: T
    head_size: int
    style: RopeStyle = "half"
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Attention(Generic[T]):
    """Numbers of one layer's attention. score = scale * q.k, then softcap * tanh(score / softcap), then
    + alibi_slopes[h] * (j - i), then the mask: query i sees keys j with max(0, i - window + 1) <= j <= i.
    alibi_slopes: float32 [num_heads]. sinks: float32 [num_heads], a logit that joins the softmax and has no value."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    alibi_slopes: T | None = None
    sinks: T | None = None


class Ops(Protocol[T, W]):
    """A dozen fused operations. A backend is built for one KVLayout and owns that pool.

    `prepare` and `constant` are called while a model loads, the others once a step (eager) or once (recording).
    """

    def prepare(self, parts: Sequence[Tensor]) -> W:
        """Weights [sum of out, in] from parts stacked along their first axis, which may differ in storage type."""
        ...

    def constant(self, values: npt.NDArray[np.float32]) -> T:
        """A small float32 constant (norm weights, biases, frequencies, slopes)."""
        ...

    def embed(self, ids: T, table: W, *, scale: float = 1.0) -> T:
        """[N] ids -> [N, in]: rows of the table times scale."""
        ...

    def linear(
        self, x: T, weight: W, *, bias: T | None = None, activation: Activation | None = None, residual: T | None = None
    ) -> T:
        """[N, in] -> [N, out]: residual + activation(x @ weight.T + bias)."""
        ...

    def gated(self, x: T, gate_up: W, activation: Activation) -> T:
        """[N, in] -> [N, out / 2]: activation(x @ gate.T) * (x @ up.T), gate stacked above up in one weight."""
        ...

    def split(self, x: T, sizes: Sequence[int]) -> tuple[T, ...]:
        """Consecutive column ranges of x, as views where the backend can."""
        ...

    def norm(
        self, x: T, weight: T, *, eps: float, kind: NormKind = "rms", bias: T | None = None, residual: T | None = None
    ) -> T:
        """residual + normalised x * weight + bias over groups of len(weight) columns: a whole row for a hidden norm,
        each head for a query/key norm."""
        ...

    def rope(self, x: T, positions: T, rope: Rope[T]) -> T:
        """x [N, heads * head_size] rotated by its rows' positions."""
        ...

    def write_kv(self, k: T, v: T, slot: KVSlot, meta: AttentionMeta[T]) -> None:
        """k, v [N, kv_heads * head_size] into the pool at meta.slot_mapping[slot.group]."""
        ...

    def attend(self, q: T, slot: KVSlot, attention: Attention[T], meta: AttentionMeta[T]) -> T:
        """q [N, heads * head_size] -> the same shape, reading KV only through meta.block_table[slot.group]."""
        ...

    def add(self, a: T, b: T) -> T:
        """a + b."""
        ...

    def logits(self, x: T, weight: W, rows: T, *, softcap: float | None = None) -> T:
        """float32 [R, vocabulary] of the given rows alone; softcap * tanh(y / softcap) when given."""
        ...
