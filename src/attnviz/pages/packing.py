"""Compression of bytes to text for an exported page, with deflate and base64."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

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

# Maximum number of bytes of a run that are compressed with both strategies to compare them.
_TRIED = 1 << 15
# Number of bytes that are compressed between two progress reports.
_PIECE = 1 << 20


def packed(*runs: bytes) -> str:
    """Compress bytes with the better of two zlib strategies, and return them as base64 text.

    Several runs of bytes are joined.

    Examples
    --------
    >>> zlib.decompress(base64.b64decode(packed(b"weights")))
    b'weights'
    """
    return Packer().pack(*runs)


class Packer:
    """Compressor for several byte strings with similar content.

    Two strategies of zlib are compared with the first byte string only, because one of them takes
    five times as long as the other. The better strategy is then used for all byte strings.
    """

    def __init__(self) -> None:
        self._strategy: int | None = None

    def pack(self, *runs: bytes) -> str:
        """Compress one or several runs of bytes to one base64 text.

        The bytes of each run should be similar, because a run has its own Huffman codes.
        """
        if self._strategy is None:
            # Compare the strategies on bytes from the middle. The first bytes are not typical,
            # because in a causal mask the first queries attend to few keys.
            starts = [max(0, len(run) - _TRIED) // 2 for run in runs]
            parts = [run[start:][:_TRIED] for run, start in zip(runs, starts, strict=True)]
            tried = {strategy: _deflated(parts, strategy) for strategy in _STRATEGIES}
            self._strategy = min(_STRATEGIES, key=lambda strategy: len(tried[strategy]))
        return base64.b64encode(_deflated(runs, self._strategy)).decode("ascii")


def _deflated(runs: Sequence[bytes], strategy: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    pieces: list[bytes] = []
    for run in runs:
        if pieces:
            # End the block of the previous run, because a block has one set of Huffman codes.
            pieces.append(packer.flush(zlib.Z_PARTIAL_FLUSH))
        for start in range(0, len(run), _PIECE):
            report("compressing", start, len(run), "byte")
            pieces.append(packer.compress(run[start : start + _PIECE]))
    return b"".join([*pieces, packer.flush()])
