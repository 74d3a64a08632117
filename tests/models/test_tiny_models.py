"""The decoder against transformers on tiny random checkpoints: every feature of the families, one at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
import torch
from checkpoints import TOKENS
from harness import Runner, relative_difference
from test_rope import SCALINGS
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM

from octavo.ops.dequant import dequantize

LIMIT = 1e-4


def differs(
    model: Any, path: Path, tokens: list[int], *, length: int | None = None, chunks: tuple[int, ...] = ()
) -> float:
    ours = Runner(path, capacity=len(tokens), length=length).logits(tokens, chunks=chunks)
    return relative_difference(ours, checkpoints.reference(model, tokens))


@pytest.mark.parametrize("head_dim", [40, 64, 80, 96, 128, 160])
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (7, 1), (5, 5), (15, 5)])
def test_head_sizes(head_dim: int, heads: int, kv_heads: int, tmp_path: Path) -> None:
    """Case L12: head_dim is explicit and never hidden / heads, which is 8."""
    sizes = {"hidden_size": 8 * heads, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    model = checkpoints.llama(**sizes, head_dim=head_dim, num_hidden_layers=1)
    assert differs(model, checkpoints.save(model, tmp_path), TOKENS[:20]) < LIMIT


@pytest.mark.parametrize("name", SCALINGS)
def test_rope_scaling_beyond_the_original_length(name: str, tmp_path: Path) -> None:
    """Case L09: logits past the context the model was made for."""
    options, length = SCALINGS[name], 150
    model = checkpoints.llama(rope_parameters={"rope_theta": 1000.0, **options}, max_position_embeddings=50)
    path = checkpoints.save(model, tmp_path)
    assert differs(model, path, TOKENS[:length], length=length) < LIMIT


@pytest.mark.parametrize("chunks", [(), (1,) * 39, (13, 1, 8, 7)])
def test_window_is_as_wide_as_transformers(chunks: tuple[int, ...], tmp_path: Path) -> None:
    """Case L11: window 8 and 40 tokens, prefill, decode and chunks; the harness poisons blocks below the window."""
    base = checkpoints.llama().config.to_dict() | {"sliding_window": 8, "model_type": "mistral", "architectures": None}
    model = checkpoints.randomised(MistralForCausalLM(MistralConfig(**base, attn_implementation="eager")))
    path = checkpoints.save(model, tmp_path)
    assert Runner(path).files.spec.groups == (8,)
    assert differs(model, path, TOKENS[:40], chunks=chunks) < LIMIT


def test_mistral_without_a_window(tmp_path: Path) -> None:
    base = checkpoints.llama().config.to_dict() | {
        "sliding_window": None,
        "model_type": "mistral",
        "architectures": None,
    }
    model = checkpoints.randomised(MistralForCausalLM(MistralConfig(**base, attn_implementation="eager")))
    path = checkpoints.save(model, tmp_path)
    assert Runner(path).files.spec.groups == (None,)
    assert differs(model, path, TOKENS[:40]) < LIMIT


@pytest.mark.parametrize("chunks", [(), (1,) * 39, (20, 1, 1, 5)])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"final_logit_softcapping": 5.0},
        {"layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2, "attention_bias": True},
    ],
    ids=["plain", "softcap", "layer types and biases"],
)
def test_gemma3(settings: dict[str, Any], chunks: tuple[int, ...], tmp_path: Path) -> None:
    """Case L13 for the softcap. Sandwich norms, query and key norms, two ropes, window 8."""
    model = checkpoints.gemma3(**settings)
    assert differs(model, checkpoints.save(model, tmp_path), TOKENS[:40], chunks=chunks) < LIMIT


def test_gemma3_in_the_older_spelling_of_its_config(tmp_path: Path) -> None:
    """Case L10: rope_theta, rope_local_base_freq, rope_scaling and sliding_window_pattern at the top level."""
    model = checkpoints.gemma3(
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
        }
    )
    path = checkpoints.save(model, tmp_path)
    assert differs(model, path, TOKENS[:40]) < LIMIT
    config = json.loads((path / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {"rope_theta": 50_000.0, "rope_local_base_freq": 700.0, "sliding_window_pattern": 6}
    config |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    (path / "config.json").write_text(json.dumps(config))
    assert differs(model, path, TOKENS[:40]) < LIMIT


def test_attention_biases(tmp_path: Path) -> None:
    model = checkpoints.llama(attention_bias=True)
    assert differs(model, checkpoints.save(model, tmp_path), TOKENS[:20]) < LIMIT


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files(dtype: torch.dtype, tmp_path: Path) -> None:
    """The values are the file's; the arithmetic is float32."""
    model = checkpoints.llama().to(dtype)
    path = checkpoints.save(model, tmp_path)
    widened = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    assert differs(widened, path, TOKENS[:20]) < LIMIT


def test_shards(tmp_path: Path) -> None:
    model = checkpoints.llama(num_hidden_layers=4)
    path = checkpoints.save(model, tmp_path, max_shard_size="50KB")
    assert len(list(path.glob("*.safetensors"))) > 2
    assert differs(model, path, TOKENS[:20]) < LIMIT


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_separate_output_of_a_directory(tied: bool, tmp_path: Path) -> None:
    """Case L01."""
    model = checkpoints.llama(tie_word_embeddings=tied)
    path = checkpoints.save(model, tmp_path)
    assert Runner(path).files.spec.tied is tied
    assert ("lm_head.weight" in Runner(path).files.tensors) is not tied
    assert differs(model, path, TOKENS[:20]) < LIMIT


def test_a_separate_output_wins_only_if_the_config_says_untied(tmp_path: Path) -> None:
    """Case L01: the flag says tied although there is a separate matrix; without the flag the matrix decides."""
    untied = checkpoints.llama(tie_word_embeddings=False)
    path = checkpoints.save(untied, tmp_path)
    assert differs(untied, path, TOKENS[:20]) < LIMIT
    config = json.loads((path / "config.json").read_text())
    del config["tie_word_embeddings"]
    (path / "config.json").write_text(json.dumps(config))
    assert differs(untied, path, TOKENS[:20]) < LIMIT
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tied = checkpoints.llama(tie_word_embeddings=True)
    tied.load_state_dict({k: v for k, v in untied.state_dict().items() if k != "lm_head.weight"}, strict=False)
    assert differs(tied, path, TOKENS[:20]) < LIMIT


@pytest.mark.parametrize("tied", [True, False])
def test_gguf_with_and_without_an_output_matrix(tied: bool, tmp_path: Path) -> None:
    """Case L01. Queries and keys are permuted in the file, so this also checks the rope that pairs neighbours."""
    model = checkpoints.llama(tie_word_embeddings=tied)
    path = checkpoints.llama_gguf(model, tmp_path / "model.gguf")
    assert Runner(path).files.spec.tied is tied
    assert differs(model, path, TOKENS[:60]) < LIMIT


def test_rope_divisors_of_a_gguf_file(tmp_path: Path) -> None:
    """Case L02: rope_freqs.weight gives transformers' llama3 rope; without it the result is another."""
    options = SCALINGS["llama3 by 8"] | {"original_max_position_embeddings": 64}
    model = checkpoints.llama(rope_parameters={"rope_theta": 10000.0, **options}, max_position_embeddings=512)
    base = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    divisors = (base / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert divisors.max() == pytest.approx(8)
    path = checkpoints.llama_gguf(model, tmp_path / "with.gguf", extra={"rope_freqs.weight": divisors})
    assert differs(model, path, TOKENS) < LIMIT
    assert differs(model, checkpoints.llama_gguf(model, tmp_path / "without.gguf"), TOKENS) > 0.1


def test_frequencies_that_a_directory_carries_along_are_ignored(tmp_path: Path) -> None:
    """Case L02: rotary_emb.inv_freq of older checkpoints."""
    from safetensors.torch import load_file, save_file

    model = checkpoints.llama()
    path = checkpoints.save(model, tmp_path)
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    save_file(tensors, path / "model.safetensors")
    assert differs(model, path, TOKENS[:20]) < LIMIT


def test_batch_and_chunks_change_no_bit(tmp_path: Path) -> None:
    """Three sequences in one step, and one of them alone in chunks."""
    path = checkpoints.save(checkpoints.gemma3(), tmp_path)
    runner = Runner(path, sequences=3)
    together = runner.step([TOKENS[:30], TOKENS[5:17], TOKENS[9:70]])
    assert np.array_equal(together[2], Runner(path).logits(TOKENS[9:70], chunks=(1, 17, 30)))


@pytest.mark.parametrize("make", [checkpoints.llama, checkpoints.gemma3])
def test_last_states_are_transformers(make: Any, tmp_path: Path) -> None:
    """What embeddings are made of, in chunks: every token's state after the last norm."""
    model = make()
    runner, found = Runner(checkpoints.save(model, tmp_path)), []
    for start, end in ((0, 13), (13, 14), (14, 40)):
        runner.step([TOKENS[start:end]], last_only=True)
        found.append(runner.hidden)
    assert relative_difference(np.concatenate(found), checkpoints.states(model, TOKENS[:40])) < LIMIT


def test_rows_of_a_padded_vocabulary_are_counted(tmp_path: Path) -> None:
    model = checkpoints.llama(vocab_size=128)
    files = Runner(checkpoints.save(model, tmp_path)).files
    assert files.spec.vocab_size == 128
    assert dequantize(files.tensors["model.embed_tokens.weight"]).shape == (128, 64)
