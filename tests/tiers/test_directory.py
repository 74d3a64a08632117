"""Who may use a directory, what it may be of, and that all its files together stay under the budget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_files import block, key

from octavo.errors import TierError
from octavo.tiers import DiskTier, Purpose

SIZE = 4096
PURPOSE = Purpose(b"\x01" * 32, SIZE, "model A")
BUDGET = 1 << 20


def size_of(folder: Path) -> int:
    """What the directory takes, itself included, by length or by blocks, whichever is more."""
    stats = [path.stat() for path in [folder, *folder.rglob("*")]]
    return sum(max(stat.st_size, stat.st_blocks * 512) for stat in stats)


def fill(tier: DiskTier, count: int) -> None:
    for number in range(count):
        assert tier.put(key(number), b"", block(number, SIZE), deadline=float("inf"))
    assert tier.drain()


def test_the_budget_counts_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    tier = DiskTier(folder, BUDGET, PURPOSE)
    fill(tier, 2 * tier.stats().capacity)
    assert BUDGET * 0.9 < size_of(folder) <= BUDGET
    tier.close()
    (folder / "notes").write_bytes(bytes(BUDGET // 2))
    tier = DiskTier(folder, BUDGET, PURPOSE)
    assert size_of(folder) <= BUDGET
    tier.close()
    with pytest.raises(TierError, match=r"holds no block: give it \d+ or more"):
        DiskTier(folder, BUDGET // 2, PURPOSE)


def test_a_smaller_budget_keeps_what_fits_and_a_larger_one_all(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "d", BUDGET, PURPOSE)
    fill(tier, tier.stats().capacity)
    tier.close()
    tier = DiskTier(tmp_path / "d", BUDGET // 2, PURPOSE)
    kept, stats = set(tier.keys()), tier.stats()
    assert stats.used == stats.capacity == len(kept)
    tier.close()
    tier = DiskTier(tmp_path / "d", 2 * BUDGET, PURPOSE)
    assert set(tier.keys()) == kept
    assert tier.stats().capacity > 3 * stats.capacity
    tier.close()


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        tier = DiskTier(folder, BUDGET, PURPOSE)
    finally:
        os.umask(before)
    fill(tier, 1)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    tier.close()


def test_two_engines_cannot_share_a_directory(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "d", BUDGET, PURPOSE)
    with pytest.raises(TierError, match="in use by another engine"):
        DiskTier(tmp_path / "d", BUDGET, PURPOSE)
    source = (
        "import sys; from octavo.tiers import *; from octavo.errors import TierError\n"
        "try: DiskTier(sys.argv[1], 1 << 20, Purpose(b'1' * 32, 4096))\n"
        "except TierError as error: print(error)"
    )
    run = [sys.executable, "-c", source, str(tmp_path / "d")]
    assert "in use by another engine" in subprocess.run(run, capture_output=True, text=True, check=True).stdout
    fill(tier, 3)
    tier.close()
    DiskTier(tmp_path / "d", BUDGET, PURPOSE).close()


def test_a_directory_of_another_model_is_refused_and_kept(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "d", BUDGET, PURPOSE)
    fill(tier, 2)
    tier.close()
    for other in (Purpose(b"\x02" * 32, SIZE, "model B"), Purpose(PURPOSE.fingerprint, 2 * SIZE, "model B")):
        with pytest.raises(TierError, match=r"another model or KV format \(model A\) than this \(model B\)"):
            DiskTier(tmp_path / "d", BUDGET, other)
    tier = DiskTier(tmp_path / "d", BUDGET, PURPOSE)
    assert len(tier.keys()) == 2
    tier.close()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"octavo_disk_tier": 1}', "\xff"])
def test_a_description_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    DiskTier(tmp_path / "d", BUDGET, PURPOSE).close()
    (tmp_path / "d" / "tier.json").write_text(text, encoding="latin-1")
    with pytest.raises(TierError, match="not a disk tier of format 2"):
        DiskTier(tmp_path / "d", BUDGET, PURPOSE)


def test_somebody_elses_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("the only copy")
    with pytest.raises(TierError, match=r"is not a disk tier and holds thesis.txt"):
        DiskTier(tmp_path, BUDGET, PURPOSE)
    assert (tmp_path / "thesis.txt").read_text() == "the only copy"


def test_a_start_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "lock").touch()
    (tmp_path / "d" / "tier.json.new").write_text('{"octa')
    DiskTier(tmp_path / "d", BUDGET, PURPOSE).close()


@pytest.mark.parametrize("name", ["lock", "tier.json", "headers", "contents"])
def test_symbolic_links_are_not_followed(tmp_path: Path, name: str) -> None:
    DiskTier(tmp_path / "d", BUDGET, PURPOSE).close()
    target = tmp_path / "target"
    (tmp_path / "d" / name).rename(target)
    before = target.read_bytes()
    for link in (os.symlink, os.link):
        link(target, tmp_path / "d" / name)
        with pytest.raises(TierError):
            DiskTier(tmp_path / "d", BUDGET, PURPOSE)
        (tmp_path / "d" / name).unlink()
        assert target.read_bytes() == before


def test_the_directory_itself_is_no_link_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(TierError, match="the disk tier cannot use"):
            DiskTier(tmp_path / name, BUDGET, PURPOSE)
    assert list((tmp_path / "real").iterdir()) == []


def test_what_the_system_forbids_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, to whom nothing is forbidden: the system call says so instead."""

    def forbidden(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("octavo.tiers.directory.os.open", forbidden)
    with pytest.raises(TierError, match="Permission denied"):
        DiskTier(tmp_path / "d", BUDGET, PURPOSE)
