"""Gemma 3 (text) as data. Computes nothing."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from octavo.errors import UnsupportedModel
from octavo.models import llama
from octavo.models.rope import RopeSettings, rope_spec
from octavo.models.source import (
    Source,
    gguf_dimensions,
    gguf_rope,
    hf_activation,
    hf_dimensions,
    hf_rope,
    hf_rope_options,
    hf_tied,
)
from octavo.models.spec import LayerSpec, ModelSpec, TensorNames
from octavo.weights.fields import Fields

LOCAL_THETA = 10_000.0
GLOBAL_THETA = 1_000_000.0
PATTERN = 6  # every sixth layer sees everything
GGUF_NAMES = TensorNames(
    MappingProxyType(
        dict(llama.GGUF_NAMES.roles)
        | {"q_norm": "blk.{}.attn_q_norm.weight", "k_norm": "blk.{}.attn_k_norm.weight"}
        | {"post_attn_norm": "blk.{}.post_attention_norm.weight", "post_mlp_norm": "blk.{}.post_ffw_norm.weight"}
    )
)
_LAYER = "model.layers.{}."
HF_NAMES = TensorNames(
    MappingProxyType(
        dict(llama.HF_NAMES.roles)
        | {"q_norm": _LAYER + "self_attn.q_norm.weight", "k_norm": _LAYER + "self_attn.k_norm.weight"}
        | {"post_attn_norm": _LAYER + "post_attention_layernorm.weight"}
        | {"mlp_norm": _LAYER + "pre_feedforward_layernorm.weight"}
        | {"post_mlp_norm": _LAYER + "post_feedforward_layernorm.weight"}
    ),
    ignored_suffixes=llama.HF_NAMES.ignored_suffixes,
)


def from_gguf(source: Source) -> ModelSpec:
    """Architecture "gemma3". Norm weights are stored with their 1 added; queries and keys for a half-split rope."""
    fields = source.fields
    dims = gguf_dimensions(source, GGUF_NAMES)
    _refuse_attention_softcap(fields)
    window = fields.integer("attention.sliding_window")
    pattern = fields.integer("attention.sliding_window_pattern", PATTERN)
    whole = gguf_rope(source, dims)
    theta = fields.number("rope.freq_base_swa", LOCAL_THETA)
    local = RopeSettings(theta, whole.dim, whole.context, whole.length, Fields({}, "local rope"))
    # The largest of the family scales queries by the hidden size per head; the file does not say so.
    scale = (dims.hidden // dims.heads if dims.layers == 62 else dims.head_size) ** -0.5
    return ModelSpec(
        architecture="gemma3",
        dims=dims,
        layers=tuple(_layer((i + 1) % pattern != 0, window) for i in range(dims.layers)),
        ropes=(rope_spec(whole, "half"), rope_spec(local, "half")),
        names=GGUF_NAMES,
        vocab_size=source.vocab_size(GGUF_NAMES),
        tied=not source.has(GGUF_NAMES, "head"),
        activation="gelu_tanh",
        attention_scale=fields.number("attention.scale", scale),
        biases=source.biases(GGUF_NAMES),
        qk_norm=True,
        post_norms=True,
        embed_scale=_embed_scale(dims.hidden),
        logits_softcap=fields.optional_number("final_logit_softcapping"),
    )


def from_hf(source: Source) -> ModelSpec:
    """Gemma3ForCausalLM, the text model; config.json says it all."""
    fields = source.fields
    if fields.flag("use_bidirectional_attention", False):
        raise UnsupportedModel("Gemma 3 with attention in both directions is an encoder, which is not supported")
    dims = hf_dimensions(source, HF_NAMES, head_size=256)
    _refuse_attention_softcap(fields)
    window = fields.integer("sliding_window", 4096)
    options = hf_rope_options(fields)
    nested = "full_attention" in options or "sliding_attention" in options
    whole = options.child("full_attention") if nested else options
    local = options.child("sliding_attention") if nested else Fields({}, "local rope")
    ropes = (
        hf_rope(source, dims, whole, fields.number("rope_theta", GLOBAL_THETA)),
        hf_rope(source, dims, local, fields.number("rope_local_base_freq", LOCAL_THETA)),
    )
    return ModelSpec(
        architecture="gemma3",
        dims=dims,
        layers=tuple(_layer(windowed, window) for windowed in _hf_pattern(fields, dims.layers)),
        ropes=tuple(rope_spec(rope, "half") for rope in ropes),
        names=HF_NAMES,
        vocab_size=source.vocab_size(HF_NAMES),
        tied=hf_tied(source, HF_NAMES),
        activation=hf_activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        attention_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        biases=frozenset({"qkv", "o"}) if fields.flag("attention_bias", False) else source.biases(HF_NAMES),
        qk_norm=True,
        post_norms=True,
        norm_offset=1.0,
        embed_scale=_embed_scale(dims.hidden),
        logits_softcap=fields.optional_number("final_logit_softcapping"),
    )


def _layer(windowed: bool, window: int) -> LayerSpec:
    return LayerSpec(window, rope=1) if windowed else LayerSpec(None, rope=0)


def _hf_pattern(fields: Fields, layers: int) -> list[bool]:
    """Whether each layer is windowed."""
    kinds = {"sliding_attention": True, "full_attention": False}
    types = fields.get("layer_types")
    if types is None:
        pattern = fields.integer("sliding_window_pattern", PATTERN)
        return [(i + 1) % pattern != 0 for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers or not all(kind in kinds for kind in types):
        raise fields.fail(f"layer_types is not a list of {layers} of {', '.join(kinds)}")
    return [kinds[kind] for kind in types]


def _refuse_attention_softcap(fields: Fields) -> None:
    """No released Gemma 3 caps its attention scores, and implementations disagree on what the key would do here."""
    if "attn_logit_softcapping" in fields:
        raise UnsupportedModel("Gemma 3 with attn_logit_softcapping is not supported")


def _embed_scale(hidden: int) -> float:
    """The square root of the hidden size, rounded to float32 as the reference keeps it."""
    return float(np.float32(hidden**0.5))
