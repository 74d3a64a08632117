"""/v1/embeddings: the texts of a body -> prompts, and finished prompts -> OpenAI's list. Runs nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.engine.embedding import embedding_of, encode_document
from octavo.engine.engine import Engine
from octavo.engine.outputs import RequestOutput
from octavo.errors import InvalidRequest
from octavo.exec.pooling import unit
from octavo.server.errors import invalid
from octavo.server.fields import Fields
from octavo.server.wire import dump
from octavo.text.surrogates import replace_surrogates


@dataclass(frozen=True, slots=True)
class Vectors:
    """How the embeddings of one body are wanted. dimensions: the first so many numbers. normalize: those, to unit
    length. packed: as base64 of little-endian float32."""

    dimensions: int
    normalize: bool
    packed: bool


def read_vectors(fields: Fields, hidden: int) -> Vectors:
    """hidden: numbers that the model has for a text."""
    wanted: int | None = fields.get("dimensions")
    if wanted is not None and wanted > hidden:
        raise invalid(f"dimensions {wanted} is more than the {hidden} that this model has", "dimensions")
    packed = fields.get("encoding_format") == "base64"
    return Vectors(wanted or hidden, fields.flag("normalize", True), packed)


def read_texts(fields: Fields, engine: Engine) -> list[list[int]]:
    """The ids of each text of `input`. InvalidRequest names the place of the first that cannot be embedded."""
    given = fields.get("input")
    if isinstance(given, str) or isinstance(given[0], int):
        return [_read(given, engine, "input")]
    return [_read(text, engine, f"input[{place}]") for place, text in enumerate(given)]


def _read(text: str | list[int], engine: Engine, name: str) -> list[int]:
    try:
        plain = replace_surrogates(text) if isinstance(text, str) else text
        tokens = encode_document(plain, engine.tokenizer, engine.max_model_len)
    except InvalidRequest as error:
        raise invalid(f"{name}: {error}", "input", code=error.code or "invalid_value") from None
    if not tokens:
        raise invalid(f"{name} is empty: give a text of at least one token", "input", code="empty_input")
    if len(tokens) > engine.max_model_len:
        raise invalid(
            f"{name} has {len(tokens)} tokens and the context is {engine.max_model_len}; shorten it",
            "input",
            code="context_length_exceeded",
        )
    odd = next((each for each in tokens if each >= engine.vocab_size), None)
    if odd is not None:
        raise invalid(
            f"{name}: {odd} is no token id: ids are whole numbers from 0 to {engine.vocab_size - 1}",
            "input",
            code="token_out_of_range",
        )
    return tokens


def embedding_list(outputs: Sequence[RequestOutput], vectors: Vectors, model: str) -> bytes:
    """The answer to a body as JSON, its embeddings in the order of its texts. Raises what ended one of them early.

    It is written text by text: a JSON encoder lets no other thread run, and a body may have a million numbers.
    """
    tokens = sum(output.metrics.prompt_tokens for output in outputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    head, _, tail = dump({"object": "list", "data": [], "model": model, "usage": usage}).partition(b"[]")
    data = [
        dump({"object": "embedding", "index": index, "embedding": _shown(output, vectors)})
        for index, output in enumerate(outputs)
    ]
    return head + b"[" + b",".join(data) + b"]" + tail


def _shown(output: RequestOutput, vectors: Vectors) -> str | list[float]:
    vector = embedding_of(output, normalize=False)[: vectors.dimensions]
    if vectors.normalize:
        vector = unit(vector)
    if vectors.packed:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    shown: list[float] = vector.tolist()
    return shown
