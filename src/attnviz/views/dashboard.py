"""The dashboard: model view, head view and matrix view in one frame, at the same position."""

from __future__ import annotations

from typing import Any, ClassVar

from attnviz.record.stack import AttentionStack
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView

__all__ = ["Dashboard"]


class Dashboard(HeadView, ModelView, MatrixView):
    """Model view, head view and matrix view together.

    A head that is opened in the grid is drawn as lines and as a matrix; a token that is pinned in
    one is pinned in all. Each pane can be exported by itself, and all of them as one page.

    Parameters
    ----------
    record : AttentionRecord
        One example.
    include_layers : int or iterable of int, optional
        The layers to offer.
    include_heads : iterable of int or mapping, optional
        The heads to offer in the grid (see `ModelView`).
    model, inputs, tokenizer, processor, target, truncation : optional
        What the record was extracted from (see `HeadView`).
    **traits
        Initial values of the traits of `HeadView`, `ModelView` and `MatrixView`; what they share
        is one trait.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.Dashboard(record, token=1)    # doctest: +SKIP
    """

    name: ClassVar[str] = "dashboard"
    saves_chosen_heads: ClassVar[bool] = True
    opens_at_pattern: ClassVar[bool] = True

    def _default_traits(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """What the three show by default; where they differ, the head view's default."""
        return {
            **MatrixView._default_traits(self, stack, layer),
            **ModelView._default_traits(self, stack, layer),
            **HeadView._default_traits(self, stack, layer),
        }
