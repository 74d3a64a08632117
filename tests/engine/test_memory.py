"""The memory contract: the plan's arithmetic, refusals with numbers, and what the process really holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, EngineConfig
from octavo.engine import memory
from octavo.engine.build import build_engine
from octavo.engine.memory import GIB, MIB, PROCESS_BYTES, TOKEN_BYTES, MemoryNeeds, plan_memory
from octavo.errors import InvalidRequest, NotEnoughMemory
from octavo.ops.base import KVLayout

LAYOUT = KVLayout(0, layers=30, kv_heads=3, block_size=16, head_size=64)
NEEDS = MemoryNeeds(weights=500 * MIB, workspace=100 * MIB, groups=1, tokens=1 << 14)
BLOCK = 2 * 30 * 3 * 64 * 16 * 4


def test_a_block_takes_what_the_formula_says() -> None:
    assert LAYOUT.block_bytes == BLOCK


def test_num_blocks_wins_then_kv_memory_then_the_machine() -> None:
    both = EngineConfig(num_blocks=10, kv_memory="1GiB")
    assert plan_memory(both, LAYOUT, NEEDS, 8192, 8 * GIB).num_blocks == 10
    assert plan_memory(EngineConfig(kv_memory="1GiB"), LAYOUT, NEEDS, 8192, 8 * GIB).num_blocks == GIB // BLOCK
    by_machine = plan_memory(EngineConfig(), LAYOUT, NEEDS, 8192, 8 * GIB)
    assert by_machine.total < 4 * GIB
    assert by_machine.num_blocks > 8192 // 16
    small = plan_memory(EngineConfig(max_seqs=1), LAYOUT, NEEDS, 160, 8 * GIB)
    assert small.num_blocks == 10  # never more than max_seqs sequences can fill


def test_the_total_is_the_sum_of_its_parts() -> None:
    plan = plan_memory(EngineConfig(num_blocks=100), LAYOUT, NEEDS, 8192, 8 * GIB)
    assert plan.total == 600 * MIB + 100 * BLOCK + PROCESS_BYTES + (1 << 14) * TOKEN_BYTES


def test_a_plan_that_does_not_fit_is_refused_with_what_would() -> None:
    with pytest.raises(NotEnoughMemory, match=r"--num-blocks \d+ would fit") as refused:
        plan_memory(EngineConfig(kv_memory="4GiB"), LAYOUT, NEEDS, 8192, 2 * GIB)
    message = str(refused.value)
    assert "\n" not in message
    for part in ("weights 500.0MiB", "workspace 100.0MiB", "2.0GiB available"):
        assert part in message
    fits = int(message.split("--num-blocks ")[1].split()[0])
    assert plan_memory(EngineConfig(num_blocks=fits), LAYOUT, NEEDS, 8192, 2 * GIB).total <= 2 * GIB
    with pytest.raises(NotEnoughMemory):
        plan_memory(EngineConfig(num_blocks=fits + 1), LAYOUT, NEEDS, 8192, 2 * GIB)


def test_weights_alone_too_large() -> None:
    with pytest.raises(NotEnoughMemory, match="smaller model"):
        plan_memory(EngineConfig(), LAYOUT, NEEDS, 8192, 600 * MIB)


def test_a_pool_below_one_token_is_refused() -> None:
    with pytest.raises(NotEnoughMemory, match="--kv-memory"):
        plan_memory(EngineConfig(kv_memory=1000), LAYOUT, NEEDS, 8192, 8 * GIB)


def test_the_engine_refuses_before_it_reads_weights(smollm2_path: Path) -> None:
    with pytest.raises(NotEnoughMemory, match="KV pool"):
        LLM(smollm2_path, kv_memory="100TiB")


@pytest.mark.parametrize(
    ("limit_file", "used_file"),
    [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")],
    ids=["v2", "v1"],
)
def test_the_control_groups_limit_is_honoured(
    limit_file: str, used_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the group has left is what there is, for the plan, for its default pool and for growing."""
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    (tmp_path / limit_file).parent.mkdir(exist_ok=True)
    (tmp_path / limit_file).write_text(f"{900 * MIB}\n")
    (tmp_path / used_file).write_text(f"{100 * MIB}\n")
    assert memory.available_bytes() == min(800 * MIB, memory._machine_bytes())
    plan = plan_memory(EngineConfig(), LAYOUT, NEEDS, 8192, memory.available_bytes())
    assert plan.total <= 800 * MIB
    assert plan.max_blocks * BLOCK <= 800 * MIB - 600 * MIB - PROCESS_BYTES
    with pytest.raises(NotEnoughMemory, match=r"800\.0MiB available"):
        plan_memory(EngineConfig(kv_memory="300MiB"), LAYOUT, NEEDS, 8192, memory.available_bytes())
    with pytest.raises(NotEnoughMemory, match=r"would take 801\.0MiB more; the machine has 800\.0MiB"):
        memory.check_growth(801 * MIB)
    (tmp_path / used_file).write_text(f"{901 * MIB}\n")
    assert memory.available_bytes() == 0


def test_a_group_without_a_limit_leaves_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_bytes() > 0
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._cgroup_bytes() == 1 << 62


PEAK = """
import json, pathlib, sys
from octavo import LLM, SamplingParams
llm = LLM(sys.argv[1], **json.loads(sys.argv[2]))
sequences, tokens = map(int, sys.argv[3:])
prompts = [[100 + i + j for j in range(tokens)] for i in range(sequences)]
llm.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True, logprobs=2), progress=False)
# Not ru_maxrss: a process begins with the peak of the one that started it.
status = pathlib.Path("/proc/self/status").read_text().split()
plan = llm.plan
print(plan.total, plan.weights + plan.pool, int(status[status.index("VmHWM:") + 1]) * 1024)
"""
SMALL = {"num_blocks": 40, "max_batched_tokens": 256, "max_seqs": 8, "max_model_len": 512}


@pytest.mark.parametrize(
    ("settings", "sequences", "tokens"),
    [
        (SMALL, 6, 100),  # fills the pool and the token budget
        (SMALL | {"backend": "numpy", "max_batched_tokens": 64}, 6, 40),
        pytest.param({"kv_memory": "128MiB"}, 64, 100, marks=pytest.mark.slow),
    ],
)
def test_the_peak_is_under_the_plan_and_not_far(
    smollm2_path: Path, settings: dict[str, Any], sequences: int, tokens: int
) -> None:
    """In a process of its own, whose peak is its own."""
    command = [sys.executable, "-c", PEAK, str(smollm2_path), json.dumps(settings), str(sequences), str(tokens)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    planned, weights_and_pool, peak = map(int, run.stdout.split())
    assert peak <= planned < peak * 1.03 + 50 * MIB
    assert peak < weights_and_pool + 150e6


def test_an_unknown_instruction_set_is_refused_in_one_line(smollm2_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="does not run 'mmx', but portable"):
        build_engine(smollm2_path, EngineConfig(), {"OCTAVO_ISA": "mmx"})
