"""The matrix view: the weights of a head, or the mean of several, as a heat-map."""

from __future__ import annotations

from typing import ClassVar

from attnviz.views.effects import TokenScores
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.token_windows import TokenWindows
from attnviz.views.trait_types import Choice
from attnviz.views.what_if import WhatIf

__all__ = ["MatrixView"]


class MatrixView(TokenWindows, TokenScores, HeadOrder, GeneratedToken, WhatIf):
    """A heat-map: queries down, keys across.

    Zoom with + and -, with Ctrl and the wheel or by double click; drag to move.

    Parameters
    ----------
    record : AttentionRecord
        One example.
    include_layers : int or iterable of int, optional
        The layers to offer.
    model, inputs, tokenizer, processor, target, truncation : optional
        What the record was extracted from, as it was given to `attnviz.extract`: the reader can
        then change the attention and look at the answer. ``show_*`` functions give them.
    **traits
        Initial values of the traits below, and of those that views of a record share: `stack`,
        `layer`, `heads`, `token`, `key`, `theme` (see `attnviz.views.position.PositionedView`),
        `pair`, `prediction`, `as_query` (`attnviz.views.generated_token.GeneratedToken`), `order`,
        `least_score`, `scores`, `score_notes` and `score_errors`
        (`attnviz.views.head_order.HeadOrder`), `token_scores`, `token_score_notes` and
        `token_score` (`attnviz.views.effects.TokenScores`), `answer`, `changes`
        and `shown_run` (`attnviz.views.what_if.WhatIf`). Of several
        chosen heads the mean is shown, and of all heads where none is chosen.

    Attributes
    ----------
    color_scale : {"linear", "log"}
        How colour follows weight.
    pooled : {"mean", "max"}
        What a cell shows that stands for several weights, where single weights are too small to
        be seen.
    query_window, key_window : list of two int, or None
        Queries and keys from start to before stop that are in sight; None is all.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.MatrixView(record, heads=[0], color_scale="log")    # doctest: +SKIP
    """

    name: ClassVar[str] = "matrix"

    color_scale = Choice(["linear", "log"], "linear").tag(sync=True)
    pooled = Choice(["mean", "max"], "mean").tag(sync=True)
