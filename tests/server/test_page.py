"""The live page in a real browser: it loads in peace, is used by keys alone, and shows each what is theirs."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import OnSocket, Visit, launch, slow_down
from matplotlib.image import imread
from playwright.sync_api import Browser, sync_playwright
from server_harness import CHAT, TEMPLATE, InProcess, assert_refused
from toy import make_toy

from octavo.server.keys import ApiKeys
from octavo.server.page import POLICY

pytestmark = pytest.mark.browser

HOSTILE = ("<img src=x onerror=document.title='owned'>", "<script>document.title='owned'</script>", "&lt;b&gt;")
SONG = ("\n", "tra", " la")  # " la" for ever
THINKING = TEMPLATE.replace(
    "{{ message.content }}", "{{ message.reasoning_content or '' }}<think></think>{{ message.content }}"
)
Open = Callable[..., Visit]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """visit(url, **context): an open page; what it complained of fails the test, unless `complaints` is emptied."""
    made: list[Visit] = []

    def go(url: str, **context: Any) -> Visit:
        made.append(Visit(chromium, url, **context))
        return made[-1]

    yield go
    for each in made:
        each.assert_content()
        each.close()


@pytest.fixture
def site(toy_folder: Path) -> Iterator[OnSocket]:
    server = OnSocket(toy_folder)
    yield server
    server.close()


@pytest.fixture
def singing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., OnSocket]]:
    """singing(chain, keys, template): a server whose answers are that chain, a token each 30 ms."""
    slow_down(monkeypatch, 0.03)
    made: list[OnSocket] = []

    def make(chain: tuple[str, ...] = SONG, keys: ApiKeys | None = None, template: str = TEMPLATE) -> OnSocket:
        folder = make_toy(tmp_path / "song", chain)
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        made.append(OnSocket(folder, keys))
        return made[-1]

    yield make
    for server in made:
        server.close()


def picture(visit: Visit) -> Any:
    """A screenshot, grey, from 0 to 1."""
    return np.asarray(imread(io.BytesIO(visit.page.screenshot())))[..., :3].mean(axis=2)


def test_the_files_have_headers_that_trust_nothing_else(served: InProcess) -> None:
    index = served.get("/")
    scripts = {f"/{name}" for name in re.findall(r'src="(page/[a-z.]+)"', index.text)}
    imported = re.findall(r'from "\./([a-z.]+)"', served.get("/page/page.js").text)
    assert scripts == {"/page/page.js"}
    for path in ("/", "/page.css", "/icon.svg", *scripts, *(f"/page/{name}" for name in imported)):
        response = served.get(path)
        assert response.status_code == 200
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        again = served.get(path, headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert "http" not in response.text.replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in "".join(served.get(f"/page/{name}").text for name in imported)
    for name in ("no.js", "index.html", "..%2fpage.py", "page.css"):
        assert_refused(served.get(f"/page/{name}"), 404, code="not_found")


def test_it_loads_in_peace_and_has_a_name_for_everything(site: OnSocket, visit: Open) -> None:
    page = visit(site.url).wait_live()
    assert page.title() == "toy · octavo"
    assert "64 blocks of 16 tokens each: 64 blocks free." in page.inner_text("#summary")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, canvas[tabindex], section, svg[role]')]
        .filter((each) => !(each.ariaLabel || each.getAttribute('aria-labelledby') || each.labels?.length
            || (each.tagName === 'BUTTON' && each.innerText)))
        .map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    assert page.evaluate("document.querySelectorAll('[id]').length") == page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map((each) => each.id)).size"
    )


def test_a_chat_with_keys_alone(site: OnSocket, visit: Open) -> None:
    """From the top: tabs reach the skip link, which leads to the question; the answer comes, and says why."""
    page = visit(site.url).wait_live()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.type("hi")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("you")
    page.keyboard.press("Enter")
    page.wait_for_selector(".messages .after")
    assert page.inner_text(".messages .asked") == "hi\nyou"
    assert page.inner_text(".messages .answered") == CHAT
    assert page.inner_text("#chat-status") == f"Answer: {CHAT}"
    assert page.evaluate("document.activeElement.id") == "question"
    page.focus(".messages .after button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#explanation h3")
    assert "prompt of" in page.inner_text("#explanation")


def test_blocks_light_up_while_an_answer_is_made_and_are_explained(
    singing: Callable[..., OnSocket], visit: Open
) -> None:
    opened = visit(singing().url)
    page = opened.wait_live()
    page.fill("#max-tokens", "100")
    opened.ask("sing")
    page.wait_for_selector("#requests .state:has-text('this chat')")
    assert re.search(r"\d+ blocks? used", page.inner_text("#summary"))
    request = page.get_attribute("#requests .name", "title")
    mine = page.evaluate(
        """() => {
            const wanted = getComputedStyle(document.documentElement).getPropertyValue('--block-mine').trim();
            const canvas = document.getElementById('map');
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let found = 0;
            for (let at = 0; at < data.length; at += 4)
                found += '#' + [0, 1, 2].map((k) => data[at + k].toString(16).padStart(2, '0')).join('') === wanted;
            return found;
        }"""
    )
    assert mine > 50, "pixels of the chat's own blocks"
    page.focus("#map")
    for key in ("End", "ArrowLeft", "ArrowUp", "PageUp", "Home"):
        page.keyboard.press(key)
    page.wait_for_selector("#cursor:text-matches('^Block 0: ')", state="attached")
    page.keyboard.press("Enter")
    told = page.inner_text("#explanation")
    assert told.startswith("Block 0")
    assert f"{request}, answer 0: tokens 0 to 15." in told
    page.click("#stop")
    page.wait_for_selector(".messages .after")
    assert page.inner_text(".messages .after").startswith("Stopped.")
    assert page.inner_text(".messages .answered").startswith("tra la la")
    page.wait_for_selector("#no-requests:visible")
    page.keyboard.press("Shift+Tab")
    for colouring in ("age", "sharing", "tier"):
        page.check(f"input[value={colouring}]", force=True)
        assert page.inner_text("#legend")


def test_a_models_words_are_text_and_nothing_else(singing: Callable[..., OnSocket], visit: Open) -> None:
    opened = visit(singing(("\n", *HOSTILE, "<eos>")).url)
    page = opened.wait_live()
    opened.ask("<img src=x onerror=document.title='asked'>")
    page.wait_for_selector(".messages .after")
    assert page.inner_text(".messages .answered") == "".join(HOSTILE)
    assert page.inner_text(".messages .asked").startswith("<img")
    assert page.evaluate("document.querySelectorAll('.messages img, .messages script, .messages b').length") == 0
    assert page.title() == "toy · octavo"


def test_thoughts_are_told_apart_from_the_answer(singing: Callable[..., OnSocket], visit: Open) -> None:
    chain = ("\n", "<think>", *HOSTILE[:1], "</think>", "Yes", "<eos>")
    opened = visit(singing(chain, template=THINKING).url)
    page = opened.wait_live()
    opened.ask("well?")
    page.wait_for_selector(".messages .after")
    assert page.inner_text(".messages .thoughts") == HOSTILE[0]
    assert page.inner_text(".messages .answered") == "Yes"
    assert page.locator(".messages img").count() == 0


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_scrolls_sideways_on_a_phone(singing: Callable[..., OnSocket], visit: Open, width: int) -> None:
    server = singing(("\n", *("long" * 20 + str(number) for number in range(8)), "<eos>"))
    opened = visit(server.url, viewport={"width": width, "height": 740}, has_touch=True)
    page = opened.wait_live()
    opened.ask("word" * 20)
    page.wait_for_selector(".messages .after button")
    page.tap(".messages .after button")
    page.wait_for_selector("#explanation h3")
    page.tap("#map")
    assert page.inner_text("#explanation h3").startswith("Block")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('.card').getBoundingClientRect().right") <= width


def test_dark_and_light_are_both_drawn(site: OnSocket, visit: Open) -> None:
    shots = {}
    for scheme in ("light", "dark"):
        opened = visit(site.url, color_scheme=scheme)
        opened.wait_live()
        shots[scheme] = picture(opened)
    assert shots["light"].mean() > 0.8
    assert shots["dark"].mean() < 0.3
    for shot in shots.values():
        assert shot.std() > 0.02
        assert len(np.unique(shot.round(2))) > 20


def test_a_key_sees_its_own_tenant_alone(singing: Callable[..., OnSocket], visit: Open, tmp_path: Path) -> None:
    lines = [f"{name}:{hashlib.sha256(f'{name}-key'.encode()).hexdigest()}" for name in ("ann", "bob")]
    (tmp_path / "keys").write_text("\n".join(lines))
    server = singing(keys=ApiKeys.from_file(str(tmp_path / "keys")))

    def sing() -> None:
        body = json.dumps({"prompt": "ann's secret" * 3, "max_tokens": 150}).encode()
        headers = {"authorization": "Bearer ann-key", "content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{server.url}v1/completions", body, headers), timeout=30).close()

    anns = threading.Thread(target=sing)
    anns.start()
    opened = visit(server.url)
    page = opened.page
    page.wait_for_selector("#status-text:text('An API key is needed')")
    page.fill("#key", "wrong")
    page.press("#key", "Enter")
    page.wait_for_selector("#status-text:text('not valid')")
    page.fill("#key", "bob-key")
    page.press("#key", "Enter")
    opened.wait_live()
    assert page.inner_text("#figures div:first-child dd").split() == ["1", "sequence"], "somebody runs; who is not said"
    assert page.locator("#requests li").count() == 0
    page.focus("#map")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert "1 table of others" in page.inner_text("#explanation")
    page.fill("#key", "ann-key")
    page.press("#key", "Enter")
    page.wait_for_selector("#requests li")
    anns.join()
    assert all("401" in complaint for complaint in opened.complaints), opened.complaints
    opened.complaints.clear()
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_a_server_that_goes_away_and_comes_back(site: OnSocket, visit: Open) -> None:
    opened = visit(site.url)
    page = opened.wait_live()
    site.shut()
    page.wait_for_selector("#status-text:text('cannot be reached')")
    page.wait_for_selector("#retry:text('next try in')")
    opened.ask("hello?")
    page.wait_for_selector(".messages .failed")
    assert page.inner_text(".messages .failed") == "The server cannot be reached."
    assert page.input_value("#question") == "hello?", "what was asked is not lost"
    site.open()
    opened.wait_live()
    page.focus("#question")
    page.keyboard.press("Enter")
    page.wait_for_selector(".messages .after")
    assert all("ERR_CONNECTION" in complaint for complaint in opened.complaints), opened.complaints
    opened.complaints.clear()


def test_a_refusal_is_shown_in_the_servers_words(site: OnSocket, visit: Open) -> None:
    opened = visit(site.url)
    page = opened.wait_live()
    page.fill("#max-tokens", "1000")
    opened.ask("hi")
    page.wait_for_selector(".messages .failed")
    assert "max_completion_tokens" in page.inner_text(".messages .failed") or "256" in page.inner_text(
        ".messages .failed"
    )
    assert all("400" in complaint for complaint in opened.complaints), opened.complaints
    opened.complaints.clear()
