"""`octavo.LLM`: a model on one engine, driven by the caller's own thread. Schedules nothing itself."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from octavo.config import EngineConfig
from octavo.engine.build import build_engine
from octavo.engine.embedding import embedding_of, embedding_params, encode_document
from octavo.engine.outputs import Delta, EngineStats, RequestOutput
from octavo.errors import InvalidRequest
from octavo.exec.pooling import Vector
from octavo.options import RequestOptions
from octavo.params import Pooling, SamplingParams
from octavo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
Message = Mapping[str, Any]
T = TypeVar("T")


class LLM:
    """A language model ready to generate.

    model: an alias ("smollm2-135m"), a .gguf file, a Hugging Face directory or a hub id. The other settings are those
    of `octavo.EngineConfig`, which documents each. Loading raises ModelNotFound, ModelFormatError, UnsupportedModel
    or NotEnoughMemory (before the weights are read). Not thread-safe. Use it as a context manager, or `close` it.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        block_size: int = 16,
        kv_memory: int | str | None = None,
        num_blocks: int | None = None,
        max_seqs: int = 64,
        max_batched_tokens: int = 2048,
        max_model_len: int | None = None,
        threads: int | None = None,
        dtype: str = "float32",
        kv_dtype: str = "auto",
        prefix_cache: bool = True,
        host_kv_memory: int | str | None = None,
        disk_kv: str | Path | None = None,
        disk_kv_size: int | str = "8GiB",
        disk_kv_key: str | Path | None = None,
        policy: str = "fcfs",
        batch_window: int = 0,
        seed: int | None = None,
        backend: str = "native",
    ) -> None:
        self.config = EngineConfig(
            block_size=block_size,
            kv_memory=kv_memory,
            num_blocks=num_blocks,
            max_seqs=max_seqs,
            max_batched_tokens=max_batched_tokens,
            max_model_len=max_model_len,
            threads=threads,
            dtype=dtype,
            kv_dtype=kv_dtype,
            prefix_cache=prefix_cache,
            host_kv_memory=host_kv_memory,
            disk_kv=None if disk_kv is None else str(disk_kv),
            disk_kv_size=disk_kv_size,
            disk_kv_key=None if disk_kv_key is None else str(disk_kv_key),
            policy=policy,
            batch_window=batch_window,
            seed=seed,
            backend=backend,
        )
        built = build_engine(model, self.config)
        self.engine = built.engine
        self.plan = built.plan
        self._template = built.chat_template
        self._seeds = random.Random(seed) if seed is not None else None

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back."""
        return self.engine.tokenizer

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` and `chat_tokens` can work: base models have no template."""
        return self._template is not None

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        options: RequestOptions | Sequence[RequestOptions] | None = None,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Answer prompts, as many at a time as memory holds; outputs in the order of the prompts.

        prompts: a text, a list of token ids, or a sequence of these. params, options: one for all, or one each.
        progress: a bar on standard error for more than one prompt. Raises InvalidRequest before anything runs if one
        cannot be served.
        """
        many = _as_prompts(prompts)
        each = _one_each(params, SamplingParams(), len(many), "params")
        treated = _one_each(options, RequestOptions(), len(many), "options")
        waiting: dict[int, int] = {}  # request id -> place
        outputs: dict[int, RequestOutput] = {}
        bar = tqdm(total=len(many), unit="prompt", desc="generate", disable=not progress or len(many) == 1)
        try:
            for place, (prompt, param, option) in enumerate(zip(many, each, treated, strict=True)):
                waiting[self._add(prompt, param, place if len(many) > 1 else None, option)] = place
            while waiting:
                for delta in self._step():
                    if delta.output is not None and delta.request_id in waiting:
                        outputs[waiting.pop(delta.request_id)] = delta.output
                        bar.update()
        finally:
            bar.close()
            self._abandon(waiting)
        return [outputs[place] for place in range(len(many))]

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        pooling: Pooling = "last",
        normalize: bool = True,
        options: RequestOptions | Sequence[RequestOptions] | None = None,
        progress: bool = True,
    ) -> Vector:
        """Embeddings of texts, float32 [texts, hidden], in their order; no token is sampled.

        texts: a text, a list of token ids, or a sequence of these; names of control tokens in a text stay text.
        pooling: the model's last state of the "last" token, or the "mean" over all tokens. normalize: to unit length,
        so that the cosine of two is their dot product. options, progress: as for `generate`. Raises InvalidRequest
        before anything runs if one is empty or longer than the context.
        """
        many = _as_prompts(texts)
        tokens = []
        for place, text in enumerate(many):
            with _naming(place if len(many) > 1 else None):
                tokens.append(encode_document(text, self.tokenizer, self.engine.max_model_len))
        outputs = self.generate(tokens, embedding_params(pooling), options=options, progress=progress)
        return np.stack([embedding_of(output, normalize=normalize) for output in outputs])

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Generator[Delta, None, None]:
        """Answer one prompt piece by piece; the last delta carries the whole output. Leaving the loop early ends the
        request and frees its memory."""
        request = self._add(prompt, params or SamplingParams(), None)
        done = False
        try:
            while not done:
                for delta in self._step():
                    if delta.request_id == request:
                        done = delta.output is not None
                        yield delta
        finally:
            if not done:
                self._abandon([request])

    def chat(
        self, messages: Sequence[Message], params: SamplingParams | None = None, *, progress: bool = True
    ) -> RequestOutput:
        """Answer a conversation: messages are mappings with `role` and `content`."""
        return self.generate([self.chat_tokens(messages)], params, progress=progress)[0]

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The prompt that the model's chat template makes of a conversation. Control tokens that a message's text
        spells stay text. Raises InvalidRequest when the model has no template or the template refuses."""
        if self._template is None:
            raise InvalidRequest(
                "this model has no chat template (it is a base model): use generate with a plain prompt",
                param="messages",
                code="no_chat_template",
            )
        return self._template.encode(messages)

    def pin(self, prompt: Prompt, ttl_s: float) -> int:
        """Keep the cached blocks of prompts that begin so from eviction for `ttl_s` seconds; see `PromptPins.add`."""
        return self.engine.pins.add(prompt, ttl_s)

    def unpin(self, pin: int) -> bool:
        """End a pin early; False when it has ended or never was."""
        return self.engine.pins.remove(pin)

    def stats(self) -> EngineStats:
        """The engine's counters and gauges now."""
        return self.engine.stats()

    def close(self) -> None:
        """End what runs and let go of the model's memory."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(
        self, prompt: Prompt, params: SamplingParams, place: int | None, options: RequestOptions | None = None
    ) -> int:
        seed = params.seed
        if seed is None:
            seed = self._seeds.getrandbits(63) if self._seeds is not None else secrets.randbits(63)
        with _naming(place):
            return self.engine.add(prompt, params, seed=seed, options=options)

    def _step(self) -> list[Delta]:
        """One iteration; where those that wait are held, this thread sleeps."""
        deltas = self.engine.step()
        if not deltas and (held := self.engine.wait_s()) > 0:
            time.sleep(held)
        return deltas

    def _abandon(self, requests: Sequence[int] | Mapping[int, int]) -> None:
        for request in requests:
            self.engine.abort(request)


@contextmanager
def _naming(place: int | None) -> Iterator[None]:
    """What is refused within says which of several prompts it was; `place` is None for the only one."""
    try:
        yield
    except InvalidRequest as error:
        if place is None:
            raise
        raise InvalidRequest(f"prompt {place}: {error}", param=error.param, code=error.code) from error


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [list(prompts)]  # type: ignore[arg-type]  # a flat list of ids is one prompt
    if any(isinstance(item, int) for item in prompts):
        raise InvalidRequest("prompts mix token ids and texts or lists: give one kind", param="prompt")
    return list(prompts)  # type: ignore[arg-type]


def _one_each(given: T | Sequence[T] | None, default: T, count: int, name: str) -> list[T]:
    if given is None or isinstance(given, type(default)):
        return [default if given is None else given] * count
    assert isinstance(given, Sequence)
    if len(given) != count:
        raise InvalidRequest(
            f"{len(given)} {type(default).__name__} for {count} prompts: give one, or one each", param=name
        )
    return list(given)
