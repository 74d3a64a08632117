"""Encryption: nothing of blocks, keys or namespaces in the clear; wrong keys find nothing, old ones retire."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from faulty_files import block, key

from octavo.errors import TierError
from octavo.tiers import DiskTier, Purpose
from octavo.tiers.encryption import Encryption, MasterKeys
from octavo.tiers.seal import HEADER_BYTES, Header
from octavo.tiers.slots import namespace_tag

SIZE = 512
OLD, NEW, WRONG = (bytes((number,)) * 32 for number in (1, 2, 3))
BUDGET = 5 * 4096 + 6 * (SIZE + HEADER_BYTES)
Contents = dict[bytes, bytes | None]


def opened(path: Path, *keys: bytes) -> DiskTier:
    return DiskTier(path, BUDGET, Purpose(bytes(32), SIZE, "test", keys=MasterKeys(list(keys)) if keys else None))


def contents(tier: DiskTier) -> Contents:
    return {found: tier.finish(tier.begin(found)) for found in tier.keys()}  # noqa: SIM118 - no mapping


def fill(tier: DiskTier, numbers: range) -> Contents:
    for number in numbers:
        assert tier.put(key(number), b"tenant %d" % (number % 2), block(0xABCD00 + number, SIZE), float("inf"))
    assert tier.drain()
    return {key(number): block(0xABCD00 + number, SIZE) for number in numbers}


def raw(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def clear_text(folder: Path, numbers: range) -> list[str]:
    """What of blocks, their keys and their tenants can be read in any file."""
    found, text = [], raw(folder)
    for number in numbers:
        content = block(0xABCD00 + number, SIZE)
        found += ["content"] * any(content[at : at + 8] in text for at in range(0, SIZE, 8))
        found += ["key"] * (key(number)[:8] in text and number > 0)
        found += ["tenant"] * (namespace_tag(b"tenant %d" % (number % 2)) in text)
    return found


def test_blocks_come_back_after_a_restart_and_no_file_tells_anything(tmp_path: Path) -> None:
    tier = opened(tmp_path / "d", NEW)
    whole = fill(tier, range(0x4142434445, 0x4142434445 + 6))
    assert contents(tier) == whole
    tier.close()
    assert clear_text(tmp_path / "d", range(0x4142434445, 0x4142434445 + 6)) == []
    again = opened(tmp_path / "d", NEW)
    assert contents(again) == whole
    assert again.stats().corrupt == again.stats().retired == 0
    again.close()


def test_without_a_key_everything_is_in_the_clear_and_the_search_finds_it(tmp_path: Path) -> None:
    tier = opened(tmp_path / "d")
    fill(tier, range(0x4142434445, 0x4142434445 + 1))
    tier.close()
    assert clear_text(tmp_path / "d", range(0x4142434445, 0x4142434445 + 1)) == ["content", "key", "tenant"]


def test_the_first_key_encrypts_and_all_decrypt(tmp_path: Path) -> None:
    tier = opened(tmp_path / "d", OLD)
    old = fill(tier, range(3))
    tier.close()
    tier = opened(tmp_path / "d", NEW, OLD)
    new = fill(tier, range(3, 5))
    assert contents(tier) == old | new
    tier.close()
    tier = opened(tmp_path / "d", NEW)
    assert tier.stats().retired == 3
    assert contents(tier) == new
    assert tier.drain()
    tier.close()
    tier = opened(tmp_path / "d", NEW, OLD)
    assert contents(tier) == new, "what was of a retired key is gone, and does not come back with it"
    assert tier.stats().retired == 0
    tier.close()


def test_a_wrong_key_is_a_miss_and_a_counter(tmp_path: Path) -> None:
    tier = opened(tmp_path / "d", OLD)
    fill(tier, range(4))
    tier.close()
    wrong = opened(tmp_path / "d", WRONG)
    assert contents(wrong) == {}
    assert wrong.stats().retired == 4
    assert wrong.lookup(key(1)) is None
    while wrong.stats().used:  # what was found is being overwritten
        time.sleep(0.001)
    whole = fill(wrong, range(6))
    assert contents(wrong) == whole
    wrong.check()
    wrong.close()


@pytest.mark.parametrize("before", [True, False], ids=["to plain", "to encrypted"])
def test_a_directory_that_changes_sides_is_emptied_first(tmp_path: Path, before: bool) -> None:
    tier = opened(tmp_path / "d", *([OLD] if before else []))
    fill(tier, range(1, 6))
    tier.close()
    tier = opened(tmp_path / "d", *([] if before else [OLD]))
    assert contents(tier) == {}
    tier.close()
    assert clear_text(tmp_path / "d", range(1, 6)) == []
    assert not raw(tmp_path / "d").count(b"OCTAVOKV")


def test_any_flipped_bit_is_a_miss(tmp_path: Path) -> None:
    tier = opened(tmp_path / "d", OLD)
    whole = fill(tier, range(3))
    tier.close()
    for name, used in (("headers", 166), ("contents", SIZE)):
        path = tmp_path / "d" / name
        intact, headers = path.read_bytes(), (tmp_path / "d" / "headers").read_bytes()
        for place in range(0, used, 3):
            broken = bytearray(intact)
            broken[place] ^= 1 << place % 8
            path.write_bytes(broken)
            tier = opened(tmp_path / "d", OLD)
            found = contents(tier)
            assert found.get(key(0)) is None, f"byte {place} of {name}"
            assert all(data in (None, whole[each]) for each, data in found.items())
            tier.close()
            (tmp_path / "d" / "headers").write_bytes(headers)
            path.write_bytes(intact)


def test_a_block_of_one_tenant_is_not_the_others() -> None:
    """Keys differ by master key, session and namespace: swapping any of them opens nothing."""
    keys, data = MasterKeys([OLD]), block(7, SIZE)
    one, two = (Header(key(1), namespace_tag(name), 1, SIZE) for name in (b"one", b"two"))
    seal = Encryption(keys, b"f")
    head, stored = seal.seal(one, data)
    head = head.ljust(HEADER_BYTES, b"\0")
    assert seal.parse(head) == one
    assert seal.open(head, one, stored) == data
    assert seal.open(head, two, stored) is None
    assert Encryption(keys, b"f").open(head, one, stored) == data, "another process"
    assert Encryption(keys, b"g").parse(head) is None, "another model"
    assert Encryption(MasterKeys([NEW]), b"f").open(head, one, stored) is None
    other_head, other = seal.seal(two, data)
    assert other != stored
    assert seal.open(other_head.ljust(HEADER_BYTES, b"\0"), two, stored) is None


def test_no_number_is_used_twice_with_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that AES-GCM is asked to encrypt, over sessions that end and one that rewrites the same blocks."""
    from octavo.tiers import encryption

    seen: list[tuple[bytes, bytes]] = []

    class Recording:
        def __init__(self, secret: bytes) -> None:
            self.secret = secret
            self.inner = original(secret)

        def encrypt(self, nonce: bytes, data: bytes, named: bytes | None) -> bytes:
            seen.append((self.secret, nonce))
            return self.inner.encrypt(nonce, data, named)

        def decrypt(self, nonce: bytes, data: bytes, named: bytes | None) -> bytes:
            return self.inner.decrypt(nonce, data, named)

    original = encryption.AESGCM
    monkeypatch.setattr(encryption, "AESGCM", Recording)
    for _ in range(3):
        tier = opened(tmp_path / "d", OLD)
        for first in (0, 6, 12):
            fill(tier, range(first, first + 6))
        tier.close()
    assert len(seen) == len(set(seen)) >= 3 * 2 * 12
    assert len({secret for secret, _ in seen}) == 3 * 3, "in each session one for headers and one for each tenant"


def test_a_wiped_tenant_is_gone_from_an_encrypted_directory(tmp_path: Path) -> None:
    tier = opened(tmp_path / "d", OLD)
    whole = fill(tier, range(6))
    before = (tmp_path / "d" / "contents").read_bytes()
    assert tier.wipe(b"tenant 1") == 3
    after = (tmp_path / "d" / "contents").read_bytes()
    assert sum(after[at : at + SIZE] == bytes(SIZE) for at in range(0, 6 * SIZE, SIZE)) == 3
    assert sum(after[at : at + SIZE] == before[at : at + SIZE] for at in range(0, 6 * SIZE, SIZE)) == 3
    assert contents(tier) == {key(number): whole[key(number)] for number in (0, 2, 4)}
    tier.close()


@pytest.mark.parametrize(
    "text", ["", "#\n", "00" * 31, "00" * 33, "zz" * 32, "ab" * 32 + "\n\nxy\n", "é" * 64, "0" * 70000]
)
def test_files_that_hold_no_keys_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(TierError, match="must hold one key or more, each a line of 64 hexadecimal digits"):
        MasterKeys.from_file(path)


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of November\n{NEW.hex()}  # now\n\n{OLD.hex()}\n")
    path.chmod(0o644)
    with pytest.raises(TierError, match="others may use it: chmod 600"):
        MasterKeys.from_file(path)
    path.chmod(0o640)
    assert MasterKeys.from_file(path).first == MasterKeys([NEW, OLD]).first != MasterKeys([OLD, NEW]).first
    with pytest.raises(TierError, match="cannot be read: No such file"):
        MasterKeys.from_file(tmp_path / "none")
    assert os.stat(path).st_size > 0
