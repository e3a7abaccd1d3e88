"""Points: a sample of the queries and keys of the tokens in a corpus, for a plot.

A stack is the attention of one kind, such as "self" or "cross", in all layers. Each stack has its
own points, which are the same for all of its heads.

Either all tokens of a text are in the sample, or none of them. The only exception is a sample of
some tokens of a single text that is too long (`sampled_points`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import whole_number

# `ChosenTexts.enough` is True after this number of successive texts that did not fit, because
# further texts will probably not fit either.
_MAX_MISFITS = 3
#: Smallest allowed value of `max_points`: one query and one key.
MIN_POINTS = 2

Positions = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Points:
    """Queries and keys of the tokens in a sample, which a plot shows as points.

    Points are numbered: first all queries (``0`` to ``num_queries - 1``), then all keys. Queries
    are sorted by text and position, and so are keys. In self-attention, the queries and keys belong
    to the same tokens. Therefore point ``i`` is the query of a token and point ``i + num_queries``
    is the key of the same token.

    Attributes
    ----------
    query_text, query_position : ndarray of int32, (num_queries,)
        Index of the text of each query, and its position in the text.
    key_text, key_position : ndarray of int32, (num_keys,)
        Index of the text of each key, and its position in the text.
    total_points : int
        Number of queries and keys of all texts, including queries and keys that are not points.
    whole : bool
        Whether every text with points has all of its queries and keys as points. False only if the
        points are a sample of the tokens of one text.

    Examples
    --------
    >>> points = sampled_points([3, 2], [3, 2], max_points=100)
    >>> len(points), points.num_queries, points.query_text.tolist()
    (10, 5, [0, 0, 0, 1, 1])
    >>> points.key_position.tolist(), points.texts
    ([0, 1, 2, 0, 1], (0, 1))
    """

    query_text: Positions
    query_position: Positions
    key_text: Positions
    key_position: Positions
    total_points: int
    whole: bool = True

    @property
    def num_queries(self) -> int:
        return len(self.query_text)

    @property
    def num_keys(self) -> int:
        return len(self.key_text)

    def __len__(self) -> int:
        return self.num_queries + self.num_keys

    @cached_property
    def texts(self) -> tuple[int, ...]:
        """Indices of the texts that have points, in ascending order."""
        return tuple(np.union1d(self.query_text, self.key_text).tolist())

    def queries_of(self, text: int) -> slice:
        """Return the slice of the queries that belong to the text with the index `text`.

        The slice can be applied to `query_text` and `query_position`. It can be empty.
        """
        return _slice_of(self.query_text, text)

    def keys_of(self, text: int) -> slice:
        """Return the slice of the keys that belong to the text with the index `text`.

        The slice can be applied to `key_text` and `key_position`. It can be empty.
        """
        return _slice_of(self.key_text, text)

    def location(self, point: int) -> tuple[int, int]:
        """Return the index of the text of a point, and the position of the point in this text."""
        key = point - self.num_queries
        if key < 0:
            return int(self.query_text[point]), int(self.query_position[point])
        return int(self.key_text[key]), int(self.key_position[key])


@dataclass
class ChosenTexts:
    """Choice of texts with at most `max_points` points in total. Texts are added one by one.

    The points of a text are its queries and keys. A text fits if it and the texts that are already
    chosen have at most `max_points` points together. The first text is always chosen, even if it
    alone has more points.

    Attributes
    ----------
    num_points : int
        Number of points of the chosen texts.
    smallest : int
        Number of points of the smallest text that was added, whether it was chosen or not.
    misfits : int
        Number of texts that were added since the last text was chosen. None of them fitted.

    Examples
    --------
    >>> chosen = ChosenTexts(max_points=10)
    >>> chosen.add(6), chosen.add(8), chosen.add(4), chosen.num_points
    (True, False, True, 10)
    """

    max_points: int
    num_points: int = 0
    smallest: int = 0
    misfits: int = 0

    def add(self, num_points: int) -> bool:
        """Choose a text with `num_points` points if it fits, or if no text was chosen before.

        Return whether the text was chosen.
        """
        self.smallest = min(self.smallest or num_points, num_points)
        fits = not self.num_points or self.num_points + num_points <= self.max_points
        if fits:
            self.num_points += num_points
        self.misfits = 0 if fits else self.misfits + 1
        return fits

    @property
    def enough(self) -> bool:
        """Whether a further text would probably not fit.

        True if a text as small as the smallest so far would not fit, or if the last `_MAX_MISFITS`
        texts did not fit.
        """
        return self.num_points + self.smallest > self.max_points or self.misfits >= _MAX_MISFITS


def sampled_points(
    query_counts: Sequence[int],
    key_counts: Sequence[int],
    *,
    max_points: int,
    seed: int = 0,
    same_tokens: bool = True,
) -> Points:
    """Choose at most `max_points` queries and keys of a corpus as points.

    `query_counts` and `key_counts` have the number of queries and of keys of each text. Texts are
    visited in random order. All queries and keys of a text are chosen if the total number of chosen
    points is then at most `max_points`. Otherwise the text is skipped. Whole texts are chosen
    because a plot of queries should also show the keys to which they attend. If the first text in
    the random order alone has more than `max_points` queries and keys, a random sample of its
    tokens is chosen, and all other texts are ignored.

    `same_tokens` says whether the queries and keys of a text are the same tokens. Raise ValueError
    if no text has tokens.
    """
    sizes = np.add(query_counts, key_counts)
    with_tokens = np.flatnonzero(sizes)
    if not len(with_tokens):
        raise ValueError("the texts have no tokens. Pass texts that contain words.")
    random = np.random.default_rng(seed)
    order = random.permutation(with_tokens)
    total_points = int(sizes.sum())
    if sizes[order[0]] > max_points:
        text = int(order[0])
        chosen = _sample_tokens(
            query_counts[text], key_counts[text], max_points, random, same_tokens=same_tokens
        )
        queries, keys = (np.full(len(positions), text, np.int32) for positions in chosen)
        return Points(queries, chosen[0], keys, chosen[1], total_points, whole=False)
    chosen_texts = ChosenTexts(max_points)
    texts = sorted(text for text in order.tolist() if chosen_texts.add(int(sizes[text])))
    return Points(
        *_tokens_of_texts(texts, query_counts),
        *_tokens_of_texts(texts, key_counts),
        total_points=total_points,
    )


def checked_points(max_points: Any) -> int:
    """Return `max_points`, the maximum number of points.

    Raise TypeError or ValueError unless it is a whole number of at least `MIN_POINTS`.
    """
    hint = "the maximum number of queries and keys, such as 10_000"
    return whole_number("max_points", max_points, MIN_POINTS, hint=hint)


def _tokens_of_texts(texts: Sequence[int], counts: Sequence[int]) -> tuple[Positions, Positions]:
    """Return the text index and the position of each token of some texts, as two arrays.

    `texts` has the indices of these texts. `counts` has the number of tokens of each text of the
    corpus.
    """
    lengths = [counts[text] for text in texts]
    return (
        np.repeat(np.array(texts, np.int32), lengths),
        np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
    )


def _sample_tokens(
    num_queries: int, num_keys: int, points: int, random: np.random.Generator, *, same_tokens: bool
) -> tuple[Positions, Positions]:
    """Return sorted random positions of queries and of keys of one text, at most `points` in total.

    `num_queries` and `num_keys` are the numbers of queries and keys of the text. If `same_tokens`,
    the chosen queries and keys have the same positions. Otherwise the numbers of chosen queries and
    keys are about proportional to `num_queries` and `num_keys`.
    """
    if same_tokens:
        positions = _sample_positions(num_queries, points // 2, random)
        return positions, positions
    queries = round(points * num_queries / (num_queries + num_keys))
    queries = min(max(queries, 1), points - 1)
    return _sample_positions(num_queries, queries, random), _sample_positions(
        num_keys, points - queries, random
    )


def _sample_positions(count: int, size: int, random: np.random.Generator) -> Positions:
    chosen = random.choice(count, size=min(count, size), replace=False)
    return np.sort(chosen).astype(np.int32)


def _slice_of(texts: Positions, text: int) -> slice:
    return slice(*np.searchsorted(texts, [text, text + 1]).tolist())
