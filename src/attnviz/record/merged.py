"""A layer's attention from word to word, computed from that of their tokens.

With the tokens i of a word I as queries and the tokens j of a word J as keys,

    merged[I, J] = mean over i in I of (sum over j in J of weights[i, j])

(Clark et al. 2019, arXiv 1906.04341, section 4.1): attention to a word is that to all of its
tokens, attention from a word is the mean of its tokens'. Rows that sum to 1 stay so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.head_subset import vectors_of_layer
from attnviz.record.masks import BandMask
from attnviz.record.softmax import tiles
from attnviz.record.tokens import Tokens
from attnviz.record.words import merged_tokens, word_starts

__all__ = ["MERGED_NOTE", "MergedWeights", "merged_layers"]

MERGED_NOTE = "Subword tokens merged into words: keys summed, queries averaged."


@dataclass(frozen=True)
class MergedWeights:
    """A layer's attention from word to word; only the rows asked for are computed.

    Attributes
    ----------
    base : QueryKeyAttention, GivenWeights or KeptHeads
        The attention from token to token.
    query_starts, key_starts : ndarray
        int64, (words,): place of each word's first token, ascending from 0.

    Raises
    ------
    ValueError
        If the starts are not ascending places of `base`, the first of them 0.
    TypeError
        If `base` is merged already.

    Examples
    --------
    >>> import torch
    >>> from attnviz.record.attention import GivenWeights
    >>> base = GivenWeights(torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.5, 0.25]]]))
    >>> merged = MergedWeights(base, np.array([0, 2]), np.array([0, 2]))
    >>> merged.weights(0, slice(0, 2), slice(0, 2))
    array([[1.  , 0.  ],
           [0.75, 0.25]], dtype=float32)
    """

    base: LayerAttention
    query_starts: NDArray[np.int64]
    key_starts: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Refuse starts that are none of this attention's."""
        if isinstance(self.base, MergedWeights):
            raise TypeError("base is merged already; give the attention of the tokens themselves")
        for name, starts, size in (
            ("query_starts", self.query_starts, self.base.num_queries),
            ("key_starts", self.key_starts, self.base.num_keys),
        ):
            places = np.asarray(starts)
            if (
                places.ndim != 1
                or places.dtype.kind not in "iu"
                or not len(places)
                or places[0] != 0
                or places[-1] >= size
                or (places[1:] <= places[:-1]).any()
            ):
                raise ValueError(
                    f"{name} must ascend from 0 to at most {size - 1}, the first token of each "
                    f"word; got {places.dtype} of shape {places.shape}"
                )

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.base.num_heads

    @property
    def kept_heads(self) -> tuple[int, ...]:
        """Numbers of the heads that were kept."""
        return self.base.kept_heads

    @property
    def num_queries(self) -> int:
        """Number of words that are rows."""
        return len(self.query_starts)

    @property
    def num_keys(self) -> int:
        """Number of words that are columns."""
        return len(self.key_starts)

    @property
    def causal(self) -> bool:
        """Whether no word may look ahead to a later one.

        So it is where no token may, and the words of the queries are the last words of the keys: of
        a later word all tokens come after all of this word's, and have no weight.
        """
        if not self.base.causal or self.num_queries > self.num_keys:
            return False
        vectors = vectors_of_layer(self.base)
        mask = None if vectors is None else vectors.mask
        offset = mask.offset if isinstance(mask, BandMask) else 0
        last = self.key_starts[self.num_keys - self.num_queries :]
        return bool(np.array_equal(last - offset, self.query_starts))

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block.

        Parameters
        ----------
        head : int
            Head.
        rows, columns : slice
            Words, start and stop given.

        Returns
        -------
        ndarray
            float32, (rows, columns).
        """
        merged = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
        if not merged.size:
            return merged.astype(np.float32)
        keys, first_keys = self._tokens(self.key_starts, columns, self.base.num_keys)
        queries, first_queries = self._tokens(self.query_starts, rows, self.base.num_queries)
        for tile in tiles(queries, keys.stop - keys.start):
            block = self.base.weights(head, tile, keys)
            summed = np.add.reduceat(block, first_keys, axis=1, dtype=np.float64)
            words, starts = _words_of(tile, queries, first_queries)
            merged[words] += np.add.reduceat(summed, starts, axis=0)
        lengths = np.diff([*first_queries, queries.stop - queries.start])
        return (merged / lengths[:, None]).astype(np.float32)

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether any token of a word may attend to any token of another.

        Parameters
        ----------
        head : int
            Head.
        rows, columns : slice
            Words, start and stop given.

        Returns
        -------
        ndarray
            bool, (rows, columns).
        """
        merged = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.bool_)
        if not merged.size:
            return merged
        keys, first_keys = self._tokens(self.key_starts, columns, self.base.num_keys)
        queries, first_queries = self._tokens(self.query_starts, rows, self.base.num_queries)
        for tile in tiles(queries, keys.stop - keys.start):
            flags = np.logical_or.reduceat(self.base.allowed(head, tile, keys), first_keys, axis=1)
            words, starts = _words_of(tile, queries, first_queries)
            merged[words] |= np.logical_or.reduceat(flags, starts, axis=0)
        return merged

    @staticmethod
    def _tokens(
        starts: NDArray[np.int64], words: slice, size: int
    ) -> tuple[slice, NDArray[np.int64]]:
        """All tokens of neighbouring words, and the place of each word's first among them."""
        begin = int(starts[words.start])
        end = int(starts[words.stop]) if words.stop < len(starts) else size
        return slice(begin, end), starts[words] - begin


def _words_of(
    tile: slice, tokens: slice, starts: NDArray[np.int64]
) -> tuple[slice, NDArray[np.int64]]:
    """Words that a tile of tokens touches, and where in it each begins; the first may be cut."""
    begin, end = tile.start - tokens.start, tile.stop - tokens.start
    first = int(np.searchsorted(starts, begin, side="right")) - 1
    last = int(np.searchsorted(starts, end, side="left"))
    return slice(first, last), np.maximum(starts[first:last] - begin, 0)


def merged_layers(
    name: str, layers: Mapping[int, LayerAttention], query_tokens: Tokens, key_tokens: Tokens
) -> tuple[dict[int, LayerAttention], Tokens, Tokens | None] | None:
    """Merge the tokens of a stack into words.

    Parameters
    ----------
    name : str
        The stack's, for errors.
    layers : mapping of int to LayerAttention
        Its layers.
    query_tokens, key_tokens : Tokens
        The rows and the columns, the same object where they are the same tokens.

    Returns
    -------
    (dict, Tokens, Tokens or None), or None
        Layers, queries and keys of the merged stack, keys None where they are the queries; None as
        a whole where every token is a word.

    Raises
    ------
    ValueError
        If nothing tells which tokens are one word.
    """
    one_text = key_tokens is query_tokens
    queries = word_starts(query_tokens, f"query_tokens of stack {name!r}")
    keys = queries if one_text else word_starts(key_tokens, f"key_tokens of stack {name!r}")
    if (len(queries), len(keys)) == (len(query_tokens), len(key_tokens)):
        return None
    # The same arrays for all layers: they are saved once.
    rows = np.array(queries, np.int64)
    columns = rows if one_text else np.array(keys, np.int64)
    return (
        {number: MergedWeights(attention, rows, columns) for number, attention in layers.items()},
        merged_tokens(query_tokens, queries),
        None if one_text else merged_tokens(key_tokens, keys),
    )
