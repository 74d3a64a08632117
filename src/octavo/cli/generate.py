"""`octavo generate`: answers prompts, streaming one or batching many. Knows no scheduling."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from octavo.cli import show
from octavo.cli.flags import add_engine_flags, add_sampling_flags, engine_settings, sampling_settings
from octavo.cli.prompts import PromptLine, from_arguments, from_file
from octavo.errors import InvalidRequest

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM
    from octavo.engine.llm import LLM
    from octavo.engine.outputs import RequestOutput

USAGE = "octavo generate MODEL [PROMPT ...] [options]"
SUMMARY = """\
Answer prompts. One prompt streams to standard output as it is made; several run together, as many at a time as the
KV memory holds, and come out in order. The last line, on standard error, tells speed and memory.

examples:
  octavo generate smollm2-135m "The capital of France is"
  octavo generate smollm2-135m --chat --temperature 0.7 --seed 1 "Write a haiku about the sea."
  cat letter.txt | octavo generate model.gguf --max-tokens 300 -
  octavo generate smollm2-135m --file prompts.jsonl --json > answers.jsonl

A line of prompts.jsonl: {"prompt": "Once upon a time", "max_tokens": 40, "stop": ["\\n"]}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="an alias, a .gguf file, a Hugging Face directory or a hub id")
    parser.add_argument("prompts", metavar="PROMPT", nargs="*", help="a text to go on with; - is standard input")
    parser.add_argument(
        "--file", metavar="FILE", help='JSON lines, each with "prompt" (a text or token ids) and any sampling settings'
    )
    parser.add_argument("--chat", action="store_true", help="take each prompt as a message, through the chat template")
    parser.add_argument("--system", metavar="TEXT", help="with --chat: the system message before each prompt")
    parser.add_argument("--json", action="store_true", help="one JSON object a line: text, tokens, reason, metrics")
    parser.add_argument("--quiet", action="store_true", help="no progress and no last line")
    add_sampling_flags(parser)
    add_engine_flags(parser)


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Read and check everything, then load, then answer. 2 when a request failed while it ran, else 0."""
    settings = sampling_settings(arguments)
    lines = list(from_arguments(arguments.prompts, settings))
    if arguments.file is not None:
        lines += from_file(arguments.file, settings)
    if not lines:
        raise InvalidRequest("there is no prompt: give PROMPT, - for standard input, or --file", param="prompt")
    if arguments.system is not None and not arguments.chat:
        raise InvalidRequest("--system needs --chat", param="system")
    with make_llm(arguments.model, **engine_settings(arguments)) as llm:
        prompts = [_prompt(llm, line, arguments) for line in lines]
        started = time.monotonic()
        if len(lines) == 1 and lines[0].params.n == 1 and not arguments.json:
            outputs = [_stream(llm, prompts[0], lines[0])]
        else:
            outputs = llm.generate(
                prompts, [line.params for line in lines], progress=not arguments.quiet and sys.stderr.isatty()
            )
            _print_all(outputs, as_json=arguments.json)
        seconds = time.monotonic() - started
        if not arguments.quiet:
            print(show.summary(outputs, seconds, llm.stats()), file=sys.stderr)
    return _report_failures(outputs, lines)


def _prompt(llm: LLM, line: PromptLine, arguments: argparse.Namespace) -> str | list[int]:
    if not arguments.chat:
        return line.prompt
    if not isinstance(line.prompt, str):
        raise InvalidRequest(f"{line.place}: --chat needs prompts that are text, not token ids", param="prompt")
    system = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
    return llm.chat_tokens([*system, {"role": "user", "content": line.prompt}])


def _stream(llm: LLM, prompt: str | list[int], line: PromptLine) -> RequestOutput:
    output = None
    for delta in llm.stream(prompt, line.params):
        print(delta.text, end="", flush=True)
        output = delta.output or output
    print(flush=True)
    assert output is not None
    return output


def _print_all(outputs: list[RequestOutput], *, as_json: bool) -> None:
    for index, output in enumerate(outputs):
        if as_json:
            for text in show.json_lines(output, index):
                print(text)
            continue
        for choice in output.choices:
            label = f"[{index}]" if len(output.choices) == 1 else f"[{index}.{choice.index}]"
            print(f"{label} {choice.text}")


def _report_failures(outputs: list[RequestOutput], lines: list[PromptLine]) -> int:
    failed = [(line, output.error) for line, output in zip(lines, outputs, strict=True) if output.error is not None]
    for line, error in failed:
        print(f"octavo: error: {line.place}: {error}", file=sys.stderr)
    return 2 if failed else 0
