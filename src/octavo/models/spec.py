"""A model as data: numbers and names that tell the one decoder what to compute. Reads no files, computes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.ops.base import Activation, KVLayout, KVSlot, RopeStyle


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes shared by all layers. head_size: of queries, keys and values alike. intermediate: of the gated MLP.
    context: the most tokens that the model was made for. eps: of every norm."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    context: int
    eps: float


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """One rotary embedding; fields as in `ops.base.Rope`. inv_freq: float32 values, scaling applied."""

    inv_freq: tuple[float, ...]
    style: RopeStyle
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """How layers differ. window: keys that a query sees, itself included; None for all. rope: index in `spec.ropes`."""

    window: int | None
    rope: int


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Role -> name in the file; "{}" stands for the layer. Roles: see `decoder.py`.

    absorbed: tensors whose values are already in the spec. ignored: tensors that a sound file may have and that carry
    nothing (`suffixes` of names); whatever else is left over makes the load fail.
    """

    roles: Mapping[str, str]
    absorbed: frozenset[str] = frozenset()
    ignored_suffixes: tuple[str, ...] = ()

    def name(self, role: str, layer: int = 0) -> str:
        """Name of the tensor in the file."""
        return self.roles[role].format(layer)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything that distinguishes one model from another.

    vocab_size: rows of the embedding matrix, padding included. tied: logits use the embedding matrix, and a separate
    output matrix, should the file have one, is not read. biases: projections with a bias, of "qkv" and "o".
    qk_norm: norm of each query and key head. post_norms: norms after attention and MLP, before the residual is added.
    norm_offset: added to every norm weight of the file. embed_scale: factor on embeddings. attention_scale: factor on
    scores. logits_softcap: see `Ops.logits`.
    """

    architecture: str
    dims: Dimensions
    layers: tuple[LayerSpec, ...]
    ropes: tuple[RopeSpec, ...]
    names: TensorNames
    vocab_size: int
    tied: bool
    activation: Activation
    attention_scale: float
    biases: frozenset[str] = frozenset()
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    embed_scale: float = 1.0
    logits_softcap: float | None = None

    @property
    def groups(self) -> tuple[int | None, ...]:
        """Window of each layer group; a group's layers share block tables. Full attention comes first.

        All groups have equally many layers, so layers of one kind are cut into several groups where kinds differ in
        number: 3 full and 15 windowed layers make 1 + 5 groups of 3. Layers of one kind alone are one group.
        """
        counts = self._kinds()
        size = math.gcd(*counts.values())
        return tuple(window for window, count in counts.items() for _ in range(count // size))

    @property
    def layer_slot(self) -> tuple[KVSlot, ...]:
        """KV slot of each layer."""
        size = len(self.layers) // len(self.groups)
        starts, seen = {}, 0
        for window, count in self._kinds().items():
            starts[window], seen = seen, seen + count
        slots = []
        for layer in self.layers:
            slots.append(KVSlot(*divmod(starts[layer.window], size)))
            starts[layer.window] += 1
        return tuple(slots)

    def kv_layout(self, num_blocks: int, block_size: int) -> KVLayout:
        """Layout of a float32 pool for this model."""
        layers = len(self.layers) // len(self.groups)
        return KVLayout(num_blocks, layers, self.dims.kv_heads, block_size, self.dims.head_size)

    def _kinds(self) -> dict[int | None, int]:
        """Window -> number of layers; full attention first, then by width."""
        windows = [layer.window for layer in self.layers]
        ordered = sorted(set(windows), key=lambda window: -1 if window is None else window)
        return {window: windows.count(window) for window in ordered}
