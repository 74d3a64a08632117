"""The decoder of every model, written once against `Ops`. Knows no backend, no file format and no model by name.

Roles of tensors: embed, final_norm, head, and for each layer attn_norm, q, k, v, o (with q_bias, k_bias, v_bias,
o_bias), q_norm, k_norm, post_attn_norm, mlp_norm, gate, up, down, post_mlp_norm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from octavo.errors import ModelFormatError
from octavo.models.spec import LayerSpec, ModelSpec
from octavo.ops.base import Attention, AttentionMeta, KVSlot, Ops, Rope, StepInputs, StepResult, T, W
from octavo.ops.dequant import dequantize
from octavo.ops.tensor import Tensor
from octavo.weights.mapping import drop_pages


@dataclass(frozen=True, slots=True)
class _Layer(Generic[T, W]):
    """One layer, ready to run. qkv: q over k over v. gate_up: gate over up."""

    slot: KVSlot
    attention: Attention[T]
    rope: Rope[T]
    attn_norm: T
    qkv: W
    qkv_bias: T | None
    q_norm: T | None
    k_norm: T | None
    output: W
    output_bias: T | None
    post_attn_norm: T | None
    mlp_norm: T
    gate_up: W
    down: W
    post_mlp_norm: T | None


class Decoder(Generic[T, W]):
    """Calling it computes one step: the logits of the rows asked for, and every token's last state.

    Raises ModelFormatError when a tensor is missing, has another shape than the settings say, or is left over: every
    tensor of `tensors` is used exactly once, but for those that `spec.names` lists.
    """

    def __init__(self, spec: ModelSpec, ops: Ops[T, W], tensors: Mapping[str, Tensor]) -> None:
        self.spec = spec
        self._ops = ops
        checked = _CheckedTensors(spec, tensors)
        loader = _Loader(spec, ops, checked)
        self._embed = loader.weight(("embed", spec.vocab_size, spec.dims.hidden))
        self._head = self._embed if spec.tied else loader.weight(("head", spec.vocab_size, spec.dims.hidden))
        self._final_norm = loader.norm("final_norm", spec.dims.hidden)
        self._layers = loader.layers()
        checked.refuse_leftovers()

    def __call__(self, inputs: StepInputs[T]) -> StepResult[T]:
        """One step over a mix of prompt chunks and single tokens; writes their KV."""
        spec, ops = self.spec, self._ops
        x = ops.embed(inputs.ids, self._embed, scale=spec.embed_scale)
        for layer in self._layers:
            x = self._attend(x, layer, inputs.positions, inputs.meta)
            x = self._feed_forward(x, layer)
        x = ops.norm(x, self._final_norm, eps=spec.dims.eps)
        logits = ops.logits(x, self._head, inputs.logit_rows, softcap=spec.logits_softcap)
        return StepResult(logits, x)

    def _attend(self, x: T, layer: _Layer[T, W], positions: T, meta: AttentionMeta[T]) -> T:
        """x + attention(norm(x))."""
        ops, dims = self._ops, self.spec.dims
        qkv = ops.linear(ops.norm(x, layer.attn_norm, eps=dims.eps), layer.qkv, bias=layer.qkv_bias)
        q, k, v = ops.split(qkv, (dims.heads * dims.head_size, *(dims.kv_heads * dims.head_size,) * 2))
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = ops.norm(q, layer.q_norm, eps=dims.eps), ops.norm(k, layer.k_norm, eps=dims.eps)
        q, k = ops.rope(q, positions, layer.rope), ops.rope(k, positions, layer.rope)
        ops.write_kv(k, v, layer.slot, meta)
        mixed = ops.attend(q, layer.slot, layer.attention, meta)
        return self._project(mixed, layer.output, layer.output_bias, layer.post_attn_norm, x)

    def _feed_forward(self, x: T, layer: _Layer[T, W]) -> T:
        """x + mlp(norm(x))."""
        hidden = self._ops.norm(x, layer.mlp_norm, eps=self.spec.dims.eps)
        hidden = self._ops.gated(hidden, layer.gate_up, self.spec.activation)
        return self._project(hidden, layer.down, None, layer.post_mlp_norm, x)

    def _project(self, x: T, weight: W, bias: T | None, post_norm: T | None, residual: T) -> T:
        """residual + (norm of, where the model has one) x @ weight.T + bias."""
        if post_norm is None:
            return self._ops.linear(x, weight, bias=bias, residual=residual)
        x = self._ops.linear(x, weight, bias=bias)
        return self._ops.norm(x, post_norm, eps=self.spec.dims.eps, residual=residual)


class _CheckedTensors:
    """Gives tensors out by role, each once and in the shape that is due."""

    def __init__(self, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> None:
        self._spec = spec
        self._tensors = tensors
        self._left = dict.fromkeys(tensors)

    def take(self, role: str, shape: tuple[int, ...], layer: int) -> Tensor:
        name = self._spec.names.name(role, layer)
        if name not in self._tensors:
            raise ModelFormatError(f"tensor {name!r} is missing ({role} of {self._spec.architecture})")
        tensor = self._tensors[name]
        if tensor.shape != shape:
            raise ModelFormatError(f"tensor {name!r} is {list(tensor.shape)}, the settings make it {list(shape)}")
        del self._left[name]
        return tensor

    def refuse_leftovers(self) -> None:
        names = self._spec.names
        expected = names.absorbed | ({names.name("head")} if self._spec.tied else set())
        left = [name for name in self._left if name not in expected and not name.endswith(names.ignored_suffixes)]
        if left:
            listed = ", ".join(repr(name[:80]) for name in left[:5]) + (", ..." if len(left) > 5 else "")
            what = f"{len(left)} tensors that a {self._spec.architecture} model does not use: {listed}"
            raise ModelFormatError(f"the file has {what}; its output would be wrong without them")


class _Loader(Generic[T, W]):
    """Turns tensors into what the backend computes with, layer by layer."""

    def __init__(self, spec: ModelSpec, ops: Ops[T, W], tensors: _CheckedTensors) -> None:
        self._spec = spec
        self._ops = ops
        self._tensors = tensors

    def weight(self, *parts: tuple[str, int, int], layer: int = 0) -> W:
        """Matrices (role, out, in) stacked along their outputs."""
        tensors = [self._tensors.take(role, (rows, columns), layer) for role, rows, columns in parts]
        weight = self._ops.prepare(tensors)
        for tensor in tensors:
            drop_pages(tensor.data)  # the backend has what it needs: weights would be in memory twice
        return weight

    def norm(self, role: str, size: int, layer: int = 0) -> T:
        values = dequantize(self._tensors.take(role, (size,), layer))
        return self._ops.constant(values + np.float32(self._spec.norm_offset))

    def bias(self, *parts: tuple[str, int], layer: int) -> T:
        """Biases (role, size) end to end."""
        return self._ops.constant(np.concatenate([dequantize(self._tensors.take(r, (n,), layer)) for r, n in parts]))

    def layers(self) -> Sequence[_Layer[T, W]]:
        spec, ops = self._spec, self._ops
        ropes = [
            Rope(ops.constant(np.asarray(rope.inv_freq, np.float32)), spec.dims.head_size, rope.style, rope.scale)
            for rope in spec.ropes
        ]
        slots = spec.layer_slot
        return [self._layer(i, layer, slots[i], ropes[layer.rope]) for i, layer in enumerate(spec.layers)]

    def _layer(self, i: int, layer: LayerSpec, slot: KVSlot, rope: Rope[T]) -> _Layer[T, W]:
        spec, dims = self._spec, self._spec.dims
        hidden, inner, size = dims.hidden, dims.intermediate, dims.head_size
        q, kv = dims.heads * size, dims.kv_heads * size
        biases = spec.biases
        return _Layer(
            slot=slot,
            attention=Attention(dims.heads, dims.kv_heads, size, spec.attention_scale, layer.window),
            rope=rope,
            attn_norm=self.norm("attn_norm", hidden, i),
            qkv=self.weight(("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), layer=i),
            qkv_bias=self.bias(("q_bias", q), ("k_bias", kv), ("v_bias", kv), layer=i) if "qkv" in biases else None,
            q_norm=self.norm("q_norm", size, i) if spec.qk_norm else None,
            k_norm=self.norm("k_norm", size, i) if spec.qk_norm else None,
            output=self.weight(("o", hidden, q), layer=i),
            output_bias=self.bias(("o_bias", hidden), layer=i) if "o" in biases else None,
            post_attn_norm=self.norm("post_attn_norm", hidden, i) if spec.post_norms else None,
            mlp_norm=self.norm("mlp_norm", hidden, i),
            gate_up=self.weight(("gate", inner, hidden), ("up", inner, hidden), layer=i),
            down=self.weight(("down", hidden, inner), layer=i),
            post_mlp_norm=self.norm("post_mlp_norm", hidden, i) if spec.post_norms else None,
        )
