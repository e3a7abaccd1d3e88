"""Compression of bytes to text for an exported page, with deflate and base64."""

from __future__ import annotations

import base64
import zlib

from attnviz.utils.progress import report

#: Format of an HTML element that contains one compressed text of a page. The two placeholders are
#: for the number of the text and for the text itself. The element is a template element, because a
#: browser reads a script element three times as slowly.
ELEMENT = '<template id="attnviz-{:04}">{}</template>\n'
# Strategies of zlib that are compared. Z_RLE finds only repetitions of one byte, such as zeros. It
# is best for most weights, because other repeated sequences are rare, and searching for them takes
# longer. The default strategy finds all repeated sequences, so it is better if the same weights
# occur several times.
_STRATEGIES = (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)

# Maximum number of bytes that are compressed with both strategies to compare them.
_TRIED = 1 << 16
# Number of bytes that are compressed between two progress reports.
_PIECE = 1 << 20


def packed(data: bytes) -> str:
    """Compress bytes with the better of two zlib strategies, and return them as base64 text.

    Examples
    --------
    >>> zlib.decompress(base64.b64decode(packed(b"weights")))
    b'weights'
    """
    return Packer().pack(data)


class Packer:
    """Compressor for several byte strings with similar content.

    Two strategies of zlib are compared with the first byte string only, because one of them takes
    five times as long as the other. The better strategy is then used for all byte strings.
    """

    def __init__(self) -> None:
        self._strategy: int | None = None

    def pack(self, data: bytes) -> str:
        """Compress bytes to base64 text."""
        if self._strategy is None:
            # Compare the strategies on bytes from the middle. The first bytes are not typical,
            # because in a causal mask the first queries attend to few keys.
            start = max(0, len(data) - _TRIED) // 2
            part = data[start : start + _TRIED]
            tried = {strategy: _deflated(part, strategy) for strategy in _STRATEGIES}
            self._strategy = min(_STRATEGIES, key=lambda strategy: len(tried[strategy]))
        return base64.b64encode(_deflated(data, self._strategy)).decode("ascii")


def _deflated(data: bytes, strategy: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    pieces = []
    for start in range(0, len(data), _PIECE):
        report("compressing", start, len(data), "byte")
        pieces.append(packer.compress(data[start : start + _PIECE]))
    return b"".join([*pieces, packer.flush()])
