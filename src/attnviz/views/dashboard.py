"""The dashboard: model view, head view and matrix view in one widget, at the same position."""

from __future__ import annotations

from typing import Any, ClassVar

from attnviz.record.stack import AttentionStack
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView

__all__ = ["Dashboard"]


class Dashboard(HeadView, ModelView, MatrixView):
    """Model view, head view and matrix view together.

    Opening a head in the grid draws it as lines and as a matrix. Pinning a token in one view pins
    it in all. Each view can be exported alone, or all of them as one page.

    Parameters
    ----------
    record : AttentionRecord
        One example.
    include_layers : int or iterable of int, optional
        Layers to offer.
    include_heads : iterable of int or mapping, optional
        Heads to offer in the grid (see `ModelView`).
    model, inputs, tokenizer, processor, target, truncation : optional
        Arguments with which the record was extracted (see `HeadView`).
    **traits
        Initial values of the traits of `HeadView`, `ModelView` and `MatrixView`. A trait that
        several of them have is one trait here.

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
        """Return the defaults of the three views. The head view's defaults take precedence."""
        return {
            **MatrixView._default_traits(self, stack, layer),
            **ModelView._default_traits(self, stack, layer),
            **HeadView._default_traits(self, stack, layer),
        }
