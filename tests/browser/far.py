"""A notebook on a server that is far away, and what crosses until a view is drawn."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from browser.jupyter import JupyterLab
from browser.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from browser.jupyter import JupyterServer, Notebook

#: Seconds each way to a kernel in another country.
FAR_S = 0.15
# What is drawn there, as a script of the page: the first view that is not drawn yet when it begins.
VIEW_IS_DRAWN = "[...cell.querySelectorAll('.attnviz-host > [data-attnviz-drawn]')].length > 0"

# Notes every request that a widget sends, and when: JupyterLab's messages are one text in bytes.
_WATCH = """() => {
  const { send } = WebSocket.prototype;
  window.sent = [];
  WebSocket.prototype.send = function (data) {
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    const found = text.match(/"attnviz":"request","id":"[^"]*","name":"([^"]*)"/);
    if (found) window.sent.push([performance.now(), found[1]]);
    if (/"msg_type":"execute_request"/.test(text)) window.executed ??= performance.now();
    send.call(this, data);
  };
}"""
_BEGIN = """([number, drawn]) => {
  const cell = document.querySelectorAll(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")[number];
  const isDrawn = new Function("cell", `return ${drawn}`);
  window.sent = [];
  window.executed = undefined;
  window.drawnAt = null;
  const observer = new MutationObserver(() => {
    if (window.drawnAt !== null || !isDrawn(cell)) return;
    window.drawnAt = performance.now();
    observer.disconnect();
  });
  observer.observe(cell, { childList: true, subtree: true, attributes: true });
}"""


@dataclass(frozen=True)
class FirstPicture:
    """How a cell came to its picture.

    Attributes
    ----------
    seconds : float
        From the message that runs the cell to the picture.
    asked : list of str
        Requests of views that were sent before it.
    """

    seconds: float
    asked: list[str]


@contextmanager
def far_lab(
    browser: Browser, server: JupyterServer, delay_s: float = FAR_S
) -> Iterator[tuple[JupyterLab, Relay]]:
    """JupyterLab in a tab, and the relay by which it is `delay_s` away, once it has loaded."""
    with Relay(server.url, 0.0) as relay:
        lab = JupyterLab.open_in(browser, replace(server, url=relay.url))
        try:
            lab.page.evaluate(_WATCH)
            relay.delay_s = delay_s
            yield lab, relay
        finally:
            relay.delay_s = 0.0
            lab.close()


def first_picture(notebook: Notebook, cell: int, drawn: str = VIEW_IS_DRAWN) -> FirstPicture:
    """Run a cell, and wait for the first picture in it."""
    page = notebook.lab.page
    notebook.select(cell)
    # What an earlier run drew would be taken for the picture.
    notebook.lab.command("notebook:clear-cell-output")
    expect(notebook.output(cell)).to_be_empty()
    page.evaluate(_BEGIN, [cell, drawn])
    notebook.lab.command("notebook:run-cell")
    page.wait_for_function("() => window.drawnAt !== null", timeout=90_000)
    at, began, sent = page.evaluate("() => [window.drawnAt, window.executed, window.sent]")
    return FirstPicture((at - began) / 1000, [name for when, name in sent if when < at])
