"""The head view: two columns of tokens and a line for every weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import traitlets

from attnviz.record.record import AttentionStack
from attnviz.utils.arguments import short_repr
from attnviz.views.effects import TokenScores
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.token_windows import TokenWindows
from attnviz.views.trait_types import Choice, Finite, Keys
from attnviz.views.what_if import WhatIf

__all__ = ["HeadView"]

# So many heads can be told apart at a glance; with more, their mean is the better first picture.
_HEADS_AT_ONCE = 4
# Above so many tokens all lines together are only ink.
_TOKENS_WITH_ALL_LINES = 32


class HeadView(TokenWindows, TokenScores, HeadOrder, GeneratedToken, WhatIf):
    """Lines from every query to the keys that it attends to.

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
        and `shown_run` (`attnviz.views.what_if.WhatIf`).

    Attributes
    ----------
    combine : {"separate", "mean", "max"}
        Chosen heads each in its colour, or put together. With no head chosen all are meant, and
        ``"separate"`` shows their mean.
    top_k : int or None
        Draw only each query's k strongest keys in sight; None draws all. By default 3 above 32
        tokens.
    threshold : float
        Draw only weights of at least this: 0 to the largest weight that can occur, usually 1.
    leave_out : list of ("special", "first" or int)
        Keys whose weights are not drawn: special tokens, the first token, single keys. May be set
        with texts, ``["[CLS]", "."]``: each stands for all keys that have it. The other weights
        stay as they are, and the share left out is shown.
    renormalize : bool
        Divide what is not left out by its sum. On a page this enlarges what rounding did, which
        the view says.
    query_window, key_window : list of two int, or None
        Tokens from start to before stop that are shown, 2,000 at most; None is the view's default
        (all up to 100 tokens, otherwise the first 64). The caption says how much of the weight lies
        outside. The strongest keys of a pinned query are listed, wherever they lie, and a click on
        one moves the window there.
    orientation : {"vertical", "horizontal"}
        Two columns, or two rows.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.HeadView(record, token=1)    # doctest: +SKIP
    >>> view.layer, view.heads                 # doctest: +SKIP
    (0, [0])
    """

    name: ClassVar[str] = "head"

    combine = Choice(["separate", "mean", "max"], "separate").tag(sync=True)
    top_k = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)
    threshold = Finite(0.0, min=0.0).tag(sync=True)
    leave_out = Keys().tag(sync=True)
    renormalize = traitlets.Bool(default_value=False).tag(sync=True)
    orientation = Choice(["vertical", "horizontal"], "vertical").tag(sync=True)

    def _default_traits(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """All heads up to four, all lines up to 32 tokens."""
        heads = list(range(stack.num_heads(layer))) if layer in stack.layers else []
        longest = max(len(stack.query_tokens), len(stack.key_tokens))
        return {
            "heads": heads if len(heads) <= _HEADS_AT_ONCE else [],
            "top_k": None if longest <= _TOKENS_WITH_ALL_LINES else 3,
        }

    @traitlets.validate("threshold")
    def _validate_threshold(self, proposal: Mapping[str, Any]) -> float:
        threshold: float = proposal["value"]
        # Only where no weight can reach it: the maximum of other stacks takes all weights to know.
        if threshold > 1 and self._stack_named(self.stack).normalized:
            raise traitlets.TraitError(f"threshold={threshold!r} must lie between 0 and 1")
        return threshold

    @traitlets.validate("leave_out")
    def _validate_leave_out(self, proposal: Mapping[str, Any]) -> list[str | int]:
        leave_out = list(dict.fromkeys(proposal["value"]))
        count = len(self._stack_named(self.stack).key_tokens)
        if any(isinstance(each, int) and each >= count for each in leave_out):
            raise traitlets.TraitError(
                f"leave_out={short_repr(leave_out)}: stack {self.stack!r} has keys 0 to {count - 1}"
            )
        return leave_out

    @traitlets.observe("stack")
    def _forget_left_out(self, change: Mapping[str, Any]) -> None:
        """Drop single keys that the new stack does not have."""
        if change["old"] and change["old"] != change["new"]:
            self.leave_out = self._keys_left_out()

    def _keys_left_out(self) -> list[str | int]:
        """Those of the keys left out that the stack has."""
        count = len(self._stack_named(self.stack).key_tokens)
        return [each for each in self.leave_out if not isinstance(each, int) or each < count]

    def _fitting(self, name: str) -> Any:
        return self._keys_left_out() if name == "leave_out" else super()._fitting(name)
