"""Server for the requests of the views of a record.

A view never gets the complete tensor. It requests the description once, and then the blocks and
maps that it draws. Each request is a class in this module, with a method that answers it. For each
request:

- Its arguments are checked against the record before anything is computed.
- A reply has at most one megabyte (`attnviz.server.protocol.MAX_REPLY_BYTES`).
- A reply is computed for a fraction of a second. Longer work continues when the browser sends the
  request again (`attnviz.server.pending_replies`).
- Caches for later requests have a limit in bytes.
"""

from __future__ import annotations

import json
import math
import reprlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Protocol, TypedDict

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from attnviz.analysis.heads import head_scores_in_steps
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.record.storage.mapped import check_mapped
from attnviz.record.tokens import Prediction
from attnviz.server.codec import PieceHeader, encode
from attnviz.server.description import (
    Description,
    StackNumbers,
    describe_in_steps,
    pack_description,
)
from attnviz.server.images import ImageHeader, encode_image
from attnviz.server.maps import encode_maps
from attnviz.server.pending_replies import MAX_PENDING, PendingReplies
from attnviz.server.protocol import (
    MAX_REPLY_BYTES,
    PartHeader,
    Range,
    Reply,
    Request,
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
from attnviz.utils.arguments import format_numbers
from attnviz.utils.progress import Pace, Steps

__all__ = [
    "RECORD_REQUESTS",
    "AnswerToken",
    "ChangedHeader",
    "ChangedStack",
    "Cut",
    "EdgeHeader",
    "EdgeRequest",
    "Interventions",
    "OutcomeHeader",
    "Pages",
    "RecordServer",
    "RequestedChange",
    "finite_scores",
]

#: Function that returns the name and text of a page for a view's state, at once or in steps.
MakePage = Callable[[Mapping[str, Any]], tuple[str, str] | Steps[tuple[str, str]]]


class RecordServer:
    """Server for the requests about one record.

    Parameters
    ----------
    record : AttentionRecord
        Record to serve.
    page : callable, optional
        Function that makes the exported page from a view's state. Without it, views have no HTML
        export.
    interventions : Interventions, optional
        Runs of the model with changed attention. Without it, the view has no model.
    share : int
        Number of servers among which the cache size is divided.

    Examples
    --------
    >>> from attnviz.record.record import AttentionRecord
    >>> server = RecordServer(AttentionRecord.from_weights([[[[1.0]]]], ["a"]))
    >>> server.reply("describe", {}).header["stacks"][0]["layers"]
    [0]
    """

    def __init__(
        self,
        record: AttentionRecord,
        page: MakePage | None = None,
        *,
        interventions: Interventions | None = None,
        share: int = 1,
    ) -> None:
        self.record = record
        self.make_page = page
        self.interventions = interventions
        self.row_normalizers = RowNormalizers(CACHE_BYTES // share)
        self.pages = Pages()
        self.description: Description | bytes | None = None
        self.pending_replies = PendingReplies()

    def stack(self, name: str) -> AttentionStack:
        """Return a stack of the record, or of a run with changed attention."""
        if self.interventions is not None and name not in self.record.stacks:
            changed = self.interventions.stack(name)
            if changed is not None:
                return changed
        return self.record.stack(name)

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer one of `RECORD_REQUESTS`. The arguments are JSON values."""
        request = self._request(name, arguments)
        check_mapped(self.record.mapped_files)
        answer = request.answer(self)
        return answer if isinstance(answer, Reply) else self.pending_replies.reply(request, answer)

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Stop a pending reply and free its memory."""
        request = self._request(name, arguments)
        self.pending_replies.cancel(request)
        if isinstance(request, PageRequest):
            request.cancel(self)

    @staticmethod
    def _request(name: str, arguments: Mapping[str, Any]) -> Request[RecordServer]:
        if name not in RECORD_REQUESTS.classes:
            raise ValueError(
                f"request {reprlib.repr(name)} is unknown. The attnviz of the kernel may be older "
                "than the view."
            )
        return RECORD_REQUESTS.request(name, arguments)


# Maximum length of a float in JSON, with its separator.
_SCORE_BYTES = 22

RECORD_REQUESTS: Requests[RecordServer] = Requests()


@RECORD_REQUESTS.add("describe", Description, PartHeader)
@dataclass(frozen=True)
class DescribeRequest:
    """Description of the record.

    The header of the reply contains it. The description of a long text is deflated instead, and
    each request returns one part of it.
    """

    part: int = 0

    def answer(self, server: RecordServer) -> Steps[Reply]:
        if server.description is None:
            description = yield from describe_in_steps(server.record)
            server.description = pack_description(description) or description
        if not isinstance(server.description, bytes):
            return Reply(server.description)
        piece, parts = get_part(server.description, self.part, "a description")
        return Reply({"parts": parts}, piece)


@RECORD_REQUESTS.add("block", PieceHeader)
@dataclass(frozen=True)
class BlockRequest:
    """Weights of the given heads, rows and columns of a layer."""

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    columns: Range

    def answer(self, server: RecordServer) -> Steps[Reply]:
        stack = server.stack(self.stack)
        layer, heads = check_heads(stack, self.layer, self.heads)
        rows = range_slice("rows", self.rows, len(stack.query_tokens))
        columns = range_slice("columns", self.columns, len(stack.key_tokens))
        shape = (len(heads), rows.stop - rows.start, columns.stop - columns.start)
        check_reply_size("the weights of a block", 4 * math.prod(shape), "Request a smaller block.")
        maximum = yield from find_maximum(stack)
        weights = np.empty(shape, np.float32)
        pace = Pace("weights", shape[0] * shape[1] * len(stack.key_tokens))
        for index, head in enumerate(heads):
            weights[index] = yield from server.row_normalizers.block(
                stack, layer=layer, head=head, rows=rows, columns=columns, pace=pace
            )
        label = f"stack {stack.name!r}, layer {layer}, heads {format_numbers(sorted(heads))}"
        encoded = encode(weights, "float32", maximum, signed=stack.signed, label=label)
        return Reply(encoded.header(), encoded.data)


class MapsHeader(PieceHeader):
    """Description of the maps in a reply's buffer.

    Attributes
    ----------
    largest : list
        Flat index (row-major) and exact value of the largest cell of each map. Signed numbers are
        compared by absolute value.
    sampled : list of int
        Sampled queries, one per row of the map. Omitted if all queries were used.
    """

    pooled: str
    largest: NotRequired[list[tuple[int, float]]]
    sampled: NotRequired[list[int]]


@RECORD_REQUESTS.add("maps", MapsHeader)
@dataclass(frozen=True)
class MapsRequest:
    """Max-pooled maps of heads, with at most `size` rows and columns.

    Signed numbers are pooled by absolute value and keep their sign.

    Attributes
    ----------
    heads, rows, columns : optional
        Default: all heads, all queries and all keys.
    """

    stack: str
    layer: int
    size: int
    heads: tuple[int, ...] | None = None
    rows: Range | None = None
    columns: Range | None = None

    def answer(self, server: RecordServer) -> Steps[Reply]:
        stack = server.stack(self.stack)
        num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
        maps, sampled, largest = yield from encode_maps(
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
    """Strongest keys of the given queries among all keys of the text.

    Signed numbers are compared by absolute value and keep their sign. Sums add absolute values.

    Attributes
    ----------
    k : int
        Number of keys per query.
    combine : {"separate", "mean", "max"}
        Whether each head has a matrix, or one matrix combines all heads.
    leave_out : list
        Keys to leave out: "special", "first", or their position.
    pair : str
        Texts of a pair, such as "a-b": only keys in the second one are included.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    k: int
    combine: Combine
    leave_out: tuple[str | int, ...]
    pair: Pair

    def answer(self, server: RecordServer) -> Steps[Reply]:
        stack = server.stack(self.stack)
        header, data = yield from encode_strongest(
            stack,
            max_bytes=MAX_REPLY_BYTES,
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
    """Square of `TILE` by `TILE` cells of a head's matrix, or of the mean of several heads.

    At level l, a cell covers 2^l by 2^l weights, and tile (row, column) begins at query
    `row * TILE * 2^l` and key `column * TILE * 2^l`. Tiles at the edges are smaller. Positive and
    negative numbers are pooled separately, and a cell shows the larger of the two results.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    level: int
    row: int
    column: int
    pooled: Pooled

    def answer(self, server: RecordServer) -> Steps[Reply]:
        cells, interval = yield from encode_tile(
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
    """Scores of the heads for a pattern.

    Attributes
    ----------
    scores : list of list of float
        Score of every head of a stack, by layer. None if a score is undefined.
    """

    scores: list[list[float | None]]


@RECORD_REQUESTS.add("scores", ScoresHeader)
@dataclass(frozen=True)
class ScoresRequest:
    """Score of every head of a stack for a pattern.

    Scores of long texts are estimated from sampled queries.
    """

    stack: str
    pattern: str

    def answer(self, server: RecordServer) -> Steps[Reply]:
        stack = server.stack(self.stack)
        count = sum(stack.heads_per_layer)
        check_reply_size(
            f"scores of {count:,} heads", _SCORE_BYTES * count, "Capture fewer layers."
        )
        queries = num_scored_queries(stack)
        scores = yield from head_scores_in_steps(stack, self.pattern, queries)
        return Reply({"scores": finite_scores(scores)})


@RECORD_REQUESTS.add("vectors", VectorsHeader)
@dataclass(frozen=True)
class VectorsRequest:
    """One row of a head: its query, the given keys, and the logits and weights between them.

    Attributes
    ----------
    token : int
        Position of the query.
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
            max_bytes=MAX_REPLY_BYTES,
        )
        return Reply(header, data)


@RECORD_REQUESTS.add("image", ImageHeader)
@dataclass(frozen=True)
class ImageRequest:
    """Image of the record, averaged down to the size of a reply if it is larger."""

    index: int

    def answer(self, server: RecordServer) -> Steps[Reply]:
        images = server.record.images
        if not 0 <= self.index < len(images):
            index = reprlib.repr(self.index)
            raise IndexError(f"index={index}: the record has {len(images)} images, numbered from 0")
        header, data = yield from encode_image(images[self.index], MAX_REPLY_BYTES)
        return Reply(header, data)


@dataclass(frozen=True)
class RequestedChange:
    """Change of the attention: cut a pair of query and key, ablate a head, or hide a token.

    Attributes
    ----------
    layer, head : int or None
        None means all.
    query, key : int or None
        "knockout" needs both, "hide" needs the key, "ablate" needs neither.
    renormalize : bool
        Whether a pair is cut before the softmax, so that the other keys get its weight.
    """

    kind: Literal["knockout", "ablate", "hide"]
    stack: str
    layer: int | None = None
    head: int | None = None
    query: int | None = None
    key: int | None = None
    renormalize: bool = True


class AnswerToken(TypedDict):
    """Token among the most probable answers, with its id and probability."""

    text: str
    id: int
    probability: float


class OutcomeHeader(TypedDict):
    """Effect of changes on the model's answer.

    Attributes
    ----------
    sentence : str
        Answer before and after the changes, with the noise, in words.
    described : list
        Description of each change.
    effect : str
        Effect in numbers.
    """

    sentence: str
    described: list[str]
    effect: str
    measure: str
    before: float
    after: float
    noise: float
    divergence: float | None
    candidates_before: list[AnswerToken]
    candidates_after: list[AnswerToken]


class ChangedStack(TypedDict):
    """Stack of a changed run, and its difference from the unchanged run.

    Attributes
    ----------
    stack : str
        Name of the stack of the unchanged run.
    after, difference : StackNumbers
        Stack of the changed run, and that stack less the unchanged one.
    predictions : list of Prediction
        Tokens that the model generated in the changed run.
    """

    stack: str
    after: StackNumbers
    difference: StackNumbers
    predictions: list[Prediction]


class ChangedHeader(TypedDict):
    """Stacks of a changed run."""

    stacks: list[ChangedStack]


class Cut(TypedDict):
    """Effect on the answer of cutting a pair of query and key.

    Attributes
    ----------
    description : str
        Description of the cut, and the answer before and after.
    measure : str
        Answer that was measured, in words.
    """

    description: str
    measure: str


class EdgeHeader(TypedDict):
    """Value norm of a pair of query and key, and the effects of cutting it.

    Attributes
    ----------
    model : str
        "waits" if the model has not run yet, "ready" if it has.
    share : float or None
        Norm of what the pair adds to the output, as a share of the norms of the row.
    share_problem : str
        Reason why `share` is None. "" if it is not None, or if the model has not run.
    cuts : list of Cut
        Cuts of this pair that were run.
    noise : str
        Largest noise of the cuts. "" if there are none.
    """

    model: Literal["waits", "ready"]
    share: float | None
    share_problem: str
    cuts: list[Cut]
    noise: str


class Interventions(Protocol):
    """Interface of an object that runs the view's model with changed attention."""

    def outcome(
        self, changes: tuple[RequestedChange, ...], measured: tuple[int | str, ...] | None
    ) -> Steps[OutcomeHeader]:
        """Return the joint effect of changes on an answer. Raise ValueError without a model."""
        ...

    def changed(self, changes: tuple[RequestedChange, ...]) -> Steps[ChangedHeader]:
        """Describe the stacks of the changed run, and store them for `stack`."""
        ...

    def stack(self, name: str) -> AttentionStack | None:
        """Return a stack of a changed run, or None if it is not stored."""
        ...

    def edge(self, asked: EdgeRequest) -> Steps[EdgeHeader]:
        """Describe a pair without running the model. Raise ValueError without a model."""
        ...


_NO_MODEL = "this view has no model"


@RECORD_REQUESTS.add("intervene", OutcomeHeader)
@dataclass(frozen=True)
class InterveneRequest:
    """Run of the view's model with changed attention, or unchanged if `changes` is empty.

    Attributes
    ----------
    measured : tuple of int or str, or None
        Answer to measure: a token or two tokens, or empty for the default. By default the view's
        `answer`, which may be a function.
    """

    changes: tuple[RequestedChange, ...]
    measured: tuple[int | str, ...] | None = None

    def answer(self, server: RecordServer) -> Steps[Reply]:
        if server.interventions is None:
            raise ValueError(_NO_MODEL)
        return Reply((yield from server.interventions.outcome(self.changes, self.measured)))


@RECORD_REQUESTS.add("changed", ChangedHeader)
@dataclass(frozen=True)
class ChangedRequest:
    """Stacks of the run with the given changes."""

    changes: tuple[RequestedChange, ...]

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Describe the stacks. Run the model if the run is not stored."""
        if server.interventions is None:
            raise ValueError(_NO_MODEL)
        return Reply((yield from server.interventions.changed(self.changes)))


@RECORD_REQUESTS.add("edge", EdgeHeader)
@dataclass(frozen=True)
class EdgeRequest:
    """Value norm and effects of a pair of query and key in one head."""

    stack: str
    layer: int
    head: int
    query: int
    key: int

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Describe the pair without running the model."""
        stack = server.record.stack(self.stack)
        check_heads(stack, self.layer, (self.head,))
        for name, value, tokens in (
            ("query", self.query, stack.query_tokens),
            ("key", self.key, stack.key_tokens),
        ):
            if not 0 <= value < len(tokens):
                raise IndexError(
                    f"{name}={reprlib.repr(value)} must be from 0 to {len(tokens) - 1} "
                    f"in stack {stack.name!r}"
                )
        if server.interventions is None:
            raise ValueError(_NO_MODEL)
        return Reply((yield from server.interventions.edge(self)))


class Pages:
    """Pages that are being sent, by state. Several browser tabs may export at the same time.

    Examples
    --------
    >>> pages = Pages()
    >>> pages[{"layer": 0}] = ("view.html", b"...")
    >>> pages.get({"layer": 0}), pages.get({"layer": 1})
    (('view.html', b'...'), None)
    """

    def __init__(self) -> None:
        self._by_state: LRUCache[str, tuple[str, bytes]] = LRUCache(MAX_PENDING)
        # A cancel may come from another thread than the requests.
        self._lock = threading.Lock()

    def get(self, state: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """Return the name and content of the page of a state, or None."""
        with self._lock:
            return self._by_state.get(_key_of(state))

    def __setitem__(self, state: Mapping[str, Any], page: tuple[str, bytes]) -> None:
        with self._lock:
            self._by_state[_key_of(state)] = page

    def drop(self, state: Mapping[str, Any]) -> None:
        """Drop the page of a state, if any."""
        with self._lock:
            self._by_state.pop(_key_of(state), None)


def _key_of(state: Mapping[str, Any]) -> str:
    return json.dumps(state, sort_keys=True)


class HasPage(Protocol):
    """Interface of a server whose view can be exported, for a record or a corpus.

    Attributes
    ----------
    make_page : callable or None
        Function that makes the page of a state.
    pages : Pages
        Pages that are being sent.
    """

    make_page: MakePage | None
    pages: Pages


class PageHeader(PartHeader):
    """Header of a part of a page.

    Attributes
    ----------
    name : str
        File name.
    """

    name: str


@RECORD_REQUESTS.add("page", PageHeader)
@dataclass(frozen=True)
class PageRequest:
    """Part of the exported page of a view with the given state."""

    part: int
    state: Mapping[str, Any]

    def answer(self, server: HasPage) -> Steps[Reply]:
        """Return a part of the page, which is made for the first part."""
        if server.make_page is None:
            raise ValueError("this view has no HTML export")
        if self.part < 0:
            raise ValueError(f"part={reprlib.repr(self.part)} of a page must not be negative")
        page = server.pages.get(self.state)
        if page is None:
            result = server.make_page(self.state)
            name, text = result if isinstance(result, tuple) else (yield from result)
            page = server.pages[self.state] = (name, text.encode())
        name, content = page
        piece, parts = get_part(content, self.part, "a page")
        if self.part == parts - 1:
            server.pages.drop(self.state)
        return Reply({"parts": parts, "name": name}, piece)

    def cancel(self, server: HasPage) -> None:
        """Drop the page: no further part is needed."""
        server.pages.drop(self.state)


def finite_scores(scores: Sequence[NDArray[np.float64]]) -> list[list[float | None]]:
    """Return scores by layer and head as JSON values, with None for scores that are not finite."""
    return [
        [score if math.isfinite(score) else None for score in layer.tolist()] for layer in scores
    ]
