"""Answers of /v1/responses: items, and a stream of named events. Keeps nothing between requests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.engine.outputs import Delta, RequestOutput
from octavo.server.answers import Object, reasoning_tokens, usage_of
from octavo.server.errors import Failure
from octavo.server.message import MessageReader
from octavo.server.prompts import Ask
from octavo.server.tools import ToolUse
from octavo.server.wire import event
from octavo.text.tokenizer import Tokenizer


class ResponseForm:
    """One response: thinking, a message, calls of functions. See octavo.server.answers.Form."""

    def __init__(self, ask: Ask, model: str, tokenizer: Tokenizer) -> None:
        self._ask = ask
        self.id = f"resp_{secrets.token_hex(24)}"
        self._head: Object = {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "parallel_tool_calls": ask.tools.calling is None or ask.tools.calling.several,
            "temperature": ask.params.temperature,
            "top_p": ask.params.top_p,
            "max_output_tokens": ask.params.max_tokens,
            "tools": [{"type": "function", **tool.described()["function"]} for tool in ask.tools.told],
            "tool_choice": _tool_choice(ask.tools),
            **ask.repeated,
            "previous_response_id": None,
            "background": False,
            "truncation": "disabled",
            "store": False,
            "error": None,
            "incomplete_details": None,
        }
        self._items = _Items(MessageReader(ask.tools, ask.thinking))
        self._tokenizer = tokenizer
        self._sent = 0
        self._reason = ""

    def whole(self, outputs: Sequence[RequestOutput]) -> Object:
        """See Form."""
        choice = outputs[0].choices[0]
        for _ in self._items.take(choice.text, choice.finish_reason):
            pass
        return self._finished(choice.finish_reason, outputs)

    def events(self, place: int, delta: Delta) -> bytes:
        """See Form. The events of the first delta announce the response."""
        made = b""
        if not self._sent:
            begun = self._unfinished("in_progress")
            made = self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)
        if delta.finish_reason is not None:
            self._reason = delta.finish_reason
        told = self._items.take(delta.text, delta.finish_reason)
        return made + b"".join(self._event(kind, **what) for kind, what in told)

    def frame(self) -> None:
        """See Form: events are numbered."""

    def last_events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """See Form."""
        finished = self._finished(self._reason, outputs)
        return self._event(f"response.{finished['status']}", response=finished)

    def failed(self, failure: Failure) -> bytes:
        """See Form."""
        error = {"code": "server_error", "message": failure.message}
        return self._event("response.failed", response=self._unfinished("failed") | {"error": error})

    def _unfinished(self, status: str) -> Object:
        return {**self._head, "status": status, "output": self._items.done, "usage": None}

    def _finished(self, reason: str, outputs: Sequence[RequestOutput]) -> Object:
        cut = reason == "length"
        usage, thinking = usage_of(outputs), self._ask.thinking
        thought = 0 if thinking is None else reasoning_tokens(outputs, thinking, self._tokenizer)
        return {
            **self._head,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._items.done,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": thought},
                "total_tokens": usage["total_tokens"],
            },
        }

    def _event(self, kind: str, /, **what: Any) -> bytes:
        self._sent += 1
        return event({"type": kind, "sequence_number": self._sent - 1, **what}, kind)


def _tool_choice(use: ToolUse) -> str | Object:
    """As the body had it; of allowed functions, the mode."""
    if use.calling is None:
        return "none"
    if use.named:
        return {"type": "function", "name": use.calling.tools[0].name}
    return "required" if use.calling.must else "auto"


Told = tuple[str, Object]


@dataclass(frozen=True, slots=True)
class _Texts:
    """One kind of item that holds a text. prefix: of its ids. item, part, beside: what it, its one part and its events
    have besides, made anew for each."""

    prefix: str
    event: str
    item: Callable[[], Object]
    part: Callable[[], Object]
    beside: Callable[[], Object]


_TEXTS = {
    "message": _Texts(
        "msg",
        "response.output_text",
        lambda: {"role": "assistant"},
        lambda: {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
        lambda: {"logprobs": []},
    ),
    "reasoning": _Texts(
        "rs",
        "response.reasoning_text",
        lambda: {"summary": []},
        lambda: {"type": "reasoning_text", "text": ""},
        dict,
    ),
}


class _Items:
    """The output items of one response, as they grow."""

    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader
        self.done: list[Object] = []
        self._open: Object | None = None

    def take(self, text: str, reason: str | None) -> Iterator[Told]:
        """The events that more text makes. reason: why the answer ended with it; the items are whole then."""
        last = reason is not None
        for delta in self._reader.deltas(text, last=last):
            if thought := delta.get("reasoning_content"):
                yield from self._text("reasoning", thought)
            if content := delta.get("content"):
                yield from self._text("message", content)
            for part in delta.get("tool_calls", ()):
                yield from self._call(part)
        if last:
            if self._open is None and not self.done:
                yield from self._begin_text("message")
            yield from self._close("incomplete" if reason == "length" else "completed")

    def _text(self, kind: str, text: str) -> Iterator[Told]:
        if self._open is None or self._open["type"] != kind:
            yield from self._close()
            yield from self._begin_text(kind)
        assert self._open is not None
        self._open["content"][0]["text"] += text
        texts = _TEXTS[kind]
        yield f"{texts.event}.delta", {**self._place(), "content_index": 0, "delta": text, **texts.beside()}

    def _call(self, part: Object) -> Iterator[Told]:
        if "id" in part:
            yield from self._close()
            ids = {"id": f"fc_{secrets.token_hex(12)}", "call_id": part["id"]}
            call = {"type": "function_call", "status": "in_progress", "name": part["function"]["name"], "arguments": ""}
            yield from self._begin({**ids, **call})
        else:
            assert self._open is not None
            piece = part["function"]["arguments"]
            self._open["arguments"] += piece
            yield "response.function_call_arguments.delta", {**self._place(), "delta": piece}

    def _begin_text(self, kind: str) -> Iterator[Told]:
        texts = _TEXTS[kind]
        ids = {"id": f"{texts.prefix}_{secrets.token_hex(12)}", "type": kind}
        yield from self._begin({**ids, **texts.item(), "status": "in_progress", "content": []})
        assert self._open is not None
        part = texts.part()
        yield "response.content_part.added", {**self._place(), "content_index": 0, "part": dict(part)}
        self._open["content"].append(part)

    def _begin(self, item: Object) -> Iterator[Told]:
        self._open = item
        yield "response.output_item.added", {"output_index": len(self.done), "item": dict(item)}

    def _close(self, status: str = "completed") -> Iterator[Told]:
        item = self._open
        if item is None:
            return
        place = self._place()
        if (texts := _TEXTS.get(item["type"])) is not None:
            part = item["content"][0]
            where = {**place, "content_index": 0}
            yield f"{texts.event}.done", {**where, "text": part["text"], **texts.beside()}
            yield "response.content_part.done", {**where, "part": dict(part)}
        else:
            yield "response.function_call_arguments.done", {**place, "arguments": item["arguments"]}
        item["status"] = status
        yield "response.output_item.done", {"output_index": len(self.done), "item": item}
        self.done.append(item)
        self._open = None

    def _place(self) -> Object:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self.done)}
