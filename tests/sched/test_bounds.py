"""The arithmetic of admission: where it says that all can grow, all can."""

from __future__ import annotations

import random

import pytest
from workloads import WINDOWS

from octavo.kv import KVCacheManager
from octavo.sched import Request
from octavo.sched.bounds import room_needed


def grow(kv: KVCacheManager, request: Request) -> None:
    """One more token, computed and kept, in a step of its own."""
    assert kv.extend(request.id, 1), "no room, though it was said so"
    kv.take_ops()
    kv.commit(request.id, 1)
    kv.end_step()


def family(kv: KVCacheManager, rng: random.Random) -> list[Request]:
    """A few sequences in the middle of things, some of them forks cut back into a shared block; as many as fit."""
    living: list[Request] = []
    for seq in range(0, rng.randint(2, 12), 2):
        request = Request(seq, [rng.randint(0, 99) for _ in range(rng.randint(1, 20))], 100, n=2, children=(seq + 1,))
        if kv.blocks_needed(request.prompt_len) > kv.num_free:
            break
        kv.open(seq, request.tokens)
        while kv.committed(seq) < request.prompt_len:
            grow(kv, request)
        living.append(request)
        if rng.random() < 0.5:
            child = request.child(seq + 1)
            kv.fork(seq, child.id, child.tokens)
            kv.truncate(child.id, request.prompt_len - 1)
            living.append(child)
    return living


@pytest.mark.parametrize("windows", sorted(set(WINDOWS), key=str))
def test_where_there_is_room_all_can_grow(windows: tuple[int | None, ...]) -> None:
    tried = 0
    for seed in range(400):
        rng = random.Random(seed)
        kv = KVCacheManager(rng.randint(4, 40), rng.randint(1, 4), windows=windows)
        living, tokens = family(kv, rng), rng.randint(1, 12)
        if not living or room_needed(kv, living, tokens) > kv.num_free:
            continue
        tried += 1
        order = living * (tokens + 1)
        rng.shuffle(order)
        for request in order:
            if kv.reserved(request.id) < request.prompt_len + tokens:
                request.tokens.append(rng.randint(0, 99))
                grow(kv, request)
        kv.check()
    assert tried > 20


def test_nobody_grows_past_its_own_end() -> None:
    kv = KVCacheManager(4, 4)
    request = Request(0, [1] * 10, max_tokens=6)
    kv.open(0, request.tokens)
    assert room_needed(kv, [request], 1000) <= kv.num_free
    request.max_tokens = 7
    assert room_needed(kv, [request], 1000) > kv.num_free
    assert room_needed(kv, [request], 6) <= kv.num_free
