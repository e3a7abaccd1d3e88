"""The program in which the code runs (a Jupyter kernel, marimo or a script), and its messages."""

from __future__ import annotations

import os
import sys
import warnings
import webbrowser
from pathlib import Path
from typing import Any


def ipython() -> Any:
    """Return the shell of IPython or of a Jupyter kernel, or None outside IPython."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def display_options() -> dict[str, Any]:
    """Return the options with which IPython's `display` publishes the object that it displays now.

    They contain the display id, and whether an earlier display with this id is replaced. IPython
    does not pass them to an object that displays itself, so they are read from the running call.
    """
    from IPython.display import display

    frame = sys._getframe(1)
    while frame.f_code is not display.__code__:
        if frame.f_back is None:
            return {}
        frame = frame.f_back
    return dict(frame.f_locals.get("kwargs", {}))


def ipython_cell() -> int | None:
    """Return the number of the IPython cell that is running, or None outside IPython."""
    shell = ipython()
    return None if shell is None else int(shell.execution_count)


def has_kernel() -> bool:
    """Whether the code runs in a Jupyter kernel. The browser may be on another machine."""
    return getattr(ipython(), "kernel", None) is not None


def in_marimo() -> bool:
    """Whether the code runs in a marimo notebook."""
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def offer_file(path: Path) -> None:
    """Print the absolute path of a file, and open the file in a browser if possible.

    The browser is opened only if the output is a terminal and the machine has a screen. The call
    does not wait for the browser.
    """
    print(path)  # noqa: T201 - the output of a command
    if sys.stdout.isatty() and _has_screen():
        webbrowser.open(path.as_uri())


def warn_caller(message: str) -> None:
    """Issue a warning that shows the line of the user's code that called attnviz."""
    level = 1
    frame = sys._getframe(1)
    inside = ("attnviz", "traitlets", "ipywidgets", "anywidget")
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level + 1)


def _has_screen() -> bool:
    if "SSH_CONNECTION" in os.environ or "CI" in os.environ:
        return False
    if sys.platform in {"darwin", "win32"}:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
