"""Random traffic under OCTAVO_CHECK=3 against runs without pressure: python bench/proof.py [--requests N] [--seed S].

Prints what was met, and ends with 1 at the first token, log-probability, slot or block that is not as it should be.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

TESTS = Path(__file__).parents[1] / "tests"
sys.path += [str(TESTS), str(TESTS / "engine"), str(TESTS / "tiers")]

from pressure import Proof  # noqa: E402 - it lies beside the tests that use it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    begun = time.monotonic()
    with TemporaryDirectory() as folder:
        proof = Proof(Path(folder), arguments.seed)
        try:
            proof.run(arguments.requests)
        finally:
            for what, count in proof.counts.items():
                print(f"{count:12,} {what}")
    print(f"{time.monotonic() - begun:12.0f} seconds; all as without pressure, nothing left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
