"""Server that answers the requests of atlas views.

Each request is a dataclass below. Its method ``answer`` returns the reply.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnviz.atlas.answers import describe_atlas, edges_of, table_of, texts_of
from attnviz.atlas.description import AtlasDescription, OffsetsHeader
from attnviz.corpus.statistics import HeadStatistics
from attnviz.server.base import BaseServer, MakePage, PageHeader, PageRequest
from attnviz.server.codec import compressed_json
from attnviz.server.protocol import PartHeader, Reply, Requests

ATLAS_REQUESTS: Requests[AtlasServer] = Requests("It does not exist for an atlas.")
ATLAS_REQUESTS.add("page", PageHeader, live=True)(PageRequest)


class AtlasServer(BaseServer):
    """Server that answers requests for head statistics.

    Parameters
    ----------
    statistics : HeadStatistics
        Statistics that the view shows.
    page : callable, optional
        Function that makes the exported page from the state of a view. If it is None, the views
        have no HTML export.

    Examples
    --------
    >>> server = AtlasServer(attnviz.head_statistics(model, texts))         # doctest: +SKIP
    >>> server.reply("offsets", {"stack": "self", "layer": 0})              # doctest: +SKIP
    """

    requests = ATLAS_REQUESTS

    def __init__(self, statistics: HeadStatistics, page: MakePage | None = None) -> None:
        super().__init__(page)
        self.statistics = statistics


@ATLAS_REQUESTS.add("describe", AtlasDescription)
@dataclass(frozen=True)
class DescribeAtlasRequest:
    """Request for the description of an atlas. The header of the reply is an `AtlasDescription`."""

    def answer(self, server: AtlasServer) -> Reply:
        """Return the description of the atlas."""
        return Reply(describe_atlas(server.statistics))


@ATLAS_REQUESTS.add("statistics", PartHeader)
@dataclass(frozen=True)
class StatisticsRequest:
    """Request for one part of the statistics and roles of all heads of a stack.

    All parts together are an `AtlasTable` as JSON, compressed with zlib. `part` is the index of the
    part, from 0.
    """

    stack: str
    part: int = 0

    def answer(self, server: AtlasServer) -> Reply:
        """Return the requested part of the compressed statistics."""
        stack = server.statistics.stack(self.stack)
        return server.part(self, lambda: ({}, compressed_json(table_of(stack))))


@ATLAS_REQUESTS.add("offsets", OffsetsHeader)
@dataclass(frozen=True)
class OffsetsRequest:
    """Request for the mean weights of all heads of a layer by offset (see `AtlasStack.offsets`)."""

    stack: str
    layer: int

    def answer(self, server: AtlasServer) -> Reply:
        """Return the mean weights by offset, (heads, bins), float32."""
        weights = np.asarray(server.statistics.stack(self.stack).offsets(self.layer), dtype="<f4")
        return Reply({"bins": weights.shape[1]}, weights.tobytes())


@ATLAS_REQUESTS.add("texts", PartHeader)
@dataclass(frozen=True)
class TextsRequest:
    """Request for one part of the tokens near the strongest and sampled edges of a stack.

    These are the queries and keys of the edges, and up to 6 tokens before and after each of them
    (`attnviz.corpus.edges.WINDOW`). All parts together are an `AtlasTexts` as JSON, compressed with
    zlib. `part` is the index of the part, from 0.
    """

    stack: str
    part: int = 0

    def answer(self, server: AtlasServer) -> Reply:
        """Return the requested part of the compressed texts."""
        stack = server.statistics.stack(self.stack)
        return server.part(self, lambda: ({}, compressed_json(texts_of(stack))))


@ATLAS_REQUESTS.add("edges", PartHeader)
@dataclass(frozen=True)
class EdgesRequest:
    """Request for one part of the strongest and sampled edges of all heads of a layer.

    All parts together are an `AtlasEdges` as JSON, compressed with zlib. `part` is the index of the
    part, from 0.
    """

    stack: str
    layer: int
    part: int = 0

    def answer(self, server: AtlasServer) -> Reply:
        """Return the requested part of the compressed edges."""
        stack = server.statistics.stack(self.stack)
        return server.part(self, lambda: ({}, compressed_json(edges_of(stack, self.layer))))
