"""The head view, which draws a line for each weight between two columns of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import traitlets

from attnviz.analysis.heads import closed_heads
from attnviz.record.stack import AttentionStack
from attnviz.server.description import default_top_k
from attnviz.server.weights import Combine
from attnviz.utils.arguments import short_repr
from attnviz.views.effects import TokenScores
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.image_maps import ImageMaps
from attnviz.views.token_windows import TokenWindows
from attnviz.views.trait_types import Choice, Finite, Keys
from attnviz.views.what_if import WhatIf

# If a layer has at most this many heads, the default is to choose all of them except those with a
# closed gate. If every gate is closed, all heads are chosen. For a layer with more heads, the
# default is to draw the mean of all heads, because more colours are hard to distinguish.
MAX_DEFAULT_HEADS = 4


class HeadView(ImageMaps, TokenWindows, TokenScores, HeadOrder, GeneratedToken, WhatIf):
    """Lines from every query to the keys that it attends to.

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

    Attributes
    ----------
    combine : {"separate", "mean", "max"}
        How several heads are drawn. ``"separate"`` draws each chosen head in its own colour.
        ``"mean"`` and ``"max"`` draw the mean or the maximum of their weights. If no head is
        chosen, all heads of the layer are combined: ``"max"`` draws the maximum of their weights,
        and ``"separate"`` and ``"mean"`` draw the mean.
    top_k : int or None
        Number of strongest keys to draw per query, among the keys that are shown. None draws all
        keys. The default is None for texts of up to 32 tokens, 3 for longer texts, and 1 for ranks
        of an indexer.
    threshold : float
        Smallest weight to draw, from 0 to the largest possible weight, which is usually 1.
    leave_out : list of ("special", "first" or int)
        Keys whose weights are not drawn: ``"special"`` for all special tokens, ``"first"`` for the
        first token, or positions of keys. Strings such as ``["[CLS]", "."]`` are replaced by the
        positions of all keys with these texts. The other weights are unchanged, and the view states
        the share of the weight that is left out.
    renormalize : bool
        Whether to divide the weights that are not left out by their sum. On a page this enlarges
        rounding errors, and the view states this.
    query_window, key_window : list of two int, or None
        Range of queries (`query_window`) or keys (`key_window`) that are shown: [start, stop], with
        stop excluded, at most 2,000 tokens. None shows all tokens of a text with up to 100 tokens,
        and the first 64 tokens of a longer text. A view of a longer text opens with the pinned
        token and its strongest key in sight. If no token is pinned, it opens at the generated
        answer, or at the end of the prompt of a causal model. The caption states how much of the
        weight is on
        keys outside the range. The strongest keys of a pinned query are listed even if they are
        outside. A click on such a key moves the range to it.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.HeadView(record, token=1)    # doctest: +SKIP
    >>> view.layer, view.heads                 # doctest: +SKIP
    (0, [0])
    """

    name: ClassVar[str] = "head"
    max_whole_text: ClassVar[int | None] = 100

    combine = Choice(["separate", "mean", "max"], "separate").tag(
        sync=True, label="Combine", labels={"max": "maximum"}
    )
    top_k = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)
    threshold = Finite(0.0, min=0.0).tag(sync=True)
    leave_out = Keys().tag(sync=True)
    renormalize = traitlets.Bool(default_value=False).tag(
        sync=True, label="renormalise", group="left out", when=("leave_out", "pair")
    )

    def _combination(self) -> Combine:
        # If no head is chosen, the view shows all heads of the layer as one.
        combine = self.combine if self.heads or self.combine != "separate" else "mean"
        return cast("Combine", combine)

    def _default_traits(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """Return the defaults of `heads` and `top_k`.

        In a layer with at most 4 heads, `heads` contains those with an open gate, or all if every
        gate is closed. For a layer with more heads, it is empty. See `default_top_k` for `top_k`.
        """
        heads: list[int] = []
        if layer in stack.layers and stack.num_heads(layer) <= MAX_DEFAULT_HEADS:
            closed = closed_heads(stack, layer)
            heads = np.flatnonzero(~closed | closed.all()).tolist()
        return {
            "heads": heads,
            "top_k": default_top_k(stack),
        }

    @traitlets.validate("threshold")
    def _validate_threshold(self, proposal: Mapping[str, Any]) -> float:
        threshold: float = proposal["value"]
        # If rows do not sum to 1, do not check the threshold, because the largest weight could only
        # be found by computing all weights.
        if threshold > 1 and self._stack_named(self.stack).normalized:
            raise traitlets.TraitError(f"threshold={threshold!r} must be between 0 and 1")
        return threshold

    @traitlets.validate("leave_out")
    def _validate_leave_out(self, proposal: Mapping[str, Any]) -> list[str | int]:
        leave_out = list(dict.fromkeys(proposal["value"]))
        count = len(self._stack_named(self.stack).key_tokens)
        if any(isinstance(key, int) and key >= count for key in leave_out):
            raise traitlets.TraitError(
                f"leave_out={short_repr(leave_out)}: stack {self.stack!r} has keys 0 to {count - 1}"
            )
        return leave_out

    def _fitting_value(self, name: str) -> Any:
        if name != "leave_out":
            return super()._fitting_value(name)
        count = len(self._stack_named(self.stack).key_tokens)
        return [key for key in self.leave_out if not isinstance(key, int) or key < count]
