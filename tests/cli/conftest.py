"""A small LLM in place of the real one, so that the command line is tested for what it does itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from octavo.cli.main import main
from octavo.config import EngineConfig
from octavo.engine.outputs import Choice, Delta, EngineStats, RequestMetrics, RequestOutput
from octavo.errors import InvalidRequest, OctavoError
from octavo.params import SamplingParams

Prompt = str | list[int]
METRICS = RequestMetrics(0.0, 0.1, 0.1, 0.5, 5, 3, 0, 0, 1)
STATS = EngineStats(0, 0, 0, 64, 0, 3, 1.0, 9, 5, 0, 3, 300 << 20)


@dataclass
class FakeLLM:
    """Answers every prompt with `pieces`; remembers what it was asked."""

    pieces: tuple[str, ...] = ("one", " two", " three")
    has_chat_template: bool = True
    fails: OctavoError | None = None  # what each request ends with
    refuses: InvalidRequest | None = None  # what each request meets at the door
    between: Callable[[int], None] = lambda place: None  # called before piece number `place`
    model: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[Prompt, SamplingParams]] = field(default_factory=list)
    conversations: list[list[dict[str, str]]] = field(default_factory=list)
    abandoned: int = 0
    closed: bool = False

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *unused: object) -> None:
        self.closed = True

    def _output(self, prompt: Prompt, params: SamplingParams) -> RequestOutput:
        tokens = tuple(range(len(self.pieces)))
        reason = "error" if self.fails else "length"
        choices = tuple(Choice(index, "".join(self.pieces), tokens, reason) for index in range(params.n))
        text = prompt if isinstance(prompt, str) else None
        return RequestOutput(len(self.asked), text, (1, 2, 3, 4, 5), choices, METRICS, error=self.fails)

    def _ask(self, prompt: Prompt, params: SamplingParams) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.asked.append((prompt, params))

    def generate(
        self, prompts: Sequence[Prompt], params: Sequence[SamplingParams], *, progress: bool = True
    ) -> list[RequestOutput]:
        for prompt, param in zip(prompts, params, strict=True):
            self._ask(prompt, param)
        return [self._output(*asked) for asked in self.asked]

    def stream(self, prompt: Prompt, params: SamplingParams) -> Generator[Delta, None, None]:
        self._ask(prompt, params)
        done = False
        try:
            for place, piece in enumerate(self.pieces):
                self.between(place)
                done = place == len(self.pieces) - 1
                yield Delta(
                    0, 0, piece, (place,), "length" if done else None, self._output(prompt, params) if done else None
                )
        finally:
            self.abandoned += not done

    def chat_tokens(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        self.conversations.append([dict(message) for message in messages])
        return [len(message["content"]) for message in messages]

    def stats(self) -> EngineStats:
        return replace(STATS, steps=len(self.asked))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in fields(EngineConfig):
        monkeypatch.delenv(f"OCTAVO_{setting.name.upper()}", raising=False)


@pytest.fixture
def fake() -> FakeLLM:
    return FakeLLM()


@pytest.fixture
def octavo(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a command line against `fake`; the exit code."""

    def make(model: str, **settings: Any) -> FakeLLM:
        fake.model, fake.settings = model, settings
        return fake

    return lambda *argv: main([str(argument) for argument in argv], make_llm=make)  # type: ignore[arg-type,return-value]
