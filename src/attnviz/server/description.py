"""What a record holds, told to a view without any weights.

A long text's tokens would make a message that some hosts end: it travels deflated, in parts.
``Source.describe`` in ``js/src/client/source.ts`` is the other side.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

from attnviz.analysis import patterns_of
from attnviz.record.images import PatchGrid
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.rows import scored_queries
from attnviz.record.stack import find_maximum
from attnviz.record.tokens import Prediction, Tokens
from attnviz.server.images import ImageHeader
from attnviz.utils.filenames import file_stem
from attnviz.utils.progress import Steps, completed

__all__ = [
    "Description",
    "StackDescription",
    "StackNumbers",
    "TokenList",
    "describe",
    "describing_numbers",
    "packed_description",
]

PageForm = Literal["all", "vectors", "strongest"]


class TokenList(TypedDict):
    """Display tokens of one side of a stack.

    Attributes
    ----------
    special : list of int
        Indices of special tokens.
    sequence : list of (int or None)
        0 for the first sequence of a pair, 1 for the second, null for special tokens.
    grids : list of PatchGrid
        Runs of patches, in order; left out where there are none.
    predictions : list of Prediction
        Tokens that the model produced, in order; left out where there are none.
    """

    text: list[str]
    special: list[int]
    sequence: list[int | None]
    grids: NotRequired[list[PatchGrid]]
    predictions: NotRequired[list[Prediction]]


class EmbeddedShare(TypedDict):
    """How an exported page embeds weights, and how much of them.

    Attributes
    ----------
    form : {"all", "vectors", "strongest"}
        Every weight, queries and keys that weights are computed from, or the strongest keys.
    covered : float
        Share of all weight that is embedded as it is; of all sizes, where numbers are signed.
    error : float
        Largest absolute error of a weight, as it was measured.
    """

    form: PageForm
    covered: float
    error: float


class StackNumbers(TypedDict):
    """One stack of attention layers, without its tokens.

    Attributes
    ----------
    layers : list of int
        The model's own layer numbers.
    heads_per_layer : list of int
        How many heads each layer has: as many as `layers`.
    normalized : bool
        Whether rows sum to one.
    signed : bool
        Whether numbers may be negative; left out where they are not.
    measure : str
        What the numbers are; left out where they are weights.
    maximum : float
        Largest weight that can occur: 1 where `normalized`. Largest size where `signed`.
    vectors : bool
        Whether queries and keys are known, and not the weights alone.
    patterns : list of str
        Names of the patterns that its heads can be scored by.
    sampled : int
        Queries that scores of heads are estimated from; only where whole maps of all heads take
        too long, so that maps are of some queries as well.
    """

    name: str
    layers: list[int]
    heads_per_layer: list[int]
    normalized: bool
    signed: NotRequired[bool]
    measure: NotRequired[str]
    maximum: float
    causal: bool
    vectors: bool
    patterns: list[str]
    sampled: NotRequired[int]


class StackDescription(StackNumbers):
    """One stack of attention layers: "self", "encoder", "decoder", "cross", ...

    Attributes
    ----------
    key_tokens : TokenList or None
        null: the same tokens as the queries.
    embedded : EmbeddedShare
        How much of its weights an exported page embeds; left out where there is a kernel.
    """

    query_tokens: TokenList
    key_tokens: TokenList | None
    embedded: NotRequired[EmbeddedShare]


class Description(TypedDict):
    """What a record holds.

    Attributes
    ----------
    file : str
        The model's name as a part of a file's name; left out where it has none.
    images : list of ImageHeader
        Sizes of the pictures that the model saw; left out where there are none.
    """

    model: str
    file: NotRequired[str]
    notes: list[str]
    images: NotRequired[list[ImageHeader]]
    stacks: list[StackDescription]


# Below, the description travels as it is: readable in the browser's tools.
_MOST_CHARACTERS = 100_000


def describe(record: AttentionRecord) -> Description:
    """Say what a record holds, without any weights; fit for JSON."""
    return completed(describing(record))


def describing(record: AttentionRecord) -> Steps[Description]:
    """Run `describe` in steps: the largest weight may have to be searched for among all weights."""
    stacks: list[dict[str, Any]] = []
    for stack in record.stacks.values():
        described = yield from _describe_stack(stack)
        stacks.append(described)
    file = file_stem(record.model)
    sizes = [{"height": each.shape[0], "width": each.shape[1]} for each in record.images]
    description: dict[str, Any] = {
        "model": record.model,
        **({"file": file} if file else {}),
        "notes": list(record.notes),
        **({"images": sizes} if sizes else {}),
        "stacks": stacks,
    }
    return cast("Description", description)


def _describe_stack(stack: AttentionStack) -> Steps[dict[str, Any]]:
    numbers = yield from describing_numbers(stack)
    same = stack.key_tokens is stack.query_tokens
    return {
        **numbers,
        "query_tokens": _describe_tokens(stack.query_tokens),
        "key_tokens": None if same else _describe_tokens(stack.key_tokens),
    }


def describing_numbers(stack: AttentionStack) -> Steps[StackNumbers]:
    """Describe a stack without its tokens, in steps."""
    maximum = yield from find_maximum(stack)
    sampled = scored_queries(stack)
    described: dict[str, Any] = {
        "name": stack.name,
        "layers": list(stack.layers),
        "heads_per_layer": list(stack.heads_per_layer),
        "normalized": stack.normalized,
        **({"signed": True} if stack.signed else {}),
        **({} if stack.measure == "weight" else {"measure": stack.measure}),
        "maximum": maximum,
        "causal": stack.causal,
        "vectors": stack.has_vectors,
        "patterns": list(patterns_of(stack)),
        **({} if sampled is None else {"sampled": sampled}),
    }
    return cast("StackNumbers", described)


def _describe_tokens(tokens: Tokens) -> dict[str, Any]:
    return {
        "text": list(tokens.text),
        "special": [position for position, flag in enumerate(tokens.special) if flag],
        "sequence": list(tokens.sequence),
        **({"grids": list(map(asdict, tokens.grids))} if tokens.grids else {}),
        **({"predictions": list(map(asdict, tokens.predictions))} if tokens.predictions else {}),
    }


def packed_description(description: Description) -> bytes | None:
    """Deflated UTF-8 of a description's JSON; None where that is short enough as it is."""
    # Characters outside a text's encoding are escaped: a token may hold half of a pair.
    text = json.dumps(description, separators=(",", ":"))
    return None if len(text) <= _MOST_CHARACTERS else zlib.compress(text.encode("ascii"))
