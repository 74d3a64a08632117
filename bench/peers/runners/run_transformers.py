"""transformers' generate on a bf16 directory, prompts of equal length as one batch."""

from __future__ import annotations

import time

import torch
import transformers
from protocol import Answer, Job, Run, serve


def load(setup: Job) -> tuple[Answer, Run]:
    torch.set_num_threads(setup["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(setup["model"], dtype=torch.bfloat16)

    def run(prompts: list[list[int]], generated: int) -> Answer:
        ids = torch.tensor(prompts)
        begun = time.perf_counter()
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=generated,
                min_new_tokens=generated,
                do_sample=False,
                pad_token_id=0,
            )
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "generated": (output.shape[1] - ids.shape[1]) * ids.shape[0]}

    return {"version": f"{transformers.__version__}, torch {torch.__version__}"}, run


if __name__ == "__main__":
    serve(load)
