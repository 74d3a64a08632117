"""The GGUF reader on files that are damaged or lie: a typed error with its place, quickly, in little memory."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import ARRAY, BOOL, F32, HONEST, STRING, U32, U64, array, build, header, info, pair, string, u32, u64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFormatError, OctavoError
from octavo.weights.gguf import GGUFFile

WRAPPING = [2**32, 2**32, 4]
F32_64 = bytes(256)

# Name -> (content, words of the message). Case L05.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a GGUF file"),
    "bad magic": (b"GGML" + HONEST[4:], "not a GGUF file"),
    "magic alone": (b"GGUF", "version"),
    "version 99": (header(version=99), "version 99"),
    "version 1": (header(version=1), "version 1"),
    "tensors 2^60": (header(n_tensors=2**60), "1152921504606846976 tensors"),
    "pairs 2^63": (header(n_pairs=2**63), "metadata pairs"),
    "axes 1000000": (build([], [info(b"a", [4], n_dims=1_000_000)], F32_64), "1000000 axes"),
    "no axes": (build([], [info(b"a", [])], F32_64), "0 axes"),
    "product wraps": (build([], [info(b"a", WRAPPING)], F32_64), "needs 295147905179352825856 bytes"),
    "product wraps to fit": (build([], [info(b"a", [2**62 + 1, 4])], F32_64), "the file has"),
    "axis 0": (build([], [info(b"a", [4, 0])], F32_64), "axis of 0"),
    "axis 0 beside a huge one": (build([], [info(b"a", [2**63, 0])], F32_64), "axis of 0"),
    "string of 2^63": (build([pair(b"k", STRING, string(b"v", claimed=2**63))]), "claims 9223372036854775808 bytes"),
    "string past the end": (build([pair(b"k", STRING, string(b"v", claimed=10_000))]), "are left"),
    "key of 2^63": (header(n_pairs=1) + string(b"k" * 20, claimed=2**63), "claims 9223372036854775808"),
    "key past the end": (header(n_pairs=1) + string(b"k" * 20, claimed=5000), "are left"),
    "empty key": (build([pair(b"", U32, u32(1))]), "key is empty"),
    "key twice": (build([pair(b"k", U32, u32(1)), pair(b"k", U32, u32(2))]), "'k' appears twice"),
    "key not UTF-8": (build([pair(b"\xff\xfe", U32, u32(1))]), "not UTF-8"),
    "unknown type": (build([pair(b"k", 13, u32(1) * 4)]), "unknown type 13"),
    "boolean of 7": (build([pair(b"k", BOOL, b"\7")]), "boolean of 7"),
    "array of 2^61": (build([pair(b"k", ARRAY, array(F32, 2**61, b""))]), "are left"),
    "strings 2^60": (build([pair(b"k", ARRAY, array(STRING, 2**60, b""))]), "are left"),
    "strings 2^62 times 8 wraps": (build([pair(b"k", ARRAY, array(STRING, 2**61, b""))]), "are left"),
    "string in array of 2^63": (build([pair(b"k", ARRAY, array(STRING, 2, string(b"", claimed=2**63) * 2))]), "past"),
    "string in array back to its start": (
        build([pair(b"k", ARRAY, array(STRING, 4, string(b"", claimed=2**64 - 8) * 4))]),
        "past the end",
    ),
    "array of arrays": (build([pair(b"k", ARRAY, array(ARRAY, 1, array(U32, 1, u32(1))))]), "array of arrays"),
    "array of type 99": (build([pair(b"k", ARRAY, array(99, 1, u32(1)))]), "unknown type 99"),
    "alignment 0": (build([pair(b"general.alignment", U32, u32(0))]), "power of two"),
    "alignment 12": (build([pair(b"general.alignment", U32, u32(12))]), "power of two"),
    "alignment 2^40": (build([pair(b"general.alignment", U64, u64(2**40))]), "power of two"),
    "alignment a string": (build([pair(b"general.alignment", STRING, string(b"32"))]), "power of two"),
    "tensor type 77": (build([], [info(b"a", [4], kind=77)], F32_64), "unknown type 77"),
    "half a block": (build([], [info(b"a", [48], kind=8)], F32_64), "whole blocks of 32"),
    "offset past the end": (build([], [info(b"a", [4], offset=2**40)], F32_64), "the file at"),
    "offset wraps": (build([], [info(b"a", [4], offset=2**64 - 32)], F32_64), "the file at"),
    "misaligned": (build([], [info(b"a", [4], offset=4)], F32_64), "not a multiple of 32"),
    "tensor twice": (build([], [info(b"a", [4]), info(b"a", [4], offset=32)], F32_64), "'a' appears twice"),
    "tensors overlap": (build([], [info(b"a", [16]), info(b"b", [4], offset=32)], F32_64), "overlaps tensor 'a'"),
    "tensor name empty": (build([], [info(b"", [4])], F32_64), "name is empty"),
    "data cut off": (build([], [info(b"a", [64])], F32_64[:-1]), "the file at"),
}


def read_all(path: Path) -> None:
    """Open and decode everything."""
    file = GGUFFile.open(path)
    for key in file.metadata:
        file.metadata[key]
    for tensor in file.tensors.values():
        np.add.reduce(tensor.data)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_an_error_that_says_where(name: str, tmp_path: Path) -> None:
    """Case L05."""
    content, words = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError) as caught:
        read_all(path)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert caught.value.offset is not None
    assert 0 <= caught.value.offset <= len(content)
    assert f"(at byte {caught.value.offset})" in message


def test_hostile_files_cost_little(tmp_path: Path) -> None:
    """Case L05: one process reads them all in under 2 s each and 200 MB, and dies of no signal."""
    for index, (content, _) in enumerate(HOSTILE.values()):
        (tmp_path / f"{index}.gguf").write_bytes(content)
    script = (
        "import sys, time, pathlib\n"
        "from octavo.errors import ModelFormatError\n"
        "from octavo.weights.gguf import GGUFFile\n"
        "slowest = 0.0\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    start = time.process_time()\n"
        "    try:\n"
        "        GGUFFile.open(path)\n"
        "    except ModelFormatError:\n"
        "        slowest = max(slowest, time.process_time() - start)\n"
        "    else:\n"
        "        sys.exit(f'{path} was read')\n"
        # Not ru_maxrss: a process begins with the peak of the one that started it.
        "status = pathlib.Path('/proc/self/status').read_text().split()\n"
        "print(slowest, status[status.index('VmHWM:') + 1])\n"
    )
    limit = 4 << 30  # of address space: a wild allocation fails instead of swapping
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert run.returncode == 0, run.stderr
    slowest, peak_kib = run.stdout.split()
    assert float(slowest) < 2
    assert int(peak_kib) < 200 * 1024


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    """Every proper prefix of a sound file is refused, with an offset inside it."""
    path = tmp_path / "cut.gguf"
    for length in range(len(HONEST)):
        path.write_bytes(HONEST[:length])
        with pytest.raises(ModelFormatError) as caught:
            read_all(path)
        assert caught.value.offset is not None
        assert caught.value.offset <= length
    path.write_bytes(HONEST)
    read_all(path)


EDGES = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**60, 2**63 - 1, 2**63, 2**64 - 1])
MUTATION = st.one_of(
    st.tuples(st.just("byte"), st.integers(0, len(HONEST) - 1), st.integers(0, 255)),
    st.tuples(st.just("word"), st.integers(0, len(HONEST) - 8), EDGES),
    st.tuples(st.just("cut"), st.integers(0, len(HONEST) - 1), st.integers(1, 40)),
    st.tuples(st.just("double"), st.integers(0, len(HONEST) - 1), st.integers(1, 40)),
)


@settings(max_examples=500, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=4))
def test_mutated_files_are_read_or_refused(mutations: list[tuple[str, int, int]], tmp_path: Path) -> None:
    """Any damage gives either a sound reading or an error of ours; nothing else, and within a deadline."""
    content = bytearray(HONEST)
    for kind, at, value in mutations:
        if kind == "byte":
            content[at : at + 1] = bytes([value])
        elif kind == "word":
            content[at : at + 8] = struct.pack("<Q", value)
        elif kind == "cut":
            del content[at : at + value]
        else:
            content[at:at] = content[at : at + value]
    path = tmp_path / "mutated.gguf"
    path.write_bytes(content)
    try:
        read_all(path)
    except OctavoError as error:
        assert "\n" not in str(error)  # noqa: PT017
