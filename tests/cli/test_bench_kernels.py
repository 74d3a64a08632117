"""`octavo bench kernels`: what is timed, how it is held against the limits, what is refused. Times nothing for long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.cli.main import main
from octavo.ops.native import _native, timing
from octavo.ops.native.timing import KernelTimer

LIMITS = {"read_bytes": 1e10, "int8": 4e11, "exact_int8": 2e11, "bf16": 1e11, "f32": 1e11, "fork_join": 1e-6}
TINY = ("--shape", "tiny", "--threads", "1")


class FakeLimits:
    def __init__(self) -> None:
        for name, value in LIMITS.items():
            setattr(self, name, value)


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "COLD_BYTES", 1)
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    monkeypatch.setattr(timing, "LEAST_RUNS", 2)
    monkeypatch.setattr(KernelTimer, "limits", lambda _: FakeLimits())


def report(capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    assert main(["bench", "kernels", *TINY, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_kernel_beside_the_limit_that_it_meets_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "--rows", "1", "300", "--keys", "40", "--format", "q4_1", "q8_0")
    assert (found["kind"], found["threads"], found["machine"]["cores"] >= 1) == ("kernels", 1, True)
    (result,) = found["results"]
    assert result["isa"] == _native.instruction_sets()[-1]
    assert result["limits"] == LIMITS
    limits_met = set()
    for each in result["kernels"]:
        arithmetic = "f32" if "q" not in each["kernel"][:1] else "int8" if "q4_1" in each["kernel"] else "exact_int8"
        by_memory, by_arithmetic = each["bytes"] / LIMITS["read_bytes"], each["operations"] / LIMITS[arithmetic]
        assert each["limit"] == ("read_bytes" if by_memory > by_arithmetic else arithmetic), each["kernel"]
        least = max(by_memory, by_arithmetic)
        assert each["share_of_limit"] == pytest.approx(least / each["median_s"])
        limits_met.add(each["limit"])
    assert limits_met == {"read_bytes", "int8", "exact_int8", "f32"}


def test_what_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "--rows", "1", "100", "--keys", "20", "--format", "bf16", "--block-size", "8")
    kernels = [(each["kernel"], each["rows"]) for each in found["results"][0]["kernels"]]
    for rows in (1, 100):
        assert ("bf16 query, key, value 128 x 64", rows) in kernels
        assert ("bf16 gate and up 256 x 64", rows) in kernels
        assert ("bf16 down 64 x 128", rows) in kernels
        for kind in ("paged", "contiguous"):
            assert (f"decode attention, 20 keys, {kind}", rows) in kernels
    assert ("prompt attention, 20 keys, paged", 20) in kernels
    logits = [rows for kernel, rows in kernels if "logits" in kernel]
    assert logits == [1]  # a step has logits for the rows that sample alone
    assert ("norm 64", 64) in kernels


def test_instruction_sets_in_turn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("--rows", "1", "--keys", "4", "--format", "q8_0")
    every = _native.instruction_sets()
    assert [each["isa"] for each in report(capsys, *small, "--isa", *every)["results"]] == list(every)
    monkeypatch.setenv("OCTAVO_ISA", "portable")
    assert [each["isa"] for each in report(capsys, *small)["results"]] == ["portable"]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", *TINY, "--rows", "2", "--keys", "4", "--format", "q8_0"]) == 0
    _, limits, titles, *rows = capsys.readouterr().out.splitlines()
    assert "read 10.0 GB/s, int8 400 GOP/s, exact_int8 200, bf16 100, f32 100, fork and join 1.0 us" in limits
    assert titles.split()[:2] == ["kernel", "rows"]
    assert all(row.endswith("%") and len(row) == len(rows[0]) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--format", "q9"), "invalid choice: 'q9'"),
        (("--isa", "sse"), "this machine does not run 'sse', but portable"),
        (("--rows", "0"), "must be from 1 to 262144, not 0"),
        (("model.gguf",), "unrecognized arguments: model.gguf"),
    ],
)
def test_refusals(arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", *arguments]) == 2
    captured = capsys.readouterr().err
    assert complaint in captured
    assert captured.count("\n") == 1


def test_help_explains_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "kernels", "--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("exact_int8", "--isa", "--keys", "q4_k", "examples:"))
