"""How far engines are from float32 arithmetic on the same weights: mean KL divergence and greedy agreement.

The text is this repository's documentation, cut into pieces of 512 tokens; the second half of each is scored, as
llama.cpp's own llama-perplexity does. The reference is octavo's numpy backend, float32 throughout. All are held against
one and the same form of the reference: log-probabilities in 16 bits, those below -16 left out, which is what
llama-perplexity reads.

    python bench/quality.py [--pieces 4] [--threads 2]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.models.decoder import Decoder
from octavo.models.load import ModelFiles, read_model
from octavo.ops.backends import Limits, backend
from octavo.ops.base import AttentionMeta, StepInputs
from octavo.text.tokenizer import Tokenizer
from octavo.weights.cache import default_root
from octavo.weights.catalog import resolve

ROOT = Path(__file__).parents[1]
TEXTS = ("README.md", "docs/architecture.md", "docs/embedding.md", "docs/serving.md", "CONTRIBUTING.md")
PIECE, BLOCK = 512, 16
FIRST = PIECE // 2  # position of the first that is scored; the last has nothing after it
FLOOR = -16.0
PEERS = default_root() / "peers"

Floats = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int32]
Logits = Callable[[Tokens], Floats]  # tokens [512] -> logits [255, vocabulary] of positions 256 to 510


@dataclass(frozen=True, slots=True)
class Base:
    """A piece's reference as llama-perplexity stores it. codes: uint16 [255, vocabulary], log-probability =
    scale * code + least. top: the likeliest token of each position."""

    codes: npt.NDArray[np.uint16]
    scale: Floats
    least: Floats
    top: npt.NDArray[np.integer[Any]]

    @classmethod
    def of(cls, logits: Floats) -> Base:
        peak = logits.max(axis=1)
        floor = np.maximum(logits.min(axis=1), peak + FLOOR)
        total = np.log(np.exp((logits - peak[:, None]).astype(np.float64)).sum(axis=1))
        scale = (peak - floor) / np.float32(65535)
        codes = np.rint(np.maximum(logits - floor[:, None], 0) / scale[:, None]).astype(np.uint16)
        return cls(codes, scale, (floor - peak - total).astype(np.float32), logits.argmax(axis=1))

    def divergence(self, logits: Floats) -> npt.NDArray[np.float64]:
        """Of each position, in nats."""
        base = self.scale[:, None].astype(np.float64) * self.codes + self.least[:, None]
        wide = logits.astype(np.float64)
        peak = wide.max(axis=1, keepdims=True)
        mine = wide - peak - np.log(np.exp(wide - peak).sum(axis=1, keepdims=True))
        return np.where(base > FLOOR, np.exp(base) * (base - mine), 0.0).sum(axis=1)


def main() -> None:
    """Print one row for each engine and form of the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF file or an alias (default smollm2-135m)")
    parser.add_argument("--bf16", type=Path, default=PEERS / "models/SmolLM2-135M-Instruct-bf16", help="a directory")
    parser.add_argument("--llama", type=Path, default=PEERS / "llama.cpp/build/bin/llama-perplexity")
    parser.add_argument("--pieces", type=int, default=4, help="of 512 tokens, 255 of them scored (default 4)")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    path = resolve(arguments.model)
    files = read_model(path)
    pieces = _pieces(files, arguments.pieces)
    print(f"{len(pieces)} pieces, {len(pieces) * (PIECE - 1 - FIRST)} positions of {path.name}")
    bases = [Base.of(logits) for logits in map(_octavo(files, "numpy", arguments.threads), pieces)]
    _show("octavo", bases, map(_octavo(files, "native", arguments.threads), pieces))
    if arguments.llama.exists():
        _llama(arguments.llama, path, bases, pieces, arguments.threads)
    if arguments.bf16.exists():
        files = read_model(arguments.bf16)
        print(f"the same pieces of {arguments.bf16.name}, against float32 arithmetic on bf16 weights")
        bases = [Base.of(logits) for logits in map(_octavo(files, "numpy", arguments.threads), pieces)]
        _show("octavo", bases, map(_octavo(files, "native", arguments.threads), pieces))
        _show("transformers", bases, map(_transformers(arguments.bf16, arguments.threads), pieces))


def _pieces(files: ModelFiles, count: int) -> Sequence[Tokens]:
    assert not isinstance(files.tokenizer, Path)
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    ids = Tokenizer.from_gguf(files.tokenizer).encode(text)
    count = min(count, len(ids) // PIECE)
    return list(np.array(ids[: count * PIECE], np.int32).reshape(count, PIECE))


def _octavo(files: ModelFiles, name: str, threads: int) -> Logits:
    chosen, groups = backend(name), len(files.spec.groups)
    blocks = PIECE // BLOCK
    layout = replace(files.spec.kv_layout(groups * blocks, BLOCK), dtype=chosen.kv_dtype)
    limits = Limits(PIECE, PIECE - FIRST, PIECE, files.spec.vocab_size, threads)
    loaded = chosen.load(layout, limits, lambda ops: Decoder(files.spec, ops, files.tensors))
    table = np.arange(groups * blocks, dtype=np.int32).reshape(groups, 1, blocks)
    positions = np.arange(PIECE, dtype=np.int32)
    meta: AttentionMeta[npt.NDArray[np.generic]] = AttentionMeta(
        cu_seqlens_q=np.array([0, PIECE], np.int32),
        seq_lens=np.array([PIECE], np.int32),
        block_table=table,
        slot_mapping=(positions + np.arange(groups)[:, None] * PIECE).astype(np.int64),
        max_query_len=PIECE,
        max_seq_len=PIECE,
    )
    rows = np.arange(FIRST, PIECE - 1, dtype=np.int32)
    return lambda tokens: loaded.forward(StepInputs(tokens, positions, rows, meta)).logits.copy()


def _transformers(folder: Path, threads: int) -> Logits:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)

    def logits(tokens: Tokens) -> Floats:
        with torch.no_grad():
            found = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0, FIRST : PIECE - 1]
        return np.asarray(found.float().numpy(), np.float32)

    return logits


def _show(name: str, bases: Sequence[Base], pieces: Iterator[Floats]) -> None:
    divergences, agreed = [], []
    for base, logits in zip(bases, pieces, strict=True):
        divergences.append(base.divergence(logits))
        agreed.append(logits.argmax(axis=1) == base.top)
    every = np.concatenate(divergences)
    error = every.std() / len(every) ** 0.5
    print(
        f"  {name:14}mean KL {every.mean():.6f} +- {error:.6f}, top token {np.concatenate(agreed).mean():.2%}",
        flush=True,
    )


def _llama(program: Path, model: Path, bases: Sequence[Base], pieces: Sequence[Tokens], threads: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base"
        with path.open("wb") as file:
            file.write(b"_logits_" + np.array([PIECE, bases[0].codes.shape[1], len(pieces)], np.int32).tobytes())
            file.write(np.concatenate(pieces).tobytes())
            for base in bases:
                file.write(_rows(base))
        limits = ["-c", PIECE, "-b", PIECE, "-ub", PIECE, "-t", threads]
        command = [program, "-m", model, "--kl-divergence", "--kl-divergence-base", path, *limits]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    found = [re.search(pattern, said) for pattern in (r"Mean +KLD: +(\S+) . +(\S+)", r"Same top p: +(\S+)")]
    if None in found:
        raise SystemExit(f"{program.name} said something else than expected: {said[-2000:]}")
    (mean, error), (top,) = (match.groups() for match in found if match)
    print(f"  {'llama.cpp':14}mean KL {mean} +- {error}, top token {top}%", flush=True)


def _rows(base: Base) -> bytes:
    """Two floats and then the codes, padded to an even number, of each position."""
    head = np.stack([base.scale, base.least], axis=1).astype(np.float32).view(np.uint16)
    odd = np.zeros((len(base.codes), base.codes.shape[1] % 2), np.uint16)
    return np.concatenate([head, base.codes, odd], axis=1).tobytes()


if __name__ == "__main__":
    main()
