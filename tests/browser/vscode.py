"""Run VS Code's widget manager in Chromium with a live widget of this process.

The manager is the bundle that VS Code's Jupyter extension loads into its output page
(``@vscode/jupyter-ipywidgets8``, from npm). The connection to the kernel is replaced by a comm that
exchanges its messages with the page directly.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import comm
from comm.base_comm import BaseComm

from attnviz.views import widget

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from playwright.sync_api import Locator, Page

    from attnviz.views.base import View

PACKAGES = Path(__file__).parents[2] / "js" / "node_modules"
MANAGER = PACKAGES / "@vscode" / "jupyter-ipywidgets8" / "dist" / "ipywidgets.js"
REQUIREJS = PACKAGES / "requirejs" / "require.js"
# VS Code loads widget scripts from the kernel's environment.
ANYWIDGET = Path(sys.prefix) / "share" / "jupyter" / "nbextensions" / "anywidget" / "index.js"


@dataclass(frozen=True)
class Theme:
    """Theme of VS Code: the attributes of an output page and two of its CSS variables."""

    kind: str
    foreground: str
    background: str

    @property
    def is_dark(self) -> bool:
        """Whether the background is dark."""
        return self.kind in {"vscode-dark", "vscode-high-contrast"}


# Values of VS Code's Dark Modern and Light Modern and of both high-contrast themes.
THEMES = [
    Theme("vscode-dark", "#cccccc", "#1f1f1f"),
    Theme("vscode-light", "#3b3b3b", "#ffffff"),
    Theme("vscode-high-contrast", "#ffffff", "#000000"),
    Theme("vscode-high-contrast-light", "#292929", "#ffffff"),
]

# The extension gives every widget a white background in all themes.
PAGE = """<!doctype html>
<html style="--vscode-editor-foreground: {foreground}; --vscode-editor-background: {background};
  --vscode-foreground: {foreground}">
<head><style>
.cell-output-ipywidget-background {{ background: white !important; }}
</style></head>
<body class="{kind}" data-vscode-theme-kind="{kind}">
<div id="output" class="cell-output-ipywidget-background"></div>
</body></html>"""

# Open the manager with a connection whose messages Python reads and writes. The reply to a message
# is the list of messages that the kernel sent while it handled that message.
OPEN = """async ({ manager, comms, root }) => {
  const address = URL.createObjectURL(new Blob([manager], { type: "text/javascript" }));
  (await import(address)).activate();
  window.vscIPyWidgets8.load();
  const signal = () => ({ connect() {}, disconnect() {}, emit() {} });
  const targets = new Map();
  const opened = new Map();
  const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer;
  window.fromKernel = async (messages) => {
    for (const message of messages) {
      const read = { ...message, buffers: message.buffers.map(bytes) };
      const comm = opened.get(message.content.comm_id);
      if (message.header.msg_type === "comm_open") await open(read);
      else if (message.header.msg_type === "comm_msg") await comm?.onMsg?.(read);
    }
  };
  const open = (message) => {
    const { comm_id: commId, target_name: targetName } = message.content;
    const comm = {
      commId,
      targetName,
      send(data, metadata, buffers) {
        const future = { msg: { header: { msg_id: String(Math.random()) } }, dispose() {} };
        future.done = window.toKernel(JSON.stringify({ comm_id: commId, data })).then(
          async (answers) => {
            await window.fromKernel(answers);
            const status = { content: { execution_state: "idle" }, header: { msg_type: "status" } };
            future.onIOPub?.({ ...status, parent_header: future.msg.header });
          },
        );
        return future;
      },
      close() {},
      dispose() {},
    };
    opened.set(commId, comm);
    return targets.get(targetName)(comm, message);
  };
  const kernel = {
    name: "python3", id: "k", clientId: "c", username: "u", status: "idle",
    connectionStatus: "connected", info: Promise.resolve({}), handleComms: true,
    statusChanged: signal(), connectionStatusChanged: signal(), iopubMessage: signal(),
    unhandledMessage: signal(), anyMessage: signal(), disposed: signal(),
    registerCommTarget: (name, callback) => targets.set(name, callback),
    removeCommTarget: () => {},
    requestCommInfo: async () => ({ content: { status: "ok", comms: {} } }),
    registerMessageHook() {}, removeMessageHook() {},
  };
  const load = (name) => new Promise((done, failed) => window.require([name], done, failed));
  const loader = {
    widgetsRegisteredInRequireJs: new Set(["anywidget"]),
    loadWidgetScript: load,
    successHandler() {},
    errorHandler(name, module, version, error) { console.error(`${module}: ${error}`); },
  };
  const output = document.getElementById("output");
  const { WidgetManager } = window.vscIPyWidgets;
  const widgets = new WidgetManager(kernel, output, loader, () => {}, undefined);
  await window.fromKernel(comms);
  const model = await widgets.get_model(root);
  await widgets.display_view({}, await widgets.create_view(model), { node: output });
}"""


class PageComm(BaseComm):
    """Comm that stores its messages until the page takes them."""

    sent: list[dict[str, Any]]

    def publish_msg(
        self,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        """Store a message in the format that the page reads."""
        message = {
            "header": {"msg_type": msg_type},
            "content": {"comm_id": self.comm_id, "data": data or {}, **keys},
            "metadata": metadata or {},
            "parent_header": {},
            "buffers": [base64.b64encode(bytes(buffer)).decode() for buffer in buffers or []],
        }
        # A kernel sends JSON as well.
        self.sent.append(json.loads(json.dumps(message)))


@dataclass
class VSCode:
    """Output page of VS Code that shows one live widget of this process.

    Parameters
    ----------
    page : Page
        Empty page.
    theme : Theme
        Theme of the page.
    folder : Path
        Folder for the HTML file of the page.
    """

    page: Page
    theme: Theme
    folder: Path
    sent: list[dict[str, Any]] = field(default_factory=list)
    #: Names of all requests from the page.
    requested: list[str] = field(default_factory=list)
    _create_comm: Any = None

    def __enter__(self) -> Self:
        """Replace the factory of comms, so that new widgets are connected to this page."""
        made = type("PageCommHere", (PageComm,), {"sent": self.sent})
        self._create_comm, comm.create_comm = comm.create_comm, made
        # The page belongs to another kernel, which has not sent the code of views yet.
        widget._shared.clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the factory of comms."""
        comm.create_comm = self._create_comm

    def show(self, make: Callable[[], View]) -> View:
        """Create a widget and show it as an output."""
        view = make()
        self.page.expose_function("toKernel", self._receive)
        file = self.folder / "output.html"
        file.write_text(PAGE.format(**vars(self.theme)), encoding="utf-8")
        self.page.goto(file.as_uri())
        self.page.add_script_tag(path=REQUIREJS)
        named = ANYWIDGET.read_text(encoding="utf-8").replace(
            'define(["@jupyter-widgets/base"]', 'define("anywidget", ["@jupyter-widgets/base"]'
        )
        self.page.add_script_tag(content=named)
        self.page.evaluate(
            OPEN,
            {
                "manager": MANAGER.read_text(encoding="utf-8"),
                "comms": self._taken(),
                "root": view.model_id,
            },
        )
        return view

    def deliver(self) -> None:
        """Send the pending messages of Python to the page."""
        self.page.evaluate("(messages) => window.fromKernel(messages)", self._taken())

    @property
    def root(self) -> Locator:
        """Root element of the view."""
        return self.page.locator("#output .attnviz")

    def _receive(self, text: str) -> list[dict[str, Any]]:
        message = json.loads(text)
        content = message["data"].get("content", {})
        if content.get("attnviz") == "request":
            self.requested.append(content["name"])
        connection = comm.get_comm_manager().get_comm(message["comm_id"])
        assert connection is not None
        connection.handle_msg({"content": {"data": message["data"]}, "buffers": []})
        return self._taken()

    def _taken(self) -> list[dict[str, Any]]:
        taken = list(self.sent)
        self.sent.clear()
        return taken
