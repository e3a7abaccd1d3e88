"""A view of a text that a model is producing: its record is replaced as tokens come.

The model generates in a thread, so that the kernel is free for the browser. The view is changed in
the kernel's own thread alone.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from attnviz.record.record import AttentionRecord
from attnviz.views.lifetime import weakly

__all__ = ["LiveGeneration"]

_running: weakref.WeakSet[LiveGeneration] = weakref.WeakSet()
# Seconds that a step may take once Python ends, and letters of what went wrong.
_LAST_STEP = 10.0
_MOST_LETTERS = 2000


@atexit.register
def _end_all() -> None:
    """Have no thread in the middle of a step when Python ends, which torch would abort."""
    left = list(_running)
    for each in left:
        each.stop()
    for each in left:
        each.join(_LAST_STEP)


class LiveGeneration:
    """A generation under way, and the view that shows it.

    Parameters
    ----------
    extract : callable
        Takes `show` and `is_stopped` of `attnviz.extraction.live.extract_live`, and gives the
        record in the end.
    loop : AbstractEventLoop
        The kernel's, in whose turns the view is changed.
    """

    def __init__(
        self, extract: Callable[..., AttentionRecord], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._extract = extract
        self._loop = loop
        # A view of a record, of any kind.
        self._view: Callable[[], Any] = lambda: None
        self._record: AttentionRecord | None = None
        self._taken: AttentionRecord | None = None
        self._most: int | None = None
        self._error: BaseException | None = None
        self._begun = threading.Event()
        self._stopped = threading.Event()
        self._ended = False
        # A notebook's kernel finds in the context which cell its messages belong to.
        run = partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name="attnviz generation", daemon=True)
        _running.add(self)
        self._thread.start()

    def stop(self) -> None:
        """End the generation behind the token that is being produced."""
        self._stopped.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until its thread has ended, no longer than so many seconds."""
        self._thread.join(seconds)

    def first_record(self) -> AttentionRecord:
        """Wait for the record of the first token; raise what the model raised before it."""
        try:
            # For a moment each, so that an interrupt is heard on all systems.
            while not self._begun.wait(0.5):
                pass
        except BaseException:
            self.stop()
            raise
        if self._record is None:
            raise self._error or RuntimeError("the model gave no token")
        self._taken = self._record
        return self._record

    def show_in(self, view: Any) -> None:
        """Show what comes in a view of the first record, until it is closed."""
        self._view = weakref.ref(view)
        if view.token is None:
            view.prediction = _newest(view)
        view.observe(self._hear, "_generating")
        self._take()

    def _hear(self, change: Mapping[str, Any]) -> None:
        """Stop where the reader, or `RecordView.stop`, took the generation from the view."""
        if change["new"] is None:
            self.stop()

    def _take(self) -> None:
        """Give the view what has come; in the kernel's thread."""
        view, record = self._view(), self._record
        if view is None or record is None:
            return
        with view.hold_sync():
            if record is not self._taken:
                # A reader who looks at an earlier token stays there.
                follows = view.prediction == _newest(view)
                self._taken = view.record = record
                if follows:
                    view.prediction = _newest(view)
            view._generating = self._state(record)

    def _state(self, record: AttentionRecord) -> dict[str, Any] | None:
        """How far the generation is, as the browser reads it; None where it has ended."""
        predictions = [stack.query_tokens.predictions for stack in record.stacks.values()]
        state: dict[str, Any] = {"came": max(map(len, predictions)), "most": self._most}
        if self._error is not None:
            problem = f"{type(self._error).__name__}: {self._error}"[:_MOST_LETTERS]
            return {**state, "problem": problem}
        return None if self._ended or self._stopped.is_set() else state

    # The methods below run in the generation's thread.

    def _run(self) -> None:
        try:
            self._record = self._extract(show=self._show, is_stopped=self._stopped.is_set)
        except BaseException as error:  # noqa: BLE001
            # The view says it, or `first_record` raises it.
            self._error = error
        self._ended = True
        self._begun.set()
        self._tell()

    def _show(self, record: AttentionRecord, most: int | None) -> None:
        self._record, self._most = record, most
        self._begun.set()
        self._tell()

    def _tell(self) -> None:
        # The loop is closed where the kernel ends.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(weakly(self._take))


def _newest(view: Any) -> int | None:
    """The number of the last token that was predicted in the stack that is shown."""
    predictions = view.record.stack(view.stack).query_tokens.predictions
    return len(predictions) - 1 if predictions else None
