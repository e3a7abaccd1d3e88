"""A layer's weights in one byte each, as an exported page carries them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attnviz.pages.passes import SmallMaps, weight_tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import encode

__all__ = ["STRATEGIES", "deflated", "packed", "whole_layer"]


#: How zlib looks for repeats. Weights have runs of zeros, and otherwise repeat by chance alone:
#: looking for more then takes longer and makes more bytes. Others repeat exactly.
STRATEGIES = (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)


def whole_layer(
    stack: AttentionStack,
    layer: int,
    maps: SmallMaps | None = None,
    done: Callable[[int], object] | None = None,
) -> tuple[dict[str, Any], bytes]:
    """All weights of a layer's heads.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
    layer : int
        The model's number of the layer.
    maps : SmallMaps, optional
        Takes in the same weights.
    done : callable, optional
        Is told each time how many rows were computed.

    Returns
    -------
    header : dict
        Fit for JSON: shape, encoding, maximum, error and reach: row r is carried for its first
        ``r + 1 + reach`` keys, after which there are zeros alone.
    data : bytes
        Codes of ``"uint8-sqrt"``, row by row (`attnviz.server.codec.Encoded`).

    Raises
    ------
    ValueError
        If a weight is NaN, infinite, negative or larger than can occur.
    """
    rows, columns = len(stack.query_tokens), len(stack.key_tokens)
    heads = stack.kept_heads(layer)
    codes = np.empty((len(heads), rows, columns), np.uint8)
    error = 0.0
    for place, head in enumerate(heads):
        for tile, weights in weight_tiles(stack, layer, head):
            encoded = encode(weights[None], "uint8", stack.maximum)
            error = encoded.error
            codes[place, tile] = np.frombuffer(encoded.data, np.uint8).reshape(-1, columns)
            if maps is not None:
                maps.add(place, tile, weights)
            if done is not None:
                done(tile.stop - tile.start)
    some = codes.max(axis=0) > 0
    ends = np.where(some.any(axis=1), columns - some[:, ::-1].argmax(axis=1), 0)
    reach = int(np.max(ends - np.arange(rows) - 1, initial=0))
    carried = np.tri(rows, columns, reach, dtype=np.bool_)
    header = {
        "shape": [len(heads), rows, columns],
        "encoding": "uint8-sqrt",
        "maximum": stack.maximum,
        "error": error,
        "reach": reach,
    }
    return header, codes[:, carried].tobytes()


def packed(data: bytes, strategies: Sequence[int] = STRATEGIES) -> str:
    """Deflate bytes and write them as text.

    Parameters
    ----------
    data : bytes
        Any.
    strategies : sequence of int
        Of zlib, at least one; the one that makes the fewest bytes counts.

    Returns
    -------
    str
        base64.

    Examples
    --------
    >>> zlib.decompress(base64.b64decode(packed(b"weights")))
    b'weights'
    """
    return base64.b64encode(min((deflated(data, each) for each in strategies), key=len)).decode()


def deflated(data: bytes, strategy: int, before: bytes = b"") -> bytes:
    """Deflate bytes in one of zlib's strategies.

    Parameters
    ----------
    data : bytes
        Any.
    strategy : int
        Such as ``zlib.Z_RLE``.
    before : bytes, default b""
        What may be referred to as if it went before; whoever inflates has to know it.

    Returns
    -------
    bytes
        With zlib's header.
    """
    settings = (6, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    packer = zlib.compressobj(*settings, before) if before else zlib.compressobj(*settings)
    return packer.compress(data) + packer.flush()
