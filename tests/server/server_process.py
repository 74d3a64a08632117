"""`octavo serve` as a process of its own, with a real socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PROGRAM = "import sys; from octavo.cli.main import main; sys.exit(main())"


class Process:
    """One `octavo serve`, ready."""

    def __init__(self, folder: Path, *flags: str, check: str = "1", program: str = PROGRAM) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OCTAVO_CHECK": check}
        argv = [sys.executable, "-c", program, "serve", str(folder), "--num-blocks", "64", "--port", "0", *flags]
        self.process = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.log = [self.process.stderr.readline()]
        match = re.search(r"is ready at http://127\.0\.0\.1:(\d+)", self.log[0])
        assert match, self.log[0] + self.process.stderr.read()
        self.port = int(match[1])
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def connect(self) -> http.client.HTTPConnection:
        """A new connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def send(self, body: dict[str, Any], path: str = "/v1/completions") -> socket.socket:
        """A request sent by hand, of which the answer is not read."""
        data = json.dumps(body).encode()
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", self.port))
        raw.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(data), data))
        return raw

    def ask(self, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, bytes]:
        """One request on a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()

    def get(self, path: str) -> tuple[int, str]:
        """One GET."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metric(self, name: str) -> float:
        """A metric without labels."""
        _, text = self.get("/metrics")
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert match
        return float(match[1])

    def until(self, name: str, value: float, seconds: float = 2.0) -> None:
        """Wait for a metric's value."""
        deadline = time.monotonic() + seconds
        while (now := self.metric(name)) != value:
            assert time.monotonic() < deadline, f"{name} is {now}"
            time.sleep(0.02)

    def sockets(self) -> int:
        """Sockets that it has open."""
        found = 0
        for file in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found += os.readlink(file).startswith("socket:")
        return found

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.kill()
        self.process.wait(20)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def end(self, number: int | None = signal.SIGTERM) -> int:
        """Signal it, unless it ends by itself, and wait; the exit code."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(20)
        self._reader.join(5)
        return code
