"""vLLM's CPU build on a bf16 directory, in one process. Its threads come from the environment (see catalog.py)."""

from __future__ import annotations

import time

from protocol import Answer, Job, Run, serve


def load(setup: Job) -> tuple[Answer, Run]:
    import vllm

    llm = vllm.LLM(model=setup["model"], dtype="bfloat16", max_num_seqs=64, max_num_batched_tokens=2048)

    def run(prompts: list[list[int]], generated: int) -> Answer:
        params = vllm.SamplingParams(temperature=0.0, max_tokens=generated, ignore_eos=True, detokenize=False)
        begun = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "generated": sum(len(output.outputs[0].token_ids) for output in outputs)}

    return {"version": vllm.__version__}, run


if __name__ == "__main__":
    serve(load)
