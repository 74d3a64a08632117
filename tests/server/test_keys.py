"""What the key file says beside the keys: whose they are, and how their requests are treated."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_harness import MODEL, InProcess, assert_refused

from octavo import EngineConfig
from octavo.errors import InvalidRequest
from octavo.options import Tenant
from octavo.server.keys import ApiKeys

Serve = Callable[..., InProcess]


def test_a_key_says_how_its_tenant_is_treated(tmp_path: Path) -> None:
    lines = [
        f"ann:{hashlib.sha256(b'1').hexdigest()} weight=2 kv_blocks=9 tokens_a_minute=600 quota=hard",
        f"ann:{hashlib.sha256(b'2').hexdigest()} priority=5",
        f"bob:{hashlib.sha256(b'3').hexdigest()}",
    ]
    (tmp_path / "keys").write_text("\n".join(lines))
    keys = ApiKeys.from_file(str(tmp_path / "keys"))
    first, second, third = (keys.caller(f"Bearer {key}") for key in "123")
    assert first.tenant == second.tenant == Tenant("ann", 2.0, 9, 600, hard=True)
    assert third.tenant == Tenant("bob")
    assert [each.best_priority for each in (first, second, third)] == [-100, 5, -100]


def test_keys_may_be_in_the_environment(tmp_path: Path) -> None:
    """The lines themselves, where a path would be."""
    lines = f"ann:{hashlib.sha256(b'1').hexdigest()} weight=2 ; bob:{hashlib.sha256(b'2').hexdigest()}"
    keys = ApiKeys.read(lines)
    assert keys.caller("Bearer 1").tenant == Tenant("ann", 2.0)
    assert keys.caller("Bearer 2").tenant == Tenant("bob")
    (tmp_path / "keys").write_text(lines.replace(";", "\n"))
    assert ApiKeys.read(str(tmp_path / "keys")).caller("Bearer 2").tenant == Tenant("bob")
    with pytest.raises(InvalidRequest, match="line 2 of the setting"):
        ApiKeys.read(lines + " colour=red")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        ApiKeys.read("ann:" + "0" * 63)


KEY = "ann:" + "0" * 64
BAD_SETTINGS = [
    *(
        KEY + " weight=x",
        KEY + " weight=0",
        KEY + " weight=nan",
        KEY + " wealth=1",
        KEY + " weight",
        KEY + " quota=much",
    ),
    *(KEY + " priority=101", KEY + " kv_blocks=0", KEY + " kv_blocks=1 kv_blocks=1"),
    f"{KEY} weight=2\nann:{'1' * 64} weight=3",
]


@pytest.mark.parametrize("text", BAD_SETTINGS)
def test_a_bad_setting_of_a_key_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(InvalidRequest, match="api_keys: line") as caught:
        ApiKeys.from_file(str(tmp_path / "keys"))
    assert "0000" not in str(caught.value)


def test_a_key_bounds_the_priority(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("\n".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()} priority=3" for name in ("ann",)))
    server = serve(keys=ApiKeys.from_file(str(path)), engine=EngineConfig(num_blocks=64, max_seqs=4, policy="priority"))

    def ask(**fields: Any) -> Any:
        body = {"model": MODEL, "prompt": "a", "max_tokens": 2, **fields}
        return server.call("POST", "/v1/completions", json=body, headers={"authorization": "Bearer ann"})

    assert ask().status_code == ask(priority=3).status_code == ask(priority=100).status_code == 200
    assert_refused(ask(priority=2), 400, param="priority", code="priority_not_allowed")
    for odd in (101, -101, 1.5, "1", True, 10**30):
        assert_refused(ask(priority=odd), 400, param="priority")


def test_a_deadline_that_cannot_be_met_is_refused_with_the_wait(serve: Serve) -> None:
    """Too many: the status for that, the wait, and when to try again."""
    server = serve()

    async def slow() -> None:
        pace = server.engine.built.engine._waiting_room.pace
        for average in (pace.prefill, pace.decode):
            average.value = 0.01  # tokens a second

    assert server.complete(deadline=30).status_code == 200
    server.do(slow())
    response = server.complete(deadline=30)
    assert_refused(response, 429, code="deadline")
    assert "predicted after" in response.json()["error"]["message"]
    assert 60 <= int(response.headers["retry-after"]) <= 3600
    assert server.complete().status_code == 200
    for odd in (0, -1, "5", True):
        assert_refused(server.complete(deadline=odd), 400, param="deadline")
    server.assert_idle()


def test_the_queue_is_bounded_in_tokens(serve: Serve) -> None:
    engine = EngineConfig(num_blocks=64, max_seqs=1, max_model_len=256)
    server = serve(engine=engine, max_queued_tokens=100)

    async def flood() -> list[Any]:
        body = {"prompt": "abcd" * 10, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        return await asyncio.gather(*(server._client.post("/v1/completions", json=body) for _ in range(40)))

    responses = server.do(flood())
    refused = [response for response in responses if response.status_code != 200]
    assert refused
    assert len(refused) < 40
    for response in refused:
        assert_refused(response, 429, code="queue_full")
        assert int(response.headers["retry-after"]) >= 1
    server.assert_idle()
