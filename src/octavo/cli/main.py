"""The `octavo` command: picks the subcommand, turns every outcome into an exit code. Knows nothing that they do.

Exit codes: 0 done, 2 an OctavoError (one line on standard error), 130 Ctrl-C, 141 the reader of a pipe went away.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from octavo import __version__
from octavo.errors import InvalidRequest, OctavoError

if TYPE_CHECKING:
    from octavo.engine.llm import LLM

MakeLLM = Callable[..., "LLM"]

# Each module has USAGE, SUMMARY, add_arguments(parser), run(arguments, make_llm) and is imported when asked for.
COMMANDS = {
    "generate": "octavo.cli.generate",
    "chat": "octavo.cli.chat",
    "serve": "octavo.cli.serve",
    "pull": "octavo.cli.pull",
    "models": "octavo.cli.models",
    "bench": "octavo.cli.bench",
    "bench kernels": "octavo.cli.bench.kernels",
    "bench serve": "octavo.cli.load",
}

OVERVIEW = """\
Run language models on paged KV memory.

commands:
  generate      answer prompts: stream one, batch many, text or JSON lines
  chat          talk with a model
  serve         answer over HTTP with OpenAI's protocol
  pull          fetch a model into the cache, or check the copy there
  models        list the models that have an alias
  bench         measure a model on this machine
  bench kernels measure native kernels beside this machine's limits
  bench serve   measure any server under load

examples:
  octavo generate smollm2-135m --chat "Why is the sky blue?"
  octavo generate model.gguf --file prompts.jsonl --json > answers.jsonl
  octavo chat smollm2-135m
  octavo serve smollm2-135m

'octavo COMMAND --help' tells all of one command.
"""


class Parser(argparse.ArgumentParser):
    """argparse whose mistakes are an InvalidRequest: one line that names the way to the help, not a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise InvalidRequest(f"{message} ('{self.prog} --help' tells more)", param="arguments")


def main(argv: Sequence[str] | None = None, *, make_llm: MakeLLM | None = None) -> int:
    """Run the command line `argv` (default: the process's own); the exit code. make_llm: builds the model's LLM."""
    try:
        _tolerate_any_text(sys.stdout)
        code = _dispatch(list(sys.argv[1:] if argv is None else argv), make_llm or _load)
        sys.stdout.flush()
    except OctavoError as error:
        print(f"octavo: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough; nothing more may be written, not by the interpreter's exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _dispatch(argv: list[str], make_llm: MakeLLM) -> int:
    top = Parser(
        prog="octavo",
        usage="octavo COMMAND ...",
        description=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    top.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    chosen = top.parse_args(argv[:1])
    if chosen.version:
        print(f"octavo {__version__}")
        return 0
    if chosen.command is None:
        top.print_help()
        return 0
    if chosen.command not in COMMANDS:
        top.error(f"there is no command {chosen.command!r}; the commands are {', '.join(COMMANDS)}")
    name, rest = chosen.command, argv[1:]
    if " ".join(argv[:2]) in COMMANDS:
        name, rest = " ".join(argv[:2]), argv[2:]
    command = importlib.import_module(COMMANDS[name])
    parser = Parser(
        prog=f"octavo {name}",
        usage=command.USAGE,
        description=command.SUMMARY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    code: int = command.run(parser.parse_intermixed_args(rest), make_llm)
    return code


def _load(model: str, **settings: object) -> LLM:
    from octavo.engine.llm import LLM

    return LLM(model, **settings)  # type: ignore[arg-type]  # EngineConfig checks each


def _tolerate_any_text(stream: object) -> None:
    """A model may say what the terminal's encoding cannot: show a replacement, do not die."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
