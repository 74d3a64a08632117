"""octavo as the comparison runs it. Runs in octavo's own environment."""

from __future__ import annotations

import time

from protocol import Answer, Job, Run, serve

import octavo


def load(setup: Job) -> tuple[Answer, Run]:
    llm = octavo.LLM(setup["model"], threads=setup["threads"], **setup["options"])

    def run(prompts: list[list[int]], generated: int) -> Answer:
        params = octavo.SamplingParams(max_tokens=generated, ignore_eos=True)
        begun = time.perf_counter()
        outputs = llm.generate(prompts, params, progress=False)
        seconds = time.perf_counter() - begun
        for output in outputs:
            if output.error is not None:
                raise output.error
        return {"seconds": seconds, "generated": sum(len(output.choices[0].tokens) for output in outputs)}

    return {"version": octavo.__version__}, run


if __name__ == "__main__":
    serve(load)
