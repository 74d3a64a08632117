"""Outputs and deltas -> the protocol's objects: whole answers, chunks, usage. Knows no HTTP."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from octavo import __version__
from octavo.engine.outputs import Choice, Delta, RequestOutput
from octavo.server.embeddings import embedding_list
from octavo.server.errors import Failure
from octavo.server.logprobs import CompletionLogprobs, TokenSpelling, chat_logprobs, prompt_logprobs
from octavo.server.message import MessageReader, whole_message
from octavo.server.prompts import Ask
from octavo.server.wire import dump, event
from octavo.text.reasoning import Thinking, count_reasoning
from octavo.text.tokenizer import Tokenizer

Object = dict[str, Any]
DONE = b"data: [DONE]\n\n"
PLACE = "\x1e text goes here"  # JSON writes it in a way that nothing else in a chunk looks like


class Frame:
    """The event of a chunk whose text alone changes from one to the next, which most do: made once."""

    def __init__(self, chunk: Object) -> None:
        """chunk: with PLACE where the text goes. before, after: what goes around the text as JSON."""
        self.before, _, self.after = event(chunk).partition(dump(PLACE))

    def around(self, text: str) -> bytes:
        """The event with this text."""
        return self.before + dump(text) + self.after


class BulkForm(Protocol):
    """How the answers to a body look that cannot ask for a stream and are large."""

    def body(self, outputs: Sequence[RequestOutput]) -> bytes:
        """All of them as JSON; outputs in the order of its prompts. Any thread may make it."""


@runtime_checkable
class Form(Protocol):
    """How the answers to one body look. Made for that body alone: it remembers which choices have begun. id: what its
    client is given."""

    id: str

    def whole(self, outputs: Sequence[RequestOutput]) -> Object:
        """The answer to a body that did not ask for a stream; outputs in the order of its prompts."""

    def events(self, place: int, delta: Delta) -> bytes:
        """The events of a stream that a delta of prompt number `place` makes; often none."""

    def frame(self) -> Frame | None:
        """The only event, once a stream of one choice has begun, that pieces of its text will ever make; None where
        there are others."""

    def last_events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """With what a stream ends when all went well."""

    def failed(self, failure: Failure) -> bytes:
        """With what a stream that has begun ends when something went wrong."""


@dataclass(slots=True)
class Head:
    """What all objects of one answer have in common."""

    prefix: str
    model: str
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def make(self, kind: str, choices: list[Object]) -> Object:
        """An object with these choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"octavo-{__version__}",
            "choices": choices,
        }


def usage_of(outputs: Sequence[RequestOutput]) -> Object:
    """Tokens of all prompts, each counted once, and of all their answers; the token that ended one counts too."""
    bills = [output.metrics for output in outputs]
    prompt, new = sum(bill.prompt_tokens for bill in bills), sum(bill.output_tokens for bill in bills)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": sum(bill.cached_tokens for bill in bills)},
    }


def _plain(ask: Ask) -> bool:
    """Whether it is answered with the text of one choice."""
    return len(ask.prompts) == 1 and ask.params.n == 1 and ask.params.logprobs is None


def reasoning_tokens(outputs: Sequence[RequestOutput], thinking: Thinking, tokenizer: Tokenizer) -> int:
    """How many of the tokens of all answers are thinking."""
    answers = (choice.tokens for output in outputs for choice in output.choices)
    return sum(count_reasoning(tokens, thinking, tokenizer) for tokens in answers)


class ChatForm:
    """/v1/chat/completions: one prompt, n choices."""

    def __init__(self, ask: Ask, model: str, tokenizer: Tokenizer) -> None:
        self._ask = ask
        self._head = Head("chatcmpl", model)
        self.id = self._head.id
        self._tokenizer = tokenizer
        self._spelling = TokenSpelling(tokenizer, skip_special=ask.params.skip_special_tokens)
        self._begun: dict[int, MessageReader | None] = {}
        self._frames: dict[int, Frame] = {}

    def whole(self, outputs: Sequence[RequestOutput]) -> Object:
        """See Form."""
        output = outputs[0]
        answer = self._head.make("chat.completion", [self._choice(choice) for choice in output.choices])
        answer["usage"] = self._usage(outputs)
        if self._ask.prompt_logprobs is not None and output.prompt_logprobs is not None:
            top = self._ask.prompt_logprobs
            answer["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs, top, self._spelling)
        return answer

    def events(self, place: int, delta: Delta) -> bytes:
        """See Form. First the role, then text, then an empty delta with the reason of the end."""
        frame = self._frames.get(delta.index)
        if frame is not None and not delta.logprobs and delta.finish_reason is None:
            return frame.around(delta.text) if delta.text else b""
        return b"".join(map(event, self._chunks(delta)))

    def frame(self) -> Frame | None:
        """See Form."""
        return self._frames.get(0) if _plain(self._ask) else None

    def _chunks(self, delta: Delta) -> Iterator[Object]:
        index = delta.index
        if index not in self._begun:
            self._begun[index] = self._reader()
            yield self._chunk(index, {"role": "assistant", "content": ""})
            if self._begun[index] is None:
                self._frames[index] = Frame(self._chunk(index, {"content": PLACE}))
        reader = self._begun[index]
        ended = delta.finish_reason is not None
        said = [{"content": delta.text}] if reader is None else list(reader.deltas(delta.text, last=ended))
        if delta.logprobs:
            hide = delta.finish_reason == "stop" and self._hides_end(delta.stop_reason)
            logprobs = chat_logprobs(delta.logprobs, self._spelling, hide_last=hide)
            yield self._chunk(index, said.pop(0) if said else {"content": ""}, logprobs)
        for each in said:
            if each.get("content") != "":
                yield self._chunk(index, each)
        if delta.finish_reason is not None:
            reason = delta.finish_reason if reader is None else reader.reason(delta.finish_reason)
            yield self._chunk(index, {}, reason=reason)

    def last_events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """See Form."""
        if not self._ask.include_usage:
            return DONE
        return event(self._head.make("chat.completion.chunk", []) | {"usage": self._usage(outputs)}) + DONE

    def failed(self, failure: Failure) -> bytes:
        """See Form."""
        return event(failure.body)

    def _choice(self, choice: Choice) -> Object:
        logprobs = None
        if choice.logprobs is not None:
            hide = choice.finish_reason == "stop" and self._hides_end(choice.stop_reason)
            logprobs = chat_logprobs(choice.logprobs, self._spelling, hide_last=hide)
        message: Object = {"role": "assistant", "content": choice.text, "refusal": None}
        reason: str = choice.finish_reason
        if (reader := self._reader()) is not None:
            message, reason = whole_message(choice.text, reader, reason)
        return {
            "index": choice.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": reason,
            "stop_reason": choice.stop_reason,
        }

    def _usage(self, outputs: Sequence[RequestOutput]) -> Object:
        if self._ask.thinking is None:
            return usage_of(outputs)
        thought = reasoning_tokens(outputs, self._ask.thinking, self._tokenizer)
        return usage_of(outputs) | {"completion_tokens_details": {"reasoning_tokens": thought}}

    def _reader(self) -> MessageReader | None:
        """None where an answer is its text and nothing else."""
        tools, thinking = self._ask.tools, self._ask.thinking
        return None if tools.calling is None and thinking is None else MessageReader(tools, thinking)

    def _hides_end(self, stop_reason: int | str | None) -> bool:
        """Whether an answer that ended so ends with a token that is not shown (a stop string is made of several)."""
        return not isinstance(stop_reason, str) and not self._ask.params.include_stop

    def _chunk(self, index: int, delta: Object, logprobs: Object | None = None, reason: str | None = None) -> Object:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        chunk = self._head.make("chat.completion.chunk", [choice])
        return chunk | {"usage": None} if self._ask.include_usage else chunk


class CompletionForm:
    """/v1/completions: choice k of prompt p has index p * n + k."""

    def __init__(self, ask: Ask, model: str, tokenizer: Tokenizer) -> None:
        self._ask = ask
        self._head = Head("cmpl", model)
        self.id = self._head.id
        self._spelling = TokenSpelling(tokenizer, skip_special=ask.params.skip_special_tokens)
        self._spelling_of_prompt = TokenSpelling(tokenizer, skip_special=False)
        self._begun: dict[int, CompletionLogprobs | None] = {}
        self._frames: dict[int, Frame] = {}
        # The log-probabilities of an echoed prompt are known at the end only, and come first.
        self._whole_only = ask.echo and ask.params.logprobs is not None

    def whole(self, outputs: Sequence[RequestOutput]) -> Object:
        """See Form."""
        choices = [
            self._choice(place, output, choice) for place, output in enumerate(outputs) for choice in output.choices
        ]
        return self._head.make("text_completion", choices) | {"usage": usage_of(outputs)}

    def events(self, place: int, delta: Delta) -> bytes:
        """See Form. An echoed prompt rides on the first text; the reason of the end on the last."""
        frame = self._frames.get(self._index(place, delta.index))
        if frame is not None and not delta.logprobs and delta.finish_reason is None:
            return frame.around(delta.text) if delta.text else b""
        return b"".join(map(event, self._chunks(place, delta)))

    def frame(self) -> Frame | None:
        """See Form."""
        return self._frames.get(0) if _plain(self._ask) else None

    def _chunks(self, place: int, delta: Delta) -> Iterator[Object]:
        if self._whole_only:
            for choice in delta.output.choices if delta.output is not None else ():
                assert delta.output is not None
                yield self._chunk(self._choice(place, delta.output, choice))
            return
        index = self._index(place, delta.index)
        text = delta.text
        if index not in self._begun:
            self._begun[index] = self._new_logprobs()
            self._frames[index] = Frame(self._text_chunk(index, PLACE, None))
            text = (self._ask.prompts[place].text if self._ask.echo else "") + text
        if text or delta.logprobs or delta.finish_reason is not None:
            lists = self._begun[index]
            tokens = [each.token for each in delta.logprobs]
            logprobs = None if lists is None or not tokens else lists.piece(delta.logprobs, tokens)
            yield self._text_chunk(index, text, logprobs, delta)

    def last_events(self, outputs: Sequence[RequestOutput]) -> bytes:
        """See Form."""
        if not self._ask.include_usage:
            return DONE
        return event(self._head.make("text_completion", []) | {"usage": usage_of(outputs)}) + DONE

    def failed(self, failure: Failure) -> bytes:
        """See Form."""
        return event(failure.body)

    def _choice(self, place: int, output: RequestOutput, choice: Choice) -> Object:
        made = {
            "index": self._index(place, choice.index),
            "text": (self._ask.prompts[place].text if self._ask.echo else "") + choice.text,
            "logprobs": self._logprobs(output, choice),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        if choice.cumulative_logprob is not None:
            made["cumulative_logprob"] = choice.cumulative_logprob
        if self._ask.prompt_logprobs is not None and output.prompt_logprobs is not None:
            top = self._ask.prompt_logprobs
            made["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs, top, self._spelling_of_prompt)
        return made

    def _logprobs(self, output: RequestOutput, choice: Choice) -> Object | None:
        lists = self._new_logprobs()
        if lists is None or choice.logprobs is None:
            return None
        echoed = output.prompt_logprobs if self._ask.echo else None
        if echoed is None:
            return lists.piece(choice.logprobs, choice.tokens)
        return lists.piece([*echoed, *choice.logprobs], [*output.prompt_tokens, *choice.tokens])

    def _new_logprobs(self) -> CompletionLogprobs | None:
        top = self._ask.params.logprobs
        spelling = self._spelling_of_prompt if self._ask.echo else self._spelling
        return None if top is None else CompletionLogprobs(spelling, top)

    def _index(self, place: int, choice: int) -> int:
        return place * self._ask.params.n + choice

    def _text_chunk(self, index: int, text: str, logprobs: Object | None, delta: Delta | None = None) -> Object:
        """delta: the one that may have ended the choice."""
        reason, stop = (None, None) if delta is None else (delta.finish_reason, delta.stop_reason)
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason, "stop_reason": stop}
        return self._chunk(choice)

    def _chunk(self, choice: Object) -> Object:
        chunk = self._head.make("text_completion", [choice])
        return chunk | {"usage": None} if self._ask.include_usage else chunk


class EmbeddingForm:
    """/v1/embeddings: a vector for each text."""

    def __init__(self, ask: Ask, model: str, tokenizer: Tokenizer) -> None:
        assert ask.vectors is not None
        self._vectors = ask.vectors
        self._model = model

    def body(self, outputs: Sequence[RequestOutput]) -> bytes:
        """See BulkForm."""
        return embedding_list(outputs, self._vectors, self._model)
