"""Description of a record for a view, without weights.

Some hosts close the connection when a message is as large as the tokens of a long text. A long
description is therefore deflated and sent in parts. ``Source.describe`` in
``js/src/client/source.ts`` requests and unpacks it.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

from attnviz.analysis import patterns_of
from attnviz.record.images import PatchGrid
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import find_maximum
from attnviz.record.tokens import Prediction, Tokens
from attnviz.server.images import ImageHeader
from attnviz.utils.filenames import file_stem
from attnviz.utils.progress import Steps, run_steps

__all__ = [
    "Description",
    "StackDescription",
    "StackNumbers",
    "TokenList",
    "describe",
    "describe_numbers",
    "pack_description",
]

PageForm = Literal["all", "vectors", "strongest"]


class TokenList(TypedDict):
    """Displayed tokens of the queries or keys of a stack.

    Attributes
    ----------
    special : list of int
        Indices of special tokens.
    sequence : list of (int or None)
        0 for the first sequence of a pair, 1 for the second, null for special tokens.
    grids : list of PatchGrid
        Patch grids, in token order. Omitted if there are none.
    predictions : list of Prediction
        Tokens that the model generated, in order. Omitted if there are none.
    """

    text: list[str]
    special: list[int]
    sequence: list[int | None]
    grids: NotRequired[list[PatchGrid]]
    predictions: NotRequired[list[Prediction]]


class EmbeddedShare(TypedDict):
    """Form in which an exported page embeds weights, and the share that it embeds.

    Attributes
    ----------
    form : {"all", "vectors", "strongest"}
        Every weight, or the queries and keys from which weights are computed, or the strongest
        keys.
    covered : float
        Embedded share of the sum of all weights, or of all absolute values if numbers are signed.
    error : float
        Largest measured absolute error of a weight.
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
        Number of heads of each layer, in the order of `layers`.
    normalized : bool
        Whether rows sum to one.
    signed : bool
        Whether numbers may be negative. Omitted if they cannot.
    measure : str
        Name of the quantity. Omitted for weights.
    maximum : float
        Largest weight that can occur, which is 1 if `normalized`. Largest absolute value if
        `signed`.
    vectors : bool
        Whether queries and keys are available, not only weights.
    patterns : list of str
        Names of the patterns by which the heads can be scored.
    sampled : int
        Number of queries from which head scores are estimated. Present only if complete maps of
        all heads take too long. Maps then show a sample of the queries as well.
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
        null if the keys are the same tokens as the queries.
    embedded : EmbeddedShare
        Share of the weights that an exported page embeds. Omitted in live views.
    """

    query_tokens: TokenList
    key_tokens: TokenList | None
    embedded: NotRequired[EmbeddedShare]


class Description(TypedDict):
    """Description of a record.

    Attributes
    ----------
    file : str
        Model name in a form fit for file names. Omitted if the model has no name.
    images : list of ImageHeader
        Sizes of the images in the model's input. Omitted if there are none.
    """

    model: str
    file: NotRequired[str]
    notes: list[str]
    images: NotRequired[list[ImageHeader]]
    stacks: list[StackDescription]


# Up to this length, the description is sent as JSON, which the browser's developer tools show.
_MAX_CHARACTERS = 100_000


def describe(record: AttentionRecord) -> Description:
    """Return the description of a record as JSON values."""
    return run_steps(describe_in_steps(record))


def describe_in_steps(record: AttentionRecord) -> Steps[Description]:
    """Return the description of a record in steps: finding the largest weight can take long."""
    stacks: list[dict[str, Any]] = []
    for stack in record.stacks.values():
        described = yield from _describe_stack(stack)
        stacks.append(described)
    file = file_stem(record.model)
    sizes = [{"height": image.shape[0], "width": image.shape[1]} for image in record.images]
    description: dict[str, Any] = {
        "model": record.model,
        **({"file": file} if file else {}),
        "notes": list(record.notes),
        **({"images": sizes} if sizes else {}),
        "stacks": stacks,
    }
    return cast("Description", description)


def _describe_stack(stack: AttentionStack) -> Steps[dict[str, Any]]:
    numbers = yield from describe_numbers(stack)
    same = stack.key_tokens is stack.query_tokens
    return {
        **numbers,
        "query_tokens": _describe_tokens(stack.query_tokens),
        "key_tokens": None if same else _describe_tokens(stack.key_tokens),
    }


def describe_numbers(stack: AttentionStack) -> Steps[StackNumbers]:
    """Return the description of a stack without its tokens, in steps."""
    maximum = yield from find_maximum(stack)
    sampled = num_scored_queries(stack)
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


def pack_description(description: Description) -> bytes | None:
    """Return the deflated JSON of a description, or None if it is short enough to send as JSON."""
    # `json.dumps` escapes non-ASCII characters: a token may hold one half of a surrogate pair.
    text = json.dumps(description, separators=(",", ":"))
    return None if len(text) <= _MAX_CHARACTERS else zlib.compress(text.encode("ascii"))
