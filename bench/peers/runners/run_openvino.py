"""OpenVINO GenAI's continuous batching on a GGUF file, with f32 or bf16 left to its own choice."""

from __future__ import annotations

import time

import numpy as np
import openvino
import openvino_genai as genai
from protocol import Answer, Job, Run, serve


def load(setup: Job) -> tuple[Answer, Run]:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 4
    scheduler.max_num_seqs = 64
    scheduler.max_num_batched_tokens = 2048
    scheduler.dynamic_split_fuse = True
    options = {"INFERENCE_NUM_THREADS": setup["threads"]}
    pipeline = genai.ContinuousBatchingPipeline(setup["model"], scheduler, "CPU", options, {})

    def run(prompts: list[list[int]], generated: int) -> Answer:
        config = genai.GenerationConfig()
        config.max_new_tokens = generated
        config.ignore_eos = True
        config.do_sample = False
        tensors = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        begun = time.perf_counter()
        results = pipeline.generate(tensors, [config] * len(prompts))
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "generated": sum(len(result.m_generation_ids[0]) for result in results)}

    return {"version": genai.__version__}, run


if __name__ == "__main__":
    serve(load)
