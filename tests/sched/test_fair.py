"""Shares, quotas and borrowing between tenants, by number."""

from __future__ import annotations

import pytest
from fake_engine import Engine, Job, Shape

from octavo.errors import InvalidRequest
from octavo.options import Tenant
from octavo.sched import Request
from octavo.sched.policies.fair import MANY_TENANTS, OUTPUT_COST, Fair

A, B = Tenant("a"), Tenant("b")


def prompt(length: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + length))


def fair(**shape: int) -> Engine:
    return Engine(Shape(policy="fair", **shape), check_every=20)


def add(engine: Engine, tenant: Tenant, count: int, *, length: int = 6, new: int = 6) -> list[int]:
    first = 100 * len(engine.requests)
    return [engine.add(Job(prompt(length, first + 100 * at), max_tokens=new, tenant=tenant))[0] for at in range(count)]


def order_of_starts(engine: Engine, steps: int = 10_000) -> list[int]:
    starts: list[int] = []
    for _ in range(steps):
        if not engine.scheduler.has_work:
            break
        engine.step()
        starts += [row.seq for row in engine.steps[-1].rows if row.seq not in starts]
    return starts


def test_who_comes_late_does_not_wait_behind_a_flood() -> None:
    engine = fair(max_seqs=2)
    flood = add(engine, A, 40)
    for _ in range(20):
        engine.step()
    late = add(engine, B, 3)
    starts = order_of_starts(engine)
    assert [seq for seq in starts if seq in late] == late
    assert starts.index(late[0]) <= 2, "the two that ran, and then it"
    assert starts.index(late[2]) < starts.index(flood[15])
    engine.check_idle()


@pytest.mark.parametrize("weight", [1, 2, 5])
def test_tokens_are_shared_by_weight(weight: int) -> None:
    """Requests of one tenant are four times as long, so that counting requests would not do."""
    engine = fair(max_seqs=3, max_model_len=100, num_blocks=200)
    heavy = Tenant("heavy", weight=float(weight))
    add(engine, B, 200, length=4, new=8)
    add(engine, heavy, 80, length=16, new=32)
    for _ in range(350):
        engine.step()
    cost = {"b": 0.0, "heavy": 0.0}
    for seq, request in engine.requests.items():
        made = len(engine.emitted.get(seq, ()))
        cost[request.tenant.name] += OUTPUT_COST * made + request.prompt_len * (made > 0)
    waiting = {request.tenant.name for request in engine.requests.values() if request.cached_tokens is None}
    assert waiting == {"b", "heavy"}, "both have work all the time"
    batch = 3 * (16 + OUTPUT_COST * 32)
    assert abs(cost["heavy"] / weight - cost["b"]) <= batch


def test_idle_time_is_no_credit() -> None:
    """A tenant that did nothing for long gets its half from then on, not all."""
    engine = fair(max_seqs=1)
    add(engine, A, 60)
    for _ in range(200):
        engine.step()
    back = add(engine, B, 20)
    starts = order_of_starts(engine)[1:]
    turns = [seq in back for seq in starts[:20]]
    assert sum(turns) in (9, 10, 11)
    assert engine.scheduler.stats().preemptions == 0


def test_a_hard_quota_of_blocks_holds_and_the_rest_is_for_others() -> None:
    quota = Tenant("q", kv_blocks=6, hard=True)
    engine = fair(max_seqs=8, num_blocks=64, budget=64)
    limited = add(engine, quota, 6)  # three blocks each: two at a time
    free = add(engine, A, 3)
    engine.step()
    running = {seq for seq, request in engine.requests.items() if request.slot is not None}
    assert running == {*limited[:2], *free}
    engine.run()
    engine.check_idle()


def test_what_a_hard_quota_can_never_hold_is_refused() -> None:
    quota = Tenant("q", kv_blocks=3, hard=True)
    engine = fair()
    with pytest.raises(InvalidRequest, match="quota is 3") as caught:
        engine.add(Job(prompt(8), max_tokens=5, tenant=quota))
    assert caught.value.code == "quota_too_small"
    (seq,) = engine.add(Job(prompt(8), max_tokens=None, tenant=quota))
    assert engine.requests[seq].total == 12, "without max_tokens it may take what the quota leaves"
    (soft,) = engine.add(Job(prompt(8), max_tokens=5, tenant=Tenant("s", kv_blocks=3)))
    engine.run()
    assert engine.outcomes[soft].reason == "length"


def test_a_borrower_gives_back_first_and_keeps_one() -> None:
    """It takes all slots while nobody else wants them; then all but one of its own go to those within their share."""
    borrower = Tenant("s", kv_blocks=3)
    engine = fair(max_seqs=4, max_model_len=60, num_blocks=200)
    lent = add(engine, borrower, 4, new=40)
    for _ in range(5):
        engine.step()
    assert engine.scheduler.running == 4, "idle capacity is lent"
    own = add(engine, A, 3, new=10)
    for _ in range(5):
        engine.step()
    running = {seq for seq, request in engine.requests.items() if request.slot is not None}
    assert running == {lent[0], *own}
    engine.run()
    engine.check_idle()
    assert all(engine.outcomes[seq].preemptions == 0 for seq in own)


def test_a_hard_quota_of_tokens_bounds_the_rate() -> None:
    """Time is steps, in seconds. What is beyond the quota waits, and says how long; nothing runs in the meantime."""
    quota = Tenant("q", tokens_a_minute=120, hard=True)
    engine = fair(max_seqs=2, max_model_len=60)
    add(engine, quota, 40)
    owed, idle = 2 * (6 + 6), 0
    while engine.scheduler.has_work:
        now = float(len(engine.steps))
        held = engine.scheduler.wait_s(now)
        engine.step()
        assert (held > 0) == (not engine.steps[-1].rows)
        idle += held > 0
        made = sum(row.count for step in engine.steps for row in step.rows)
        assert made <= 120 * (1 + now / 60) + owed
    assert idle > 5
    engine.check_idle()


def test_tokens_beyond_a_soft_quota_give_way() -> None:
    spender = Tenant("s", tokens_a_minute=30)
    engine = fair(max_seqs=2, max_model_len=100, num_blocks=200)
    spent = add(engine, spender, 6, new=12)
    for _ in range(18):
        engine.step()
    assert {seq for seq, request in engine.requests.items() if request.slot is not None} == set(spent[2:4])
    own = add(engine, A, 4, new=10)
    starts = order_of_starts(engine)
    assert set(own[:2]) <= set(starts[:3]), "one gives way a step"
    engine.check_idle()
    assert all(engine.outcomes[seq].preemptions for seq in spent[2:4])
    assert not any(engine.outcomes[seq].preemptions for seq in own)


def test_children_follow_their_parent_at_once() -> None:
    """And share its prompt, though another tenant's turn would be next."""
    engine = fair(max_seqs=8)
    family = engine.add(Job(prompt(10), max_tokens=4, n=3, tenant=A))
    add(engine, B, 5)
    engine.run()
    engine.check_idle()
    first = {
        seq: number for number, step in reversed(list(enumerate(engine.steps))) for seq in (r.seq for r in step.rows)
    }
    assert first[family[1]] == first[family[2]] == first[family[0]] + 1
    assert engine.kv.stats().copies > 0


def test_those_ahead_are_who_would_come_first() -> None:
    engine = fair(max_seqs=1)
    flood, few = add(engine, A, 20), add(engine, B, 2)
    engine.step()
    new = Request(999, [1, 2], tenant=B)
    ahead = {each.id for each in engine.policy.ahead(new)}
    assert set(few) <= ahead
    assert len(ahead & set(flood)) == 3, "one turn of the other for each of its own"


def test_tenants_that_are_gone_are_forgotten() -> None:
    engine = fair(max_seqs=4)
    many = 2 * MANY_TENANTS
    for at in range(many):
        engine.add(Job(prompt(2), max_tokens=1, tenant=Tenant(f"t{at}")))
        engine.step()
    engine.run()
    assert isinstance(engine.policy, Fair)
    assert sum(engine.policy.account(f"t{at}") is not None for at in range(many)) <= MANY_TENANTS


def test_beams_of_a_search_that_borrows_do_not_give_way_to_one_another() -> None:
    """They all come in as the first one did, though its search is counted already."""
    engine = fair(max_seqs=4, num_blocks=40)
    tenant = Tenant("b", kv_blocks=4)
    add(engine, tenant, 1, new=30)
    seqs = engine.add(Job(prompt(6, 900), max_tokens=8, n=3, beams=True, tenant=tenant))
    for _ in range(4):
        engine.step()
    assert [engine.requests[seq].rank[0] for seq in seqs] == [1.0] * 3
    assert not any(engine.requests[seq].preemptions for seq in seqs)
    engine.run()
    engine.check_idle()
