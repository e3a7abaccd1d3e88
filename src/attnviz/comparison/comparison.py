"""The class `Comparison`: records on their common units, and their differences in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.comparison.alignment import Alignment
from attnviz.comparison.changes import largest_changes
from attnviz.comparison.common import Common, Sides, common_heads
from attnviz.comparison.distance import MEASURES, Measure, head_distance, rounding_distance
from attnviz.record.difference import DifferenceAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import SAMPLED_QUERIES, can_compute_maps, sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import resolve_negative, whole_number
from attnviz.utils.progress import Progress, Steps, run_with_bar

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison"]

Distances = NDArray[np.float64]

# Views compute exact distances for at most this number of heads of 4,096 tokens (more heads of
# shorter texts), which takes a few seconds. Beyond that they sample queries.
_MAX_HEADS = 16


class Comparison:
    """Records on the units that they have in common.

    `attnviz.compare` returns it. The two members are `a` and `b`. If there are more, such as
    checkpoints of a model, the others are compared with the first one: `distance`, `to_pandas` and
    `difference` compare the last member with the first, and `pair` selects another member.

    Attributes
    ----------
    members : tuple of AttentionRecord
        The records on common units: all have the same rows and columns, and every view can show
        them. A replaced token is labelled ``he→she``. ``−very`` is only in the first text and
        ``+very`` only in another. A record has no weight on tokens that it lacks. If the tokenizers
        differ, tokens are merged into the smallest common units. Their keys are summed and their
        queries averaged.
    a, b : AttentionRecord
        The first and the last of `members`.
    names : tuple of str
        Names of the members.
    notes : tuple of str
        Sentences on tokens without a counterpart, and on layers and heads that only one member has.

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
        common: Common,
        *,
        given: Sequence[AttentionRecord],
        names: Sequence[str],
    ) -> None:
        self.members = common.records
        self.names = tuple(names)
        self.notes = common.notes
        self._common = common
        self._given = tuple(given)
        self._computed: dict[tuple[Any, ...], list[Distances]] = {}

    @property
    def a(self) -> AttentionRecord:
        """First member, the reference of all comparisons."""
        return self.members[0]

    @property
    def b(self) -> AttentionRecord:
        """Last member."""
        return self.members[-1]

    def pair(self, member: int | str) -> Comparison:
        """Return the comparison of the first member with another one, on the same units.

        Parameters
        ----------
        member : int or str
            Index into `members`, negative from the end, or name of the member.

        Returns
        -------
        Comparison
            Comparison with two members.

        Raises
        ------
        IndexError, KeyError
            If the member does not exist, or if it is the first one.

        Examples
        --------
        >>> comparison.pair("step 300").distance()     # doctest: +SKIP
        """
        if isinstance(member, str):
            if member not in self.names:
                raise KeyError(
                    f"member={member!r} does not exist. Pass one of "
                    f"{', '.join(map(repr, self.names))}."
                )
            index = self.names.index(member)
        else:
            index = resolve_negative(whole_number("member", member, None), range(len(self.members)))
        if index not in range(1, len(self.members)):
            raise IndexError(
                f"member={member!r} must be one of 1 to {len(self.members) - 1} "
                f"({', '.join(map(repr, self.names[1:]))}). The first member is the reference."
            )
        common = self._common
        return Comparison(
            replace(
                common,
                records=(common.records[0], common.records[index]),
                sides={name: (sides[index - 1],) for name, sides in common.sides.items()},
            ),
            given=(self._given[0], self._given[index]),
            names=(self.names[0], self.names[index]),
        )

    def alignment(self, stack: str | None = None) -> tuple[Alignment, Alignment]:
        """Return the alignment of the last member's tokens with those of the first.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.

        Returns
        -------
        tuple of Alignment
            Alignments of the queries and of the keys.

        Raises
        ------
        KeyError
            If there is no such stack.
        """
        sides = self._sides(self.a.stack(stack).name)
        return sides.queries, sides.keys

    def _sides(self, stack: str) -> Sides:
        return self._common.sides[stack][-1]

    def distance(
        self,
        stack: str | None = None,
        *,
        measure: Measure = "total variation",
        max_queries: int | None = None,
    ) -> list[Distances]:
        """Return the distance between the first and the last member for every head.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.
        measure : {"total variation", "Jensen-Shannon"}
            Half the sum of the absolute differences over the keys, which is the share of a query's
            weight that moved, from 0 to 1. Or the Jensen-Shannon divergence in bits, from 0 to 1
            (Lin 1991, as in Clark et al. 2019, arXiv 1906.04341).
        max_queries : int, optional
            Largest number of queries to compare per head, spread over the text. The result is then
            an estimate with a standard error of at most ``0.5 / sqrt(max_queries)``, 0.063 for 64
            queries. All queries are compared by default.

        Returns
        -------
        list of ndarray of float64
            One array per layer, in the order of ``comparison.a.stack(stack).layers``, each
            (heads,): the mean over the common queries. NaN if no query can be compared, and for
            heads that only `a` has. `ModelView` and `HeadView` accept it as ``scores=``.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the stack or measure does not exist, or `max_queries` is not a positive number.

        See Also
        --------
        Comparison.rounding : the distance that rounding alone can cause.

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
        key = ("distance", one.name, measure, max_queries)
        if key not in self._computed:
            rows = self._common_queries(one.name, max_queries)
            self._computed[key] = run_with_bar(_distances(one, two, rows, measure), "compare")
        return [values.copy() for values in self._computed[key]]

    def rounding(self, stack: str | None = None) -> list[Distances]:
        """Estimate the distance that rounding alone can cause. Smaller distances mean nothing.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.

        Returns
        -------
        list of ndarray of float64
            Total variation, with the shape of `distance`. NaN if queries and keys are unknown.

        Notes
        -----
        Queries and keys get random errors with the size of rounding errors of the less precise
        dtype of the two models. The errors grow with the square root of the layer. The distances of
        two trained models from their copies in half precision were 0.05 to 0.9 times the estimate
        (``docs/compare.md``).

        Examples
        --------
        >>> comparison.rounding()                      # doctest: +SKIP
        """
        name = self.a.stack(stack).name
        key = ("rounding", name)
        if key not in self._computed:
            self._computed[key] = run_with_bar(self._roundings(name), "compare")
        return [values.copy() for values in self._computed[key]]

    def _roundings(self, name: str) -> Steps[list[Distances]]:
        one, two = (record.stack(name) for record in (self._given[0], self._given[-1]))
        stack = self.a.stack(name)
        distances = []
        for number, layer in enumerate(stack.layers):
            attention_a, attention_b = one.attention(layer), two.attention(layer)
            values = np.full(stack.attention(layer).num_heads, np.nan)
            if attention_a.vectors is not None and attention_b.vectors is not None:
                dtype = max(
                    (attention_a.vectors.queries.dtype, attention_b.vectors.queries.dtype),
                    key=lambda candidate: torch.finfo(candidate).eps,
                )
                for head in common_heads(stack, self.b.stack(name), layer):
                    values[head] = rounding_distance(attention_a.vectors, head, layer, dtype)
            distances.append(values)
            yield Progress("rounding errors", number + 1, len(stack.layers), "layer")
        return distances

    def to_pandas(
        self, stack: str | None = None, *, top_k: int = 100, max_queries: int | None = None
    ) -> pd.DataFrame:
        """Return the query-key pairs with the largest changes of their weights.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.
        top_k : int, default 100
            Number of pairs.
        max_queries : int, optional
            Largest number of queries to compare, as in `distance`.

        Returns
        -------
        pandas.DataFrame
            Pairs in descending order of their change, with the columns ``layer``, ``head``,
            ``query``, ``query_token``, ``key``, ``key_token``, ``a``, ``b`` (the weights) and
            ``difference`` (b - a). Only common queries are compared. A record has no weight on keys
            that it lacks.

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
        from attnviz.record.table import require_pandas

        require_pandas()
        import pandas as pd

        top_k = whole_number("top_k", top_k, 1, hint="the number of pairs")
        one, two = self.a.stack(stack), self.b.stack(stack)
        rows = self._common_queries(one.name, max_queries)
        edges = run_with_bar(largest_changes(one, two, rows, top_k), "compare")
        names = ["layer", "head", "query", "key", "a", "b", "difference"]
        table = pd.DataFrame(edges, columns=pd.Index(names))
        for side, tokens in (("query", one.query_tokens), ("key", one.key_tokens)):
            texts = [tokens.text[position] for position in table[side]]
            table.insert(list(table.columns).index(side) + 1, f"{side}_token", texts)
        return table

    @property
    def difference(self) -> AttentionRecord:
        """Record of the signed differences b - a of the last member and the first.

        Every view can show it. Blocks are computed on request. The row of a query that only one of
        the two has is masked and zero. A record has no weight on keys that it lacks.

        Examples
        --------
        >>> from attnviz import AttentionRecord, compare
        >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        >>> b = AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
        >>> compare(a, b).difference.stack().weights(layer=0, head=0)
        array([[ 0.  ,  0.  ],
               [-0.25,  0.25]], dtype=float32)
        """
        stacks = {name: self._difference(name, name, -1) for name in self.a.stacks}
        return self._record(stacks, self._title(-1), self.a.images)

    def record(self) -> AttentionRecord:
        """Return a record whose stacks are all members and their differences.

        Returns
        -------
        AttentionRecord
            For each stack, such as ``"self"``, of the members: ``"self: a"`` and ``"self: b"``,
            with their `names` and their own tokens, and ``"self: b − a"`` with the signed
            differences. Nothing is copied.

        Examples
        --------
        >>> from attnviz import AttentionRecord, compare
        >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        >>> list(compare(a, a, names=("before", "after")).record().stacks)
        ['self: before', 'self: after', 'self: after − before']
        """
        images: list[NDArray[np.uint8]] = list(self.a.images)
        tokens: list[Callable[[Tokens], Tokens]] = [lambda value: value]
        for member in self.members[1:]:
            first = 0
            same = len(member.images) == len(self.a.images) and all(
                map(np.array_equal, member.images, self.a.images)
            )
            if not same:
                first = len(images)
                images += member.images
            tokens.append(_of_later_images(first))
        stacks: dict[str, AttentionStack] = {}
        for name in self.a.stacks:
            for number, member in enumerate(self.members):
                stack = member.stack(name)
                sides = self._common.sides[name][max(0, number - 1)]
                own = int(number > 0)
                queries = _own_tokens(tokens[number](stack.query_tokens), sides.queries, own)
                keys = _own_tokens(tokens[number](stack.key_tokens), sides.keys, own)
                one_text = stack.key_tokens is stack.query_tokens
                made = AttentionStack(
                    self._stack_name(name, number),
                    {layer: stack.attention(layer) for layer in stack.layers},
                    queries,
                    None if one_text else keys,
                    normalized=stack.normalized,
                    measure=stack.measure,
                )
                stacks[made.name] = made
            for number in range(1, len(self.members)):
                named = self._difference_name(name, number)
                stacks[named] = self._difference(name, named, number)
        return self._record(stacks, self._title(*range(1, len(self.members))), images)

    def describe(self) -> dict[str, Any]:
        """Return the names, stacks and distances that a view needs in addition to `record`.

        For a long text, distances are estimated from 64 queries of each head.

        Returns
        -------
        dict
            Values for JSON: ``names``, and ``stacks`` by name. Each stack has ``members`` and
            ``differences`` (names of the stacks of `record`), ``distances`` and ``rounding`` (by
            layer and head, None for unknown numbers), and ``sampled`` (the number of sampled
            queries, None for all). Entry i of each list belongs to member i. The first entry is
            None if it would compare the first member with itself.

        Examples
        --------
        >>> from attnviz import AttentionRecord, compare
        >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        >>> compare(a, a).describe()["stacks"]["self"]["distances"]
        [None, [[0.0]]]
        """
        others = range(1, len(self.members))
        pairs = [self] if len(self.members) == 2 else [self.pair(number) for number in others]
        stacks = {}
        for name in self.a.stacks:
            max_queries = self._sampled(name)
            stacks[name] = {
                "members": [self._stack_name(name, each) for each in range(len(self.members))],
                "differences": [None, *(self._difference_name(name, each) for each in others)],
                "distances": [
                    None,
                    *(_listed(each.distance(name, max_queries=max_queries)) for each in pairs),
                ],
                "rounding": [None, *(_listed(each.rounding(name)) for each in pairs)],
                "sampled": max_queries,
            }
        return {"names": list(self.names), "stacks": stacks}

    def _sampled(self, name: str) -> int | None:
        """Return the number of sampled queries for the distances of a view, or None for all."""
        layers, heads = [], 0
        for member in self.members:
            stack = member.stack(name)
            layers += [stack.attention(layer) for layer in stack.layers]
            heads = max(heads, sum(stack.heads_per_layer))
        cells = len(stack.query_tokens) * len(stack.key_tokens)
        if can_compute_maps(layers, max(cells, heads * cells // _MAX_HEADS)):
            return None
        return min(SAMPLED_QUERIES, len(stack.query_tokens))

    def _stack_name(self, name: str, member: int) -> str:
        return f"{name}: {self.names[member]}"

    def _difference_name(self, name: str, member: int) -> str:
        return f"{name}: {self.names[member]} − {self.names[0]}"

    def _difference(self, name: str, named: str, member: int) -> AttentionStack:
        one, two = self.a.stack(name), self.members[member].stack(name)
        return AttentionStack(
            named,
            {
                layer: DifferenceAttention(one.attention(layer), two.attention(layer))
                for layer in one.layers
            },
            one.query_tokens,
            None if one.key_tokens is one.query_tokens else one.key_tokens,
            signed=True,
            measure="difference",
        )

    def _title(self, *members: int) -> str:
        """Return the name of the model, or of the models, with the names of the members."""
        models = list(dict.fromkeys(record.model for record in self._given))
        names = " and ".join(f"{self.names[member]} − {self.names[0]}" for member in members[-1:])
        if len(members) > 1:
            names = ", ".join(self.names)
        return f"{models[0]} ({names})" if len(models) == 1 and models[0] else names

    def _record(
        self,
        stacks: Mapping[str, AttentionStack],
        title: str,
        images: Sequence[NDArray[np.uint8]],
    ) -> AttentionRecord:
        notes = dict.fromkeys(note for member in self.members for note in member.notes)
        record = AttentionRecord(stacks, model=title, notes=list(notes), images=images)
        files = dict.fromkeys(file for member in self.members for file in member.mapped_files)
        record.mapped_files = tuple(files)
        return record

    def _common_queries(self, stack: str, max_queries: int | None) -> NDArray[np.int64]:
        alignment = self._sides(stack).queries
        common = np.flatnonzero(~(alignment.only_a | alignment.only_b))
        return common if max_queries is None else common[sample_queries(len(common), max_queries)]

    def __repr__(self) -> str:
        names = " and ".join([", ".join(self.names[:-1]), self.names[-1]])
        return f"<Comparison of {names}: {', '.join(map(repr, self.a.stacks.values()))}>"


def _own_tokens(tokens: Tokens, units: Alignment, of: int) -> Tokens:
    """Return common units with the texts of one list: "he" instead of "he→she"."""
    own = zip(units.own_text(of), tokens.text, strict=True)
    return replace(tokens, text=tuple(text or label for text, label in own))


def _of_later_images(first: int) -> Callable[[Tokens], Tokens]:
    """Return a function that adds `first` to the image numbers of the patches of tokens.

    The patches then belong to images that follow `first` other images. The function returns the
    same object for the same tokens.
    """
    cache: dict[int, Tokens] = {}

    def moved(tokens: Tokens) -> Tokens:
        if not first or not tokens.grids:
            return tokens
        if id(tokens) not in cache:
            grids = tuple(replace(grid, image=grid.image + first) for grid in tokens.grids)
            cache[id(tokens)] = replace(tokens, grids=grids)
        return cache[id(tokens)]

    return moved


def _listed(values: Sequence[Distances]) -> list[list[float | None]]:
    """Return the numbers as lists for JSON, with None for NaN and infinity."""
    return [[float(value) if math.isfinite(value) else None for value in layer] for layer in values]


def _distances(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], measure: Measure
) -> Steps[list[Distances]]:
    distances = []
    heads = {layer: common_heads(a, b, layer) for layer in a.layers}
    done, total = 0, sum(map(len, heads.values()))
    for layer in a.layers:
        values = np.full(a.attention(layer).num_heads, np.nan)
        for head in heads[layer]:
            values[head] = head_distance(
                a.attention(layer), b.attention(layer), (head, head), rows, measure
            )
            done += 1
            yield Progress("differences", done, total, "head")
        distances.append(values)
    return distances
