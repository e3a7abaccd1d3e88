"""Server that answers the requests of atlas views.

Each request is a dataclass below. Its method ``answer`` returns the reply.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnviz.atlas.answers import compressed_json, describe_atlas, edges_of, table_of, texts_of
from attnviz.atlas.description import AtlasDescription, ClassesHeader, OffsetsHeader
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.server.base import BaseServer, MakePage, PageHeader, PageRequest
from attnviz.server.cache import ByteCache
from attnviz.server.protocol import PartHeader, Reply, Requests, get_part

__all__ = ["ATLAS_REQUESTS", "AtlasServer"]

# Maximum size in bytes of the cache of compressed replies. A reply is sent in parts, one per
# request, so it is kept for the requests of the other parts.
_MAX_CACHED_BYTES = 64_000_000


ATLAS_REQUESTS: Requests[AtlasServer] = Requests("It does not exist for an atlas.")
ATLAS_REQUESTS.add("page", PageHeader)(PageRequest)


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
        self._replies: ByteCache[bytes] = ByteCache(_MAX_CACHED_BYTES, len)

    def stack(self, name: str) -> StackStatistics:
        """Return the statistics of a stack. Raise KeyError if the stack does not exist."""
        if name not in self.statistics.stack_names:
            names = ", ".join(map(repr, self.statistics.stack_names))
            raise KeyError(f"stack={reprlib.repr(name)}: this atlas has the stacks {names}")
        return self.statistics.stack(name)

    def layer(self, stack: str, layer: int) -> tuple[StackStatistics, int]:
        """Return the statistics of a stack, and the number `layer`.

        Raise KeyError if the stack does not exist, and IndexError if it does not have the layer.
        """
        statistics = self.stack(stack)
        if layer not in statistics.layers:
            raise IndexError(
                f"layer={reprlib.repr(layer)}: stack {stack!r} has layers "
                f"{', '.join(map(str, statistics.layers))}"
            )
        return statistics, layer

    def cached_reply(self, key: object, make: Callable[[], bytes]) -> bytes:
        """Return the data for `key` from the cache. If it is missing, `make` computes it."""
        data = self._replies.get(key)
        if data is None:
            data = make()
            self._replies[key] = data
        return data


@ATLAS_REQUESTS.add("describe", AtlasDescription)
@dataclass(frozen=True)
class DescribeAtlasRequest:
    """Request for the description of an atlas, an `AtlasDescription`."""

    def answer(self, server: AtlasServer) -> Reply:
        """Return the description of the atlas."""
        return Reply(describe_atlas(server.statistics))


@ATLAS_REQUESTS.add("statistics", PartHeader)
@dataclass(frozen=True)
class StatisticsRequest:
    """Request for one part of the statistics and roles of a stack.

    All parts together are an `AtlasTable` as JSON, compressed with zlib.
    """

    stack: str
    part: int = 0

    def answer(self, server: AtlasServer) -> Reply:
        """Return the requested part of the compressed statistics."""
        stack = server.stack(self.stack)
        data = server.cached_reply(
            ("statistics", self.stack), lambda: compressed_json(table_of(stack))
        )
        return _part(data, self.part, "statistics")


@ATLAS_REQUESTS.add("offsets", OffsetsHeader)
@dataclass(frozen=True)
class OffsetsRequest:
    """Request for the mean weights by offset of all heads of a layer."""

    stack: str
    layer: int

    def answer(self, server: AtlasServer) -> Reply:
        """Return the mean weights by offset, (heads, bins), float32."""
        stack, layer = server.layer(self.stack, self.layer)
        weights = np.asarray(stack.offsets(layer), dtype="<f4")
        return Reply({"bins": weights.shape[1]}, weights.tobytes())


@ATLAS_REQUESTS.add("classes", ClassesHeader)
@dataclass(frozen=True)
class ClassesRequest:
    """Request for the mean weights of a head by class of query and class of key.

    `system` is the name of the system of token classes.
    """

    stack: str
    layer: int
    head: int
    system: str

    def answer(self, server: AtlasServer) -> Reply:
        """Return the mean weights by class, (classes of queries, classes of keys), float32."""
        stack, layer = server.layer(self.stack, self.layer)
        count = stack.num_heads(layer)
        if self.head not in range(count):
            raise IndexError(
                f"head={reprlib.repr(self.head)}: layer {layer} of stack {self.stack!r} has heads "
                f"0 to {count - 1}"
            )
        if self.system not in stack.class_systems:
            systems = ", ".join(map(repr, stack.class_systems))
            raise KeyError(
                f"system={reprlib.repr(self.system)}: stack {self.stack!r} has the systems "
                f"{systems}"
            )
        weights = stack.class_weights(layer, self.system)[self.head]
        return Reply({"classes": len(weights)}, np.asarray(weights, dtype="<f4").tobytes())


@ATLAS_REQUESTS.add("texts", PartHeader)
@dataclass(frozen=True)
class TextsRequest:
    """Request for one part of the tokens near the edges of a stack.

    All parts together are an `AtlasTexts` as JSON, compressed with zlib.
    """

    stack: str
    part: int = 0

    def answer(self, server: AtlasServer) -> Reply:
        """Return the requested part of the compressed texts."""
        stack = server.stack(self.stack)
        data = server.cached_reply(("texts", self.stack), lambda: compressed_json(texts_of(stack)))
        return _part(data, self.part, "texts")


@ATLAS_REQUESTS.add("edges", PartHeader)
@dataclass(frozen=True)
class EdgesRequest:
    """Request for one part of the edges of a layer.

    All parts together are an `AtlasEdges` as JSON, compressed with zlib.
    """

    stack: str
    layer: int
    part: int = 0

    def answer(self, server: AtlasServer) -> Reply:
        """Return the requested part of the compressed edges."""
        stack, layer = server.layer(self.stack, self.layer)
        data = server.cached_reply(
            ("edges", self.stack, layer), lambda: compressed_json(edges_of(stack, layer))
        )
        return _part(data, self.part, "edges")


def _part(data: bytes, part: int, of: str) -> Reply:
    piece, parts = get_part(data, part, of)
    return Reply({"parts": parts}, piece)
