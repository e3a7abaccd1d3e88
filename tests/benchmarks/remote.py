"""A notebook whose kernel is far away: seconds and requests until a cell's picture is drawn.

    cd tests && python -m benchmarks.remote 64 3 256 1

JupyterLab of the tests behind a relay on the loopback that holds every byte for 150 ms each way. A
cell is run in it that makes and shows a view of 12 x 12 heads, and BertViz's head view of the same
weights, whose scripts come at once, as from a browser's cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Route, sync_playwright

from attnviz.pages.image import find_browser
from benchmarks.figures import Figure, all_of, count, seconds, spread
from benchmarks.guarded import PEERS, TESTS, Limits
from benchmarks.opening import CHROMIUM_FLAGS, PACKAGES, SCRIPTS
from benchmarks.section import Section
from browser.far import FAR_S, VIEW_IS_DRAWN, far_lab, first_picture
from browser.jupyter import JupyterServer, Notebook

_MADE = """
import sys
sys.path += [{tests!r}, {peers!r}]
import attnviz as av, torch
from benchmarks.inputs import texts, weights
torch.set_num_threads(1)
given = weights(12, 12, {tokens})
tokens = texts({tokens})
record = av.AttentionRecord.from_weights(given, tokens)
vectors = [
    2 * torch.randn(12, 12, {tokens}, 64, generator=torch.Generator().manual_seed(seed)) / 64**0.25
    for seed in (0, 1)
]
pairs = av.AttentionRecord.from_qk(*vectors, tokens, causal=True)
from bertviz import head_view
"""
_SETTLE_MS = 700
VIEWS = {
    "head view": "av.HeadView(record)",
    "matrix view": "av.MatrixView(record)",
    "model view": "av.ModelView(record)",
    "neuron view": "av.NeuronView(pairs)",
}
_BERTVIZ = "BertViz, head_view"
_BERTVIZ_CELL = "head_view([layer[None] for layer in given], tokens)"
# Of more tokens its output has more bytes than the browser's driver passes on.
_BERTVIZ_TOKENS = 64
_BERTVIZ_IS_DRAWN = "cell.querySelector('#vis svg, [id^=bertviz] svg') !== null"


def _serve(context: BrowserContext, packages: Path) -> None:
    """Answer in the place of the CDN of BertViz's scripts, at once."""

    def serve(route: Route) -> None:
        path = route.request.url.rpartition("libs")[2]
        name = next(name for name in SCRIPTS if f"/{name}" in path)
        route.fulfill(path=packages / "node_modules" / SCRIPTS[name])

    context.route(lambda url: "cdnjs.cloudflare.com" in url, serve)


def _measured(notebook: Notebook, turns: int, *, bertviz: bool) -> dict[str, Any]:
    """Seconds and requests of every view, and of BertViz."""
    found: dict[str, Any] = {}

    def add(name: str, cell: int, drawn: str = VIEW_IS_DRAWN) -> None:
        picture = first_picture(notebook, cell, drawn)
        each = found.setdefault(name, {"seconds": [], "asked": []})
        each["seconds"].append(picture.seconds)
        each["asked"].append(len(picture.asked))
        # What is asked in advance belongs to no other cell.
        notebook.lab.page.wait_for_timeout(_SETTLE_MS)

    for _ in range(turns):
        for cell, name in enumerate(VIEWS, 1):
            add(f"attnviz, {name}", cell)
        if bertviz:
            add(_BERTVIZ, 1 + len(VIEWS), _BERTVIZ_IS_DRAWN)
    return found


def main(*arguments: str) -> None:
    """Write what each took, once a turn: of so many tokens, so many turns, and of others."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        command = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", *PACKAGES]
        subprocess.run(command, cwd=folder, check=True)
        server = JupyterServer.start(folder)
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=list(CHROMIUM_FLAGS)
        )
        try:
            with far_lab(browser, server) as (lab, _):
                _serve(lab.context, folder)
                # The first output that needs it does not wait for its loader.
                lab.page.add_script_tag(path=folder / "node_modules" / SCRIPTS["require"])
                for tokens, turns in zip(arguments[::2], arguments[1::2], strict=True):
                    made = _MADE.format(tests=str(TESTS), peers=str(PEERS), tokens=int(tokens))
                    cells = [made, *VIEWS.values(), _BERTVIZ_CELL]
                    notebook = lab.open(cells, own_kernel=True)
                    notebook.execute(made)
                    bertviz = int(tokens) <= _BERTVIZ_TOKENS
                    figures = _measured(notebook, int(turns), bertviz=bertviz)
                    sys.stdout.write(json.dumps({tokens: figures}) + "\n")
                    sys.stdout.flush()
        finally:
            browser.close()
            server.stop()


def rows(figures: Mapping[str, Mapping[str, Mapping[str, Figure]]]) -> list[list[str]]:
    """The table."""
    lines = [["tokens", "", "until it is drawn", "requests before"]]
    for tokens, views in figures.items():
        for name, each in views.items():
            asked = max(all_of(each["asked"]))
            lines.append([tokens, name, spread(each["seconds"], seconds), count(asked)])
    return lines


SECTION = Section(
    name="remote",
    title="A kernel far away",
    words=f"""A cell of JupyterLab whose server is {FAR_S * 1000:.0f} ms away, each way: from the
message that runs the cell until its picture is drawn, 12 layers of 12 heads, a causal mask. The
line is long and not narrow: bytes are delayed and not slowed down. The description of the record
travels with a view's widget; its weights are asked for. BertViz sends everything in its output; its
scripts, which it loads from a CDN, come at once from the same machine; of 256 tokens its output is
too large for this measurement.""",
    module="benchmarks.remote",
    rows=rows,
    runs=(("64", "2", "256", "1"),),
    quick=(("64", "1"),),
    seconds=85,
    # Its figures come all at once.
    limits=Limits(300, 12 << 30),
)


if __name__ == "__main__":
    main(*sys.argv[1:])
