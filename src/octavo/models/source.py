"""Reads what families share from either kind of model file: sizes, rope, activation. Knows no family by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.errors import ModelFormatError, UnsupportedModel
from octavo.models.rope import RopeSettings
from octavo.models.spec import Dimensions, TensorNames
from octavo.ops.base import Activation
from octavo.ops.tensor import Tensor
from octavo.weights.fields import Fields

_ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "silu": "silu",
        "swish": "silu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu": "relu",
    }
)
_GGUF_SCALING_KEYS = MappingProxyType(
    {"type": "rope_type", "factor": "factor", "original_context_length": "original_max_position_embeddings"}
    | {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
)


@dataclass(frozen=True, slots=True)
class Source:
    """What a family builds its spec from. fields: of the architecture's own keys (GGUF: "llama." is their prefix).
    tensors: by name. length: the longest sequence to be served, None for the model's own context."""

    fields: Fields
    tensors: Mapping[str, Tensor]
    length: int | None

    def vocab_size(self, names: TensorNames) -> int:
        """Rows of the embedding matrix, which may be padded beyond the tokenizer."""
        return self._tensor(names.name("embed")).shape[0]

    def has(self, names: TensorNames, *roles: str) -> bool:
        """Whether the (first layer's) tensors of any of the roles are there."""
        return any(names.name(role) in self.tensors for role in roles)

    def biases(self, names: TensorNames) -> frozenset[str]:
        """Projections for which the file has biases."""
        kinds = {"qkv": ("q_bias", "k_bias", "v_bias"), "o": ("o_bias",)}
        return frozenset(kind for kind, roles in kinds.items() if self.has(names, *roles))

    def check_layers(self, layers: int, names: TensorNames) -> None:
        """Refuse a number of layers that the tensors belie, before anything is made for each."""
        if layers > len(self.tensors) or names.name("attn_norm", layers - 1) not in self.tensors:
            name = names.name("attn_norm", layers - 1)
            raise self.fields.fail(f"{layers} layers are claimed, but tensor {name!r} is missing")

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise ModelFormatError(f"tensor {name!r} is missing")
        return self.tensors[name]


def gguf_dimensions(source: Source, names: TensorNames) -> Dimensions:
    """Sizes from GGUF keys."""
    fields = source.fields
    hidden, heads = fields.integer("embedding_length"), fields.integer("attention.head_count")
    head_size = fields.integer("attention.key_length", max(hidden // heads, 1))
    if fields.integer("attention.value_length", head_size) != head_size:
        raise UnsupportedModel("heads whose values differ in size from their keys are not supported")
    dims = Dimensions(
        layers=fields.integer("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=fields.integer("attention.head_count_kv", heads),
        head_size=head_size,
        intermediate=fields.integer("feed_forward_length"),
        context=fields.integer("context_length"),
        eps=fields.number("attention.layer_norm_rms_epsilon"),
    )
    return _checked(dims, source, names)


def hf_dimensions(source: Source, names: TensorNames, head_size: int | None = None) -> Dimensions:
    """Sizes from config.json. head_size: the family's own default where the file gives none."""
    fields = source.fields
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    dims = Dimensions(
        layers=fields.integer("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", heads),
        head_size=fields.integer("head_dim", head_size or max(hidden // heads, 1)),
        intermediate=fields.integer("intermediate_size"),
        context=int(fields.assumed("max_position_embeddings", 2048)),
        eps=fields.number("rms_norm_eps", 1e-6),
    )
    return _checked(dims, source, names)


def _checked(dims: Dimensions, source: Source, names: TensorNames) -> Dimensions:
    if dims.heads % dims.kv_heads:
        raise source.fields.fail(f"{dims.heads} query heads cannot share {dims.kv_heads} key-value heads evenly")
    source.check_layers(dims.layers, names)
    return dims


def gguf_rope(source: Source, dims: Dimensions) -> RopeSettings:
    """The (global) rope from GGUF keys; "rope.scale_linear" is an older spelling of linear scaling."""
    fields = source.fields
    options = {
        ours: value
        for theirs, ours in _GGUF_SCALING_KEYS.items()
        if (value := fields.get(f"rope.scaling.{theirs}")) is not None
    }
    if options.get("rope_type") == "none":
        options["rope_type"] = "default"
    if "rope_type" not in options and fields.number("rope.scale_linear", 1.0) != 1.0:
        options = {"rope_type": "linear", "factor": fields.number("rope.scale_linear")}
    scaling = Fields(options, "rope.scaling of the GGUF file")
    if options.get("rope_type") == "yarn":
        options["attention_factor"] = _gguf_yarn_scale(fields, scaling)
    return RopeSettings(
        theta=fields.assumed("rope.freq_base", 10000.0),
        dim=fields.integer("rope.dimension_count", dims.head_size, high=dims.head_size),
        context=dims.context,
        length=source.length or dims.context,
        options=scaling,
    )


def _gguf_yarn_scale(fields: Fields, scaling: Fields) -> float:
    """YaRN's usual attention factor times what the file gives on top of it."""
    factor = scaling.number("factor")
    return fields.number("rope.scaling.attn_factor", 1.0) * (1.0 + 0.1 * math.log(max(factor, 1.0)))


def hf_rope(source: Source, dims: Dimensions, options: Fields, theta: float | None = None) -> RopeSettings:
    """One rope from config.json. options: its object there. theta: the base where the options have none.

    The base is spelled rope_theta, inside the rope's object or beside it; inside wins. A partial rotation likewise.
    """
    fields = source.fields
    if "rope_theta" in options:
        theta = options.number("rope_theta")
    partial = options.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if "original_max_position_embeddings" in fields:
        original = fields.integer("original_max_position_embeddings")
        options = options.having("original_max_position_embeddings", original)
    return RopeSettings(
        theta=fields.assumed("rope_theta", 10000.0) if theta is None else theta,
        dim=int(dims.head_size * partial),
        context=dims.context,
        length=source.length or dims.context,
        options=options,
    )


def hf_rope_options(fields: Fields) -> Fields:
    """The object that describes the rope: rope_parameters of newer files, rope_scaling of older ones."""
    return fields.child("rope_parameters" if "rope_parameters" in fields else "rope_scaling")


def hf_activation(fields: Fields, key: str, default: str) -> Activation:
    """An activation by its name in config.json; UnsupportedModel for an unknown one."""
    name = fields.text(key, default)
    if name not in _ACTIVATIONS:
        raise UnsupportedModel(f"activation {name!r:.80} is not supported; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def hf_tied(source: Source, names: TensorNames) -> bool:
    """Whether logits use the embedding matrix: what the file says, else whether it lacks a separate one."""
    return source.fields.flag("tie_word_embeddings", not source.has(names, "head"))
