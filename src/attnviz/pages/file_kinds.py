"""What a view can be saved as."""

from __future__ import annotations

import os
from typing import Literal

from attnviz.utils.arguments import as_path

__all__ = ["check_file_kind"]


def check_file_kind(path: str | os.PathLike[str]) -> Literal["html", "svg", "png"]:
    """Tell from a file's name what a view is to be saved as.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    {"html", "svg", "png"}

    Raises
    ------
    TypeError
        If it is no path.
    ValueError
        If the name ends in anything else, or no file can have it.
    """
    match as_path("path", path, "file").suffix.lower():
        case ".html":
            return "html"
        case ".svg":
            return "svg"
        case ".png":
            return "png"
    raise ValueError(f"path={str(path)!r} must end in .html, .svg or .png")
