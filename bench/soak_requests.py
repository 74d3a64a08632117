"""What the clients of server_soak.py ask, and what may come of each request. Sends nothing."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.cli.load.schedule import WORDS

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "facts of a city", "parameters": CITY}}
DIGITS = r"[0-9]{3}-[0-9]{4}"
Manner = Literal["reads", "leaves", "dawdles"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request and what may come of it. kind: for the report. statuses: that are asked for. same: the greedy
    question whose answer must always be the same; None for others. form: what a whole text must look like."""

    kind: str
    body: dict[str, Any] | bytes
    path: str = "/v1/completions"
    method: str = "POST"
    manner: Manner = "reads"
    statuses: tuple[int, ...] = (200,)
    same: str | None = None
    form: Literal["json", "digits"] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The body as it is sent."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.data[:300]!r}"


class Mix:
    """Draws requests."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def ask(self) -> Ask:
        """The next one."""
        kinds = [self.greedy, self.sampled, self.held_to_form, self.tools, self.refused, self.leaver, self.dawdler]
        return self._draw.choices(kinds, weights=(25, 25, 10, 5, 15, 14, 6))[0]()

    def greedy(self) -> Ask:
        """One of a few questions, whose answer is known after the first time, in four ways to ask for it."""
        number = self._draw.randrange(12)
        chat, words = number % 2 == 0, random.Random(number)
        text = " ".join(words.choices(WORDS, k=words.choice([3, 20, 90, 200])))
        asked = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        body = asked | {"temperature": 0, "max_tokens": words.choice([8, 40, 100]), "stream": self._chance(0.6)}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        return Ask("greedy", body | self._standing(), path, same=f"question {number}")

    def sampled(self) -> Ask:
        """Anything else that a client may send."""
        return Ask("sampled", self._body() | self._extras(), statuses=(200,))

    def held_to_form(self) -> Ask:
        """An answer that a grammar holds."""
        asked: dict[str, Any] = self._body(most=60) | {"max_tokens": 80, "stream": False}
        form: Literal["json", "digits"] = "json" if self._chance(0.6) else "digits"
        if form == "digits":
            return Ask("grammar", asked | {"regex": DIGITS}, form=form)
        schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
        return Ask("grammar", asked | {"response_format": schema}, form=form)

    def tools(self) -> Ask:
        """A chat that calls a function, or may."""
        messages = [{"role": "user", "content": f"How many people live there? {self._words(20)}"}]
        choice = self._draw.choice(["required", "auto"])
        body = {"messages": messages, "tools": [TOOL], "tool_choice": choice, "max_tokens": 60}
        return Ask("tools", body | {"stream": self._chance(0.5)} | self._standing(), "/v1/chat/completions")

    def refused(self) -> Ask:
        """What a server must refuse, and how."""
        prompt = {"prompt": self._words(5)}
        nested: dict[str, Any] = {"type": "string"}
        for _ in range(90):
            nested = {"type": "object", "properties": {"a": nested}, "required": ["a"]}
        whole = "/v1/completions"
        if self._chance(0.05):  # small to read and huge to follow: refused at once, or its answer ended as too complex
            return Ask("hostile", prompt | {"regex": "(a|b){1,100000}{1,100000}"}, statuses=(400,))
        bad: list[tuple[int, Any, str, str, dict[str, str]]] = [
            (400, prompt | {"temperature": -1}, whole, "POST", {}),
            (400, {"prompt": [["x"], 1]}, whole, "POST", {}),
            (400, {"prompt": self._words(1500)}, whole, "POST", {}),
            (400, prompt | {"n": 10**9}, whole, "POST", {}),
            (400, prompt | {"regex": "("}, whole, "POST", {}),
            (400, prompt | {"guided_json": nested}, whole, "POST", {}),
            (400, prompt | {"priority": 1000}, whole, "POST", {}),
            (400, b'{"prompt": "a", ', whole, "POST", {}),
            (400, b'{"prompt": "\xff"}', whole, "POST", {}),
            (404, prompt | {"model": "another"}, whole, "POST", {}),
            (404, prompt, "/v1/completion", "POST", {}),
            (405, b"", whole, "GET", {}),
            (401, prompt, whole, "POST", {"authorization": "Bearer wrong"}),
            (415, prompt, whole, "POST", {"content-type": "text/plain"}),
            (413, {"prompt": "x" * 70_000}, whole, "POST", {}),
        ]
        status, body, path, method, headers = self._draw.choice(bad)
        return Ask(f"bad-{status}", body, path, method, statuses=(status,), headers=headers)

    def leaver(self) -> Ask:
        """A client that closes its connection before it has its answer."""
        body = self._body() | self._extras() | {"max_tokens": 200, "stream": self._chance(0.7)}
        return Ask("leaver", body, manner="leaves")

    def dawdler(self) -> Ask:
        """A client that reads far slower than the answer comes: it is served or cut off."""
        body = self._body(most=20) | {"max_tokens": 400, "stream": True, "logprobs": 20, "ignore_eos": True, "n": 4}
        return Ask("dawdler", body, manner="dawdles")

    def _body(self, most: int = 300) -> dict[str, Any]:
        shared = " ".join(random.Random(self._draw.randrange(4)).choices(WORDS, k=64)) if self._chance(0.4) else ""
        prompt = f"{shared} {self._words(self._draw.randint(1, most))}"
        body = {"prompt": prompt, "max_tokens": self._draw.randint(1, 160), "stream": self._chance(0.7)}
        return body | self._standing()

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = {
            "temperature": self._draw.choice([0, 0.7, 1.0]),
            "n": self._draw.choice([1, 1, 1, 2, 4]),
        }
        if self._chance(0.2):
            extras["logprobs"] = self._draw.randint(0, 5)
        if self._chance(0.2):
            extras["ignore_eos"] = True
        if self._chance(0.1):
            extras["stop"] = [self._draw.choice(WORDS)]
        if self._chance(0.1):
            extras |= {"repetition_penalty": 1.1, "top_p": 0.9, "top_k": 40}
        return extras

    def _standing(self) -> dict[str, Any]:
        return {"priority": self._draw.choice([5, 10, 20])} if self._chance(0.4) else {}

    def _words(self, count: int) -> str:
        return " ".join(self._draw.choices(WORDS, k=count))

    def _chance(self, share: float) -> bool:
        return self._draw.random() < share
