"""What a caller may ask of one request. Validates itself; knows nothing of models, vocabularies or scheduling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo.errors import InvalidRequest

MAX_STOP_STRINGS = 64
MAX_LOGPROBS = 20
MAX_CHOICES = 128


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens and when to stop.

    The order is fixed: penalties and bias, temperature, top_k, top_p, min_p. Log-probabilities are the model's own,
    in nats, before all of these. Draws depend on (seed, choice index, position) alone, never on neighbours.

    max_tokens: most new tokens; None means as many as the context leaves.
    min_tokens: end tokens are masked and stop strings not looked for before this many new tokens.
    temperature: 0 is greedy. top_k: 0 or -1 is off. top_p in [0, 1], 0 is the top token alone. min_p in [0, 1].
    repetition_penalty: over prompt and output, > 0, 1 is off. presence_penalty, frequency_penalty: over the output
    only, in [-2, 2]. logit_bias: token id -> added to its logit, in [-100, 100].
    bad_words: texts that must not appear. stop: texts that end the answer and are not part of it
    (`include_stop` keeps them). stop_token_ids: ids that end it likewise. ignore_eos: the model's own end tokens
    do not end it. seed: None draws a fresh one. n: answers to the same prompt.
    logprobs: how many alternatives to report for each new token (0: the chosen one alone; None: none).
    prompt_logprobs: likewise for the prompt. skip_special_tokens: leave control tokens out of the text.
    """

    max_tokens: int | None = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        # One owner for validation lives in octavo/params.py; see tests/test_params.py.
        raise NotImplementedError
