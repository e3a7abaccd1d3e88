"""Progress bars that leave no output in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm.auto import tqdm
from tqdm.notebook import tqdm_notebook

__all__ = ["Bar", "Output", "bars_in"]


class Output:
    """One output of a notebook cell, whose content can be replaced.

    An output cannot be removed from a cell, and a converted notebook keeps the output of a closed
    widget. Content that follows a progress bar therefore reuses the bar's output.
    """

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, content: object, **options: Any) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True, **options)
        else:
            self._handle.update(content, **options)

    def empty(self) -> None:
        """Replace the content by one that has no height."""
        self.show({"text/html": "", "text/plain": ""}, raw=True)


_output: ContextVar[Output | None] = ContextVar("output", default=None)


@contextmanager
def bars_in(output: Output) -> Iterator[None]:
    """Show all bars in `output`, whose content is replaced afterwards."""
    token = _output.set(output)
    try:
        yield
    finally:
        _output.reset(token)


# Typed as `Any`, because tqdm's type stubs declare two signatures, and the subclass accepts both.
_TqdmNotebook: Any = tqdm_notebook


class _NotebookBar(_TqdmNotebook):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        self._output: Output | None = None
        super().__init__(*args, **options, display=False)
        if not self.disable and self.delay <= 0:
            self._show()

    def display(self, *args: Any, **options: Any) -> None:
        """Draw the bar. tqdm calls this method."""
        late = options.pop("check_delay", True)
        options["check_delay"] = False
        super().display(*args, **options)
        if late and not self.displayed:
            self._show()
        close = options.get("close", False)
        # The content that follows in a shared output replaces the bar.
        if close and self._output is not None and self._output is not _output.get():
            self._output.empty()

    def _show(self) -> None:
        self.displayed = True
        self._output = _output.get() or Output()
        self._output.show(self.container)


#: tqdm's bar. In a notebook, the output of a closed bar is empty if ``leave=False``.
Bar: Any = _NotebookBar if issubclass(tqdm, tqdm_notebook) else tqdm
