"""What a grammar does to a row: nothing that it does not allow is sampled, and it wins over min_tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from one_row import sample

from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.random import Draws
from octavo.exec.sampler import Choice, Sampled, SequenceSampler, choose
from octavo.ops.numpy.sampling import NumpyRowSampler
from octavo.params import SamplingParams

VOCAB, EOS = 50, 7


class Allows:
    """A grammar that allows the same tokens everywhere, and notes what it was asked."""

    def __init__(self, *tokens: int) -> None:
        self.may = np.zeros(VOCAB, np.bool_)
        self.may[list(tokens)] = True
        self.asked: list[tuple[int, int]] = []

    def mask(self, tokens: Sequence[int], prompt_len: int) -> NDArray[np.float32]:
        self.asked.append((len(tokens), prompt_len))
        return np.where(self.may, 0, -np.inf).astype(np.float32)

    def allows(self, tokens: Sequence[int], prompt_len: int, token: int) -> bool:
        return bool(self.may[token])


class Fails:
    """A grammar that has become too complex."""

    def mask(self, tokens: Sequence[int], prompt_len: int) -> NDArray[np.float32]:
        raise RequestFailed("too complex")

    def allows(self, tokens: Sequence[int], prompt_len: int, token: int) -> bool:
        raise RequestFailed("too complex")


def sampler(grammar: Allows | Fails, **settings: object) -> SequenceSampler:
    params = SamplingParams(**settings)  # type: ignore[arg-type]
    return SequenceSampler(params, draws=Draws(5, 0), vocab_size=VOCAB, eos_ids=(EOS,), grammar=grammar)


def logits(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(VOCAB).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_only_allowed_tokens_are_sampled(temperature: float) -> None:
    allowed = (3, EOS, 20, 41)
    each = sampler(Allows(*allowed), temperature=temperature)
    drawn = {sample(each, logits(seed), [1] * (seed + 4), 4).token for seed in range(200)}
    assert drawn <= set(allowed)
    assert len(drawn) == len(allowed)


def test_greedy_takes_the_best_allowed_one_and_reports_the_models_own_probability() -> None:
    """Choice 9: log-probabilities are those before masks."""
    row = logits(0)
    allowed = (3, 20, 41)
    sampled = sample(sampler(Allows(*allowed), logprobs=1), row, [1, 2], 2)
    best = max(allowed, key=lambda token: row[token])
    assert sampled.token == best
    expected = row[best] - np.log(np.exp(row.astype(np.float64)).sum())
    assert sampled.expected is not None
    assert sampled.expected.logprob == pytest.approx(float(expected), abs=1e-5)
    assert sampled.expected.top[0].token == int(row.argmax())


def test_min_tokens_holds_up_an_end_that_something_else_can_replace() -> None:
    row = logits(1)
    row[EOS] = 50.0
    each = sampler(Allows(EOS, 9), min_tokens=3)
    assert sample(each, row, [1, 1], 1).token == 9
    assert sample(each, row, [1, 1, 1, 1], 1).token == EOS


def test_a_finished_grammar_wins_over_min_tokens() -> None:
    """Case H12: never token 0 of an empty row."""
    assert sample(sampler(Allows(EOS), min_tokens=20), logits(2), [1, 1], 1).token == EOS


def test_everything_masked_fails_that_request() -> None:
    """Case H13."""
    each = sampler(Allows(3), logit_bias={3: -100.0})
    assert sample(each, logits(3), [1], 1).token == 3  # a bias is no mask
    with pytest.raises(InvalidRequest, match="mask all 50 tokens"):
        sample(sampler(Allows()), logits(3), [1], 1)


def test_looking_ahead_changes_nothing_and_keeps_its_errors_for_later() -> None:
    grammar = Allows(3, 4)
    each = sampler(grammar, temperature=1.0)
    assert each.has_grammar
    each.look_ahead([1, 2, 3], 2)
    assert grammar.asked == [(3, 2)]
    failing = sampler(Fails())
    failing.look_ahead([1], 1)
    with pytest.raises(RequestFailed, match="too complex"):
        sample(failing, logits(4), [1], 1)
    assert not SequenceSampler(SamplingParams(), draws=Draws(0, 0), vocab_size=VOCAB, eos_ids=()).has_grammar


def test_trying_first_draws_from_the_constrained_distribution() -> None:
    """Every share of 6,000 draws within 4 standard deviations of its probability, the mask asked for when refused."""
    row, allowed, draws = logits(7), (1, 8, 20, 33, 41), 6000
    grammar = Allows(*allowed)
    each = sampler(grammar, temperature=1.0)
    assert each.tries
    rows, found = NumpyRowSampler(), dict.fromkeys(allowed, 0)
    for position in range(draws):
        (sampled,) = choose([Choice(each, row, range(position), 0)], rows)
        assert isinstance(sampled, Sampled)
        found[sampled.token] += 1
    weights = np.exp(row.astype(np.float64))
    shares = {token: weights[token] / weights[list(allowed)].sum() for token in allowed}
    for token, share in shares.items():
        assert abs(found[token] - draws * share) < 4 * (draws * share * (1 - share)) ** 0.5, (token, found)
    accepted = weights[list(allowed)].sum() / weights.sum()
    assert len(grammar.asked) == pytest.approx(draws * (1 - accepted), rel=0.05)


@pytest.mark.parametrize("settings", [{"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}, {"presence_penalty": 1.0}])
def test_what_sees_the_mask_does_not_try(settings: dict[str, float]) -> None:
    """A filter keeps the likeliest of what may follow, not of everything."""
    assert not sampler(Allows(3), temperature=1.0, **settings).tries


def test_a_mask_is_worked_out_beside_the_model_after_a_refused_try_alone() -> None:
    row = logits(6)
    best, second = np.argsort(-row)[:2].tolist()
    each = sampler(Allows(best))
    assert each.has_grammar  # nothing is known yet
    sample(each, row, [1, 2], 2)
    assert not each.has_grammar
    each = sampler(Allows(second))
    sample(each, row, [1, 2], 2)
    assert each.has_grammar


def test_a_greedy_sequence_asks_for_the_mask_only_where_its_top_token_may_not_follow() -> None:
    row = logits(6)
    best, second = np.argsort(-row)[:2].tolist()
    asked = []
    for allowed in ((best, second), (second,)):
        grammar = Allows(*allowed)
        each = sampler(grammar)
        assert sample(each, row, [1, 2], 2).token == allowed[0]
        asked.append(len(grammar.asked))
    assert asked[0] == 0 < asked[1]
