"""Time from an empty kernel to the first picture, by stage and by the software responsible.

    PYTHONPATH=tests python -m benchmarks.starting 3

The benchmark starts a Jupyter kernel and runs one cell for each stage, so that the import of a
library is not counted as attnviz's. Then the view's bundle draws in a Chromium (`benchmarks.live`).
The earlier work of a notebook's page is not attnviz's and is not measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_client.manager import KernelManager
from playwright.sync_api import sync_playwright

import attnviz as av
from attnviz.pages.html import packed_bundle
from attnviz.pages.image import find_browser
from benchmarks.figures import Figure, median, megabytes, seconds, spread
from benchmarks.inputs import texts, weights
from benchmarks.live import LiveView
from benchmarks.opening import CHROMIUM_FLAGS, VIEWPORT
from benchmarks.section import Section

_READY_S = 120
_TEXT = "the animal did not cross the street because it was too wide so the animal sat"


@dataclass(frozen=True)
class Stage:
    """One cell: its code, and the software that could make it faster."""

    name: str
    code: str
    whose: str


STAGES = (
    Stage("import torch", "import torch", "torch"),
    Stage(
        "import transformers, as loading a model needs it",
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "from transformers import GPT2LMHeadModel, LlamaForCausalLM, PreTrainedTokenizerFast",
        "transformers",
    ),
    Stage("import anywidget and ipywidgets", "import anywidget, ipywidgets", "anywidget"),
    Stage("import attnviz", "import attnviz as av", "attnviz"),
    Stage("load the demo model", "model, tokenizer = av.demos.load('decoder')", "transformers"),
    Stage("import attnviz's modules", "av.extract, av.show_head_view", "attnviz"),
    Stage(
        "extract, the first time",
        f"record = av.extract(model, {_TEXT!r}, tokenizer=tokenizer)",
        "attnviz",
    ),
    Stage(
        "extract, again",
        f"record = av.extract(model, {_TEXT!r}, tokenizer=tokenizer)",
        "attnviz, again",
    ),
    Stage("make the head view", "view = av.HeadView(record)", "attnviz"),
    Stage("display it", "display(view)", "attnviz"),
    Stage("make and display another", "display(av.HeadView(record))", "attnviz, again"),
)
IN_BROWSER = (
    "unpack the view's code",
    "parse and run the code",
    "from an empty page to the picture, including both",
)
# Unpacks like `widget.js`. The browser parses the code when it is imported.
_LOAD = """async (packed) => {
  const begin = performance.now();
  const bytes = Uint8Array.from(atob(packed), (each) => each.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const code = await new Response(unpacked).text();
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const loaded = performance.now();
  await import(address);
  return [loaded - begin, performance.now() - loaded];
}"""
_DRAWN = """new MutationObserver(() => {
  if (document.querySelector("[data-attnviz-drawn]")) window.drawnAt ??= performance.now();
}).observe(document, { subtree: true, childList: true, attributes: true });"""
# Runs the code of a stage in the kernel, and prints wall-clock and CPU seconds.
_TIMED = """
import gc as _gc, json as _json, time as _time
_gc.collect()
_clock, _cpu = _time.perf_counter(), _time.process_time()
{code}
_took = [_time.perf_counter() - _clock, _time.process_time() - _cpu]
print("took", _json.dumps(_took))
"""


def _run(client: Any, code: str) -> tuple[str, dict[str, int]]:
    """Return the output of a cell, and the bytes of the comm messages it sends, by type."""
    printed: list[str] = []
    sent: dict[str, int] = {}

    def collect(message: dict[str, Any]) -> None:
        content, kind = message["content"], message["msg_type"]
        if kind == "stream" and content["name"] == "stdout":
            printed.append(content["text"])
        if kind.startswith("comm_"):
            size = len(json.dumps(content)) + sum(map(len, message["buffers"]))
            sent[kind] = sent.get(kind, 0) + size

    reply = client.execute_interactive(code, output_hook=collect, timeout=_READY_S)
    if reply["content"]["status"] != "ok":
        raise SystemExit(f"{code}: {reply['content'].get('evalue', '')}")
    return "".join(printed), sent


def in_a_kernel() -> dict[str, Any]:
    """Return wall-clock and CPU seconds of each stage in a new kernel."""
    start = time.perf_counter()
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=_READY_S)
        figures: dict[str, Any] = {"start the kernel": {"clock_s": time.perf_counter() - start}}
        for stage in STAGES:
            printed, sent = _run(client, _TIMED.format(code=stage.code))
            clock, cpu = json.loads(printed.rpartition("took ")[2])
            figures[stage.name] = {"clock_s": clock, "cpu_s": cpu}
            if sent:
                figures[stage.name]["sent_bytes"] = sum(sent.values())
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return figures


def in_a_browser(turns: int) -> dict[str, Any]:
    """Return the seconds until a live view has drawn in a new page, and of its parts."""
    record = av.AttentionRecord.from_weights(weights(4, 4, 16), texts(16))
    code = packed_bundle("records")
    took: dict[str, list[float]] = {name: [] for name in IN_BROWSER}
    with sync_playwright() as playwright:
        for _ in range(turns):
            browser = playwright.chromium.launch(
                executable_path=find_browser(), args=list(CHROMIUM_FLAGS)
            )
            page = browser.new_page(viewport=VIEWPORT)
            page.goto("about:blank")
            parts = page.evaluate(_LOAD, code)
            page.close()
            page = browser.new_page(viewport=VIEWPORT)
            page.add_init_script(_DRAWN)
            LiveView(page, av.HeadView(record), rest=False)
            page.wait_for_selector("[data-attnviz-drawn]")
            for name, ms in zip(IN_BROWSER, (*parts, page.evaluate("drawnAt")), strict=True):
                took[name].append(ms / 1e3)
            browser.close()
    return {name: {"clock_s": values} for name, values in took.items()}


def main(turns: str = "3") -> None:
    """Write the time of each stage, once per turn."""
    runs = [in_a_kernel() for _ in range(int(turns))]
    figures = {
        stage: {name: [run[stage][name] for run in runs] for name in runs[0][stage]}
        for stage in runs[0]
    }
    sys.stdout.write(json.dumps(figures | in_a_browser(int(turns))) + "\n")


def rows(figures: Mapping[str, Mapping[str, Figure]]) -> list[list[str]]:
    """Return the lines of the table."""
    whose = {stage.name: stage.whose for stage in STAGES}
    whose |= dict.fromkeys(IN_BROWSER, "attnviz, in the browser")
    lines = [["", "whose", "clock", "CPU time", "sent to the browser"]]
    for stage, values in figures.items():
        sent = values.get("sent_bytes")
        lines.append(
            [
                stage,
                whose.get(stage, "Jupyter"),
                spread(values["clock_s"], seconds),
                spread(values["cpu_s"], seconds) if "cpu_s" in values else "",
                "" if sent is None else megabytes(median(sent)),
            ]
        )
    own = [
        median(values["clock_s"])
        for name, values in figures.items()
        if whose.get(name) == "attnviz"
    ]
    lines.append(["attnviz's own so far, in the kernel", "attnviz", seconds(sum(own)), "", ""])
    return lines


SECTION = Section(
    name="starting",
    title="Start",
    words="""The stages lead from a new Jupyter kernel to the first picture, one after the other.
The last ones run in a new browser without a notebook. The bytes that are sent to the browser
contain the view's code, compressed.""",
    module="benchmarks.starting",
    rows=rows,
    runs=(("3",),),
    quick=(("1",),),
    seconds=27,
)


if __name__ == "__main__":
    main(*sys.argv[1:])
