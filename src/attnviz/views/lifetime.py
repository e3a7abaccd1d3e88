"""Close the views of a cell when it runs again, unless a variable refers to them.

ipywidgets refers to every widget until `close()` is called, and IPython's history (`_`, `Out[3]`)
refers to every result, each with the view's record. When a cell runs again, both drop the views
that the cell created. A view without other references closes.

Hosts that do not identify the running cell (Colab, marimo, scripts) keep all views until `close()`
is called. The same holds for views from callbacks, which run in no cell.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Any

import ipywidgets
from ipywidgets.widgets import widget as registry

__all__ = ["end_with_cell", "forget_result", "hold_weakly", "weakly"]

# Views that were opened in each cell. The key None has the views from unknown cells.
_views_by_cell: dict[str | None, weakref.WeakSet[ipywidgets.Widget]] = {}


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a bound method in a function with a weak reference to its object."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any, **options: Any) -> Any:
        bound_method = reference()
        return None if bound_method is None else bound_method(*arguments, **options)

    return call


def hold_weakly(widget: ipywidgets.Widget) -> None:
    """Make ipywidgets refer to a widget only weakly."""
    # The entry stays in the registry, because a reloaded page asks ipywidgets for all widgets.
    registry._instances[widget.comm.comm_id] = weakref.proxy(widget)
    widget.comm.on_msg(weakly(widget._handle_msg))


def end_with_cell(view: ipywidgets.Widget) -> None:
    """Drop the references to a view when the current cell runs again."""
    _views_by_cell.setdefault(_current_cell(), weakref.WeakSet()).add(view)
    shell = _shell()
    if shell is not None and _before_cell not in shell.events.callbacks["pre_run_cell"]:
        shell.events.register("pre_run_cell", _before_cell)


def forget_result(view: ipywidgets.Widget) -> None:
    """Remove a view from IPython's history of results. Variables of the user stay."""
    shell = _shell()
    if shell is None:
        return
    results = shell.user_ns.get("_oh", {})
    for number in [number for number, value in results.items() if value is view]:
        del results[number]
    # IPython lists here the names that it added to the user's names, such as `_` and `_3`.
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
    """Return the id of the cell that runs, or None if the host names none."""
    parent = getattr(_shell(), "parent_header", None)
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    cell = metadata.get("cellId") if isinstance(metadata, dict) else None
    return cell if isinstance(cell, str) else None


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


@atexit.register
def _leave_open() -> None:
    """Close no view at shutdown, when modules that `close` needs are gone."""
    for views in _views_by_cell.values():
        for view in views:
            view.comm = view.layout.comm = None
