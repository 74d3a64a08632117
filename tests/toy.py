"""A checkpoint whose greedy answer is whatever chain of tokens a test chooses, written in milliseconds.

Attention and MLP outputs are zero, so a token's hidden state is its embedding, and the output row of its successor is
that embedding: the largest logit by far. It exercises text, stops and streams, not attention.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from octavo import LLM

ToyFactory = Callable[..., LLM]

HIDDEN = 128
CONTEXT = 256
SPECIALS = ("<|im_start|>", "<|im_end|>", "<eos>")


def make_toy(folder: Path, chain: Sequence[str], *, eos: Sequence[str] = ("<eos>",), padded_rows: int = 0) -> Path:
    """A Hugging Face directory. chain: pieces of text, each one token, each followed by the next; the last repeats.
    Pieces that are one byte long are the vocabulary's own bytes. eos: names of end tokens. padded_rows: output rows
    beyond the tokenizer, all huge, as careless padding leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(chain)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = [tokenizer.token_to_id(piece) for piece in chain]
    size = tokenizer.get_vocab_size()
    embed = np.random.default_rng(0).standard_normal((size, HIDDEN)).astype(np.float32)
    head = np.zeros((size + padded_rows, HIDDEN), np.float32)
    for token, following in zip(ids, [*ids[1:], ids[-1]], strict=True):
        head[following] += embed[token]
    head[size:] = 100.0 * np.sign(embed[ids[0]])
    save_file(
        _tensors(np.concatenate([embed, np.zeros((padded_rows, HIDDEN), np.float32)]), head),
        folder / "model.safetensors",
    )
    _write_settings(folder, size + padded_rows, [tokenizer.token_to_id(name) for name in eos])
    return folder


def make_random(folder: Path, *, window: int | None = None, words: Sequence[str] = ()) -> Path:
    """A tiny random model, each of whose tokens depends on all that it sees. window: of every layer, None for all.
    words: texts that are one token each, besides the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(words)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    generator = np.random.default_rng(1)
    shapes = _tensors(np.zeros((size, HIDDEN), np.float32), np.zeros((size, HIDDEN), np.float32))
    tensors = {
        name: value if value.ndim == 1 else generator.standard_normal(value.shape, np.float32) * np.float32(0.15)
        for name, value in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    _write_settings(folder, size, [tokenizer.token_to_id("<eos>")], window)
    return folder


def _tokenizer(chain: Sequence[str]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = [piece for piece in dict.fromkeys(chain) if piece not in alphabet and piece not in SPECIALS]
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    return tokenizer


def _tensors(embed: np.ndarray, head: np.ndarray) -> dict[str, np.ndarray]:
    square = np.zeros((HIDDEN, HIDDEN), np.float32)
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": embed,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        f"{layer}input_layernorm.weight": np.ones(HIDDEN, np.float32),
        f"{layer}post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
        **{f"{layer}self_attn.{name}_proj.weight": square for name in "qkvo"},
        **{f"{layer}mlp.{name}_proj.weight": square for name in ("gate", "up", "down")},
    }


def _write_settings(folder: Path, vocab_size: int, eos: list[int], window: int | None = None) -> None:
    config = {
        "architectures": ["LlamaForCausalLM" if window is None else "MistralForCausalLM"],
        "model_type": "llama" if window is None else "mistral",
        "sliding_window": window,
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "vocab_size": vocab_size,
        "eos_token_id": eos,
    }
    (folder / "config.json").write_text(json.dumps(config))
