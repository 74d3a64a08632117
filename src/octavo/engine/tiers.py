"""Settings -> the tiers below the pool, and what a disk tier's blocks are of. Stores nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from octavo.config import EngineConfig, parse_bytes
from octavo.errors import TierError
from octavo.kv import KVCacheManager
from octavo.models.load import ModelFiles
from octavo.ops.base import KVLayout
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler
from octavo.tiers import DiskTier, HostTier, Purpose, TierStack

if TYPE_CHECKING:
    from octavo.tiers.encryption import MasterKeys

# Part of every fingerprint. Raise it when the bits of a block change for the same weights, settings and backend.
KV_FORMAT = 1


def open_tiers(config: EngineConfig, block_bytes: int, purpose: Purpose | None) -> TierStack | None:
    """The tiers that `config` asks for, None for none. purpose: of a disk tier. TierError: no use of the directory."""
    if config.host_kv_memory is None and config.disk_kv is None:
        return None
    host, disk = None, None
    if config.host_kv_memory is not None:
        host = HostTier(parse_bytes(config.host_kv_memory), block_bytes)
    if config.disk_kv is not None and purpose is not None:  # last: from here on the directory is locked
        disk = DiskTier(config.disk_kv, parse_bytes(config.disk_kv_size), purpose)
    return TierStack(host=host, disk=disk)


def disk_purpose(config: EngineConfig, files: ModelFiles, layout: KVLayout, arithmetic: str) -> Purpose | None:
    """What a disk tier's blocks are of, None where `config` asks for none. Reads every weight. arithmetic: see
    `Loaded`."""
    return None if config.disk_kv is None else _purpose(config, files, layout, arithmetic)


class Prefetcher:
    """Has the tiers read ahead for requests that wait, and tells the scheduler, through `Request.fetching`, for whom
    it is worth waiting a step. tiers: None when there are none, and then there is nothing to do."""

    def __init__(self, kv: KVCacheManager, scheduler: Scheduler, tiers: TierStack | None) -> None:
        self._kv = kv
        self._scheduler = scheduler
        self._tiers = tiers if tiers is not None and tiers.keeps else None
        self._watched: dict[int, Request] = {}

    def watch(self, request: Request) -> None:
        """It waits from now on."""
        first = request.parent is None or request.preemptions > 0  # a child shares its parent's blocks at first
        if self._tiers is not None and request.use_cache and first:
            self._tiers.read_ahead(request.id, self._kv.absent_keys(request.tokens, request.namespace))
            request.fetching = not self._tiers.ready(request.id)
            self._watched[request.id] = request

    def watch_again(self, preempted: Sequence[int]) -> None:
        """These live sequences wait once more; what was spilled for others is theirs again."""
        for seq in preempted:
            self.watch(self._scheduler.request(seq))

    def poll(self) -> None:
        """Before a step is planned: whose blocks are there, and who does not wait any more."""
        if self._tiers is None:
            return
        for seq, request in tuple(self._watched.items()):
            if request.slot is not None:
                self.drop(seq)
            elif request.fetching:
                request.fetching = not self._tiers.ready(seq)

    def drop(self, seq: int) -> None:
        """It waits no more."""
        if self._tiers is not None and self._watched.pop(seq, None) is not None:
            self._tiers.forget(seq)


def _purpose(config: EngineConfig, files: ModelFiles, layout: KVLayout, arithmetic: str) -> Purpose:
    """Everything that decides which bytes a beginning of tokens has: every weight, the model's numbers, the layout,
    the backend and how it computes. A name would not do: a model may be trained further under the same one."""
    shape = (layout.layers, layout.kv_heads, layout.block_size, layout.head_size, layout.dtype)
    digest = sha256(repr((KV_FORMAT, config.backend, config.dtype, shape, _ordered(files.spec))).encode())
    for name, tensor in sorted(files.tensors.items()):
        digest.update(repr((name, tensor.shape, tensor.type.name)).encode())
        digest.update(tensor.data.data)
    text = f"{files.name}, {config.backend} backend, KV {layout.dtype} in blocks of {layout.block_size} tokens"
    return Purpose(
        digest.digest(), layout.block_bytes, text, sha256(arithmetic.encode()).digest(), _keys(config.disk_kv_key)
    )


def _keys(path: str | None) -> MasterKeys | None:
    if path is None:
        return None
    try:
        from octavo.tiers.encryption import MasterKeys
    except ImportError as error:
        raise TierError(f"disk_kv_key needs an extra ({error}): pip install 'octavo[encryption]'") from error
    return MasterKeys.from_file(path)


def _ordered(value: object) -> object:
    """A specification as nested tuples that have one order in every process: sets and mappings sorted."""
    if is_dataclass(value):
        return tuple((field.name, _ordered(getattr(value, field.name))) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple((str(name), _ordered(item)) for name, item in sorted(value.items()))
    if isinstance(value, frozenset):
        return tuple(sorted(map(str, value)))
    return tuple(map(_ordered, value)) if isinstance(value, tuple) else value
