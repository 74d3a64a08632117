"""Whole requests in a line of test: prompts, steps and serving, without a device."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv import KVCacheManager


def prompt(n: int, first: int = 100) -> list[int]:
    return list(range(first, first + n))


def compute(kv: KVCacheManager, seq: int, upto: int) -> None:
    """Extend and commit until `upto` tokens, in one step; its operations are dropped."""
    n = upto - kv.reserved(seq)
    assert kv.extend(seq, n)
    kv.take_ops()
    kv.commit(seq, n)
    kv.end_step()
    kv.check()


def serve(kv: KVCacheManager, seq: int, tokens: Sequence[int], namespace: bytes = b"") -> int:
    """Open, compute all, close: how many tokens were cached."""
    cached = kv.open(seq, tokens, namespace)
    compute(kv, seq, len(tokens))
    kv.close(seq)
    kv.check()
    return cached
