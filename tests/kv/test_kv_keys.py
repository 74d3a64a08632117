"""Keys: the same everywhere, and prefixes of any length compare and die without recursion."""

from __future__ import annotations

import subprocess
import sys

import pytest

from octavo.errors import KVError
from octavo.kv.keys import BlockKeys, Prefix, same_prefix

PROGRAM = """
from octavo.kv.keys import BlockKeys
keys = BlockKeys(4)
print(keys.child(keys.child(keys.root(b"tenant"), [1, -2, 3, 2**31 - 1], 0), list(range(8)), 1).key.hex())
"""


def test_keys_do_not_depend_on_the_process() -> None:
    """Case A19: three processes, three hash seeds, and the value that a stored block has."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("0", "1", "4242")
    }
    assert outputs == {"123b2ec6314db6a4d2c677e06971cacc46e9cd78b2c14f8bff2c38867e573c51"}


def chain(blocks: int) -> Prefix:
    keys = BlockKeys(1)
    prefix = keys.root(b"")
    for number in range(blocks):
        prefix = keys.child(prefix, [number], 0)
    return prefix


def test_long_prefixes() -> None:
    """100,000 blocks: compared and freed without deep recursion, and compared once only."""
    a, b = chain(100_000), chain(100_000)
    assert same_prefix(a, b)
    assert a.parent is b.parent
    other = chain(99_999)
    assert not same_prefix(other, b)
    del a, b, other


def test_a_namespace_is_bytes() -> None:
    with pytest.raises(KVError, match="namespace is a str"):
        BlockKeys(4).root("tenant")  # type: ignore[arg-type]
