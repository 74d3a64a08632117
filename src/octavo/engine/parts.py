"""What an engine is made of, as `build` puts it together. Does nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from octavo.engine.journal import Journal
from octavo.exec.batch import BatchEncoder
from octavo.exec.block_mover import BlockMover
from octavo.exec.canary import Canary
from octavo.exec.executor import Executor
from octavo.kv import KVCacheManager
from octavo.sched.scheduler import Scheduler
from octavo.text.token_grammar import GrammarCompiler
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Parts:
    """One engine's. check: 0 nothing, 1 all blocks back when idle, 2 every invariant at each step. canary:
    where every slot is checked before it is read. block_bytes: of one KV block. max_blocks: of address space. ids: of
    requests, which no engine of the same model gives out twice."""

    kv: KVCacheManager
    scheduler: Scheduler
    encoder: BatchEncoder
    executor: Executor
    mover: BlockMover
    journal: Journal
    tokenizer: Tokenizer
    eos_ids: frozenset[int]
    vocab_size: int
    grammars: GrammarCompiler
    max_model_len: int
    hidden_size: int
    block_bytes: int
    max_blocks: int
    ids: Iterator[int] = field(default_factory=itertools.count)
    clock: Callable[[], float] = time.monotonic
    check: int = 0
    canary: Canary | None = None
