"""Picture that a notebook stores with a live view, and its replacement after the view changed.

Each picture that is sent changes the notebook. Therefore a picture is not sent for each click, but
at the end of the cell that changed the view or, if the reader changed it, after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attnviz.utils.host import ipython

# Seconds without a change after which a picture is sent.
_PAUSE = 2.0


class SavedPicture:
    """Picture of a view in the output of a cell.

    Parameters
    ----------
    draw : callable
        Function that returns the picture of the current state as HTML, or None without a picture.
    show : callable
        Function that replaces the picture in the output.
    shown : str
        Picture in the output.
    """

    def __init__(
        self, draw: Callable[[], str | None], show: Callable[[str], object], shown: str
    ) -> None:
        self._draw, self._show, self._shown = draw, show, shown
        self._is_stale = False
        self._timer: asyncio.TimerHandle | None = None

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
        still = self._draw()
        if still is not None and still != self._shown:
            self._shown = still
            self._show(still)


def _events() -> Any:
    """Return the events of IPython, or None outside of IPython, as in marimo."""
    return getattr(ipython(), "events", None)
