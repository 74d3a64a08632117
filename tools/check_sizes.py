"""Fails when a file, a function or a parameter list of ours outgrows the limits. Run from the repository's root."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 450
FUNCTION_LINES = 60
PARAMETERS = 6
COUNTED = (".py", ".cpp", ".hpp", ".h", ".toml", ".sh")

# A public constructor that spells its settings out for the reader's editor is the one place for a long list.
LONG_LISTS = {("src/octavo/engine/llm.py", "__init__")}


def too_long(path: Path) -> Iterator[str]:
    """Complaints about one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, the limit is {FILE_LINES}"
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text, str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _function(path, node)


def _function(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    where = f"{path}:{node.lineno}: {node.name}"
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if lines > FUNCTION_LINES:
        yield f"{where} has {lines} lines, the limit is {FUNCTION_LINES}"
    taken = node.args
    names = [argument.arg for argument in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    count = len(names) - (names[:1] in (["self"], ["cls"]))
    if count > PARAMETERS and (path.as_posix(), node.name) not in LONG_LISTS:
        yield f"{where} takes {count} parameters, the limit is {PARAMETERS}"


def main() -> int:
    """Check every file that git tracks; 1 when something is too long."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    paths = [Path(name) for name in listed if name.endswith(COUNTED) and Path(name).exists()]
    complaints = [complaint for path in paths for complaint in too_long(path)]
    print(*complaints or [f"{len(paths)} files within {FILE_LINES} lines"], sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
