"""Settings of a notebook, which all views follow."""

from __future__ import annotations

from typing import Literal

from attnviz.utils.arguments import did_you_mean, short_repr

__all__ = ["Options", "options"]

Saved = Literal["picture", "page", False]

_SAVED = ("picture", "page", False)


class Options:
    """Settings of a notebook; `attnviz.options` has them.

    Attributes
    ----------
    snapshot : {"picture", "page"} or False, default "picture"
        What a notebook stores with a live view, for readers without its kernel. ``"picture"``: a
        small picture of the heads that are shown. ``"page"``: the picture, and the interactive page
        in a frame, as `snapshot` of a view stores it. False: nothing.

    Examples
    --------
    >>> import attnviz as av
    >>> av.options.snapshot = False
    >>> av.options.snapshot = "picture"
    >>> av.options.snapshot = "pictures"
    Traceback (most recent call last):
    ValueError: snapshot='pictures' must be "picture", "page" or False
    """

    snapshot: Saved

    def __init__(self) -> None:
        self.snapshot = "picture"

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse names and values that would change nothing."""
        if name != "snapshot":
            meant = did_you_mean(name, ["snapshot"])
            raise AttributeError(f"attnviz.options has no setting {name!r}{meant}")
        # 0 equals False, and is a number.
        if not any(value is each or (each and value == each) for each in _SAVED):
            raise ValueError(f'snapshot={short_repr(value)} must be "picture", "page" or False')
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<attnviz.options: snapshot={self.snapshot!r}>"


#: The settings of this process.
options = Options()
