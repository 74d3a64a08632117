"""The memory contract: what the machine has, what a plan takes, a refusal with numbers before anything is loaded."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from octavo.config import EngineConfig, parse_bytes
from octavo.errors import NotEnoughMemory
from octavo.ops.base import KVLayout
from octavo.tiers.disk import BLOCKS_IN_TRANSIT

GIB = 1 << 30
MIB = 1 << 20
# The pool is sized from the machine when nobody says: enough for max_seqs whole sequences, but no more than this.
DEFAULT_POOL_SHARE = 0.25
DEFAULT_POOL_LIMIT = 4 * GIB
# Interpreter, libraries, what sampling takes for a moment; and for each token of the vocabulary its texts and the like.
PROCESS_BYTES = 72 * MIB
TOKEN_BYTES = 256

GROWTH = 8  # times its first size that the pool may grow to, where the machine has as much

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What the engine holds besides the pool, in bytes. weights: as the backend keeps them. workspace: of the largest
    step. groups: layer groups that draw from the pool. tokens: of the vocabulary."""

    weights: int
    workspace: int
    groups: int
    tokens: int

    @property
    def process(self) -> int:
        """What Python and its libraries hold."""
        return PROCESS_BYTES + self.tokens * TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that the engine will hold, and the pool that fits. process: see MemoryNeeds. available: what the machine
    (and its cgroup) had. tiers: host memory for blocks that left the pool, and for those on their way to or from a
    disk."""

    weights: int
    workspace: int
    process: int
    block_bytes: int
    num_blocks: int
    available: int
    tiers: int = 0

    @property
    def pool(self) -> int:
        """Bytes of the KV pool."""
        return self.block_bytes * self.num_blocks

    @property
    def max_blocks(self) -> int:
        """The largest pool that address space is reserved for, so that it can grow while serving."""
        spare = max(self.available - self.total, 0) // self.block_bytes
        return self.num_blocks + min(spare, (GROWTH - 1) * self.num_blocks)

    @property
    def total(self) -> int:
        """Bytes in all; resident memory stays under this."""
        return self.weights + self.workspace + self.pool + self.tiers + self.process


def plan_memory(
    config: EngineConfig, layout: KVLayout, needs: MemoryNeeds, max_model_len: int, available: int
) -> MemoryPlan:
    """Size the pool and check the sum against the machine.

    layout.num_blocks is ignored. Raises NotEnoughMemory, with the arithmetic and the nearest settings that fit.
    """
    block = layout.block_bytes
    tiers = _tier_bytes(config, block)
    left = available - needs.weights - needs.workspace - tiers - needs.process
    if config.num_blocks is not None:
        blocks = config.num_blocks
    elif config.kv_memory is not None:
        blocks = parse_bytes(config.kv_memory) // block
    else:
        whole = -(-max_model_len // layout.block_size) * needs.groups * config.max_seqs
        blocks = min(whole, int(left * DEFAULT_POOL_SHARE) // block, DEFAULT_POOL_LIMIT // block)
    plan = MemoryPlan(needs.weights, needs.workspace, needs.process, block, max(blocks, 0), available, tiers)
    if left < needs.groups * block or plan.total > available:
        fits = max(left // block, 0)
        hint = (
            f"--num-blocks {fits} would fit ({fits * layout.block_size // needs.groups} tokens)"
            if fits >= needs.groups
            else f"free {_size(needs.groups * block - left)} more, or take a smaller model or --max-batched-tokens"
            + (" or --host-kv-memory" if tiers else "")
        )
        raise NotEnoughMemory(
            f"the plan needs {_size(plan.total)}: weights {_size(plan.weights)} + KV pool {_size(plan.pool)} "
            f"({plan.num_blocks} blocks of {_size(block)}) + workspace {_size(plan.workspace)} + "
            f"{f'tiers {_size(tiers)} + ' if tiers else ''}process {_size(plan.process)}; the machine has "
            f"{_size(available)} available: {hint}"
        )
    if plan.num_blocks < needs.groups:
        raise NotEnoughMemory(
            f"the KV pool holds {plan.num_blocks} blocks of {_size(block)}: one token needs {needs.groups} "
            f"(one for each layer group); give --kv-memory {_size(needs.groups * block)} or more"
        )
    return plan


def check_growth(more: int) -> None:
    """Raise NotEnoughMemory when the machine has not that many bytes more."""
    available = available_bytes() if more > 0 else 0
    if more > available:
        raise NotEnoughMemory(f"the pool would take {_size(more)} more; the machine has {_size(available)} available")


def _tier_bytes(config: EngineConfig, block: int) -> int:
    host = 0 if config.host_kv_memory is None else parse_bytes(config.host_kv_memory) // block * block
    transit = 0 if config.disk_kv is None else BLOCKS_IN_TRANSIT * block
    return host + transit


def resident_bytes() -> int:
    """Resident memory of this process, in bytes."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no /proc: the peak is the closest that the system tells
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def available_bytes() -> int:
    """Memory that this process may still take: the machine's, or its cgroup's if that is less."""
    return min(_machine_bytes(), _cgroup_bytes())


def _machine_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_bytes() -> int:
    """What the control group leaves (version 2, then 1); without a limit, more than any machine has."""
    for limit_file, used_file in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit = (_CGROUP / limit_file).read_text().strip()
            if limit != "max":
                return max(int(limit) - int((_CGROUP / used_file).read_text()), 0)
        except (OSError, ValueError):
            continue
    return 1 << 62


def _size(count: int) -> str:
    """Bytes as people say them; the text is accepted back by `kv_memory`."""
    for unit, width in (("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if count >= width:
            return f"{count / width:.1f}{unit}"
    return f"{count}B"
