"""A live view without a notebook: its bundle runs in a page, and its server answers.

The class counts requests, bytes of the replies, and the logits that were computed.
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

# The parts of anywidget's model that views use. A view is at rest when it is drawn and no request
# or reply came for a while.
_HOST = """async ([bundle, name, state]) => {
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
      for (const [answer, data] of await window.answers(message, drawnState())) {
        const bytes = data === null ? null : Uint8Array.fromBase64(data);
        tell("msg:custom", answer, bytes ? [new DataView(bytes.buffer)] : []);
      }
      waiting--;
      last = performance.now();
      window.stir();
    },
  };
  const drawnState = () =>
    document.querySelector("body > [data-attnviz-drawn]")?.dataset.attnvizDrawn ?? null;
  window.setTrait = (name, value) => model.set(name, value);
  window.rested = () => drawnState() !== null && waiting === 0 && quietFrames > 30;
  const address = URL.createObjectURL(new Blob([bundle], { type: "text/javascript" }));
  const widget = (await import(address))[name]();
  widget.initialize({ model });
  widget.render({ model, el: document.body });
}"""


class LiveView:
    """A running view in a page.

    Parameters
    ----------
    page : Page
        An empty page that has never shown a live view.
    view : View
        The view to show.
    on_reply : callable, optional
        Called with every request and its reply.
    rest : bool, default True
        Whether to wait until the view is at rest.
    server : Server, optional
        The server, by default one for the view's record.
    described : bool or callable, default False
        Whether the widget has its text description, as in a notebook. A function is called after
        the description was made.

    Attributes
    ----------
    asked : list of tuple
        Every request: its name, its arguments, and ``data-attnviz-drawn`` at that moment.
    """

    def __init__(
        self,
        page: Page,
        view: View,
        *,
        on_reply: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
        rest: bool = True,
        server: RecordServer | None = None,
        described: bool | Callable[[], None] = False,
    ) -> None:
        self._page = page
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.requests: Counter[str] = Counter()
        self.bytes = 0
        self._said: list[tuple[dict[str, Any], list[bytes]]] = []
        self._on_reply = on_reply
        # The server has no pages, because the view would only offer to save them.
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
        # Only JSON values: the others belong to the host.
        traits = {
            name: value
            for name, value in view.get_state().items()
            if not name.startswith("_") and name != "layout"
        }
        page.goto("about:blank")
        page.evaluate(
            _HOST, [bundle(view._bundle), view.name, traits | {"_description": description}]
        )
        if rest:
            self.rest()

    def set(self, name: str, value: Any) -> None:
        """Set a trait, as Python does."""
        self._page.evaluate("([name, value]) => window.setTrait(name, value)", [name, value])

    def rest(self) -> None:
        """Wait until the view is drawn and all replies have arrived, including those of the last
        action.
        """
        self._page.evaluate("() => window.stir()")
        self._page.wait_for_function("() => window.rested()")

    def count(self) -> dict[str, int]:
        """Return the requests since the last count by name, and the bytes of the replies."""
        counted = {f"requests {name}": times for name, times in sorted(self.requests.items())}
        counted["bytes received"] = self.bytes
        self.requests.clear()
        self.bytes = 0
        return counted

    @property
    def bytes_held(self) -> int:
        """Return the bytes of the server's cache."""
        if isinstance(self._server, CorpusServer):
            stored = sum(len(data) for _, data in self._server.stored_answers.values())
            return self._server.answers._plots.num_bytes + stored
        return self._server.row_normalizers.num_bytes

    def _answers(
        self, message: dict[str, Any], drawn: str | None
    ) -> list[tuple[dict[str, Any], str | None]]:
        self._said.clear()
        self._channel.receive(message)
        # A reply that a slow machine splits into several messages counts once.
        goes_on = any("pending" in answer.get("header", {}) for answer, _ in self._said)
        if message.get("attnviz") == "request" and not goes_on:
            self.requests[message["name"]] += 1
            self.asked.append((message["name"], message["arguments"], drawn))
        answers: list[tuple[dict[str, Any], str | None]] = []
        for answer, buffers in self._said:
            data = buffers[0] if buffers else None
            # The length of the id is random.
            plain = {name: value for name, value in answer.items() if name != "id"}
            if not goes_on:
                self.bytes += len(json.dumps(plain)) + len(data or b"")
            answers.append((answer, None if data is None else base64.b64encode(data).decode()))
            if self._on_reply is not None and not goes_on:
                self._on_reply(message, answer)
        return answers


@contextmanager
def logits_computed() -> Iterator[Counter[str]]:
    """Count the logits computed from queries and keys inside the context, under "logits"."""
    counted: Counter[str] = Counter()
    compute = QueryKeyAttention.logits

    def counting(self: QueryKeyAttention, *arguments: Any, **options: Any) -> Any:
        logits = compute(self, *arguments, **options)
        counted["logits"] += logits.numel()
        return logits

    with mock.patch.object(QueryKeyAttention, "logits", counting):
        yield counted
