"""NumpyOps: the compute interface in float32 numpy. Holds the KV pool; knows no model, no scheduler and no files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequest
from octavo.ops.base import Activation, Attention, AttentionMeta, KVLayout, KVSlot, NormKind, Rope
from octavo.ops.kv_pool import KVPool
from octavo.ops.numpy.activations import ACTIVATIONS
from octavo.ops.numpy.attention import KEYS, attend
from octavo.ops.numpy.products import RowTiles, Weight, live_rows, prepare
from octavo.ops.tensor import Tensor

# A handle is an array: float32 for activations and constants, integers for ids, positions and tables.
# Infinities and NaN that a model makes are results like any other here: whoever samples from them notices.
Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]


class NumpyOps:
    """Implements `Ops[Any array, Weight]` for one KVLayout; `pool` is the KV pool that it owns."""

    def __init__(self, layout: KVLayout) -> None:
        self.pool = KVPool(layout)
        size = layout.head_size
        self._query_tiles = RowTiles(min(live_rows(size, KEYS, transposed=True), live_rows(KEYS, size)))

    def prepare(self, parts: Sequence[Tensor]) -> Weight:
        """Float32 panels of the stacked parts. ModelFormatError on bad bytes, ValueError on unequal depths."""
        return prepare(parts)

    def constant(self, values: Floats) -> Floats:
        """The values themselves, as contiguous float32."""
        return np.ascontiguousarray(values, np.float32)

    @np.errstate(all="ignore")
    def embed(self, ids: npt.NDArray[np.integer], table: Weight, *, scale: float = 1.0) -> Floats:
        """[N] ids -> [N, in]. InvalidRequest when an id is not in the table."""
        if ids.size and (ids.min() < 0 or ids.max() >= table.out):
            wrong = ids[(ids < 0) | (ids >= table.out)][0]
            raise InvalidRequest(f"token id {wrong} is not in 0..{table.out - 1}", param="prompt")
        return table.rows(ids) * np.float32(scale)

    @np.errstate(all="ignore")
    def linear(
        self,
        x: Floats,
        weight: Weight,
        *,
        bias: Floats | None = None,
        activation: Activation | None = None,
        residual: Floats | None = None,
    ) -> Floats:
        """[N, in] -> [N, out]: residual + activation(x @ weight.T + bias)."""
        y = _times(x, weight)
        if bias is not None:
            _check_width("bias", bias, weight.out)
            y = y + bias
        if activation is not None:
            y = ACTIVATIONS[activation](y)
        return y if residual is None else self.add(residual, y)

    @np.errstate(all="ignore")
    def gated(self, x: Floats, gate_up: Weight, activation: Activation) -> Floats:
        """[N, in] -> [N, out / 2]: activation(gate) * up."""
        gate, up = np.split(_times(x, gate_up), 2, axis=1)
        return ACTIVATIONS[activation](gate) * up

    def split(self, x: Floats, sizes: Sequence[int]) -> tuple[Floats, ...]:
        """Consecutive column ranges of x, as views."""
        if sum(sizes) != x.shape[1]:
            raise ValueError(f"{x.shape[1]} columns do not split into {list(sizes)}")
        ends = np.cumsum(sizes)
        return tuple(x[:, end - size : end] for size, end in zip(sizes, ends, strict=True))

    @np.errstate(all="ignore")
    def norm(
        self,
        x: Floats,
        weight: Floats,
        *,
        eps: float,
        kind: NormKind = "rms",
        bias: Floats | None = None,
        residual: Floats | None = None,
    ) -> Floats:
        """residual + normalised x * weight + bias over groups of len(weight) columns."""
        width = len(weight)
        if x.shape[1] % width:
            raise ValueError(f"{x.shape[1]} columns are not groups of {width}")
        groups = np.ascontiguousarray(x).reshape(len(x), -1, width)
        if kind == "layer":
            groups = groups - groups.mean(axis=-1, keepdims=True)
        power = np.square(groups).mean(axis=-1, keepdims=True)
        y = groups / np.sqrt(power + np.float32(eps)) * weight
        if bias is not None:
            _check_width("bias", bias, width)
            y = y + bias
        y = y.reshape(x.shape)
        return y if residual is None else self.add(residual, y)

    @np.errstate(all="ignore")
    def rope(self, x: Floats, positions: npt.NDArray[np.integer], rope: Rope[Floats]) -> Floats:
        """x [N, heads * head_size] rotated by its rows' positions.

        An angle is the float32 product of position and frequency, as trained models had it; its cosine and sine are
        exact to float32.
        """
        rotary = 2 * len(rope.inv_freq)
        if x.shape[1] % rope.head_size or rotary > rope.head_size:
            raise ValueError(f"{x.shape[1]} columns, heads of {rope.head_size}, {rotary} rotated: no such rotation")
        angles = positions.astype(np.float32)[:, None] * rope.inv_freq
        cos, sin = ((f(angles.astype(np.float64)) * rope.scale).astype(np.float32)[:, None] for f in (np.cos, np.sin))
        out = x.reshape(len(x), -1, rope.head_size).copy()
        turned = out[:, :, :rotary]
        half = rotary // 2
        first, second = (
            (turned[..., :half], turned[..., half:]) if rope.style == "half" else (turned[..., ::2], turned[..., 1::2])
        )
        first[:], second[:] = first * cos - second * sin, second * cos + first * sin
        return out.reshape(x.shape)

    def write_kv(self, k: Floats, v: Floats, slot: KVSlot, meta: AttentionMeta[Array]) -> None:
        """k, v [N, kv_heads * head_size] into the pool. KVError, and nothing written, when a slot is outside of it."""
        layout = self.pool.layout
        shape = (len(k), layout.kv_heads, layout.head_size)
        self._check_slot(slot, meta)
        self.pool.write(meta.slot_mapping[slot.group], slot.index, k.reshape(shape), v.reshape(shape))

    @np.errstate(all="ignore")
    def attend(self, q: Floats, slot: KVSlot, attention: Attention[Floats], meta: AttentionMeta[Array]) -> Floats:
        """q [N, heads * head_size] -> the same shape. KVError when a block that is needed is not in the table."""
        layout = self.pool.layout
        here = (attention.num_kv_heads, attention.head_size)
        if here != (layout.kv_heads, layout.head_size) or attention.num_heads % attention.num_kv_heads:
            raise ValueError(f"{attention.num_heads} heads, KV {here}: the pool holds {layout}")
        if attention.window is not None and attention.window < 1:
            raise ValueError(f"a window of {attention.window} sees nothing; None sees everything")
        self._check_slot(slot, meta)
        return attend(q, self.pool, slot, attention, meta, self._query_tiles)

    @np.errstate(all="ignore")
    def add(self, a: Floats, b: Floats) -> Floats:
        """a + b, of one shape."""
        if a.shape != b.shape:
            raise ValueError(f"{a.shape} and {b.shape} do not add")
        return a + b

    @np.errstate(all="ignore")
    def logits(
        self, x: Floats, weight: Weight, rows: npt.NDArray[np.integer], *, softcap: float | None = None
    ) -> Floats:
        """float32 [R, vocabulary] of the given rows alone."""
        if rows.size and (rows.min() < 0 or rows.max() >= len(x)):
            raise ValueError(f"logits of rows {rows.tolist()} are wanted, of {len(x)}")
        y = _times(x[rows], weight)
        if softcap is None:
            return y
        cap = np.float32(softcap)
        capped: Floats = cap * np.tanh(y / cap)
        return capped

    def _check_slot(self, slot: KVSlot, meta: AttentionMeta[Array]) -> None:
        if not (0 <= slot.index < self.pool.layout.layers and 0 <= slot.group < len(meta.block_table)):
            raise ValueError(f"{slot}: there are {len(meta.block_table)} groups of {self.pool.layout.layers} layers")


def _times(x: Floats, weight: Weight) -> Floats:
    if x.ndim != 2 or x.shape[1] != weight.depth:
        raise ValueError(f"activations {x.shape} meet a weight of {weight.depth} columns")
    return weight.times(x)


def _check_width(what: str, values: Floats, width: int) -> None:
    if values.shape != (width,):
        raise ValueError(f"{what} of shape {values.shape} for {width} columns")
