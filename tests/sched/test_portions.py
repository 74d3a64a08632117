"""What each tenant may have of something bounded: nobody's flood takes what is another's."""

from __future__ import annotations

import random

import pytest

from octavo.options import Tenant
from octavo.sched.portions import Portions

A, B, C = Tenant("a"), Tenant("b"), Tenant("c", weight=2.0)


def fill(portions: Portions, tenant: Tenant, limit: int) -> int:
    """One after another, until it has too much; how many it has then."""
    while True:
        portions.add(tenant, 1)
        if portions.beyond(tenant, limit):
            portions.remove(tenant, 1)
            return portions.held(tenant)


def test_one_alone_may_have_all() -> None:
    portions = Portions()
    assert fill(portions, A, 12) == 12
    assert portions.portion(A, 12) == 12


def test_who_comes_after_a_flood_gets_its_portion() -> None:
    portions = Portions()
    fill(portions, A, 12)
    assert fill(portions, B, 12) == 6
    assert fill(portions, C, 12) == 6, "two of four shares"
    assert fill(portions, A, 12) == 12, "and nothing more for the first"
    portions.remove(A, 10)
    assert fill(portions, A, 12) == 3, "a quarter of it, until there is room for all"


def test_what_is_free_is_anybodys() -> None:
    portions = Portions()
    portions.add(B, 1)
    assert fill(portions, A, 12) == 11
    portions.remove(B, 1)
    assert fill(portions, A, 12) == 12
    assert portions.portion(B, 12) == 6


def test_everybody_may_have_one() -> None:
    portions = Portions()
    for number in range(40):
        assert fill(portions, Tenant(str(number)), 4) >= 1


@pytest.mark.parametrize("seed", range(20))
def test_there_is_at_most_a_harmonic_sum_of_the_limit(seed: int) -> None:
    rng, limit, portions = random.Random(seed), 60, Portions()
    tenants = [Tenant(str(number)) for number in range(5)]
    for _ in range(3000):
        tenant = rng.choice(tenants)
        if rng.random() < 0.4 and portions.held(tenant):
            portions.remove(tenant, rng.randint(1, portions.held(tenant)))
            continue
        amount = rng.randint(1, 9)
        portions.add(tenant, amount)
        if portions.beyond(tenant, limit):
            portions.remove(tenant, amount)
        assert portions.total == sum(map(portions.held, tenants))
        assert portions.total <= limit * sum(1 / n for n in range(1, 6))
