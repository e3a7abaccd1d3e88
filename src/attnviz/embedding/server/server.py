"""Server for the requests of an embedding view, which are about the points of a corpus.

Each request is a class in this module, whose method `answer` returns the reply. A point is a query
or a key of one token. A large reply is divided into parts, which the browser requests separately.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.server.description import describe_corpus, describe_points
from attnviz.embedding.server.plots import (
    EmbeddingAnswers,
    NormsHeader,
    PlotHeader,
    PlotOptions,
    SmallPlotsHeader,
)
from attnviz.embedding.server.weights import LinesHeader, lines
from attnviz.embedding.trust import HeadTrust
from attnviz.server.base import Answer, BaseServer, MakePage, PageHeader, PageRequest
from attnviz.server.codec import compressed_json
from attnviz.server.description import Description
from attnviz.server.protocol import PartHeader, Reply, Requests, check_heads

CORPUS_REQUESTS: Requests[CorpusServer] = Requests("It does not exist for a corpus.")
CORPUS_REQUESTS.add("page", PageHeader, live=True)(PageRequest)


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

    def close(self) -> None:
        """Stop a running t-SNE or UMAP, and all unfinished replies."""
        self.answers.cancel()
        super().close()


@CORPUS_REQUESTS.add("describe", Description)
@dataclass(frozen=True)
class DescribeCorpusRequest:
    """Request for the description of the corpus: a `Description` whose stacks have no tokens."""

    def answer(self, server: CorpusServer) -> Reply:
        """Describe the corpus."""
        return Reply(describe_corpus(server.corpus))


@CORPUS_REQUESTS.add("points", PartHeader)
@dataclass(frozen=True)
class PointsRequest:
    """Request for one part of the description of the points of a stack.

    All parts together are `CorpusPoints` as JSON, compressed with zlib. `part` is the index of the
    part, from 0.
    """

    stack: str
    part: int = 0

    def answer(self, server: CorpusServer) -> Reply:
        """Return the requested part of the compressed description."""
        corpus = server.corpus
        return server.part(self, lambda: ({}, compressed_json(describe_points(corpus, self.stack))))


@CORPUS_REQUESTS.add("plot", PlotHeader, SmallPlotsHeader, PartHeader)
@dataclass(frozen=True, kw_only=True)
class PlotRequest(PlotOptions):
    """Request for one part of the current plot of one head, or of the small plots of all heads.

    A coordinate is a 16-bit code. The codes 0 and 65,535 are opposite sides of the square or cube
    in `PlotHeader`, and the y axis points up. The buffer has the high bytes of the codes, first of
    the x coordinates of all points, then of the y coordinates, and so on. The low bytes follow in
    the same order.

    Until t-SNE or UMAP has a first result, the plot shows the principal components. `part` is the
    index of the part, from 0.

    Attributes
    ----------
    head : int or None
        Number of the head. None requests small plots of all heads of the layer, which have
        principal components only. They have some of the points (see `CorpusPoints.stride`) and no
        low bytes: the buffer has the x coordinates of all heads, head by head, then the y
        coordinates.
    action : {"show", "restart", "cancel"}
        What to do with t-SNE or UMAP before the reply. "show": start it unless it was started
        before. "restart": also start it again if it was cancelled or has failed. "cancel": stop it
        if it is running.
    """

    part: int = 0
    action: Literal["show", "restart", "cancel"] = "show"

    def answer(self, server: CorpusServer) -> Reply:
        """Send the current plot. While t-SNE or UMAP runs, it is the newest intermediate result."""
        if self.head is None:
            return server.part(self, lambda: server.answers.small_plots(self))
        if self.action == "cancel":
            server.answers.cancel(self.key)

        def make() -> Answer:
            plot = server.answers.plot(self, restart=self.action == "restart")
            header, data = plot.reply()
            return header, data.tobytes()

        return server.part(replace(self, action="show"), make)


class TrustHeader(TypedDict):
    """Header of a reply with the trust figures of the requested head, or of all heads of the layer.

    A page has all heads of the layer also if one is requested. An entry is None if the head has no
    plot by the requested method yet, or if its plot cannot be drawn.
    """

    heads: list[HeadTrust | None]


@CORPUS_REQUESTS.add("trust", TrustHeader)
@dataclass(frozen=True, kw_only=True)
class TrustRequest(PlotOptions):
    """Request for the trust figures of one head or all heads of a layer.

    Trust figures state how well distances on a plot predict attention.
    """

    def answer(self, server: CorpusServer) -> Reply:
        """Measure the trust figures."""
        return Reply({"heads": server.answers.trust(self)})


@CORPUS_REQUESTS.add("norms", NormsHeader, PartHeader)
@dataclass(frozen=True)
class NormsRequest:
    """Request for one part of the lengths (Euclidean norms) of the query and key vectors of a head.

    The buffer has one code per point (see `NormsHeader`), first for all queries and then for all
    keys. The vectors are those of the model, before their placement on a plot. `part` is the index
    of the part, from 0.
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

        return server.part(self, make)


@CORPUS_REQUESTS.add("lines", LinesHeader)
@dataclass(frozen=True)
class LinesRequest:
    """Request for the attention lines of a point, of which there are at most 64.

    `point` is the number of the point. The lines of a query end at its strongest keys. The lines of
    a key end at the queries with the largest weights on it. Both ends of a line are points of the
    same text.
    """

    stack: str
    layer: int
    head: int
    point: int

    def answer(self, server: CorpusServer) -> Reply:
        """Find the strongest keys or queries."""
        layer, [head] = check_heads(server.corpus.stack(self.stack), self.layer, [self.head])
        return Reply(lines(server.corpus, self.stack, layer, head, self.point))
