"""Every endpoint's declaration: where it is, what its body may say, what it answers. Serves nothing.

An endpoint without one has no route: `octavo.server.app` makes its routes of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.server import bodies, objects
from octavo.server.bodies import Body
from octavo.server.objects import Answer

JSON, EVENTS, PLAIN = "application/json", "text/event-stream", "text/plain"
HTML, STYLE, SCRIPT, ICON = "text/html", "text/css", "text/javascript", "image/svg+xml"


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint. answers: by status, what it says when all goes as it should, as JSON, or a media type of text.

    events: what each event of a stream holds, where the body may ask for one. for_tenants: it needs a key where keys
    are. errors: the statuses that are an error object, beside those that every endpoint of its kind has. parameters: of
    the path, with what they mean.
    """

    method: str
    path: str
    summary: str
    answers: dict[int, Answer | str]
    body: Body | None = None
    events: Answer | None = None
    for_tenants: bool = True
    errors: tuple[int, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()


_READS = (400, 404, 408, 413, 415, 503)  # every endpoint with a body
_ANSWERS = (*_READS, 429)  # and those that need a place in the engine
_LOOKS = (408, 503)  # every one that asks the engine something

HEALTH = Operation(
    "GET",
    "/health",
    "Whether the engine works: 503 while it loads, when it failed, when a step hangs",
    {200: objects.HEALTH, 503: objects.HEALTH},
    for_tenants=False,
)
READY = Operation(
    "GET",
    "/ready",
    "Whether requests are taken: as /health, and 503 while the server drains",
    {200: objects.HEALTH, 503: objects.HEALTH},
    for_tenants=False,
)
VERSION = Operation("GET", "/version", "octavo's version", {200: objects.VERSION}, for_tenants=False)
METRICS = Operation("GET", "/metrics", "Figures in the text format of Prometheus", {200: PLAIN}, for_tenants=False)
DOCUMENT = Operation("GET", "/openapi.json", "This document", {200: objects.DOCUMENT}, for_tenants=False)
MODELS = Operation("GET", "/v1/models", "The models: there is one", {200: objects.MODELS}, errors=(503,))
MODEL = Operation(
    "GET",
    "/v1/models/{model}",
    "The model of this name",
    {200: objects.MODEL},
    errors=(404, 503),
    parameters=(("model", "The name under which it is served."),),
)
COMPLETIONS = Operation(
    "POST",
    "/v1/completions",
    "How prompts go on",
    {200: objects.COMPLETION},
    body=bodies.COMPLETION,
    events=objects.COMPLETION_CHUNK,
    errors=_ANSWERS,
)
CHAT = Operation(
    "POST",
    "/v1/chat/completions",
    "The next message of a chat",
    {200: objects.CHAT},
    body=bodies.CHAT,
    events=objects.CHAT_CHUNK,
    errors=_ANSWERS,
)
RESPONSES = Operation(
    "POST",
    "/v1/responses",
    "The response to a text or to items; nothing is stored",
    {200: objects.RESPONSE},
    body=bodies.RESPONSE,
    events=objects.RESPONSE_EVENT,
    errors=_ANSWERS,
)
EMBEDDINGS = Operation(
    "POST",
    "/v1/embeddings",
    "A vector for each text: the model's last state of its last token, or the mean of all its tokens'",
    {200: objects.EMBEDDINGS},
    body=bodies.EMBEDDING,
    errors=_ANSWERS,
)
TOKENIZE = Operation(
    "POST",
    "/tokenize",
    "The token ids of a prompt, or of messages as a chat",
    {200: objects.TOKENS},
    body=bodies.TOKENIZE,
    errors=_READS,
)
DETOKENIZE = Operation(
    "POST",
    "/detokenize",
    "The text of token ids",
    {200: objects.TEXT},
    body=bodies.DETOKENIZE,
    errors=_READS,
)
POOL = Operation(
    "GET",
    "/pool",
    "What every block of the pool is used for, how far the caller's requests are, the engine's figures",
    {200: objects.POOL},
    errors=_LOOKS,
)
EXPLAIN = Operation(
    "GET",
    "/requests/{id}/explain",
    "Why an answer was served as it was",
    {200: objects.EXPLANATION},
    errors=(404, *_LOOKS),
    parameters=(("id", "The id that the answer has."),),
)
PIN = Operation(
    "POST",
    "/pins",
    "Keep the cached blocks of a prompt for a time",
    {200: objects.PIN},
    body=bodies.PIN,
    errors=(403, *_ANSWERS),
)
UNPIN = Operation(
    "DELETE",
    "/pins/{id}",
    "Keep them no longer",
    {200: objects.UNPINNED},
    errors=(403, 404, *_LOOKS),
    parameters=(("id", "The id that the pin has."),),
)
WIPE = Operation(
    "POST",
    "/cache/wipe",
    "Forget what the caller has cached, in every memory",
    {200: objects.WIPED},
    body=bodies.WIPE,
    errors=(403, *_READS),
)
PAGE = Operation("GET", "/", "The live page", {200: HTML}, for_tenants=False)
PAGE_STYLE = Operation("GET", "/page.css", "Its style", {200: STYLE}, for_tenants=False)
PAGE_ICON = Operation("GET", "/icon.svg", "Its icon", {200: ICON}, for_tenants=False)
PAGE_SCRIPT = Operation(
    "GET",
    "/page/{script}",
    "Its scripts",
    {200: SCRIPT},
    for_tenants=False,
    errors=(404,),
    parameters=(("script", "The name of a file that the page asks for."),),
)
