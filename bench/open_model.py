"""How long opening a model file takes: median, least and most wall time, in milliseconds, of warm files."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from time import perf_counter

from octavo.weights.catalog import MODELS, resolve
from octavo.weights.gguf import GGUFFile

REPEATS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    as_json = parser.parse_args().json
    results: dict[str, dict[str, float]] = {}
    for packaged in MODELS:
        path, samples = resolve(packaged.alias), []
        for _ in range(REPEATS):
            begun = perf_counter()
            GGUFFile.open(path)
            samples.append((perf_counter() - begun) * 1e3)
        results[packaged.alias] = {"median": statistics.median(samples), "least": min(samples), "most": max(samples)}
    if as_json:
        json.dump({"unit": "ms", "repeats": REPEATS, "models": results}, sys.stdout, indent=1)
        print()
    else:
        for alias, figures in results.items():
            print(f"{alias:<16}{figures['median']:>8.1f} ms  ({figures['least']:.1f}-{figures['most']:.1f})")


if __name__ == "__main__":
    main()
