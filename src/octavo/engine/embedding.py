"""Embeddings of texts: how an engine is asked for one, and what its output says. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.engine.admission import encode_prompt
from octavo.engine.outputs import RequestOutput
from octavo.errors import RequestFailed
from octavo.exec.pooling import Vector, unit
from octavo.params import Pooling, SamplingParams
from octavo.text.tokenizer import Tokenizer


def encode_document(text: str | Sequence[int], tokenizer: Tokenizer, max_model_len: int) -> list[int]:
    """The ids of a text to embed, or the ids that it is already. It is data: names of control tokens in it stay text.
    It may be as long as the context, since nothing follows it. Safe in any thread. Raises InvalidRequest."""
    return encode_prompt(text, tokenizer, max_model_len + 1, parse_special=False)


def embedding_params(pooling: Pooling) -> SamplingParams:
    """What asks for an embedding and for nothing else."""
    return SamplingParams(max_tokens=0, pooling=pooling)


def embedding_of(output: RequestOutput, *, normalize: bool = True) -> Vector:
    """float32 [hidden], of unit length unless `normalize` is False. Raises what ended the request early."""
    if output.error is not None:
        raise output.error
    if output.embedding is None:
        raise RequestFailed("the request was ended before its prompt was computed")
    return unit(output.embedding) if normalize else output.embedding
