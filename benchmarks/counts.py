"""Counts that do not depend on the machine: bytes, DOM nodes, requests, logits, forwards, waits.

make counts                                        renew the baseline, benchmarks/counts.json
PYTHONPATH=tests python -m benchmarks.counts            print the differences from the baseline

`tests/browser/test_counts.py` compares the counts with the baseline. A change that moves a count on
purpose renews the baseline in the same commit, so that the diff shows the amount.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from playwright.sync_api import Browser, expect, sync_playwright
from transformers import GPT2Config, GPT2Model

import attnviz
import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord
from attnviz.server.server import RecordServer
from attnviz.views.record_view import RecordView
from benchmarks.corpora import random_corpus
from benchmarks.inputs import texts, weights
from benchmarks.live import LiveView, logits_computed
from benchmarks.opening import VIEWPORT
from browser.chromium import launch
from unit.long_records import long_record

BASELINE = Path(__file__).with_name("counts.json")
#: Relative tolerance of a count. Versions of packages move some counts slightly.
TOLERANCE = 0.03
EMBEDDING = "embedding view, 12 x 12, 1,000 points"
NODES = "document.querySelectorAll('*').length"
HOW_TO_RENEW = "if this is intended, renew benchmarks/counts.json with `make counts`"

Counts = dict[str, int]


def _bundles() -> Iterator[tuple[str, int]]:
    folder = Path(attnviz.__file__).parent / "static"
    for path in sorted(folder.glob("*.js")):
        yield f"bundle {path.stem}: bytes", path.stat().st_size


def _pages(browser: Browser, folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the counts of pages with the weights of the benchmark."""
    short = AttentionRecord.from_weights(weights(12, 12, 64), texts(64))
    longer = AttentionRecord.from_weights(weights(12, 12, 256), texts(256))
    wide = AttentionRecord.from_weights(weights(32, 32, 64), texts(64))
    views: dict[str, RecordView] = {
        "head view, 12 x 12, n=64": av.HeadView(short),
        "head view, 12 x 12, n=256": av.HeadView(longer),
        "matrix view, 12 x 12, n=256": av.MatrixView(longer),
        "model view, 12 x 12, n=64": av.ModelView(short),
        "model view, 32 x 32, n=64": av.ModelView(wide),
        "compare view, 12 x 12, n=64": _compared(short),
        EMBEDDING: av.EmbeddingView(random_corpus(1_000, 12, 12)),
    }
    for name, view in views.items():
        path = view.save(folder / "page.html")
        page = browser.new_page(viewport=VIEWPORT)
        page.goto(path.as_uri())
        page.wait_for_selector("[data-attnviz-drawn]", state="attached")
        yield f"page {name}: bytes", path.stat().st_size
        yield f"page {name}: DOM nodes", page.evaluate(NODES)
        page.close()


def _compared(record: AttentionRecord) -> av.CompareView:
    """Return the view that compares a record with itself, heads in reverse order."""
    stack = record.stack()
    heads = {
        layer: [
            stack.weights(layer=layer, head=head) for head in range(stack.num_heads(layer))[::-1]
        ]
        for layer in stack.layers
    }
    other = AttentionRecord.from_weights(
        [np.stack(weights) for weights in heads.values()], record.tokens
    )
    return av.CompareView(av.compare(record, other))


def _live(browser: Browser) -> Iterator[tuple[str, int]]:
    """Yield the requests of views when they open, and of the head view when its layer changes."""
    record = long_record(96, layers=12, heads=12, key_heads=12)
    views: dict[str, RecordView] = {
        "head view, 12 x 12, n=96": av.HeadView(record),
        "matrix view, 12 x 12, n=96": av.MatrixView(record),
        "model view, 12 x 12, n=96": av.ModelView(record),
        "neuron view, 12 x 12, n=96": av.NeuronView(record),
        "compare view, 12 x 12, n=96": _compared(record),
        "head view, 1 x 2, n=16384": av.HeadView(long_record(16_384, heads=2, key_heads=1)),
        EMBEDDING: av.EmbeddingView(random_corpus(1_000, 12, 12)),
    }
    for name, view in views.items():
        page = browser.new_page(viewport=VIEWPORT)
        with logits_computed() as counted:
            live = LiveView(page, view)
        for what, count in live.count().items():
            yield f"live {name}: {what}", count
        yield f"live {name}: logits computed", counted["logits"]
        yield f"live {name}: bytes held by the kernel", live.bytes_held
        if name == "head view, 12 x 12, n=96":
            page.get_by_role("button", name="Layer 1", exact=True).click()
            live.rest()
            for what, count in live.count().items():
                yield f"live {name}, to layer 1: {what}", count
        if name == EMBEDDING:
            yield f"live {name}: DOM nodes", page.evaluate(NODES)
            page.get_by_role("gridcell", name="layer 0, head 0").click()
            live.rest()
            for what, count in live.count().items():
                yield f"live {name}, into a head: {what}", count
        page.close()


@contextmanager
def _forwards(model: Any) -> Iterator[Counter[str]]:
    """Count the forwards of a model inside the context, under "forwards"."""
    counted: Counter[str] = Counter()

    def count(*_: Any) -> None:
        counted["forwards"] += 1

    handle = model.register_forward_pre_hook(count)
    try:
        yield counted
    finally:
        handle.remove()


def _what_if(browser: Browser) -> Iterator[tuple[str, int]]:
    """Yield the forwards and requests of each answer to "What if this edge were cut?"."""
    model, tokenizer = av.demos.load("decoder")
    text = "the animal did not cross the street because it was too wide so the"
    arguments = {"model": model, "inputs": text, "tokenizer": tokenizer}
    record = av.extract(model, text, tokenizer=tokenizer, progress=False)
    view = av.HeadView(record, layer=1, heads=0, token=-1, key="street", **arguments)
    server = view._server()
    assert isinstance(server, RecordServer)
    page = browser.new_page(viewport=VIEWPORT)
    live = LiveView(page, view, server=server)
    live.count()
    panel = page.locator(".av-what-if")
    answer = panel.locator(".av-what-if-answer")
    steps = (
        ("opened", panel.locator("summary"), "Unchanged"),
        ("a cut", panel.get_by_role("button", name="What if this edge were cut?"), "Cut before"),
        ("without a head", panel.get_by_role("button", name="Without head 1.0"), "these 2 changes"),
    )
    with _forwards(model) as ran:
        for what, button, words in steps:
            ran.clear()
            button.click()
            expect(answer).to_contain_text(words)
            live.rest()
            yield f"live what if, {what}: forwards", ran["forwards"]
            # The number of bytes is not counted: it depends on the digits of the numbers.
            yield f"live what if, {what}: requests", live.count()["requests intervene"]
    page.close()


def _extraction() -> Iterator[tuple[str, int]]:
    torch.manual_seed(0)
    model: Any = GPT2Model(GPT2Config(n_embd=48, n_layer=3, n_head=4)).eval()
    record = av.extract(model, {"input_ids": torch.arange(64)[None]}, progress=False)
    num_bytes = 0
    for stack in record.stacks.values():
        for layer in stack.layers:
            attention = stack.attention(layer)
            assert isinstance(attention, QueryKeyAttention)
            num_bytes += attention.queries.nbytes + attention.keys.nbytes
    yield "record of GPT-2, 3 x 4, n=64: bytes of queries and keys", num_bytes


def _on_a_device() -> Iterator[tuple[str, int]]:
    """Yield the waits of the host and the copies to it, on a pretended device."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.counts_on_a_device"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    yield from json.loads(ran.stdout).items()


def counted(browser: Browser, folder: Path) -> Counts:
    """Return all counts by name. Pages are written to `folder`."""
    return dict(
        (
            *_bundles(),
            *_pages(browser, folder),
            *_live(browser),
            *_what_if(browser),
            *_extraction(),
            *_on_a_device(),
        ),
    )


def differences(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return one sentence for each count that changed by more than the tolerance, up or down."""
    sentences = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            sentences.append(f"{name}: {f'gone, was {old:,}' if new is None else f'new, {new:,}'}")
        elif abs(new - old) > TOLERANCE * old:
            share = f", {(new - old) / old:+.0%}" if old else ""
            sentences.append(f"{name}: {old:,} -> {new:,}{share}")
    return sentences


def main() -> None:
    """Print the differences from the baseline, or renew it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counts")
    parser.add_argument("--renew", action="store_true", help="write the counts as the new baseline")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright)
        now = counted(browser, Path(folder))
        browser.close()
    before = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {}
    if options.renew:
        BASELINE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in differences(before, now))


if __name__ == "__main__":
    main()
