"""The class `Comparison`: aligned records, and measures of their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.comparison.alignment import Alignment
from attnviz.comparison.common import Common, Sides, common_heads, compared_heads
from attnviz.comparison.differences import largest_differences
from attnviz.comparison.distance import MEASURES, Measure, head_distance, rounding_distances
from attnviz.record.difference import difference_stack
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import SAMPLED_QUERIES, can_compute_maps, sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import existing_name, existing_number, whole_number
from attnviz.utils.numbers import finite_lists
from attnviz.utils.progress import report, show_progress

if TYPE_CHECKING:
    import pandas as pd

Distances = NDArray[np.float64]

# If all layers of a stack together have at most this many heads, a view compares all queries of a
# text with up to 4,096 tokens, or 32,768 on a GPU. This takes a few seconds. With more heads, this
# limit of the text length is lower. For longer texts, a view compares a sample of the queries.
_MAX_HEADS = 16


class Comparison:
    """Aligned records of several texts or models, with measures of their differences.

    `attnviz.compare` returns this class. The aligned records are called members. Rows and columns
    of all members are units: a unit has neighbouring tokens of the first text, and the
    corresponding tokens of the other texts.

    `distance`, `rounding`, `to_pandas` and `difference` compare the last member with the first. If
    there are more than two members, such as checkpoints of a model, `pair` selects another member
    for the comparison with the first.

    Attributes
    ----------
    members : tuple of AttentionRecord
        The aligned records, which have the same rows and columns. Every view can show them. The
        label of a unit is ``he→she`` for a replaced token, ``−very`` for a token that only the
        first text has, and ``+very`` for a token that only another text has. A member has no weight
        on units that are empty in its text. If the tokenizers differ, a unit can have several
        tokens. The columns of its keys are then summed, and the rows of its queries averaged.
    a, b : AttentionRecord
        The first and the last of `members`.
    names : tuple of str
        Names of the members.
    is_named : bool
        Whether the caller has named the members. If there are several models, a view then has
        these names in its heading instead of those of the models.
    notes : tuple of str
        Sentences about differences between the members, such as replaced tokens, and tokens,
        stacks, layers or heads that not all members have.

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
        originals: Sequence[AttentionRecord],
        names: Sequence[str],
        is_named: bool = False,
    ) -> None:
        self.members = common.records
        self.names = tuple(names)
        self.is_named = is_named
        self.notes = common.notes
        self._common = common
        self._originals = tuple(originals)
        self._computed: dict[tuple[Any, ...], list[Distances]] = {}

    @property
    def a(self) -> AttentionRecord:
        """First member. All other members are compared with it."""
        return self.members[0]

    @property
    def b(self) -> AttentionRecord:
        """Last member."""
        return self.members[-1]

    def pair(self, member: int | str) -> Comparison:
        """Return the comparison of the first member with one other member, in the same units.

        Parameters
        ----------
        member : int or str
            Name of the member, or its index in `members`. Negative indices count from the end.

        Returns
        -------
        Comparison
            Comparison with two members.

        Raises
        ------
        IndexError, KeyError
            If the member does not exist, or if it is the first member.

        Examples
        --------
        >>> comparison.pair("step 300").distance()     # doctest: +SKIP
        """
        owner = "the members that can be compared with the first are"
        if isinstance(member, str):
            index = self.names.index(existing_name("member", member, self.names[1:], owner))
        else:
            index = existing_number("member", member, range(1, len(self.members)), owner)
        common = self._common
        return Comparison(
            replace(
                common,
                records=(common.records[0], common.records[index]),
                sides={name: (sides[index - 1],) for name, sides in common.sides.items()},
            ),
            originals=(self._originals[0], self._originals[index]),
            names=(self.names[0], self.names[index]),
        )

    def alignment(self, stack: str | None = None) -> tuple[Alignment, Alignment]:
        """Return the alignments of the first and the last member's tokens.

        The lists `a` and `b` of an alignment have the tokens of the first and the last member, as
        they were before the alignment. The units of the alignment are the rows or columns of the
        members.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.

        Returns
        -------
        tuple of Alignment
            Alignment of the queries, and alignment of the keys.

        Raises
        ------
        KeyError
            If the stack does not exist.
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
        """Compute the distance between the first and the last member for every head.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.
        measure : {"total variation", "Jensen-Shannon"}
            Distance of two rows of weights. Total variation is half the sum of the absolute
            differences, which is the share of the weight that moved to other keys, from 0 to 1. The
            Jensen-Shannon divergence is in bits, from 0 to 1 (Lin 1991, as in Clark et al. 2019,
            arXiv 1906.04341). Linear layers, whose weights are signed, and ranks of indexers are
            compared by "total variation" only. For them, it is the sum of the absolute differences,
            divided by the sum of the absolute weights of both rows.
        max_queries : int, optional
            Maximum number of queries to compare per head, spread evenly over the text. The result
            is then an estimate with a standard error of at most ``0.5 / sqrt(max_queries)``, for
            example 0.063 for 64 queries. All queries are compared by default.

        Returns
        -------
        list of ndarray of float64
            One array per layer, (heads,), in the order of ``comparison.a.stack(stack).layers``.
            Each number is the mean distance over the units that both members have as queries, or
            NaN if no query can be compared or only `a` has the head. `ModelView` and `HeadView`
            accept the list as ``scores=``.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the stack or measure does not exist, or `max_queries` is not a positive number.

        See Also
        --------
        Comparison.rounding : The distance that rounding errors alone can cause.

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
        if (one.linear or one.ranks) and measure != "total variation":
            raise ValueError(
                f"measure={measure!r} is defined for the weights of a softmax, and stack "
                f"{one.name!r} has no softmax. Pass measure='total variation'."
            )
        key = ("distance", one.name, measure, max_queries)
        if key not in self._computed:
            rows = self._common_queries(one.name, max_queries)
            with show_progress("compare"):
                self._computed[key] = _distances(one, two, rows, measure)
        return [values.copy() for values in self._computed[key]]

    def rounding(self, stack: str | None = None) -> list[Distances]:
        """Estimate the total variation distance that rounding errors alone can cause.

        If the result of `distance` for a head is smaller than this estimate, it is not significant.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.

        Returns
        -------
        list of ndarray of float64
            One array per layer, (heads,), as in the result of `distance`. NaN if one of the two
            members does not store query and key vectors of the layer, or only `a` has the head.

        Notes
        -----
        The first member is compared with a copy of itself in which queries and keys have random
        errors. The random errors are as large as the rounding errors in the less precise dtype of
        the two members, and increase from layer to layer. For two trained models and their copies
        in half precision, the real distances were 0.05 to 0.9 times the estimate
        (``docs/compare.md``).

        Examples
        --------
        >>> comparison.rounding()                      # doctest: +SKIP
        """
        name = self.a.stack(stack).name
        key = ("rounding", name)
        if key not in self._computed:
            with show_progress("compare"):
                self._computed[key] = self._roundings(name)
        return [values.copy() for values in self._computed[key]]

    def _roundings(self, name: str) -> list[Distances]:
        one, two = (record.stack(name) for record in (self._originals[0], self._originals[-1]))
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
                heads = common_heads(stack, self.b.stack(name), layer)
                values[list(heads)] = rounding_distances(attention_a.vectors, heads, layer, dtype)
            distances.append(values)
            report("rounding errors", number + 1, len(stack.layers), "layer")
        return distances

    def to_pandas(
        self, stack: str | None = None, *, top_k: int = 100, max_queries: int | None = None
    ) -> pd.DataFrame:
        """Return the query-key pairs whose weights differ most between first and last member.

        Parameters
        ----------
        stack : str, optional
            Name of the stack, the first one by default.
        top_k : int, default 100
            Maximum number of pairs. Pairs whose weights do not differ are left out.
        max_queries : int, optional
            Maximum number of queries to compare, as in `distance`.

        Returns
        -------
        pandas.DataFrame
            One row per pair, in descending order of the absolute difference. The columns are
            ``layer``, ``head``, ``query``, ``query_token``, ``key``, ``key_token``, ``a``, ``b``
            (the weights) and ``difference`` (b - a). Only queries that both members have are
            compared. If only one member has the key, the weight of the other member is 0.

        Raises
        ------
        ImportError
            If pandas is not installed.
        KeyError, TypeError, ValueError
            If the stack does not exist, or if `top_k` or `max_queries` is not a positive integer.

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
        with show_progress("compare"):
            edges = largest_differences(one, two, rows, top_k)
        names = ["layer", "head", "query", "key", "a", "b", "difference"]
        table = pd.DataFrame(edges, columns=pd.Index(names))
        for side, tokens in (("query", one.query_tokens), ("key", one.key_tokens)):
            texts = [tokens.text[position] for position in table[side]]
            table.insert(list(table.columns).index(side) + 1, f"{side}_token", texts)
        return table

    @property
    def difference(self) -> AttentionRecord:
        """Record of the differences b - a: weights of the last member minus weights of the first.

        Every view can show this record. The record does not store the differences: they are
        computed each time they are read. If only one of the two members has a query, the row of the
        query is masked and 0. If only one of them has a key, the weight of the other member counts
        as 0.

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
        """Return one record that has all members and their differences as stacks.

        Returns
        -------
        AttentionRecord
            Record that has, for each stack of the members, one stack per member, and one stack of
            signed differences per member except the first. For ``"self"`` and two members with the
            names ``a`` and ``b``, these are ``"self: a"`` and ``"self: b"``, each with the token
            texts of its member, and ``"self: b − a"``. Weights are not copied.

        Examples
        --------
        >>> from attnviz import AttentionRecord, compare
        >>> a = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        >>> list(compare(a, a, names=("before", "after")).record().stacks)
        ['self: before', 'self: after', 'self: after − before']
        """
        images: list[NDArray[np.uint8]] = list(self.a.images)
        # Index of the first image of each member in `images`.
        first_images = [0]
        for member in self.members[1:]:
            same = len(member.images) == len(self.a.images) and all(
                map(np.array_equal, member.images, self.a.images)
            )
            first_images.append(0 if same else len(images))
            images += [] if same else member.images
        stacks: dict[str, AttentionStack] = {}
        for name in self.a.stacks:
            for number, member in enumerate(self.members):
                stack = member.stack(name)
                sides = self._common.sides[name][max(0, number - 1)]
                own = int(number > 0)
                first = first_images[number]
                queries = _own_tokens(stack.query_tokens, sides.queries, own, first)
                keys = _own_tokens(stack.key_tokens, sides.keys, own, first)
                one_text = stack.key_tokens is stack.query_tokens
                made = stack.derive(
                    {layer: stack.attention(layer) for layer in stack.layers},
                    queries,
                    None if one_text else keys,
                    name=self._stack_name(name, number),
                )
                stacks[made.name] = made
            for number in range(1, len(self.members)):
                named = self._difference_name(name, number)
                stacks[named] = self._difference(name, named, number)
        notes = []
        pictured = any(
            stack.query_tokens.pictured or stack.key_tokens.pictured for stack in stacks.values()
        )
        if pictured and len(images) > len(self.a.images):
            notes = [f"Differences are drawn over the image of {self.names[0]}."]
        return self._record(stacks, self._title(*range(1, len(self.members))), images, notes)

    def describe(self) -> dict[str, Any]:
        """Return the data that a view of this comparison needs in addition to `record`.

        For long texts, distances are estimated from 64 queries of each head.

        Returns
        -------
        dict
            Values that can be written as JSON. ``names`` has the names of the members. ``stacks``
            has one dictionary for each stack name of the members:

            - ``members`` and ``differences``: names of stacks in `record`, one per member.
            - ``distances`` and ``rounding``: for each member, one list per layer, which has one
              number per head. Unknown numbers are None.
            - ``sampled``: number of sampled queries. None if all queries are compared.

            In ``differences``, ``distances`` and ``rounding``, the entry of the first member is
            None, because this member is not compared with itself.

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
                "members": [self._stack_name(name, index) for index in range(len(self.members))],
                "differences": [None, *(self._difference_name(name, index) for index in others)],
                "distances": [
                    None,
                    *(finite_lists(pair.distance(name, max_queries=max_queries)) for pair in pairs),
                ],
                "rounding": [None, *(finite_lists(pair.rounding(name)) for pair in pairs)],
                "sampled": max_queries,
            }
        return {"names": list(self.names), "stacks": stacks}

    def _sampled(self, name: str) -> int | None:
        """Return the number of queries that a view samples to compute the distances of a stack.

        `name` is the name of the stack in the members. Return None if all queries are compared.
        """
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
        return difference_stack(self.a.stack(name), self.members[member].stack(name), named)

    def _title(self, *members: int) -> str:
        """Return the title of a record of differences.

        `members` are the indices of the members that are compared with the first. For one index,
        the title is, for example, "gpt2 (b − a)". For several indices, it contains the names of all
        members, such as "gpt2 (a, b, c)". If the models have different names, the title has no
        model.
        """
        models = list(dict.fromkeys(record.model for record in self._originals))
        names = " and ".join(f"{self.names[member]} − {self.names[0]}" for member in members[-1:])
        if len(members) > 1:
            names = ", ".join(self.names)
        return f"{models[0]} ({names})" if len(models) == 1 and models[0] else names

    def _record(
        self,
        stacks: Mapping[str, AttentionStack],
        title: str,
        images: Sequence[NDArray[np.uint8]],
        more: Sequence[str] = (),
    ) -> AttentionRecord:
        notes = dict.fromkeys(note for member in self.members for note in member.notes)
        return AttentionRecord(stacks, model=title, notes=[*notes, *more], images=images)

    def _common_queries(self, stack: str, max_queries: int | None) -> NDArray[np.int64]:
        alignment = self._sides(stack).queries
        common = np.flatnonzero(~(alignment.only_a | alignment.only_b))
        return common if max_queries is None else common[sample_queries(len(common), max_queries)]

    def __repr__(self) -> str:
        names = " and ".join([", ".join(self.names[:-1]), self.names[-1]])
        return f"<Comparison of {names}: {', '.join(map(repr, self.a.stacks.values()))}>"


def _own_tokens(tokens: Tokens, units: Alignment, of: int, first_image: int) -> Tokens:
    """Return a copy of `tokens` in which the label of each unit is replaced by one member's text.

    `tokens` has one entry per unit. For example, "he→she" becomes "he". `of` is 0 for the list `a`
    of the alignment `units`, and 1 for the list `b`. Units that are empty in this list keep their
    labels. `first_image` is added to the image numbers of patch grids, because the images of all
    members are in one list.
    """
    own = zip(units.own_text(of), tokens.text, strict=True)
    grids = tuple(
        grid if grid.image is None else replace(grid, image=grid.image + first_image)
        for grid in tokens.grids
    )
    return replace(tokens, text=tuple(text or label for text, label in own), grids=grids)


def _distances(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], measure: Measure
) -> list[Distances]:
    distances = [np.full(num_heads, np.nan) for num_heads in a.heads_per_layer]
    for layer, head in compared_heads(a, b):
        one, two = a.attention(layer), b.attention(layer)
        distances[a.layers.index(layer)][head] = head_distance(one, two, head, rows, measure)
    return distances
