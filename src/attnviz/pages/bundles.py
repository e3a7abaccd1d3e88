"""The built front-end, as it lies in the package."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

__all__ = ["bundle"]

_FOLDER = Path(__file__).parents[1] / "static"


def bundle(view: str, use: Literal["widget", "page"] = "widget") -> str:
    """The JavaScript of a view.

    Parameters
    ----------
    view : str
        Name of the view, ``"head"`` for instance.
    use : {"widget", "page"}
        For a widget, which asks its kernel, or for a page, which carries what it shows. They share
        all but that.

    Returns
    -------
    str
        An ECMAScript module.

    Raises
    ------
    FileNotFoundError
        If the front-end was not built; says how to.
    """
    path = _FOLDER / f"{view}{'-page' if use == 'page' else ''}.js"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"the front-end of the {view} view is not built ({path} is missing). In a clone of "
            "the repository run `make front-end`; an installed attnviz carries it, so install "
            "it again"
        ) from None
