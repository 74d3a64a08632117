"""The sampler's rules, one at a time, on rows small enough to work out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from one_row import sample

from octavo.errors import InvalidRequest, RequestFailed
from octavo.exec.random import Draws
from octavo.exec.sampler import SequenceSampler
from octavo.ops.numpy.sampling import draw, keep
from octavo.ops.sampling import Filters
from octavo.params import SamplingParams

V = 1000
LOGITS = np.random.default_rng(1).normal(scale=2, size=V).astype(np.float32)
TOP = int(LOGITS.argmax())


def sampler(
    index: int = 0,
    vocab_size: int = V,
    eos: tuple[int, ...] = (),
    bad: tuple[tuple[int, ...], ...] = (),
    **settings: Any,
) -> SequenceSampler:
    params = SamplingParams(**settings)
    seed = params.seed or 0
    return SequenceSampler(params, draws=Draws(seed, index), vocab_size=vocab_size, eos_ids=eos, bad_word_ids=bad)


def tokens_over(positions: int, made: SequenceSampler, logits: np.ndarray = LOGITS) -> list[int]:
    return [sample(made, logits, range(n), 0).token for n in range(1, positions + 1)]


def row(**logits: float) -> np.ndarray:
    """Logits by id (`_3=1.0`), 0 elsewhere, 8 tokens."""
    made = np.zeros(8, dtype=np.float32)
    for name, value in logits.items():
        made[int(name[1:])] = value
    return made


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-30, 1e-6, 1e-4])
@pytest.mark.parametrize("others", [{}, {"top_k": 50, "top_p": 0.9}])
def test_tiny_temperatures_are_greedy(temperature: float, others: dict[str, Any]) -> None:
    """Cases H01, H02: over seeds and positions, no NaN, no warning."""
    for seed in range(1, 6):
        assert set(tokens_over(20, sampler(temperature=temperature, seed=seed, **others))) == {TOP}


def test_small_temperature_above_the_greedy_bound_has_no_nan() -> None:
    """Case H01, and H03: masked and far-off logits are divided too."""
    logits = np.array([-np.inf, 3e38, -3e38, 2.9e38], dtype=np.float32)
    assert set(tokens_over(20, sampler(vocab_size=4, temperature=1.1e-4), logits)) == {1}
    assert set(tokens_over(20, sampler(vocab_size=4, temperature=2.0, top_p=0.5), logits)) == {1}


def test_ties_go_to_the_lowest_id() -> None:
    assert sample(sampler(vocab_size=8), row(_5=2.0, _3=2.0), [0], 1).token == 3
    assert sample(sampler(vocab_size=8, temperature=1.0, top_p=1e-9), row(_5=2.0, _3=2.0), [0], 1).token == 3
    assert sample(sampler(vocab_size=8), row(_0=-0.0), [0], 1).token == 0
    ids, _ = keep(np.zeros(6, dtype=np.float32) * np.float32(-1), Filters(1.0, 2, 1.0, 0.0))
    assert ids is not None
    assert ids.tolist() == [0, 1]


@pytest.mark.parametrize("only_the_top", [{"top_k": 1}, {"top_p": 1e-9}, {"top_p": 0.0}, {"min_p": 1.0}])
def test_edges_that_leave_one_token(only_the_top: dict[str, Any]) -> None:
    """Case H04: the same as greedy, also where a second token is almost as likely."""
    close = LOGITS / np.float32(32)  # so small that the two weights are equal in float32
    close[0] = np.nextafter(close[TOP], np.float32(0))
    for seed in range(1, 11):
        assert set(tokens_over(20, sampler(temperature=2.0, seed=seed, **only_the_top), close)) == {TOP}


def test_edges_that_filter_nothing() -> None:
    """Case H04: the same draws as with the setting left out."""
    plain = tokens_over(50, sampler(temperature=2.0, seed=4))
    assert len(set(plain)) > 20
    for off in ({"top_k": 0}, {"top_k": -1}, {"top_k": 10**6}, {"top_k": V}, {"top_p": 1.0}, {"min_p": 0.0}):
        assert tokens_over(50, sampler(temperature=2.0, seed=4, **off)) == plain


def test_temperature_comes_before_top_p() -> None:
    """Case H10."""
    logits = np.array([3, 2, 1], dtype=np.float32)
    for temperature, kept in ((0.5, [0]), (1.0, [0, 1])):
        ids, _ = keep(logits, Filters(temperature, 0, 0.8, 0.0))
        assert ids is not None
        assert ids.tolist() == kept


def test_top_p_counts_what_top_k_left() -> None:
    """p = .4 .3 .2 .1; of the first two alone .57 and .43: the first is then enough for .55."""
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    for top_k, kept in ((2, [0]), (0, [0, 1])):
        ids, _ = keep(logits, Filters(1.0, top_k, 0.55, 0.0))
        assert ids is not None
        assert ids.tolist() == kept


def test_repetition_turns_at_zero() -> None:
    made = sampler(vocab_size=8, repetition_penalty=2.0)
    assert made._constraints.apply(row(_1=0.5, _2=-0.5), [0, 1, 2], 3)[:3].tolist() == [0, 0.25, -1]


def test_top_p_reaches_as_deep_as_it_must() -> None:
    """One token and 40,000 that together weigh 1.8 times as much, far below it: ids in order make up the rest."""
    logits = np.zeros(40_001, dtype=np.float32)
    logits[-1] = 10
    ids, _ = keep(logits, Filters(1.0, 0, 0.9, 0.0))
    assert ids is not None
    weight = math.exp(-10)
    needed = math.ceil((0.9 * (1 + 40_000 * weight) - 1) / weight)
    assert abs(len(ids) - 1 - needed) <= 1
    assert ids.tolist() == [*range(len(ids) - 1), 40_000]


def test_min_p_is_relative_to_the_top_token() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    for min_p, kept in ((0.499, [0, 1, 2]), (0.501, [0, 1]), (0.249, [0, 1, 2, 3])):
        ids, _ = keep(logits, Filters(1.0, 0, 1.0, min_p))
        assert ids is not None
        assert ids.tolist() == kept


@pytest.mark.parametrize("size", [10, 5000])
def test_ends_of_the_unit_interval_draw_tokens_with_weight(size: int) -> None:
    """Masked tokens at both ends are not drawn, whatever the uniform."""
    logits = np.full(size, -np.inf, dtype=np.float32)
    logits[3:-3] = 0
    for filters in (Filters(1.0, 0, 1.0, 0.0), Filters(1.0, size - 1, 1.0, 0.0)):
        assert draw(logits, filters, 0.0) == 3
        assert draw(logits, filters, 1 - 2.0**-53) == size - 4


def test_which_tokens_are_penalised() -> None:
    """Case H06, by hand. Prompt 1 1 2, output 3 3 2."""
    logits = row(_1=2.0, _2=-1.0, _3=4.0, _4=1.0)
    history, prompt_len = [1, 1, 2, 3, 3, 2], 3

    def seen(**settings: Any) -> list[float]:
        made = sampler(vocab_size=8, **settings)
        return made._constraints.apply(logits, history, prompt_len)[:5].tolist()

    assert seen(repetition_penalty=2.0) == [0, 1, -2, 2, 1]
    assert seen(presence_penalty=1.5) == [0, 2, -2.5, 2.5, 1]
    assert seen(frequency_penalty=1.5) == [0, 2, -2.5, 1, 1]
    assert seen(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=1.0) == [0, 1, -3.5, -0.5, 1]
    assert seen(repetition_penalty=2.0, logit_bias={1: 8.0}) == [0, 9, -2, 2, 1]
    assert seen(repetition_penalty=0.5) == [0, 4, -0.5, 8, 1]
    assert logits.tolist() == row(_1=2.0, _2=-1.0, _3=4.0, _4=1.0).tolist()


def test_presence_penalty_leaves_the_first_token() -> None:
    """Case H06 (a), and repetition (b) at the first step."""
    prompt = [TOP] * 4
    assert sample(sampler(presence_penalty=2.0, frequency_penalty=2.0), LOGITS, prompt, 4).token == TOP
    assert sample(sampler(repetition_penalty=10.0), LOGITS, prompt, 4).token != TOP


def test_extreme_penalties_stay_finite() -> None:
    for penalty in (5e-324, 1e-30, 1e30, 1e308):
        made = sampler(repetition_penalty=penalty, temperature=1.0, logprobs=2)
        answer = sample(made, LOGITS, [TOP, 5, int(LOGITS.argmin())], 1)
        assert 0 <= answer.token < V


def test_ids_without_a_logit_in_the_prompt_are_passed_over() -> None:
    assert sample(sampler(repetition_penalty=1.5), LOGITS, [V, V + 70_000, -1], 3).token == TOP


def test_logit_bias() -> None:
    """Case H07: +100 always, -100 never, 300 entries, before top_k."""
    masked = LOGITS.copy()
    masked[TOP] = -np.inf
    assert set(tokens_over(20, sampler(temperature=1.0, logit_bias={77: 100.0}))) == {77}
    assert sample(sampler(temperature=1.0, top_k=1, logit_bias={77: 100.0}), LOGITS, [1], 1).token == 77
    assert sample(sampler(logit_bias={TOP: -100.0}), LOGITS, [1], 1).token == masked.argmax()
    assert sample(sampler(logit_bias=dict.fromkeys(range(300), 50.0)), LOGITS, [1], 1).token == LOGITS[:300].argmax()


def test_bad_words() -> None:
    """Case H08: single tokens always, longer words at their last token only, and only within the output."""
    bad = ((4,), (5, 6), (6, 6, 7))
    logits = row(_4=9.0, _6=8.0, _7=7.0, _5=1.0)
    choose = lambda tokens, prompt_len: sample(sampler(vocab_size=8, bad=bad), logits, tokens, prompt_len).token  # noqa: E731
    assert choose([0], 1) == 6
    assert choose([0, 5], 1) == 7
    assert choose([0, 5], 2) == 6
    assert choose([5, 6, 6], 1) == 6
    assert sample(sampler(vocab_size=8, bad=((6, 6, 7), (6,))), row(_7=2.0, _6=3.0, _1=1.0), [5, 6, 6], 1).token == 1
    assert sample(sampler(vocab_size=8, bad=((6, 6, 7), (6,))), row(_7=2.0, _6=3.0, _1=1.0), [5, 6, 6], 2).token == 7


def test_padding_is_never_sampled_nor_listed() -> None:
    """Case H11: 64 rows of large values past the vocabulary."""
    padded = np.concatenate([LOGITS, np.full(64, 1e4, dtype=np.float32)])
    for settings in ({}, {"temperature": 2.0}, {"temperature": 2.0, "top_k": 9}, {"temperature": 2.0, "top_p": 0.5}):
        plain, made = sampler(logprobs=5, **settings), sampler(logprobs=5, **settings)
        for n in range(1, 30):
            assert sample(made, padded, range(n), n) == sample(plain, LOGITS, range(n), n)


def test_min_tokens_masks_every_end() -> None:
    """Case F06: each of the model's ends and the caller's, for exactly min_tokens tokens."""
    for end in (2, 3, 4):
        made = sampler(vocab_size=8, eos=(2, 3, 99), stop_token_ids=(4,), min_tokens=5, logit_bias={end: 100.0})
        answers = [sample(made, row(_1=1.0), [0] * (3 + n), 3).token == end for n in range(7)]
        assert answers == [False] * 5 + [True] * 2


def test_ignore_eos_masks_nothing() -> None:
    """Case F07: an ignored end is an ordinary token; the caller's own stop ids are not."""
    made = sampler(vocab_size=8, eos=(2,), ignore_eos=True, min_tokens=5)
    assert sample(made, row(_2=1.0), [0], 1).token == 2
    made = sampler(vocab_size=8, eos=(2,), ignore_eos=True, min_tokens=5, stop_token_ids=(2,))
    assert sample(made, row(_2=1.0), [0], 1).token != 2


def test_neighbours_do_not_matter() -> None:
    """Case H05: rows of one batch, in any order, interleaved; nothing is written to them."""
    batch = np.random.default_rng(2).normal(size=(3, V)).astype(np.float32)
    before = batch.copy()
    made = [sampler(repetition_penalty=2.0), sampler(temperature=1.0, frequency_penalty=1.05), sampler()]
    histories = [[1, 2, 3], [4] * 9, [5]]
    alone = [sample(s, r.copy(), h, 1) for s, r, h in zip(made, batch, histories, strict=True)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        assert [sample(made[i], batch[i], histories[i], 1) for i in order] == [alone[i] for i in order]
    assert (batch == before).all()


def test_choices_differ_and_repeat() -> None:
    """Case B02: choice 0 is n=1; the four differ from each other and from other seeds; twice the same."""
    texts = [tokens_over(16, sampler(index=i, temperature=1.0, seed=7)) for i in range(4)]
    assert len({tuple(text) for text in texts}) == 4
    assert texts == [tokens_over(16, sampler(index=i, temperature=1.0, seed=7)) for i in range(4)]
    assert texts[1] != tokens_over(16, sampler(temperature=1.0, seed=8))


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3, "top_p": 0.5}])
def test_everything_masked_fails_that_request(settings: dict[str, Any]) -> None:
    """Cases H13, E09: an error of this request, not token 0."""
    made = sampler(vocab_size=8, bad=tuple((i,) for i in range(8)), **settings)
    with pytest.raises(InvalidRequest, match="mask all 8 tokens"):
        sample(made, row(), [0], 1)
    nearly = sampler(vocab_size=8, bad=tuple((i,) for i in range(7)), **settings)
    assert sample(nearly, row(), [0], 1).token == 7


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"temperature": 1.0, "logit_bias": {3: -100.0}}])
def test_damaged_logits_fail_and_say_so(value: float, settings: dict[str, Any]) -> None:
    damaged = row(_3=value, _6=5.0)
    with pytest.raises(RequestFailed, match=f"{value} as the logit of token 3"):
        sample(sampler(vocab_size=8, **settings), damaged, [0], 1)


@pytest.mark.parametrize(
    ("param", "settings"),
    [
        ("logit_bias", {"logit_bias": {8: 1.0}}),
        ("logit_bias", {"logit_bias": {191_222: -100.0}}),
        ("stop_token_ids", {"stop_token_ids": (8,), "min_tokens": 1}),
        ("bad_words", {"bad": ((2, 8),)}),
        ("bad_words", {"bad": ((8,),)}),
        ("bad_words", {"bad": ((),)}),
    ],
)
def test_ids_without_a_logit_are_refused(param: str, settings: dict[str, Any]) -> None:
    """Cases G02, G10: when the sampler is made, naming the setting."""
    with pytest.raises(InvalidRequest) as caught:
        sampler(vocab_size=8, **settings)
    assert caught.value.param == param
