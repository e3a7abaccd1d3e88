"""Answers what a view may ask of a record.

A view never gets the whole tensor: it asks for the description once, and then for the blocks and
maps that it draws. A request is a class below, with the method that answers it. Whatever is asked,

- it is checked against what the record holds before anything is computed,
- a reply has at most a megabyte (`attnviz.server.protocol.MAX_REPLY_BYTES`),
- a reply computes for a moment; what takes longer is asked for again and goes on
  (`attnviz.server.unfinished`),
- and what is kept for later requests has a bound in bytes.
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
from attnviz.record.rows import scored_queries
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.record.storage.mapped import check_mapped
from attnviz.record.tokens import Prediction
from attnviz.server.codec import PieceHeader, encode
from attnviz.server.description import (
    Description,
    StackNumbers,
    describing,
    packed_description,
)
from attnviz.server.images import ImageHeader, encoded_image
from attnviz.server.maps import encoded_maps
from attnviz.server.protocol import (
    MAX_REPLY_BYTES,
    PartHeader,
    Range,
    Reply,
    Request,
    Requests,
    heads_of,
    part_of,
    refuse_large,
    span,
)
from attnviz.server.row_sums import KEPT_BYTES, RowSums
from attnviz.server.strongest import Combine, Pair, StrongestHeader, encoded_strongest
from attnviz.server.tiles import Pooled, TileHeader, encoded_tile
from attnviz.server.unfinished import MOST_UNFINISHED, Unfinished
from attnviz.server.vectors import VectorsHeader, encoded_vectors
from attnviz.utils.arguments import spans
from attnviz.utils.progress import Pace, Steps

__all__ = [
    "RECORD_REQUESTS",
    "ChangedHeader",
    "ChangedStack",
    "Cut",
    "EdgeHeader",
    "EdgeRequest",
    "Interventions",
    "Likely",
    "OutcomeHeader",
    "Pages",
    "RecordServer",
    "WantedChange",
    "finite_scores",
]

#: A page's name and text of a view's state, at once or step by step.
MakePage = Callable[[Mapping[str, Any]], tuple[str, str] | Steps[tuple[str, str]]]


class RecordServer:
    """Serves the pieces of a record.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    page : callable, optional
        Makes the exported page from a view's state; without it views offer no HTML export.
    interventions : Interventions, optional
        Changes the model's attention, and says what that does; without it the view has no model.
    share : int
        Among how many servers the memory is shared that one of them may keep for later requests.

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
        self.row_sums = RowSums(KEPT_BYTES // share)
        self.pages = Pages()
        self.description: Description | bytes | None = None
        self.unfinished = Unfinished()

    def stack(self, name: str) -> AttentionStack:
        """A stack of the record, or of a changed run."""
        if self.interventions is not None and name not in self.record.stacks:
            changed = self.interventions.stack(name)
            if changed is not None:
                return changed
        return self.record.stack(name)

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer one of `RECORD_REQUESTS`, its arguments as JSON has them."""
        request = self._request(name, arguments)
        check_mapped(self.record.mapped_files)
        answer = request.answer(self)
        return answer if isinstance(answer, Reply) else self.unfinished.reply(request, answer)

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Stop an answer that is under way, and free what it holds."""
        request = self._request(name, arguments)
        self.unfinished.forget(request)
        if isinstance(request, PageRequest):
            request.give_up(self)

    @staticmethod
    def _request(name: str, arguments: Mapping[str, Any]) -> Request[RecordServer]:
        if name not in RECORD_REQUESTS.classes:
            raise ValueError(
                f"request {reprlib.repr(name)} is unknown; this kernel's attnviz may be older"
            )
        return RECORD_REQUESTS.request(name, arguments)


# A float in JSON, with what parts it from the next.
_SCORE_BYTES = 22

RECORD_REQUESTS: Requests[RecordServer] = Requests()


@RECORD_REQUESTS.add("describe", Description, PartHeader)
@dataclass(frozen=True)
class DescribeRequest:
    """What the record holds: in the header, or deflated in parts where the text is long."""

    part: int = 0

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Describe the record once."""
        if server.description is None:
            description = yield from describing(server.record)
            server.description = packed_description(description) or description
        if not isinstance(server.description, bytes):
            return Reply(server.description)
        piece, parts = part_of(server.description, self.part, "a description")
        return Reply({"parts": parts}, piece)


@RECORD_REQUESTS.add("block", PieceHeader)
@dataclass(frozen=True)
class BlockRequest:
    """Weights of some heads, rows and columns of a layer."""

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    columns: Range

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Encode the weights, as exact as they are."""
        stack = server.stack(self.stack)
        layer, heads = heads_of(stack, self.layer, self.heads)
        rows = span("rows", self.rows, len(stack.query_tokens))
        columns = span("columns", self.columns, len(stack.key_tokens))
        shape = (len(heads), rows.stop - rows.start, columns.stop - columns.start)
        refuse_large("the weights of a block", 4 * math.prod(shape), "ask for a smaller one")
        maximum = yield from find_maximum(stack)
        weights = np.empty(shape, np.float32)
        pace = Pace("weights", shape[0] * shape[1] * len(stack.key_tokens))
        for place, head in enumerate(heads):
            weights[place] = yield from server.row_sums.block(
                stack, layer=layer, head=head, rows=rows, columns=columns, pace=pace
            )
        of = f"stack {stack.name!r}, layer {layer}, heads {spans(sorted(heads))}"
        encoded = encode(weights, "float32", maximum, signed=stack.signed, of=of)
        return Reply(encoded.header(), encoded.data)


class MapsHeader(PieceHeader):
    """What a reply says about maps.

    Attributes
    ----------
    largest : list
        Of each map the cell with the largest weight, counted row by row, and that weight, exact. Of
        signed numbers the one of the largest size, with its sign.
    sampled : list of int
        The queries that stand for all, one a row; left out where all were gone through.
    """

    pooled: str
    largest: NotRequired[list[tuple[int, float]]]
    sampled: NotRequired[list[int]]


@RECORD_REQUESTS.add("maps", MapsHeader)
@dataclass(frozen=True)
class MapsRequest:
    """Heads' maps, pooled by the largest weight (or size, with its sign) to at most `size` squared.

    Attributes
    ----------
    heads, rows, columns : optional
        All heads, all queries and all keys where they are left out.
    """

    stack: str
    layer: int
    size: int
    heads: tuple[int, ...] | None = None
    rows: Range | None = None
    columns: Range | None = None

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Pool the maps."""
        stack = server.stack(self.stack)
        num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
        maps, sampled, largest = yield from encoded_maps(
            stack,
            self.layer,
            self.size,
            heads=self.heads,
            rows=span("rows", self.rows or (0, num_queries), num_queries),
            columns=span("columns", self.columns or (0, num_keys), num_keys),
        )
        header = {**maps.header(), "pooled": "max", "largest": largest}
        return Reply(header if sampled is None else {**header, "sampled": sampled}, maps.data)


@RECORD_REQUESTS.add("strongest", StrongestHeader)
@dataclass(frozen=True)
class StrongestRequest:
    """The strongest keys of some queries anywhere in a text.

    Of signed numbers the largest sizes, with their signs; sums are of sizes.

    Attributes
    ----------
    k : int
        Keys for each query.
    combine : {"separate", "mean", "max"}
        A matrix for each head, or one for all.
    leave_out : list
        Keys that are none of the strongest: "special", "first", or their number.
    pair : str
        Of a pair of texts, whose keys are looked at.
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
        """Find them in one pass over all keys."""
        stack = server.stack(self.stack)
        header, data = yield from encoded_strongest(
            stack,
            largest=MAX_REPLY_BYTES,
            layer=self.layer,
            heads=self.heads,
            rows=span("rows", self.rows, len(stack.query_tokens)),
            k=self.k,
            combine=self.combine,
            leave_out=self.leave_out,
            pair=self.pair,
            row_sums=server.row_sums,
        )
        return Reply(header, data)


@RECORD_REQUESTS.add("tile", TileHeader)
@dataclass(frozen=True)
class TileRequest:
    """A square of `TILE` by `TILE` cells of a head's matrix, or of the mean of several.

    At level l a cell stands for 2^l by 2^l weights, and tile (row, column) begins at query
    `row * TILE * 2^l` and key `column * TILE * 2^l`; tiles at the end are smaller. Signed numbers
    do not cancel out in a cell: it has the mean, or the largest, of those of one sign, the larger.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    level: int
    row: int
    column: int
    pooled: Pooled

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Cut the tile."""
        cells, every = yield from encoded_tile(
            server.stack(self.stack),
            server.row_sums,
            layer=self.layer,
            heads=self.heads,
            level=self.level,
            place=(self.row, self.column),
            pooled=self.pooled,
        )
        header = cells.header()
        return Reply(header if every is None else {**header, "every": every}, cells.data)


class ScoresHeader(TypedDict):
    """A pattern's scores.

    Attributes
    ----------
    scores : list of list of float
        Of every head of a stack, layer by layer; None where a score is not defined.
    """

    scores: list[list[float | None]]


@RECORD_REQUESTS.add("scores", ScoresHeader)
@dataclass(frozen=True)
class ScoresRequest:
    """A pattern's score of every head of a stack; of a long text estimated from some queries."""

    stack: str
    pattern: str

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Compute or estimate them."""
        stack = server.stack(self.stack)
        count = sum(stack.heads_per_layer)
        refuse_large(f"scores of {count:,} heads", _SCORE_BYTES * count, "capture fewer layers")
        queries = scored_queries(stack)
        scores = yield from head_scores_in_steps(stack, self.pattern, queries)
        return Reply({"scores": finite_scores(scores)})


@RECORD_REQUESTS.add("vectors", VectorsHeader)
@dataclass(frozen=True)
class VectorsRequest:
    """One row of a head: its query, some of its keys, and how its weights come from them.

    Attributes
    ----------
    token : int
        The query.
    """

    stack: str
    layer: int
    head: int
    token: int
    keys: Range

    def answer(self, server: RecordServer) -> Reply:
        """Take the row apart."""
        stack = server.stack(self.stack)
        header, data = encoded_vectors(
            stack,
            layer=self.layer,
            head=self.head,
            token=self.token,
            keys=span("keys", self.keys, len(stack.key_tokens)),
            largest=MAX_REPLY_BYTES,
        )
        return Reply(header, data)


@RECORD_REQUESTS.add("image", ImageHeader)
@dataclass(frozen=True)
class ImageRequest:
    """One of the record's images, in as many pixels as fit into a reply."""

    index: int

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Send its pixels."""
        images = server.record.images
        if not 0 <= self.index < len(images):
            given = reprlib.repr(self.index)
            raise IndexError(f"image {given} was asked for; the record has {len(images)}")
        header, data = yield from encoded_image(images[self.index], MAX_REPLY_BYTES)
        return Reply(header, data)


@dataclass(frozen=True)
class WantedChange:
    """One change of the attention: a pair of query and key, a head's output, or a token.

    Attributes
    ----------
    layer, head : int or None
        None is all.
    query, key : int or None
        What the kind needs: both of a pair, the key of a token that is hidden.
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


class Likely(TypedDict):
    """One of the likeliest answers, with its number and its probability."""

    text: str
    id: int
    probability: float


class OutcomeHeader(TypedDict):
    """What some changes do to the model's answer.

    Attributes
    ----------
    sentence : str
        The answer before and after, with the noise.
    described : list
        Each change, in words.
    effect : str
        The same by its numbers.
    """

    sentence: str
    described: list[str]
    effect: str
    measure: str
    before: float
    after: float
    noise: float
    divergence: float | None
    likeliest_before: list[Likely]
    likeliest_after: list[Likely]


class ChangedStack(TypedDict):
    """A stack of a changed run, beside the one that it is of.

    Attributes
    ----------
    stack : str
        The name of the stack that is described.
    after, difference : StackNumbers
        Of the changed run, and of what it has more than the unchanged one.
    predictions : list of Prediction
        Tokens that the model produced in the changed run.
    """

    stack: str
    after: StackNumbers
    difference: StackNumbers
    predictions: list[Prediction]


class ChangedHeader(TypedDict):
    """The stacks of a changed run."""

    stacks: list[ChangedStack]


class Cut(TypedDict):
    """The effect of cutting a pair on the answer.

    Attributes
    ----------
    words : str
        Which cut it was, and the answer before and after.
    measure : str
        The answer in words.
    """

    words: str
    measure: str


class EdgeHeader(TypedDict):
    """What is known of a pair of query and key beside its weight.

    Attributes
    ----------
    model : str
        "waits" where it has not run yet, "ready" where it has.
    share : float or None
        Of the value norm: what the pair adds as a share of what its row does.
    why : str
        Why that is not known; "" where it is, or where the model has not run.
    cuts : list of Cut
        Those that were asked for.
    noise : str
        Their largest noise; "" where none was asked for.
    """

    model: Literal["waits", "ready"]
    share: float | None
    why: str
    cuts: list[Cut]
    noise: str


class Interventions(Protocol):
    """Changes a model's attention for the reader of a view."""

    def outcome(
        self, changes: tuple[WantedChange, ...], measured: tuple[int | str, ...]
    ) -> Steps[OutcomeHeader]:
        """Say what changes do together to an answer; ValueError without a model."""
        ...

    def changed(self, changes: tuple[WantedChange, ...]) -> Steps[ChangedHeader]:
        """Describe the changed run's stacks, which `stack` has then."""
        ...

    def stack(self, name: str) -> AttentionStack | None:
        """A stack of a changed run, if it is still kept."""
        ...

    def edge(self, asked: EdgeRequest) -> Steps[EdgeHeader]:
        """Say what is known of a pair; runs no model, but raises ValueError without one."""
        ...


_NO_MODEL = "this view runs no model"


@RECORD_REQUESTS.add("intervene", OutcomeHeader)
@dataclass(frozen=True)
class InterveneRequest:
    """Run the view's model with its attention changed; without changes, as it is.

    Attributes
    ----------
    measured : tuple of int or str
        The view's `answer`: a token, or a token and another; empty for the default.
    """

    changes: tuple[WantedChange, ...]
    measured: tuple[int | str, ...] = ()

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Say what the changes do together."""
        if server.interventions is None:
            raise ValueError(_NO_MODEL)
        return Reply((yield from server.interventions.outcome(self.changes, self.measured)))


@RECORD_REQUESTS.add("changed", ChangedHeader)
@dataclass(frozen=True)
class ChangedRequest:
    """The stacks of the run that some changes make."""

    changes: tuple[WantedChange, ...]

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Describe them; the model runs where the run is not kept."""
        if server.interventions is None:
            raise ValueError(_NO_MODEL)
        return Reply((yield from server.interventions.changed(self.changes)))


@RECORD_REQUESTS.add("edge", EdgeHeader)
@dataclass(frozen=True)
class EdgeRequest:
    """What is known of a pair of query and key in one head beside its weight."""

    stack: str
    layer: int
    head: int
    query: int
    key: int

    def answer(self, server: RecordServer) -> Steps[Reply]:
        """Say it; no model runs for it."""
        stack = server.record.stack(self.stack)
        heads_of(stack, self.layer, (self.head,))
        for name, value, tokens in (
            ("query", self.query, stack.query_tokens),
            ("key", self.key, stack.key_tokens),
        ):
            if not 0 <= value < len(tokens):
                raise IndexError(
                    f"{name}={reprlib.repr(value)}: stack {stack.name!r} has 0 to {len(tokens) - 1}"
                )
        if server.interventions is None:
            raise ValueError(_NO_MODEL)
        return Reply((yield from server.interventions.edge(self)))


class Pages:
    """Pages that are being sent: browser tabs may export at once, each with a state of its own.

    Examples
    --------
    >>> pages = Pages()
    >>> pages[{"layer": 0}] = ("view.html", b"...")
    >>> pages.get({"layer": 0}), pages.get({"layer": 1})
    (('view.html', b'...'), None)
    """

    def __init__(self) -> None:
        self._by_state: LRUCache[str, tuple[str, bytes]] = LRUCache(MOST_UNFINISHED)
        # A cancel may come from another thread than the requests.
        self._lock = threading.Lock()

    def get(self, state: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """Return the name and content of the page of a state, or None."""
        with self._lock:
            return self._by_state.get(_key_of(state))

    def __setitem__(self, state: Mapping[str, Any], page: tuple[str, bytes]) -> None:
        with self._lock:
            self._by_state[_key_of(state)] = page

    def forget(self, state: Mapping[str, Any]) -> None:
        """Drop the page of a state, if it is here."""
        with self._lock:
            self._by_state.pop(_key_of(state), None)


def _key_of(state: Mapping[str, Any]) -> str:
    return json.dumps(state, sort_keys=True)


class HasPage(Protocol):
    """A server whose view can be exported: of a record, or of a corpus.

    Attributes
    ----------
    make_page : callable or None
        Makes the page of a state.
    pages : Pages
        The pages that are being sent.
    """

    make_page: MakePage | None
    pages: Pages


class PageHeader(PartHeader):
    """What a reply says about a part of a page.

    Attributes
    ----------
    name : str
        Of the file.
    """

    name: str


@RECORD_REQUESTS.add("page", PageHeader)
@dataclass(frozen=True)
class PageRequest:
    """A part of the exported page of a view in some state."""

    part: int
    state: Mapping[str, Any]

    def answer(self, server: HasPage) -> Steps[Reply]:
        """Make the page once for all its parts."""
        if server.make_page is None:
            raise ValueError("this view has no HTML export")
        if self.part < 0:
            raise ValueError(f"part={reprlib.repr(self.part)} of a page must not be negative")
        page = server.pages.get(self.state)
        if page is None:
            made = server.make_page(self.state)
            name, text = made if isinstance(made, tuple) else (yield from made)
            page = server.pages[self.state] = (name, text.encode())
        name, content = page
        piece, parts = part_of(content, self.part, "a page")
        if self.part == parts - 1:
            server.pages.forget(self.state)
        return Reply({"parts": parts, "name": name}, piece)

    def give_up(self, server: HasPage) -> None:
        """Free a page of which no further part is wanted."""
        server.pages.forget(self.state)


def finite_scores(scores: Sequence[NDArray[np.float64]]) -> list[list[float | None]]:
    """Scores by layer and head, fit for JSON: None where a score is not a finite number."""
    return [
        [score if math.isfinite(score) else None for score in layer.tolist()] for layer in scores
    ]
