"""The OpenAPI document of declared operations. Declares nothing itself and serves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from octavo import __version__
from octavo.server import objects
from octavo.server.objects import Answer
from octavo.server.operations import EVENTS, JSON, Operation
from octavo.server.shapes import Schema

VERSION = "3.1.0"
_SECRET = "key"


def document(operations: Iterable[Operation], *, keys: bool) -> dict[str, Any]:
    """All of them, with the schemas that they name. keys: API keys are needed where tenants are served."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Schema] = {objects.ERROR.name: objects.ERROR.shape.schema}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, keys=keys and each.for_tenants)
        if each.body is not None:
            schemas[each.body.name] = each.body.schema
        for answer in (*each.answers.values(), each.events):
            if isinstance(answer, Answer):
                schemas[answer.name] = answer.shape.schema
    components: dict[str, Any] = {"schemas": schemas}
    if keys:
        components["securitySchemes"] = {_SECRET: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": VERSION,
        "info": {
            "title": "octavo",
            "version": __version__,
            "description": "OpenAI's protocol, and what octavo has beyond it. Errors are always of the schema Error. "
            "Fields that are not named are ignored; null counts as absent.",
        },
        "paths": paths,
        "components": components,
    }


def _operation(operation: Operation, *, keys: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"summary": operation.summary, "responses": _responses(operation, keys=keys)}
    if operation.parameters:
        made["parameters"] = [
            {"name": name, "in": "path", "required": True, "description": about, "schema": {"type": "string"}}
            for name, about in operation.parameters
        ]
    if operation.body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": _named(operation.body.name)}}}
    if keys:
        made["security"] = [{_SECRET: []}]
    return made


def _responses(operation: Operation, *, keys: bool) -> dict[str, Any]:
    made = {}
    errors = {*operation.errors, *((401,) if keys else ()), 500}
    for status in sorted({*operation.answers, *errors}):
        answer = operation.answers.get(status, objects.ERROR)
        if isinstance(answer, Answer):
            content: dict[str, Any] = {JSON: {"schema": _named(answer.name)}}
        else:
            content = {answer: {"schema": {"type": "string"}}}
        if status == HTTPStatus.OK and operation.events is not None:
            content[EVENTS] = {"schema": _event(operation.events)}
        headers = {
            "x-request-id": _header("The request's own id if it is short and plain, or a new one."),
            "openai-processing-ms": _header("From the request to the first byte of its answer."),
        }
        if status in (429, 503) and answer is objects.ERROR:
            headers["retry-after"] = _header("Seconds after which it is worth another try.")
        made[str(status)] = {"description": HTTPStatus(status).phrase, "headers": headers, "content": content}
    return made


def _event(answer: Answer) -> Schema:
    """One of a stream: before OpenAPI 3.2 that is what the schema of such a content is about."""
    either = [_named(answer.name), _named(objects.ERROR.name)]
    return {
        "description": "With stream: true. One event of the stream.",
        "type": "object",
        "properties": {
            "event": {"type": "string", "description": "The type in its data, where that has one."},
            "data": {
                "description": f"As JSON a {answer.name}, or what went wrong on the way; or [DONE], at the end of all.",
                "type": "string",
                "if": {"const": "[DONE]"},
                "else": {"contentMediaType": JSON, "contentSchema": {"anyOf": either}},
            },
        },
        "required": ["data"],
        "additionalProperties": False,
    }


def _header(about: str) -> dict[str, Any]:
    return {"description": about, "schema": {"type": "string"}}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
