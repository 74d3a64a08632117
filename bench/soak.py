"""Mixed work for minutes of CPU, and resident memory against the plan: python bench/soak.py [--minutes M].

Lengths, choices, aborts and repeats at random over a pool that is always full, with a host tier and a disk tier. Prints
resident memory every tenth of the time. Ends with 1 when the peak is more than 3% + 50 MB beside the plan, when memory
grows after the first half, or when blocks are left.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from time import process_time

from octavo import LLM, SamplingParams
from octavo.engine.memory import MIB, resident_bytes

TOLERANCE = 0.03
TOLERANCE_BYTES = 50_000_000
WAITING = 8  # requests that are kept waiting


@dataclass(slots=True)
class Work:
    """Prompts of 8 to 600 tokens, a third of which continue an earlier one; answers of up to 160, one in four of n 2 to
    4, one in ten aborted."""

    rng: random.Random
    vocab_size: int
    known: list[list[int]] = field(default_factory=list)

    def draw(self) -> tuple[list[int], SamplingParams]:
        rng = self.rng
        prompt = [rng.randrange(self.vocab_size) for _ in range(rng.choice([8, 40, 161, 161, 600]))]
        if self.known and rng.random() < 0.33:
            prompt = rng.choice(self.known) + prompt[:40]
        if len(prompt) < 500:
            self.known = [*self.known[-63:], prompt]
        params = SamplingParams(
            max_tokens=rng.randint(1, 160), n=rng.choice([1, 1, 1, rng.randint(2, 4)]), temperature=1.0, ignore_eos=True
        )
        return prompt, params


def soak(llm: LLM, seconds: float, seed: int) -> list[int]:
    """Resident bytes at each hundredth of the time, which is that of one thread that computes all along."""
    engine, work = llm.engine, Work(random.Random(seed), llm.engine.vocab_size)
    live: list[int] = []
    resident: list[int] = []
    begun = process_time()
    while (now := process_time() - begun) < seconds:
        while engine.stats().waiting < WAITING:
            prompt, params = work.draw()
            live.append(engine.add(prompt, params, seed=len(live)))
        if work.rng.random() < 0.01:
            engine.abort(work.rng.choice(live[-32:]))
        engine.step()
        if now > seconds * (len(resident) + 1) / 100:
            resident.append(resident_bytes())
    for request in live:
        engine.abort(request)
    while engine.has_work:
        engine.step()
    return resident


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        tiers = {"host_kv_memory": "32MiB", "disk_kv": folder + "/kv"}
        llm = LLM(
            arguments.model,
            kv_memory="96MiB",
            max_model_len=2048,
            max_seqs=16,
            max_batched_tokens=512,
            threads=1,
            disk_kv_size="512MiB",
            **tiers,
        )
        with llm:
            plan = llm.plan.total
            resident = soak(llm, arguments.minutes * 60, arguments.seed)
            stats = llm.stats()
    return report(plan, resident, stats.blocks_used, f"{stats}")


def report(plan: int, resident: list[int], left: int, stats: str) -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    allowed = plan * TOLERANCE + TOLERANCE_BYTES
    half = len(resident) // 2
    growth = max(resident[half:]) - max(resident[:half])
    print("resident MiB:", *(f"{each / MIB:.0f}" for each in resident[9::10]))
    print(
        f"plan {plan / MIB:.0f} MiB, peak {peak / MIB:.0f}: {(peak - plan) / MIB:+.0f} of +-{allowed / MIB:.0f} allowed"
    )
    print(f"growth of the peak after the first half {growth / MIB:+.1f} MiB; {left} blocks left")
    print(stats)
    return int(abs(peak - plan) > allowed or growth > TOLERANCE_BYTES or left > 0)


if __name__ == "__main__":
    sys.exit(main())
