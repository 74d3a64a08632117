"""A real Chromium without a window, and a server on a real socket for it to look at."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Playwright
from server_harness import ENGINE, InProcess

from octavo.engine.engine import Engine
from octavo.server.keys import ApiKeys
from octavo.server.patience import patient
from octavo.server.run import HttpServer, bind
from octavo.server.settings import ServerConfig

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
# Whatever the policy stopped, noted before anything of the page runs.
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));
"""


def launch(playwright: Playwright) -> Browser:
    """The system's own browser, with a profile of its own that is gone afterwards."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail("tests of the page need Chromium: install it, or leave them out with -m 'not browser'")
    return playwright.chromium.launch(executable_path=path, args=list(FLAGS))


class Visit:
    """One open page, and all that it complained of."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self._context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.complaints: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.add_init_script(WATCH)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url)

    def wait_live(self) -> Page:
        """Until the pool has been seen."""
        self.page.wait_for_selector(".status.live")
        return self.page

    def ask(self, text: str) -> None:
        """Send a message, by keys alone."""
        self.page.focus("#question")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def assert_content(self) -> None:
        """Nobody complained and the policy stopped nothing."""
        assert self.complaints == []
        assert self.page.evaluate("violations") == []

    def close(self) -> None:
        self._context.close()


class OnSocket:
    """A server in this process that listens on a port of 127.0.0.1."""

    def __init__(self, folder: Path, keys: ApiKeys | None = None) -> None:
        self.inside = InProcess(folder, ServerConfig(access_log=False), ENGINE, keys).start()
        self._port = 0
        self.open()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def open(self) -> None:
        """Listen, again on the same port if it did before."""
        listener = bind("127.0.0.1", self._port)
        self._port = listener.getsockname()[1]
        self.inside.do(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        how: Any = {"http": patient(30), "ws": "none", "lifespan": "off", "interface": "asgi3", "log_config": None}
        self._http = HttpServer(uvicorn.Config(self.inside.app, **how))
        self._listener = listener
        self._serving = asyncio.create_task(self._http.serve(sockets=[listener]))

    def shut(self) -> None:
        """Listen no more."""

        async def end() -> None:
            self._http.force_exit = True
            self._http.end()
            await self._serving

        self.inside.do(end())
        self._listener.close()

    def close(self) -> None:
        self.shut()
        self.inside.close()


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every step takes so long, which is time to look at it."""
    step = Engine.step

    def slow(engine: Engine) -> Any:
        time.sleep(seconds)
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow)
