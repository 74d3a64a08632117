"""Grammars over one tokenizer: which tokens may follow. Knows no logits; the parsing is llguidance's.

Hostile grammars are bounded: how large they may become, how much work one step may be. What passes a bound while it is
compiled is an InvalidRequest; what passes one later ends that answer alone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from octavo.errors import InvalidRequest, OctavoError, RequestFailed
from octavo.grammar import Grammar
from octavo.text.prelude import Prelude, PreludeWalk
from octavo.text.tokenizer import Tokenizer

# llguidance itself is imported where the first grammar is compiled: most processes never need these 45 ms.
if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

# One space after , and : as models write it, and none elsewhere: free whitespace is where small models loop for ever.
JSON_STYLE: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# In llguidance's own units; they allow schemas of hundreds of kilobytes, and some 10 ms of work a step.
COMPILE_FUEL, STEP_FUEL, MAX_STATES = 500_000, 100_000, 50_000
MAX_GBNF = 1 << 15  # characters: it is translated in Python
MAX_ERROR = 300

_MASKS = np.zeros((256, 8), np.float32)  # of the eight tokens of each byte of llguidance's masks, the lowest bit first
_MASKS[np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 0] = -np.inf
_MASKS.flags.writeable = False


class TokenGrammar:
    """A compiled grammar. Immutable; each answer walks it with a `walk` of its own."""

    def __init__(
        self, matcher: LLMatcher, vocab_size: int, ends: Collection[int], prelude: Prelude | None = None
    ) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._ends = ends
        self._prelude = prelude

    def walk(self) -> GrammarWalk:
        """A new answer's place in the grammar: its start."""
        prelude = None if self._prelude is None else PreludeWalk(self._prelude)
        return GrammarWalk(self._matcher.deep_copy(), self._vocab_size, self._ends, prelude)


class GrammarWalk:
    """One answer's place in a grammar. One thread at a time.

    It goes where the answer's tokens lead, so that it may be asked again for the same tokens, or only now and then.
    """

    def __init__(
        self, matcher: LLMatcher, vocab_size: int, ends: Collection[int], prelude: PreludeWalk | None = None
    ) -> None:
        self._matcher = matcher
        self._ends = ends
        self._prelude = prelude  # while the answer is in it
        self._consumed = 0
        self._words = np.zeros((vocab_size + 31) // 32, np.int32)
        self._floats = np.zeros((self._words.nbytes, 8), np.float32)
        self._mask: NDArray[np.float32] | None = None
        self._vocab_size = vocab_size

    def allows(self, tokens: Sequence[int], prompt_len: int, token: int) -> bool:
        """Whether `token` may follow, for a hundredth of the cost of telling which may. Where the grammar leaves but
        one text, `mask` has only the tokenizer's own way to write it, and this any way."""
        self._go_to(tokens, prompt_len)
        if self._prelude is not None:
            return self._prelude.allows(token)
        if token in self._ends:
            return self._matcher.is_accepting()
        return self._matcher.validate_tokens([token]) == 1

    def mask(self, tokens: Sequence[int], prompt_len: int) -> NDArray[np.float32]:
        """Which tokens may follow `tokens` (the prompt's `prompt_len`, then the answer so far, append-only): 0 for
        these and -inf for the others, [vocab_size], not to be changed, and good until the next call. Adding that to
        logits takes an eighth of the time of picking them by booleans.

        The end tokens are among them where the answer may end. InvalidRequest where the grammar is too complex there.
        """
        self._go_to(tokens, prompt_len)
        if self._prelude is not None:
            return self._prelude.mask()
        if self._mask is None:
            self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
            if self._matcher.is_error():
                raise _failure(self._matcher)
            # Into the same memory each time: touching new pages takes longer than the work.
            self._mask = _MASKS.take(self._words.view(np.uint8), 0, self._floats, "clip").reshape(-1)[
                : self._vocab_size
            ]
        return self._mask

    def _go_to(self, tokens: Sequence[int], prompt_len: int) -> None:
        """To where the answer is. InvalidRequest where the grammar is too complex."""
        if prompt_len + self._consumed < len(tokens):
            fresh = list(tokens[prompt_len + self._consumed :])
            while fresh and self._prelude is not None:
                if self._prelude.ends_with(fresh.pop(0)):
                    self._prelude = None
            self._matcher.consume_tokens(fresh)
            self._consumed = len(tokens) - prompt_len
            self._mask = None
        if self._matcher.is_error():
            raise _failure(self._matcher)


class GrammarCompiler:
    """Compiles grammars for one tokenizer. Safe in several threads; what is slow runs without the interpreter lock.

    vocab_size: ids that can be sampled. ends: tokens that end an answer, allowed where a sentence is complete.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = sorted(ends)
        self._lock = threading.Lock()
        self._prelude: Prelude | None = None

    def compile(self, grammar: Grammar) -> TokenGrammar:
        """Raises InvalidRequest for one that makes no sense, that no answer can fulfil, or that is too large."""
        from llguidance import LLMatcher, LLParserLimits

        if not self._ends:
            raise InvalidRequest("grammars need a model with an end token, and this one has none", param="grammar")
        with self._lock:
            tokens = self._tokens
        limits = LLParserLimits(initial_lexer_fuel=COMPILE_FUEL, step_lexer_fuel=STEP_FUEL, max_lexer_states=MAX_STATES)
        try:
            matcher = LLMatcher(tokens, _source(grammar), log_level=0, limits=limits)
        except ValueError as error:
            raise InvalidRequest(f"the grammar cannot be read: {_first_line(str(error))}", param="grammar") from error
        # The first step of a hostile grammar is its dearest: better here than between others' tokens.
        words = np.zeros((self._vocab_size + 31) // 32, np.int32)
        if not matcher.is_error():
            matcher.deep_copy().unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.get_error().startswith("NoExtension"):
            raise _no_sentence()
        if matcher.is_error():
            raise InvalidRequest(f"the grammar cannot be used: {_first_line(matcher.get_error())}", param="grammar")
        prelude = self._prelude_to(grammar.after) if grammar.after else None
        return TokenGrammar(matcher, self._vocab_size, frozenset(self._ends), prelude)

    def _prelude_to(self, end: str) -> Prelude:
        """Made anew only for another end than the last one, of which a server has but one."""
        with self._lock:
            if self._prelude is None or self._prelude.end != end.encode("utf-8", "replace"):
                self._prelude = Prelude(end, self._tokenizer, self._vocab_size, self._ends)
            return self._prelude

    @cached_property
    def _tokens(self) -> LLTokenizer:
        """Made on first use: it takes a fifth of a second for 49,152 tokens."""
        from llguidance import LLTokenizer, TokenizerWrapper

        seen = TokenizerWrapper(_Vocabulary(self._tokenizer, self._vocab_size, self._ends[0]))
        return LLTokenizer(seen, eos_token=self._ends)


class _Vocabulary:
    """A tokenizer as llguidance wants to see it."""

    def __init__(self, tokenizer: Tokenizer, size: int, end: int) -> None:
        self._tokenizer = tokenizer
        self.bos_token_id = None
        self.eos_token_id = end
        self.tokens = [tokenizer.token_bytes(token) for token in range(size)]
        self.special_token_ids = sorted(tokenizer.special_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)


def _failure(matcher: LLMatcher) -> OctavoError:
    """What ends an answer in the middle: that a bound was passed, by the request's fault, who would pass it again if it
    were retried; or that a token was taken which the grammar had not allowed, by ours."""
    reason = _first_line(matcher.get_error())
    if "doesn't satisfy the grammar" in reason:
        return RequestFailed(f"the answer's grammar failed: {reason}")
    return InvalidRequest(f"the answer's grammar became too complex to follow: {reason}", param="grammar")


def _source(grammar: Grammar) -> str:
    from llguidance import LLMatcher

    if grammar.kind == "json_schema":
        if grammar.source.strip() == "false":
            raise _no_sentence()
        if grammar.source.strip() == "true":
            return LLMatcher.grammar_from_json_schema("{}", overrides=JSON_STYLE)
        return LLMatcher.grammar_from_json_schema(grammar.source, overrides=JSON_STYLE)
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.source)
    return LLMatcher.grammar_from_lark(_lark(grammar.source))


def _lark(source: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax

    if is_lark_syntax(source):
        return source
    if len(source) > MAX_GBNF:
        raise InvalidRequest(f"a GBNF grammar may have {MAX_GBNF} characters, not {len(source)}", param="grammar")
    try:
        return gbnf_to_lark(source)
    except Exception as error:  # a translator that recurses and raises as it likes
        said = _first_line(str(error)) or type(error).__name__
        raise InvalidRequest(f"the GBNF grammar cannot be read: {said}", param="grammar") from error


def _no_sentence() -> InvalidRequest:
    return InvalidRequest("no text is a sentence of this grammar", param="grammar")


def _first_line(text: str) -> str:
    line = " ".join(text.split("<state>")[0].split())
    return line if len(line) <= MAX_ERROR else line[: MAX_ERROR - 3] + "..."
