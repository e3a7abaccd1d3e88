"""Display of a live view in a notebook, with the picture that the notebook stores after it.

Readers see the picture if they open the saved notebook without a kernel. Each picture that is sent
changes the notebook. Therefore a picture is not sent for each click, but at the end of the cell
that changed the view or, if the reader changed it, after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

from attnviz.utils.bars import Output
from attnviz.utils.host import display_options, has_kernel, ipython, ipython_cell
from attnviz.utils.options import options
from attnviz.utils.progress import show_progress

if TYPE_CHECKING:
    from attnviz.views.base import View

_logger = logging.getLogger(__name__)

# View in each output that has a display id (`display(view, display_id=True)`), by this id.
_displayed: WeakValueDictionary[str | None, View] = WeakValueDictionary()

# Seconds without a change after which a picture is sent.
_PAUSE = 2.0


def display_view(view: View) -> None:
    """Display a view and its picture, unless the current cell already displays the view."""
    call = display_options()
    if not call and view.shown_in_cell is not None and view.shown_in_cell == ipython_cell():
        return
    from IPython.display import display

    if view.comm is None:
        # The view was closed, and `close` replaced `_repr_mimebundle_` with None. Restore it.
        view.__dict__.pop("_repr_mimebundle_", None)
        view.open()
    still = page = None
    if has_kernel() and options.snapshot is not False:
        # The bar may add an output to the cell, and the picture must directly follow the view.
        with show_progress("view"):
            still = draw_still(view)
            if still is not None and options.snapshot == "page":
                page = view._page_in_a_frame()()
    data, metadata = view._repr_mimebundle_() or ({}, {})
    display(data, metadata=metadata, raw=True, **call)
    display_id = call.get("transient", {}).get("display_id")
    before = _displayed.get(display_id) if call.get("update") else None
    if before is not None:
        # The output of its picture shows the picture of `view` from now on.
        _end_picture(before)
    if still is not None and (before is not None or not call.get("update")):
        from attnviz.pages.notebook import show_saved

        output = Output(display_id and f"{display_id}-picture", exists=before is not None)
        show_saved(output, still, page, view._estimated_height())
        follow_with_picture(view, partial(show_saved, output), still)
    if display_id is not None:
        _displayed[display_id] = view


def draw_still(view: View) -> str | None:
    """Return the picture of a view as HTML, or None if drawing it raises an error."""
    try:
        return view._still()
    except Exception:
        # Do not raise the error, because the view itself is displayed and shows the problem.
        _logger.warning("no picture of the view is saved in the notebook", exc_info=True)
        return None


def follow_with_picture(view: View, show: Callable[[str], object], still: str) -> None:
    """Call `show` with a new picture when the view no longer looks like the picture `still`."""
    # The picture of a cell that runs again belongs to a new output.
    _end_picture(view)
    view._saved = SavedPicture(view, show, still)


def _end_picture(view: View) -> None:
    """Leave the saved picture of the view as it is now."""
    if view._saved is not None:
        view._saved.end(view)
        view._saved = None


class SavedPicture:
    """Picture of a view in the output of a cell.

    Parameters
    ----------
    view : View
        View of the picture, of which only weak references are kept.
    show : callable
        Function that replaces the picture in the output.
    shown : str
        Picture in the output.
    """

    def __init__(self, view: View, show: Callable[[str], object], shown: str) -> None:
        self._view, self._show, self._shown = ref(view), show, shown
        self._is_stale = False
        self._timer: asyncio.TimerHandle | None = None
        # Names of the traits on which the picture depends.
        names = (*view.state_names(), "_record_number")
        self._names = [name for name in names if view.has_trait(name)]
        view.observe(self.note_change, self._names)

    def end(self, view: View) -> None:
        """Keep the picture as it is now."""
        view.unobserve(self.note_change, self._names)

    def note_change(self, change: Any = None) -> None:
        """Replace the picture at the end of the running cell, or after a pause."""
        del change
        if self._timer is not None:
            self._timer.cancel()
        events = _events()
        try:
            # marimo runs a cell and handles a message of the reader without the event loop.
            pause = 0 if events is None else _PAUSE
            self._timer = asyncio.get_running_loop().call_later(pause, self._refresh)
        except RuntimeError:
            self._timer = None
        if not self._is_stale:
            self._is_stale = True
            if events is not None:
                events.register("post_run_cell", self._refresh)
            elif self._timer is None:
                self._refresh()

    def _refresh(self, result: Any = None) -> None:
        """Replace the picture if the view has changed. IPython passes the `result` of a cell."""
        del result
        if not self._is_stale:
            return
        self._is_stale = False
        if (events := _events()) is not None:
            # A kernel can handle messages of widgets in another thread, which also refreshes.
            with suppress(ValueError):
                events.unregister("post_run_cell", self._refresh)
        view = self._view()
        still = None if view is None else draw_still(view)
        if still is not None and still != self._shown:
            self._shown = still
            self._show(still)


def _events() -> Any:
    """Return the events of IPython, or None outside of IPython, as in marimo."""
    return getattr(ipython(), "events", None)
