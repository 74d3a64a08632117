"""What the server spends on a streamed token beside the engine: CPU time of its event loop's thread, on Linux.

Streams of two lengths, all at once, read by this process. What the longer ones take more, over the tokens that they
have more, is the price of a token; what is left of the shorter ones is the price of a request.
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from octavo.cli.bench.start import COMMAND
from octavo.cli.load.own_server import READY

LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Server:
    """A running one. The main thread of its process runs the event loop."""

    pid: int
    port: int

    def loop_seconds(self) -> float:
        """CPU time of that thread so far."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def stream(self, streams: int, tokens: int) -> float:
        """Read as many chats of as many tokens at once; the CPU time that they took."""
        begun = self.loop_seconds()
        waiting = selectors.DefaultSelector()
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "ignore_eos": True}
        data = json.dumps(body | {"max_tokens": tokens, "temperature": 0}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data)
        for _ in range(streams):
            connection = socket.create_connection(("127.0.0.1", self.port))
            connection.sendall(head + data)
            waiting.register(connection, selectors.EVENT_READ, bytearray())
        while waiting.get_map():
            for key, _ in waiting.select():
                connection = key.fileobj  # type: ignore[assignment]
                piece = connection.recv(1 << 16)
                key.data[:] = key.data[-len(LAST_CHUNK) :] + piece  # which may come in parts
                if not piece or key.data.endswith(LAST_CHUNK):
                    waiting.unregister(connection)
                    connection.close()
        return self.loop_seconds() - begun


def measure(server: Server, asked: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a token, and of a request."""
    short, long = (server.stream(asked.streams, tokens) for tokens in (asked.short, asked.long))
    token = (long - short) / (asked.streams * (asked.long - asked.short))
    return token, short / asked.streams - token * asked.short


def main() -> None:
    """Measure, print a line a round and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--short", type=int, default=16, help="tokens of each of the shorter streams")
    parser.add_argument("--long", type=int, default=240, help="tokens of each of the longer ones")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    command = [sys.executable, "-c", COMMAND, "serve", asked.model, "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        ready = READY.search(said)
        if ready is None:
            sys.exit(f"the server did not start: {said.strip()}")
        server = Server(process.pid, int(ready[1].rpartition(":")[2]))
        server.stream(asked.streams, asked.short)  # warms up
        rounds = []
        for _ in range(asked.rounds):
            rounds.append(measure(server, asked))
            print(f"a token {rounds[-1][0] * 1e6:.1f} us, a request {rounds[-1][1] * 1e6:.0f} us", flush=True)
        process.send_signal(signal.SIGTERM)
    token, request = (statistics.median(each) * 1e6 for each in zip(*rounds, strict=True))
    print(f"medians: a token {token:.1f} us, a request {request:.0f} us of CPU")


if __name__ == "__main__":
    main()
