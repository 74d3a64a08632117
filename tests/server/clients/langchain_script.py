"""What programs do with LangChain's OpenAI classes. Arguments: the base URL, the API key."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Literal

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from openai import BadRequestError
from pydantic import BaseModel

CHAT = "Helloé!"


class Flag(BaseModel):
    """A switch."""

    on: bool


@tool
def paint(colour: Literal["red", "blue"]) -> str:
    """Paints."""
    return f"painted {colour}"


def chats(chat: ChatOpenAI) -> None:
    """Whole, streamed, in a batch, with usage."""
    answer = chat.invoke([SystemMessage("s"), HumanMessage("hi")])
    assert answer.content == CHAT
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["total_tokens"] == answer.usage_metadata["input_tokens"] + 6
    chunks = list(chat.stream("hi", stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == CHAT
    assert any(chunk.usage_metadata for chunk in chunks)
    assert [each.content for each in chat.batch(["hi"] * 3)] == [CHAT] * 3


async def streams(chat: ChatOpenAI) -> None:
    """Asynchronously, and left in the middle."""
    assert "".join([chunk.content async for chunk in chat.astream("hi")]) == CHAT
    long = chat.bind(max_tokens=1500, extra_body={"ignore_eos": True, "min_tokens": 1500})
    stream = long.astream("hi")
    await anext(stream)
    await stream.aclose()


def tools(chat: ChatOpenAI) -> None:
    """A call, run and given back; and a value of a schema, in both ways that LangChain has."""
    bound = chat.bind_tools([paint], tool_choice="required", parallel_tool_calls=False)
    answer = bound.invoke("hi")
    (call,) = answer.tool_calls
    assert call["name"] == "paint"
    result = paint.invoke(call)
    assert isinstance(result, ToolMessage)
    assert chat.invoke([HumanMessage("hi"), answer, result]).content == CHAT
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Flag, method=method).invoke("hi").on, bool)


def failure(error: type, call: Callable[[str], object], prompt: str) -> Any:
    """What the call raises."""
    try:
        call(prompt)
    except error as raised:
        return raised
    raise AssertionError("nothing was raised")


def main() -> None:
    """All of it."""
    where = {"base_url": sys.argv[1], "api_key": sys.argv[2], "max_retries": 0}
    chat = ChatOpenAI(model="toy", temperature=0, max_tokens=200, **where)
    chats(chat)
    asyncio.run(streams(chat))
    tools(chat)
    assert ChatOpenAI(model="toy", temperature=0, use_responses_api=True, **where).invoke("hi").text == CHAT
    llm = OpenAI(model="toy", temperature=0, max_tokens=4, **where)
    assert llm.invoke("a") == "bcdd"
    assert "".join(llm.stream("a")) == "bcdd"
    assert failure(BadRequestError, chat.bind(temperature=3).invoke, "hi").param == "temperature"
    if "embeddings" in sys.argv[3:]:
        embeddings = OpenAIEmbeddings(model="toy", check_embedding_ctx_length=False, **where)
        assert len(embeddings.embed_documents(["a", "hi"])) == 2


main()
