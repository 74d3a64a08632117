"""MODEL and settings -> a ready engine: resolve, plan, load. Knows backends by name only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from octavo.config import EngineConfig
from octavo.engine.assembly import MAX_SCORED_TOKENS, LoadedModel
from octavo.engine.engine import Engine
from octavo.engine.memory import MemoryNeeds, MemoryPlan, available_bytes, plan_memory
from octavo.engine.tiers import disk_purpose
from octavo.errors import InvalidRequest
from octavo.models.decoder import Decoder
from octavo.models.load import ModelFiles, read_model
from octavo.models.spec import ModelSpec
from octavo.ops.backends import Backend, Limits, backend
from octavo.ops.base import Ops, T, W
from octavo.text.chat_template import ChatTemplate
from octavo.text.parts import collect_eos_ids
from octavo.text.token_grammar import GrammarCompiler
from octavo.text.tokenizer import Tokenizer
from octavo.weights.catalog import resolve

CHECK_VARIABLE = "OCTAVO_CHECK"
ISA_VARIABLE = "OCTAVO_ISA"  # overrides the choice of instruction set; for tests and measurements


@dataclass(frozen=True, slots=True)
class Built:
    """An engine, the memory that it was planned to take, the model's chat template if it has one, and what is left of
    an engine when its state is not."""

    engine: Engine
    plan: MemoryPlan
    chat_template: ChatTemplate | None
    model: LoadedModel

    def renewed(self) -> Built:
        """With a fresh engine instead of one that was abandoned: the same weights and compiled program, nothing in the
        pool. EngineUnavailable: the model is damaged. TierError: a tier cannot be opened again."""
        self.model.reset()
        return replace(self, engine=self.model.engine(self.engine.num_blocks))


def build_engine(model: str | Path, config: EngineConfig, environment: Mapping[str, str] = os.environ) -> Built:
    """Load MODEL for these settings. Memory is planned, and refused, before any weight is read.

    Raises ModelNotFound, ModelFormatError, UnsupportedModel, NotEnoughMemory or InvalidRequest.
    """
    files = read_model(resolve(model), length=config.max_model_len)
    max_model_len = _model_len(config, files)
    chosen = backend(config.backend)
    layout = replace(files.spec.kv_layout(0, config.block_size), dtype=_kv_dtype(config, chosen))
    check = _check_level(environment)
    tokenizer = _tokenizer(files)
    # Rows of the output beyond the tokenizer are padding, and ids beyond the output have no row.
    vocab_size = min(tokenizer.size, files.spec.vocab_size)
    limits = Limits(
        max_tokens=config.max_batched_tokens,
        max_rows=min(config.max_seqs + MAX_SCORED_TOKENS, config.max_batched_tokens),
        max_length=max_model_len,
        sampled=vocab_size,
        threads=config.threads,
        isa=environment.get(ISA_VARIABLE) or None,
    )

    def make_decoder(ops: Ops[T, W]) -> Decoder[T, W]:
        return Decoder(files.spec, ops, files.tensors)

    workspace = chosen.workspace_bytes(layout, limits, make_decoder)
    needs = MemoryNeeds(
        weights=chosen.weight_bytes(files.tensors.values()),
        workspace=_estimate(files.spec, limits) if workspace is None else workspace,
        groups=len(files.spec.groups),
        tokens=tokenizer.size,
    )
    plan = plan_memory(config, layout, needs, max_model_len, available_bytes())
    eos_ids = collect_eos_ids(tokenizer.eos_ids, files.eos_ids, size=tokenizer.size)
    template = None if files.chat_template is None else ChatTemplate(files.chat_template, tokenizer)
    loaded = chosen.load(replace(layout, num_blocks=plan.max_blocks), limits, make_decoder)
    made = LoadedModel(
        config=config,
        loaded=loaded,
        layout=layout,
        windows=files.spec.groups,
        tokenizer=tokenizer,
        eos_ids=eos_ids,
        vocab_size=vocab_size,
        grammars=GrammarCompiler(tokenizer, vocab_size, eos_ids),
        max_model_len=max_model_len,
        hidden_size=files.spec.dims.hidden,
        max_blocks=plan.max_blocks,
        purpose=disk_purpose(config, files, layout, loaded.arithmetic),
        check=check,
    )
    return Built(made.engine(plan.num_blocks), plan, template, made)


def _model_len(config: EngineConfig, files: ModelFiles) -> int:
    context = files.spec.dims.context
    if config.max_model_len is not None and config.max_model_len > context:
        raise InvalidRequest(
            f"max_model_len {config.max_model_len} is more than the {context} tokens that {files.name} was made for",
            param="max_model_len",
        )
    return config.max_model_len or context


def _kv_dtype(config: EngineConfig, chosen: Backend) -> Literal["float32", "bfloat16"]:
    match config.kv_dtype:
        case "float32":
            return "float32"
        case "bfloat16":
            return "bfloat16"
        case _:
            return chosen.kv_dtype


def _estimate(spec: ModelSpec, limits: Limits) -> int:
    """Bytes of the widest arrays of a step, where the backend has no plan."""
    dims = spec.dims
    attention = (2 * dims.heads + 2 * dims.kv_heads) * dims.head_size
    row = 4 * dims.hidden + 2 * attention + 4 * dims.intermediate
    return 4 * (limits.max_tokens * row + limits.max_rows * spec.vocab_size)


def _tokenizer(files: ModelFiles) -> Tokenizer:
    if isinstance(files.tokenizer, Path):
        return Tokenizer.from_directory(files.tokenizer)
    return Tokenizer.from_gguf(files.tokenizer)


def _check_level(environment: Mapping[str, str]) -> int:
    text = environment.get(CHECK_VARIABLE, "0")
    if text not in ("0", "1", "2", "3"):
        raise InvalidRequest(f"{CHECK_VARIABLE} must be 0, 1, 2 or 3, not {text!r}", param=CHECK_VARIABLE)
    return int(text)
