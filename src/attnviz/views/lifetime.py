"""How long a view lives: as long as it is seen or held.

ipywidgets holds every widget until `close()` is called, and with the widget its record. A view is
held here only while it is seen: while one of the cells that made or displayed it shows what its
last run showed, or while a browser draws it. When a cell runs again, its earlier views lose that
cell; once no browser says that it still draws such a view (another tab, a copy of the output, an
`ipywidgets.Output`, a box in another cell), it is let go: IPython's history (`_`, `Out[3]`) forgets
it, and ipywidgets knows it only weakly. If no variable holds it, it ends there, with its record,
its comm and its model in the browser. If one does, it lives on, and is held again as soon as it is
displayed or drawn.

A box of ipywidgets with views in it (`HBox`, `Tab`, boxes in boxes) holds them, and lives by the
same rules, as do sliders and buttons that were made in the same cell and stand in it, and links of
`ipywidgets.jslink` to any of them. Such a box is drawn while its views are. Boxes without views,
and widgets that another cell made, stay as ipywidgets keeps them.

What is not known holds the view: a host that names no cells (Colab, marimo, a script), a view or a
box that was made in a callback, and a page that disappeared without a word while a browser drew the
view. There `close()` ends it, as everywhere.
"""

from __future__ import annotations

import atexit
import gc
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ipywidgets
from ipywidgets.widgets import widget as registry
from ipywidgets.widgets.widget_link import Link

__all__ = ["Lifetime", "watch_cells", "weakly"]

# What IPython's history calls results: `_`, `__`, `___`, `_3`.
_HISTORY_NAME = re.compile(r"_{1,3}|_\d+")

_lock = threading.RLock()
_lifetimes: weakref.WeakSet[Lifetime] = weakref.WeakSet()
# Views that were let go and that something still holds: a variable, or only a circle of references.
_let_go: weakref.WeakSet[Lifetime] = weakref.WeakSet()


@dataclass
class _Run:
    """The run of a cell, and the ids of the widgets that were there before it."""

    cell: str | None
    widgets_before: frozenset[str]


_run = _Run(None, frozenset())


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method as a function that does not hold its object, and does nothing once it died."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any, **options: Any) -> Any:
        found = reference()
        return None if found is None else found(*arguments, **options)

    return call


class Lifetime:
    """Where a view or a box of views is seen, and with that, whether it is held.

    Parameters
    ----------
    widget : DOMWidget
        Is not held by this.
    """

    # The name `sys` may be gone from this module before the last view is.
    _at_the_end = staticmethod(sys.is_finalizing)

    def __init__(self, widget: ipywidgets.DOMWidget) -> None:
        self._widget = weakref.ref(widget)
        # Cells by their ids; None is a place that is not known, which no later run replaces.
        self._cells: set[str | None] = {_current_cell()}
        self._pictures: set[str] = set()
        # Of a box: what else stands in it, and the views that were made with it.
        self._parts: weakref.WeakSet[ipywidgets.Widget] = weakref.WeakSet()
        self._own: weakref.WeakSet[Lifetime] = weakref.WeakSet()
        self._held = True
        with _lock:
            _lifetimes.add(self)

    @property
    def seen(self) -> bool:
        """Whether a cell or a browser shows the widget, as far as that is known."""
        if self._cells or self._pictures:
            return True
        widget = self._widget()
        if not isinstance(widget, ipywidgets.Box):
            return False
        views = list(_views(widget))
        # A view that was there before the box may be drawn by itself, which says nothing of the
        # box. A box that lost its views is none of this module's affair.
        own = [view for view in views if view in self._own]
        return not views or any(view._pictures for view in own or views)

    def displayed(self) -> None:
        """The cell that runs displays the widget."""
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
        elif said == "gone" or (said == "left" and self._in_a_cell()):
            self._remove(picture)

    def _remove(self, picture: Any) -> None:
        with _lock:
            if isinstance(picture, str) and picture in self._pictures:
                self._pictures.discard(picture)
                self._update()

    def closed(self) -> None:
        """The view was closed, here or by the browser."""
        if self._at_the_end():
            # ipywidgets' names are gone by then.
            return
        with _lock:
            self._cells.clear()
            self._pictures.clear()
            self._update()

    def takes_part(self, made: Iterable[ipywidgets.Widget]) -> None:
        """Note which of the widgets that were just made stand in this box."""
        box = self._widget()
        inside = set() if box is None else set(_inside(box))
        for widget in inside.intersection(made):
            lifetime = _lifetime(widget)
            if lifetime is not None:
                self._own.add(lifetime)
            elif isinstance(widget, ipywidgets.DOMWidget):
                self._parts.add(widget)
                _hear_of_display(widget)

    def _in_a_cell(self) -> bool:
        """Whether a cell shows the view, by itself or in a box."""
        return bool(self._cells) or any(
            lifetime._cells and self in _views(box)
            for lifetime in _known()
            if isinstance(box := lifetime._widget(), ipywidgets.Box)
        )

    def _update(self) -> None:
        """Hold the widget if it is seen, and let it go if not; and then the boxes that it is in."""
        widget = self._widget()
        if widget is None:
            return
        self._held = self.seen
        for each in [widget, *self._parts]:
            (_hold if self._held else _hold_weakly)(each)
        if self._held:
            _let_go.discard(self)
        else:
            _let_go.add(self)
            _forget_result(widget)
        for other in _known():
            if other._held != other.seen:
                other._update()


def _hold(widget: ipywidgets.Widget) -> None:
    """Have ipywidgets hold a widget, as it does with any."""
    for each in _with_models(widget):
        registry._instances[each.comm.comm_id] = each


def _hold_weakly(widget: ipywidgets.Widget) -> None:
    """Let a widget end with the last variable or box that holds it."""
    for each in _with_models(widget):
        # Never out of it: a box that holds the widget may be asked for by a page that is loaded
        # again.
        registry._instances[each.comm.comm_id] = weakref.proxy(each)
        each.comm.on_msg(weakly(each._handle_msg))


def _with_models(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """A widget, its layout and its style: what has a comm of its own."""
    # Not `widget.layout`, which makes one for a view that was refused before it had any.
    for each in (widget, *map(widget._trait_values.get, ("layout", "style"))):
        if isinstance(each, ipywidgets.Widget) and each.comm is not None:
            yield each


def _lifetime(widget: ipywidgets.Widget) -> Lifetime | None:
    """Of a view, or of a box that is known here."""
    found = vars(widget).get("_lifetime")
    return found if isinstance(found, Lifetime) else None


def _inside(box: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """What stands in a box, and in the boxes in it; each once."""
    found: dict[ipywidgets.Widget, None] = {}
    left = [box]
    while left:
        widget = left.pop()
        if isinstance(widget, ipywidgets.Box):
            new = [child for child in widget.children if child not in found and child is not box]
            found.update(dict.fromkeys(new))
            left += new
    yield from found


def _views(box: ipywidgets.Widget) -> Iterator[Lifetime]:
    """The lifetimes of all views in a box."""
    for widget in _inside(box):
        lifetime = _lifetime(widget)
        if lifetime is not None and not isinstance(widget, ipywidgets.Box):
            yield lifetime


def _hear_of_display(widget: ipywidgets.Widget) -> None:
    """Hear of it when this one widget is displayed by itself."""
    if "_repr_mimebundle_" in vars(widget):
        return
    reference = weakref.ref(widget)
    bundle = weakly(widget._repr_mimebundle_)

    def display(**options: Any) -> Any:
        if (displayed := reference()) is not None:
            _displayed(displayed)
        return bundle(**options)

    # On the widget itself, where ipywidgets puts None when it closes one.
    widget._repr_mimebundle_ = display


def _displayed(widget: ipywidgets.Widget) -> None:
    lifetime = _lifetime(widget)
    if lifetime is not None:
        lifetime.displayed()
        return
    # Where it stands by itself, no box says how long it is seen: it is ipywidgets' own again.
    with _lock:
        for box in _known():
            box._parts.discard(widget)
        _hold(widget)


def watch_cells() -> None:
    """Hear of every cell that runs, in IPython."""
    shell = _shell()
    if shell is not None and _cell_runs not in shell.events.callbacks["pre_run_cell"]:
        _run.cell, _run.widgets_before = _current_cell(), frozenset(registry._instances)
        shell.events.register("pre_run_cell", _cell_runs)
        shell.events.register("post_run_cell", _cell_ran)


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
    _run.cell, _run.widgets_before = cell, frozenset(registry._instances)


def _cell_ran(result: Any) -> None:
    """Take over the boxes of views, and the links to them, that the cell has made."""
    cell = getattr(result.info, "cell_id", None)
    # Not of a notebook that names no cells, nor of a cell that ran another one.
    if cell is None or cell != _run.cell:
        return
    made = [
        widget
        for key, widget in list(registry._instances.items())
        if key not in _run.widgets_before and type(widget) is not weakref.ProxyType
    ]
    with _lock:
        for widget in made:
            if isinstance(widget, ipywidgets.Box) and any(_views(widget)):
                widget._lifetime = Lifetime(widget)
                _hear_of_display(widget)
        for lifetime in _known():
            lifetime.takes_part(made)
        for widget in made:
            if isinstance(widget, Link):
                _hold_by_its_ends(widget)


def _hold_by_its_ends(link: Link) -> None:
    """Have a link live as long as a view, or what stands in a box with one, that it links."""
    parts = {part for lifetime in _known() for part in lifetime._parts}
    ends = {widget for widget, _ in (link.source, link.target)}
    ours = [end for end in ends if end in parts or _lifetime(end) is not None]
    for end in ours:
        vars(end).setdefault("_linked_by", []).append(link)
    if ours:
        _hold_weakly(link)


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
    """Have nothing closed while the interpreter ends: ipywidgets' registry is gone by then."""
    for lifetime in list(_lifetimes):
        for widget in filter(None, [lifetime._widget(), *lifetime._parts]):
            for each in _with_models(widget):
                each.comm = None
