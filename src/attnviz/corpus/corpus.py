"""A corpus: records of many texts of one model, for the joint embedding of queries and keys.

The joint embedding is a plot that shows query and key vectors together. Its points are the queries
and keys of a sample of tokens (`attnviz.corpus.points`). A record has the attention in one text. A
stack is the attention of one kind, such as "self" or "cross", in all layers. All heads of a stack
have the same points. To save memory, a corpus copies the vectors of a layer only when they are
requested.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.checks import check_alike, listed_records, stacks_with_vectors
from attnviz.corpus.columns import Column, Side, read_columns
from attnviz.corpus.points import Points, checked_points, sampled_points
from attnviz.corpus.texts import summed_up
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import (
    existing_name,
    existing_numbers,
    short_repr,
    whole_number,
)
from attnviz.utils.arrays import moved


@dataclass(frozen=True, eq=False)
class LayerVectors:
    """Query and key vectors of the points of a plot, in one layer.

    The vectors are those from which the model computes logits, for example after rotary position
    embeddings are applied.

    Attributes
    ----------
    heads : tuple of int
        Numbers of the heads in the model.
    queries : Tensor of float32, (heads, num_queries, head_dim)
        Query vectors of the points that are queries, in the order of `Points`, on the CPU.
    keys : Tensor of float32, (heads, num_keys, head_dim)
        Key vectors of the points that are keys, in the order of `Points`, on the CPU. Heads that
        share a key head (grouped-query attention) have equal keys.
    """

    heads: tuple[int, ...]
    queries: torch.Tensor
    keys: torch.Tensor


@dataclass(frozen=True)
class Caveat:
    """Reason why the vectors on a plot do not determine the attention weights exactly.

    `words` is a sentence for readers of the plot. Some plots add the same vector to all keys, which
    moves the keys near the queries. A caveat of the kind ``"moving"`` applies only to these plots.
    A caveat of the kind ``"bias"`` applies to every plot.
    """

    kind: Literal["moving", "bias"]
    words: str


def caveats_of(attention: QueryKeyAttention) -> list[Caveat]:
    """Return the reasons why a plot of the vectors of a layer does not determine its weights.

    The reasons are a soft cap, sinks and a position bias. The list is empty if the layer has none
    of them.

    To move the keys near the queries, some plots add the same vector t to all keys. All logits of a
    query q then change by the same number, ``q . t``, which does not change their softmax. With a
    soft cap, the logits change unequally. With a sink, the logits of the keys change, but the logit
    of the sink does not. In both cases, the moved points belong to other weights than those of the
    model. A position bias changes the weights, but not the distances between points.
    """
    caveats = []
    if attention.softcap is not None:
        words = (
            f"This layer soft-caps its logits at {attention.softcap:g}, so moving the keys is not "
            "exact: the moved points would give other weights."
        )
        caveats.append(Caveat("moving", words))
    if attention.sinks is not None:
        words = (
            "Each head of this layer has a sink, a learned logit that gets a share of every row, "
            "so moving the keys is not exact: it would change that share."
        )
        caveats.append(Caveat("moving", words))
    if attention.bias is not None:
        words = (
            "This layer adds a position bias to its logits. The weights depend on query · key and "
            "the bias, but distances depend only on query · key."
        )
        caveats.append(Caveat("bias", words))
    return caveats


class Corpus:
    """Records of one model, whose queries and keys are the points of a joint embedding.

    Parameters
    ----------
    records : sequence of AttentionRecord
        One record for each text or image, with queries and keys.
    max_points : int, default 10,000
        Maximum number of points of a stack. Points are queries and keys. Texts are visited in
        random order. All queries and keys of a text become points, unless the total would exceed
        the maximum. In that case the text is skipped. If the first visited text alone exceeds the
        maximum, the points are a random sample of its tokens.
    seed : int, default 0
        Seed of the random order.
    columns : mapping of str to values, optional
        Values by which points can be coloured. The keys are the names of the columns. Each column
        has one entry for each text: one value, or a sequence with a value for each token. Strings
        are shown as categories, and numbers on a colour scale. None and NaN mean unknown values.
    total_texts : int, optional
        Number of texts from which the records were chosen. By default the number of records.
    text_indices : sequence of int, optional
        Index of each record's text among all `total_texts` texts. By default ``0``, ``1``, ...
    num_skipped : int, default 0
        Number of texts that were left out because they are empty or too long for the model.

    Attributes
    ----------
    records : tuple of AttentionRecord
        The records, in the order in which they were passed.
    model : str
        Name of the model.
    notes : list of str
        Sentences for readers of the plots: the notes of the records, and notes on stacks that are
        left out. `extract_corpus` adds notes on texts that are left out.
    names : tuple of str
        Title of each text or image. The title of a text is its first words. The title of an image
        is "image 3", and that of a text without words is "text 3", where 3 is its entry in
        `text_indices`.
    stack_names : tuple of str
        Names of the stacks that have queries and keys in all records.
    seed : int
        Seed of the random order.
    total_texts : int
        Number of texts from which the records were chosen.
    text_indices : tuple of int
        Index of each record's text among all `total_texts` texts.
    num_skipped : int
        Number of texts that were left out because they are empty or too long for the model.

    Raises
    ------
    TypeError
        If an argument has a wrong type.
    ValueError
        If `records` is empty. If the records belong to different models, differ in layers or heads,
        or have no stack with queries and keys in common. If another argument has a wrong value.

    Examples
    --------
    >>> corpus = Corpus(av.extract(model, texts), max_points=2_000)             # doctest: +SKIP
    >>> len(corpus.points("self")), corpus.points("self").total_points            # doctest: +SKIP
    (1994, 12410)
    >>> corpus.vectors("self", 3).queries.shape                       # doctest: +SKIP
    torch.Size([12, 997, 64])
    """

    def __init__(
        self,
        records: Iterable[AttentionRecord],
        *,
        max_points: int = 10_000,
        seed: int = 0,
        columns: Mapping[str, Any] | None = None,
        total_texts: int | None = None,
        text_indices: Sequence[int] | None = None,
        num_skipped: int = 0,
    ) -> None:
        self.records = listed_records(records)
        self._max_points = checked_points(max_points)
        self.seed = whole_number("seed", seed, 0)
        self.num_skipped = num_skipped
        self.model = self.records[0].model
        self.stack_names, stack_notes = stacks_with_vectors(self.records)
        check_alike(self.records, self.stack_names)
        self.notes = [
            *summed_up(note for record in self.records for note in record.notes),
            *stack_notes,
        ]
        count = len(self.records)
        self.total_texts = count if total_texts is None else total_texts
        self.text_indices = tuple(range(count) if text_indices is None else text_indices)
        if len(self.text_indices) != count:
            raise ValueError(
                f"text_indices has {len(self.text_indices)} entries but there are {count} records. "
                "Pass one index for each record."
            )
        self.names = tuple(
            _title(record, index)
            for record, index in zip(self.records, self.text_indices, strict=True)
        )
        self._lengths: dict[Side, list[int]] = {}
        for name in self.stack_names:
            stacks = [record.stacks[name] for record in self.records]
            self._lengths[name, "query"] = [len(stack.query_tokens) for stack in stacks]
            self._lengths[name, "key"] = [len(stack.key_tokens) for stack in stacks]
        self._columns = read_columns(columns, self._lengths, count)
        self._points: dict[str, Points] = {}

    def stack(self, name: str | None = None) -> AttentionStack:
        """Return a stack of the first record. It has the same layers and heads in all records.

        Parameters
        ----------
        name : str, optional
            One of `stack_names`. The default is the first.

        Returns
        -------
        AttentionStack

        Raises
        ------
        KeyError
            If the stack does not exist. The error lists the valid values.
        """
        return self.records[0].stacks[self._stack_name(name)]

    def only(self, layers: int | Iterable[int]) -> Corpus:
        """Return a corpus with fewer layers and the same points. No vectors are copied.

        Parameters
        ----------
        layers : int or iterable of int
            Layers to keep, by their numbers in the model. A negative number counts from the last
            layer of each stack. Each stack keeps those of the layers that it has. A stack that has
            none of them is left out.

        Returns
        -------
        Corpus

        Raises
        ------
        TypeError
            If `layers` contains a value that is not an integer.
        IndexError
            If a layer exists in no stack, if no stack with queries and keys has any of the layers,
            or if `layers` is empty.
        """
        corpus = copy.copy(self)
        corpus.records = tuple(record.only(layers) for record in self.records)
        # Use only names in `self.stack_names`, because other stacks of the records may have no
        # queries and keys.
        corpus.stack_names = tuple(
            name for name in self.stack_names if name in corpus.records[0].stacks
        )
        if not corpus.stack_names:
            raise IndexError(
                f"layers={short_repr(layers)}: these layers have weights, but no queries and keys"
            )
        return corpus

    def same_tokens(self, stack: str | None = None) -> bool:
        """Whether the queries and keys of a stack are the same tokens, as in self-attention.

        Parameters
        ----------
        stack : str, optional
            One of `stack_names`. The default is the first.

        Returns
        -------
        bool
        """
        name = self._stack_name(stack)
        stacks = [record.stacks[name] for record in self.records]
        return all(record_stack.key_tokens is record_stack.query_tokens for record_stack in stacks)

    def points(self, stack: str | None = None) -> Points:
        """Return the points of a stack. All of its heads have the same points.

        Parameters
        ----------
        stack : str, optional
            One of `stack_names`. The default is the first.

        Returns
        -------
        Points
        """
        name = self._stack_name(stack)
        if name not in self._points:
            self._points[name] = sampled_points(
                self._lengths[name, "query"],
                self._lengths[name, "key"],
                max_points=self._max_points,
                seed=self.seed,
                same_tokens=self.same_tokens(name),
            )
        return self._points[name]

    def vectors(
        self, stack: str | None, layer: int, heads: int | Sequence[int] | None = None
    ) -> LayerVectors:
        """Return copies of the query and key vectors of the points in a layer.

        Parameters
        ----------
        stack : str or None
            One of `stack_names`. None means the first.
        layer : int
            Number of the layer in the model. Negative numbers count from the last layer.
        heads : int or sequence of int, optional
            Numbers of the heads in the model. Negative numbers count from the last head. By default
            all heads.

        Returns
        -------
        LayerVectors

        Raises
        ------
        TypeError
            If `heads` contains a value that is not an integer.
        KeyError
            If the stack does not exist. The error lists the valid values.
        IndexError
            If the layer or a head does not exist, or if `heads` is empty.
        """
        name = self._stack_name(stack)
        chosen = self._heads(name, layer, heads)
        points = self.points(name)
        queries: list[torch.Tensor] = []
        keys: list[torch.Tensor] = []
        for text in points.texts:
            attention = self.attention(name, layer, text)
            key_heads = [attention.key_head(head) for head in chosen]
            rows = points.query_position[points.queries_of(text)]
            columns = points.key_position[points.keys_of(text)]
            queries.append(_copy(attention.queries, list(chosen), rows))
            keys.append(_copy(attention.keys, key_heads, columns))
        return LayerVectors(chosen, _joined(queries), _joined(keys))

    def attention(self, stack: str | None, layer: int, text: int) -> QueryKeyAttention:
        """Return the attention of a layer in one text.

        Parameters
        ----------
        stack : str or None
            One of `stack_names`. None means the first.
        layer : int
            Number of the layer in the model. Negative numbers count from the last layer.
        text : int
            Index of the text's record in `records`.

        Returns
        -------
        QueryKeyAttention

        Raises
        ------
        KeyError
            If the stack does not exist. The error lists the valid values.
        IndexError
            If the layer or the text does not exist.
        """
        if not 0 <= text < len(self.records):
            raise IndexError(f"text={text!r}: this corpus has texts 0 to {len(self.records) - 1}")
        attention = self.records[text].stacks[self._stack_name(stack)].attention(layer)
        # `vectors` is not None, because stacks in `stack_names` have queries and keys.
        return cast("QueryKeyAttention", attention.vectors)

    def caveats(self, stack: str | None, layer: int) -> list[str]:
        """Return the reasons why the joint embedding of a layer does not determine its weights.

        Parameters
        ----------
        stack : str or None
            One of `stack_names`. None means the first.
        layer : int
            Number of the layer in the model. Negative numbers count from the last layer.

        Returns
        -------
        list of str
            One sentence for each reason: a soft cap, sinks, or a position bias. Empty if the layer
            has none of them.

        Raises
        ------
        KeyError
            If the stack does not exist. The error lists the valid values.
        IndexError
            If the layer does not exist.
        """
        return [caveat.words for caveat in caveats_of(self.attention(stack, layer, 0))]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns in the argument `columns`."""
        return tuple(self._columns)

    def column(self, stack: str | None, name: str) -> Column:
        """Return the values of a column that was passed as `columns`, for the points of a stack.

        A point is a sampled query or key. Queries and keys have separate arrays.

        Parameters
        ----------
        stack : str or None
            One of `stack_names`. None means the first.
        name : str
            One of `column_names`.

        Returns
        -------
        Column

        Raises
        ------
        KeyError
            If the column or the stack does not exist. The error lists the valid values.
        """
        existing_name("column", name, self._columns, "this corpus has the columns")
        chosen = self._stack_name(stack)
        points, column = self.points(chosen), self._columns[name]
        return Column(
            name,
            column.values_at(
                points.query_text, points.query_position, self._lengths[chosen, "query"]
            ),
            column.values_at(points.key_text, points.key_position, self._lengths[chosen, "key"]),
            column.categories,
        )

    def _stack_name(self, name: str | None) -> str:
        if name is None:
            return self.stack_names[0]
        return existing_name("stack", name, self.stack_names, "this corpus has the stacks")

    def _heads(self, stack: str, layer: int, heads: int | Sequence[int] | None) -> tuple[int, ...]:
        valid = range(self.stack(stack).num_heads(layer))
        if heads is None:
            return tuple(valid)
        owner = f"layer {layer} of stack {stack!r} has heads"
        return existing_numbers("heads", heads, valid, owner)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        name = f" of {self.model}" if self.model else ""
        of = "" if self.total_texts == len(self) else f" of {self.total_texts:,}"
        points = self.points()
        # Compare the points only with the queries and keys of the texts in `records`: the numbers
        # of queries and keys of other texts are not known.
        of_points = "" if len(points) == points.total_points else f" of {points.total_points:,}"
        return (
            f"<Corpus{name}: {len(self):,}{of} text{'' if self.total_texts == 1 else 's'}, "
            f"{len(points):,}{of_points} points>"
        )


def _copy(vectors: torch.Tensor, heads: list[int], positions: NDArray[np.int32]) -> torch.Tensor:
    """Return the vectors of some heads at some positions, as float32.

    `vectors` is (heads, tokens, head_dim), and `positions` has sorted and distinct indices of
    tokens. If all vectors are selected, and are already float32, they are not copied.
    """
    selected = vectors.detach()
    if len(positions) < vectors.shape[1]:
        selected = selected[:, moved(torch.tensor(positions), vectors.device)]
    # Indexing with a list copies the vectors, so take a slice of successive heads.
    if heads == list(range(heads[0], heads[0] + len(heads))):
        selected = selected[heads[0] : heads[0] + len(heads)]
    else:
        selected = selected[heads]
    return selected.float()


def _joined(vectors: list[torch.Tensor]) -> torch.Tensor:
    """Join the vectors of texts on the CPU. Copy those of each device at once."""
    if len({tensor.device for tensor in vectors}) > 1:
        vectors = [tensor.cpu() for tensor in vectors]
    return torch.cat(vectors, dim=1).cpu()


# Maximum length of a title, in characters.
_TITLE_LENGTH = 40


def _title(record: AttentionRecord, number: int) -> str:
    """Return the title of a record in `Corpus.names`. `number` is its entry in `text_indices`."""
    tokens = record.stack().query_tokens
    if tokens.pictured:
        return f"image {number}"
    return _first_words(tokens) or f"text {number}"


def _first_words(tokens: Tokens) -> str:
    shown = [
        token
        for token, special in zip(tokens.text[:_TITLE_LENGTH], tokens.special, strict=False)
        if not special
    ]
    # In some tokenizers, the text of a token includes the space before it. `Tokens.text` has "·"
    # instead of this space. Join such tokens without additional spaces.
    between = "" if any("·" in token for token in shown) else " "
    text = between.join(shown).replace(" ##", "").replace("·", " ").replace("⏎", " ").strip()
    if len(text) > _TITLE_LENGTH or len(tokens) > _TITLE_LENGTH:
        return f"{text[: _TITLE_LENGTH - 1].rstrip()}…"
    return text
