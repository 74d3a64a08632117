"""The engine's settings: one frozen value, the source of the Python arguments and of the command line's flags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine. Each has the same name in Python and, with dashes, on the command line.

    block_size: tokens in one KV block. kv_memory: bytes for the KV pool, or text such as "2GiB"; None sizes it from
    the machine. num_blocks: size the pool in blocks instead (wins over kv_memory). max_seqs: sequences that run at
    once. max_batched_tokens: tokens that one step computes at most. max_model_len: longest sequence in tokens, prompt
    and answer; None is the model's own. threads: None is every core the process may use. dtype: of the computation.
    kv_dtype: of the KV cache. prefix_cache: reuse the blocks of equal beginnings. seed: for requests without one.
    backend: "numpy" (later "native").
    """

    block_size: int = 16
    kv_memory: int | str | None = None
    num_blocks: int | None = None
    max_seqs: int = 64
    max_batched_tokens: int = 2048
    max_model_len: int | None = None
    threads: int | None = None
    dtype: str = "float32"
    kv_dtype: str = "float32"
    prefix_cache: bool = True
    seed: int | None = None
    backend: str = "numpy"
