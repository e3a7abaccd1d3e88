"""Server that answers the requests of the views of a record.

A view never receives all weights of a record. It requests the description of the record once, and
then only the weights that it draws. Each kind of request is a class in this module. Its fields are
the arguments, and its method `answer` computes the reply. For all requests:

- The arguments are checked before the computation starts.
- The buffer of a reply has at most one megabyte (`attnviz.server.protocol.MAX_REPLY_BYTES`).
- The size of caches is limited.

A stack is the attention of one kind in all layers, such as "self" or "cross". The answer of a run
of the model is the number that is measured in this run, for example the logit of a token.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import head_scores
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.record.storage.mapped import MappedFile
from attnviz.record.tokens import Prediction
from attnviz.server.base import BaseServer, MakePage, PageHeader, PageRequest
from attnviz.server.codec import EncodedHeader, encode
from attnviz.server.description import (
    Description,
    StackNumbers,
    describe,
    pack_description,
)
from attnviz.server.images import ImageHeader, encode_image
from attnviz.server.maps import encode_maps
from attnviz.server.protocol import (
    MAX_REPLY_BYTES,
    PartHeader,
    Range,
    Reply,
    Requests,
    check_heads,
    check_reply_size,
    get_part,
    range_slice,
)
from attnviz.server.row_normalizers import CACHE_BYTES, RowNormalizers
from attnviz.server.strongest import Combine, Pair, StrongestHeader, encode_strongest
from attnviz.server.tiles import Pooled, TileHeader, encode_tile
from attnviz.server.vectors import VectorsHeader, encode_vectors
from attnviz.utils.arguments import existing_number, format_numbers

RECORD_REQUESTS: Requests[RecordServer] = Requests(
    "The attnviz of the kernel may be older than the view."
)
RECORD_REQUESTS.add("page", PageHeader)(PageRequest)


class RecordServer(BaseServer):
    """Server that answers requests about one record.

    Parameters
    ----------
    record : AttentionRecord
        Record that the requests are about.
    page : callable, optional
        Function that makes the exported page from the state of a view. If omitted, the page cannot
        be exported from the browser.
    interventions : Interventions, optional
        Object that runs the model with changed attention. If omitted, requests that need the model
        raise an error.
    share : int
        Number of servers that share the default cache size `CACHE_BYTES`.

    Examples
    --------
    >>> from attnviz.record.record import AttentionRecord
    >>> server = RecordServer(AttentionRecord.from_weights([[[[1.0]]]], ["a"]))
    >>> server.reply("describe", {}).header["stacks"][0]["layers"]
    [0]
    """

    requests = RECORD_REQUESTS

    def __init__(
        self,
        record: AttentionRecord,
        page: MakePage | None = None,
        *,
        interventions: Interventions | None = None,
        share: int = 1,
    ) -> None:
        super().__init__(page)
        self.record = record
        self._interventions = interventions
        self.row_normalizers = RowNormalizers(CACHE_BYTES // share)
        self.description: Description | bytes | None = None

    @property
    def mapped_files(self) -> Collection[MappedFile]:
        return self.record.mapped_files

    def stack(self, name: str) -> AttentionStack:
        """Return a stack of the record, or of a cached run of the model with changed attention."""
        changed = None if self._interventions is None else self._interventions.stack(name)
        return self.record.stack(name) if changed is None else changed

    @property
    def interventions(self) -> Interventions:
        """Object that runs the model. Raise ValueError if the view has no model."""
        if self._interventions is None:
            raise ValueError("this view has no model")
        return self._interventions


# Maximum number of bytes of one score in JSON, including the separator after it.
_SCORE_BYTES = 22


@RECORD_REQUESTS.add("describe", Description, PartHeader)
@dataclass(frozen=True)
class DescribeRequest:
    """Request for the description of the record.

    The description of a short text is the header of the reply. The description of a long text is
    compressed and divided into parts. The buffer of the reply then has the part with the index
    `part`, from 0.
    """

    part: int = 0

    def answer(self, server: RecordServer) -> Reply:
        if server.description is None:
            description = describe(server.record)
            server.description = pack_description(description) or description
        if not isinstance(server.description, bytes):
            return Reply(server.description)
        piece, parts = get_part(server.description, self.part, "a description")
        return Reply({"parts": parts}, piece)


@RECORD_REQUESTS.add("block", EncodedHeader)
@dataclass(frozen=True)
class BlockRequest:
    """Request for the weights of some heads, rows (queries) and columns (keys) of a layer."""

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    columns: Range

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        layer, heads = check_heads(stack, self.layer, self.heads)
        rows = range_slice("rows", self.rows, len(stack.query_tokens))
        columns = range_slice("columns", self.columns, len(stack.key_tokens))
        shape = (len(heads), rows.stop - rows.start, columns.stop - columns.start)
        check_reply_size("the weights of a block", 4 * math.prod(shape), "Request a smaller block.")
        maximum = find_maximum(stack)
        block = server.row_normalizers.block(stack, layer, heads, rows, columns)
        weights = block.cpu().numpy()
        label = f"stack {stack.name!r}, layer {layer}, heads {format_numbers(sorted(heads))}"
        encoded = encode(weights, "float32", maximum, signed=stack.signed, label=label)
        return Reply(encoded.header(), encoded.data)


class MapsHeader(EncodedHeader):
    """Header of a reply with maps of heads in its buffer.

    Attributes
    ----------
    pooled : str
        "max", because each cell of a map has the largest of its weights.
    largest : list
        Largest cell of each map: its index in the flattened map (row-major), and its exact value.
        Signed numbers are compared by absolute value.
    sampled : list of int
        Positions of the sampled queries, one for each row of a map. Omitted if all queries were
        used.
    """

    pooled: str
    largest: NotRequired[list[tuple[int, float]]]
    sampled: NotRequired[list[int]]


@RECORD_REQUESTS.add("maps", MapsHeader)
@dataclass(frozen=True)
class MapsRequest:
    """Request for maps of heads with at most `size` rows and columns of cells.

    Each cell of a map covers successive queries and keys and has their largest weight. For signed
    numbers, it has the number with the largest absolute value, including its sign. For long texts,
    only some queries are used (`MapsHeader.sampled`).

    Attributes
    ----------
    heads : list of int, optional
        Numbers of the heads. By default all heads.
    rows, columns : range, optional
        Half-open ranges of queries and of keys. By default all queries and all keys.
    """

    stack: str
    layer: int
    size: int
    heads: tuple[int, ...] | None = None
    rows: Range | None = None
    columns: Range | None = None

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
        maps, sampled, largest = encode_maps(
            stack,
            self.layer,
            self.size,
            heads=self.heads,
            rows=range_slice("rows", self.rows or (0, num_queries), num_queries),
            columns=range_slice("columns", self.columns or (0, num_keys), num_keys),
        )
        header = {**maps.header(), "pooled": "max", "largest": largest}
        return Reply(header if sampled is None else {**header, "sampled": sampled}, maps.data)


@RECORD_REQUESTS.add("strongest", StrongestHeader)
@dataclass(frozen=True)
class StrongestRequest:
    """Request for the keys with the largest weights of some queries.

    Signed numbers are compared by absolute value. Their weights are returned with their signs, but
    the sums of weights are sums of absolute values.

    Attributes
    ----------
    rows : range
        Half-open range of queries.
    k : int
        Number of keys per query.
    combine : {"separate", "mean", "max"}
        "separate" returns the keys of each head. "mean" and "max" first combine the weights of all
        heads to one matrix.
    leave_out : list
        Keys to leave out: "special" for special tokens, "first" for the first token, or positions.
    pair : {"all", "a-a", "a-b", "b-a", "b-b"}
        Keys to include if the input is a pair of texts a and b. "a-b" and "b-b" include only keys
        in text b, "a-a" and "b-a" only keys in text a. "all" includes all keys.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    k: int
    combine: Combine
    leave_out: tuple[str | int, ...]
    pair: Pair

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        header, data = encode_strongest(
            stack,
            layer=self.layer,
            heads=self.heads,
            rows=range_slice("rows", self.rows, len(stack.query_tokens)),
            k=self.k,
            combine=self.combine,
            leave_out=self.leave_out,
            pair=self.pair,
            row_normalizers=server.row_normalizers,
        )
        return Reply(header, data)


@RECORD_REQUESTS.add("tile", TileHeader)
@dataclass(frozen=True)
class TileRequest:
    """Request for a tile of a head's matrix of weights, or of the mean of several heads.

    A tile has 256 by 256 cells (`attnviz.server.tiles.TILE`). At the zoom level l, a cell covers
    2^l by 2^l weights. Tile (row, column) begins at query ``row * 256 * 2^l`` and key ``column *
    256 * 2^l``. The last tile of a row or column can be smaller. A cell shows the mean or maximum
    of its weights. For signed numbers, positive and negative numbers are pooled separately, and a
    cell shows the result with the larger absolute value.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    level: int
    row: int
    column: int
    pooled: Pooled

    def answer(self, server: RecordServer) -> Reply:
        cells, interval = encode_tile(
            server.stack(self.stack),
            server.row_normalizers,
            layer=self.layer,
            heads=self.heads,
            level=self.level,
            position=(self.row, self.column),
            pooled=self.pooled,
        )
        header = cells.header()
        return Reply(
            header if interval is None else {**header, "sampling_interval": interval}, cells.data
        )


class ScoresHeader(TypedDict):
    """Header of a reply with the score of each head for one measure.

    Attributes
    ----------
    scores : list of list of (float or None)
        Scores of the heads, as one list for each layer. null if a score is undefined.
    """

    scores: list[list[float | None]]


@RECORD_REQUESTS.add("scores", ScoresHeader)
@dataclass(frozen=True)
class ScoresRequest:
    """Request for the score of each head of a stack for a measure, such as "previous token".

    `pattern` is the name of the measure. For long texts, scores are estimated from sampled queries.
    """

    stack: str
    pattern: str

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        count = sum(stack.heads_per_layer)
        check_reply_size(
            f"scores of {count:,} heads", _SCORE_BYTES * count, "Capture fewer layers."
        )
        queries = num_scored_queries(stack)
        scores = head_scores(stack, self.pattern, max_queries=queries)
        return Reply({"scores": finite_scores(scores)})


@RECORD_REQUESTS.add("vectors", VectorsHeader)
@dataclass(frozen=True)
class VectorsRequest:
    """Request for the vectors of a query and some keys of a head, with their logits and weights.

    Attributes
    ----------
    token : int
        Position of the query.
    keys : range
        Half-open range of keys.
    """

    stack: str
    layer: int
    head: int
    token: int
    keys: Range

    def answer(self, server: RecordServer) -> Reply:
        stack = server.stack(self.stack)
        header, data = encode_vectors(
            stack,
            layer=self.layer,
            head=self.head,
            token=self.token,
            keys=range_slice("keys", self.keys, len(stack.key_tokens)),
        )
        return Reply(header, data)


@RECORD_REQUESTS.add("image", ImageHeader)
@dataclass(frozen=True)
class ImageRequest:
    """Request for an image of the record. An image that is too large for a reply is reduced."""

    index: int

    def answer(self, server: RecordServer) -> Reply:
        images = server.record.images
        owner = f"the record has {len(images)} images,"
        index = existing_number("index", self.index, range(len(images)), owner)
        header, data = encode_image(images[index], MAX_REPLY_BYTES)
        return Reply(header, data)


class AnswerToken(TypedDict):
    """One of the most probable tokens or classes of the output."""

    text: str
    id: int


class OutcomeHeader(TypedDict):
    """Header of a reply with the effect of changes on the answer.

    The answer is the number that is measured, for example the logit of a token. The noise is the
    change of the answer if the attention is recomputed without a change. Smaller effects are not
    significant.

    Attributes
    ----------
    sentence : str
        Sentence with the answer before and after the changes, and the noise. Without changes, it
        describes the unchanged run.
    measure : str
        Name of the answer.
    candidates_before, candidates_after : list of AnswerToken
        Most probable tokens or classes before and after the changes.
    """

    sentence: str
    measure: str
    candidates_before: list[AnswerToken]
    candidates_after: list[AnswerToken]


class ChangedStack(TypedDict):
    """Stack of a run with changed attention, and its difference from the unchanged run.

    Attributes
    ----------
    stack : str
        Name of the same stack in the unchanged run.
    after : StackNumbers
        Stack of the changed run.
    difference : StackNumbers
        Weights of the changed run minus weights of the unchanged run.
    predictions : list of Prediction
        Predicted tokens of the changed run, as in `TokenList`.
    """

    stack: str
    after: StackNumbers
    difference: StackNumbers
    predictions: list[Prediction]


class ChangedHeader(TypedDict):
    """Header of a reply with the stacks of a run with changed attention."""

    stacks: list[ChangedStack]


class Cut(TypedDict):
    """Effect of a cut on the answer. A cut removes the attention of one query to one key.

    Attributes
    ----------
    description : str
        Description of the cut, with the answer before and after.
    measure : str
        Name of the answer that was measured, for example the logit of a token.
    """

    description: str
    measure: str


class EdgeHeader(TypedDict):
    """Header of a reply about a query-key pair: its contribution, and the effects of its cuts.

    A cut removes the attention of the query to the key.

    Attributes
    ----------
    model : {"waits", "ready"}
        Whether the model has run ("ready") or not ("waits").
    share : float or None
        Contribution of the key to the output of the query. It is the norm of weight times value
        vector times output projection, divided by the sum of these norms over all keys. null if it
        is not known.
    share_problem : str
        Reason why `share` is null. "" if `share` is known, or if the model has not run.
    cuts : list of Cut
        Effects of the cuts of this pair in earlier runs.
    noise : str
        Largest noise of these effects, as text. "" if the pair was not cut.
    """

    model: Literal["waits", "ready"]
    share: float | None
    share_problem: str
    cuts: list[Cut]
    noise: str


class Interventions(Protocol):
    """Interface of an object that runs the model of a view with changed attention."""

    def outcome(
        self, changes: tuple[Mapping[str, Any], ...], measured: tuple[int | str, ...] | None
    ) -> OutcomeHeader:
        """Run the model with all `changes` together, and return their effect on the answer.

        `measured` determines the answer, as in `InterveneRequest`. The model does not run if the
        run is cached.
        """
        ...

    def changed(self, changes: tuple[Mapping[str, Any], ...]) -> ChangedHeader:
        """Describe the stacks of the run with `changes`, and cache them for the method `stack`.

        Run the model if the run is not cached.
        """
        ...

    def stack(self, name: str) -> AttentionStack | None:
        """Return the stack `name` of a cached run, or None if no cached run has this stack."""
        ...

    def edge(self, asked: EdgeRequest) -> EdgeHeader:
        """Describe a query-key pair from earlier runs, without running the model."""
        ...


@RECORD_REQUESTS.add("intervene", OutcomeHeader)
@dataclass(frozen=True)
class InterveneRequest:
    """Request to run the model with changes, and to measure their effect on the answer.

    Attributes
    ----------
    changes : list of objects
        JSON forms of the changes, which are made together (see
        `attnviz.interventions.changes.change_to_json`). If empty, the model runs without changes.
    measured : list of (int or str), or None
        Answer to measure: one token for its logit, or two tokens for the difference of their
        logits. An empty list means the default of `attnviz.intervene`. null means the `answer` of
        the view, which can be a function.
    """

    changes: tuple[Mapping[str, Any], ...]
    measured: tuple[int | str, ...] | None = None

    def answer(self, server: RecordServer) -> Reply:
        return Reply(server.interventions.outcome(self.changes, self.measured))


@RECORD_REQUESTS.add("changed", ChangedHeader)
@dataclass(frozen=True)
class ChangedRequest:
    """Request for a description of the stacks of the run with `changes`.

    `changes` has the same form as in `InterveneRequest`.
    """

    changes: tuple[Mapping[str, Any], ...]

    def answer(self, server: RecordServer) -> Reply:
        """Describe the stacks. Run the model if the run with `changes` is not cached."""
        return Reply(server.interventions.changed(self.changes))


@RECORD_REQUESTS.add("edge", EdgeHeader)
@dataclass(frozen=True)
class EdgeRequest:
    """Request for the contribution of a key to a query, and the effects of cutting this pair.

    A cut removes the attention of the query to the key.
    """

    stack: str
    layer: int
    head: int
    query: int
    key: int

    def answer(self, server: RecordServer) -> Reply:
        """Describe the pair from earlier runs, without running the model."""
        stack = server.record.stack(self.stack)
        check_heads(stack, self.layer, (self.head,))
        stack.query_tokens.position(self.query, "query")
        stack.key_tokens.position(self.key, "key")
        return Reply(server.interventions.edge(self))


def finite_scores(scores: Sequence[NDArray[np.float64]]) -> list[list[float | None]]:
    """Convert the scores of each layer to lists. Replace NaN and infinite scores by None."""
    return [
        [score if math.isfinite(score) else None for score in layer.tolist()] for layer in scores
    ]
