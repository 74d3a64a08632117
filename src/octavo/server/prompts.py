"""Bodies -> the requests that the engine gets. Tokenises, so big bodies are read in a thread. Sends nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.engine.admission import encode_prompt
from octavo.engine.build import Built
from octavo.engine.embedding import embedding_params
from octavo.engine.submission import Submission
from octavo.errors import InvalidRequest
from octavo.grammar import Grammar
from octavo.params import SamplingParams
from octavo.server.bodies import (
    CHAT,
    COMPLETION,
    DETOKENIZE,
    EMBEDDING,
    MAX_ANSWERS,
    PIN,
    RESPONSE,
    TOKENIZE,
    WIPE,
    Body,
)
from octavo.server.embeddings import Vectors, read_texts, read_vectors
from octavo.server.errors import ApiError, Failure, invalid, shown
from octavo.server.fields import (
    Fields,
    chat_params,
    completion_params,
    request_options,
    stream_usage,
    template_variables,
)
from octavo.server.formats import read_grammar
from octavo.server.keys import Caller
from octavo.server.pins import PinAsk
from octavo.server.response_bodies import FIELD_NAMES, as_chat, repeated
from octavo.server.tools import NO_TOOLS, ToolUse, read_tools
from octavo.server.wire import parse_object
from octavo.text.reasoning import Thinking, begins_thinking
from octavo.text.surrogates import replace_surrogates
from octavo.text.tokenizer import Tokenizer
from octavo.text.tools import with_tools


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a body: its ids, and its text, which `echo` shows."""

    tokens: list[int]
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One body, read and checked."""

    submissions: tuple[Submission, ...]
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    stream: bool
    include_usage: bool
    echo: bool = False
    prompt_logprobs: int | None = None
    grammar_field: str | None = None  # which field of the body asked for params.grammar
    tools: ToolUse = NO_TOOLS
    thinking: Thinking | None = None  # how the model marks it, where it does
    vectors: Vectors | None = None  # how embeddings are to look, where the body asks for these
    repeated: Mapping[str, Any] = field(default_factory=dict)  # fields of a response's body that its answer repeats

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(prompt.tokens) for prompt in self.prompts)

    @property
    def names(self) -> dict[str, str | None]:
        """What the body calls the parts of a submission that the engine may refuse."""
        if self.vectors is not None:
            return {"prompt": "input", "max_tokens": "input"}
        return {"grammar": self.grammar_field}


class Reader:
    """Reads bodies for one model. Safe in several threads at once."""

    def __init__(self, built: Callable[[], Built], model: str) -> None:
        """built: the engine's parts, or EngineUnavailable. model: the name that clients use."""
        self._built = built
        self._model = model
        self._templates = threading.Lock()  # a chat template counts its own work, one rendering at a time

    def completion(self, data: bytes, caller: Caller) -> Ask:
        """A body of /v1/completions. Raises InvalidRequest, ApiError or EngineUnavailable."""
        fields = self._fields(data, COMPLETION)
        params = completion_params(fields)
        ask = self._ask(fields, params, caller, lambda: self._prompts(fields))
        _check_stream(ask)
        return ask

    def chat(self, data: bytes, caller: Caller) -> Ask:
        """A body of /v1/chat/completions."""
        return self._chat(self._fields(data, CHAT), caller)

    def _chat(self, fields: Fields, caller: Caller) -> Ask:
        params = chat_params(fields)
        tools = read_tools(fields)
        ask = self._ask(fields, params, caller, lambda: [Prompt(self._chat_tokens(fields, tools), "")])
        ask = self._with_thinking(_with_calls(ask, tools))
        _check_stream(ask)
        return ask

    def _with_thinking(self, ask: Ask) -> Ask:
        """The same, knowing of the thinking that the model may do first. Where the prompt has begun it, what holds the
        answer begins after it; elsewhere at once, so that the answer is held to it whatever the model does."""
        built = self._built()
        thinking = None if built.chat_template is None else built.chat_template.thinking
        if thinking is None:
            return ask
        (prompt,) = ask.prompts
        begun = begins_thinking(prompt.tokens, thinking, built.engine.tokenizer)
        ask = replace(ask, thinking=replace(thinking, begun=begun))
        if begun and ask.params.grammar is not None:
            return _with_grammar(ask, ask.params.grammar.following(thinking.closing))
        return ask

    def response(self, data: bytes, caller: Caller) -> Ask:
        """A body of /v1/responses, which is a chat in other words."""
        fields = self._fields(data, RESPONSE)
        try:
            ask = self._chat(Fields(CHAT, as_chat(fields)), caller)
        except InvalidRequest as error:
            param = FIELD_NAMES.get(error.param or "", error.param)
            raise InvalidRequest(str(error), param=param, code=error.code) from error
        return replace(ask, repeated=repeated(fields))

    def embedding(self, data: bytes, caller: Caller) -> Ask:
        """A body of /v1/embeddings."""
        fields, engine = self._fields(data, EMBEDDING), self._built().engine
        vectors = read_vectors(fields, engine.hidden_size)
        params = embedding_params(fields.get("pooling") or "last")
        namespace, options = _namespace(fields, caller), request_options(fields, caller)
        prompts = tuple(Prompt(tokens, "") for tokens in read_texts(fields, engine))
        return Ask(
            submissions=tuple(Submission(prompt.tokens, params, namespace, options) for prompt in prompts),
            prompts=prompts,
            params=params,
            stream=False,
            include_usage=False,
            vectors=vectors,
        )

    def tokenize(self, data: bytes) -> list[int]:
        """A body of /tokenize: the ids of its `prompt`, or of its `messages` as a chat."""
        return self._tokens(self._fields(data, TOKENIZE))

    def _tokens(self, fields: Fields, *, answered: bool | None = None) -> list[int]:
        """answered: whether a chat ends where its answer begins, unless the body says; None leaves it to the roles."""
        if fields.get("messages") is not None:
            return self._chat_tokens(fields, read_tools(fields), answered)
        prompt: str | None = fields.get("prompt")
        if prompt is None:
            raise invalid("give a prompt or messages", "prompt", code="missing")
        return self._encode(fields, prompt)

    def detokenize(self, data: bytes) -> str:
        """A body of /detokenize: the text of its `tokens`."""
        return self._decode(self._fields(data, DETOKENIZE).get("tokens"), "tokens")

    def pin(self, data: bytes, caller: Caller) -> PinAsk:
        """A body of /pins: `prompt` as text or ids, or the beginning of a chat as `messages`."""
        fields = self._fields(data, PIN)
        ids = fields.get("prompt")
        if isinstance(ids, list):
            self._decode(ids, "prompt")  # refuses what is no token
        else:
            ids = self._tokens(fields, answered=False)  # what goes on, with any message
        return PinAsk(ids, float(fields.get("ttl_s")), _namespace(fields, caller))

    def wipe(self, data: bytes, caller: Caller) -> bytes:
        """A body of /cache/wipe: the namespace that is meant."""
        return _namespace(self._fields(data, WIPE), caller)

    def _fields(self, data: bytes, declared: Body) -> Fields:
        fields = Fields(declared, parse_object(data))
        model = fields.get("model")
        if model is not None and model != self._model:
            raise no_such_model(model, self._model)
        return fields

    def _ask(self, fields: Fields, params: SamplingParams, caller: Caller, read: Callable[[], list[Prompt]]) -> Ask:
        stream, usage = fields.flag("stream"), stream_usage(fields)
        options, namespace = request_options(fields, caller), _namespace(fields, caller)
        grammar, grammar_field = read_grammar(fields) or (None, None)
        params = replace(params, grammar=grammar)
        prompts = read()
        if len(prompts) * params.sequences > MAX_ANSWERS:
            each = f"{params.sequences} answers or beams each"
            raise invalid(f"{len(prompts)} prompts with {each} are more than {MAX_ANSWERS}", "n")
        return Ask(
            submissions=tuple(Submission(prompt.tokens, params, namespace, options) for prompt in prompts),
            prompts=tuple(prompts),
            params=params,
            stream=stream,
            include_usage=usage,
            echo=fields.flag("echo"),
            prompt_logprobs=fields.get("prompt_logprobs"),
            grammar_field=grammar_field,
        )

    def _prompts(self, fields: Fields) -> list[Prompt]:
        value = fields.get("prompt")
        if isinstance(value, str):
            return [self._text_prompt(fields, value)]
        if isinstance(value[0], str):
            return [self._text_prompt(fields, each) for each in value]
        if isinstance(value[0], list):
            return [self._id_prompt(fields, each) for each in value]
        return [self._id_prompt(fields, value)]

    def _text_prompt(self, fields: Fields, text: str) -> Prompt:
        text = replace_surrogates(text)
        return Prompt(self._encode(fields, text), text)

    def _id_prompt(self, fields: Fields, ids: list[int]) -> Prompt:
        built = self._built()
        if len(ids) >= built.engine.max_model_len:
            raise invalid(
                f"the prompt has {len(ids)} tokens and the context is {built.engine.max_model_len}, which leaves "
                "nothing to generate; shorten it",
                "prompt",
                code="context_length_exceeded",
            )
        text = self._decode(ids, "prompt") if fields.flag("echo") else ""
        return Prompt(ids, text)

    def _encode(self, fields: Fields, text: str) -> list[int]:
        built = self._built()
        add_special = fields.flag("add_special_tokens", True)
        return encode_prompt(text, built.engine.tokenizer, built.engine.max_model_len, add_special=add_special)

    def _decode(self, ids: Sequence[int], param: str) -> str:
        tokenizer: Tokenizer = self._built().engine.tokenizer
        odd = next((each for each in ids if each >= tokenizer.size), None)
        if odd is not None:
            raise invalid(
                f"{param}: {shown(odd)} is no token id: ids are whole numbers from 0 to {tokenizer.size - 1}",
                param,
                code="token_out_of_range",
            )
        return tokenizer.decode(ids, skip_special=False)

    def _chat_tokens(self, fields: Fields, tools: ToolUse, answered: bool | None = None) -> list[int]:
        built = self._built()
        template, limit = built.chat_template, built.engine.max_model_len
        messages = fields.get("messages")
        if len(messages) >= limit:
            raise invalid(
                f"{len(messages)} messages do not fit the context of {limit} tokens; send fewer",
                "messages",
                code="context_length_exceeded",
            )
        if template is None:
            raise invalid(
                "this model has no chat template (it is a base model): send a finished prompt to /v1/completions",
                "messages",
                code="no_chat_template",
            )
        variables = template_variables(fields, template)
        generation: bool | None = fields.get("add_generation_prompt")
        if template.knows_tools:
            variables = {**variables, **({"tools": [tool.described() for tool in tools.told]} if tools.told else {})}
        else:
            messages = with_tools(messages, tools.told)
        try:
            with self._templates:
                return template.encode(
                    messages,
                    add_generation_prompt=answered if generation is None else generation,
                    continue_final_message=fields.flag("continue_final_message"),
                    variables=variables,
                    limit=limit,
                )
        except InvalidRequest as error:
            if error.param == "variables":
                raise InvalidRequest(str(error), param="chat_template_kwargs", code=error.code) from None
            raise


def _namespace(fields: Fields, caller: Caller) -> bytes:
    """Where the caller's prompts are cached: apart from other tenants', and by `cache_salt` from its own."""
    tenant, salt = caller.tenant.name, fields.get("cache_salt") or ""
    return f"{tenant}\0{salt}".encode("utf-8", "replace") if tenant or salt else b""


def no_such_model(asked: str, served: str) -> ApiError:
    """The body or the path names another model than the one here."""
    message = f"there is no model {shown(asked)} here; this server has {shown(served)}"
    return ApiError(Failure(404, message, param="model", code="model_not_found"))


def _with_calls(ask: Ask, tools: ToolUse) -> Ask:
    """The same, its answers held to what may be called."""
    if tools.calling is None:
        return replace(ask, tools=tools)
    if ask.params.grammar is not None:
        raise invalid(f"{ask.grammar_field} and tools cannot be combined; leave out one", ask.grammar_field)
    return replace(_with_grammar(ask, tools.calling.grammar()), grammar_field="tools", tools=tools)


def _with_grammar(ask: Ask, grammar: Grammar) -> Ask:
    params = replace(ask.params, grammar=grammar)
    submissions = tuple(replace(each, params=params) for each in ask.submissions)
    return replace(ask, params=params, submissions=submissions)


def _check_stream(ask: Ask) -> None:
    if ask.stream and ask.prompt_logprobs is not None:
        raise invalid("prompt_logprobs come with whole answers only; leave out stream", "prompt_logprobs")
