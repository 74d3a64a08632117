"""What the server shows of the engine, to whom, and how it lets clients tend their cached prompts."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_harness import MODEL, USER, InProcess, assert_refused, strict

from octavo import EngineConfig
from octavo.engine.engine import Engine
from octavo.options import Tenant
from octavo.server import pool as pool_module
from octavo.server.errors import ApiError
from octavo.server.keys import ApiKeys
from octavo.server.known import KEPT, KnownRequests
from octavo.server.pins import MOST, Pin, Pins
from octavo.server.pool import ranges, runs

Serve = Callable[..., InProcess]
FOREVER = {"max_tokens": 200, "ignore_eos": True}


def key_file(folder: Path, *tenants: str, settings: str = "") -> ApiKeys:
    lines = [f"{name}:{hashlib.sha256(name.encode()).hexdigest()} {settings}" for name in tenants]
    (folder / "keys").write_text("\n".join(lines))
    return ApiKeys.from_file(str(folder / "keys"))


def as_tenant(name: str) -> dict[str, Any]:
    return {"headers": {"authorization": f"Bearer {name}"}}


def spread(column: list[Any]) -> list[Any]:
    """Runs, undone."""
    return [value for value, count in zip(column[::2], column[1::2], strict=True) for _ in range(count)]


def blocks_of(table: list[int]) -> list[int]:
    """Ranges, undone."""
    pairs = zip(table[::2], table[1::2], strict=True)
    return [first + (place if first >= 0 else 0) for first, count in pairs for place in range(count)]


class Held:
    """The engine stops between two steps while this is open; commands still run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        """steps: that it takes before."""
        self._left = steps
        self._go = threading.Event()
        self.reached = threading.Event()
        step, wait_s = Engine.step, Engine.wait_s

        def counted(engine: Engine) -> Any:
            self._left -= 1
            return step(engine)

        def held(engine: Engine) -> float:
            if self._left > 0 or self._go.is_set():
                return wait_s(engine)
            self.reached.set()
            return 60.0  # or until a command comes

        monkeypatch.setattr(Engine, "step", counted)
        monkeypatch.setattr(Engine, "wait_s", held)

    def open(self, server: InProcess) -> None:
        self._go.set()
        server.engine._thread.call(lambda engine: None)


@pytest.mark.parametrize(
    "values", [[], ["a"], ["a", "a", "b"], [-1, -1, 0, 1, 2], [5, 6, 9, 8, 7], [-1, 0], [0, 0], [3, -1, -1, 4]]
)
def test_columns_and_tables_come_back_whole(values: list[Any]) -> None:
    assert spread(runs(values)) == values
    if all(isinstance(value, int) for value in values):
        assert blocks_of(ranges(values)) == values
    assert (runs(["f"] * 10_000), ranges(range(10_000))) == (["f", 10_000], [0, 10_000])


def test_an_idle_pool(serve: Serve) -> None:
    told = strict(serve().get("/pool").content)
    assert (told["object"], told["model"], told["num_blocks"], told["block_size"]) == ("pool", MODEL, 64, 16)
    assert told["counts"] == {"free": 64, "cached": 0, "used": 0, "shared": 0, "pinned": 0}
    assert told["blocks"] == {"states": ["free", 64], "tables": [0, 64], "ages": [-1, 64], "tiers": [], "kept": []}
    assert (told["requests"], told["tiers"], told["next_s"]) == ([], [], 0.5)


def test_a_request_and_its_blocks_are_shown_and_explained(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, steps=3)
    server = serve()

    async def look() -> tuple[Any, Any, Any]:
        body = {"prompt": ["a" * 40, "b" * 20], "temperature": 0, **FOREVER, "n": 2}
        asking = asyncio.create_task(server._client.post("/v1/completions", json=body))
        await asyncio.to_thread(held.reached.wait, 5)
        pool = (await server._client.get("/pool")).json()
        ids = {request["id"] for request in pool["requests"]}
        told = (await server._client.get(f"/requests/{next(iter(ids))}/explain")).json()
        held.open(server)
        return pool, told, (await asking).json()

    pool, told, answer = server.do(look())
    assert {request["id"] for request in pool["requests"]} == {answer["id"]}
    first, second = pool["requests"]
    assert (first["state"], first["max_tokens"], len(first["answers"])) == ("running", 400, 2)
    assert first["prompt_tokens"] + second["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    used = {b for r in pool["requests"] for a in r["answers"] for table in a["tables"] for b in blocks_of(table)}
    states = spread(pool["blocks"]["states"])
    assert {block for block, state in enumerate(states) if state in ("used", "shared")} == used
    assert pool["counts"]["used"] + pool["counts"]["shared"] == len(used)
    assert max(spread(pool["blocks"]["tables"])) == 2, "the answers share their prompt's full blocks"
    assert (told["object"], told["id"], len(told["prompts"])) == ("explanation", answer["id"], 2)
    assert told["prompts"][0]["state"] == "running"
    assert told["prompts"][0]["held"][0]["shared"] == [{"request": answer["id"], "blocks": 2}]
    assert f"with {answer['id']}" in told["prompts"][0]["text"]
    after = server.get(f"/requests/{answer['id']}/explain").json()
    assert [prompt["state"] for prompt in after["prompts"]] == ["ended", "ended"]


def test_who_gave_way_is_told_how(serve: Serve) -> None:
    server = serve(engine=EngineConfig(num_blocks=16, block_size=4, max_model_len=64, max_seqs=2))

    async def together() -> list[Any]:
        body = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
        prompts = ("a" * 16, "b" * 16)
        post = server._client.post
        return await asyncio.gather(*(post("/v1/completions", json={"prompt": prompt, **body}) for prompt in prompts))

    ids = [response.json()["id"] for response in server.do(together())]
    told = [server.get(f"/requests/{id}/explain").json()["prompts"][0] for id in ids]
    preempted = [each for prompt in told for each in prompt["preemptions"]]
    assert preempted
    assert all((each["reason"], each["how"]) == ("gave_way", "recompute") for each in preempted)
    assert any("is computed again" in prompt["text"] for prompt in told)


def test_ids_of_every_endpoint_are_explained(served: InProcess) -> None:
    chat = served.chat(max_tokens=3)
    response = served.call("POST", "/v1/responses", json={"model": MODEL, "input": "hi"})
    stream = served.events(served.chat(stream=True))
    for id in (chat.json()["id"], response.json()["id"], stream.chunks[0]["id"]):
        told = strict(served.get(f"/requests/{id}/explain").content)
        assert told["prompts"][0]["text"].startswith(f"{id}: ended")
    assert_refused(served.get("/requests/chatcmpl-none/explain"), 404, code="request_not_found")


def test_a_tenant_sees_its_own_alone(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of another key are not listed nor explained, their blocks anonymous, their prompts unknown."""
    held = Held(monkeypatch, steps=2)
    server = serve(
        keys=key_file(tmp_path, "ann", "bob"), engine=EngineConfig(num_blocks=64, max_seqs=1, max_batched_tokens=64)
    )
    for path in ("/pool", "/requests/x/explain"):
        assert_refused(server.get(path), 401)

    async def look() -> tuple[Any, Any, Any, Any]:
        post, get = server._client.post, server._client.get
        body = {"prompt": "secret" * 8, "temperature": 0, "max_tokens": 3}
        anns = asyncio.create_task(post("/v1/completions", json=body, **as_tenant("ann")))
        await asyncio.to_thread(held.reached.wait, 5)
        bobs = asyncio.create_task(post("/v1/completions", json=body, **as_tenant("bob")))
        seen: Any = {"requests": ()}
        while not seen["requests"]:
            seen = (await get("/pool", **as_tenant("bob"))).json()
        explained = await get(f"/requests/{seen['requests'][0]['id']}/explain", **as_tenant("bob"))
        held.open(server)
        return seen, explained.json(), (await anns).json(), (await bobs).json()

    seen, explained, anns, bobs = server.do(look())
    assert [request["id"] for request in seen["requests"]] == [bobs["id"]]
    assert (seen["requests"][0]["state"], seen["requests"][0]["answers"][0]["tables"]) == ("waiting", [])
    assert seen["counts"]["used"] > 0, "that somebody uses blocks is no secret"
    assert anns["id"] not in str(seen) + str(explained)
    assert "ann" not in str(seen) + str(explained)
    missed = explained["prompts"][0]["missed"]
    assert missed is None or missed["reason"] != "other_namespace"
    assert all(wait["behind"] is None for wait in explained["prompts"][0]["waits"])
    assert_refused(server.get(f"/requests/{anns['id']}/explain", **as_tenant("bob")), 404, code="request_not_found")
    assert server.get(f"/requests/{anns['id']}/explain", **as_tenant("ann")).status_code == 200


def test_many_lookers_get_one_picture(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, the engine is looked at no more often than its time allows."""
    taken: list[float] = []
    picture, cost = Engine.picture, 0.02
    monkeypatch.setattr(pool_module, "LEAST_S", 0.0)

    def counted(engine: Engine) -> Any:
        taken.append(cost)
        made = picture(engine)
        return type(made)(made.now, made.pool, made.tiers, made.requests, made.stats, cost)

    monkeypatch.setattr(Engine, "picture", counted)
    server = serve()

    async def look() -> tuple[list[httpx.Response], float]:
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(server._client.get("/pool") for _ in range(200)))
        return answers, asyncio.get_running_loop().time() - began

    answers, seconds = server.do(look())
    assert {answer.status_code for answer in answers} == {200}
    assert len(taken) <= 1 + seconds * pool_module.SHARE / cost
    assert answers[0].json()["next_s"] >= cost / pool_module.SHARE


def test_pins_keep_a_prompt_and_end(serve: Serve) -> None:
    server = serve()
    pin = server.call("POST", "/pins", json={"prompt": "abcd" * 10, "ttl_s": 60}).json()
    assert (pin["object"], pin["pinned_tokens"]) == ("pin", 32)
    server.complete("abcd" * 10, max_tokens=1)
    assert server.engine.built.engine.stats().blocks_pinned == 2
    by_ids = server.call("POST", "/tokenize", json={"prompt": "abcd" * 10}).json()["tokens"]
    same = server.call("POST", "/pins", json={"prompt": by_ids, "ttl_s": 1.5}).json()
    chat = server.call("POST", "/pins", json={"messages": USER * 10, "ttl_s": 1.5}).json()
    beginning = {"messages": USER * 10, "add_generation_prompt": False}
    assert chat["tokens"] == server.call("POST", "/tokenize", json=beginning).json()["count"]
    assert same["pinned_tokens"] == 32
    assert chat["tokens"] > 32
    for id in (pin["id"], same["id"]):
        assert server.call("DELETE", f"/pins/{id}").json() == {"id": id, "object": "pin", "deleted": True}
        assert_refused(server.call("DELETE", f"/pins/{id}"), 404, code="pin_not_found")
    assert server.engine.built.engine.stats().blocks_pinned == 0


BAD_PINS: list[tuple[dict[str, Any], str]] = [
    ({}, "ttl_s"),
    ({"prompt": "a" * 40}, "ttl_s"),
    *(({"prompt": "a" * 40, "ttl_s": ttl}, "ttl_s") for ttl in (0, 0.9, -1, True, "9", 86_401, 1e300)),
    ({"ttl_s": 9}, "prompt"),
    *(({"prompt": prompt, "ttl_s": 9}, "prompt") for prompt in ("", "a", 5, [1.5] * 40, [10**30] * 40, ["a"] * 40)),
    ({"prompt": "abcd" * 60, "ttl_s": 9, "cache_salt": ""}, "cache_salt"),
]


@pytest.mark.parametrize(("body", "param"), BAD_PINS)
def test_pins_that_cannot_be(served: InProcess, body: dict[str, Any], param: str) -> None:
    assert_refused(served.call("POST", "/pins", json=body), 400, param=param)
    served.assert_alive()


def test_no_more_is_pinned_than_the_pool_may(serve: Serve) -> None:
    server = serve(engine=EngineConfig(num_blocks=8, max_seqs=2))
    assert_refused(server.call("POST", "/pins", json={"prompt": "abcd" * 20, "ttl_s": 9}), 400, code="pin_refused")


def test_a_tenant_tends_its_own_cache(serve: Serve, tmp_path: Path) -> None:
    """Pins and wiping reach the key's namespaces alone, and its salts apart."""
    server = serve(keys=key_file(tmp_path, "ann", "bob"))
    prompt = "abcd" * 10

    def ask(tenant: str, **fields: Any) -> int:
        body = {"prompt": prompt, "max_tokens": 1, **fields}
        usage = server.call("POST", "/v1/completions", json=body, **as_tenant(tenant)).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    def tend(tenant: str, method: str, path: str, **body: Any) -> httpx.Response:
        return server.call(method, path, **({"json": body} if method == "POST" else {}), **as_tenant(tenant))

    assert_refused(server.call("POST", "/cache/wipe", json={}), 401)
    pin = tend("ann", "POST", "/pins", prompt=prompt, ttl_s=60).json()["id"]
    assert_refused(tend("bob", "DELETE", f"/pins/{pin}"), 404, code="pin_not_found")
    assert [ask("ann"), ask("bob"), ask("ann", cache_salt="s")] == [0, 0, 0]
    assert [ask("ann"), ask("bob"), ask("ann", cache_salt="s")] == [32, 32, 32]
    assert tend("bob", "POST", "/cache/wipe").json() == {"object": "cache.wipe", "blocks": 2}
    assert [ask("ann"), ask("bob")] == [32, 0]
    assert tend("ann", "POST", "/cache/wipe", cache_salt="s").json()["blocks"] == 2
    assert [ask("ann"), ask("ann", cache_salt="s")] == [32, 0]
    assert tend("ann", "DELETE", f"/pins/{pin}").status_code == 200


def test_a_quota_bounds_pins_too(serve: Serve, tmp_path: Path) -> None:
    server = serve(keys=key_file(tmp_path, "ann", settings="kv_blocks=3"))
    body = {"prompt": "abcd" * 10, "ttl_s": 60}
    assert server.call("POST", "/pins", json=body, **as_tenant("ann")).status_code == 200
    assert_refused(server.call("POST", "/pins", json=body, **as_tenant("ann")), 400, code="quota_too_small")


def test_pins_are_bounded_and_forgotten() -> None:
    now = [0.0]
    pins, ann = Pins(lambda: now[0]), Tenant("ann")
    for number in range(MOST):
        pins.check(ann, 1, life=0)
        pins.add(Pin(number, 0, "ann", 1, 10.0))
    with pytest.raises(ApiError, match="wait 10 s") as caught:
        pins.check(ann, 1, life=0)
    assert caught.value.failure.status == 429
    pins.check(Tenant("bob"), 1, life=0)
    now[0] = 10.0
    pins.check(ann, 1, life=0)
    assert not pins._pins


def test_a_fresh_engine_has_no_pins_of_the_one_before() -> None:
    """Its numbers begin anew: an id of before must not end somebody's pin of now."""
    pins, ann = Pins(lambda: 0.0), Tenant("ann")
    id = pins.add(Pin(0, 0, "ann", 1, 10.0))
    assert pins.take(id, ann, life=1) is None
    assert pins.take(pins.add(Pin(0, 1, "ann", 1, 10.0)), ann, life=1) is not None


def test_known_requests_are_bounded() -> None:
    known = KnownRequests()
    for number in range(KEPT + 5):
        known.note(f"id{number}", "ann", (2 * number, 2 * number + 1))
    assert len(known._by_id) == KEPT
    assert len(known._by_request) == 2 * KEPT
    assert known.requests("id4", "ann") is None
    assert known.requests("id5", "ann") == (10, 11)
    assert known.requests("id5", "bob") is None
    assert (known.id_of(10, "ann"), known.id_of(10, "bob"), known.id_of(0, "ann")) == ("id5", None, None)


@pytest.mark.parametrize(("method", "path"), [("POST", "/pins"), ("DELETE", "/pins/x"), ("POST", "/cache/wipe")])
def test_pages_of_other_sites_may_not_tend(served: InProcess, method: str, path: str) -> None:
    for site in ("cross-site", "same-site"):
        assert_refused(served.call(method, path, headers={"sec-fetch-site": site}), 403, code="cross_site")


def test_a_look_at_an_engine_that_is_gone(serve: Serve) -> None:
    server = serve()
    server.do(server.engine.stop())
    assert_refused(server.get("/pool"), 503, code="unavailable")
    assert_refused(server.call("POST", "/cache/wipe", json={}), 503, code="unavailable")


def test_a_looker_that_leaves_is_no_trouble(serve: Serve) -> None:
    """One that waits for a picture and goes does not keep others from theirs."""
    server = serve()

    async def look() -> int:
        first = asyncio.create_task(server._client.get("/pool"))
        await asyncio.sleep(0)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        return (await server._client.get("/pool")).status_code

    assert server.do(look()) == 200
