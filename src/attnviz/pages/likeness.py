"""Blocks of like stacks in fewer bytes: a page does not store what it can compute.

The record of a comparison has the weights of each member, and their differences from the first. A
block of the second member, and of each later one, holds by how much its codes differ from those of
the member before. A block of differences holds by how much its codes differ from those that the
two members' codes give. Nothing is lost: the page computes the codes that the block would hold.

``js/src/client/page/likeness.ts`` reads them; ``tests/fixtures/likeness.json`` is read by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.pages.packing import Packer
from attnviz.record.difference import DifferenceAttention
from attnviz.record.record import AttentionRecord
from attnviz.server.codec import TOP_CODE, TOP_SIGNED_CODE
from attnviz.utils.progress import Progress, Steps

__all__ = ["Codes", "LikeBlocks", "expected_codes", "taken"]

_Code = TypeVar("_Code", np.uint8, np.uint16)


class Codes(NamedTuple):
    """Bytes of a layer's weights, and the weight of the highest code.

    Attributes
    ----------
    values : ndarray
        uint8, (heads, rows, columns).
    """

    values: NDArray[np.uint8]
    maximum: float


class LikeBlocks:
    """Packs the blocks of a record, in the order of its stacks.

    What others are computed from is kept until then.
    """

    def __init__(self, record: AttentionRecord) -> None:
        self._like = _related(record)
        needed = {(stack, layer) for (_, layer), stacks in self._like.items() for stack in stacks}
        self._kept: dict[tuple[str, int], Codes | None] = dict.fromkeys(needed)
        self._packer, self._packer_of_rests = Packer(), Packer()

    def packing(
        self, stack: str, layer: int, codes: Codes, held: NDArray[np.int64]
    ) -> Steps[dict[str, Any]]:
        """Pack the codes of one block at the places `held` of each flattened head, in steps.

        Returns
        -------
        dict
            ``data``; and ``like``, names of the stacks that it is computed from, where that is
            shorter.
        """
        place = stack, layer
        if place in self._kept:
            self._kept[place] = codes
        data = taken(codes.values, held).tobytes()
        plain = yield from self._packer.packing(data)
        names = self._like.get(place, ())
        others = [self._kept[name, layer] for name in names]
        alike = [each for each in others if each and each.values.shape == codes.values.shape]
        if not names or len(alike) != len(names) or codes.maximum <= 0:
            return {"data": plain}
        rests = []
        for head, values in enumerate(codes.values):
            rest = values - expected_codes(_head(alike, head), codes.maximum)
            rests.append(rest.ravel()[held].tobytes())
            yield Progress("likeness", head + 1, len(codes.values), "head")
        short = yield from self._packer_of_rests.packing(b"".join(rests))
        # The names take a little, too.
        if len(short) + sum(map(len, names)) >= len(plain):
            return {"data": plain}
        return {"like": list(names), "data": short}


def taken(codes: NDArray[_Code], places: NDArray[np.int64]) -> NDArray[_Code]:
    """The codes at some places of each flattened head, (heads, places)."""
    flat = codes.reshape(len(codes), -1)
    return flat if len(places) == flat.shape[1] else np.take(flat, places, axis=1)


def expected_codes(like: Sequence[Codes], maximum: float) -> NDArray[np.uint8]:
    """The codes that those of one or two others give.

    Those of the one; or those of the second's weights less the first's, which have a sign.

    Parameters
    ----------
    like : sequence of Codes
        Of weights; one, or two.
    maximum : float
        The number of the highest code that is wanted.

    Examples
    --------
    >>> half, whole = (Codes(np.array([[[code]]], np.uint8), 1.0) for code in (180, 255))
    >>> expected_codes([half], 1.0), expected_codes([whole, half], 1.0).view(np.int8)
    (array([[[180]]], dtype=uint8), array([[[-90]]], dtype=int8))
    """
    if len(like) == 1:
        return like[0].values
    # In double precision and in this order, so that a browser computes the same to the last bit.
    before, after = (
        each.values.astype(np.float64) * each.values.astype(np.float64) * each.maximum
        for each in like
    )
    change = after - before
    share = np.minimum(np.abs(change) / (TOP_CODE * TOP_CODE * maximum), 1.0)
    roots = np.floor(np.sqrt(share) * TOP_SIGNED_CODE + 0.5)
    signed: NDArray[np.int8] = np.copysign(roots, change).astype(np.int8)
    return signed.view(np.uint8)


def _head(like: Sequence[Codes], head: int) -> list[Codes]:
    return [Codes(each.values[head], each.maximum) for each in like]


def _related(record: AttentionRecord) -> dict[tuple[str, int], tuple[str, ...]]:
    """For stacks and layers, which stacks before them they can be computed from.

    A difference from the two stacks that it is of, and each stack that a first one is subtracted
    from, from the one before.
    """
    stacks: dict[tuple[int, int], str] = {}
    related: dict[tuple[str, int], tuple[str, ...]] = {}
    last: dict[tuple[str, int], str] = {}
    for stack in record.stacks.values():
        for layer in stack.layers:
            attention = stack.attention(layer)
            if not isinstance(attention, DifferenceAttention):
                if not stack.signed:
                    stacks.setdefault((layer, id(attention)), stack.name)
                continue
            sides = attention.a, attention.b
            heads = {each.kept_heads for each in (attention, *sides)}
            first, other = (stacks.get((layer, id(each))) for each in sides)
            if first is None or other is None or len(heads) > 1:
                continue
            related[stack.name, layer] = first, other
            before = last.get((first, layer), first)
            if other != first and (other, layer) not in related and before != other:
                related[other, layer] = (before,)
                last[first, layer] = other
    return related
