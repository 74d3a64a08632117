"""Opening models: what is refused and how it says so, end tokens, layer groups, the fate of every tensor."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
from harness import Runner

from octavo.errors import ModelFormatError, ModelNotFound, OctavoError, UnsupportedModel
from octavo.models.load import read_model
from octavo.models.spec import LayerSpec
from octavo.ops.base import KVSlot


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tied two-layer Llama by transformers."""
    return checkpoints.llama(tie_word_embeddings=True)


@pytest.fixture
def directory(tiny: Any, tmp_path: Path) -> Path:
    return checkpoints.save(tiny, tmp_path / "model")


def edit(directory: Path, **changes: Any) -> Path:
    """Set keys of config.json; ... removes one."""
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))
    return directory


def test_an_architecture_without_support_is_named(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'FooForCausalLM' is not supported; supported are LlamaForCausalLM, "):
        read_model(edit(directory, architectures=["FooForCausalLM"]))
    writer = checkpoints.gguf.GGUFWriter(tmp_path / "foo.gguf", "foo")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="'foo' is not supported; supported are llama, gemma3"):
        read_model(tmp_path / "foo.gguf")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**9}, "1000000000 layers are claimed"),
        ({"num_hidden_layers": 3}, "3 layers are claimed, but tensor 'model.layers.2.input_layernorm.weight' is miss"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not in 1 to"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers is '2', not an integer"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, not an integer"),
        ({"num_attention_heads": [4, 4]}, "num_attention_heads is list, not an integer"),
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1, not above 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, not a finite number"),
        ({"hidden_act": "mish"}, "'mish' is not supported; supported are silu"),
        ({"mlp_bias": True}, "mlp_bias is not supported"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by 'awq'"),
        ({"architectures": None}, "architectures is not a list of one name"),
        ({"eos_token_id": 96}, "eos_token_id is not one or more token ids below 96"),
        ({"head_dim": 15, "num_attention_heads": 4}, "15 values, which must be an even number"),
    ],
)
def test_settings_that_cannot_be_are_refused(directory: Path, changes: dict[str, Any], words: str) -> None:
    """Case L05 for a number of layers of 10^9."""
    (directory / "generation_config.json").unlink()
    with pytest.raises(OctavoError, match=words):
        read_model(edit(directory, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"intermediate_size": 100},
            r"'model.layers.0.mlp.gate_proj.weight' is \[96, 64\], the settings make it \[100, 64\]",
        ),
        ({"num_hidden_layers": 1}, "9 tensors that a llama model does not use: 'model.layers.1"),
        ({"tie_word_embeddings": False}, r"'lm_head.weight' is missing \(head of llama\)"),
        ({"attention_bias": True}, "'model.layers.0.self_attn.q_proj.bias' is missing"),
    ],
)
def test_tensors_that_do_not_match_the_settings(directory: Path, changes: dict[str, Any], words: str) -> None:
    """Every tensor is used exactly once, or the load fails by name."""
    with pytest.raises(ModelFormatError, match=words):
        Runner(edit(directory, **changes))


def test_every_missing_or_extra_tensor_of_a_gguf_file_is_named(tiny: Any, tmp_path: Path) -> None:
    """Case L02: nothing is dropped in silence."""
    runner = Runner(checkpoints.llama_gguf(tiny, tmp_path / "m.gguf"))
    tensors = dict(runner.files.tensors)
    make = type(runner.decoder)
    for name in tensors:
        fewer = {key: tensor for key, tensor in tensors.items() if key != name}
        with pytest.raises(ModelFormatError, match=f"'{name}' is missing"):
            make(runner.files.spec, runner.ops, fewer)
    extra = tensors | {"blk.0.attn_gate.weight": tensors["blk.0.attn_q.weight"]}
    with pytest.raises(ModelFormatError, match=r"1 tensors that a llama model .* 'blk\.0\.attn_gate\.weight'"):
        make(runner.files.spec, runner.ops, extra)


@pytest.mark.parametrize(
    ("keys", "eos", "bos"),
    [
        ({"eos_token_id": 2, "eot_token_id": 7}, {2, 7}, None),
        ({}, set(), None),
        ({"eos_token_id": 0, "bos_token_id": 0}, {0}, 0),
        ({"eos_token_id": 2**32 - 1, "bos_token_id": 2**32 - 1, "eom_token_id": 5}, {5}, None),
    ],
)
def test_end_tokens_of_a_gguf_file(
    keys: dict[str, int], eos: set[int], bos: int | None, tiny: Any, tmp_path: Path
) -> None:
    """Case L04: the file's own ids; a missing key is no id."""
    named = {f"tokenizer__ggml__{key}": value for key, value in keys.items()}
    files = read_model(checkpoints.llama_gguf(tiny, tmp_path / "m.gguf", **named))
    assert (files.eos_ids, files.bos_id) == (eos, bos)


def test_an_end_token_outside_the_vocabulary_is_refused(tiny: Any, tmp_path: Path) -> None:
    path = checkpoints.llama_gguf(tiny, tmp_path / "m.gguf", tokenizer__ggml__eos_token_id=96)
    with pytest.raises(ModelFormatError, match=r"tokenizer\.ggml\.eos_token_id is 96, not in 0 to 95"):
        read_model(path)


def test_end_tokens_of_a_directory(directory: Path) -> None:
    """Case L04: generation_config.json comes before config.json."""
    edit(directory, eos_token_id=5, bos_token_id=1)
    (directory / "generation_config.json").unlink()
    assert (read_model(directory).eos_ids, read_model(directory).bos_id) == ({5}, 1)
    (directory / "generation_config.json").write_text('{"eos_token_id": [6, 7]}')
    assert read_model(directory).eos_ids == {6, 7}
    (directory / "generation_config.json").unlink()
    assert read_model(edit(directory, eos_token_id=None, bos_token_id=...)).eos_ids == frozenset()


def test_gguf_layers_that_are_claimed_and_not_there(tiny: Any, tmp_path: Path) -> None:
    """Case L05: a block_count of 10^9 costs nothing."""
    content = checkpoints.llama_gguf(tiny, tmp_path / "m.gguf").read_bytes()
    key = b"llama.block_count" + (4).to_bytes(4, "little")
    assert content.count(key) == 1
    (tmp_path / "lie.gguf").write_bytes(content.replace(key + b"\2\0\0\0", key + (10**9).to_bytes(4, "little")))
    start = time.thread_time()
    with pytest.raises(ModelFormatError, match="1000000000 layers are claimed"):
        read_model(tmp_path / "lie.gguf")
    assert time.thread_time() - start < 1


def test_paths_that_are_no_model(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        read_model(tmp_path / "absent.gguf")
    with pytest.raises(ModelNotFound, match="give the directory that holds it"):
        read_model(directory / "model.safetensors")
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json is missing"):
        read_model(directory)


def test_smollm2(smollm2_path: Path) -> None:
    files = read_model(smollm2_path)
    assert (files.spec.groups, files.spec.vocab_size, files.spec.dims.context) == ((None,), 49152, 8192)
    assert files.eos_ids == {2}
    assert files.chat_template is not None
    assert files.spec.kv_layout(10, 16).block_bytes == 30 * 2 * 3 * 64 * 16 * 4


def test_gemma3(gemma3_path: Path) -> None:
    """18 layers, of which every sixth sees everything: 6 groups of 3 layers."""
    files = read_model(gemma3_path)
    assert files.spec.groups == (None, 512, 512, 512, 512, 512)
    assert [i for i, slot in enumerate(files.spec.layer_slot) if slot.group == 0] == [5, 11, 17]
    assert {(slot.group, slot.index) for slot in files.spec.layer_slot} == {(g, i) for g in range(6) for i in range(3)}
    assert (files.eos_ids, files.bos_id, files.chat_template) == ({1}, 2, None)
    assert files.spec.embed_scale == float(np.float32(640**0.5))


@pytest.mark.parametrize(
    ("windows", "groups"),
    [
        ([None] * 5, (None,)),
        ([7] * 4, (7,)),
        ([7, None] * 3, (None, 7)),
        ([7] * 22 + [None] * 4, (None,) * 2 + (7,) * 11),
        ([7, 7, 7, None, None], (None, None, 7, 7, 7)),
    ],
)
def test_layer_groups(windows: list[int | None], groups: tuple[int | None, ...], directory: Path) -> None:
    """Groups have equally many layers, as many as divide the numbers of both kinds."""
    spec = replace(read_model(directory).spec, layers=tuple(LayerSpec(window, 0) for window in windows))
    assert spec.groups == groups
    assert all(spec.groups[slot.group] == window for slot, window in zip(spec.layer_slot, windows, strict=True))
    assert len(set(spec.layer_slot)) == len(windows)
    assert spec.layer_slot[windows.index(groups[0])] == KVSlot(0, 0)
    assert spec.kv_layout(1, 16).layers * len(groups) == len(windows)
