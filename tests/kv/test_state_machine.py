"""The first test of the repository: random verbs against a device that knows what every slot must hold.

Cases A03, A04, A05, A08, C04 and C05 of the list of known failures are all instances of what it searches for.
"""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from kv_machine import SETTINGS, Machine
from kv_model import Setting
from kv_storm import random_run

TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=150, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_storms(setting: Setting) -> None:
    for seed in range(6):
        random_run(setting, seed, 200)


class BigMachine(Machine):
    """The same with more examples."""


@pytest.mark.slow
class TestBig:
    """OCTAVO_KV_RUNS storms of 400 verbs a setting (100 unless said), and 2,000 Hypothesis runs."""

    runs: ClassVar[int] = int(os.environ.get("OCTAVO_KV_RUNS", "100"))

    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    def test_storms(self, setting: Setting) -> None:
        for seed in range(1000, 1000 + self.runs):
            random_run(setting, seed, 400)

    def test_machine(self) -> None:
        case = BigMachine.TestCase
        case.settings = settings(
            max_examples=2000, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        )
        case("runTest").runTest()
