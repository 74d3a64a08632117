"""Renders chats to prompts with a model's own template. Knows no engine; trusts neither template nor messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import jinja2

from octavo.errors import InvalidRequest
from octavo.text.budget import BudgetedEnvironment, TemplateLimits
from octavo.text.marked_text import Marks
from octavo.text.messages import checked_messages, plain_data
from octavo.text.reasoning import Thinking, thinking_of
from octavo.text.surrogates import replace_surrogates
from octavo.text.tokenizer import Tokenizer
from octavo.text.tools import OPEN

_END_OF_FINAL = "\udfff"  # no mark and in no text, so its place in the result is that of the final message's end
_RESERVED = ("messages", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize")
_MAX_ERROR = 300


class ChatTemplate:
    """One template of one tokenizer. Compiled on first use, so a broken one fails chats and nothing else.

    Renders as `apply_chat_template` of transformers does, except that names of control tokens which come from
    messages or variables stay text: only what the template itself writes becomes control tokens.
    """

    def __init__(
        self,
        source: str | None,
        tokenizer: Tokenizer,
        *,
        limits: TemplateLimits | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """source: jinja2, or None for a model without a template, whose every chat is refused."""
        self._source = source
        self._tokenizer = tokenizer
        self._limits = limits or TemplateLimits()
        self._clock = clock
        self._marks = Marks(tokenizer.special_names)

    @property
    def knows_tools(self) -> bool:
        """Whether it tells the model of `tools`, and of calls written as octavo.text.tools has them."""
        return self._source is not None and "tools" in self._source and OPEN in self._source

    @cached_property
    def thinking(self) -> Thinking | None:
        """The tags by which it marks thinking, if it does."""
        return None if self._source is None else thinking_of(self._source)

    def takes(self, variable: str) -> bool:
        """Whether it asks for a variable of this name."""
        return self._source is not None and variable in self._source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt as text. To encode it use `encode`: the text alone does not say who wrote a control token.

        add_generation_prompt: end with the header of the assistant's answer; None: unless the last message is to be
        continued. continue_final_message: end with the last message, the assistant's, left open. variables: what else
        the template gets (`tools`, `enable_thinking`, ...). Raises InvalidRequest.
        """
        marked = self._render(messages, add_generation_prompt, continue_final_message, variables or {})
        return self._unmarked(marked)

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """The prompt as token ids, with one BOS if the model begins texts with it. Arguments as for `render`.

        limit: refuse, without encoding it, a prompt that cannot have fewer tokens than so many.
        """
        marked = self._render(messages, add_generation_prompt, continue_final_message, variables or {})
        pieces = self._tokenizer.split_special(marked, seen_as=self._marks.mask(marked))
        bos_id = self._tokenizer.bos_id
        while bos_id is not None and pieces[:2] == [bos_id, bos_id]:
            del pieces[0]
        plain = [self._unmarked(piece) if isinstance(piece, str) else piece for piece in pieces]
        if limit is not None:
            self._check_length(plain, limit)
        return self._tokenizer.encode_pieces(plain, bos=True, eos=False)

    def _check_length(self, pieces: Sequence[str | int], limit: int) -> None:
        fewest = sum(1 if isinstance(piece, int) else self._tokenizer.fewest_tokens(piece) for piece in pieces)
        if fewest >= limit:
            raise InvalidRequest(
                f"the messages make a prompt of at least {fewest} tokens and the context is {limit}; shorten them",
                param="messages",
                code="context_length_exceeded",
            )

    def _unmarked(self, text: str) -> str:
        # A surrogate that is no mark was made by the template itself.
        return replace_surrogates(str(self._marks.plain(text)))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool | None,
        continue_final_message: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """The prompt with what the user wrote marked."""
        if add_generation_prompt and continue_final_message:
            raise InvalidRequest(
                "add_generation_prompt and continue_final_message exclude each other: a prompt ends either with the "
                "header of a new answer or inside the last one",
                param="continue_final_message",
            )
        source = self._checked_source()
        checked = checked_messages(messages, knows_developer="developer" in source)
        marked = [self._marked_message(message) for message in checked]
        if continue_final_message:
            self._open_final(marked)
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        scope = self._scope(variables) | {"messages": marked, "add_generation_prompt": add_generation_prompt}
        rendered = self._run(scope)
        return _cut_at_final(rendered) if continue_final_message else rendered

    def _checked_source(self) -> str:
        if self._source is None:
            raise InvalidRequest(
                "this model has no chat template; give one, or send a finished prompt as a completion instead of "
                "messages",
                param="messages",
                code="no_chat_template",
            )
        return self._source

    def _marked_message(self, message: dict[str, Any]) -> dict[str, Any]:
        # Roles are from a closed list, and templates use them as they are.
        return {**self._marks.mark(message), "role": message["role"]}

    def _open_final(self, marked: list[dict[str, Any]]) -> None:
        final = marked[-1]
        if final["role"] != "assistant" or not final["content"]:
            raise InvalidRequest(
                "continue_final_message needs a last message of the assistant with some text to continue",
                param="continue_final_message",
            )
        # The space tells whether the template trims the text, which then is to end without its own spaces as well.
        final["content"] = final["content"] + (_END_OF_FINAL + " ")

    def _scope(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        for name in variables:
            if name in _RESERVED:
                raise InvalidRequest(f"a template variable may not be called {name!r}", param="variables")
        special = self._tokenizer.special
        ids = {"bos": special.bos_id, "eos": special.eos_id, "unk": special.unk_id, "pad": special.pad_id}
        names = {f"{kind}_token": self._tokenizer.token_text(each) for kind, each in ids.items() if each is not None}
        given = {name: self._marks.mark(plain_data(value, name)) for name, value in variables.items()}
        return {"tools": None, "documents": None} | names | given

    def _run(self, scope: Mapping[str, Any]) -> str:
        environment, template = self._compiled
        try:
            return environment.render(template, scope)
        except _Refusal as refusal:
            raise InvalidRequest(
                f"the chat template refuses these messages: {_one_line(refusal)}",
                param="messages",
                code="template_refused",
            ) from refusal
        except Exception as error:  # somebody else's code: whatever goes wrong in it fails one request
            raise InvalidRequest(
                f"the chat template failed on these messages: {_one_line(error) or type(error).__name__}",
                param="messages",
                code="template_failed",
            ) from error

    @cached_property
    def _compiled(self) -> tuple[BudgetedEnvironment, jinja2.Template]:
        environment = BudgetedEnvironment(self._limits)
        environment.filters["tojson"] = self._to_json
        environment.globals["raise_exception"] = _raise_refusal
        environment.globals["strftime_now"] = lambda pattern: self._clock().strftime(str(self._marks.plain(pattern)))
        try:
            return environment, environment.load_source(replace_surrogates(self._checked_source()))
        except Exception as error:  # hostile source can make the compiler itself fail in any way
            raise InvalidRequest(
                f"the chat template is broken: {_one_line(error)}", param="messages", code="template_failed"
            ) from error

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON without HTML escapes. All of it counts as the user's."""
        if indent is not None and not 0 <= int(indent) <= 16:
            raise jinja2.TemplateRuntimeError("tojson takes an indent from 0 to 16")
        text = json.dumps(
            self._marks.plain(value),
            ensure_ascii=bool(ensure_ascii),
            indent=indent,
            separators=separators,
            sort_keys=bool(sort_keys),
        )
        return self._marks.marked(text)


class _Refusal(jinja2.TemplateError):
    """The template called raise_exception."""


def _raise_refusal(message: object) -> NoReturn:
    raise _Refusal(str(message))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).encode("utf-8", "replace").decode().split())
    return text if len(text) <= _MAX_ERROR else text[: _MAX_ERROR - 3] + "..."


def _cut_at_final(rendered: str) -> str:
    end = rendered.rfind(_END_OF_FINAL)
    if end < 0:
        raise InvalidRequest(
            "continue_final_message is not possible: the chat template leaves out the last message's text",
            param="continue_final_message",
        )
    kept = rendered[:end]
    return kept if rendered[end + 1 : end + 2] == " " else kept.rstrip()
