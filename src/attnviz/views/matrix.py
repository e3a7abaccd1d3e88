"""The matrix view, which shows the weights of a head, or a mean of heads, as a heat map."""

from __future__ import annotations

from typing import ClassVar

from attnviz.server.weights import Combine
from attnviz.views.effects import TokenScores
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.token_windows import HeatMap
from attnviz.views.what_if import WhatIf


class MatrixView(HeatMap, TokenScores, HeadOrder, GeneratedToken, WhatIf):
    """Heat map of attention weights, with queries as rows and keys as columns.

    It shows the mean of the chosen heads, or of all heads if none is chosen. Zoom with + and -,
    with Ctrl and the mouse wheel, or with a double click. Drag to move.

    Parameters
    ----------
    record : AttentionRecord
        Record of one example.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers. All by default.
    model, inputs, tokenizer, processor, target, truncation, call : optional
        Arguments with which the record was extracted, as for `attnviz.extract`. If they are passed,
        the reader can change the attention and measure the effect. ``show_*`` functions pass them.
    **traits
        Initial values of the traits below and of the traits that views of a record share: `stack`,
        `layer`, `heads`, `token`, `key`, `theme` (see `attnviz.views.position.PositionedView`),
        `pair`, `prediction`, `as_query` (`attnviz.views.generated_token.GeneratedToken`), `maps`
        (`attnviz.views.image_maps.ImageMaps`), `order`,
        `scores`, `score_notes` and `score_errors`
        (`attnviz.views.head_order.HeadOrder`), `token_scores`, `token_score_notes` and
        `token_score` (`attnviz.views.effects.TokenScores`), `answer`, `changes`
        and `run` (`attnviz.views.what_if.WhatIf`).

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.MatrixView(record, heads=[0], color_scale="log")    # doctest: +SKIP
    """

    name: ClassVar[str] = "matrix"

    def _combination(self) -> Combine:
        return "mean"
