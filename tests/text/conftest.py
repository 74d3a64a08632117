"""Tokenizers of the two real models, transformers' own of the same files, and small synthetic ones."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from octavo.text.tokenizer import Tokenizer
from octavo.weights.gguf import GGUFFile

DATA = Path(__file__).parent / "data"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """About 340 texts: many scripts, emoji, code, numbers, white space, control tokens, lone surrogates."""
    return json.loads((DATA / "corpus.json").read_text())


@pytest.fixture(scope="session")
def byte_strings() -> list[bytes]:
    """10,000 random byte strings of up to 40 bytes: half any bytes, half characters with some bytes spoilt."""
    rng = random.Random(4)
    found = [rng.randbytes(rng.randint(0, 40)) for _ in range(5000)]
    for _ in range(5000):
        text = "".join(
            chr(rng.choice((rng.randint(1, 126), rng.randint(160, 0xD7FF), rng.randint(0x1F300, 0x1FAFF))))
            for _ in range(rng.randint(0, 14))
        )
        data = bytearray(text.encode())
        for _ in range(rng.randint(0, 2) if data else 0):
            data[rng.randrange(len(data))] = rng.randrange(256)
        found.append(bytes(data))
    return found


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(GGUFFile.open(smollm2_path).metadata)


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(GGUFFile.open(gemma3_path).metadata)


def transformers_tokenizer(path: Path) -> Any:
    """What transformers makes of a GGUF file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@pytest.fixture(scope="session")
def smollm2_oracle(smollm2_path: Path) -> Any:
    """transformers' tokenizer, with the pre-tokenizer that SmolLM2's own tokenizer.json has.

    transformers' GGUF reader does not know the name "smollm" and falls back to that of GPT-2, which keeps digits in
    one word with the space before them.
    """
    oracle = transformers_tokenizer(smollm2_path)
    oracle.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return oracle


@pytest.fixture(scope="session")
def gemma3_oracle(gemma3_path: Path) -> Any:
    return transformers_tokenizer(gemma3_path)


def _merges(words: list[str]) -> list[tuple[str, str]]:
    """Merges that build each word from the left."""
    return list(dict.fromkeys((word[:cut], word[cut]) for word in words for cut in range(1, len(word))))


WriteModel = Callable[..., Path]


@pytest.fixture
def write_spm(tmp_path: Path) -> WriteModel:
    """Writes a model directory with a SentencePiece-style tokenizer.json (metaspace, byte fallback)."""

    def write(*, legacy: bool = False, **config: Any) -> Path:
        words = ["\u2581leading", "\u2581text", "\u2581x", "lead", "text", "\u2581word", "ing", "\u2581\u2581"]
        pieces = [piece for word in words for piece in [word[:cut] for cut in range(2, len(word) + 1)]]
        chars = sorted({*"\u2581", *(chr(c) for c in range(0x20, 0x7F) if c != 0x20)})
        texts = ["<unk>", "<s>", "</s>", "[INST]", *(f"<0x{byte:02X}>" for byte in range(256)), *chars, *pieces]
        ids = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        engine = tokenizers.Tokenizer(
            models.BPE(ids, _merges(words), unk_token="<unk>", byte_fallback=True, fuse_unk=True)
        )
        if legacy:
            engine.normalizer = normalizers.Sequence(
                [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
            )
        else:
            engine.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        engine.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        special = [AddedToken(name, normalized=False, special=True) for name in ("<unk>", "<s>", "</s>", "[INST]")]
        engine.add_special_tokens(special)
        engine.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
        engine.save(str(tmp_path / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>"} | config
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return tmp_path

    return write


@pytest.fixture(scope="session")
def byte_level_metadata() -> dict[str, Any]:
    """GGUF metadata of a byte-level tokenizer with ChatML's control tokens and a byte order of its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["\u0120the", "hello", "\u0120world", "im", "start", "user"]
    pieces = [word[:cut] for word in words for cut in range(2, len(word) + 1)]
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
    texts = list(dict.fromkeys([*control, "<think>", *alphabet, *pieces]))
    types = [3 if text in control else 4 if text == "<think>" else 1 for text in texts]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in _merges(words)],
        "tokenizer.ggml.bos_token_id": texts.index("<s>"),
        "tokenizer.ggml.eos_token_id": texts.index("<|im_end|>"),
        "tokenizer.chat_template": CHATML,
    }


@pytest.fixture(scope="session")
def toy(byte_level_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_metadata)
