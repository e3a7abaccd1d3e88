"""Outputs of a notebook cell whose content can be replaced, and the progress bar of long work."""

from __future__ import annotations

import html
import io
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from tqdm.std import tqdm

from attnviz.utils.cleanup import fork_safe_lock
from attnviz.utils.host import has_kernel, in_marimo

if TYPE_CHECKING:
    from attnviz.utils.progress import Progress

# Duration in seconds of work before its bar appears, and the time between two drawings of the bar.
_SECONDS_WITHOUT_BAR = 1.0
_SECONDS_BETWEEN = 0.2
# Formats of tqdm: before the first progress, of a line in a terminal, and of the text after the
# bar of a notebook.
_WITHOUT_NUMBER = "{desc} {elapsed}"
_IN_TERMINAL = "{desc} {percentage:.0f}%|{bar}| {elapsed}<{remaining}"
_IN_NOTEBOOK = "{desc} {percentage:.0f}%, {remaining} left"


class Output:
    """One output of a notebook cell, whose content can be replaced.

    A cell cannot remove an output, but it can replace its content by nothing.

    Parameters
    ----------
    display_id : str, optional
        IPython's name of the output.
    exists : bool
        Whether a cell already has the output.
    """

    def __init__(self, display_id: str | None = None, *, exists: bool = False) -> None:
        self._display_id = display_id or uuid.uuid4().hex
        self._exists = exists

    def show(self, content: object, **options: Any) -> None:
        from IPython.display import display

        display(content, display_id=self._display_id, update=self._exists, **options)
        self._exists = True

    def empty(self) -> None:
        """Replace the content by empty HTML, which has no height."""
        self.show({"text/html": "", "text/plain": ""}, raw=True)


class _Starter:
    """Thread that starts the threads of bars, one second after their work has begun.

    Most work is shorter, and starting a thread for it would take a part of its time. The thread
    ends when no work has begun for a second.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        # When the thread of each bar is due to start, and when this thread wakes up.
        self._due: dict[threading.Thread, float] = {}
        self._wakes = 0.0
        self._earlier = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, thread: threading.Thread) -> None:
        """Start `thread` later, unless it is removed before."""
        due = time.monotonic() + _SECONDS_WITHOUT_BAR
        with self._lock:
            # The threads of a process do not exist in its forks.
            if self._thread is None or not self._thread.is_alive():
                self._due, self._earlier, self._wakes = {thread: due}, threading.Event(), due
                self._thread = threading.Thread(
                    target=self._run, name="attnviz progress starter", daemon=True
                )
                self._thread.start()
            self._due[thread] = due
            if due < self._wakes:
                self._earlier.set()

    def remove(self, thread: threading.Thread) -> None:
        with self._lock:
            self._due.pop(thread, None)

    def _run(self) -> None:
        while True:
            self._earlier.wait(self._wakes - time.monotonic())
            with self._lock:
                now = time.monotonic()
                if not self._due and now >= self._wakes:
                    self._thread = None
                    return
                self._earlier.clear()
                for thread in [thread for thread, due in self._due.items() if due <= now]:
                    del self._due[thread]
                    thread.start()
                self._wakes = min(self._due.values(), default=now + _SECONDS_WITHOUT_BAR)


_starter = _Starter()


class ProgressBar:
    """Progress bar of one call, which a thread draws while the call works.

    The bar appears after a second and disappears when it is closed. It also appears if the work
    reports nothing, and then shows the elapsed time. In a kernel, the bar is HTML in an output of
    the cell, and in marimo it is a spinner. Elsewhere, it is the bar of tqdm. Only the thread calls
    tqdm: tqdm uses a lock, which an interrupt of the caller could leave acquired.

    Parameters
    ----------
    title : str
        Name of the work.
    output : Output, optional
        Output that shows the bar in a kernel. The caller can fill it after the work.
    """

    def __init__(self, title: str, output: Output | None = None) -> None:
        self._title = title
        self._output = output or Output()
        self._latest: Progress | None = None
        self._closed = threading.Event()
        thread: Any = threading.Thread
        if in_marimo():
            # Output of other threads does not reach the cell.
            thread = sys.modules["marimo"].Thread
        # The output of a thread reaches the running cell through the context of the caller.
        self._thread = thread(
            target=copy_context().run, args=(self._draw,), name="attnviz progress", daemon=True
        )

    def open(self) -> None:
        """Begin to wait until the bar appears."""
        _starter.add(self._thread)

    def show(self, progress: Progress) -> None:
        """Show other progress at the next drawing."""
        self._latest = progress

    def close(self) -> None:
        """Remove the bar."""
        self._closed.set()
        _starter.remove(self._thread)
        if self._thread.ident is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._closed.is_set():
            return
        surface = None
        if has_kernel():
            surface = _in_output(self._output)
        elif in_marimo():
            surface = _in_marimo()
        # In a notebook, tqdm only measures the time.
        file = sys.stderr if surface is None else io.StringIO()
        bar: Any = tqdm(leave=False, file=file, bar_format=_WITHOUT_NUMBER, desc=self._title)
        bar.start_t -= _SECONDS_WITHOUT_BAR
        with bar, surface or nullcontext(lambda _bar: None) as show:
            drawn = ""
            while not bar.disable:
                progress = self._latest
                bar.bar_format = _WITHOUT_NUMBER
                if progress is not None:
                    # The parts of a computation follow each other. Each part has its own speed.
                    description = f"{self._title}: {progress.doing}"
                    if bar.desc != description:
                        bar.desc, bar.initial = description, progress.done
                        bar.reset(progress.total)
                    bar.n, bar.total = progress.done, max(progress.done, progress.total)
                    if bar.n > 0:
                        bar.bar_format = _IN_TERMINAL if surface is None else _IN_NOTEBOOK
                bar.refresh()
                if drawn != (drawn := str(bar)):
                    show(bar)
                if self._closed.wait(_SECONDS_BETWEEN):
                    break


@contextmanager
def _in_output(output: Output) -> Iterator[Callable[[Any], object]]:
    """Yield a function that shows a bar in `output`, which is empty at the end."""
    try:
        yield lambda bar: output.show(
            {"text/html": _as_html(bar), "text/plain": str(bar)}, raw=True
        )
    finally:
        output.empty()


@contextmanager
def _in_marimo() -> Iterator[Callable[[Any], object]]:
    """Yield a function that shows a bar above the output of the cell, until the end."""
    with sys.modules["marimo"].status.spinner(remove_on_exit=True) as spinner:
        yield lambda bar: spinner.update(title=str(bar))


def _as_html(bar: Any) -> str:
    has_number = bar.bar_format != _WITHOUT_NUMBER
    length = f' value="{bar.n}" max="{bar.total}"' if has_number else ""
    return (
        f'<progress{length} style="vertical-align: middle"></progress> '
        f"<small>{html.escape(str(bar))}</small>"
    )
