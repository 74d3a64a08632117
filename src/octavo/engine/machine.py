"""What machine this is, for whoever reads a measurement later. Measures nothing."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
# Widest first; the first whose flags are all there is the machine's.
_INSTRUCTION_SETS = (
    ("AVX-512 VNNI BF16", {"avx512f", "avx512_vnni", "avx512_bf16"}),
    ("AVX-512 VNNI", {"avx512f", "avx512_vnni"}),
    ("AVX-512", {"avx512f"}),
    ("AVX2 VNNI", {"avx2", "fma", "avx_vnni"}),
    ("AVX2 FMA", {"avx2", "fma"}),
    ("NEON I8MM", {"asimd", "i8mm"}),
    ("NEON", {"asimd"}),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """cores: those that this process may use. instruction_set: the widest that octavo could use, "" when unknown.
    memory_bytes: of the whole machine."""

    cpu: str
    cores: int
    instruction_set: str
    memory_bytes: int
    system: str
    python: str

    def __str__(self) -> str:
        sets = f", {self.instruction_set}" if self.instruction_set else ""
        return f"{self.cpu}, {self.cores} cores{sets}, {self.memory_bytes / 2**30:.0f} GiB"


def describe_machine(cpu_info: Path = _CPU_INFO) -> Machine:
    """The machine that this process runs on."""
    facts = _first_cpu(cpu_info)
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        cpu=_name(facts),
        cores=len(affinity(0)) if affinity else os.cpu_count() or 1,
        instruction_set=next((name for name, needed in _INSTRUCTION_SETS if needed <= flags), ""),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
    )


def _name(facts: dict[str, str]) -> str:
    """Virtual machines often hide the model's name; family and model still tell processors apart."""
    name = facts.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in facts:
        name += f" (family {facts['cpu family']} model {facts.get('model', '?')})"
    return name


def _first_cpu(path: Path) -> dict[str, str]:
    try:
        block = path.read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
