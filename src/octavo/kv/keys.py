"""Names of block contents: chained hashes of tokens under a namespace. Knows no blocks and no sequences.

A key is BLAKE2b-256 of (parent's key, the block's tokens), so it stands for the whole beginning of a sequence; it is
the same in every process and on every machine. A hash is not a proof: `same_prefix` compares the tokens themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library spells an exception in lower case

from octavo.errors import KVError


class Prefix:
    """A beginning that ends with a full block: the beginning before it and that block's tokens (packed int32).

    A root has no parent and holds its namespace in `tokens`; `namespace` has it at every length. Immutable, except
    that `same_prefix` may replace a parent by an equal one.
    """

    __slots__ = ("key", "namespace", "parent", "tokens")

    def __init__(self, parent: Prefix | None, tokens: bytes, key: bytes) -> None:
        self.parent = parent
        self.tokens = tokens
        self.key = key
        self.namespace: bytes = tokens if parent is None else parent.namespace


def same_prefix(known: Prefix, asked: Prefix) -> bool:
    """Whether both are the same namespace and tokens from the first to the last: no trust in hashes.

    Walks back only to where both share an ancestor, and then lets `known` share it at once.
    """
    a: Prefix | None = known
    b: Prefix | None = asked
    while a is not b:
        if a is None or b is None or a.tokens != b.tokens:
            return False
        a, b = a.parent, b.parent
    if known is not asked:
        known.parent = asked.parent
    return True


class BlockKeys:
    """Makes prefixes for one block size. Token ids are signed 32-bit integers; others are refused."""

    __slots__ = ("_pack", "block_size")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._pack = Struct(f"<{block_size}i").pack

    def digest(self, data: bytes) -> bytes:
        """256 bits that stand for `data`."""
        return blake2b(data, digest_size=32).digest()

    def root(self, namespace: bytes) -> Prefix:
        """The empty beginning in `namespace`. Its key depends on the block size and on every byte of the namespace."""
        if not isinstance(namespace, bytes):
            raise KVError(f"namespace is a {type(namespace).__name__}; it must be bytes")
        head = b"octavo.kv 1 root".ljust(32) + self.block_size.to_bytes(8, "little")
        return Prefix(None, namespace, self.digest(head + len(namespace).to_bytes(8, "little") + namespace))

    def child(self, parent: Prefix, tokens: Sequence[int], block: int) -> Prefix:
        """`parent` and the tokens of block number `block` (counted from 0) of `tokens`, which must fill it."""
        size = self.block_size
        try:
            packed = self._pack(*tokens[block * size : (block + 1) * size])
        except StructError as error:
            first, last = block * size, (block + 1) * size - 1
            raise KVError(f"tokens {first} to {last} must be integers from -2**31 to 2**31 - 1 ({error})") from None
        return Prefix(parent, packed, self.digest(parent.key + packed))


def index_key(prefix: Prefix, group: int) -> bytes:
    """The key of a block: of which beginning, and of which layer group (0 to 255)."""
    return prefix.key + bytes((group,))
