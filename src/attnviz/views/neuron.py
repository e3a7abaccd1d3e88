"""The neuron view, which shows how a weight is computed from a query and a key."""

from __future__ import annotations

from typing import Any, ClassVar

import traitlets

from attnviz.analysis.heads import closed_heads
from attnviz.pages.html import Embedded
from attnviz.record.record import AttentionRecord, derive_record
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.arguments import short_repr
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.record_view import RecordView


class NeuronView(HeadOrder, GeneratedToken, RecordView):
    """Computation of the weights of one query from q and k, through their products and the logit.

    The view has one row per key and one cell per dimension. In a row, the products q x k x scale of
    all dimensions add up to the number beside the cells. The logit is this sum, with the soft cap
    and the bias of the model if it has them. The weight is the softmax of the logits of all rows,
    and of the sink if the head has one.

    Parameters
    ----------
    record : AttentionRecord
        Record of one example with queries and keys, as `attnviz.extract` returns it.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers. All by default.
    **traits
        Initial values of the traits below and of the traits that views of a record share: `stack`,
        `layer`, `heads`, `token`, `key`, `theme` (see `attnviz.views.position.PositionedView`),
        `pair`, `prediction`, `as_query` (`attnviz.views.generated_token.GeneratedToken`), `order`,
        `scores` (`attnviz.views.head_order.HeadOrder`). The view shows the first
        head in `heads`. `token` is the query. None is the last query that is not a special token.
        `key` is the key whose row is highlighted. None is the strongest key.

    Attributes
    ----------
    sort_dimensions : bool
        Whether dimensions are sorted by their share in the row of the highlighted key, with the
        largest share first. The share of a dimension is the absolute value of its cell, divided by
        the sum of the absolute values of all cells in the row.

    Raises
    ------
    ValueError
        If the record has no queries and keys, because it was created from weights or its tokens are
        merged into words. If only some of its stacks have no queries and keys, these stacks are
        left out instead.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                        # doctest: +SKIP
    >>> record = av.extract(model, "the cat sat", tokenizer=tokenizer)     # doctest: +SKIP
    >>> view = NeuronView(record, layer=0, heads=[3], token=2)             # doctest: +SKIP
    """

    name: ClassVar[str] = "neuron"
    embeds: ClassVar[frozenset[Embedded]] = frozenset({"vectors", "scores"})

    sort_dimensions = traitlets.Bool(default_value=True).tag(
        sync=True, label="Sort dimensions by share", group="dimensions"
    )

    def _default_traits(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """Return the default of `heads`: the first head whose gate is open, or head 0."""
        has_layer = layer in stack.layers
        return {"heads": [int(closed_heads(stack, layer).argmin()) if has_layer else 0]}

    def _supported_part(self, record: AttentionRecord) -> AttentionRecord:
        """Return the record with only the stacks that have queries and keys.

        Raise ValueError if none of its stacks has queries and keys.
        """
        stacks = {name: stack for name, stack in record.stacks.items() if stack.has_vectors}
        if not stacks:
            raise ValueError(
                "NeuronView needs queries and keys, but this record has none. Records that were "
                "created from weights, words (merge_words) and signed numbers have none. Pass the "
                "record of attnviz.extract(model, inputs), or use HeadView, ModelView or "
                "MatrixView."
            )
        if len(stacks) == len(record.stacks):
            return record
        omitted = [f"stack {quote(name)}" for name in record.stacks if name not in stacks]
        # Notes that name an omitted stack explain numbers that this view does not show.
        notes = [note for note in record.notes if not any(name in note for name in omitted)]
        notes.append(
            f"Not in this view: {', '.join(omitted)}, without queries and keys of a softmax."
        )
        return derive_record(record, stacks, notes=notes)

    def _stack_named(self, name: str) -> AttentionStack:
        if name not in self.record.stacks:
            raise traitlets.TraitError(
                f"stack={short_repr(name)}: NeuronView shows the stacks with queries and keys: "
                f"{', '.join(map(repr, self.record.stacks))}. Other views show all stacks."
            )
        return super()._stack_named(name)
