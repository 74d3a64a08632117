"""Settings -> the tiers below the pool, and what a disk tier's blocks are of. Stores nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from octavo.config import EngineConfig, parse_bytes
from octavo.errors import TierError
from octavo.models.load import ModelFiles
from octavo.ops.base import KVLayout
from octavo.tiers import DiskTier, HostTier, Purpose, TierStack

if TYPE_CHECKING:
    from octavo.tiers.encryption import MasterKeys

# Part of every fingerprint. Raise it when the bits of a block change for the same weights, settings and backend.
KV_FORMAT = 1


def open_tiers(config: EngineConfig, files: ModelFiles, layout: KVLayout, arithmetic: str) -> TierStack | None:
    """The tiers that `config` asks for, None for none. arithmetic: see `Loaded`. TierError: no use of the directory."""
    if config.host_kv_memory is None and config.disk_kv is None:
        return None
    host, disk = None, None
    if config.host_kv_memory is not None:
        host = HostTier(parse_bytes(config.host_kv_memory), layout.block_bytes)
    if config.disk_kv is not None:  # last: from here on the directory is locked
        disk = DiskTier(config.disk_kv, parse_bytes(config.disk_kv_size), _purpose(config, files, layout, arithmetic))
    return TierStack(host=host, disk=disk)


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
