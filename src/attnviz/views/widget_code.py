"""JavaScript code of the views' widgets.

The code of several views is in one file, which is called a bundle. The browser gets each bundle
once for all views of a notebook.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import ipywidgets
import traitlets

from attnviz.pages.html import bundle, packed_bundle
from attnviz.utils.host import in_marimo

# Template of the JavaScript module of a view's widget. The module loads the bundle and runs it.
_LOADER = Path(__file__).with_name("widget.js")


class WidgetCode(ipywidgets.Widget):  # type: ignore[misc]
    """Invisible widget that holds a bundle.

    All views with this bundle refer to the widget. Therefore a browser gets the bundle once, and a
    saved notebook contains it once.

    Attributes
    ----------
    code : str
        Bundle of JavaScript, deflated and in base64.
    """

    code = traitlets.Unicode().tag(sync=True)

    def set_state(self, sync_data: dict[str, object]) -> None:
        """Ignore the values, because the browser must not change the code."""


# Widget that holds each bundle, by the name of the bundle.
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
