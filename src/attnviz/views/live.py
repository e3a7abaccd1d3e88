"""A view of a running generation. Its record is replaced as tokens arrive.

The model generates in a thread, so that the kernel can answer the browser. Only the kernel's thread
changes the view.
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
# Maximum seconds for a step at shutdown, and maximum length of an error message.
_LAST_STEP = 10.0
_MAX_ERROR_LENGTH = 2000


@atexit.register
def _end_all() -> None:
    """Stop all generations at shutdown. torch aborts if a thread is in the middle of a step."""
    generations = list(_running)
    for generation in generations:
        generation.stop()
    for generation in generations:
        generation.join(_LAST_STEP)


class LiveGeneration:
    """A running generation and the view that shows it.

    Parameters
    ----------
    extract : callable
        Function with the arguments `show` and `is_stopped` of
        `attnviz.extraction.live.extract_live`. Returns the last record.
    loop : AbstractEventLoop
        Event loop of the kernel, which changes the view.
    """

    def __init__(
        self, extract: Callable[..., AttentionRecord], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._extract = extract
        self._loop = loop
        # Weak reference to a view of a record, or a function that returns None.
        self._view: Callable[[], Any] = lambda: None
        self._record: AttentionRecord | None = None
        self._shown_record: AttentionRecord | None = None
        self._max_tokens: int | None = None
        self._error: BaseException | None = None
        self._has_record = threading.Event()
        self._stopped = threading.Event()
        self._ended = False
        # The context determines the cell to which a notebook's kernel sends messages.
        run = partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name="attnviz generation", daemon=True)
        _running.add(self)
        self._thread.start()

    def stop(self) -> None:
        """Stop the generation after the current token."""
        self._stopped.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended, for at most `seconds`."""
        self._thread.join(seconds)

    def first_record(self) -> AttentionRecord:
        """Wait for the record of the first token. Raise any error that the model raised."""
        try:
            # The timeout makes interrupts work on all systems.
            while not self._has_record.wait(0.5):
                pass
        except BaseException:
            self.stop()
            raise
        if self._record is None:
            raise self._error or RuntimeError("the model gave no token")
        self._shown_record = self._record
        return self._record

    def show_in(self, view: Any) -> None:
        """Show the generation in a view of the first record until the view is closed."""
        self._view = weakref.ref(view)
        if view.token is None:
            view.prediction = _newest(view)
        view.observe(self._stop_if_ended, "_generating")
        self._update_view()

    def _stop_if_ended(self, change: Mapping[str, Any]) -> None:
        """Stop the generation if the reader or `RecordView.stop` set `_generating` to None."""
        if change["new"] is None:
            self.stop()

    def _update_view(self) -> None:
        """Update the view to the latest record. Runs in the kernel's thread."""
        view, record = self._view(), self._record
        if view is None or record is None:
            return
        with view.hold_sync():
            if record is not self._shown_record:
                # The view does not move if the reader looks at an earlier token.
                follows = view.prediction == _newest(view)
                self._shown_record = view.record = record
                if follows:
                    view.prediction = _newest(view)
            view._generating = self._state(record)

    def _state(self, record: AttentionRecord) -> dict[str, Any] | None:
        """Return the progress of the generation for the browser, or None after its end."""
        predictions = [stack.query_tokens.predictions for stack in record.stacks.values()]
        state: dict[str, Any] = {"came": max(map(len, predictions)), "most": self._max_tokens}
        if self._error is not None:
            problem = f"{type(self._error).__name__}: {self._error}"[:_MAX_ERROR_LENGTH]
            return {**state, "problem": problem}
        return None if self._ended or self._stopped.is_set() else state

    # The methods below run in the generation's thread.

    def _run(self) -> None:
        try:
            self._record = self._extract(show=self._show, is_stopped=self._stopped.is_set)
        except BaseException as error:  # noqa: BLE001
            # The view shows the error, or `first_record` raises it.
            self._error = error
        self._ended = True
        self._has_record.set()
        self._schedule_update()

    def _show(self, record: AttentionRecord, max_tokens: int | None) -> None:
        self._record, self._max_tokens = record, max_tokens
        self._has_record.set()
        self._schedule_update()

    def _schedule_update(self) -> None:
        # The loop is closed when the kernel shuts down.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(weakly(self._update_view))


def _newest(view: Any) -> int | None:
    """Return the number of the last prediction in the shown stack, or None."""
    predictions = view.record.stack(view.stack).query_tokens.predictions
    return len(predictions) - 1 if predictions else None
