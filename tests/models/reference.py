"""transformers models in float32 that hold the weights of a GGUF file: the oracle of the real models.

The blocks are dequantised by the gguf package and named by a table of this file, so nothing of octavo's models takes
part; only the place of each tensor's bytes comes from octavo's reader (checked against the gguf package elsewhere),
because the package's own reader needs a minute for a large vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

from octavo.ops.tensor import Tensor
from octavo.weights.gguf import GGUFFile

Floats = npt.NDArray[np.float32]

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LLAMA = LAYER | {"ffn_norm": "post_attention_layernorm"}
GEMMA = LAYER | {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def smollm2(path: Path) -> Any:
    """SmolLM2 from its GGUF file; numbers as in its published config.json."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )
    state = {}
    for name, values in _dequantised(path, LLAMA).items():
        heads = {"q_proj": 9, "k_proj": 3}.get(name.split(".")[-2], 0)
        # GGUF stores these for a rope that pairs neighbours: undo that.
        state[name] = values.reshape(heads, -1, 2, 576).swapaxes(1, 2).reshape(-1, 576) if heads else values
    return _load(LlamaForCausalLM, config, state)


def gemma3(path: Path) -> Any:
    """Gemma 3 270M from its GGUF file; numbers as in its published config.json."""
    config = Gemma3TextConfig(
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        max_position_embeddings=32768,
        sliding_window=512,
        query_pre_attn_scalar=256,
        rope_theta=1_000_000.0,
        rope_local_base_freq=10_000.0,
    )
    state = {name: v - 1 if "norm" in name else v for name, v in _dequantised(path, GEMMA).items()}
    return _load(Gemma3ForCausalLM, config, state)


def forward(model: Any, tokens: Sequence[int], *, keep: int = 0) -> Floats:
    """Logits [len(tokens), vocabulary], of the last `keep` positions alone when given."""
    with torch.inference_mode():
        logits = model(torch.tensor([list(tokens)]), use_cache=False, logits_to_keep=keep).logits[0]
    return np.asarray(logits.float().numpy())


def _dequantised(path: Path, layer: dict[str, str]) -> dict[str, Floats]:
    return {_hf_name(name, layer): _values(tensor) for name, tensor in GGUFFile.open(path).tensors.items()}


def _hf_name(name: str, layer: dict[str, str]) -> str:
    if name in TOP:
        return TOP[name]
    _, index, role, suffix = name.split(".")
    return f"model.layers.{index}.{layer[role]}.{suffix}"


def _values(tensor: Tensor) -> Floats:
    rows = tensor.data.reshape(int(np.prod(tensor.shape[:-1])), -1)
    kind = gguf.GGMLQuantizationType[tensor.type.name]
    return np.asarray(gguf.quants.dequantize(rows, kind).reshape(tensor.shape), np.float32)


def _load(family: Any, config: Any, state: dict[str, Floats]) -> Any:
    tensors = {name: torch.from_numpy(np.array(values)) for name, values in state.items()}
    model, info = family.from_pretrained(
        None, config=config, state_dict=tensors, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()
