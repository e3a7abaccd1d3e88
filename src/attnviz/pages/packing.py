"""Bytes as text of a page: deflated, in base64."""

from __future__ import annotations

import base64
import zlib

__all__ = ["packed"]

# How zlib looks for repeats. Weights have runs of zeros, and otherwise repeat by chance alone:
# looking for more then takes longer and makes more bytes. Others repeat exactly.
_STRATEGIES = (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)


def packed(data: bytes) -> str:
    """Deflate bytes in the better of two strategies and write them in base64.

    Examples
    --------
    >>> zlib.decompress(base64.b64decode(packed(b"weights")))
    b'weights'
    """
    shortest = min((_deflated(data, strategy) for strategy in _STRATEGIES), key=len)
    return base64.b64encode(shortest).decode()


def _deflated(data: bytes, strategy: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    return packer.compress(data) + packer.flush()
