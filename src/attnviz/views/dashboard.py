"""The dashboard, which combines model view, head view and matrix view in one widget."""

from __future__ import annotations

from typing import ClassVar

from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView


class Dashboard(HeadView, ModelView, MatrixView):
    """Model view, head view and matrix view together.

    Opening a head in the grid of the model view draws it as lines and as a heat map. Pinning a
    token in one of the views pins it in all three. Each view can be exported alone, or all three as
    one page.

    Parameters
    ----------
    record : AttentionRecord
        Record of one example.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers. All by default.
    include_heads : iterable of int or mapping, optional
        Heads that the grid offers (see `ModelView`).
    model, inputs, tokenizer, processor, target, truncation, call : optional
        Arguments with which the record was extracted (see `HeadView`).
    **traits
        Initial values of the traits of `HeadView`, `ModelView` and `MatrixView`. If several of
        these views have a trait, the trait applies to all of them.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.Dashboard(record, token=1)    # doctest: +SKIP
    """

    name: ClassVar[str] = "dashboard"
    # The grid and the heat map show the whole text.
    opens_at_end: ClassVar[bool] = False
    saves_chosen_heads: ClassVar[bool] = True
    opens_at_pattern: ClassVar[bool] = True
