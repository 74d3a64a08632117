"""What a caller may ask of one request. Validates itself; knows nothing of models, vocabularies or scheduling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal

from octavo.errors import InvalidRequest
from octavo.grammar import Grammar

MAX_STOP_STRINGS = 64
MAX_LOGPROBS = 20
MAX_CHOICES = 128
Pooling = Literal["last", "mean"]
MAX_INT = 2**31 - 1  # counts and token ids: what every backend's int32 can hold


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens and when to stop.

    The order is fixed: penalties and bias, temperature, top_k, top_p, min_p. Log-probabilities are the model's own,
    in nats, before all of these. Draws depend on (seed, choice index, position) alone, never on neighbours.

    max_tokens: most new tokens; None means as many as the context leaves.
    min_tokens: end tokens are masked and stop strings not looked for before this many new tokens.
    temperature: in [0, 2], 0 is greedy. top_k: 0 or -1 is off. top_p in [0, 1], 0 is the top token alone.
    min_p in [0, 1].
    repetition_penalty: over prompt and output, > 0, 1 is off. presence_penalty, frequency_penalty: over the output
    only, in [-2, 2]. logit_bias: token id -> added to its logit, in [-100, 100].
    bad_words: texts that must not appear. stop: texts that end the answer and are not part of it
    (`include_stop` keeps them). stop_token_ids: ids that end it likewise. ignore_eos: the model's own end tokens
    do not end it. seed: in [-2**63, 2**64); None draws a fresh one. n: answers to the same prompt.
    beam_width: above 1, search that many beams for the likeliest answers, best first; draws, penalties and bias do not
    go with it. length_penalty: an answer of L tokens counts its log-probability over L**length_penalty, in [-10, 10].
    early_stopping: True stops at as many finished answers as beams; False also asks whether the best beam could do
    better at its length now; "never" at any length.
    best_of: sample so many answers and return the `n` with the highest log-probability per token, best first.
    logprobs: how many alternatives to report for each new token (0: the chosen one alone; None: none).
    prompt_logprobs: likewise for the prompt. pooling: make an embedding of the prompt, of the model's last state of its
    "last" token or of the "mean" of all. With either of these max_tokens may be 0.
    skip_special_tokens: leave control tokens out of the text.
    grammar: what the whole answer must be a sentence of; it ends where the sentence does, even with min_tokens and
    ignore_eos.

    Lists are accepted where tuples are named, a lone string as `stop` or `bad_words` is one text, and None in place of
    a collection is an empty one. Raises `InvalidRequest` naming the field; what needs the vocabulary (is this id in
    it?) is checked by the engine.
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
    best_of: int | None = None
    beam_width: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    pooling: Pooling | None = None
    skip_special_tokens: bool = True
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        for name, lowest, highest, optional in INTEGERS:
            value = getattr(self, name)
            if not (optional and value is None):
                object.__setattr__(self, name, _integer(name, value, lowest, highest))
        for name, low, high in NUMBERS:
            object.__setattr__(self, name, _number(name, getattr(self, name), low, high))
        for name in ("include_stop", "ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise _refusal(name, "must be true or false", getattr(self, name))
        if not (self.grammar is None or isinstance(self.grammar, Grammar)):
            raise _refusal("grammar", "must be an octavo.Grammar", self.grammar)
        if self.pooling not in (None, "last", "mean"):
            raise _refusal("pooling", 'must be "last" or "mean"', self.pooling)
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise _refusal("early_stopping", 'must be true, false or "never"', self.early_stopping)
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))
        object.__setattr__(self, "bad_words", _texts("bad_words", self.bad_words))
        object.__setattr__(self, "stop", _texts("stop", self.stop))
        object.__setattr__(self, "stop_token_ids", _ids(self.stop_token_ids))
        self._check_together()

    @property
    def sequences(self) -> int:
        """How many are computed for one prompt, of which `n` are returned."""
        return max(self.n, self.beam_width, self.best_of or 1)

    def _check_together(self) -> None:
        """What no field can say alone."""
        if self.repetition_penalty == 0.0:
            raise _refusal("repetition_penalty", "must be greater than 0 (1 is off)", self.repetition_penalty)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            wanted = f"min_tokens {self.min_tokens} is more than max_tokens {self.max_tokens}; lower it"
            raise InvalidRequest(wanted, param="min_tokens")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequest(f"stop has {len(self.stop)} strings; the most is {MAX_STOP_STRINGS}", param="stop")
        if any(not text for text in self.stop):
            raise InvalidRequest(
                'stop has an empty string, which would end every answer at once; drop the ""', param="stop"
            )
        if any(not text.strip() for text in self.bad_words):
            raise InvalidRequest("bad_words has a blank string; name words with at least one letter", param="bad_words")
        if self.best_of is not None and self.best_of < self.n:
            raise InvalidRequest(f"best_of {self.best_of} is less than n {self.n}; raise it", param="best_of")
        self._check_beams()

    def _check_beams(self) -> None:
        """Beams are ranked by the model's own log-probabilities: what changes these, or draws, is refused."""
        if self.beam_width == 1:
            if (self.length_penalty, self.early_stopping) != (1.0, False):
                name = "length_penalty" if self.length_penalty != 1.0 else "early_stopping"
                raise InvalidRequest(f"{name} goes with beam_width above 1; set that, or leave it out", param=name)
            return
        for name, off in _OFF_WITH_BEAMS:
            if getattr(self, name) != off:
                raise InvalidRequest(f"{name} does not go with beam_width above 1: leave it at {off}", param=name)
        if self.best_of is not None:
            raise InvalidRequest("best_of does not go with beam_width above 1; leave it out", param="best_of")
        if self.n > self.beam_width:
            raise InvalidRequest(f"n {self.n} is more than beam_width {self.beam_width}; lower it", param="n")
        if self.max_tokens == 0:
            raise InvalidRequest("max_tokens 0 leaves beam_width nothing to search", param="max_tokens")


# name, lowest, highest, may it be None
INTEGERS = (
    ("max_tokens", 0, MAX_INT, True),
    ("min_tokens", 0, MAX_INT, False),
    ("top_k", -1, MAX_INT, False),
    ("seed", -(2**63), 2**64 - 1, True),
    ("n", 1, MAX_CHOICES, False),
    ("best_of", 1, MAX_CHOICES, True),
    ("beam_width", 1, MAX_CHOICES, False),
    ("logprobs", 0, MAX_LOGPROBS, True),
    ("prompt_logprobs", 0, MAX_LOGPROBS, True),
)
# name, value that changes nothing
_OFF_WITH_BEAMS: tuple[tuple[str, object], ...] = (
    ("temperature", 0.0),
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("logit_bias", {}),
    ("grammar", None),
)
# name, lowest, highest
NUMBERS = (
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.0, math.inf),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("length_penalty", -10.0, 10.0),
)


def _refusal(name: str, rule: str, value: object) -> InvalidRequest:
    """The error for one field: its name, the rule, and what came, cut to one short line."""
    try:
        shown = repr(value)
    except Exception:  # an int of more digits than Python prints, or a caller's own broken repr
        shown = f"a {type(value).__name__}"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InvalidRequest(f"{name} {rule}, not {shown}", param=name)


def _integer(name: str, value: object, lowest: int, highest: int) -> int:
    """`value` as an int in [lowest, highest]. True is not 1, and 2.0 is not 2."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not lowest <= int(value) <= highest:
        raise _refusal(name, f"must be a whole number from {lowest} to {highest}", value)
    return int(value)


def _number(name: str, value: object, low: float, high: float) -> float:
    """`value` as a finite float in [low, high]; NaN, infinities and booleans are refused."""
    rule = f"must be a number from {low:g} to {high:g}" if high < math.inf else "must be a finite number above 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _refusal(name, rule, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (low <= number <= high and math.isfinite(number)):
        raise _refusal(name, rule, value)
    return number + 0.0  # -0.0 becomes 0.0


def _ids(value: object) -> tuple[int, ...]:
    """`stop_token_ids` as a tuple of ints >= 0."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise _refusal("stop_token_ids", "must be a list of token ids", value)
    return tuple(_integer("stop_token_ids", each, 0, MAX_INT) for each in value)


def _texts(name: str, value: object) -> tuple[str, ...]:
    """A field of strings as a tuple; a lone string is one text, not a list of its letters."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise _refusal(name, "must be a string or a list of strings", value)
    return tuple(value)


def _bias(value: object) -> dict[int, float]:
    """`logit_bias` as a dict of our own, so that the caller's may change afterwards."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refusal("logit_bias", "must map token ids to numbers", value)
    return {
        _integer("logit_bias", token, 0, MAX_INT): _number("logit_bias", bias, -100.0, 100.0)
        for token, bias in value.items()
    }
