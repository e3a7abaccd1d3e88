"""Updates of a view while a model generates text.

The model generates in a separate thread, so that the kernel can answer the browser. From time to
time, the record of the view is replaced by a record with the tokens so far. This happens in the
kernel's thread, because no other thread may change a view.
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

_running: weakref.WeakSet[LiveGeneration] = weakref.WeakSet()
# Maximum time in seconds to wait at shutdown until the model has generated its current token.
_LAST_STEP = 10.0
# Maximum number of characters of an error message in the view.
_MAX_ERROR_LENGTH = 2000


@atexit.register
def _end_all() -> None:
    """Stop all generations at shutdown, and wait for each thread for up to `_LAST_STEP` seconds.

    If Python exits while a thread computes with torch, torch aborts the process.
    """
    generations = list(_running)
    for generation in generations:
        generation.stop()
    for generation in generations:
        generation.join(_LAST_STEP)


class LiveGeneration:
    """Generation of a text in a separate thread, shown in a view.

    Parameters
    ----------
    extract : callable
        Function that generates the text and returns the final record. It has the arguments `show`
        and `is_stopped` of `attnviz.extraction.live.extract_live`.
    loop : AbstractEventLoop
        Event loop of the kernel, in which the view is updated.
    """

    def __init__(
        self, extract: Callable[..., AttentionRecord], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._extract = extract
        self._loop = loop
        # Function that returns the view. It returns None before `show_in` is called, and after the
        # view is deleted.
        self._view: Callable[[], Any] = lambda: None
        self._record: AttentionRecord | None = None
        self._shown_record: AttentionRecord | None = None
        self._max_tokens: int | None = None
        self._error: BaseException | None = None
        self._has_record = threading.Event()
        self._stopped = threading.Event()
        self._ended = False
        # Run the thread in a copy of the context, so that its output belongs to the current cell.
        run = partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name="attnviz generation", daemon=True)
        _running.add(self)
        self._thread.start()

    def stop(self) -> None:
        """Stop the generation after the current token."""
        self._stopped.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended, at most `seconds` (None: no limit)."""
        self._thread.join(seconds)

    def first_record(self) -> AttentionRecord:
        """Wait for the first record with a generated token, and return this record.

        If the model raised an error before this record, raise the same error. If an interrupt ends
        the wait, stop the generation.
        """
        try:
            # Wait with a timeout, because on some systems an interrupt cannot end a wait without
            # one.
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
        """Show the generation in `view`, which was created with the first record.

        If no query is pinned, the newest generated token is shown. The view is updated after each
        new record, until the generation ends or the view is closed.
        """
        self._view = weakref.ref(view)
        if view.token is None:
            view.prediction = _newest(view)
        view.observe(self._stop_if_ended, "_generating")
        self._update_view()

    def _stop_if_ended(self, change: Mapping[str, Any]) -> None:
        """Stop the generation if `_generating` was set to None.

        The stop button of the view and `RecordView.stop` set it to None.
        """
        if change["new"] is None:
            self.stop()

    def _update_view(self) -> None:
        """Show the latest record in the view. This method runs in the kernel's thread."""
        view, record = self._view(), self._record
        if view is None or record is None:
            return
        with view.hold_sync():
            if record is not self._shown_record:
                # If the view shows the newest generated token of the previous record, let it show
                # the newest of the new record. Otherwise do not change the token that it shows.
                follows = view.prediction == _newest(view)
                self._shown_record = view.record = record
                if follows:
                    view.prediction = _newest(view)
            view._generating = self._state(record)

    def _state(self, record: AttentionRecord) -> dict[str, Any] | None:
        """Return the progress of the generation for the browser.

        If the model raised an error, add the error message. Otherwise return None if the generation
        has ended or was stopped.
        """
        predictions = [stack.query_tokens.predictions for stack in record.stacks.values()]
        state: dict[str, Any] = {"came": max(map(len, predictions)), "most": self._max_tokens}
        if self._error is not None:
            problem = f"{type(self._error).__name__}: {self._error}"[:_MAX_ERROR_LENGTH]
            return {**state, "problem": problem}
        return None if self._ended or self._stopped.is_set() else state

    # The following methods run in the thread of the generation.

    def _run(self) -> None:
        try:
            self._record = self._extract(show=self._show, is_stopped=self._stopped.is_set)
        except BaseException as error:  # noqa: BLE001
            # The view shows the error. If the error occurs before the first record, which creates
            # the view, `first_record` raises it.
            self._error = error
        self._ended = True
        self._has_record.set()
        self._schedule_update()

    def _show(self, record: AttentionRecord, max_tokens: int | None) -> None:
        self._record, self._max_tokens = record, max_tokens
        self._has_record.set()
        self._schedule_update()

    def _schedule_update(self) -> None:
        # If the event loop is closed, the kernel is shutting down. Ignore the error of this case.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(weakly(self._update_view))


def _newest(view: Any) -> int | None:
    """Return the number of the newest prediction in the shown stack, or None if there is none."""
    predictions = view.record.stack(view.stack).query_tokens.predictions
    return len(predictions) - 1 if predictions else None
