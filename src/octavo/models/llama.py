"""The Llama family (Llama, SmolLM2, Mistral) as data. Computes nothing."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from octavo.errors import UnsupportedModel
from octavo.models.rope import rope_spec
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
from octavo.ops.dequant import dequantize

ROPE_DIVISORS = "rope_freqs.weight"
GGUF_NAMES = TensorNames(
    MappingProxyType(
        {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
        | {"attn_norm": "blk.{}.attn_norm.weight", "mlp_norm": "blk.{}.ffn_norm.weight"}
        | {"q": "blk.{}.attn_q.weight", "k": "blk.{}.attn_k.weight", "v": "blk.{}.attn_v.weight"}
        | {"q_bias": "blk.{}.attn_q.bias", "k_bias": "blk.{}.attn_k.bias", "v_bias": "blk.{}.attn_v.bias"}
        | {"o": "blk.{}.attn_output.weight", "o_bias": "blk.{}.attn_output.bias"}
        | {"gate": "blk.{}.ffn_gate.weight", "up": "blk.{}.ffn_up.weight", "down": "blk.{}.ffn_down.weight"}
    ),
    absorbed=frozenset({ROPE_DIVISORS}),
)
_LAYER = "model.layers.{}."
HF_NAMES = TensorNames(
    MappingProxyType(
        {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}
        | {"attn_norm": _LAYER + "input_layernorm.weight", "mlp_norm": _LAYER + "post_attention_layernorm.weight"}
        | {role: f"{_LAYER}self_attn.{role}_proj.weight" for role in ("q", "k", "v", "o")}
        | {f"{role}_bias": f"{_LAYER}self_attn.{role}_proj.bias" for role in ("q", "k", "v", "o")}
        | {role: f"{_LAYER}mlp.{role}_proj.weight" for role in ("gate", "up", "down")}
    ),
    ignored_suffixes=("rotary_emb.inv_freq",),
)


def from_gguf(source: Source) -> ModelSpec:
    """Architecture "llama". Its queries and keys are stored for a rope that pairs neighbours."""
    dims = gguf_dimensions(source, GGUF_NAMES)
    if "expert_count" in source.fields and source.fields.integer("expert_count", low=0) > 0:
        raise UnsupportedModel("a llama model with experts (mixture of experts) is not supported")
    tensor = source.tensors.get(ROPE_DIVISORS)
    divisors = None if tensor is None else dequantize(tensor)
    return ModelSpec(
        architecture="llama",
        dims=dims,
        layers=(LayerSpec(source.fields.optional_integer("attention.sliding_window"), rope=0),) * dims.layers,
        ropes=(rope_spec(gguf_rope(source, dims), "interleaved", divisors),),
        names=GGUF_NAMES,
        vocab_size=source.vocab_size(GGUF_NAMES),
        tied=not source.has(GGUF_NAMES, "head"),
        activation="silu",
        attention_scale=source.fields.number("attention.scale", dims.head_size**-0.5),
        biases=source.biases(GGUF_NAMES),
    )


def from_hf(source: Source) -> ModelSpec:
    """LlamaForCausalLM; config.json says it all."""
    fields = source.fields
    dims = hf_dimensions(source, HF_NAMES)
    if fields.flag("mlp_bias", False):
        raise UnsupportedModel("mlp_bias is not supported: no released model of the Llama family has it")
    return ModelSpec(
        architecture="llama",
        dims=dims,
        layers=(LayerSpec(None, rope=0),) * dims.layers,
        ropes=(rope_spec(hf_rope(source, dims, hf_rope_options(fields)), "half"),),
        names=HF_NAMES,
        vocab_size=source.vocab_size(HF_NAMES),
        tied=hf_tied(source, HF_NAMES),
        activation=hf_activation(fields, "hidden_act", "silu"),
        attention_scale=dims.head_size**-0.5,
        biases=frozenset({"qkv", "o"}) if fields.flag("attention_bias", False) else source.biases(HF_NAMES),
    )


def mistral_from_hf(source: Source) -> ModelSpec:
    """MistralForCausalLM: Llama with a window on every layer, where config.json has one."""
    spec = from_hf(source)
    window = source.fields.optional_integer("sliding_window")
    return replace(spec, layers=(LayerSpec(window, rope=0),) * len(spec.layers))
