"""Time a live generation of a model like GPT-2 small, beside `model.generate`.

    PYTHONPATH=tests python -m benchmarks.generating [turns]

The benchmark measures CPU time and alternates the ways in one process, so that other load on the
machine affects all of them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import attnviz as av
from attnviz.extraction.live import extract_live
from benchmarks.figures import Figure, in_turns, seconds, spread
from benchmarks.section import Section

PROMPT, TOKENS = 200, 50
WAYS = {
    "plain": "model.generate",
    "live": "live=True: the text so far is read again from time to time",
    "extract": "attnviz.extract(generate=): generates, then reads in one forward",
}
_TURNS = 3


@torch.inference_mode()
def main(turns: str = str(_TURNS)) -> None:
    """Write the seconds of each way, and its ratio to `model.generate`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(eos_token_id=None, bos_token_id=None)).eval()
    ids = torch.randint(0, 50_000, (1, PROMPT))
    settings = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
    watched: Any = {"show": lambda *_: None, "is_stopped": lambda: False}
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **settings),
        "live": lambda: extract_live(model, ids, generate=settings, **watched),
        "extract": lambda: av.extract(model, ids, generate=settings, progress=False),
    }
    figures = in_turns(ways, int(turns), time.process_time)
    sys.stdout.write(json.dumps(figures) + "\n")


def rows(figures: Mapping[str, Figure]) -> list[list[str]]:
    """Return the lines of the table."""
    lines = [["", "CPU time", "of model.generate's"]]
    for way, words in WAYS.items():
        ratio = spread(figures[f"{way}_ratio"], lambda value: f"{value:.2f}x")
        lines.append([words, spread(figures[f"{way}_s"], seconds), "" if way == "plain" else ratio])
    return lines


SECTION = Section(
    name="generating",
    title="Live generation",
    words=f"""The model has the size of GPT-2 small with random weights. It generates {TOKENS}
tokens after a prompt of {PROMPT} on one thread, without sampling. Multiples are relative to the
model's own `generate` of the same turn.""",
    module="benchmarks.generating",
    rows=rows,
    quick=(("1",),),
    seconds=33,
)


if __name__ == "__main__":
    main(*sys.argv[1:])
