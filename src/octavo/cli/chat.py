"""`octavo chat`: a conversation at the terminal, or line by line from a pipe. Knows no scheduling.

The conversation is kept as messages; each turn sends all of it, and the prefix cache makes that cheap.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from octavo.cli import show
from octavo.cli.flags import add_engine_flags, add_sampling_flags, engine_settings, sampling_settings
from octavo.cli.interrupt import InterruptFlag
from octavo.cli.reader import Reader, line_reader, terminal_reader
from octavo.errors import InvalidRequest, OctavoError
from octavo.params import SamplingParams

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM
    from octavo.engine.llm import LLM
    from octavo.engine.outputs import RequestOutput

USAGE = "octavo chat MODEL [options]"
SUMMARY = """\
Talk with a model. Alt-Enter, or a backslash at the end of a line, begins a new line; Ctrl-C stops an answer, twice
the program; Ctrl-D leaves. Without a terminal, each line of standard input is one message.

examples:
  octavo chat smollm2-135m
  octavo chat smollm2-135m --system "Answer in one sentence." --temperature 0.7
  octavo chat gemma3-270m --raw --max-tokens 40
"""
HELP = """\
/reset        forget the conversation
/stats        speed and memory
/system TEXT  set the system message (without TEXT: none)
/help         this
Alt-Enter or a backslash at the end: a new line. Ctrl-C: stop the answer. Ctrl-D: leave."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="an alias, a .gguf file, a Hugging Face directory or a hub id")
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument(
        "--raw", action="store_true", help="no chat template and no memory: go on with each text as it stands"
    )
    add_sampling_flags(parser, max_tokens="all", n=None)
    add_engine_flags(parser)


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Load the model and talk until the input ends."""
    params = SamplingParams(**{"max_tokens": None, **sampling_settings(arguments)})
    if params.n != 1:
        raise InvalidRequest("a chat has one answer a turn: leave out --n", param="n")
    with make_llm(arguments.model, **engine_settings(arguments)) as llm:
        raw = arguments.raw or not llm.has_chat_template
        if raw and not arguments.raw:
            _note(
                "this model has no chat template (it is a base model), so it does not answer messages: "
                "it goes on with each text as it stands, as with --raw"
            )
        session = Session(llm, params, raw=raw, system=arguments.system)
        if sys.stdin.isatty() and sys.stdout.isatty():
            _note(f"{arguments.model} is ready. /help tells the commands, Ctrl-D leaves.")
            talk(session, terminal_reader())
        else:
            talk(session, line_reader(sys.stdin))
    return 0


class Session:
    """One conversation: its messages, and what the last answer cost."""

    def __init__(self, llm: LLM, params: SamplingParams, *, raw: bool = False, system: str | None = None) -> None:
        self.system = system
        self._llm = llm
        self._params = params
        self._raw = raw
        self._turns: list[dict[str, str]] = []
        self._last: RequestOutput | None = None

    def reset(self) -> None:
        """Forget the turns; the system message stays."""
        self._turns.clear()

    def answer(self, text: str) -> None:
        """Stream the answer to one message and remember both; Ctrl-C keeps what was said so far.

        Raises OctavoError, with the conversation as it was, when the model cannot answer.
        """
        said: list[str] = []
        prompt = self._prompt(text)
        with InterruptFlag() as interrupted:
            deltas = self._llm.stream(prompt, self._params)
            for delta in deltas:
                said.append(delta.text)
                print(delta.text, end="", flush=True)
                self._last = delta.output or self._last
                if interrupted.is_set:
                    deltas.close()
                    break
        print(flush=True)
        if interrupted.is_set:
            _note("stopped")
        elif self._last is not None and self._last.error is not None:
            raise self._last.error
        self._turns += [{"role": "user", "content": text}, {"role": "assistant", "content": "".join(said)}]

    def stats(self) -> str:
        """What the last answer cost and what the engine holds."""
        stats = self._llm.stats()
        if self._last is None:
            return f"no finished answer yet; {stats.num_blocks} blocks, {stats.resident_bytes // show.MIB} MiB resident"
        return show.summary([self._last], self._last.metrics.total_s, stats)

    def _prompt(self, text: str) -> str | list[int]:
        if self._raw:
            return text
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self._llm.chat_tokens([*system, *self._turns, {"role": "user", "content": text}])


def talk(session: Session, read: Reader) -> None:
    """Read, answer, until the reader has no more. An error costs a line, not the conversation."""
    while (text := read()) is not None:
        if not text.strip():
            continue
        try:
            if text.startswith("/"):
                _command(session, text)
            else:
                session.answer(text)
        except OctavoError as error:
            hint = " (/reset forgets the conversation)" if _too_long(error) else ""
            _note(f"error: {error}{hint}")


def _command(session: Session, text: str) -> None:
    name, _, rest = text.partition(" ")
    if name == "/reset":
        session.reset()
        _note("the conversation is forgotten")
    elif name == "/stats":
        _note(session.stats())
    elif name == "/system":
        session.system = rest.strip() or None
        _note("system message set" if session.system else "no system message")
    elif name == "/help":
        _note(HELP)
    else:
        _note(f"there is no command {name}; /help lists them (a message may begin with a space and then a slash)")


def _too_long(error: OctavoError) -> bool:
    return isinstance(error, InvalidRequest) and error.code in ("context_length_exceeded", "pool_too_small")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
