"""Random models: well-formed for the format's own library, finite, near a trained model's variance, the same twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from octavo.models.load import read_model
from octavo.ops.dequant import dequantize
from octavo.weights.gguf import GGUFFile
from octavo.weights.synthetic import FORMATS, SHAPES, LlamaShape, write_random_llama

SHAPE = LlamaShape(layers=2, hidden=256, intermediate=512, heads=4, kv_heads=2, head_size=64, context=128)


@pytest.mark.parametrize("form", FORMATS)
def test_values_are_finite_and_spread_like_trained_ones(tmp_path: Path, smollm2_path: Path, form: str) -> None:
    path = write_random_llama(tmp_path / "m.gguf", SHAPE, FORMATS[form], GGUFFile.open(smollm2_path))
    file = GGUFFile.open(path)
    for name, tensor in file.tensors.items():
        values = dequantize(tensor)
        assert np.isfinite(values).all()
        if name.endswith("norm.weight"):
            assert (values == 1.0).all()
            continue
        assert tensor.type is FORMATS[form]
        assert abs(values.mean()) < 0.05 * values.std()
        assert 0.6 < values.std() * values.shape[-1] ** 0.5 < 1.6  # bf16 is off by less than a power of two
    names = [path.name for path in tmp_path.iterdir()]
    assert names == ["m.gguf"]


def test_another_reader_agrees(tmp_path: Path) -> None:
    """On a small vocabulary: that reader takes seconds for a real one."""
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"größe {number}" for number in range(96)],
        "tokenizer.ggml.token_type": np.ones(96, np.int32),
        "tokenizer.ggml.scores": np.linspace(-1, 0, 96, dtype=np.float32),
        "tokenizer.ggml.eos_token_id": 95,
        "tokenizer.ggml.add_bos_token": True,
        "general.name": "the donor's",
    }
    donor = SimpleNamespace(metadata=metadata, tensors={"token_embd.weight": SimpleNamespace(shape=(96, 64))})
    path = write_random_llama(tmp_path / "m.gguf", SHAPE, FORMATS["q4_1"], donor)  # type: ignore[arg-type]
    ours, theirs = GGUFFile.open(path), gguf.GGUFReader(path)
    for key, value in metadata.items():
        read = theirs.fields[key].contents()
        expected = "random weights" if key == "general.name" else value
        assert read == pytest.approx(list(value)) if isinstance(value, np.ndarray) else read == expected
    tensors = {tensor.name: tensor for tensor in theirs.tensors}
    assert set(tensors) == set(ours.tensors)
    for name, tensor in ours.tensors.items():
        assert tensors[name].data.tobytes() == tensor.data.tobytes()
        assert tuple(reversed(tensors[name].shape)) == tensor.shape


def test_the_model_is_a_llama_of_that_shape_and_the_same_twice(tmp_path: Path, smollm2_path: Path) -> None:
    donor = GGUFFile.open(smollm2_path)
    first = write_random_llama(tmp_path / "a.gguf", SHAPE, FORMATS["q8_0"], donor)
    second = write_random_llama(tmp_path / "b.gguf", SHAPE, FORMATS["q8_0"], donor)
    assert first.read_bytes() == second.read_bytes()
    spec = read_model(first).spec
    dims = spec.dims
    assert (dims.layers, dims.hidden, dims.heads, dims.kv_heads, dims.head_size) == (2, 256, 4, 2, 64)
    assert (dims.intermediate, dims.context, spec.tied) == (512, 128, True)


def test_one_b_is_one_billion() -> None:
    shape, vocab = SHAPES["1b"], 49152
    attention = shape.hidden * shape.head_size * (2 * shape.heads + 2 * shape.kv_heads)
    weights = shape.layers * (attention + 3 * shape.hidden * shape.intermediate) + vocab * shape.hidden
    assert 1.0e9 < weights < 1.1e9
