"""The neuron view: the computation of a weight from a query and a key, for each dimension."""

from __future__ import annotations

from typing import Any, ClassVar

import traitlets

from attnviz.pages.html import Embedded
from attnviz.record.record import AttentionRecord, AttentionStack, derive_record
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.record_view import RecordView

__all__ = ["NeuronView"]


class NeuronView(HeadOrder, GeneratedToken, RecordView):
    """One query of one head and its keys: q, k, q x k, their sum, the logit and the weight.

    Each row adds up. The cells q x k x scale sum to the number beside them. This sum, with the soft
    cap and the bias of the model if it has them, is the logit. The softmax over all rows (and the
    sink, if there is one) is the weight.

    Parameters
    ----------
    record : AttentionRecord
        One example with its queries and keys, as `attnviz.extract` returns it.
    include_layers : int or iterable of int, optional
        Layers to offer.
    **traits
        Initial values of the traits below and of the traits that views of a record share: `stack`,
        `layer`, `heads`, `token`, `key`, `theme` (see `attnviz.views.position.PositionedView`),
        `pair`, `prediction`, `as_query` (`attnviz.views.generated_token.GeneratedToken`), `order`,
        `min_score` and `scores` (`attnviz.views.head_order.HeadOrder`). The view shows the first
        of `heads`. `token` is the query, and None is the last query that is not a special token.
        `key` is the highlighted row, and None is the strongest key.

    Attributes
    ----------
    sort_dimensions : bool
        Whether dimensions are sorted by their share of the highlighted key, the largest first. The
        share of a dimension is the absolute value of its cell, divided by the sum of the absolute
        values of all cells.

    Raises
    ------
    ValueError
        If the record has no queries and keys, because it was made from weights or its tokens are
        merged into words. If only some stacks have none, these are left out.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                        # doctest: +SKIP
    >>> record = av.extract(model, "the cat sat", tokenizer=tokenizer)     # doctest: +SKIP
    >>> view = NeuronView(record, layer=0, heads=[3], token=2)             # doctest: +SKIP
    """

    name: ClassVar[str] = "neuron"
    embeds: ClassVar[frozenset[Embedded]] = frozenset({"vectors", "scores"})

    sort_dimensions = traitlets.Bool(default_value=True).tag(sync=True)

    def _default_traits(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """Return the default: the first head of the layer."""
        del stack, layer
        return {"heads": [0]}

    def _supported_part(self, record: AttentionRecord) -> AttentionRecord:
        """Keep the stacks that have queries and keys. Raise ValueError if none has."""
        stacks = {name: stack for name, stack in record.stacks.items() if stack.has_vectors}
        if not stacks:
            raise ValueError(
                f"NeuronView needs queries and keys, but this record has none: {_reason(record)}, "
                "or use HeadView, ModelView or MatrixView."
            )
        if len(stacks) == len(record.stacks):
            return record
        return derive_record(record, stacks)


def _reason(record: AttentionRecord) -> str:
    if any(stack.merged for stack in record.stacks.values()):
        return (
            "its tokens are merged into words, whose weights are sums and means over tokens. Pass "
            "the record before merge_words()"
        )
    signed = next((stack for stack in record.stacks.values() if stack.signed), None)
    if signed is not None:
        return (
            f"its numbers ({signed.measure}) are signed, and do not come from one query and one "
            "key. Pass the record of weights from which they were computed"
        )
    return "it was created from weights. Create it with attnviz.extract(model, inputs)"
