"""Time extractions on a CUDA device, and write the figures to docs/benchmarks.*.

    make gpu                                        the tests of devices, then this

`make bench` keeps the figures, because most machines have no such device.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import attnviz as av
from benchmarks.figures import Figure, count, in_turns, megabytes, seconds, spread
from benchmarks.guarded import ROOT
from benchmarks.section import Section
from models.accelerator import DEVICE, peak, waits

WAYS = {
    "plain": "a forward of the model",
    "extract": "attnviz.extract",
    "stays": "attnviz.extract(device=None)",
    "effects": "attnviz.head_effects",
}
LENGTHS = (256, 1024)
_TURNS = 5


def measure(
    lengths: Sequence[int] = LENGTHS, turns: int = _TURNS, **settings: int
) -> dict[str, Any]:
    """Return the figures of each length. `settings` are those of `GPT2Config`."""
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(**settings)).eval().to(DEVICE)
    figures: dict[str, Any] = {}
    for length in lengths:
        ids = torch.arange(length, device=DEVICE)[None] % model.config.vocab_size
        runs: dict[str, Callable[[], Any]] = {
            "plain": partial(model, input_ids=ids, use_cache=False, logits_to_keep=1),
            "extract": partial(av.extract, model, ids, progress=False),
            "stays": partial(av.extract, model, ids, device=None, progress=False),
            "effects": partial(av.head_effects, model, ids, answer=(5, 6), progress=False),
        }
        with torch.no_grad():
            # The first run loads kernels and fills caches.
            memory = {f"{way}_bytes": peak(run) for way, run in runs.items()}
            num_waits = {f"{way}_waits": waits(run) for way, run in runs.items()}
            times = in_turns({way: partial(_done, run) for way, run in runs.items()}, turns, _now)
        figures[str(length)] = {**times, **memory, **num_waits}
    return figures


def _done(run: Callable[[], Any]) -> None:
    run()
    torch.accelerator.synchronize(DEVICE)


def _now() -> float:
    return time.perf_counter()


def rows(figures: Mapping[str, Mapping[str, Figure]]) -> list[list[str]]:
    """Return the lines of the table, which say "not yet run" without figures."""
    columns: list[tuple[str, Callable[[float], str]]] = [
        ("s", seconds),
        ("bytes", megabytes),
        ("waits", count),
    ]
    lines = [["n", "", "time", "memory of the device", "waits"]]
    for length in LENGTHS:
        measured = figures.get(str(length), {})
        for way, words in WAYS.items():
            names = ((f"{way}_{name}", write) for name, write in columns)
            cells = [
                spread(measured[name], write) if name in measured else "not yet run"
                for name, write in names
            ]
            lines.append([f"{length:,}", words, *cells])
    return lines


SECTION = Section(
    name="device",
    title="On a CUDA device",
    words="""The model has the size of GPT-2 small with random weights, and reads one text of n
tokens. A wait is a time at which the host waits for the device, until the device has nothing to
compute. `make gpu` writes this table.""",
    module="benchmarks.on_a_device",
    rows=rows,
)


def main() -> None:
    """Measure, and write the figures into docs/benchmarks.json and docs/benchmarks.md."""
    from benchmarks.report import Results, document

    saved = ROOT / "docs" / "benchmarks.json"
    results = Results.from_json(json.loads(saved.read_text(encoding="utf-8")))
    results.sections[SECTION.name] = measure()
    name = torch.cuda.get_device_name(DEVICE)
    results.machine["device"] = f"{name}, torch {torch.__version__}"
    saved.write_text(json.dumps(results.to_json(), indent=1) + "\n", encoding="utf-8")
    saved.with_suffix(".md").write_text(document(results), encoding="utf-8")


if __name__ == "__main__":
    main()
