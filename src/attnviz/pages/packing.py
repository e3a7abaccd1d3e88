"""Compression of bytes for a page: deflated, in base64."""

from __future__ import annotations

import base64
import zlib

from attnviz.utils.progress import Progress, Steps, run_steps

__all__ = [
    "ELEMENT",
    "ELEMENT_BYTES",
    "Packer",
    "packed",
]

#: Element for a long text of a page. A browser reads a template in a third of the time of a script.
ELEMENT = '<template id="attnviz-{:04}">{}</template>\n'
#: Size in bytes of such an element without its text.
ELEMENT_BYTES = len(ELEMENT.format(0, "#attnviz-0000"))
# Strategies of zlib. Z_RLE finds only runs of bytes, which suits weights with zeros: other repeats
# are accidental, and searching for them takes longer and increases the size. Weights that repeat
# exactly need the default strategy.
_STRATEGIES = (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)

# Number of bytes on which the strategies are compared.
_TRIED = 1 << 16
# Bytes per step.
_PIECE = 1 << 20


def packed(data: bytes) -> str:
    """Deflate bytes with the better of two strategies, and encode them in base64.

    Examples
    --------
    >>> zlib.decompress(base64.b64decode(packed(b"weights")))
    b'weights'
    """
    return run_steps(Packer().packing(data))


class Packer:
    """Packer that chooses the strategy for similar data once, from the first bytes it packs.

    The slower strategy takes five times as long.
    """

    def __init__(self) -> None:
        self._strategy: int | None = None

    def packing(self, data: bytes) -> Steps[str]:
        """Pack bytes in steps."""
        if self._strategy is None:
            # Try bytes from the middle: the first queries have few keys.
            start = max(0, len(data) - _TRIED) // 2
            part = data[start : start + _TRIED]
            tried = {strategy: _deflated(part, strategy) for strategy in _STRATEGIES}
            self._strategy = min(_STRATEGIES, key=lambda strategy: len(tried[strategy]))
            yield Progress("compressing", 0, len(data), "byte")
            if len(data) <= _TRIED:
                return _text(tried[self._strategy])
        packer = _packer(self._strategy)
        pieces = []
        for start in range(0, len(data), _PIECE):
            pieces.append(packer.compress(data[start : start + _PIECE]))
            done = min(len(data), start + _PIECE)
            yield Progress("compressing", done, len(data), "byte")
        pieces.append(packer.flush())
        return _text(b"".join(pieces))


def _deflated(data: bytes, strategy: int) -> bytes:
    packer = _packer(strategy)
    return packer.compress(data) + packer.flush()


def _text(deflated: bytes) -> str:
    return base64.b64encode(deflated).decode("ascii")


def _packer(strategy: int) -> zlib._Compress:
    return zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
