"""Base class of the views' widgets: their code in the browser, their requests, and their end.

The overrides of internals of ipywidgets, anywidget and traitlets are in this module.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import ipywidgets
import traitlets

from attnviz.pages.html import bundle, packed_bundle
from attnviz.server.base import BaseServer
from attnviz.server.kernel import KernelChannel
from attnviz.utils.host import has_kernel, in_marimo
from attnviz.views.lifetime import end_with_cell, forget_result, hold_weakly, weakly

# Names of the traits that a page needs to create a widget without a kernel. These are the traits
# that every displayed widget shares with the browser, such as `layout`. Only `_view_count` is not
# needed: ipywidgets counts in it how often a page displays the widget.
_EMBEDDED_TRAITS = [
    name for name in ipywidgets.DOMWidget.class_traits(sync=True) if name != "_view_count"
]

_logger = logging.getLogger(__name__)


def embedded_state(widget: ipywidgets.DOMWidget, module: str) -> dict[str, Any]:
    """Return the state of a widget in a page of `ipywidgets.embed`, with another JavaScript module.

    The state always includes the traits in `_EMBEDDED_TRAITS`.
    """
    state = widget.get_state([*_EMBEDDED_TRAITS, "_esm", "_anywidget_id"]) | {"_esm": module}
    model = ("_model_name", "_model_module", "_model_module_version")
    return {name[1:]: state[name] for name in model} | {"state": state}


def _to_browser(value: None, widget: ServedWidget) -> Mapping[str, Any] | None:
    """Serialize the trait `_description` for a message to the browser.

    The message that opens the widget has the result of `_describe_now`. In all other messages, the
    value is None, because the browser needs the description only once.
    """
    del value
    return widget._describe_now() if widget._is_opening else None


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


class ServedWidget(anywidget.AnyWidget):
    """Widget whose code in the browser sends requests to a server in Python.

    ipywidgets keeps a reference to each widget. Here, these references are weak, so that the widget
    and its record are freed when no variable refers to them (see `attnviz.views.lifetime`).
    """

    #: Name of the view, such as ``"head"``.
    name: ClassVar[str]
    #: Name of the JavaScript bundle that contains the code of the view. The file in
    #: ``js/src/widgets`` from which the bundle is built has the same name.
    _bundle: ClassVar[str] = "records"

    #: JavaScript code of the view: a widget that contains the code or, in marimo, the code itself.
    #: The module in `_esm` loads the code once for all views in a browser tab that have the same
    #: code.
    _code = traitlets.Union(
        [traitlets.Instance(WidgetCode), traitlets.Unicode()], read_only=True
    ).tag(sync=True, **ipywidgets.widget_serialization)

    # JavaScript module of the widget. Its default is computed when a view is created, not when the
    # class is defined. Therefore a missing bundle does not prevent the import of attnviz, and a
    # bundle that was built again is used without a restart of the kernel.
    _esm = traitlets.Unicode(read_only=True).tag(sync=True)

    # If the class did not have this trait, anywidget would add it to each view, which is slow (see
    # `add_traits`).
    _anywidget_id = traitlets.Unicode(read_only=True).tag(sync=True)

    #: Always None in Python. In the message that opens the widget, the value is the description of
    #: the record, if it is ready (see `_describe_now`). The browser can then draw without a further
    #: request. It reads the description once, and removes it from the state of the widget.
    _description = traitlets.Any(None, read_only=True).tag(sync=True, to_json=_to_browser)

    # Store this function in the class for `__del__`. At shutdown, Python may delete the global name
    # `sys` before it calls `__del__`.
    _is_finalizing = staticmethod(sys.is_finalizing)
    # Whether the message that opens the widget in the browser is being created.
    _is_opening = False

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        # Use weak references. A reference cycle would keep the view and its record in memory until
        # the next garbage collection, even if nothing else refers to the view.
        self._channel = KernelChannel(self._served, weakly(self._send_message))
        self.on_msg(weakly(self._receive_message))
        hold_weakly(self.layout)

    def _server(self) -> BaseServer:
        """Create the server that answers the requests of the browser."""
        raise NotImplementedError

    @cached_property
    def _served(self) -> BaseServer:
        """Server of this view, created at the first use."""
        return self._server()

    def _describe_now(self) -> Mapping[str, Any] | None:
        """Return the description for the message that opens the widget, or None.

        The result is None if the code does not run in a Jupyter kernel, if the description is long
        or not ready at once, or if computing the description raises an error. The browser then
        requests the description later, and shows the error if it occurs again.
        """
        if not has_kernel():
            return None
        try:
            reply = self._served.reply("describe", {})
        except Exception:
            _logger.debug("the view does not open with its description", exc_info=True)
            return None
        return None if "pending" in reply.header or reply.data is not None else reply.header

    def open(self) -> None:
        """Create the widget in the browser.

        The message that creates it also contains the tokens and the properties of the stacks (the
        description of the record), if these are short and ready. Otherwise the browser requests
        them later.

        Examples
        --------
        >>> view.open()                                  # doctest: +SKIP
        """
        self._is_opening = True
        try:
            super().open()
        finally:
            self._is_opening = False
        end_with_cell(self)

    def close(self) -> None:
        """Remove the view from the screen and from memory.

        Afterwards, neither ipywidgets nor IPython's history of results refers to the view. The
        record is freed when no variable refers to the view or to the record. A closed view can be
        displayed again.

        Examples
        --------
        >>> view.close()                                 # doctest: +SKIP
        """
        if "_served" in self.__dict__:
            self._served.close()
        super().close()
        forget_result(self)

    def __del__(self) -> None:
        # Do not call `close` at shutdown, because modules that it needs may already be deleted.
        if not self._is_finalizing():
            super().__del__()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Set traits to values from the browser.

        Traits that the browser must not change, such as the code of the view, are skipped.

        Parameters
        ----------
        sync_data : dict
            New values by trait name.
        """
        # ipywidgets would also set traits that are read only.
        own = {
            name
            for name in sync_data
            if getattr(getattr(type(self), name, None), "read_only", False)
        }
        super().set_state({name: sync_data[name] for name in sync_data.keys() - own - {"_css"}})

    @traitlets.observe("comm")
    def _comm_changed(self, change: Mapping[str, Any]) -> None:
        super()._comm_changed(change)
        if self.comm is not None and not in_marimo():
            self.comm.on_msg(weakly(self._handle_msg))
            # If the browser closes the comm, it does not show the view any longer, so close the
            # view.
            self.comm.on_close(weakly(self._comm_closed))

    def _comm_closed(self, message: Any) -> None:
        del message
        self.close()

    def _receive_message(self, widget: Any, message: Any, buffers: Any) -> None:
        del widget, buffers
        self._channel.receive(message)

    def _send_message(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.send(message, buffers=buffers)

    def add_traits(self, **traits: Any) -> None:
        """Add traits to this view, except those that its class already has.

        traitlets creates a new class for each object with added traits, even if the old class has
        these traits. Creating a class takes as long as creating the view, and only the garbage
        collector frees it.

        Parameters
        ----------
        **traits
            Passed to `traitlets.HasTraits.add_traits`.
        """
        new = {name: trait for name, trait in traits.items() if not self.has_trait(name)}
        if new:
            super().add_traits(**new)

    @traitlets.default("_esm")
    def _default_esm(self) -> str:
        return loader(self._bundle, self.name)

    @traitlets.default("_anywidget_id")
    def _default_anywidget_id(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}"

    @traitlets.default("_code")
    def _default_code(self) -> WidgetCode | str:
        return shared_code(self._bundle)
