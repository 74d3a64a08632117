"""What programs do with LlamaIndex's class for servers like OpenAI's. Arguments: the base URL, the API key."""

import sys
from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from openai import NotFoundError

CHAT = "Helloé!"


def paint(colour: Literal["red", "blue"]) -> str:
    """Paints."""
    return f"painted {colour}"


def main() -> None:
    """Chats, streams, tools and completions."""
    where = {"api_base": sys.argv[1], "api_key": sys.argv[2], "max_retries": 0, "context_window": 2048}
    llm = OpenAILike(model="toy", temperature=0, is_chat_model=True, is_function_calling_model=True, **where)
    messages = [ChatMessage(role="system", content="s"), ChatMessage(role="user", content="hi")]
    assert llm.chat(messages).message.content == CHAT
    assert "".join(chunk.delta or "" for chunk in llm.stream_chat(messages)) == CHAT
    assert llm.complete("hi").text == CHAT
    told = [FunctionTool.from_defaults(paint)]
    fields = {"tool_required": True, "max_tokens": 200, "allow_parallel_tool_calls": False}
    answer = llm.chat_with_tools(told, "hi", **fields)
    (call,) = llm.get_tool_calls_from_response(answer, error_on_no_tool_call=True)
    assert call.tool_name == "paint"
    assert call.tool_kwargs["colour"] in ("red", "blue")
    plain = OpenAILike(model="toy", temperature=0, is_chat_model=False, max_tokens=4, **where)
    assert plain.complete("a").text == "bcdd"
    assert "".join(chunk.delta or "" for chunk in plain.stream_complete("a")) == "bcdd"
    endless = {"max_tokens": 1500, "additional_kwargs": {"extra_body": {"ignore_eos": True}}}
    stream = OpenAILike(model="toy", temperature=0, is_chat_model=False, **endless, **where).stream_complete("a")
    next(stream)
    stream.close()
    assert failure(OpenAILike(model="absent", is_chat_model=True, **where)).code == "model_not_found"


def failure(llm: OpenAILike) -> NotFoundError:
    """What asking it raises."""
    try:
        llm.complete("hi")
    except NotFoundError as error:
        return error
    raise AssertionError("a model that is not there raised nothing")


main()
