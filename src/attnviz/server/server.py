"""Answers what a view may ask of a record.

A view never gets the whole tensor: it asks for the description once, and then for the blocks and
maps that it draws. Replies stay under a size that every notebook host carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis import head_scores
from attnviz.analysis.heads import scores_of_heads
from attnviz.record.record import AttentionRecord
from attnviz.server.codec import encode
from attnviz.server.description import describe, packed_description
from attnviz.server.images import encoded_image
from attnviz.server.limits import MAX_REPLY_BYTES
from attnviz.server.maps import encoded_maps
from attnviz.server.pyramid import Pyramids
from attnviz.server.row_sums import RowSums
from attnviz.server.strips import strips
from attnviz.server.strongest import encoded_strongest
from attnviz.server.tiles import answered_tile
from attnviz.server.vectors import encoded_vectors

__all__ = ["MAX_REPLY_BYTES", "RecordServer", "Reply", "finite_scores", "part_of"]


@dataclass(frozen=True)
class Reply:
    """An answer: a header fit for JSON and at most one buffer."""

    header: dict[str, Any]
    data: bytes | None = None


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

    def __init__(
        self,
        record: AttentionRecord,
        page: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None,
    ) -> None:
        self.record = record
        self._make_page = page
        self._row_sums = RowSums()
        self._pyramids = Pyramids(self._row_sums)
        self._page: tuple[Any, str, bytes] | None = None
        self._description: bytes | None = None
        self._answers: dict[str, Callable[[Mapping[str, Any]], Reply]] = {
            "describe": self._describe,
            "block": self._block,
            "maps": self._maps,
            "strongest": self._strongest,
            "tile": self._tile,
            "scores": self._scores,
            "strips": self._strips,
            "vectors": self._vectors,
            "image": self._image,
            "page": self._page_part,
        }

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer one request.

        Parameters
        ----------
        name : str
            What is asked for: ``"describe"``, ``"block"``, ``"maps"``, ``"strongest"``, ``"tile"``,
            ``"scores"``, ``"strips"``, ``"vectors"``, ``"image"`` or ``"page"``.
        arguments : mapping
            Its arguments.

        Returns
        -------
        Reply

        Raises
        ------
        KeyError, IndexError, TypeError, ValueError
            If the request makes no sense for this record, with what would.
        """
        if name not in self._answers:
            raise ValueError(f"request {name!r} is unknown; this kernel's attnviz may be older")
        return self._answers[name](arguments)

    def _describe(self, arguments: Mapping[str, Any]) -> Reply:
        if self._description is None:
            description = describe(self.record)
            self._description = packed_description(description)
            if self._description is None:
                return Reply(description)
        piece, parts = part_of(self._description, int(arguments.get("part", 0)), "a description")
        return Reply({"parts": parts}, piece)

    def _block(self, arguments: Mapping[str, Any]) -> Reply:
        stack = self.record.stack(arguments["stack"])
        layer = int(arguments["layer"])
        heads = [int(head) for head in arguments["heads"]]
        rows = _range("rows", arguments["rows"], len(stack.query_tokens))
        columns = _range("columns", arguments["columns"], len(stack.key_tokens))
        precision = arguments["precision"]
        count = len(heads) * (rows.stop - rows.start) * (columns.stop - columns.start)
        size = count * (4 if precision == "float32" else 1)
        if not heads or size > MAX_REPLY_BYTES:
            raise ValueError(
                f"a block of {size} bytes was asked for; 1 to {MAX_REPLY_BYTES} are sent at once"
            )
        weights = np.stack(
            [
                self._row_sums.block(stack, layer=layer, head=head, rows=rows, columns=columns)
                for head in heads
            ]
        )
        of = f"stack {stack.name!r}, layer {layer}, heads {', '.join(map(str, heads))}"
        encoded = encode(weights, precision, stack.maximum, of=of)
        return Reply(encoded.header(), encoded.data)

    def _strongest(self, arguments: Mapping[str, Any]) -> Reply:
        stack = self.record.stack(arguments["stack"])
        header, data = encoded_strongest(
            stack,
            largest=MAX_REPLY_BYTES,
            layer=int(arguments["layer"]),
            heads=[int(head) for head in arguments["heads"]],
            rows=_range("rows", arguments["rows"], len(stack.query_tokens)),
            k=int(arguments["k"]),
            bin_size=int(arguments["bin_size"]),
            combine=arguments["combine"],
            leave_out=arguments["leave_out"],
            pair=arguments["pair"],
            row_sums=self._row_sums,
        )
        return Reply(header, data)

    def _maps(self, arguments: Mapping[str, Any]) -> Reply:
        stack = self.record.stack(arguments["stack"])
        heads = arguments.get("heads")
        rows = arguments.get("rows") or (0, len(stack.query_tokens))
        columns = arguments.get("columns") or (0, len(stack.key_tokens))
        maps, sampled = encoded_maps(
            stack,
            int(arguments["layer"]),
            int(arguments["size"]),
            heads=None if heads is None else [int(head) for head in heads],
            rows=_range("rows", rows, len(stack.query_tokens)),
            columns=_range("columns", columns, len(stack.key_tokens)),
        )
        header = maps.header() | {"pooled": "max"}
        return Reply(header if sampled is None else header | {"sampled": sampled}, maps.data)

    def _tile(self, arguments: Mapping[str, Any]) -> Reply:
        header, data = answered_tile(
            self.record.stack(arguments["stack"]),
            self._pyramids,
            layer=int(arguments["layer"]),
            heads=[int(head) for head in arguments["heads"]],
            level=int(arguments["level"]),
            place=(int(arguments["row"]), int(arguments["column"])),
            pooled=arguments["pooled"],
            precision=arguments["precision"],
            exact=bool(arguments.get("exact", True)),
        )
        return Reply(header, data)

    def _scores(self, arguments: Mapping[str, Any]) -> Reply:
        stack, pattern = self.record.stack(arguments["stack"]), str(arguments["pattern"])
        if "heads" not in arguments:
            return Reply({"scores": finite_scores(head_scores(stack, pattern))})
        heads = [int(head) for head in arguments["heads"]]
        layer = int(arguments["layer"])
        scores = scores_of_heads(stack, [pattern], layer, heads, int(arguments["queries"]))
        return Reply({"scores": finite_scores(list(scores))})

    def _strips(self, arguments: Mapping[str, Any]) -> Reply:
        stack = self.record.stack(arguments["stack"])
        heads = [int(head) for head in arguments["heads"]]
        found = strips(stack, int(arguments["layer"]), heads)
        return Reply(found.header(), found.data)

    def _vectors(self, arguments: Mapping[str, Any]) -> Reply:
        stack = self.record.stack(arguments["stack"])
        header, data = encoded_vectors(
            stack,
            layer=int(arguments["layer"]),
            head=int(arguments["head"]),
            token=int(arguments["token"]),
            keys=_range("keys", arguments["keys"], len(stack.key_tokens)),
            largest=MAX_REPLY_BYTES,
        )
        return Reply(header, data)

    def _image(self, arguments: Mapping[str, Any]) -> Reply:
        index, images = int(arguments["index"]), self.record.images
        if not 0 <= index < len(images):
            raise IndexError(f"image {index} was asked for; the record has {len(images)}")
        return Reply(*encoded_image(images[index], MAX_REPLY_BYTES))

    def _page_part(self, arguments: Mapping[str, Any]) -> Reply:
        if self._make_page is None:
            raise ValueError("this view has no HTML export")
        part = int(arguments["part"])
        # One page for all its parts, which two tabs may fetch at once, each with its state.
        state = arguments["state"]
        if self._page is None or self._page[0] != state:
            name, text = self._make_page(state)
            self._page = (state, name, text.encode())
        _, name, content = self._page
        piece, parts = part_of(content, part, "a page")
        if part == parts - 1:
            self._page = None
        return Reply({"parts": parts, "name": name}, piece)


def finite_scores(scores: Sequence[NDArray[np.float64]]) -> list[list[float | None]]:
    """Scores of heads, fit for JSON.

    Parameters
    ----------
    scores : sequence of ndarray
        One array a layer, one number a head.

    Returns
    -------
    list
        The same; None where a score is no finite number.
    """
    return [[float(score) if np.isfinite(score) else None for score in layer] for layer in scores]


def part_of(content: bytes, part: int, of: str) -> tuple[bytes, int]:
    """What is sent at once, and in how many parts all is.

    Parameters
    ----------
    content : bytes
        All of it.
    part : int
        Which part, from 0.
    of : str
        What it is, for errors.

    Returns
    -------
    bytes
        The part, at most `MAX_REPLY_BYTES`.
    int
        How many parts there are, at least one.

    Raises
    ------
    ValueError
        If there is no such part.
    """
    parts = max(1, -(-len(content) // MAX_REPLY_BYTES))
    if not 0 <= part < parts:
        raise ValueError(f"part {part} of {of} of {parts} parts was asked for")
    return content[part * MAX_REPLY_BYTES : (part + 1) * MAX_REPLY_BYTES], parts


def _range(argument: str, given: Any, size: int) -> slice:
    start, stop = (int(end) for end in given)
    if not 0 <= start < stop <= size:
        raise ValueError(f"{argument}=[{start}, {stop}] must lie within 0 to {size}")
    return slice(start, stop)
