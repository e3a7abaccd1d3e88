"""Where the code runs: a notebook, marimo, or a script; with a screen or without."""

from __future__ import annotations

import os
import sys
import warnings
import webbrowser
from pathlib import Path

__all__ = ["has_kernel", "in_marimo", "ipython_cell", "offer_file", "warn_caller"]


def ipython_cell() -> int | None:
    """Number of the IPython cell that runs, None outside IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return None if shell is None else int(shell.execution_count)


def has_kernel() -> bool:
    """Whether a Jupyter kernel runs this: its widgets may be far from their browser."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def in_marimo() -> bool:
    """Whether a marimo notebook runs this."""
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def offer_file(path: Path) -> None:
    """Print an absolute path, and open it in a browser where there is a terminal and a screen.

    Never blocks.
    """
    print(path)  # noqa: T201 - the answer of a script is what it prints
    if sys.stdout.isatty() and _has_screen():
        webbrowser.open(path.as_uri())


def warn_caller(message: str) -> None:
    """Warn, with the line that called attnviz and not one inside."""
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
