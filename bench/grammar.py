"""What holding answers to a grammar costs: tokens a second with and without, in turn, on one loaded model."""

from __future__ import annotations

import argparse
import json
import statistics
import time

from octavo import LLM, Grammar, SamplingParams

# None of these sentences can end before the answers do, so that all runs compute the same number of tokens.
STORY = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "text": {"type": "string", "minLength": 2000}},
    "required": ["title", "text"],
    "additionalProperties": False,
}
KINDS = {
    "none": None,
    "json_schema": Grammar.json_schema(STORY),
    "regex": Grammar.regex(r"([A-Za-z]+[ ,.]){400,500}"),
}
QUESTION = "Write a short story about number {}, as JSON."


def rate(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> float:
    """New tokens a second of one run."""
    begun = time.perf_counter()
    outputs = llm.generate(prompts, params, progress=False)
    seconds = time.perf_counter() - begun
    tokens = sum(len(output.choices[0].tokens) for output in outputs)
    assert params.max_tokens is not None
    assert tokens == len(prompts) * params.max_tokens, "an answer ended early"
    return tokens / seconds


def main() -> None:
    """Measure, print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--generated", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default 0)")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with LLM(asked.model, threads=asked.threads, prefix_cache=False) as llm:
        prompts = [
            llm.chat_tokens([{"role": "user", "content": QUESTION.format(number)}]) for number in range(asked.batch)
        ]
        for turn in range(asked.rounds + 1):
            for kind, grammar in KINDS.items():
                params = SamplingParams(
                    max_tokens=asked.generated,
                    ignore_eos=True,
                    grammar=grammar,
                    temperature=asked.temperature,
                    seed=turn,
                )
                measured = rate(llm, prompts, params)
                if turn:  # the first compiles and warms up
                    rates[kind].append(measured)
    plain = statistics.median(rates["none"])
    for kind, samples in rates.items():
        median = statistics.median(samples)
        print(
            f"{kind:12} {median:8.1f} tokens/s ({min(samples):.1f}-{max(samples):.1f}), {median / plain:.3f} of plain"
        )
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
