"""Words: the tokens of each word, their display text, and attention between words.

The tokenizer assigns tokens to words (`Tokens.words`). If the assignment is unknown, words are
determined from the display texts: most vocabularies mark the space before a word, and WordPiece
marks tokens inside of words with ``##``.

With the tokens i of a word I as queries and the tokens j of a word J as keys,

    merged[I, J] = mean over i in I of (sum over j in J of weights[i, j])

(Clark et al. 2019, arXiv 1906.04341, section 4.1): attention to a word is the sum over its tokens,
and attention from a word is the mean over its tokens. If rows sum to 1 before, they also do
afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import DerivedAttention, LayerAttention
from attnviz.record.masks import Rows
from attnviz.record.pooling import pool
from attnviz.record.softmax import row_groups, tile_rows
from attnviz.record.tokens import Tokens, number_words

MERGED_NOTE = "Subword tokens merged into words: keys summed, queries averaged."

_INSIDE = "##"
# All parts of a character that is split over several tokens, such as ``é 1/2 é 2/2`` (see
# `display_texts`). In the text of a word, they are replaced by the character.
_DIVIDED = re.compile(
    "|".join(
        rf"(?P<g{number}>‹[^›]*›|\S) 1/{number}"
        + "".join(rf" ?(?P=g{number}) {part}/{number}" for part in range(2, number + 1))
        + " ?"
        for number in (2, 3, 4)
    )
)


def find_words(
    text: Sequence[str],
    special: Sequence[bool],
    sequence: Sequence[int | None],
    *,
    space: str = "·",
    breaks: str = "⏎⇥",
) -> tuple[int | None, ...] | None:
    """Return the word number of each token, determined from spaces or from WordPiece's ``##``.

    `text` are display texts or vocabulary entries. `special` and `sequence` are as in `Tokens`, and
    the result is as in `Tokens.words`. The result is None if it is unknown whether adjacent tokens
    belong to the same word: no token begins or ends with `space` or one of `breaks` (line breaks,
    tabs), and none begins with ``##``.

    A special token belongs to no word and ends the previous word. No word contains tokens of both
    texts of a pair. If a token begins or ends with `space` or a break, a word begins with each
    token that begins with `space` or a break. A word also begins after each token that ends with a
    break, or that ends with `space` and has other characters. If no token begins or ends with
    `space` or a break, a word begins with each token that does not begin with ``##``.

    A middle dot in the text looks like a space in a display text. ``l·l`` therefore becomes two
    words if a token begins with its dot.

    >>> find_words(["un", "do", "·it"], [False] * 3, [0] * 3)
    (0, 0, 1)
    >>> find_words(["token", "##ization", "."], [False] * 3, [0] * 3)
    (0, 0, 1)
    >>> find_words(["un", "do", "it"], [False] * 3, [0] * 3) is None
    True
    """
    regular = [token for token, flag in zip(text, special, strict=True) if not flag]
    marks = space + breaks
    has_spaces = any(token[:1] in marks or token[-1:] in marks for token in regular if token)
    has_pieces = _has_pieces(regular, spaced=has_spaces)
    words: list[int] = []
    has_neighbours = False
    for index, token in enumerate(text):
        previous = text[index - 1] if index else ""
        starts_segment = not index or (special[index - 1] or sequence[index] != sequence[index - 1])
        has_neighbours |= not starts_segment and not special[index]
        if has_pieces:
            begins = not _continues(token)
        else:
            begins = token[:1] != "" and token[:1] in marks
            begins |= previous[-1:] != "" and previous[-1:] in breaks
            begins |= previous[-1:] == space and previous.strip(space) != ""
        words.append(len(words) if starts_segment or begins else words[-1])
    if has_neighbours and not has_spaces and not has_pieces:
        return None
    return number_words(words, special, sequence)


def find_word_starts(tokens: Tokens, name: str = "tokens") -> tuple[int, ...]:
    """Return the position of the first token of each word, ascending from 0.

    A token in no word, such as a special token, counts as a word. Raise ValueError if words are
    unknown: `Tokens.words` is None, and the texts do not mark words. `name` is the name of the
    tokens in the message.

    >>> find_word_starts(Tokens.of(["un", "do", " it"]))
    (0, 2)
    """
    words = tokens.words
    if words is None:
        words = find_words(tokens.text, tokens.special, tokens.sequence)
    if words is None:
        raise ValueError(
            f"{name}: the words are unknown, because no token begins with a space or {_INSIDE}. "
            "Pass them, for example as Tokens.of(text, words=[0, 0, 1]) or with the word_ids() of "
            "a fast tokenizer."
        )
    starts = []
    previous: tuple[int, int | None] | None = None
    for position, word in enumerate(words):
        special = tokens.special[position]
        current = None if word is None or special else (word, tokens.sequence[position])
        if current is None or current != previous:
            starts.append(position)
        previous = current
    return tuple(starts)


def merge_tokens(tokens: Tokens, starts: Sequence[int]) -> Tokens:
    """Return tokens that are the words of `tokens`, or `tokens` itself if each word has one token.

    `starts` is the result of `find_word_starts`. The result has no ids and no predictions, because
    these belong to single tokens.

    >>> merge_tokens(Tokens.of(["un", "do", " it"]), [0, 2]).text
    ('undo', '·it')
    """
    if len(starts) == len(tokens):
        return tokens
    regular = [token for token, flag in zip(tokens.text, tokens.special, strict=True) if not flag]
    has_spaces = any(token.startswith("·") or token.endswith("·") for token in regular)
    has_pieces = _has_pieces(regular, spaced=has_spaces)
    stops = [*starts[1:], len(tokens)]
    special = tuple(tokens.special[start] for start in starts)
    sequence = tuple(tokens.sequence[start] for start in starts)
    numbers = {start: number for number, start in enumerate(starts)}
    return Tokens(
        text=tuple(
            _joined(tokens.text[start:stop], pieces=has_pieces)
            for start, stop in zip(starts, stops, strict=True)
        ),
        special=special,
        sequence=sequence,
        words=number_words(range(len(starts)), special, sequence),
        # Patches are not merged. Therefore, only the position of the first patch changes.
        grids=tuple(replace(grid, start=numbers[grid.start]) for grid in tokens.grids),
    )


def _has_pieces(texts: Sequence[str], *, spaced: bool) -> bool:
    """Whether ``##`` marks tokens inside of words.

    If tokens contain spaces (`spaced`), a ``##`` at the beginning of a token is part of its text.
    """
    return not spaced and any(_continues(token) for token in texts)


def _continues(token: str) -> bool:
    return token.startswith(_INSIDE) and len(token) > len(_INSIDE)


def _joined(parts: Sequence[str], *, pieces: bool) -> str:
    if len(parts) == 1:
        return parts[0]
    continuations = [
        part[len(_INSIDE) :] if pieces and _continues(part) else part for part in parts[1:]
    ]
    text = "".join([parts[0], *continuations])
    return _DIVIDED.sub(lambda match: next(filter(None, match.groups())), text).strip(" ")


@dataclass(frozen=True)
class MergedWeights(DerivedAttention):
    """Attention of a layer between words, computed on demand.

    `base` is the attention between tokens. `query_starts` and `key_starts` are int64, (words,): the
    position of the first token of each word, ascending from 0.

    >>> from attnviz.record.attention import StoredWeights
    >>> base = StoredWeights(torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.5, 0.25]]]))
    >>> merged = MergedWeights(base, np.array([0, 2]), np.array([0, 2]))
    >>> merged.block([0], slice(1, 2))
    tensor([[[0.7500, 0.2500]]])
    """

    query_starts: NDArray[np.int64]
    key_starts: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Raise TypeError if `base` is merged, or ValueError if the starts do not fit `base`."""
        if self.base.merged:
            raise TypeError("base is already merged into words. Pass the attention between tokens.")
        for name, starts, size in (
            ("query_starts", self.query_starts, self.base.num_queries),
            ("key_starts", self.key_starts, self.base.num_keys),
        ):
            array = np.asarray(starts)
            if (
                array.ndim != 1
                or array.dtype.kind not in "iu"
                or not len(array)
                or array[0] != 0
                or array[-1] >= size
                or (array[1:] <= array[:-1]).any()
            ):
                raise ValueError(
                    f"{name} must ascend from 0 to at most {size - 1}, the first token of each "
                    f"word; got {array.dtype} of shape {array.shape}"
                )

    @property
    def merged(self) -> bool:
        return True

    @property
    def num_queries(self) -> int:
        return len(self.query_starts)

    @property
    def num_keys(self) -> int:
        return len(self.key_starts)

    @property
    def causal(self) -> bool:
        """Whether the mask is known to forbid attention to all later words.

        This is known if no token may attend to a later token, and the words of the queries are the
        last words of the keys. All tokens of a later word then follow all tokens of the query.
        """
        if not self.base.causal or self.num_queries > self.num_keys:
            return False
        offset = 0 if self.base.vectors is None else self.base.vectors.offset
        last = self.key_starts[self.num_keys - self.num_queries :]
        return bool(np.array_equal(last - offset, self.query_starts))

    def block(
        self,
        heads: Sequence[int],
        rows: Rows,
        columns: slice | None = None,
        normalizers: torch.Tensor | None = None,
    ) -> torch.Tensor:
        del normalizers
        sums = self._pool(self.base.block, np.add, heads, rows, columns)
        _, lengths = _tokens_of(rows, self.query_starts, self.base.num_queries)
        return torch.from_numpy(sums / lengths[:, None]).float()

    def allowed(
        self, heads: Sequence[int], rows: Rows, columns: slice | None = None
    ) -> torch.Tensor:
        """Return whether each word may attend to each word.

        Word I may attend to word J if any token of I may attend to any token of J.
        """
        flags = self._pool(self.base.allowed, np.logical_or, heads, rows, columns)
        return torch.from_numpy(flags)

    def _pool(
        self,
        block_of: Callable[[Sequence[int], Rows, slice], torch.Tensor],
        how: np.ufunc,
        heads: Sequence[int],
        rows: Rows,
        columns: slice | None,
    ) -> NDArray[Any]:
        """Pool the weights or flags of tokens, (heads, words of queries, words of keys).

        `block_of` returns a block of `base` from the heads, rows and columns.
        """
        words = columns or slice(0, self.num_keys)
        keys, key_lengths = _tokens_of(words, self.key_starts, self.base.num_keys)
        queries, lengths = _tokens_of(rows, self.query_starts, self.base.num_queries)
        dtype = np.float64 if how is np.add else np.bool_
        pooled: NDArray[Any] = np.zeros((len(heads), len(lengths), len(key_lengths)), dtype)
        if not pooled.size:
            return pooled
        starts = np.cumsum(lengths) - lengths, np.cumsum(key_lengths) - key_lengths
        all_keys = slice(0, int(key_lengths.sum()))
        for part, group in row_groups(queries, tile_rows(len(heads) * all_keys.stop)):
            block = block_of(heads, group, keys).cpu().numpy()
            pool(pooled, block, (np.arange(part.start, part.stop), all_keys), starts, how)
        return pooled


def _tokens_of(
    words: Rows, starts: NDArray[np.int64], num_tokens: int
) -> tuple[Any, NDArray[np.int64]]:
    """Return the positions of the tokens of some words, and the number of tokens of each word.

    `starts` are the positions of the first tokens of all words. The tokens of a slice of words are
    a slice.
    """
    edges = np.append(starts, num_tokens)
    lengths = np.diff(edges)
    if isinstance(words, slice):
        return slice(int(edges[words.start]), int(edges[words.stop])), lengths[words]
    numbers = words.numpy()
    tokens = [np.arange(edges[word], edges[word + 1]) for word in numbers]
    return torch.from_numpy(np.concatenate([numbers[:0], *tokens])), lengths[numbers]


def merge_layers(
    name: str, layers: Mapping[int, LayerAttention], query_tokens: Tokens, key_tokens: Tokens
) -> tuple[dict[int, LayerAttention], Tokens, Tokens | None] | None:
    """Merge the tokens of a stack's layers into words. Return None if each token is a word.

    The result contains the layers, the words of the queries, and the words of the keys. The latter
    are None if queries and keys are the same tokens. `name` is the name of the stack in messages.
    Raise ValueError if the words are unknown, or a layer already has words.
    """
    one_text = key_tokens is query_tokens
    queries = find_word_starts(query_tokens, f"query_tokens of stack {name!r}")
    keys = queries if one_text else find_word_starts(key_tokens, f"key_tokens of stack {name!r}")
    if (len(queries), len(keys)) == (len(query_tokens), len(key_tokens)):
        return None
    if any(attention.merged for attention in layers.values()):
        raise ValueError(
            f"stack {name!r}: its rows and columns already combine several tokens. Merge the words "
            "of the original records before you compare them."
        )
    # All layers share these arrays. A file then contains them once.
    rows = np.array(queries, np.int64)
    columns = rows if one_text else np.array(keys, np.int64)
    return (
        {number: MergedWeights(attention, rows, columns) for number, attention in layers.items()},
        merge_tokens(query_tokens, queries),
        None if one_text else merge_tokens(key_tokens, keys),
    )
