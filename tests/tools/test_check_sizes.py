"""The size check finds what it is there to find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "check_sizes.py"


def check(folder: Path, name: str, text: str) -> tuple[int, str]:
    (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", name], cwd=folder, check=True)
    done = subprocess.run([sys.executable, str(TOOL)], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_within_the_limits(tmp_path: Path) -> None:
    text = "class A:\n    def f(self, a, b, c, d, e, *, f):\n" + "        a\n" * 59 + "x = 1\n" * 389
    assert check(tmp_path, "fine.py", text) == (0, "1 files within 450 lines\n")


def test_each_limit(tmp_path: Path) -> None:
    text = "def f(a, b, c, d, e, f, *, g):\n" + "    a\n" * 60 + "x = 1\n" * 390
    code, said = check(tmp_path, "big.py", text)
    assert code == 1
    assert said.splitlines() == [
        "big.py: 451 lines, the limit is 450",
        "big.py:1: f has 61 lines, the limit is 60",
        "big.py:1: f takes 7 parameters, the limit is 6",
    ]
