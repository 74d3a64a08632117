"""One row at a time through every implementation of `RowSampler`, which must agree to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.errors import OctavoError
from octavo.exec.logprobs import PositionLogprobs, position_logprobs, prompt_logprobs
from octavo.exec.sampler import Choice, Sampled, SequenceSampler, choose
from octavo.ops.native import _native
from octavo.ops.native.sampling import NativeRowSampler
from octavo.ops.numpy.sampling import NumpyRowSampler
from octavo.ops.sampling import RowSampler

POOL = _native.Pool(2)
SAMPLERS: list[RowSampler] = [
    NumpyRowSampler(),
    *(NativeRowSampler(_native.Runtime(isa, POOL)) for isa in _native.instruction_sets()),
]


def sample(sampler: SequenceSampler, logits: np.ndarray, tokens: Sequence[int], prompt_len: int) -> Sampled:
    """The token after `tokens`; raises why there is none."""
    choice = Choice(sampler, rows_of(logits, sampler.vocab_size)[0], tokens, prompt_len)
    first, *others = [choose([choice], rows)[0] for rows in SAMPLERS]
    for other in others:
        assert str(other) == str(first)
    if isinstance(first, OctavoError):
        raise first
    return first


def position(row: np.ndarray, token: int, k: int) -> PositionLogprobs:
    first, *others = [position_logprobs(row, token, rows.expect([row], [k])[0]) for rows in SAMPLERS]
    assert all(other == first for other in others)
    return first


def prompt(logits: np.ndarray, following: Sequence[int], k: int, vocab_size: int) -> list[PositionLogprobs]:
    first, *others = [prompt_logprobs(rows_of(logits, vocab_size), following, k, rows) for rows in SAMPLERS]
    assert all(other == first for other in others)
    return first


def rows_of(logits: np.ndarray, vocab_size: int) -> list[np.ndarray]:
    """As the executor cuts them."""
    return [np.ascontiguousarray(row[:vocab_size], dtype=np.float32) for row in np.atleast_2d(logits)]
