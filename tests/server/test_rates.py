"""Rate limits of keys: the bucket against a model in fractions, and what clients see of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_harness import MODEL, InProcess, assert_refused

from octavo import SamplingParams
from octavo.engine.streams import Stream
from octavo.engine.submission import Submission
from octavo.errors import EngineUnavailable, InvalidRequest
from octavo.server.errors import ApiError
from octavo.server.keys import ApiKeys
from octavo.server.rates import MINUTE, Bucket, KeyLimits, Rate, duration

Serve = Callable[..., InProcess]
rates = st.builds(Rate, st.integers(1, 10**6), st.integers(1, 10**5))
moves = st.lists(st.tuples(st.integers(0, 3 * MINUTE), st.integers(-50, 2 * 10**5), st.booleans()), max_size=30)


@given(rates, moves)
def test_a_bucket_is_exact(rate: Rate, moves: list[tuple[int, int, bool]]) -> None:
    """Against a level in fractions of a token: what is there, who is let in, and a wait that is honest to the
    nanosecond."""
    now, level, bucket = 7, Fraction(rate.burst), Bucket(rate, 7)
    for pause, count, force in moves:
        now += pause
        level = min(Fraction(rate.burst), level + Fraction(pause * rate.per_minute, MINUTE))
        assert bucket.level(now) == level // 1
        needed = min(count, rate.burst)
        wait = bucket.wait(count, now)
        assert (wait == 0) == (level >= needed)
        if wait:
            assert level + Fraction(wait * rate.per_minute, MINUTE) >= needed
            assert level + Fraction((wait - 1) * rate.per_minute, MINUTE) < needed
        full = bucket.until_full(now)
        assert level + Fraction(full * rate.per_minute, MINUTE) >= rate.burst
        assert not full or level + Fraction((full - 1) * rate.per_minute, MINUTE) < rate.burst
        if force or not wait:
            bucket.charge(count, now)
            level = min(Fraction(rate.burst), level - count)
    assert bucket.level(now) <= rate.burst


@given(rates, st.lists(st.integers(0, MINUTE // 10), min_size=1, max_size=60))
def test_no_window_gets_more_than_burst_and_rate(rate: Rate, pauses: list[int]) -> None:
    bucket, now, taken = Bucket(rate, 0), 0, 0
    for pause in pauses:
        now += pause
        while taken < 1000 and not bucket.wait(1, now):
            bucket.charge(1, now)
            taken += 1
    assert taken <= rate.burst + Fraction(now * rate.per_minute, MINUTE)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        *((0, "0ms"), (1, "1ms"), (120_000_000, "120ms"), (10**9, "1s"), (3_500_000_000, "3.5s")),
        *((59_999_000_001, "1m0s"), (MINUTE, "1m0s"), (6 * MINUTE, "6m0s"), (121 * MINUTE + 10**9, "2h1m1s")),
    ],
)
def test_durations(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


def keys_of(path: Path, settings: str) -> ApiKeys:
    lines = [f"ann:{hashlib.sha256(b'k').hexdigest()} {settings}", f"bob:{hashlib.sha256(b'other').hexdigest()}"]
    (path / "keys").write_text("\n".join(lines))
    return ApiKeys.from_file(str(path / "keys"))


@pytest.mark.parametrize(
    "settings", ["rpm=0", "rpm=x", "rpm_burst=3", "tpm=5 tpm_burst=0", f"tpm={2**50}", "rpm=1 rpm=1"]
)
def test_a_bad_limit_is_told(tmp_path: Path, settings: str) -> None:
    with pytest.raises(InvalidRequest, match="api_keys: line 1"):
        keys_of(tmp_path, settings)


def asking(server: InProcess, key: str = "k") -> Callable[..., Any]:
    def ask(path: str = "/v1/completions", **fields: Any) -> Any:
        body = {"model": MODEL, "prompt": "a", "max_tokens": 4, "temperature": 0, **fields}
        return server.call("POST", path, json=body, headers={"authorization": f"Bearer {key}"})

    return ask


def test_requests_a_minute(serve: Serve, tmp_path: Path) -> None:
    """A burst, then 429 with an honest Retry-After; other keys are not concerned; nothing was computed for it."""
    server = serve(keys=keys_of(tmp_path, "rpm=1 rpm_burst=2"))
    ask = asking(server)
    left = [ask().headers["x-ratelimit-remaining-requests"], ask(stream=True).headers["x-ratelimit-remaining-requests"]]
    assert left == ["1", "0"]
    refused = ask()
    assert_refused(refused, 429, code="rate_limit_exceeded")
    assert refused.json()["error"]["type"] == "requests"
    assert 45 <= int(refused.headers["retry-after"]) <= 60
    assert int(refused.headers["retry-after-ms"]) <= 60_000
    assert refused.headers["x-ratelimit-limit-requests"] == "1"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert "x-ratelimit-limit-tokens" not in refused.headers
    other = asking(server, "other")
    assert "x-ratelimit-limit-requests" not in other().headers
    assert server.call("GET", "/v1/models", headers={"authorization": "Bearer k"}).status_code == 200
    server.assert_idle()


def test_tokens_a_minute(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are paid for when they come, answers when they end, also those that nobody waited for; what the engine
    refuses costs nothing."""
    server = serve(keys=keys_of(tmp_path, "tpm=1 tpm_burst=40"))
    ask = asking(server)
    left = "x-ratelimit-remaining-tokens"
    first = ask("/v1/completions", prompt="abcdabcd", max_tokens=20)
    assert first.headers[left] in ("12", "13")  # 13 on a machine so busy that a minute went by
    bad = ask(prompt="abcdabcd", max_tokens=250)
    assert bad.status_code == 400
    assert bad.headers[left] in ("12", "13")

    async def gone(*_: Submission) -> Stream:
        raise EngineUnavailable("the engine is stopping")

    with monkeypatch.context() as patch:
        patch.setattr(server.engine, "submit", gone)
        unavailable = ask(prompt="abcdabcd")
    assert unavailable.status_code == 503
    assert unavailable.headers[left] in ("12", "13")
    assert ask(prompt="abcd", max_tokens=40, ignore_eos=True).headers[left] == "0"
    refused = ask()
    assert_refused(refused, 429, code="rate_limit_exceeded")
    assert refused.json()["error"]["type"] == "tokens"
    assert 29 <= int(refused.headers["retry-after"]) / 60 <= 33  # it is some 32 tokens in debt
    server.assert_idle()


def test_an_answer_that_nobody_reads_any_more_is_paid_for(serve: Serve) -> None:
    server = serve()
    paid: list[int] = []

    async def leave() -> None:
        params = SamplingParams(max_tokens=200, ignore_eos=True)
        asked = Submission("a", params, account=lambda output: paid.append(output.metrics.output_tokens))
        async with await server.engine.submit(asked) as stream:
            await stream.batch()
        async with asyncio.timeout(5):
            while not paid:
                await asyncio.sleep(0.001)

    server.do(leave())
    assert 1 <= paid[0] <= 200


def test_what_is_more_than_the_burst_needs_a_full_bucket() -> None:
    now = [0]
    limits = KeyLimits(tokens=Rate(60, 10), clock=lambda: now[0])
    limits.take_prompt(25)
    with pytest.raises(ApiError):
        limits.take_prompt(1)
    now[0] = MINUTE * 16 // 60
    limits.take_prompt(1)
    with pytest.raises(ApiError):
        limits.take_prompt(25)
    limits.charge(-1)
    now[0] += MINUTE * 10 // 60
    limits.take_prompt(25)
