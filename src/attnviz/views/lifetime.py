"""Closing of the views of a cell when the cell runs again, unless a variable refers to them.

Two references would keep the views of a cell, with their records, in memory. ipywidgets refers to
every widget until its `close()` is called. IPython's history (`_`, `Out[3]`) refers to every
result. When the cell runs again, both references to its views are removed. A view to which nothing
else refers is then deleted, which closes it.

Colab, marimo and scripts do not identify the running cell, so their views remain until `close()` is
called. Views that are created in callbacks also remain, because callbacks do not run in a cell.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

import ipywidgets
from ipywidgets.widgets import widget as registry

from attnviz.utils.host import ipython

# Views that were opened in each cell, by the id of the cell. The key None is for unknown cells.
_views_by_cell: dict[str | None, weakref.WeakSet[ipywidgets.Widget]] = {}


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a bound method, but has only a weak reference to its object.

    After the object is freed, the function does nothing and returns None.
    """
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any, **options: Any) -> Any:
        bound_method = reference()
        return None if bound_method is None else bound_method(*arguments, **options)

    return call


def hold_weakly(widget: ipywidgets.Widget) -> None:
    """Replace the references of ipywidgets to a widget by weak references."""
    # Keep an entry in the registry, because a reloaded browser page asks ipywidgets for all
    # widgets.
    registry._instances[widget.comm.comm_id] = weakref.proxy(widget)
    widget.comm.on_msg(weakly(widget._handle_msg))


def end_with_cell(view: ipywidgets.Widget) -> None:
    """Register a view, so that the references to it are removed when the current cell runs again.

    The references are those of ipywidgets and of IPython's history. If the id of the current cell
    is unknown, the references are never removed in this way.
    """
    _views_by_cell.setdefault(_current_cell(), weakref.WeakSet()).add(view)
    shell = ipython()
    if shell is not None and _before_cell not in shell.events.callbacks["pre_run_cell"]:
        shell.events.register("pre_run_cell", _before_cell)


def forget_result(view: ipywidgets.Widget) -> None:
    """Remove a view from IPython's history of results. Variables of the user are not changed."""
    shell = ipython()
    if shell is None:
        return
    results = shell.user_ns.get("_oh", {})
    for number in [number for number, value in results.items() if value is view]:
        del results[number]
    # `user_ns_hidden` has the variables that IPython itself created, such as `_` and `_3`.
    hidden = shell.user_ns_hidden
    for name in [name for name, value in hidden.items() if value is view]:
        del hidden[name]
        if shell.user_ns.get(name) is view:
            del shell.user_ns[name]
    for name in ("_", "__", "___"):
        if getattr(shell.displayhook, name) is view:
            setattr(shell.displayhook, name, None)
    last = shell.last_execution_result
    if last is not None and last.result is view:
        last.result = None


def _before_cell(info: Any) -> None:
    if info.cell_id is None:
        return
    for view in list(_views_by_cell.get(info.cell_id, ())):
        forget_result(view)
        if view.comm is not None:
            hold_weakly(view)


def _current_cell() -> str | None:
    """Return the id of the running cell, or None if the notebook program does not send it."""
    parent = getattr(ipython(), "parent_header", None)
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    cell = metadata.get("cellId") if isinstance(metadata, dict) else None
    return cell if isinstance(cell, str) else None


@atexit.register
def _leave_open() -> None:
    """Remove the comms of all views at shutdown, so that closing a view then does nothing.

    A comm is the connection of a widget to the browser. Closing a view with a comm needs modules
    that may already be deleted at shutdown.
    """
    for views in _views_by_cell.values():
        for view in views:
            view.comm = view.layout.comm = None
