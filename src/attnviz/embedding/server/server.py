"""Server for the requests of an embedding view, which are about the points of a corpus.

Each request is a class in this module, whose method `answer` returns the reply. A point is a query
or a key of one token. A large reply is divided into parts, which the browser requests separately.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing
from attnviz.embedding.server.description import describe_corpus, packed_points
from attnviz.embedding.server.plots import (
    EmbeddingAnswers,
    HeadPlot,
    HeadTrustFigures,
    NormsHeader,
    OverviewHeader,
    PlotHeader,
    PlotOptions,
)
from attnviz.embedding.server.weights import AggregateHeader, LinesHeader, aggregate, lines
from attnviz.record.storage.mapped import MappedFile
from attnviz.server.base import BaseServer, MakePage, PageHeader, PageRequest
from attnviz.server.cache import ByteCache
from attnviz.server.description import Description
from attnviz.server.protocol import (
    PartHeader,
    Reply,
    Requests,
    check_heads,
    get_part,
)

#: Maximum number of bins of query positions, and of key positions, in a reply with mean weights.
MAX_BINS = 256
# Maximum size in bytes of cached replies that are sent in several parts. A browser loads one or two
# such replies at a time.
_PARTS_CACHED = 16_000_000

Answer = tuple[Mapping[str, Any], bytes]


CORPUS_REQUESTS: Requests[CorpusServer] = Requests("It does not exist for a corpus.")
CORPUS_REQUESTS.add("page", PageHeader)(PageRequest)


class CorpusServer(BaseServer):
    """Server for the points of a corpus.

    Parameters
    ----------
    corpus : Corpus
        Corpus that the view shows.
    page : callable, optional
        Function that builds the exported page from a view's state. If omitted, the view offers no
        HTML export.

    Attributes
    ----------
    answers : EmbeddingAnswers
        Plots, trust figures and norms, with their caches.

    Examples
    --------
    >>> server = CorpusServer(attnviz.Corpus(records))                      # doctest: +SKIP
    >>> request = {"stack": "self", "layers": [0], "placing": placing}      # doctest: +SKIP
    >>> server.reply("overview", request)                                   # doctest: +SKIP
    """

    requests = CORPUS_REQUESTS

    def __init__(self, corpus: Corpus, page: MakePage | None = None) -> None:
        super().__init__(page)
        self.corpus = corpus
        self.answers = EmbeddingAnswers(corpus)
        self.points: dict[str, bytes] = {}
        self.parts: ByteCache[Answer] = ByteCache(_PARTS_CACHED, lambda answer: len(answer[1]))

    @property
    def mapped_files(self) -> Collection[MappedFile]:
        return {file for record in self.corpus.records for file in record.mapped_files}


@CORPUS_REQUESTS.add("describe", Description)
@dataclass(frozen=True)
class DescribeCorpusRequest:
    """Request for the description of the corpus, without its tokens."""

    def answer(self, server: CorpusServer) -> Reply:
        """Describe the corpus."""
        return Reply(describe_corpus(server.corpus))


@CORPUS_REQUESTS.add("points", PartHeader)
@dataclass(frozen=True)
class PointsRequest:
    """Request for the description of the points of a stack.

    The reply is `CorpusPoints` as JSON, compressed with deflate, in parts.
    """

    stack: str
    part: int = 0

    def answer(self, server: CorpusServer) -> Reply:
        """Describe the points at the first request for a stack, and send a part."""
        if self.stack not in server.points:
            server.points[self.stack] = packed_points(server.corpus, self.stack)
        piece, parts = get_part(server.points[self.stack], self.part, "a corpus")
        return Reply({"parts": parts}, piece)


def _in_parts(
    server: CorpusServer,
    request: OverviewRequest | PlotRequest | NormsRequest,
    make: Callable[[], Answer],
) -> Reply:
    """Return one part of an answer.

    `make` computes the answer for part 0. Later parts come from the cached answer, so that all
    parts belong together even if the plot changes between their requests. If the cache has dropped
    the answer, it is computed again.
    """
    key = replace(request, part=0)
    answer = server.parts.get(key) if request.part else None
    header, data = make() if answer is None else answer
    piece, parts = get_part(data, request.part, f"the answer to {type(request).__name__}")
    if parts > 1:
        server.parts[key] = header, data
    return Reply({**header, "parts": parts}, piece)


@CORPUS_REQUESTS.add("overview", OverviewHeader, PartHeader)
@dataclass(frozen=True)
class OverviewRequest:
    """Request for small plots of all heads of some layers, by principal components.

    For each head, the reply has one byte per drawn point for x, from 0 to 255 over a square, and
    then one byte per drawn point for y, which points up.
    """

    stack: str
    layers: tuple[int, ...]
    placing: Placing
    part: int = 0

    def answer(self, server: CorpusServer) -> Reply:
        """Send the plots."""
        return _in_parts(
            server, self, lambda: server.answers.overview(self.stack, self.layers, self.placing)
        )


@CORPUS_REQUESTS.add("plot", PlotHeader, PartHeader)
@dataclass(frozen=True)
class PlotRequest(HeadPlot):
    """Request for the current plot of one head, as 16-bit codes.

    The reply has the high bytes of the codes of all points, axis by axis, and then the low bytes.

    Attributes
    ----------
    action : {"show", "restart", "cancel"}
        What to do before the reply: nothing, start t-SNE or UMAP again if it was cancelled or has
        failed, or stop it if it is running.
    """

    part: int = 0
    action: Literal["show", "restart", "cancel"] = "show"

    def answer(self, server: CorpusServer) -> Reply:
        """Send the current plot. While t-SNE or UMAP runs, it is the newest intermediate result."""
        if self.action == "cancel":
            server.answers.running.cancel(self.key)

        def make() -> Answer:
            plot = server.answers.plot(self, restart=self.action == "restart")
            header, data = plot.reply()
            return header, data.tobytes()

        return _in_parts(server, replace(self, action="show"), make)


class TrustHeader(TypedDict):
    """Trust figures of some heads, in the order of the request.

    An entry is null if the head has no plot by the requested method yet, or none that can be drawn.
    """

    heads: list[HeadTrustFigures | None]


@CORPUS_REQUESTS.add("trust", TrustHeader)
@dataclass(frozen=True, kw_only=True)
class TrustRequest(PlotOptions):
    """Request for the trust figures of some heads of a layer."""

    heads: tuple[int, ...]

    def answer(self, server: CorpusServer) -> Reply:
        """Measure the trust figures."""
        return Reply({"heads": server.answers.trust(self, self.heads)})


@CORPUS_REQUESTS.add("norms", NormsHeader, PartHeader)
@dataclass(frozen=True)
class NormsRequest:
    """Request for the norms of the model's queries and keys of a head.

    The reply has 16-bit codes, little-endian, first of all queries and then of all keys.
    """

    stack: str
    layer: int
    head: int
    part: int = 0

    def answer(self, server: CorpusServer) -> Reply:
        """Send the norms."""

        def make() -> Answer:
            header, codes = server.answers.norms(self.stack, self.layer, self.head)
            return header, codes.tobytes()

        return _in_parts(server, self, make)


@CORPUS_REQUESTS.add("aggregate", AggregateHeader)
@dataclass(frozen=True)
class AggregateRequest:
    """Request for mean weights by query and key position, in at most `size` bins per axis.

    The reply is float32, one row per bin of query positions and one column per bin of key
    positions. NaN if the mask allows no pair of the two bins.
    """

    stack: str
    layer: int
    head: int
    size: int

    def answer(self, server: CorpusServer) -> Reply:
        """Compute the means from as many texts and queries as is possible in a short time."""
        if not 1 <= self.size <= MAX_BINS:
            value = reprlib.repr(self.size)
            raise ValueError(f"size={value} must be between 1 and {MAX_BINS}")
        layer, [head] = check_heads(server.corpus.stack(self.stack), self.layer, [self.head])
        header, means = aggregate(server.corpus, self.stack, layer, head, self.size)
        return Reply(header, means.astype("<f4").tobytes())


@CORPUS_REQUESTS.add("lines", LinesHeader)
@dataclass(frozen=True)
class LinesRequest:
    """Request for the attention lines of a point.

    They end at the strongest keys of a query, or at the queries with the largest weight on a key.
    """

    stack: str
    layer: int
    head: int
    point: int

    def answer(self, server: CorpusServer) -> Reply:
        """Find the strongest keys or queries."""
        layer, [head] = check_heads(server.corpus.stack(self.stack), self.layer, [self.head])
        return Reply(lines(server.corpus, self.stack, layer, head, self.point))
