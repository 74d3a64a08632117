"""The storms of the manager over real tiers, with transfers beside the steps and with disks that fail.

Cases C04 and C05: what was promised is there, what comes back is what went, and what is lost is computed again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kv_machine import SETTINGS
from kv_storm import random_run
from real_tiers import KINDS, real_tier

from octavo.errors import KVError
from octavo.tiers import disk
from octavo.tiers.seal import Checksums
from octavo.tiers.slots import SlotTable

TIERED = [setting for setting in SETTINGS if setting.tier is not None]


def run(kind: str, folder: Path, seeds: range, verbs: int) -> tuple[int, int]:
    """(blocks fetched, blocks lost) in storms over each setting that has a tier."""
    fetched = lost = 0
    for seed in seeds:
        for number, setting in enumerate(TIERED):
            plain = replace(setting, audit=seed % 2 == 0)
            place = folder / f"{seed}-{number}"
            place.mkdir()
            with real_tier(kind, plain, place, seed) as tier:
                random_run(plain, seed, verbs, tier)
                fetched, lost = fetched + tier.fetched, lost + tier.lost
    return fetched, lost


@pytest.mark.parametrize("kind", KINDS)
def test_storms_over_real_tiers(kind: str, tmp_path: Path) -> None:
    fetched, lost = run(kind, tmp_path, range(8), 300)
    assert fetched > 60
    assert (lost > 3) == (kind == "failing")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_storms_over_real_tiers(kind: str, tmp_path: Path) -> None:
    """OCTAVO_KV_RUNS storms of 400 verbs for each setting (100 unless said)."""
    run(kind, tmp_path, range(1000, 1000 + int(os.environ.get("OCTAVO_KV_RUNS", "100"))), 400)


def nothing(*_: Any) -> None:
    return None


def test_a_missing_checksum_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checksums, "open", lambda self, raw, header, stored: stored)
    with pytest.raises((AssertionError, KVError)):
        run("failing", tmp_path, range(20), 200)


def test_a_missing_staging_copy_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "stage", lambda data: data)
    with pytest.raises((AssertionError, KVError)):
        run("disk", tmp_path, range(20), 200)


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_a_broken_promise_is_noticed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlotTable, "pin", nothing)
    monkeypatch.setattr(SlotTable, "unpin", nothing)
    with pytest.raises((AssertionError, KVError)):
        run(kind, tmp_path, range(20), 200)
