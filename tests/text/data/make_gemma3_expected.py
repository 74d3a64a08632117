"""Makes gemma3_expected.json: what transformers' tokenizer, built from the model file given, makes of corpus.json.

    python tests/text/data/make_gemma3_expected.py PATH/TO/gemma-3-270m.gguf

Building that tokenizer takes transformers half a minute, so the tests compare with this file by default and with
transformers itself when slow tests are asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer


def main(model: Path) -> None:
    data = Path(__file__).parent
    tokenizer = AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name)
    texts = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in read_corpus(data)]
    ids = [tokenizer.encode(text, add_special_tokens=True) for text in texts]
    plain = [tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True) for text in texts]
    (data / "gemma3_expected.json").write_text(json.dumps({"special": ids, "plain": plain}) + "\n")


def read_corpus(data: Path) -> list[str]:
    return json.loads((data / "corpus.json").read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
