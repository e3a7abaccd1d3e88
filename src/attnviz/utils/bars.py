"""Progress bars that leave nothing in the output of a notebook cell when they are closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm.auto import tqdm
from tqdm.notebook import tqdm_notebook


class Output:
    """One output of a notebook cell, whose content can be replaced.

    A cell cannot remove an output, and a closed bar would remain visible in a converted notebook.
    Therefore, other content replaces the bar in the same output: a view, or empty HTML.
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
        """Replace the content by empty HTML, which has no height."""
        self.show({"text/html": "", "text/plain": ""}, raw=True)


_output: ContextVar[Output | None] = ContextVar("output", default=None)


@contextmanager
def bars_in(output: Output) -> Iterator[None]:
    """Show all progress bars of the ``with`` block in `output`.

    The caller later replaces the content of `output`.
    """
    token = _output.set(output)
    try:
        yield
    finally:
        _output.reset(token)


# With the type `Any`, mypy accepts that the subclass passes on arbitrary arguments. The type stubs
# of tqdm declare two signatures of the constructor, neither of which accepts them.
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
        # Empty only an output that belongs to this bar. In an output of `bars_in`, other content
        # replaces the bar.
        if close and self._output is not None and self._output is not _output.get():
            self._output.empty()

    def _show(self) -> None:
        self.displayed = True
        self._output = _output.get() or Output()
        self._output.show(self.container)


#: Class of progress bars. In a notebook, a bar with ``leave=False`` empties its output when it is
#: closed. Elsewhere, this is the class of tqdm.
Bar: Any = _NotebookBar if issubclass(tqdm, tqdm_notebook) else tqdm
