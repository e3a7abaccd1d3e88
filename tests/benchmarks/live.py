"""A live view without a notebook: its own bundle in a page, answered by the view's own server.

What crosses is counted: requests, the bytes of their answers, and the logits computed for them.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from playwright.sync_api import Page

from attnviz.embedding.server.server import CorpusServer
from attnviz.embedding.view import EmbeddingView
from attnviz.pages.html import bundle
from attnviz.record.attention import QueryKeyAttention
from attnviz.server.kernel import KernelChannel
from attnviz.server.server import RecordServer
from attnviz.views.base import View
from attnviz.views.record_view import RecordView

# The parts of anywidget's model that views use. Nothing is shown before all was asked for: a view
# is at rest when it is drawn and nothing has been asked or answered for a while.
_HOST = """async ([bundle, state]) => {
  const listeners = [];
  const tell = (event, ...args) => {
    for (const [name, listener] of [...listeners]) if (name === event) listener(...args);
  };
  let last = performance.now();
  window.answeredLast = () => last;
  let waiting = 0;
  // Frames and no clock: on a busy machine all takes longer, and they do.
  let quietFrames = 0;
  const frame = () => {
    quietFrames++;
    requestAnimationFrame(frame);
  };
  frame();
  window.stir = () => {
    quietFrames = 0;
  };
  const model = {
    get: (name) => state[name],
    set: (name, value) => {
      state[name] = value;
      tell(`change:${name}`);
    },
    save_changes: () => {},
    on: (name, listener) => listeners.push([name, listener]),
    off: () => {},
    send: async (message) => {
      last = performance.now();
      window.stir();
      waiting++;
      for (const [answer, data] of await window.answers(message, place())) {
        const bytes = data === null ? null : Uint8Array.fromBase64(data);
        tell("msg:custom", answer, bytes ? [new DataView(bytes.buffer)] : []);
      }
      waiting--;
      last = performance.now();
      window.stir();
    },
  };
  const place = () =>
    document.querySelector("body > [data-attnviz-drawn]")?.dataset.attnvizDrawn ?? null;
  window.setTrait = (name, value) => model.set(name, value);
  window.rested = () => place() !== null && waiting === 0 && quietFrames > 30;
  const address = URL.createObjectURL(new Blob([bundle], { type: "text/javascript" }));
  const widget = (await import(address)).default();
  widget.initialize({ model });
  widget.render({ model, el: document.body });
}"""


class LiveView:
    """A view at work in a page.

    Parameters
    ----------
    page : Page
        An empty page. It must not have held a live view before.
    view : View
        What is shown.
    heard : callable, optional
        Is told every request and its answer.
    rest : bool, default True
        Whether to wait until all is there.
    server : Server, optional
        What answers, in place of one of the view's record alone.
    described : bool or callable, default False
        Whether the widget comes with its description, as in a notebook. A function is called once
        that is made.

    Attributes
    ----------
    asked : list of tuple
        Every request: its name, its arguments, and what was drawn then (``data-attnviz-drawn``).
    """

    def __init__(
        self,
        page: Page,
        view: View,
        *,
        heard: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
        rest: bool = True,
        server: RecordServer | None = None,
        described: bool | Callable[[], None] = False,
    ) -> None:
        self._page = page
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.requests: Counter[str] = Counter()
        self.bytes = 0
        self._said: list[tuple[dict[str, Any], list[bytes]]] = []
        self._heard = heard
        # Without pages: they would only be offered.
        self._server: RecordServer | CorpusServer = server or (
            CorpusServer(view.corpus)
            if isinstance(view, EmbeddingView)
            else RecordServer(view.served_record if isinstance(view, RecordView) else view.record)
        )
        self._channel = KernelChannel(self._server, lambda *answer: self._said.append(answer))
        page.expose_function("answers", self._answers)
        description = dict(view._served.reply("describe", {}).header) if described else None
        if callable(described):
            described()
        # Only what is JSON already; the rest is of the host, not of the view.
        traits = {
            name: value
            for name, value in view.get_state().items()
            if not name.startswith("_") and name != "layout"
        }
        page.goto("about:blank")
        page.evaluate(_HOST, [bundle(view.name), traits | {"_description": description}])
        if rest:
            self.rest()

    def set(self, name: str, value: Any) -> None:
        """Set a trait, as Python does."""
        self._page.evaluate("([name, value]) => window.setTrait(name, value)", [name, value])

    def rest(self) -> None:
        """Wait until it is drawn and all that it asked for has come, also of what was just done."""
        self._page.evaluate("() => window.stir()")
        self._page.wait_for_function("() => window.rested()")

    def count(self) -> dict[str, int]:
        """What was asked since the last count, by name, and the bytes of the answers."""
        counted = {f"requests {name}": times for name, times in sorted(self.requests.items())}
        counted["bytes received"] = self.bytes
        self.requests.clear()
        self.bytes = 0
        return counted

    @property
    def bytes_held(self) -> int:
        """What the kernel keeps of its answers' making."""
        if isinstance(self._server, CorpusServer):
            return self._server.answers._plots.num_bytes + self._server.parts.num_bytes
        return self._server.row_normalizers.num_bytes

    def _answers(
        self, message: dict[str, Any], drawn: str | None
    ) -> list[tuple[dict[str, Any], str | None]]:
        self._said.clear()
        self._channel.receive(message)
        # What a slow machine makes in several replies counts once, as its answer.
        goes_on = any("pending" in answer.get("header", {}) for answer, _ in self._said)
        if message.get("attnviz") == "request" and not goes_on:
            self.requests[message["name"]] += 1
            self.asked.append((message["name"], message["arguments"], drawn))
        answers: list[tuple[dict[str, Any], str | None]] = []
        for answer, buffers in self._said:
            data = buffers[0] if buffers else None
            # An id is of random length.
            plain = {name: value for name, value in answer.items() if name != "id"}
            if not goes_on:
                self.bytes += len(json.dumps(plain)) + len(data or b"")
            answers.append((answer, None if data is None else base64.b64encode(data).decode()))
            if self._heard is not None and not goes_on:
                self._heard(message, answer)
        return answers


@contextmanager
def logits_computed() -> Iterator[Counter[str]]:
    """Count the logits that are computed from queries and keys meanwhile, under "logits"."""
    counted: Counter[str] = Counter()
    compute = QueryKeyAttention.shared_logits

    def counting(self: QueryKeyAttention, *arguments: Any, **options: Any) -> Any:
        logits = compute(self, *arguments, **options)
        counted["logits"] += logits.numel()
        return logits

    with mock.patch.object(QueryKeyAttention, "shared_logits", counting):
        yield counted
