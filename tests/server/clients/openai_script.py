"""What programs do with the official Python client, from its first 1.x on. Knows no server but by its URL.

Arguments: the base URL, the API key. Ends with an assertion, or with exit code 0.
"""

import inspect
import json
import sys

import openai

MODEL = "toy"
USER = [{"role": "user", "content": "hi"}]
LONG = {"prompt": "a", "max_tokens": 1500, "temperature": 0, "extra_body": {"ignore_eos": True}}
CHAT, COMPLETION = "Helloé!", "bcdd"
PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paints.",
        "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]},
    },
}
FLAG = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}


def models(client):
    """The one there is, in the list and by its name."""
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.object, model.owned_by) == ("model", "octavo")
    assert isinstance(model.created, int)


def completions(client):
    """Whole and streamed, several prompts and choices, log-probabilities."""
    answer = client.completions.create(
        model=MODEL, prompt=["a", "b"], n=2, max_tokens=2, temperature=0, echo=True, logprobs=1
    )
    assert [choice.text for choice in answer.choices] == ["abc", "abc", "bcd", "bcd"]
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens == 10
    assert answer.choices[0].logprobs.tokens == ["a", "b", "c"]
    assert answer.choices[0].logprobs.token_logprobs[0] is None
    stream = client.completions.create(model=MODEL, prompt="a", max_tokens=4, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == COMPLETION


def chats(client):
    """Whole, streamed with usage, and with a history."""
    answer = client.chat.completions.create(model=MODEL, messages=USER, temperature=0)
    assert answer.choices[0].message.content == CHAT
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    usage = {"stream_options": {"include_usage": True}}
    stream = client.chat.completions.create(
        model=MODEL, messages=USER, temperature=0, stream=True, user="u", extra_body=usage
    )
    chunks = list(stream)
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == CHAT
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    usage = chunks[-1].usage  # the oldest clients know none here, and leave it a dict
    assert dict(usage)["total_tokens"] == answer.usage.total_tokens
    parts = [{"type": "text", "text": "hi"}]
    history = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
    history += [{"role": "assistant", "content": "x"}, *USER]
    again = client.chat.completions.create(model=MODEL, messages=history, temperature=0, stop=["é"])
    assert again.choices[0].message.content == "Hello"


def tools(client):
    """A call, its result given back, and the same streamed."""
    asked = {"model": MODEL, "tools": [PAINT], "tool_choice": "required", "temperature": 0, "max_tokens": 200}
    single = {"extra_body": {"parallel_tool_calls": False}}
    answer = client.chat.completions.create(messages=USER, **asked, **single)
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "paint"
    assert json.loads(call.function.arguments)["colour"] in ("red", "blue")
    said = {"role": "assistant", "content": None, "tool_calls": [dict(call, function=dict(call.function))]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    after = client.chat.completions.create(model=MODEL, messages=[*USER, said, result], temperature=0, tools=[PAINT])
    assert after.choices[0].message.content == CHAT
    arguments = ""
    for chunk in client.chat.completions.create(messages=USER, stream=True, **asked, **single):
        for part in chunk.choices[0].delta.tool_calls or ():
            arguments += part.function.arguments or ""
    assert json.loads(arguments) == json.loads(call.function.arguments)


def forms(client):
    """Answers that are JSON."""
    form = {"type": "json_schema", "json_schema": {"name": "flag", "schema": FLAG, "strict": True}}
    answer = client.chat.completions.create(model=MODEL, messages=USER, response_format=form, max_tokens=50)
    assert isinstance(json.loads(answer.choices[0].message.content)["on"], bool)


def errors(client, base_url):
    """Each has its class, and what it is about."""
    for error, fields, param, code in (
        (openai.NotFoundError, {"model": "gpt-4"}, "model", "model_not_found"),
        (openai.BadRequestError, {"temperature": 3}, "temperature", "invalid_value"),
        (openai.BadRequestError, {"max_tokens": 10**7}, "max_tokens", "context_length_exceeded"),
        (openai.BadRequestError, {"messages": []}, "messages", "invalid_value"),
    ):
        raised = failure(error, client.chat.completions.create, **{"model": MODEL, "messages": USER, **fields})
        told = raised.response.json()["error"]  # the oldest client takes nothing of it apart
        assert (told["param"], told["code"]) == (param, code), told
        assert raised.response.headers["x-request-id"]
    with openai.OpenAI(base_url=base_url, api_key="wrong", max_retries=0) as stranger:
        assert "the API key is not valid here" in str(failure(openai.AuthenticationError, stranger.models.list))


def failure(error, call, **fields):
    """What the call raises."""
    try:
        call(**fields)
    except error as raised:
        return raised
    raise AssertionError(f"{fields} raised nothing")


def abort(client):
    """Leave in the middle of a stream; the server must notice, which its metrics tell."""
    stream = client.completions.create(model=MODEL, stream=True, **LONG)
    next(iter(stream))
    stream.response.close()


def embeddings(client):
    """One vector for each input, of length 1, in both encodings that the client asks for."""
    answer = client.embeddings.create(model=MODEL, input=["a", "hi"])
    assert [each.index for each in answer.data] == [0, 1]
    assert abs(sum(number * number for number in answer.data[0].embedding) - 1) < 1e-3
    plain = client.embeddings.create(model=MODEL, input="a", encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(plain, answer.data[0].embedding, strict=True)) < 1e-6


def responses(client):
    """Whole, as events, with a function, and as a value of a schema."""
    answer = client.responses.create(model=MODEL, input="hi", temperature=0)
    assert (answer.output_text, answer.status) == (CHAT, "completed")
    events = list(client.responses.create(model=MODEL, input="hi", temperature=0, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == CHAT
    assert events[-1].response.output_text == CHAT
    flat = {"type": "function", **PAINT["function"], "strict": False}
    called = client.responses.create(model=MODEL, input="hi", tools=[flat], tool_choice="required", temperature=0)
    call = called.output[0]
    assert (call.type, call.name) == ("function_call", "paint")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    given_back = [{"role": "user", "content": "hi"}, call, result]
    assert client.responses.create(model=MODEL, input=given_back, temperature=0).output_text == CHAT


def helpers(client):
    """What the newer clients add on top: parsing, and streams that put themselves together."""
    from pydantic import BaseModel

    class Flag(BaseModel):
        on: bool

    parsed = client.chat.completions.parse(model=MODEL, messages=USER, response_format=Flag, max_tokens=50)
    assert isinstance(parsed.choices[0].message.parsed.on, bool)
    assert isinstance(client.responses.parse(model=MODEL, input="hi", text_format=Flag).output_parsed.on, bool)
    with client.chat.completions.stream(model=MODEL, messages=USER, temperature=0) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_completion().choices[0].message.content == CHAT
    assert {"content.delta", "content.done"} <= kinds
    with client.responses.stream(model=MODEL, input="hi", temperature=0) as stream:
        assert stream.get_final_response().output_text == CHAT


def main():
    """Everything that this version of the client can do."""
    base_url, key = sys.argv[1:3]
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        for script in (models, completions, chats, abort):
            script(client)
        errors(client, base_url)
        if "tools" in inspect.signature(client.chat.completions.create).parameters:  # since 1.1
            tools(client)
            forms(client)
        if "embeddings" in sys.argv[3:]:
            embeddings(client)
        if hasattr(client, "responses"):
            responses(client)
            helpers(client)


main()
