"""Description of a record for a view: tokens and properties of the stacks, without weights.

A stack is the attention of one kind in all layers, such as "self" or "cross". The description of a
long text is compressed and sent in several messages, because some programs that show notebooks
close the connection after a message that is too large. ``Source.describe`` in
``js/src/client/source.ts`` requests and decompresses the description.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

from attnviz.analysis import measures_of
from attnviz.record.images import PatchGrid
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.record.tokens import Prediction, Tokens
from attnviz.server.images import ImageHeader
from attnviz.utils.filenames import file_stem

PageForm = Literal["all", "vectors", "strongest"]


class TokenList(TypedDict):
    """Displayed tokens of the queries or keys of a stack.

    Attributes
    ----------
    text : list of str
        Text of each token.
    special : list of int
        Positions of the special tokens.
    sequence : list of (int or None)
        Text to which each token belongs: 0 for a single text or the first text of a pair, 1 for the
        second text of a pair, null for a special token.
    grids : list of PatchGrid
        Rows and columns of the patches of each image among the tokens. Omitted without images.
    predictions : list of Prediction
        Tokens that the model generated, or tokens of a target text that was given to the model, in
        order. Omitted if there are none.
    """

    text: list[str]
    special: list[int]
    sequence: list[int | None]
    grids: NotRequired[list[PatchGrid]]
    predictions: NotRequired[list[Prediction]]


class EmbeddedShare(TypedDict):
    """Form of the weights that are embedded in an exported page, and their share of all weights.

    Attributes
    ----------
    form : {"all", "vectors", "strongest"}
        "all": the page has every weight. "vectors": the page computes the weights from queries and
        keys. "strongest": the page has only the largest weights of each query.
    covered : float
        Sum of the embedded weights divided by the sum of all weights. For signed numbers, the sums
        are of absolute values.
    error : float
        Upper bound of the absolute difference between a weight of the page and the weight of the
        exported record.
    """

    form: PageForm
    covered: float
    error: float


class StackNumbers(TypedDict):
    """Properties of one stack of attention layers, without its tokens.

    Attributes
    ----------
    layers : list of int
        Numbers of the layers in the model.
    heads_per_layer : list of int
        Number of heads of each layer, in the order of `layers`.
    normalized : bool
        Whether the weights of each query sum to 1.
    signed : bool
        Whether numbers may be negative. Omitted if False.
    measure : str
        Name of the quantity that the stack contains, such as "difference". Omitted for weights.
    maximum : float
        Largest possible weight, which is 1 if `normalized`. Otherwise it is the largest weight or,
        for many weights, an upper bound. If `signed`, it is an absolute value.
    causal : bool
        Whether the masks of all layers are known to forbid attention to later keys.
    vectors : bool
        Whether the stack has queries and keys, and not only weights.
    patterns : list of str
        Names of the measures, such as "previous token" or "entropy", by which heads can be ordered.
    sampled : int
        Number of sampled queries from which the scores of heads are estimated, if computing the
        weights of all queries would take too long. In this case, thumbnails of heads also show only
        sampled queries. Omitted if all queries are used.
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
    """Properties and tokens of one stack of attention layers, such as "self" or "cross".

    Attributes
    ----------
    key_tokens : TokenList or None
        Key tokens, or null if they are the same tokens as the queries.
    embedded : EmbeddedShare
        Form and share of the weights in an exported page. Omitted in live views.
    """

    query_tokens: TokenList
    key_tokens: TokenList | None
    embedded: NotRequired[EmbeddedShare]


class Description(TypedDict):
    """Description of a record.

    Attributes
    ----------
    file : str
        Model name without characters that file names cannot have. Omitted if the model has no name.
    notes : list of str
        Sentences about the record for readers of the view.
    images : list of ImageHeader
        Sizes of the images in the model's input. Omitted without images.
    """

    model: str
    file: NotRequired[str]
    notes: list[str]
    images: NotRequired[list[ImageHeader]]
    stacks: list[StackDescription]


# Maximum length of a description that is sent as JSON, so that the browser's developer tools can
# show it. Longer descriptions are compressed.
_MAX_CHARACTERS = 100_000


def describe(record: AttentionRecord) -> Description:
    stacks = []
    for stack in record.stacks.values():
        same = stack.key_tokens is stack.query_tokens
        tokens = {
            "query_tokens": _describe_tokens(stack.query_tokens),
            "key_tokens": None if same else _describe_tokens(stack.key_tokens),
        }
        stacks.append({**describe_numbers(stack), **tokens})
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


def describe_numbers(stack: AttentionStack) -> StackNumbers:
    """Compute the properties of a stack without its tokens."""
    sampled = num_scored_queries(stack)
    described: dict[str, Any] = {
        "name": stack.name,
        "layers": list(stack.layers),
        "heads_per_layer": list(stack.heads_per_layer),
        "normalized": stack.normalized,
        **({"signed": True} if stack.signed else {}),
        **({} if stack.measure == "weight" else {"measure": stack.measure}),
        "maximum": find_maximum(stack),
        "causal": stack.causal,
        "vectors": stack.has_vectors,
        "patterns": list(measures_of(stack)),
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
    """Return the JSON of a description, compressed with zlib.

    Return None if the JSON has at most `_MAX_CHARACTERS`, because it is then sent without
    compression.
    """
    # `json.dumps` escapes non-ASCII characters. Without this, a token that contains only one half
    # of a surrogate pair could not be encoded in UTF-8.
    text = json.dumps(description, separators=(",", ":"))
    return None if len(text) <= _MAX_CHARACTERS else zlib.compress(text.encode("ascii"))
