"""Two records on their common units, and numbers for what differs between them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.comparison.aligned import aligned_layers
from attnviz.comparison.alignment import Alignment, align_tokens
from attnviz.comparison.distance import (
    MEASURES,
    Measure,
    head_distance,
    rounding_distance,
    rows_at_once,
)
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sampled_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import spans, whole_number
from attnviz.utils.progress import Progress, Steps, finished

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare_records"]

Distances = NDArray[np.float64]


@dataclass(frozen=True)
class _Alignments:
    """How queries and keys of a stack belong together; one object where they are one text."""

    queries: Alignment
    keys: Alignment


class Comparison:
    """Two records on the units that they have in common.

    `attnviz.compare` makes one.

    Attributes
    ----------
    a, b : AttentionRecord
        The two records with the same rows and columns, so that every view can show either. Where
        texts differ a token is labelled ``he→she``; ``−very`` is only in a, ``+very`` only in b,
        and has no weight in the other. Where tokenizers differ, tokens are merged to the finest
        units that both have: their keys are summed, their queries averaged.
    names : tuple of str
        What the two are called.
    notes : tuple of str
        What a reader must know: tokens without a counterpart, layers and heads that only one has.

    Examples
    --------
    >>> from attnviz import AttentionRecord, compare
    >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["he", " sat"])
    >>> b = AttentionRecord.from_weights([[[[1.0, 0.0], [0.2, 0.8]]]], ["she", " sat"])
    >>> comparison = compare(a, b)
    >>> comparison.distance()[0].round(2)
    array([0.15])
    >>> comparison.a.tokens.text
    ('he→she', '·sat')
    """

    def __init__(
        self,
        a: AttentionRecord,
        b: AttentionRecord,
        *,
        given: tuple[AttentionRecord, AttentionRecord],
        alignments: Mapping[str, _Alignments],
        names: tuple[str, str],
        notes: Sequence[str],
    ) -> None:
        self.a = a
        self.b = b
        self.names = names
        self.notes = tuple(notes)
        self._given = given
        self._alignments = dict(alignments)

    def alignment(self, stack: str | None = None) -> tuple[Alignment, Alignment]:
        """How tokens belong together.

        Parameters
        ----------
        stack : str, optional
            The first when left out.

        Returns
        -------
        tuple of Alignment
            Of the queries and of the keys.

        Raises
        ------
        KeyError
            If there is no such stack.
        """
        found = self._alignments[self.a.stack(stack).name]
        return found.queries, found.keys

    def distance(
        self,
        stack: str | None = None,
        *,
        measure: Measure = "total variation",
        queries: int | None = None,
    ) -> list[Distances]:
        """How far the attention of every head lies apart.

        Parameters
        ----------
        stack : str, optional
            The first when left out.
        measure : {"total variation", "Jensen-Shannon"}
            Half the sum of the differences over the keys: the share of a query's weight that moved,
            0 to 1. Or the Jensen-Shannon divergence in bits, 0 to 1 (Lin 1991, as in Clark et al.
            2019, arXiv 1906.04341).
        queries : int, optional
            Compare so many queries of each head, from all over the text, instead of all: an
            estimate. Its standard error is at most half of one over the square root of their
            number, 0.063 for 64.

        Returns
        -------
        list of ndarray of float64
            One a layer, in the order of ``comparison.a.stack(stack).layers``, each (heads,): the
            mean over the queries that both have. NaN where nothing can be compared, and for heads
            that were not kept in both. `ModelView` and `HeadView` take it as ``scores=``.

        Raises
        ------
        KeyError, TypeError, ValueError
            If there is no such stack or measure, or `queries` is not a positive number.

        See Also
        --------
        Comparison.rounding : how much of it rounding alone may be.

        Examples
        --------
        >>> from attnviz import AttentionRecord, compare
        >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        >>> compare(a, a).distance()
        [array([0.])]
        """
        if measure not in MEASURES:
            raise ValueError(f"measure={measure!r} must be one of {', '.join(map(repr, MEASURES))}")
        one, two = self.a.stack(stack), self.b.stack(stack)
        rows = self._common_queries(one.name, queries)
        return finished(_distances(one, two, rows, measure), "compare")

    def rounding(self, stack: str | None = None) -> list[Distances]:
        """How far rounding alone may move every head: a smaller distance says nothing.

        Parameters
        ----------
        stack : str, optional
            The first when left out.

        Returns
        -------
        list of ndarray of float64
            As `distance`, in total variation. NaN where queries and keys are not known.

        Notes
        -----
        An estimate: queries and keys get random errors of the size that rounding to the coarser
        dtype of the two models leaves, growing with the square root of the layer. Measured on two
        trained models against their copies in half precision, the distances were 0.2 to 0.9 times
        this (``docs/compare.md``).

        Examples
        --------
        >>> comparison.rounding()                      # doctest: +SKIP
        """
        name = self.a.stack(stack).name
        stacks = [record.stack(name) for record in self._given]
        found = []
        for layer in self.a.stack(name).layers:
            vectors = [each.attention(layer).vectors for each in stacks]
            one, two = vectors
            values = np.full(self.a.stack(name).attention(layer).num_heads, np.nan)
            if one is not None and two is not None:
                dtype = max(
                    (one.queries.dtype, two.queries.dtype), key=lambda each: torch.finfo(each).eps
                )
                attention = stacks[0].attention(layer)
                for head in self._heads(name, layer):
                    values[head] = rounding_distance(one, attention.index(head), layer, dtype)
            found.append(values)
        return found

    def to_pandas(
        self, stack: str | None = None, *, top_k: int = 100, queries: int | None = None
    ) -> pd.DataFrame:
        """The pairs of query and key whose weight changed most.

        Parameters
        ----------
        stack : str, optional
            The first when left out.
        top_k : int, default 100
            How many pairs.
        queries : int, optional
            Look at so many queries, as in `distance`, instead of all.

        Returns
        -------
        pandas.DataFrame
            The largest change first, with the columns ``layer``, ``head``, ``query``,
            ``query_token``, ``key``, ``key_token``, ``a``, ``b`` (the weights) and ``difference``
            (b - a). Only queries that both have; a key that one has not has no weight there.

        Raises
        ------
        ImportError
            If pandas is not installed.
        KeyError, TypeError, ValueError
            If there is no such stack, or a number is not positive.

        Examples
        --------
        >>> from attnviz import AttentionRecord, compare
        >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        >>> b = AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
        >>> compare(a, b).to_pandas(top_k=1)[["query_token", "key_token", "a", "b", "difference"]]
          query_token key_token    a     b  difference
        0           b         a  0.5  0.25       -0.25
        """
        from attnviz.record.table import need_pandas

        need_pandas()
        import pandas as pd

        top_k = whole_number("top_k", top_k, 1, hint="the number of pairs")
        one, two = self.a.stack(stack), self.b.stack(stack)
        rows = self._common_queries(one.name, queries)
        edges = finished(_largest_changes(one, two, rows, top_k), "compare")
        names = ["layer", "head", "query", "key", "a", "b", "difference"]
        table = pd.DataFrame(edges, columns=pd.Index(names))
        for side, tokens in (("query", one.query_tokens), ("key", one.key_tokens)):
            texts = [tokens.text[position] for position in table[side]]
            table.insert(list(table.columns).index(side) + 1, f"{side}_token", texts)
        return table

    def _common_queries(self, stack: str, queries: int | None) -> NDArray[np.int64]:
        alignment = self._alignments[stack].queries
        common = np.flatnonzero(~(alignment.only_a | alignment.only_b))
        return common if queries is None else common[sampled_queries(len(common), queries)]

    def _heads(self, stack: str, layer: int) -> list[int]:
        return _common_heads(self.a.stack(stack), self.b.stack(stack), layer)

    def __repr__(self) -> str:
        a, b = self.names
        return f"<Comparison of {a} and {b}: {', '.join(map(repr, self.a.stacks.values()))}>"


def compare_records(
    a: AttentionRecord, b: AttentionRecord, names: tuple[str, str] = ("a", "b")
) -> Comparison:
    """Align two records; see `attnviz.compare`. ValueError where they have nothing in common."""
    common = [name for name in a.stacks if name in b.stacks]
    if not common:
        raise ValueError(
            f"a and b have no stack in common: {names[0]} has {_listed(a.stacks)}, {names[1]} has "
            f"{_listed(b.stacks)}"
        )
    notes: dict[str, None] = {}
    alignments: dict[str, _Alignments] = {}
    sides: tuple[dict[str, AttentionStack], dict[str, AttentionStack]] = ({}, {})
    # Queries and keys that are one text stay one text.
    aligned = cache(align_tokens)
    for name in common:
        stacks = (a.stacks[name], b.stacks[name])
        if stacks[0].normalized != stacks[1].normalized:
            raise ValueError(
                f"stack {name!r}: the rows of one record are shares of one, those of the other are "
                "not; give both with the same normalized="
            )
        layers = [number for number in stacks[0].layers if number in stacks[1].layers]
        if not layers:
            raise ValueError(
                f"stack {name!r}: no layer in common; {names[0]} has {spans(stacks[0].layers)}, "
                f"{names[1]} has {spans(stacks[1].layers)}"
            )
        here = _Alignments(
            aligned(stacks[0].query_tokens, stacks[1].query_tokens),
            aligned(stacks[0].key_tokens, stacks[1].key_tokens),
        )
        alignments[name] = here
        for said in (*_alignment_notes(here, names), *_layer_notes(*stacks, layers, names)):
            notes[said if len(common) == 1 else f"Stack {name!r}: {said}"] = None
        tokens = [_common_tokens(each) for each in (here.queries, here.keys)]
        lengths = (
            (here.queries.a_lengths, here.keys.a_lengths),
            (here.queries.b_lengths, here.keys.b_lengths),
        )
        for units, stack, made in zip(lengths, stacks, sides, strict=True):
            made[name] = AttentionStack(
                name,
                aligned_layers(stack.only(layers), *units),
                tokens[0],
                None if here.keys is here.queries else tokens[1],
                normalized=stack.normalized,
            )
    for one, other, its, others in ((a, b, *names), (b, a, *names[::-1])):
        lacking = [name for name in one.stacks if name not in other.stacks]
        if lacking:
            notes[f"{its} has {_listed(lacking)} too, which {others} has not."] = None
    records = [
        AttentionRecord(
            stacks,
            model=f"{record.model} ({name})" if record.model else name,
            notes=[*record.notes, *notes],
            images=record.images,
        )
        for record, stacks, name in zip((a, b), sides, names, strict=True)
    ]
    return Comparison(*records, given=(a, b), alignments=alignments, names=names, notes=list(notes))


def _common_tokens(alignment: Alignment) -> Tokens:
    """The units as tokens; those of a where the other's are the same."""
    if alignment.identical:
        return replace(alignment.a, predictions=())
    starts = np.array(
        [alignment.a_ends - alignment.a_lengths, alignment.b_ends - alignment.b_lengths]
    )
    special, sequence = [], []
    for a_start, b_start, missing in zip(*starts.tolist(), alignment.only_b, strict=True):
        tokens, start = (alignment.b, b_start) if missing else (alignment.a, a_start)
        special.append(tokens.special[start])
        sequence.append(tokens.sequence[start])
    return Tokens(text=alignment.text, special=tuple(special), sequence=tuple(sequence))


def _alignment_notes(alignments: _Alignments, names: tuple[str, str]) -> list[str]:
    said = [alignments.queries.describe(names)]
    if alignments.keys is not alignments.queries:
        said = [
            f"{side}: {text}" if text else ""
            for side, text in zip(
                ("Queries", "Keys"), (*said, alignments.keys.describe(names)), strict=True
            )
        ]
    return [text for text in said if text]


def _layer_notes(
    a: AttentionStack, b: AttentionStack, layers: Sequence[int], names: tuple[str, str]
) -> list[str]:
    notes = []
    for one, name in ((a, names[0]), (b, names[1])):
        rest = [number for number in one.layers if number not in layers]
        if rest:
            notes.append(f"Only {name} has layer{'s' if rest[1:] else ''} {spans(rest)}.")
    counts = {
        number: (a.attention(number).num_heads, b.attention(number).num_heads) for number in layers
    }
    for number, (its, others) in counts.items():
        if its != others:
            notes.append(
                f"Layer {number} has {its} heads in {names[0]} and {others} in {names[1]}: heads "
                "are compared by their numbers."
            )
            break
    return notes


def _common_heads(a: AttentionStack, b: AttentionStack, layer: int) -> list[int]:
    there = set(b.kept_heads(layer))
    return [head for head in a.kept_heads(layer) if head in there]


def _distances(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], measure: Measure
) -> Steps[list[Distances]]:
    found = []
    heads = {layer: _common_heads(a, b, layer) for layer in a.layers}
    done, total = 0, sum(map(len, heads.values()))
    for layer in a.layers:
        values = np.full(a.attention(layer).num_heads, np.nan)
        for head in heads[layer]:
            values[head] = head_distance(
                a.attention(layer), b.attention(layer), (head, head), rows, measure
            )
            done += 1
            yield Progress("heads", done, total, "head")
        found.append(values)
    return found


_Edge = tuple[int, int, int, int, float, float, float]


def _largest_changes(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], top_k: int
) -> Steps[list[_Edge]]:
    """The largest differences of all heads, largest first; of equal ones the first."""
    # By size, then from the first: the smallest of the heap goes first.
    best: list[tuple[float, tuple[int, ...], _Edge]] = []
    heads = {layer: _common_heads(a, b, layer) for layer in a.layers}
    done, total = 0, sum(map(len, heads.values()))
    for layer in a.layers:
        for head in heads[layer]:
            for some in rows_at_once(rows, len(a.key_tokens)):
                one = a.attention(layer).weights_of_rows(head, some)[0]
                two = b.attention(layer).weights_of_rows(head, some)[0]
                change = two.astype(np.float64) - one
                for row, key in _largest(np.abs(change), top_k):
                    where = (layer, head, int(some[row]), key)
                    entry = (
                        abs(change[row, key]),
                        tuple(-each for each in where),
                        (*where, float(one[row, key]), float(two[row, key]), change[row, key]),
                    )
                    if len(best) < top_k:
                        heapq.heappush(best, entry)
                    else:
                        heapq.heappushpop(best, entry)
            done += 1
            yield Progress("heads", done, total, "head")
    return [edge for _, _, edge in sorted(best, reverse=True)]


def _largest(change: Distances, count: int) -> Iterator[tuple[int, int]]:
    """Where the largest values above 0 are; all of those that are as large as the last."""
    flat = change.ravel()
    least = 0.0 if flat.size <= count else float(np.partition(flat, -count)[-count])
    for place in np.flatnonzero(flat >= max(least, np.finfo(np.float64).tiny)):
        yield divmod(int(place), change.shape[1])


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))
