"""Times one forward of a GPT-2-small-like model, and what it needs, in a process of its own.

    cd tests && python -m benchmarks.extracting time TOKENS      all ways, in turns
    cd tests && python -m benchmarks.extracting WAY TOKENS       the memory of one way

The weights are random: they decide neither time nor memory. Without the language model's head,
whose logits would be most of the memory of every way.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import GPT2Config, GPT2Model

import attnviz as av
from benchmarks.building import measured

WAYS = {
    "plain": "a forward of the model as it is (sdpa)",
    "extract": "attnviz.extract",
    "attentions": "a forward with output_attentions=True (eager)",
}
_TURNS = 7


def _runs(ways: list[str]) -> dict[str, Callable[[int], Any]]:
    """Each way by its name: runs on a text of so many tokens."""
    runs: dict[str, Callable[[int], Any]] = {}
    torch.manual_seed(0)
    if {"plain", "extract"} & set(ways):
        model: Any = GPT2Model(GPT2Config(attn_implementation="sdpa")).eval()
        runs["plain"] = lambda tokens: model(**_ids(tokens))
        runs["extract"] = lambda tokens: av.extract(model, _ids(tokens), progress=False)
    if "attentions" in ways:
        eager: Any = GPT2Model(GPT2Config(attn_implementation="eager")).eval()
        runs["attentions"] = lambda tokens: eager(**_ids(tokens), output_attentions=True)
    return {way: runs[way] for way in ways}


def _ids(tokens: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(tokens)[None] % 50_000}


@torch.inference_mode()
def main(what: str, tokens: str) -> None:
    """Write the median seconds of every way, or the bytes of one."""
    torch.set_num_threads(1)
    length = int(tokens)
    if what != "time":
        (run,) = _runs([what]).values()
        run(16)
        gc.collect()
        _, _, memory = measured(lambda: run(length))
        sys.stdout.write(json.dumps({f"{what}_bytes": memory}) + "\n")
        return
    runs = _runs(list(WAYS))
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    # In turns, so that what else the machine does falls on all of them.
    for _ in range(_TURNS):
        for way, run in runs.items():
            start = time.perf_counter()
            run(length)
            seconds[way].append(time.perf_counter() - start)
    # The first turn loads what is loaded when it is first used.
    figures = {f"{way}_s": statistics.median(each[1:]) for way, each in seconds.items()}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
