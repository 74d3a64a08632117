"""How text is cut into words before byte-pair merging, by the names that GGUF files use. Knows no vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, pre_tokenizers

from octavo.errors import UnsupportedModel

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_CASED_WORD = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = _CASED_WORD % ("", "") + r"|\p{N}" + _REST
_GPT4O = _CASED_WORD % (("(?i:'s|'t|'re|'ve|'m|'ll|'d)?",) * 2) + r"|\p{N}{1,3}" + _REST


@dataclass(frozen=True, slots=True)
class WordSplit:
    """One way to cut text. `regex` None is the pattern of GPT-2. `lone_digits`: every digit is cut off first.

    whole_words: a word that is itself a token stays whole whatever the merges say. adds_bos: BOS comes first where
    the file does not say.
    """

    regex: str | None = None
    lone_digits: bool = False
    whole_words: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The stage that cuts text and respells it in the byte-level alphabet."""
        if self.regex is not None:
            byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(self.regex), "isolated"), byte_level])
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if self.lone_digits:
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        return byte_level


_SPLITS = (
    (("gpt-2", "gpt2", "default", "mpt", "olmo", "jais", "trillion", "granite-docling"), WordSplit()),
    (
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        WordSplit(lone_digits=True),
    ),
    (
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        WordSplit(_LLAMA3, whole_words=True, adds_bos=True),
    ),
    (("dbrx", "smaug-bpe"), WordSplit(_LLAMA3)),
    (("qwen2", "stablelm2", "deepseek-r1-qwen", "kormo", "megrez"), WordSplit(_QWEN2)),
    (("tekken",), WordSplit(_TEKKEN, whole_words=True, adds_bos=True)),
    (("gpt-4o", "llama4", "kanana2"), WordSplit(_GPT4O)),
)
WORD_SPLITS: Mapping[str, WordSplit] = MappingProxyType({name: split for names, split in _SPLITS for name in names})


def word_split(name: str) -> WordSplit:
    """The split called `name` in a file's `tokenizer.ggml.pre`. UnsupportedModel, with the known names, for others."""
    try:
        return WORD_SPLITS[name]
    except KeyError:
        known = ", ".join(sorted(WORD_SPLITS))
        raise UnsupportedModel(
            f"pre-tokenizer {name!r} is unknown and a guess would cut text wrongly; known are: {known}"
        ) from None
