"""A model that is loaded -> an engine with nothing in it, as often as one is needed. Reads no file of the model."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from octavo.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.journal import Journal
from octavo.engine.parts import Parts
from octavo.engine.tiers import open_tiers
from octavo.errors import EngineUnavailable
from octavo.exec.batch import BatchEncoder, HostArray
from octavo.exec.block_mover import BlockMover
from octavo.exec.canary import Canary
from octavo.exec.executor import Executor
from octavo.kv import Accounting, KVCacheManager
from octavo.ops.backends import Loaded
from octavo.ops.base import AttentionMeta, KVLayout, StepInputs
from octavo.sched.limits import Limits as SchedulingLimits
from octavo.sched.policies import make_policy
from octavo.sched.scheduler import Scheduler
from octavo.text.token_grammar import GrammarCompiler
from octavo.text.tokenizer import Tokenizer
from octavo.tiers import Purpose, TierStack

MAX_SCORED_TOKENS = 64  # of prompts whose log-probabilities are wanted, a step: each has a row of logits
CANARY = 3  # the level of checking from which every slot is checked before it is read


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """All that engines of one model and one configuration share, one after the other; at most one may be alive.

    layout: of one block. windows: of the layer groups. max_blocks: of the pool, which address space is reserved for.
    purpose: of the disk tier, where there is one. check: `Parts.check`.
    """

    config: EngineConfig
    loaded: Loaded
    layout: KVLayout
    windows: tuple[int | None, ...]
    tokenizer: Tokenizer
    eos_ids: frozenset[int]
    vocab_size: int
    grammars: GrammarCompiler
    max_model_len: int
    hidden_size: int
    max_blocks: int
    purpose: Purpose | None
    check: int
    ids: Iterator[int] = field(default_factory=itertools.count)

    def engine(self, num_blocks: int) -> Engine:
        """A new engine, whose pool has so many blocks. TierError: no use of the tier's directory."""
        config = self.config
        # Nothing that may fail comes after the tiers: they lock their directory.
        tiers = open_tiers(config, self.layout.block_bytes, self.purpose)
        journal = Journal(time.monotonic)
        kv = self._block_manager(num_blocks, tiers, journal)
        policy = make_policy(config.policy, kv.blocks_needed)
        scheduler = Scheduler(kv, self._scheduling(), policy=policy, observer=journal)
        parts = Parts(
            kv=kv,
            scheduler=scheduler,
            encoder=BatchEncoder(kv, scheduler.tokens, max_seqs=config.max_seqs, max_model_len=self.max_model_len),
            executor=Executor(self.loaded.forward, self.loaded.rows, scheduler.tokens),
            mover=BlockMover(self.loaded.pool, tiers),
            journal=journal,
            tokenizer=self.tokenizer,
            eos_ids=self.eos_ids,
            vocab_size=self.vocab_size,
            grammars=self.grammars,
            max_model_len=self.max_model_len,
            hidden_size=self.hidden_size,
            block_bytes=self.layout.block_bytes,
            max_blocks=self.max_blocks,
            ids=self.ids,
            check=self.check,
            canary=Canary(self.max_blocks, config.block_size, self.windows) if self.check >= CANARY else None,
        )
        return Engine(parts, config)

    def reset(self) -> None:
        """No engine is left: the pool's memory goes back to the system, and the model computes a token as a proof that
        it is whole. EngineUnavailable: it is not."""
        self.loaded.pool.discard(0)
        blocks = np.arange(len(self.windows), dtype=np.int32)
        meta: AttentionMeta[HostArray] = AttentionMeta(
            cu_seqlens_q=np.array([0, 1], np.int32),
            seq_lens=np.array([1], np.int32),
            block_table=blocks.reshape(-1, 1, 1),
            slot_mapping=blocks.reshape(-1, 1).astype(np.int64) * self.config.block_size,
            max_query_len=1,
            max_seq_len=self.config.block_size,
        )
        first = np.zeros(1, np.int32)
        inputs: StepInputs[HostArray] = StepInputs(first, first, first, meta)
        logits = self.loaded.forward(inputs).logits
        self.loaded.pool.discard(0)
        if not np.isfinite(logits[:, : self.vocab_size]).all():
            raise EngineUnavailable("the model computes numbers that are none: its weights or its program are damaged")

    def _block_manager(self, num_blocks: int, tiers: TierStack | None, journal: Journal) -> KVCacheManager:
        """Tells the journal what each sequence cost, and is what the journal looks at."""
        kv = KVCacheManager(
            num_blocks,
            self.config.block_size,
            windows=self.windows,
            prefix_cache=self.config.prefix_cache,
            lower_tier=tiers,
            accounting=Accounting(time.monotonic, journal.closed),
        )
        journal.watch(kv, tiers)
        return kv

    def _scheduling(self) -> SchedulingLimits:
        return SchedulingLimits(
            self.config.max_batched_tokens,
            self.config.max_seqs,
            self.max_model_len,
            max_scored_tokens=MAX_SCORED_TOKENS,
            batch_window_s=self.config.batch_window / 1e3,
        )
