"""The GGUF reader on sound files: against the gguf package, lazily, fast."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_bytes import ARRAY, HONEST, STRING, U32, array, build, header, info, pair, string, u32, u64

from octavo.errors import ModelFormatError, ModelNotFound, UnsupportedModel
from octavo.weights.gguf import GGUFFile


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return path


def test_reads_every_kind_of_value_and_tensor(tmp_path: Path) -> None:
    file = GGUFFile.open(write(tmp_path, HONEST))
    meta = file.metadata
    assert (meta["general.architecture"], meta["answer"], meta["pi"], meta["yes"]) == ("llama", 42, 3.140625, True)
    assert meta["words"] == ["one", "", "zwölf"]
    assert isinstance(meta["numbers"], np.ndarray)
    assert meta["numbers"].tolist() == [1.5, -2.0]
    assert not meta["numbers"].flags.writeable
    assert (list(meta), len(meta), "nothing" in meta) == ([*meta], 6, False)
    assert (meta.length("words"), meta.length("answer")) == (3, 1)
    assert (file.tensors["a"].shape, file.tensors["b"].shape) == ((2, 4), (32,))
    assert file.tensors["a"].data.view("<f4").tolist() == list(range(8))
    assert not file.tensors["a"].data.flags.writeable


def test_agrees_with_the_gguf_package_on_a_file_that_it_wrote(tmp_path: Path) -> None:
    path, rng = tmp_path / "written.gguf", np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_block_count(3)
    writer.add_token_list(["a", "zwölf", "\0", "日本", ""])
    writer.add_token_scores([0.5, -1.0, 2.0, 0.0, 1.0])
    writer.add_token_types([1, 2, 3, 4, 5])
    writer.add_array("flags", [True, False])
    writer.add_float64("wide", 1e-200)
    writer.add_int64("negative", -5)
    values = {"x": rng.normal(size=(3, 64)).astype(np.float32), "y": rng.normal(size=(2, 2, 32)).astype(np.float16)}
    for name, value in values.items():
        writer.add_tensor(name, value)
    quantised = gguf.quants.quantize(rng.normal(size=(5, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q5_1)
    writer.add_tensor("q", quantised, raw_dtype=gguf.GGMLQuantizationType.Q5_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile.open(path)
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "zwölf", "\0", "日本", ""]
    assert np.asarray(file.metadata["tokenizer.ggml.scores"]).tolist() == [0.5, -1.0, 2.0, 0.0, 1.0]
    assert np.asarray(file.metadata["flags"]).tolist() == [True, False]
    assert (file.metadata["wide"], file.metadata["negative"], file.metadata["llama.block_count"]) == (1e-200, -5, 3)
    assert {name: file.tensors[name].shape for name in file.tensors} == {"x": (3, 64), "y": (2, 2, 32), "q": (5, 64)}
    for name, value in values.items():
        assert np.array_equal(file.tensors[name].data, value.reshape(-1).view(np.uint8))
    assert np.array_equal(file.tensors["q"].data, quantised.reshape(-1))


def test_agrees_with_the_gguf_package_on_a_real_file(smollm2_path: Path) -> None:
    file, peer = GGUFFile.open(smollm2_path), gguf.GGUFReader(smollm2_path)
    assert list(file.tensors) == [tensor.name for tensor in peer.tensors]
    for tensor in peer.tensors:
        ours = file.tensors[tensor.name]
        assert ours.shape == tuple(reversed([int(axis) for axis in tensor.shape]))
        assert ours.type.name == tensor.tensor_type.name
        assert np.array_equal(ours.data, tensor.data.reshape(-1).view(np.uint8))
    for key, value in file.metadata.items():
        theirs = peer.fields[key].contents()
        assert (list(value) == theirs) if isinstance(value, list | np.ndarray) else (value == theirs), key


def test_a_nul_in_a_string_does_not_shift_the_others(tmp_path: Path) -> None:
    words = [b"a", b"x\0y", b"", b"\0", b"c"]
    content = build([pair(b"words", ARRAY, array(STRING, len(words), b"".join(map(string, words))))])
    assert GGUFFile.open(write(tmp_path, content)).metadata["words"] == [word.decode() for word in words]


def test_empty_arrays(tmp_path: Path) -> None:
    content = build([pair(b"none", ARRAY, array(STRING, 0, b"")), pair(b"no numbers", ARRAY, array(U32, 0, b""))])
    meta = GGUFFile.open(write(tmp_path, content)).metadata
    assert meta["none"] == []
    assert len(np.asarray(meta["no numbers"])) == 0


def test_a_string_that_is_not_utf8_is_an_error_when_asked_for(tmp_path: Path) -> None:
    content = build([pair(b"words", ARRAY, array(STRING, 2, string(b"ok") + string(b"\xff")))])
    meta = GGUFFile.open(write(tmp_path, content)).metadata
    with pytest.raises(ModelFormatError, match="not UTF-8"):
        meta["words"]


def test_version_2_is_read_and_alignment_kept(tmp_path: Path) -> None:
    pairs = pair(b"general.alignment", U32, u32(8))
    head = header(version=2, n_tensors=2, n_pairs=1) + pairs + info(b"a", [2]) + info(b"b", [2], offset=8)
    content = head + bytes(-len(head) % 8) + bytes(range(16))
    tensors = GGUFFile.open(write(tmp_path, content)).tensors
    assert (tensors["a"].data.tolist(), tensors["b"].data.tolist()) == (list(range(8)), list(range(8, 16)))


def test_types_without_support_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"'a' is stored as IQ4_XS, .* supported are F32.*Q6_K"):
        GGUFFile.open(write(tmp_path, build([], [info(b"a", [256], kind=23)], bytes(136))))


def test_big_endian_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="big-endian"):
        GGUFFile.open(write(tmp_path, b"GGUF" + bytes([0, 0, 0, 3]) + u64(0) * 2))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        GGUFFile.open(tmp_path / "absent.gguf")
    with pytest.raises(ModelFormatError, match="cannot be read"):
        GGUFFile.open(tmp_path)
