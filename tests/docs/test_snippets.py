"""Every Python block of the documentation runs, from the top of its file to the end, in one namespace a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"] if page.exists()]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line number, source) of every block marked python; a mark such as "no-run" besides is refused."""
    blocks = []
    for match in FENCE.finditer(text):
        words = match["info"].split()
        if words[:1] == ["python"]:
            assert words == ["python"], f"```{match['info']}: python blocks of the documentation are run, all of them"
            lines = [line.removeprefix(match["indent"]) for line in match["body"].splitlines()]
            blocks.append((text.count("\n", 0, match.start("body")), "\n".join(lines)))
    return blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippet"}
    for line, source in python_blocks(page.read_text(encoding="utf-8")):
        exec(compile("\n" * line + source, str(page), "exec"), namespace)


def test_blocks_are_found() -> None:
    text = "a\n```python\nx = 1\n```\n- b\n  ```python\n  y = 2\n  ```\n```sh\nls\n```\n```\nplain\n```\n"
    assert python_blocks(text) == [(2, "x = 1"), (6, "y = 2")]
    with pytest.raises(AssertionError, match="are run, all of them"):
        python_blocks("```python no-run\nx\n```\n")
