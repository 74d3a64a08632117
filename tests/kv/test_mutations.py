"""The state machine bites: with any one rule of octavo.kv removed, it fails. A survivor would be a hole in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kv_machine import SETTINGS, Machine, run_machine
from kv_model import Setting
from kv_mutations import MUTATIONS, one_byte_hash
from kv_storm import random_run

from octavo.errors import KVError
from octavo.kv.keys import BlockKeys

FAILURES = (AssertionError, KVError, KeyError, IndexError)
SEEN_BY_CHECK_ALONE = {"fork_keeps_the_fast_path"}  # the parent writes above all that its forks read: no slot is wrong


def storms(audit: bool) -> None:
    for seed in range(20):
        for setting in SETTINGS:
            random_run(replace(setting, audit=audit), seed, 300)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_storms_find_the_mutation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the device holds, without the help of check(), but for those that only check() can see."""
    MUTATIONS[name](monkeypatch)
    with pytest.raises(FAILURES):
        storms(audit=name in SEEN_BY_CHECK_ALONE)


class NarrowMachine(Machine):
    """Settings where little room and a tier make pins matter; check() does not help."""

    base = (Setting(7, 2, tier=5), Setting(9, 4, tier=4))
    audit = False


@pytest.mark.parametrize(
    "name",
    [
        "copy_source_is_not_pinned",
        "copy_target_is_not_pinned",
        "fetch_target_is_not_pinned",
        "published_at_allocation",
        "shared_blocks_are_not_copied",
        "lost_names_nobody",
    ],
)
def test_the_machine_finds_the_mutation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    with pytest.raises(FAILURES):
        run_machine(NarrowMachine, examples=2000, steps=60)  # it ends with the first that fails


def test_the_colliding_hash_alone_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case A11 (a): with two hash values in all, tokens are verified and nothing foreign is ever read."""
    monkeypatch.setattr(BlockKeys, "digest", one_byte_hash)
    for seed in range(10):
        for setting in SETTINGS:
            if setting.tier is None:
                random_run(replace(setting, colliding=True), seed, 150)
