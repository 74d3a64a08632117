"""What needs the vocabulary to be checked before a request may enter. Knows nothing of memory or of other requests."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import InvalidRequest
from octavo.params import SamplingParams
from octavo.text.stop_checker import stop_ids
from octavo.text.tokenizer import Tokenizer


def encode_prompt(
    text: str | Sequence[int],
    tokenizer: Tokenizer,
    max_model_len: int,
    *,
    add_special: bool = True,
    parse_special: bool = True,
) -> list[int]:
    """A plain prompt's ids, or the ids that it is already. add_special: BOS and EOS where the model has them so.
    parse_special: names of control tokens are those tokens, as the model's format has them. Safe in any thread. Raises
    InvalidRequest, without reading it all, where the text cannot fit."""
    if not isinstance(text, str):
        return list(text)
    fewest = tokenizer.fewest_tokens(text)
    if fewest >= max_model_len:
        raise InvalidRequest(
            f"the prompt has at least {fewest} tokens and the context is {max_model_len}; shorten it",
            param="prompt",
            code="context_length_exceeded",
        )
    return tokenizer.encode(text, add_special=add_special, parse_special=parse_special)


def check_request(tokens: Sequence[int], params: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequest when the prompt is empty, or an id that it or its settings name is not a token."""
    if not tokens:
        raise InvalidRequest("the prompt is empty: give at least one token", param="prompt", code="empty_prompt")
    _check_ids(tokens, vocab_size, "prompt")
    _check_ids(tuple(params.logit_bias), vocab_size, "logit_bias")
    _check_ids(params.stop_token_ids, vocab_size, "stop_token_ids")
    if params.max_tokens == 0 and params.prompt_logprobs is None and params.pooling is None:
        raise InvalidRequest(
            "max_tokens is 0: there is nothing to compute without prompt_logprobs or pooling", param="max_tokens"
        )


def end_ids(params: SamplingParams, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> frozenset[int]:
    """Ids that end an answer: the model's own unless ignored, the caller's, and stop strings that are control tokens
    (whose text is never shown, so no search of the text could find them). A grammar's end is the model's own."""
    named = frozenset(stop_ids(params.stop, tokenizer))
    goes_on = params.ignore_eos and params.grammar is None
    return frozenset(params.stop_token_ids) | named | (frozenset() if goes_on else eos_ids)


def _check_ids(ids: Sequence[int], size: int, param: str) -> None:
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
            raise InvalidRequest(
                f"{param}: {token!r} is no token id: ids are whole numbers from 0 to {size - 1}",
                param=param,
                code="token_out_of_range",
            )
