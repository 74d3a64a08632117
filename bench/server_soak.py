"""A server at saturation for minutes, and what must never happen to it: python bench/server_soak.py [--minutes M].

Clients that read, leave in the middle, hardly read at all or ask for what is refused, of several tenants and
priorities, with n, log-probabilities, grammars and tools, on a pool too small for all of them. Ends with 1 on a status
or an end that was not asked for, on a greedy answer that is not what it was the first time, on a body that breaks its
grammar, on resident memory that grows after the first third, on blocks, connections or threads that are left, and on
an end that is not in order. Needs the extra `bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from soak_requests import DIGITS, Ask, Mix

from octavo.cli.bench.start import COMMAND
from octavo.cli.load.own_server import READY

TENANTS = {"gold": "weight=4", "silver": "", "bronze": "priority=5 tokens_a_minute=30000 kv_blocks=80 quota=hard"}
CLIENTS = 40
SETTINGS = {
    "OCTAVO_MAX_SEQS": "16",
    "OCTAVO_NUM_BLOCKS": "130",  # about half of what 16 sequences come to
    "OCTAVO_MAX_MODEL_LEN": "1024",
    "OCTAVO_MAX_BATCHED_TOKENS": "256",
    "OCTAVO_POLICY": "fair",
}
FLAGS = ("--stream-buffer", "64", "--max-body", "65536", "--max-queue", "256")
GROWTH_BYTES = 16 << 20  # of the highest resident memory after the first third over that of the first third
PATIENCE_S = 600.0  # of a client: one of the tenant that weighs least waits minutes on a machine with other work
IDLE_S = 15.0
SHOWN = 20  # complaints that are printed in full


@dataclass(slots=True)
class Findings:
    """What came of all requests."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    tokens: int = 0

    def complain(self, text: str) -> None:
        """Note one thing that must not happen."""
        self.complaints.append(text)
        if len(self.complaints) <= SHOWN:
            print("  NOT ASKED FOR:", text[:600], flush=True)


class Client:
    """One client of one tenant, which asks again as soon as it has its answer."""

    def __init__(self, port: int, key: str, number: int, seed: int, findings: Findings) -> None:
        self._port, self._key, self._findings = port, key, findings
        self._draw = random.Random(f"{seed}/{number}")
        self._mix = Mix(self._draw)

    async def run(self, until: float) -> None:
        """Until that time of the event loop's clock."""
        loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self._port}") as session:
            while loop.time() < until:
                ask = self._mix.ask()
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        end = await (self._read(session, ask) if ask.manner == "reads" else self._misbehave(ask))
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    end = type(error).__name__
                    self._findings.complain(f"{ask.kind}: {end}: {error}; {ask}")
                self._findings.counts[ask.kind, end] += 1

    def _headers(self, ask: Ask) -> dict[str, str]:
        return {"content-type": "application/json", "authorization": f"Bearer {self._key}"} | ask.headers

    async def _read(self, session: aiohttp.ClientSession, ask: Ask) -> str:
        async with session.request(ask.method, ask.path, data=ask.data, headers=self._headers(ask)) as response:
            body = await response.read()
        if response.status not in ask.statuses:
            self._findings.complain(f"{ask.kind}: status {response.status}: {body[:200]!r}; {ask}")
        elif response.status == 200:
            self._check(ask, body)
        elif set(json.loads(body)) != {"error"}:
            self._findings.complain(f"{ask.kind}: an error of another shape: {body[:200]!r}")
        return str(response.status)

    def _check(self, ask: Ask, body: bytes) -> None:
        """A whole answer: its end, its text where that is known, its form."""
        streamed = isinstance(ask.body, dict) and ask.body.get("stream")
        text, ended = _text_of_stream(body) if streamed else _text_of_whole(body)
        if not ended:
            self._findings.complain(f"{ask.kind}: the answer has no end: ...{body[-300:]!r}; {ask}")
        elif ask.same is not None:
            first = self._findings.answers.setdefault(ask.same, text)
            if text != first:
                self._findings.complain(f"{ask.same}: {text!r} was {first!r} the first time")
        elif ask.form == "digits" and re.fullmatch(DIGITS, text) is None:
            self._findings.complain(f"{ask.kind}: {text!r} is not {DIGITS}")
        elif ask.form == "json" and ended == "stop" and set(json.loads(text)) != {"city", "people"}:
            self._findings.complain(f"{ask.kind}: {text!r} is not of the schema")

    async def _misbehave(self, ask: Ask) -> str:
        """By a bare socket with little room, so that what is not read stays with the server."""
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(connection, ("127.0.0.1", self._port))
            data = ask.data
            headers = {"host": "soak", "content-length": str(len(data))} | self._headers(ask)
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            version = self._draw.choice(["1.0", "1.1"])
            await loop.sock_sendall(connection, f"POST {ask.path} HTTP/{version}\r\n{head}\r\n".encode() + data)
            if ask.manner == "leaves" and self._draw.random() < 0.3:
                await asyncio.sleep(self._draw.random() * 0.2)
                return "left early"
            status = await loop.sock_recv(connection, 12)
            if status and status[-3:] != b"200":
                self._findings.complain(f"{ask.kind}: {status!r}; {ask}")
            return await (self._leave(connection) if ask.manner == "leaves" else self._dawdle(connection))

    async def _leave(self, connection: socket.socket) -> str:
        loop, left = asyncio.get_running_loop(), self._draw.randint(0, 20)
        while left > 0 and await loop.sock_recv(connection, 1024):
            left -= 1
        return "left"

    async def _dawdle(self, connection: socket.socket) -> str:
        loop, ended = asyncio.get_running_loop(), False
        until = loop.time() + self._draw.uniform(5, 60)
        with contextlib.suppress(ConnectionError):
            while loop.time() < until:
                piece = await loop.sock_recv(connection, 2048)
                ended = ended or b"[DONE]" in piece
                if not piece:
                    return "read to the end" if ended else "cut off"
                await asyncio.sleep(0.5)
            return "left"
        return "cut off"


class Watched:
    """The server's process, from outside."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def metric(self, text: str, name: str) -> float:
        """A line of /metrics; not a number where it is missing: the engine is in its first long step."""
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return math.nan if found is None else float(found[1])

    async def metrics(self) -> str:
        """The page."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}/metrics") as response,
        ):
            return await response.text()

    def held(self) -> tuple[int, int]:
        """Open files and threads."""
        folder = Path(f"/proc/{self.process.pid}")
        return len(os.listdir(folder / "fd")), len(os.listdir(folder / "task"))

    def resident(self) -> int:
        """Bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10


async def soak(server: Watched, seconds: float, seed: int, findings: Findings) -> list[int]:
    """Load for that long; resident bytes at each hundredth of the time."""
    loop = asyncio.get_running_loop()
    began, keys = loop.time(), list(TENANTS)
    clients = [
        Client(server.port, keys[number % len(keys)], number, seed, findings).run(began + seconds)
        for number in range(CLIENTS)
    ]
    tasks = [asyncio.create_task(client) for client in clients]
    resident: list[int] = []
    while (passed := loop.time() - began) < seconds:
        await asyncio.sleep(max(seconds * (len(resident) + 1) / 100 - passed, 0.01))
        resident.append(server.resident())
        if len(resident) % 5 == 0:
            text = await server.metrics()
            names = ("requests_running", "requests_waiting", "kv_blocks_used", "preemptions_total")
            shown = ", ".join(f"{server.metric(text, f'octavo_{name}'):.0f} {name}" for name in names)
            done = sum(findings.counts.values())
            print(
                f"{loop.time() - began:6.0f} s  {resident[-1] >> 20} MiB  {done} requests  "
                f"{server.metric(text, 'octavo_generation_tokens_total'):.0f} tokens  {shown}  "
                f"{len(findings.complaints)} complaints",
                flush=True,
            )
    await asyncio.gather(*tasks)
    return resident


async def settle(server: Watched, before: tuple[int, int], findings: Findings) -> None:
    """After the load nothing may be left."""
    loop = asyncio.get_running_loop()
    until = loop.time() + IDLE_S
    while True:
        text = await server.metrics()
        names = ("octavo_requests_running", "octavo_requests_waiting", "octavo_kv_blocks_used")
        left = {name: value for name in names if (value := server.metric(text, name))}
        files, threads = server.held()
        if not left and files <= before[0] and threads <= before[1]:
            return
        if loop.time() > until:
            findings.complain(f"left after {IDLE_S:.0f} s: {left}, {files} files and {threads} threads of {before}")
            return
        await asyncio.sleep(0.2)


@contextlib.contextmanager
def running(model: str, folder: Path, findings: Findings) -> Iterator[Watched]:
    """A server with SETTINGS; its end, too, must be in order."""
    keys = folder / "keys"
    lines = [f"{name}:{hashlib.sha256(name.encode()).hexdigest()} {how}".strip() for name, how in TENANTS.items()]
    keys.write_text("\n".join(lines) + "\n")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "serve", model, "--port", "0", "--api-keys", str(keys), *FLAGS],
            env={**os.environ, **SETTINGS},
            stderr=log,
            text=True,
        )
    try:
        while (ready := READY.search((folder / "log").read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(f"the server did not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield Watched(process, int(ready[1].rpartition(":")[2]))
        process.send_signal(signal.SIGTERM)
        if (code := process.wait(40)) != 0:
            findings.complain(f"SIGTERM ended the server with {code}")
    finally:
        process.kill()
        process.wait()
    said = [line for line in (folder / "log").read_text().splitlines() if not line.startswith(("{", "octavo: "))]
    if said:
        findings.complain(f"the server said: {said[:10]}")


def main() -> int:
    """Run, report, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    findings = Findings()
    with TemporaryDirectory() as folder, running(asked.model, Path(folder), findings) as server:
        asyncio.run(soak(server, min(asked.minutes * 6, 10), asked.seed + 1, findings))  # what is made once
        time.sleep(1)
        before = server.held()
        resident = asyncio.run(soak(server, asked.minutes * 60, asked.seed, findings))
        asyncio.run(settle(server, before, findings))
    third = len(resident) // 3
    growth = max(resident[third:]) - max(resident[:third])
    if growth > GROWTH_BYTES:
        findings.complain(f"resident memory grew by {growth >> 20} MiB after the first third")
    for (kind, end), count in sorted(findings.counts.items()):
        print(f"{kind:10} {end:16} {count:7}")
    print(
        "resident MiB:", *(f"{each >> 20}" for each in resident[4::5]), f"; after the first third {growth >> 10:+} KiB"
    )
    print(f"{len(findings.answers)} greedy questions; {len(findings.complaints)} things that were not asked for")
    return int(bool(findings.complaints))


def _text_of_whole(body: bytes) -> tuple[str, str]:
    """The first choice's text, and how it ended."""
    choice = json.loads(body)["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"] or "", choice["finish_reason"]


def _text_of_stream(body: bytes) -> tuple[str, str]:
    """The same, of events; no end where one of the choices has none."""
    events = body.removesuffix(b"\n\n").split(b"\n\n")
    if events.pop() != b"data: [DONE]":
        return "", ""
    text, ends, seen = "", {}, set()
    for event in events:
        for choice in json.loads(event.removeprefix(b"data: "))["choices"]:
            seen.add(choice["index"])
            if choice["index"] == 0:
                text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            if choice["finish_reason"]:
                ends[choice["index"]] = choice["finish_reason"]
    return text, ends.get(0, "") if set(ends) == seen else ""


if __name__ == "__main__":
    sys.exit(main())
