"""Time one forward of a model like GPT-2 small, and measure its memory, in a separate process.

    PYTHONPATH=tests python -m benchmarks.extracting time TOKENS      all ways, in turns
    PYTHONPATH=tests python -m benchmarks.extracting WAY TOKENS       the memory of one way

The weights are random, which changes neither time nor memory. The model has no language modelling
head, because its logits would take most of the memory.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from transformers import GPT2Config, GPT2Model

import attnviz as av
from benchmarks.building import measured
from benchmarks.figures import Figure, in_turns, median, megabytes, seconds, spread
from benchmarks.section import Section

WAYS = {
    "plain": "a forward of the model as it is (sdpa)",
    "extract": "attnviz.extract",
    "attentions": "a forward with output_attentions=True (eager)",
}
_TURNS = 2


def _runs(ways: list[str]) -> dict[str, Callable[[int], Any]]:
    """Return a function for each way that runs it on a text of the given number of tokens."""
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
    """Write the seconds of all ways, or the bytes of one way."""
    torch.set_num_threads(1)
    length = int(tokens)
    if what != "time":
        (run,) = _runs([what]).values()
        run(16)
        gc.collect()
        _, _, memory = measured(lambda: run(length))
        sys.stdout.write(json.dumps({tokens: {f"{what}_bytes": memory}}) + "\n")
        return
    ways = {way: partial(run, length) for way, run in _runs(list(WAYS)).items()}
    figures = in_turns(ways, _TURNS, time.perf_counter)
    sys.stdout.write(json.dumps({tokens: figures}) + "\n")


def rows(figures: Mapping[str, Mapping[str, Figure]]) -> list[list[str]]:
    """Return the lines of the table."""
    lines = [["n", "", "time", "of a plain forward's", "memory"]]
    for tokens, values in figures.items():
        for way, words in WAYS.items():
            ratio = f"{way}_ratio"
            lines.append(
                [
                    f"{int(tokens):,}",
                    words,
                    _cell(values, f"{way}_s", seconds),
                    "" if way == "plain" else _cell(values, ratio, lambda value: f"{value:.2f}x"),
                    _memory(values, way),
                ]
            )
    return lines


def _cell(figures: Mapping[str, Figure], name: str, words: Callable[[float], str]) -> str:
    return spread(figures[name], words) if name in figures else "–"


def _memory(figures: Mapping[str, Figure], way: str) -> str:
    name, base = f"{way}_bytes", figures.get("plain_bytes")
    if name not in figures:
        return "–"
    words = megabytes(median(figures[name]))
    if way == "plain" or not base:
        return words
    return f"{words} ({median(figures[name]) / median(base):.2f}x)"


SECTION = Section(
    name="extraction",
    title="Extraction",
    words="""The model has the size of GPT-2 small (12 layers of 12 heads, 768 wide) with random
weights, and runs on one thread with one text of n tokens. Memory is the largest growth of the
process in one forward. Multiples in parentheses are relative to the plain forward of the same
turn.""",
    module="benchmarks.extracting",
    rows=rows,
    runs=(("time", "256"), *((what, "1024") for what in ("time", *WAYS))),
    quick=tuple((what, "256") for what in ("time", *WAYS)),
    seconds=66,
)


if __name__ == "__main__":
    main(*sys.argv[1:])
