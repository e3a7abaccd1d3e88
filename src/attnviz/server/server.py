"""Answers what a view may ask of a record.

A view never gets the whole tensor: it asks for the description once, and then for the blocks and
maps that it draws. Replies stay under a size that every notebook host accepts. A request is a class
below, with the method that answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis import head_scores
from attnviz.analysis.heads import scores_of_heads
from attnviz.record.record import AttentionRecord
from attnviz.server.codec import PieceHeader, Precision, encode
from attnviz.server.description import Description, describe, packed_description
from attnviz.server.images import ImageHeader, encoded_image
from attnviz.server.maps import encoded_maps
from attnviz.server.protocol import (
    MAX_REPLY_BYTES,
    PartHeader,
    Range,
    Reply,
    Requests,
    part_of,
    span,
)
from attnviz.server.pyramid import REPLY_SECONDS, Pyramids
from attnviz.server.row_sums import RowSums
from attnviz.server.sources import SourcesHeader, sources_header
from attnviz.server.strips import StripsHeader, strips
from attnviz.server.strongest import Combine, Pair, StrongestHeader, encoded_strongest
from attnviz.server.tiles import Pooled, TileWork, answered_tile
from attnviz.server.vectors import VectorsHeader, encoded_vectors
from attnviz.utils.progress import Steps, Work

__all__ = ["RECORD_REQUESTS", "RecordServer", "finite_scores"]

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

    Examples
    --------
    >>> from attnviz.record.record import AttentionRecord
    >>> server = RecordServer(AttentionRecord.from_weights([[[[1.0]]]], ["a"]))
    >>> server.reply("describe", {}).header["stacks"][0]["layers"]
    [0]
    """

    def __init__(self, record: AttentionRecord, page: MakePage | None = None) -> None:
        self.record = record
        self.make_page = page
        self.row_sums = RowSums()
        self.pyramids = Pyramids(self.row_sums)
        self.page: tuple[Any, str, bytes] | None = None
        self.page_work: tuple[Any, Work[tuple[str, str]]] | None = None
        self.description: bytes | None = None

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer one of `RECORD_REQUESTS`, its arguments as JSON has them."""
        if name not in RECORD_REQUESTS.classes:
            raise ValueError(f"request {name!r} is unknown; this kernel's attnviz may be older")
        return RECORD_REQUESTS.answer(self, name, arguments)


RECORD_REQUESTS: Requests[RecordServer] = Requests()


@RECORD_REQUESTS.add("describe", Description, PartHeader)
@dataclass(frozen=True)
class DescribeRequest:
    """What the record holds: in the header, or deflated in parts where the text is long."""

    part: int = 0

    def answer(self, server: RecordServer) -> Reply:
        """Describe the record."""
        if server.description is None:
            description = describe(server.record)
            server.description = packed_description(description)
            if server.description is None:
                return Reply(description)
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
    precision: Precision

    def answer(self, server: RecordServer) -> Reply:
        """Encode the weights, exact or in one byte each."""
        stack = server.record.stack(self.stack)
        rows = span("rows", self.rows, len(stack.query_tokens))
        columns = span("columns", self.columns, len(stack.key_tokens))
        count = len(self.heads) * (rows.stop - rows.start) * (columns.stop - columns.start)
        size = count * (4 if self.precision == "float32" else 1)
        if not self.heads or size > MAX_REPLY_BYTES:
            raise ValueError(
                f"a block of {size} bytes was asked for; 1 to {MAX_REPLY_BYTES} are sent at once"
            )
        weights = np.stack(
            [
                server.row_sums.block(
                    stack, layer=self.layer, head=head, rows=rows, columns=columns
                )
                for head in self.heads
            ]
        )
        of = f"stack {stack.name!r}, layer {self.layer}, heads {', '.join(map(str, self.heads))}"
        encoded = encode(weights, self.precision, stack.maximum, of=of)
        return Reply(encoded.header(), encoded.data)


class MapsHeader(PieceHeader):
    """What a reply says about maps.

    Attributes
    ----------
    largest : list
        Of each map the cell with the largest weight, counted row by row, and that weight, exact.
    sampled : int
        Queries that stand for all, one a row; left out where all were gone through.
    """

    pooled: str
    largest: NotRequired[list[tuple[int, float]]]
    sampled: NotRequired[int]


@RECORD_REQUESTS.add("maps", MapsHeader)
@dataclass(frozen=True)
class MapsRequest:
    """Heads' maps, pooled by the largest weight to at most `size` by `size`.

    Attributes
    ----------
    heads, rows, columns : optional
        All heads that were kept, all queries and all keys where they are left out.
    """

    stack: str
    layer: int
    size: int
    heads: tuple[int, ...] | None = None
    rows: Range | None = None
    columns: Range | None = None

    def answer(self, server: RecordServer) -> Reply:
        """Pool the maps."""
        stack = server.record.stack(self.stack)
        num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
        maps, sampled, largest = encoded_maps(
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
    """The strongest keys of some queries, and how their weight is spread over the text.

    Attributes
    ----------
    k : int
        Keys for each query.
    bin_size : int
        Keys whose weight is summed up in one number.
    combine : {"separate", "mean", "max"}
        A matrix for each head, or one for all.
    leave_out : list
        Keys that are none of the strongest: "special", "first", or their number.
    pair : str
        Of a pair of texts, whose queries and whose keys.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    rows: Range
    k: int
    bin_size: int
    combine: Combine
    leave_out: tuple[str | int, ...]
    pair: Pair

    def answer(self, server: RecordServer) -> Reply:
        """Find them in one pass over all keys."""
        stack = server.record.stack(self.stack)
        header, data = encoded_strongest(
            stack,
            largest=MAX_REPLY_BYTES,
            layer=self.layer,
            heads=self.heads,
            rows=span("rows", self.rows, len(stack.query_tokens)),
            k=self.k,
            bin_size=self.bin_size,
            combine=self.combine,
            leave_out=self.leave_out,
            pair=self.pair,
            row_sums=server.row_sums,
        )
        return Reply(header, data)


@RECORD_REQUESTS.add("tile", PieceHeader, TileWork)
@dataclass(frozen=True)
class TileRequest:
    """A square of `TILE` by `TILE` cells of a head's matrix, or of the mean of several.

    At level l a cell stands for 2^l by 2^l weights, and tile (row, column) begins at query
    `row * TILE * 2^l` and key `column * TILE * 2^l`; tiles at the end are smaller.

    Attributes
    ----------
    exact : bool
        false: of a large matrix an estimate is enough.
    """

    stack: str
    layer: int
    heads: tuple[int, ...]
    level: int
    row: int
    column: int
    pooled: Pooled
    precision: Precision
    exact: bool = True

    def answer(self, server: RecordServer) -> Reply:
        """Cut the tile; of a large matrix as far as it is known after a moment's work."""
        header, data = answered_tile(
            server.record.stack(self.stack),
            server.pyramids,
            layer=self.layer,
            heads=self.heads,
            level=self.level,
            place=(self.row, self.column),
            pooled=self.pooled,
            precision=self.precision,
            exact=self.exact,
        )
        return Reply(header, data)


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
    """A pattern's score of every head of a stack, or of some heads of a layer.

    Attributes
    ----------
    layer, heads : optional
        All where they are left out.
    queries : int
        From how many queries the scores of those heads are estimated.
    """

    stack: str
    pattern: str
    layer: int | None = None
    heads: tuple[int, ...] | None = None
    queries: int | None = None

    def answer(self, server: RecordServer) -> Reply:
        """Compute them, or estimate those of some heads."""
        stack = server.record.stack(self.stack)
        if self.heads is None:
            return Reply({"scores": finite_scores(head_scores(stack, self.pattern))})
        if self.layer is None or self.queries is None:
            raise ValueError("scores of some heads need 'layer' and 'queries'")
        scores = scores_of_heads(stack, [self.pattern], self.layer, list(self.heads), self.queries)
        return Reply({"scores": finite_scores(list(scores))})


@RECORD_REQUESTS.add("strips", StripsHeader)
@dataclass(frozen=True)
class StripsRequest:
    """Where the weight of heads goes, from some queries of a text too long for whole maps."""

    stack: str
    layer: int
    heads: tuple[int, ...]

    def answer(self, server: RecordServer) -> Reply:
        """Say it from some of their queries."""
        found = strips(server.record.stack(self.stack), self.layer, self.heads)
        return Reply(found.header(), found.data)


@RECORD_REQUESTS.add("sources", SourcesHeader)
@dataclass(frozen=True)
class SourcesRequest:
    """The keys that all heads of a stack look at most from a query."""

    stack: str
    query: int

    def answer(self, server: RecordServer) -> Reply:
        """Go over the query's row in all heads."""
        return Reply(sources_header(server.record.stack(self.stack), self.query))


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
        stack = server.record.stack(self.stack)
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

    def answer(self, server: RecordServer) -> Reply:
        """Send its pixels."""
        images = server.record.images
        if not 0 <= self.index < len(images):
            raise IndexError(f"image {self.index} was asked for; the record has {len(images)}")
        return Reply(*encoded_image(images[self.index], MAX_REPLY_BYTES))


class PageHeader(PartHeader):
    """What a reply says about a part of a page, or about a page that is being made.

    Attributes
    ----------
    parts : int
        0 while the page is being made: each further request makes more of it.
    name : str
        Of the file; empty while it is being made.
    doing : str
        What is being done.
    progress : float
        How far that is, 0 to 1.
    seconds_left : float or None
        What it still takes, measured on what is done; None where that is not known yet.
    """

    name: str
    doing: NotRequired[str]
    progress: NotRequired[float]
    seconds_left: NotRequired[float | None]


@RECORD_REQUESTS.add("page", PageHeader)
@dataclass(frozen=True)
class PageRequest:
    """A part of the exported page of a view in some state."""

    part: int
    state: Mapping[str, Any]

    def answer(self, server: RecordServer) -> Reply:
        """Make the page once for all its parts, a moment of it for each request."""
        if server.make_page is None:
            raise ValueError("this view has no HTML export")
        # Two tabs may fetch at once, each with its state.
        if server.page is None or server.page[0] != self.state:
            made = self._made(server)
            if isinstance(made, Reply):
                return made
            name, text = made
            server.page = (self.state, name, text.encode())
        _, name, content = server.page
        piece, parts = part_of(content, self.part, "a page")
        if self.part == parts - 1:
            server.page = None
        return Reply({"parts": parts, "name": name}, piece)

    def _made(self, server: RecordServer) -> tuple[str, str] | Reply:
        """The page, or how far it is."""
        if server.page_work is None or server.page_work[0] != self.state:
            if server.make_page is None:
                raise ValueError("this view has no HTML export")
            made = server.make_page(self.state)
            if isinstance(made, tuple):
                return made
            server.page_work = (self.state, Work(made))
        work = server.page_work[1]
        done = False
        try:
            done = work.go_on(REPLY_SECONDS)
        except BaseException:
            # What was computed stays with the record.
            server.page_work = None
            raise
        if done:
            server.page_work = None
            return work.result
        progress = work.progress
        header: dict[str, Any] = {"parts": 0, "name": ""}
        if progress is not None:
            header["doing"] = progress.doing
            header["progress"] = float(progress.done / max(1, progress.total))
            header["seconds_left"] = work.seconds_left
        return Reply(header)


def finite_scores(scores: Sequence[NDArray[np.float64]]) -> list[list[float | None]]:
    """Scores by layer and head, fit for JSON: None where a score is not a finite number."""
    return [[float(score) if np.isfinite(score) else None for score in layer] for layer in scores]
