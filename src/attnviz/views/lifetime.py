"""How long a view lives: as long as it is seen or held.

ipywidgets holds every widget until `close()` is called, and with the widget its record. A view is
held here only while it is seen: while one of the cells that made or displayed it shows what its
last run showed, or while a browser draws it. When a cell runs again, its earlier views lose that
cell; once no browser says that it still draws such a view (another tab, a copy of the output, an
`ipywidgets.Output`, a box in another cell), it is let go: IPython's history (`_`, `Out[3]`) forgets
it, and ipywidgets knows it only weakly. If no variable holds it, it ends there, with its record,
its comm and its model in the browser. If one does, it lives on, and is held again as soon as it is
displayed or drawn.

What is not known holds the view: a host that names no cells (Colab, marimo, a script), a view that
was made in a callback, and a page that disappeared without a word while a browser drew the view.
A box of ipywidgets holds its views, and ipywidgets the box. There `close()` ends it, as everywhere.
"""

from __future__ import annotations

import atexit
import gc
import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ipywidgets
from ipywidgets.widgets import widget as registry

__all__ = ["Lifetime", "watch_cells", "weakly"]

# What IPython's history calls results: `_`, `__`, `___`, `_3`.
_HISTORY_NAME = re.compile(r"_{1,3}|_\d+")

_lock = threading.RLock()
_lifetimes: weakref.WeakSet[Lifetime] = weakref.WeakSet()
# Views that were let go and that something still holds: a variable, or only a circle of references.
_let_go: weakref.WeakSet[Lifetime] = weakref.WeakSet()


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method as a function that does not hold its object, and does nothing once it died."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any, **options: Any) -> Any:
        found = reference()
        return None if found is None else found(*arguments, **options)

    return call


class Lifetime:
    """Where a view is seen, and with that, whether it is held.

    Parameters
    ----------
    view : Widget
        Is not held by this.
    """

    def __init__(self, view: ipywidgets.DOMWidget) -> None:
        self._view = weakref.ref(view)
        # Cells by their ids; None is a place that is not known, which no later run replaces.
        self._cells: set[str | None] = {_current_cell()}
        self._pictures: set[str] = set()
        with _lock:
            _lifetimes.add(self)

    @property
    def seen(self) -> bool:
        """Whether a cell or a browser shows the view, as far as that is known."""
        return bool(self._cells or self._pictures)

    def displayed(self) -> None:
        """The cell that runs displays the view."""
        with _lock:
            self._cells.add(_current_cell())
            self._update()

    def cell_runs(self, cell: str) -> None:
        """A cell runs again: what it showed before is gone from it."""
        with _lock:
            if cell in self._cells:
                self._cells.discard(cell)
                self._update()

    def receive(self, message: Any) -> None:
        """Take what a browser says about its pictures of the view.

        ``{"attnviz": "drawn", "picture", "gone"}`` (`gone`: pictures, of this view or of others,
        whose end could not be said before), ``{"attnviz": "gone", "picture"}`` and, of a page that
        is left, ``{"attnviz": "left", "picture"}``; anything else is left alone.
        """
        if not isinstance(message, dict) or not isinstance(message.get("picture"), str):
            return
        said, picture = message.get("attnviz"), message["picture"]
        if said == "drawn":
            with _lock:
                self._pictures.add(picture)
                self._update()
            before = message.get("gone")
            for gone in before if isinstance(before, list) else []:
                for lifetime in _known():
                    lifetime._remove(gone)
        # Where no cell shows the view any more, a page that is loaded again still looks for it.
        elif said == "gone" or (said == "left" and self._cells):
            self._remove(picture)

    def _remove(self, picture: Any) -> None:
        with _lock:
            if isinstance(picture, str) and picture in self._pictures:
                self._pictures.discard(picture)
                self._update()

    def closed(self) -> None:
        """The view was closed, here or by the browser."""
        with _lock:
            self._cells.clear()
            self._pictures.clear()
            self._update()

    def _update(self) -> None:
        """Hold the view if it is seen, and let it go if not."""
        view = self._view()
        if view is None:
            return
        # Not `view.layout`, which makes one for a view that was refused before it had any.
        widgets = [view, view._trait_values.get("layout")]
        for widget in widgets:
            comm = None if widget is None else widget.comm
            if comm is not None:
                # Never out of it: a box that holds the view may be asked for by a page that is
                # loaded again.
                held = widget if self.seen else weakref.proxy(widget)
                registry._instances[comm.comm_id] = held
        if self.seen:
            _let_go.discard(self)
        else:
            _let_go.add(self)
            _forget_result(view)


def watch_cells() -> None:
    """Hear of every cell that runs, in IPython."""
    shell = _shell()
    if shell is not None:
        # A second time changes nothing.
        shell.events.register("pre_run_cell", _cell_runs)


def _cell_runs(info: Any) -> None:
    cell = getattr(info, "cell_id", None)
    if cell is None:
        return
    known = _known()
    with _lock:
        left = len(_let_go) > 0
        _let_go.clear()
    if left:
        # Let go before and still there: perhaps only in a circle, as linked views are. Looked for
        # once for each; what a variable holds stays.
        gc.collect()
    for lifetime in known:
        lifetime.cell_runs(cell)


def _known() -> list[Lifetime]:
    with _lock:
        return list(_lifetimes)


def _current_cell() -> str | None:
    """The id of the cell that runs, None where the host names none."""
    shell = _shell()
    parent = getattr(shell, "parent_header", None)
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    cell = metadata.get("cellId") if isinstance(metadata, dict) else None
    return cell if isinstance(cell, str) else None


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _forget_result(view: object) -> None:
    """Take a view out of IPython's history of results; variables of the user stay."""
    shell = _shell()
    if shell is None:
        return
    hook, results = shell.displayhook, shell.user_ns.get("_oh", {})
    for names in (shell.user_ns, shell.user_ns_hidden):
        for name, value in list(names.items()):
            if value is not view or not _HISTORY_NAME.fullmatch(name):
                continue
            if name.startswith("__") or name == "_":
                # A user's own `_` is none of the history's.
                if getattr(hook, name, None) is view:
                    names[name] = ""
            elif results.get(int(name[1:])) is view:
                del names[name]
    for number in [number for number, value in list(results.items()) if value is view]:
        del results[number]
    for name in ("_", "__", "___"):
        if getattr(hook, name, None) is view:
            setattr(hook, name, "")
    last = shell.last_execution_result
    if last is not None and last.result is view:
        last.result = None


@atexit.register
def _leave_open() -> None:
    """Have no view closed while the interpreter ends: ipywidgets' registry is gone by then."""
    for lifetime in list(_lifetimes):
        view = lifetime._view()
        if view is not None:
            view.comm = view.layout.comm = None
