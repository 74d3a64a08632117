"""llama.cpp through its own llama-batched-bench, which draws random prompts itself. Loads the model for each job.

The tool decodes `generated` steps after the prompt. The first token comes from the prompt's own step, so that a batch
of n tokens is one prompt and n - 1 steps: the last step is taken off in proportion. It samples nothing, in its favour.
"""

from __future__ import annotations

import json
import subprocess
import time

from protocol import Answer, Job, Run, serve

CELLS = 256  # llama.cpp rounds each sequence's share of the context up to this


def load(setup: Job) -> tuple[Answer, Run]:
    options, threads = setup["options"], str(setup["threads"])

    def bench(prompt: int, generated: int, batch: int) -> dict[str, float]:
        context = batch * -(-(prompt + generated) // CELLS) * CELLS
        command = [options["program"], "-m", setup["model"], "-c", str(context), "-b", "2048", "-ub", "512"]
        command += ["-t", threads, "-tb", threads, "-npp", str(prompt), "-ntg", str(generated), "-npl", str(batch)]
        done = subprocess.run([*command, "--output-format", "jsonl"], capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            raise RuntimeError(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        times: dict[str, float] = json.loads(lines[-1])
        return times

    def run(prompts: list[list[int]], generated: int) -> Answer:
        batch = len(prompts)
        times = bench(len(prompts[0]), generated, batch)
        seconds = times["t_pp"] + times["t_tg"] * (generated - 1) / generated
        return {"seconds": seconds, "generated": batch * generated}

    begun = time.perf_counter()
    bench(14, 1, 1)
    return {"version": options["version"], "start_s": time.perf_counter() - begun}, run


if __name__ == "__main__":
    serve(load)
