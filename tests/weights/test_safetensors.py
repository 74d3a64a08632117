"""The safetensors reader: against the safetensors package, and on files that are damaged or lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from octavo.errors import ModelFormatError, OctavoError, UnsupportedModel
from octavo.weights.safetensors import read_safetensors


def raw(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(shape: list[Any], start: Any, stop: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


HONEST = raw({"__metadata__": {"format": "pt"}, "a": entry([2, 2], 0, 16), "b": entry([3], 16, 22, "BF16")}, bytes(22))

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes are no safetensors"),
    "7 bytes": (b"\1" * 7, "7 bytes are no safetensors"),
    "header of 2^63": (raw({}, length=2**63), "a header of 9223372036854775808 bytes"),
    "header past the end": (raw({}, length=3), "a header of 3 bytes is claimed, at most 2"),
    "not JSON": (raw(b"{'a': 1}"), "not valid JSON"),
    "not UTF-8": (raw(b'{"\xff": 1}'), "not valid JSON"),
    "a list": (raw([]), "JSON list where an object"),
    "deep": (raw(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not valid JSON"),
    "long number": (raw(b'{"a": ' + b"9" * 100_000 + b"}"), "not valid JSON"),
    "name twice": (
        raw(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        )
        + bytes(4),
        "appears twice",
    ),
    "entry is no object": (raw({"a": 3}), "not dtype, shape and data_offsets"),
    "entry lacks a key": (raw({"a": {"dtype": "F32", "shape": [1]}}), "not dtype, shape and data_offsets"),
    "dtype nonsense": (raw({"a": entry([1], 0, 4, "Q9")}, bytes(4)), "unknown dtype 'Q9'"),
    "dtype a list": (raw({"a": entry([1], 0, 4, [])}, bytes(4)), "unknown dtype"),
    "axis 0": (raw({"a": entry([0], 0, 0)}), "sizes above 0"),
    "axis -1": (raw({"a": entry([-1], 0, 4)}, bytes(4)), "sizes above 0"),
    "axis true": (raw({"a": entry([True], 0, 4)}, bytes(4)), "sizes above 0"),
    "axis 1.0": (raw({"a": entry([1.0], 0, 4)}, bytes(4)), "sizes above 0"),
    "9 axes": (raw({"a": entry([1] * 9, 0, 4)}, bytes(4)), "at most 8 sizes"),
    "product wraps": (raw({"a": entry([2**32, 2**32], 0, 0)}), "is 73786976294838206464 bytes, not 0"),
    "backwards": (raw({"a": entry([1], 4, 0)}, bytes(4)), "bytes, not -4"),
    "negative": (raw({"a": entry([1], -4, 0)}, bytes(4)), "not two positions"),
    "three offsets": (raw({"a": entry([1], 0, 4) | {"data_offsets": [0, 4, 4]}}, bytes(4)), "not two positions"),
    "past the end": (raw({"a": entry([2], 0, 8)}, bytes(4)), "the tensors end at"),
    "far past the end": (raw({"a": entry([2**40], 0, 2**42)}, bytes(4)), "the tensors end at"),
    "data left over": (raw({"a": entry([1], 0, 4)}, bytes(9)), "the tensors end at"),
    "hole": (raw({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)), "leaves a hole"),
    "overlap": (raw({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, bytes(8)), "overlaps"),
}


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_an_error(name: str, tmp_path: Path) -> None:
    """Case L05, for this format."""
    content, words = HOSTILE[name]
    with pytest.raises(ModelFormatError) as caught:
        read_safetensors(write(tmp_path, content))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    for length in range(len(HONEST)):
        with pytest.raises(ModelFormatError):
            read_safetensors(write(tmp_path, HONEST[:length]))
    assert set(read_safetensors(write(tmp_path, HONEST))) == {"a", "b"}


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, len(HONEST) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_files_are_read_or_refused(edits: list[tuple[int, int]], tmp_path: Path) -> None:
    content = bytearray(HONEST)
    for at, value in edits:
        content[at] = value
    try:
        tensors = read_safetensors(write(tmp_path, bytes(content)))
    except OctavoError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert all(len(t.data) == t.size * t.type.nbytes for t in tensors.values())


def test_agrees_with_the_safetensors_package(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = {
        "x": rng.normal(size=(3, 5)).astype(np.float32),
        "y": rng.normal(size=(4,)).astype(np.float16),
        "z": rng.normal(size=(2, 1, 6)).astype(np.float32),
    }
    save_file(values, tmp_path / "model.safetensors", metadata={"format": "np"})
    tensors = read_safetensors(tmp_path / "model.safetensors")
    assert set(tensors) == set(values)
    for name, value in values.items():
        assert tensors[name].shape == value.shape
        assert tensors[name].data.tobytes() == value.tobytes()
        assert not tensors[name].data.flags.writeable


def test_number_formats_without_support_are_named(tmp_path: Path) -> None:
    save_file({"x": np.ones(3, np.int64)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"'x' is stored as I64, .* BF16 F16 F32"):
        read_safetensors(tmp_path / "model.safetensors")
