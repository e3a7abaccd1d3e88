"""The model view, which shows all heads of all layers as thumbnails, and one head in detail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import existing_number, existing_numbers
from attnviz.views.effects import TokenScores
from attnviz.views.generated_token import GeneratedToken
from attnviz.views.head_order import HeadOrder
from attnviz.views.token_windows import HeatMap
from attnviz.views.trait_types import Choice, as_trait_errors
from attnviz.views.what_if import WhatIf


class _IncludeHeads(traitlets.TraitType):  # type: ignore[type-arg]
    """Trait for the heads that a view offers.

    The value is one list for all layers, a dict with a list for each layer, or None for all heads.
    The layers in the dict are strings, because keys in JSON are strings.
    """

    wire = list[int] | dict[str, list[int]]
    default_value = None
    allow_none = True

    def validate(self, obj: Any, value: Any) -> list[int] | dict[str, list[int]] | None:
        """Convert heads to lists of non-negative numbers, and "all" to None.

        Raise TraitError if the record lacks one of the layers or heads, or for other values.
        """
        if value is None or (isinstance(value, str) and value == "all"):
            return None
        with as_trait_errors():
            return _check_include_heads(value, obj.record)


class ModelView(HeatMap, TokenScores, HeadOrder, GeneratedToken, WhatIf):
    """Grid of thumbnails of all heads, with layers as rows and heads as columns.

    A click on a thumbnail, or Enter, opens this head in detail beside the grid. If heads are
    ordered by a score, the thumbnails of all layers are in one list, with the largest score first.

    In long texts, computing all weights of all heads would take hours. If a text has more than
    4,096 tokens (32,768 tokens if queries and keys are on a GPU), thumbnails show only 32 queries
    of the text (`attnviz.record.rows.sample_queries`), and the scores that order heads are
    estimated from 64 queries. The view requests only the heads that are visible.

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
        `token_score` (`attnviz.views.effects.TokenScores`), `answer`, `changes` and `run`
        (`attnviz.views.what_if.WhatIf`). The detail shows the first head in `heads`. By default
        `heads` is empty, and no detail is open.

    Attributes
    ----------
    thumbnails : {"heat-map", "lines"}
        Form of the thumbnails: small heat maps, with queries as rows and keys as columns, or small
        lines from queries on the left to keys on the right.
    include_heads : list of int, dict of str to list of int, or None
        Heads that the grid offers. A list contains the heads to offer in each layer. A dict
        contains the heads to offer by layer, and layers that are not in the dict are not offered.
        None offers all heads. The trait can also be set to one number, to ``"all"``, to a dict with
        integers as layers, and to negative numbers, which count from the end.

    Raises
    ------
    traitlets.TraitError
        If `include_heads` contains a layer or a head that the record does not have.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> view = av.ModelView(record, include_heads={0: [0]})    # doctest: +SKIP
    >>> view.include_heads                                     # doctest: +SKIP
    {'0': [0]}
    """

    name: ClassVar[str] = "model"
    saves_chosen_heads: ClassVar[bool] = False
    saves_all_heads: ClassVar[bool] = True
    # Do not open the detail of a head without a click. It would take space from the grid, which
    # already shows all heads.
    opens_at_pattern: ClassVar[bool] = False

    thumbnails = Choice(["heat-map", "lines"], "heat-map").tag(
        sync=True, label="Thumbnails", labels={"heat-map": "heat maps"}, group="grid"
    )
    include_heads = _IncludeHeads().tag(sync=True)


def _check_include_heads(
    include_heads: Any, record: AttentionRecord
) -> list[int] | dict[str, list[int]]:
    """Return the heads as lists of non-negative numbers, by layer if they are passed by layer.

    A negative head counts from the end of its layer or, without layers, from the end of the layer
    with the most heads. Raise IndexError, TypeError or ValueError if a layer or head is invalid.
    """
    stacks, name = record.stacks.values(), "include_heads"
    if not isinstance(include_heads, Mapping):
        most = max(max(stack.heads_per_layer) for stack in stacks)
        heads = existing_numbers(name, include_heads, range(most), "this record has heads")
        return sorted(set(heads))
    layers = sorted({layer for stack in stacks for layer in stack.layers})
    by_layer = {}
    for key, heads in include_heads.items():
        # Layers may be strings, because keys in the JSON from the browser are strings.
        layer = existing_number(name, int(key), layers, "this record has layers")
        most = max(stack.num_heads(layer) for stack in stacks if layer in stack.layers)
        valid = existing_numbers(name, heads, range(most), f"layer {layer} has heads")
        by_layer[layer] = sorted(set(valid))
    if not by_layer:
        raise IndexError("include_heads={} contains no layer. Omit it to offer all heads.")
    return {str(layer): by_layer[layer] for layer in sorted(by_layer)}
