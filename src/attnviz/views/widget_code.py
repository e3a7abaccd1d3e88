"""JavaScript code of the views' widgets. The browser gets it once for all views of a notebook."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import ipywidgets
import traitlets

from attnviz.pages.html import bundle, packed_bundle
from attnviz.utils.host import in_marimo

# JavaScript module of each view's widget. It loads the code and runs it.
_LOADER = Path(__file__).with_name("widget.js")


class WidgetCode(ipywidgets.Widget):  # type: ignore[misc]
    """Widget without a picture that holds the code of views.

    All views refer to it, so a browser gets the code once, and a saved notebook contains it once.

    Attributes
    ----------
    code : str
        Bundle of JavaScript, deflated and in base64.
    """

    code = traitlets.Unicode().tag(sync=True)

    def set_state(self, sync_data: dict[str, object]) -> None:
        """Ignore values from the browser, which must not change the code."""


# Widgets that hold code, by the name of the bundle.
_shared: dict[str, WidgetCode] = {}


def shared_code(name: str) -> WidgetCode | str:
    """Return the widget that holds a bundle. In marimo, return the packed bundle itself.

    In some versions of marimo, a widget cannot refer to another widget.
    """
    code = packed_bundle(name)
    if in_marimo():
        return code
    shared = _shared.get(name)
    # Create a new widget if the bundle was built again, or if the widget was closed, for example
    # by `ipywidgets.Widget.close_all`.
    if shared is None or shared.code != code or shared.comm is None:
        shared = _shared[name] = WidgetCode(code=code)
    return shared


@cache
def _loader(code: str, view: str) -> str:
    digest = hashlib.sha256(code.encode()).hexdigest()
    text = _LOADER.read_text(encoding="utf-8")
    return text.replace("HASH", digest).replace("VIEW", view)


def loader(name: str, view: str) -> str:
    """Return the JavaScript module of a view's widget.

    Parameters
    ----------
    name : str
        Name of the bundle that contains the view.
    view : str
        Name of the view, such as ``"head"``.
    """
    return _loader(bundle(name), view)
