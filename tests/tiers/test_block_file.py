"""The format: a block is found whole or not at all, wherever a write stops and whichever bit flips."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from faulty_files import DyingFiles, Power, block, key

from octavo.tiers import DiskTier, Purpose
from octavo.tiers.block_file import BlockFile
from octavo.tiers.encryption import MasterKeys
from octavo.tiers.files import Files
from octavo.tiers.seal import FACTS, HEADER_BYTES, START, Header

SIZE = 96
PURPOSE = Purpose(b"\x01" * 32, SIZE, "test")
SECRET = Purpose(b"\x01" * 32, SIZE, "test", keys=MasterKeys([b"\x02" * 32]))
SLOTS = 3
BUDGET = 5 * 4096 + SLOTS * (SIZE + HEADER_BYTES)


def opened(path: Path, purpose: Purpose = PURPOSE, files: Files | None = None) -> DiskTier:
    return DiskTier(path, BUDGET, purpose, files=files)


def contents(tier: DiskTier) -> dict[bytes, bytes | None]:
    return {found: tier.finish(tier.begin(found)) for found in tier.keys()}  # noqa: SIM118 - no mapping


def filled(path: Path) -> dict[bytes, bytes]:
    tier = opened(path)
    whole = {key(number): block(number, SIZE) for number in range(SLOTS)}
    for name, data in whole.items():
        assert tier.put(name, b"n", data)
    tier.close()
    return whole


def write_all(tier: DiskTier, numbers: range) -> None:
    """Synchronously, through the tier's own book-keeping, so that a death lands in a known write."""
    for number in numbers:
        taken = tier._table.take(key(number), bytes(16))
        assert taken is not None
        tier._generation += 1
        header = Header(key(number), bytes(16), tier._generation, SIZE)
        tier._blocks.write(taken[0].slot, header, block(number, SIZE))


@pytest.mark.parametrize("purpose", [PURPOSE, SECRET], ids=["plain", "encrypted"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99, 1.0])
def test_killed_in_any_write_every_complete_block_is_found_and_nothing_else(
    tmp_path: Path, share: float, purpose: Purpose
) -> None:
    """Three writes a block, six blocks in three slots: every second one replaces another. Encrypted, no write leaves a
    byte of a block in the clear."""
    for last in range(3 * 6):
        folder = tmp_path / f"{last}"
        files = DyingFiles(last, share)
        tier = opened(folder, purpose, files)
        with pytest.raises(Power):
            write_all(tier, range(6))
        tier._directory.close()  # as the system does
        again = opened(folder, purpose)
        number, step = divmod(last, 3)  # number goes where number - 3 was
        expected = set(range(max(0, number - SLOTS), number))
        if step > 0 or share > 0:
            expected.discard(number - SLOTS)
        if step == 2 and share >= 0.97:  # all but padding
            expected.add(number)
        assert contents(again) == {key(each): block(each, SIZE) for each in expected}, (last, share)
        stored = (folder / "contents").read_bytes()
        assert purpose is PURPOSE or not any(block(each, 8) in stored for each in range(6))
        again.close()


def test_any_flipped_bit_is_a_miss_and_never_a_wrong_byte(tmp_path: Path) -> None:
    whole = filled(tmp_path / "d")
    for name in ("headers", "contents"):
        path = tmp_path / "d" / name
        raw = path.read_bytes()
        for place in range(0, len(raw), 5):
            broken = bytearray(raw)
            broken[place] ^= 1 << place % 8
            path.write_bytes(broken)
            tier = opened(tmp_path / "d")
            found = contents(tier)
            assert all(data in (None, whole[key]) for key, data in found.items())
            assert len(found) >= SLOTS - 1
            if name == "contents":
                assert list(found.values()).count(None) == tier.stats().corrupt == 1
                assert tier.drain()
            tier.close()
            path.write_bytes(raw)
            (tmp_path / "d" / "headers").write_bytes(raw if name == "headers" else _headers(tmp_path / "d", whole))


def _headers(folder: Path, whole: dict[bytes, bytes]) -> bytes:
    """Headers of all blocks again, after one was found corrupt and cleared."""
    other = folder.with_name("again")
    filled(other)
    return (other / "headers").read_bytes()


@pytest.mark.parametrize("name", ["headers", "contents"])
def test_truncated_files(tmp_path: Path, name: str) -> None:
    for left in (0, 1, HEADER_BYTES, HEADER_BYTES + 7, 2 * SIZE, 3 * SIZE - 1):
        folder = tmp_path / f"{left}"
        whole = filled(folder)
        os.truncate(folder / name, left)
        tier = opened(folder)
        found = contents(tier)
        used = START.size + FACTS.size + 4  # of a header; zeros follow
        kept = (left + HEADER_BYTES - used) // HEADER_BYTES if name == "headers" else left // SIZE
        assert sum(data is not None for data in found.values()) == kept
        assert all(data in (None, whole[key]) for key, data in found.items())
        tier.close()


def test_the_latest_of_two_writings_counts(tmp_path: Path) -> None:
    """A loss of power may keep an old header: both then name one key."""
    tier = opened(tmp_path / "d")
    for slot, (generation, number) in enumerate([(7, 1), (9, 2), (8, 3)]):
        tier._blocks.write(slot, Header(key(1), bytes(16), generation, SIZE), block(number, SIZE))
    tier.close()
    again = opened(tmp_path / "d")
    assert contents(again) == {key(1): block(2, SIZE)}
    again.close()
    assert (tmp_path / "d" / "headers").read_bytes().count(b"OCTAVOKV") == 1


def test_files_of_another_directory_hold_nothing(tmp_path: Path) -> None:
    """The fingerprint is part of every header and digest, not only of the description."""
    filled(tmp_path / "theirs")
    other = Purpose(b"\x02" * 32, SIZE, "other")
    opened(tmp_path / "ours", other).close()
    for name in ("headers", "contents"):
        (tmp_path / "ours" / name).write_bytes((tmp_path / "theirs" / name).read_bytes())
    tier = opened(tmp_path / "ours", other)
    assert contents(tier) == {}
    tier.close()


def test_another_instruction_set_finds_nothing_and_takes_over(tmp_path: Path) -> None:
    """Blocks of another variant are neither found nor a reason to refuse: they make room."""
    filled(tmp_path / "d")
    elsewhere = Purpose(PURPOSE.fingerprint, SIZE, "test", variant=b"avx512")
    tier = opened(tmp_path / "d", elsewhere)
    assert contents(tier) == {}
    assert tier.stats().capacity == SLOTS
    for number in range(SLOTS):
        assert tier.put(key(number), b"n", block(100 + number, SIZE))
    tier.close()
    again = opened(tmp_path / "d", elsewhere)
    assert contents(again) == {key(number): block(100 + number, SIZE) for number in range(SLOTS)}
    again.close()


def test_a_header_that_is_not_cleared_first_is_noticed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: killed while the content is written, the slot then still claims to hold the former block."""
    monkeypatch.setattr(BlockFile, "clear", lambda self, slot: None)
    tier = opened(tmp_path / "d", files=DyingFiles(2 * 3, 0.5))
    with pytest.raises(Power):
        write_all(tier, range(6))
    tier._directory.close()
    again = opened(tmp_path / "d")
    assert contents(again)[key(0)] is None
    again.close()
