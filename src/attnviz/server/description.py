"""Description of a record for a view: tokens and properties of the stacks, without weights.

A stack is the attention of one kind in all layers, such as "self" or "cross". The description of a
long text is compressed and sent in several messages, because some programs that show notebooks
close the connection after a message that is too large. ``Source.describe`` in
``js/src/client/source.ts`` requests and decompresses the description.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

from attnviz.analysis import MEASURES, measures_of
from attnviz.analysis.measures import values_of
from attnviz.record import images
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import AttentionStack, sibling_stacks
from attnviz.record.tokens import Candidate, Prediction, Tokens
from attnviz.server.images import ImageHeader
from attnviz.utils.filenames import file_stem

PageForm = Literal["all", "vectors", "strongest"]


class PatchGrid(TypedDict):
    """Tokens that are the patches of one image, row by row from the top left.

    Attributes
    ----------
    image : int
        Index of the image among the images of the record, from 0.
    start : int
        Position of the first patch among the tokens.
    rows, columns : int
        Number of rows (`rows`) and of columns (`columns`) of patches.
    gap : int
        Number of tokens between two rows that are not patches. Omitted if 0.
    name : str
        Name of the image, such as that of a camera. Omitted if empty.
    """

    image: int
    start: int
    rows: int
    columns: int
    gap: NotRequired[int]
    name: NotRequired[str]


class TokenSpan(TypedDict):
    """Consecutive tokens with places on a line: seconds, steps of a channel, or a named group.

    Token ``start + i`` covers the places from ``origin + i * step`` to this plus `width`, in units.

    Attributes
    ----------
    start : int
        Position of the first token.
    columns : int
        Number of tokens.
    name : str
        Name of the sound, channel or group. It may be empty.
    unit : str
        ``"s"`` for seconds, ``"step"`` for steps of a time series. If it is empty, the tokens are
        only a group.
    origin : float
        Place at which the first token starts, in units.
    step : float
        Distance from the start of a token to that of the next one, in units.
    width : float
        Length of a token in units.
    """

    start: int
    columns: int
    name: str
    unit: str
    origin: float
    step: float
    width: float


class TokenList(TypedDict):
    """Tokens of the queries, or of the keys, of a stack, as views display them.

    Attributes
    ----------
    text : list of str
        Text of each token. Visible characters stand for white space.
    special : list of int
        Positions of the special tokens.
    sequence : list of (int or None)
        Text to which each token belongs. 0 is a single text or the first text of a pair, and 1 is
        the second text of a pair. None for a token of neither text, such as a special token.
    grids : list of PatchGrid
        Places of the tokens that are patches of images in the record. Omitted without images.
    spans : list of TokenSpan
        Places of other tokens: seconds of a sound, steps of a channel, named groups. Omitted
        without such tokens.
    predictions : list of Prediction
        Tokens that the model generated, or tokens of a target text that the user passed, in order.
        Each has the position of the query that predicted it. Omitted without predictions.
    """

    text: list[str]
    special: list[int]
    sequence: list[int | None]
    grids: NotRequired[list[PatchGrid]]
    spans: NotRequired[list[TokenSpan]]
    predictions: NotRequired[list[Prediction]]


class EmbeddedShare(TypedDict):
    """Form in which an exported page stores the weights of a stack, with their share and error.

    Attributes
    ----------
    form : {"all", "vectors", "strongest"}
        Form in which the page stores weights. "all": every weight. "vectors": queries and keys,
        from which the page computes every weight. "strongest": only the largest weights of each
        query.
    covered : float
        Sum of the stored weights divided by the sum of all weights. It is less than 1 only if
        `form` is "strongest". For signed numbers, both are sums of absolute values.
    error : float
        Largest absolute difference between a weight of the page and the weight of the exported
        record. If `form` is "vectors", it is measured, for large records only on a sample of the
        queries. Otherwise it is an upper bound.
    """

    form: PageForm
    covered: float
    error: float


class StackNumbers(TypedDict):
    """Properties of a stack, without its tokens.

    Attributes
    ----------
    layers : list of int
        Numbers of the layers that the stack contains.
    heads_per_layer : list of int
        Number of heads of each layer, in the order of `layers`.
    normalized : bool
        Whether the weights of each query sum to 1 (together with the weight of the sink, if the
        head has one).
    signed : bool
        Whether the numbers of the stack may be negative, as for differences of weights. Omitted if
        they may not.
    measure : str
        Name of the numbers that the stack contains, such as "difference". Omitted if they are
        attention weights.
    changed : str
        Words for what was changed in the run of the model. Omitted if nothing was changed.
    maximum : float
        Largest possible weight: 1 if `normalized`. Otherwise it is the largest weight of the stack,
        or an upper bound of it if the stack has many weights. If `signed`, it refers to absolute
        values.
    causal : bool
        Whether it is known that no query attends to a later key in any layer.
    vectors : bool
        Whether the queries and keys of the stack are known, and not only its weights.
    forced_queries : list of int
        Queries that may attend to one key only, such as the first of a causal text. Omitted if
        there are none.
    chooses_keys : bool
        Whether the model chooses keys before the softmax in some layers. The zeros in replies then
        say which keys are masked and which were not chosen. Omitted if it does not.
    top_k : int
        Default number of strongest keys per query that a view draws. Omitted if it draws all keys.
    patterns : list of str
        Names of the measures, such as "previous token" or "entropy", for which the heads have
        scores.
    sampled : int
        Number of sampled queries from which the scores of heads are estimated, if computing the
        weights of all queries would take too long. Maps of all queries then also use only some of
        them. Omitted if all queries are used.
    gates : list of (list of (float or None) or None)
        Mean gate of each head of each layer, in the order of `layers`. A gate is a factor that
        multiplies the output of a head, and the mean is that over dimensions and queries. None for
        a layer without gates, or for a head whose gate is not known. Omitted if no layer has gates.
    """

    name: str
    layers: list[int]
    heads_per_layer: list[int]
    normalized: bool
    signed: NotRequired[bool]
    measure: NotRequired[str]
    changed: NotRequired[str]
    maximum: float
    causal: bool
    vectors: bool
    forced_queries: NotRequired[list[int]]
    chooses_keys: NotRequired[bool]
    top_k: NotRequired[int]
    patterns: list[str]
    sampled: NotRequired[int]
    gates: NotRequired[list[list[float | None] | None]]


class StackDescription(StackNumbers):
    """Properties and tokens of a stack.

    Attributes
    ----------
    key_tokens : TokenList or None
        Tokens of the keys. None if they are the same tokens as the queries.
    embedded : EmbeddedShare
        Form in which an exported page stores the weights. Omitted in live views.
    """

    query_tokens: TokenList
    key_tokens: TokenList | None
    embedded: NotRequired[EmbeddedShare]


class SiblingStack(TypedDict):
    """Stack in a group of siblings, which are different kinds of layers of one model.

    Attributes
    ----------
    linear : bool
        Whether the layers are linear, without a softmax.
    """

    name: str
    linear: bool


class Description(TypedDict):
    """Description of a record: its model, stacks and tokens, but not its weights.

    Attributes
    ----------
    file : str
        Model name without characters that file names cannot have. Omitted if the model has no name.
    notes : list of str
        Sentences about the record that the view shows.
    classes : list of Candidate
        Most probable classes of a classifier. Omitted for other models.
    images : list of ImageHeader
        Height and width of each image in the model's input. Omitted without images.
    siblings : list of list of SiblingStack
        Groups of stacks that are different kinds of layers of the model (see
        `attnviz.record.stack.sibling_stacks`). Omitted without groups.
    """

    model: str
    file: NotRequired[str]
    notes: list[str]
    classes: NotRequired[list[Candidate]]
    images: NotRequired[list[ImageHeader]]
    stacks: list[StackDescription]
    siblings: NotRequired[list[list[SiblingStack]]]


# If a text has at most this many tokens, all lines are drawn by default. With more tokens, lines
# would overlap too much.
_MAX_TOKENS_WITH_ALL_LINES = 32
# Maximum length of a description that is sent as JSON, so that the browser's developer tools can
# show it. Longer descriptions are compressed.
_MAX_CHARACTERS = 100_000


def describe(record: AttentionRecord) -> Description:
    stacks = []
    for stack in record.stacks.values():
        same = stack.key_tokens is stack.query_tokens
        tokens = {
            "query_tokens": describe_tokens(stack.query_tokens),
            "key_tokens": None if same else describe_tokens(stack.key_tokens),
        }
        stacks.append({**describe_numbers(stack), **tokens})
    file = file_stem(record.model)
    sizes = [{"height": image.shape[0], "width": image.shape[1]} for image in record.images]
    siblings = [
        [{"name": stack.name, "linear": stack.linear} for stack in group]
        for group in sibling_stacks(record.stacks.values())
    ]
    description: dict[str, Any] = {
        "model": record.model,
        **({"file": file} if file else {}),
        "notes": list(record.notes),
        **({"classes": list(map(asdict, record.classes))} if record.classes else {}),
        **({"images": sizes} if sizes else {}),
        "stacks": stacks,
        **({"siblings": siblings} if siblings else {}),
    }
    return cast("Description", description)


def default_top_k(stack: AttentionStack) -> int | None:
    """Return the default number of strongest keys per query that a view draws, or None for all.

    It is 1 for the ranks of an indexer: half of the keys of a query have a rank above 0.5, so lines
    to several keys would overlap too much. For other numbers, it is None for short texts, and 3 for
    longer ones.
    """
    if stack.ranks:
        return 1
    longest = max(len(stack.query_tokens), len(stack.key_tokens))
    return None if longest <= _MAX_TOKENS_WITH_ALL_LINES else 3


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
        **({"changed": stack.changed} if stack.changed else {}),
        "maximum": stack.maximum,
        "causal": stack.causal,
        "vectors": stack.has_vectors,
        **({"forced_queries": list(stack.forced_queries)} if stack.forced_queries else {}),
        **({"chooses_keys": True} if stack.chooses_keys else {}),
        **({} if (top_k := default_top_k(stack)) is None else {"top_k": top_k}),
        "patterns": list(measures_of(stack)),
        **({} if sampled is None else {"sampled": sampled}),
        **({"gates": _mean_gates(stack)} if stack.has_gates else {}),
    }
    return cast("StackNumbers", described)


def _mean_gates(stack: AttentionStack) -> list[list[float | None] | None]:
    means: list[list[float | None] | None] = []
    for layer in stack.layers:
        gates = stack.gates(layer)
        if gates is None:
            means.append(None)
            continue
        of_heads = values_of(MEASURES["gate"], gates).tolist()
        # Four digits are more than views show. JSON has no NaN.
        means.append([None if math.isnan(gate) else float(f"{gate:.4g}") for gate in of_heads])
    return means


def describe_grid(grid: images.PatchGrid) -> PatchGrid:
    """Return the places of an image's patches as a JSON object."""
    described = {name: getattr(grid, name) for name in PatchGrid.__annotations__}
    # The gap is 0 and the name is empty in most grids.
    return cast(
        "PatchGrid",
        {
            name: value
            for name, value in described.items()
            if value not in ("", 0) or name not in ("gap", "name")
        },
    )


def _describe_spans(grid: images.PatchGrid) -> list[dict[str, Any]]:
    span = {name: getattr(grid, name) for name in TokenSpan.__annotations__}
    span["width"] = grid.width or grid.step
    if grid.rows == 1 or not grid.unit:
        return [span | {"columns": grid.stop - grid.start}]
    # Each row has all places, as the bands of a spectrogram have all frames.
    starts = grid.positions[:: grid.columns]
    names = [f"{grid.name} band {row}".strip() for row in range(grid.rows)]
    return [span | {"start": at, "name": name} for at, name in zip(starts, names, strict=True)]


def describe_tokens(tokens: Tokens) -> dict[str, Any]:
    """Return the tokens of one side of a stack as a JSON object (see `TokenList`)."""
    spans = [span for grid in tokens.grids if grid.image is None for span in _describe_spans(grid)]
    return {
        "text": list(tokens.text),
        "special": [position for position, flag in enumerate(tokens.special) if flag],
        "sequence": list(tokens.sequence),
        **({"grids": list(map(describe_grid, tokens.pictured))} if tokens.pictured else {}),
        **({"spans": spans} if spans else {}),
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
