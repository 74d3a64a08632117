"""`octavo models`: lists the aliases and which of them are cached. Fetches nothing."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from octavo.weights.cache import FileCache, default_root
from octavo.weights.catalog import MODELS

if TYPE_CHECKING:
    from octavo.cli.main import MakeLLM

USAGE = "octavo models [--json]"
SUMMARY = """\
List the models that have an alias. Any .gguf file or Hugging Face directory of a supported architecture works as well.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(arguments: argparse.Namespace, make_llm: MakeLLM) -> int:
    """Print one line for each alias."""
    cache = FileCache(default_root())
    rows = [
        {
            "alias": model.alias,
            "bytes": model.digest.size,
            "megabytes": round(model.digest.size / 1e6),
            "licence": model.licence,
            "cached": cache.holds(model.file_name, model.digest),
            "about": model.about,
        }
        for model in MODELS
    ]
    if arguments.json:
        print(json.dumps(rows))
        return 0
    print(f"{'ALIAS':<14} {'SIZE':>7}  {'CACHED':<6}  {'LICENCE':<18}  ABOUT")
    for row in rows:
        cached, size = "yes" if row["cached"] else "no", f"{row['megabytes']} MB"
        print(f"{row['alias']:<14} {size:>7}  {cached:<6}  {row['licence']:<18}  {row['about']}")
    print(f"\ncache: {cache.root}")
    return 0
