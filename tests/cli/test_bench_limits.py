"""What a workload cannot do without, counted another way, and `octavo bench throughput --limits` that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench import kernels
from octavo.cli.bench.roofline import ModelWork
from octavo.cli.main import main
from octavo.engine.measure import Workload
from octavo.models.load import read_model

LIMITS = {"read_bytes": 1e9, "int8": 4e9, "exact_int8": 2e9, "bf16": 1e9, "f32": 5e8, "fork_join": 1e-6}


def steps(workload: Workload) -> Iterator[tuple[int, int]]:
    """(new tokens, keys after them) of one sequence, step by step, its prompt in one."""
    yield workload.prompt, workload.prompt
    for i in range(1, workload.generated):
        yield 1, workload.prompt + i


@pytest.mark.parametrize("work", [Workload(14, 1, 1), Workload(1, 20, 1), Workload(30, 40, 8)])
@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_bytes_and_operations_step_by_step(work: Workload, model: str, request: pytest.FixtureRequest) -> None:
    files = read_model(request.getfixturevalue(model))
    dims, layers = files.spec.dims, files.spec.layers
    inner = dims.heads * dims.head_size, dims.kv_heads * dims.head_size
    matrices = [each for name, each in files.tensors.items() if name.startswith("blk.") and len(each.shape) == 2]
    layer = dims.hidden * (2 * inner[0] + 2 * inner[1] + 3 * dims.intermediate)
    assert sum(each.size for each in matrices) == layer * len(layers)
    token = sum(2 * each.size / LIMITS["exact_int8" if each.type.name == "Q8_0" else "int8"] for each in matrices)
    read = rows = pairs = 0
    products = 0.0
    for new, keys in steps(work):
        read += 1_000_000
        products += work.batch * new * token
        rows += 2 * work.batch * dims.hidden * files.spec.vocab_size
        for window in (each.window for each in layers):
            for key_count in range(keys - new + 1, keys + 1):
                pairs += work.batch * min(key_count, window or key_count)
            if new == 1:
                read += work.batch * 2 * inner[1] * 2 * min(keys, window or keys)
    if work.prompt == 1:  # that step reads keys too, and is a prompt's all the same
        read -= work.batch * len(layers) * 2 * inner[1] * 2
    shares = ModelWork.of(files, weight_bytes=1_000_000, kv_bytes=2).shares(work, 10.0, 1000, LIMITS)
    assert shares.arithmetic_limit == "int8"
    assert shares.read == pytest.approx(read / 1e9 / 10)
    seconds = products + rows / LIMITS["exact_int8"] + pairs * 4 * inner[0] / LIMITS["f32"]
    assert shares.arithmetic == pytest.approx(seconds / 10)


def test_a_prompt_beyond_the_budget_reads_the_weights_again(smollm2_path: Path) -> None:
    work = ModelWork.of(read_model(smollm2_path), weight_bytes=1_000_000, kv_bytes=2)
    once, thrice = (work.shares(Workload(100, 1, 3), 1.0, budget, LIMITS) for budget in (300, 100))
    assert thrice.read == pytest.approx(3 * once.read)
    assert thrice.arithmetic == once.arithmetic


def test_the_command_shows_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], smollm2_path: Path
) -> None:
    monkeypatch.setattr(kernels, "measured_limits", lambda isa, threads: LIMITS)
    run = ["bench", "throughput", str(smollm2_path), "--generated", "2", "--batch", "1", "--repeats", "1", "--limits"]
    assert main([*run, "--json", "--num-blocks", "8"]) == 0
    report: Any = json.loads(capsys.readouterr().out)
    (result,) = report["results"]
    assert report["limits"] == LIMITS
    read = 2 * 95_000_000 / 1e9 / result["seconds"][0]  # two steps, each over all weights
    assert 0.9 * read < result["share_of_limits"]["read"] < 1.2 * read
    assert main([*run, "--num-blocks", "8"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "Limits: read 1.0 GB/s" in said[1]
    assert said[2].split()[-4:] == ["of", "reading", "of", "arithmetic"]
    assert said[3].endswith("% int8")


def test_limits_are_of_the_native_kernels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "throughput", str(tmp_path), "--limits", "--backend", "numpy"]) == 2
    assert "not of backend numpy" in capsys.readouterr().err
