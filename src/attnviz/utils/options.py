"""Settings that all views of a notebook share."""

from __future__ import annotations

from typing import Literal

from attnviz.utils.arguments import short_repr

Saved = Literal["picture", "page", False]

_SAVED = ("picture", "page", False)


class Options:
    """Settings of a notebook, available as `attnviz.options`.

    Attributes
    ----------
    snapshot : {"picture", "page"} or False, default "picture"
        Content that a notebook stores with each view, for readers who open the notebook without a
        kernel. ``"picture"`` stores a small picture of the selected heads. ``"page"`` stores the
        picture and an interactive page in a frame, as the view's method `snapshot` does. False
        stores neither.

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
        """Raise AttributeError for an unknown name, or ValueError for an invalid value."""
        if name != "snapshot":
            raise AttributeError(f"attnviz.options has no setting {name!r}, only snapshot")
        # Compare False by identity, because 0 equals False but is not a valid value.
        if not any(value is saved or (saved and value == saved) for saved in _SAVED):
            raise ValueError(f'snapshot={short_repr(value)} must be "picture", "page" or False')
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<attnviz.options: snapshot={self.snapshot!r}>"


#: Settings of this process, which all of its views share.
options = Options()
