"""Tiny random checkpoints made by transformers, saved as directories or written as GGUF files by the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

VOCAB = 96
TOKENS = np.random.default_rng(7).integers(0, VOCAB, 200).tolist()


def randomised(model: Any, seed: int = 0) -> Any:
    """Every parameter random, norms and biases too, large enough that attention and every term matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2:
                parameter.copy_(noise * (1.5 / parameter.shape[1] ** 0.5))
            else:
                parameter.copy_(parameter + 0.3 * noise if "norm" in name else 0.5 * noise)
    return model.eval()


def llama(**settings: Any) -> Any:
    """A random LlamaForCausalLM with eager attention."""
    base: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "attn_implementation": "eager",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return randomised(LlamaForCausalLM(LlamaConfig(**base | settings)))


def gemma3(**settings: Any) -> Any:
    """A random Gemma3ForCausalLM: 7 layers, of which the sixth sees everything, window 8."""
    base: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "sliding_window": 8,
        "query_pre_attn_scalar": 24,
        "max_position_embeddings": 256,
        "attn_implementation": "eager",
    }
    return randomised(Gemma3ForCausalLM(Gemma3TextConfig(**base | settings)))


def save(model: Any, path: Path, **how: Any) -> Path:
    """`model` as a directory; its tokenizer file is a stand-in."""
    model.save_pretrained(path, **how)
    (path / "tokenizer.json").write_text("{}")
    return path


def reference(model: Any, tokens: list[int]) -> Any:
    """Logits [len(tokens), vocabulary] by transformers."""
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def states(model: Any, tokens: list[int]) -> Any:
    """Last hidden states [len(tokens), hidden] by transformers."""
    with torch.inference_mode():
        return model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].numpy()


GGUF_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def llama_gguf(model: Any, path: Path, *, extra: dict[str, Any] | None = None, **keys: int) -> Path:
    """`model` as a GGUF file of architecture llama, queries and keys permuted as converters do.

    extra: further tensors. keys: further metadata integers under their full names, "__" standing for a dot.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for key, value in keys.items():
        writer.add_uint32(key.replace("__", "."), value)
    heads = {"attn_q.weight": config.num_attention_heads, "attn_k.weight": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        values, target = parameter.detach().numpy(), _gguf_name(name)
        if (count := heads.get(target.split(".", 2)[-1])) is not None:
            values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(target, np.ascontiguousarray(values))
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm", "lm_head.weight": "output"}
    if name in top:
        return f"{top[name]}.weight"
    _, _, layer, role = name.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[role]}"
