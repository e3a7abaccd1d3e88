"""What can be changed in a model's attention while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.change import LayerChange
from attnviz.record.attention import GivenWeights, LayerAttention, QueryKeyAttention
from attnviz.record.edited import CutWeights, ReplacedWeights, uniform, without_pairs
from attnviz.record.masks import BandMask, CutMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import from_end, listed, shown, spans, whole_numbers

__all__ = [
    "Ablate",
    "Change",
    "HideTokens",
    "Knockout",
    "SetWeights",
    "check_change",
    "description_of",
    "keeps_shares",
    "layer_change",
]

Numbers = int | Iterable[int] | None
Places = int | str | Sequence[int | str] | None
Flags = NDArray[np.bool_]

# Rows that were given must sum to 1, but for rounding.
_ROUNDING = 1e-3
# Tokens that a note names one by one.
_NAMED = 4


class Change(ABC):
    """One change of a model's attention."""

    layers: Numbers
    heads: Numbers
    stack: str | None

    def _layers_of(self, stack: AttentionStack) -> tuple[int, ...]:
        """The model's numbers of the layers that are changed, ascending."""
        return _numbers("layers", self.layers, stack.layers, f"stack {stack.name!r} has layers")

    def _heads_of(self, stack: AttentionStack, layer: int) -> tuple[int, ...]:
        """The model's numbers of a layer's heads that are changed, ascending."""
        there = range(stack.attention(layer).num_heads)
        return _numbers("heads", self.heads, there, f"layer {layer} has heads")

    @abstractmethod
    def _attend(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> LayerAttention:
        """What a layer attends with instead of its attention."""

    def _rows(self, stack: AttentionStack) -> NDArray[np.int64]:
        """Queries that attend otherwise, ascending."""
        del stack
        return np.zeros(0, np.int64)

    @property
    def _factor(self) -> float | None:
        """What outputs of the heads are multiplied with; None where they are not."""
        return None

    @property
    def _shares(self) -> bool:
        """Whether rows are still shares of one."""
        return True

    def _check(self, stack: AttentionStack) -> None:
        """Raise TypeError, ValueError or IndexError where it does not fit a stack."""
        for layer in self._layers_of(stack):
            self._heads_of(stack, layer)

    @abstractmethod
    def _describe(self, stack: AttentionStack) -> str:
        """Say what is changed, in a sentence without its end."""

    def _where(self, stack: AttentionStack) -> str:
        """Which heads of which layers, in words."""
        layers = self._layers_of(stack)
        several = "layers" if len(layers) > 1 else "layer"
        of = f" of the {stack.name} stack" if stack.name != "self" else ""
        if self.heads is None:
            return f"{several} {spans(layers)}{of}, all heads"
        heads = self._heads_of(stack, layers[0])
        return f"{several} {spans(layers)}{of}, head{'s' if heads[1:] else ''} {spans(heads)}"


def _numbers(name: str, given: Numbers, there: Sequence[int], has: str) -> tuple[int, ...]:
    if given is None:
        return tuple(there)
    wanted = whole_numbers(name, listed(given))
    if not wanted:
        raise ValueError(f"{name}={shown(given)} is empty; leave {name} out for all")
    found = {from_end(each, there) for each in wanted}
    wrong = sorted(found - set(there))
    if wrong:
        raise IndexError(f"{name}={shown(given)}: {has} {spans(list(there))}, and not {wrong[0]}")
    return tuple(sorted(found))


def _flags(name: str, given: Places, tokens: Tokens) -> Flags:
    """Which tokens are meant: by number or text; None is all."""
    flags = np.zeros(len(tokens), np.bool_)
    if given is None:
        return ~flags
    places = [given] if isinstance(given, str | int) else listed(given)
    for place in places:
        flags[tokens.position(place, name)] = True
    if not flags.any():
        raise ValueError(f"{name}={shown(given)} is empty; leave {name} out for all tokens")
    return flags


def _named(flags: Flags, tokens: Tokens) -> str:
    """Tokens in words."""
    places = np.flatnonzero(flags).tolist()
    if len(places) == len(tokens):
        return "all tokens"
    texts = [f"{tokens.text[place].strip('·')!r} ({place})" for place in places[:_NAMED]]
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return ", ".join(texts) + more


@dataclass(frozen=True)
class Ablate(Change):
    """Multiply the output of heads, usually with 0.

    The head still attends as it did, and nothing of it reaches the rest of the model. With
    ``factor=0`` this is the head mask of Michel et al. (2019, arXiv 1905.10650).

    Parameters
    ----------
    layers, heads : int or iterable of int, optional
        The model's numbers, negative from the end; all when left out.
    factor : float, default 0.0
        What the output is multiplied with: 0 takes it away, 1 changes nothing.
    stack : str, optional
        Needed where a record has several stacks.

    Raises
    ------
    ValueError
        If `factor` is not a finite number.

    Examples
    --------
    >>> Ablate(layers=1, heads=0)
    Ablate(layers=1, heads=0, factor=0.0, stack=None)
    """

    layers: Numbers = None
    heads: Numbers = None
    factor: float = 0.0
    stack: str | None = None

    def __post_init__(self) -> None:
        """Refuse anything but a number."""
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise TypeError(f"factor={self.factor!r} must be a number, 0 to take the output away")
        if not np.isfinite(self.factor):
            raise ValueError(f"factor={self.factor!r} must be finite")

    @property
    def _factor(self) -> float:
        """What outputs are multiplied with."""
        return self.factor

    def _attend(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> LayerAttention:
        """The same attention: what is multiplied is its output."""
        del stack, layer
        return attention

    def _describe(self, stack: AttentionStack) -> str:
        """Say what is changed."""
        if self.factor == 0:
            return f"The output is set to 0 in {self._where(stack)}"
        return f"The output is multiplied by {self.factor:g} in {self._where(stack)}"


@dataclass(frozen=True)
class Knockout(Change):
    """Cut pairs of query and key: the query cannot read the key there.

    Parameters
    ----------
    queries, keys : int, str or sequence of these, optional
        Tokens by number (negative from the end) or by text, where that stands there once; all
        when left out.
    layers, heads : int or iterable of int, optional
        The model's numbers, negative from the end; all when left out.
    renormalize : bool, default True
        True cuts before the softmax: the weight goes to the keys that are left (attention knockout,
        Geva et al. 2023, arXiv 2304.14767). False cuts after it: the weight is gone. The two tell
        different stories; notes and captions name which it is.
    stack : str, optional
        Needed where a record has several stacks.

    Notes
    -----
    A query that has no key left gets an output of 0.

    Examples
    --------
    >>> Knockout(queries="it", keys="animal", layers=3, heads=1)  # doctest: +ELLIPSIS
    Knockout(queries='it', keys='animal', layers=3, heads=1, renormalize=True, stack=None)
    """

    queries: Places = None
    keys: Places = None
    layers: Numbers = None
    heads: Numbers = None
    renormalize: bool = True
    stack: str | None = None

    def _pairs(self, stack: AttentionStack) -> tuple[Flags, Flags]:
        return (
            _flags("queries", self.queries, stack.query_tokens),
            _flags("keys", self.keys, stack.key_tokens),
        )

    def _check(self, stack: AttentionStack) -> None:
        """Refuse tokens that are not there."""
        super()._check(stack)
        self._pairs(stack)

    def _attend(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> LayerAttention:
        """The attention without these pairs."""
        heads, (queries, keys) = self._heads_of(stack, layer), self._pairs(stack)
        if self.renormalize:
            return without_pairs(attention, heads, queries, keys)
        pairs = CutMask(torch.tensor([True]), torch.from_numpy(queries), torch.from_numpy(keys))
        return CutWeights(attention, heads, pairs)

    def _rows(self, stack: AttentionStack) -> NDArray[np.int64]:
        """Queries that have a key less."""
        return np.flatnonzero(self._pairs(stack)[0])

    @property
    def _shares(self) -> bool:
        """Whether rows are still shares of one."""
        return self.renormalize

    def _describe(self, stack: AttentionStack) -> str:
        """Say what is changed."""
        queries, keys = self._pairs(stack)
        when = "before" if self.renormalize else "after"
        return (
            f"Cut {when} the softmax: {_named(queries, stack.query_tokens)} does not read "
            f"{_named(keys, stack.key_tokens)} in {self._where(stack)}"
        )


@dataclass(frozen=True)
class HideTokens(Change):
    """Hide tokens from all others: no other query reads them, in any head.

    It is leave-one-out by masking. A token still reads itself, so that its own row stays as it is.

    Parameters
    ----------
    tokens : int, str or sequence of these
        By number (negative from the end) or by text, where that stands there once.
    layers, heads : int or iterable of int, optional
        The model's numbers, negative from the end; all when left out.
    stack : str, optional
        Needed where a record has several stacks.

    Examples
    --------
    >>> HideTokens("it").tokens
    'it'
    """

    tokens: Places
    layers: Numbers = None
    heads: Numbers = None
    stack: str | None = None

    def _keys(self, stack: AttentionStack) -> Flags:
        if self.tokens is None:
            raise ValueError("tokens=None: name the tokens to hide, by number or by text")
        return _flags("tokens", self.tokens, stack.key_tokens)

    def _check(self, stack: AttentionStack) -> None:
        """Refuse tokens that are not there."""
        super()._check(stack)
        self._keys(stack)

    def _attend(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> LayerAttention:
        """The attention without the tokens as keys."""
        keys = self._keys(stack)
        queries = np.ones(len(stack.query_tokens), np.bool_)
        same = stack.key_tokens is stack.query_tokens
        return without_pairs(attention, self._heads_of(stack, layer), queries, keys, keep_own=same)

    def _rows(self, stack: AttentionStack) -> NDArray[np.int64]:
        """All queries."""
        return np.arange(len(stack.query_tokens))

    def _describe(self, stack: AttentionStack) -> str:
        """Say what is changed."""
        hidden = _named(self._keys(stack), stack.key_tokens)
        return f"Hidden before the softmax: no other token reads {hidden} in {self._where(stack)}"


@dataclass(frozen=True, eq=False)
class SetWeights(Change):
    """Let heads attend with other weights.

    Parameters
    ----------
    layers, heads : int or iterable of int, optional
        The model's numbers, negative from the end; all when left out.
    weights : array, AttentionRecord, "uniform" or "previous token"
        (queries, keys), or (heads, queries, keys) for the heads named; rows must be shares of one.
        A record gives the weights of the same layers and heads (of another text with as many
        tokens: attention patching). ``"uniform"`` gives each key that a query may attend to as
        much; ``"previous token"`` gives all to the token before, and leaves the first query as it
        is.
    stack : str, optional
        Needed where a record has several stacks.

    Examples
    --------
    >>> SetWeights(layers=1, heads=0, weights="uniform").weights
    'uniform'
    """

    layers: Numbers = None
    heads: Numbers = None
    weights: Any = None
    stack: str | None = None

    def __post_init__(self) -> None:
        """Refuse words that say nothing."""
        known = ("uniform", "previous token")
        if self.weights is None or (isinstance(self.weights, str) and self.weights not in known):
            raise ValueError(
                f'weights={self.weights!r} must be an array, a record, "uniform" or '
                '"previous token"'
            )

    def _check(self, stack: AttentionStack) -> None:
        """Refuse weights that do not fit."""
        super()._check(stack)
        for layer in self._layers_of(stack):
            self._instead(stack, layer, stack.attention(layer))

    def _instead(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> dict[int, tuple[LayerAttention, int]]:
        heads = self._heads_of(stack, layer)
        if isinstance(self.weights, AttentionRecord):
            other = self.weights.stack(stack.name)
            there = other.attention(layer)
            size = (attention.num_queries, attention.num_keys)
            if (there.num_queries, there.num_keys) != size:
                raise ValueError(
                    f"weights: the record has {there.num_queries} x {there.num_keys} tokens in "
                    f"stack {stack.name!r}, and the text {size[0]} x {size[1]}; give one of a text "
                    "with as many tokens"
                )
            return {head: (there, other.head_number(layer, head)) for head in heads}
        if isinstance(self.weights, str):
            vectors = attention.vectors
            if self.weights == "uniform":
                if vectors is None:
                    raise ValueError("weights='uniform' needs a layer whose mask is known")
                even = uniform(vectors)
                return {head: (even, attention.index(head)) for head in heads}
            if stack.key_tokens is not stack.query_tokens:
                raise ValueError(
                    f"weights='previous token': in stack {stack.name!r} queries and keys are "
                    "different tokens"
                )
            count = attention.num_queries
            zeros = torch.zeros(1, count, 1)
            before = QueryKeyAttention(zeros, zeros, scale=1.0, mask=BandMask(1, -1))
            return dict.fromkeys(heads, (before, 0))
        given = _checked_weights(self.weights, heads, attention)
        return {head: (given, place % given.num_heads) for place, head in enumerate(heads)}

    def _attend(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> LayerAttention:
        """The attention with these weights in place of its own."""
        rows = np.zeros(attention.num_queries, np.bool_)
        rows[self._rows(stack)] = True
        return ReplacedWeights(attention, self._instead(stack, layer, attention), rows)

    def _rows(self, stack: AttentionStack) -> NDArray[np.int64]:
        """Queries whose weights are replaced."""
        first = 1 if isinstance(self.weights, str) and self.weights == "previous token" else 0
        return np.arange(first, len(stack.query_tokens))

    def _describe(self, stack: AttentionStack) -> str:
        """Say what is changed."""
        if isinstance(self.weights, AttentionRecord):
            what = "to those of another text"
        elif self.weights == "uniform" if isinstance(self.weights, str) else False:
            what = "to the same for every key"
        elif isinstance(self.weights, str):
            what = "to 1 for the previous token"
        else:
            what = "to given ones"
        return f"Weights are set {what} in {self._where(stack)}"


def _checked_weights(weights: Any, heads: Sequence[int], attention: LayerAttention) -> GivenWeights:
    try:
        values = torch.as_tensor(np.asarray(weights, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"weights={shown(weights)} must be an array of numbers, (queries, keys)"
        ) from error
    values = values[None] if values.dim() == 2 else values
    size = (attention.num_queries, attention.num_keys)
    if tuple(values.shape) not in {(1, *size), (len(heads), *size)}:
        raise ValueError(
            f"weights has the shape {tuple(np.shape(weights))}; it must be {size}, queries and "
            f"keys, or {(len(heads), *size)} for the {len(heads)} heads named"
        )
    sums = values.sum(dim=-1)
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
        raise ValueError("weights: some are negative, NaN or infinite; rows are shares of one")
    if bool(((sums - 1).abs() > _ROUNDING).any()):
        row = int(((sums - 1).abs() > _ROUNDING).nonzero()[0][1])
        raise ValueError(
            f"weights: row {row} sums to {float(sums[0, row]):.4g}; every row must sum to 1"
        )
    return GivenWeights(values)


def check_change(change: Change, stack: AttentionStack) -> None:
    """Raise TypeError, ValueError or IndexError where a change does not fit a stack."""
    change._check(stack)


def description_of(change: Change, stack: AttentionStack) -> str:
    """What is changed, in a sentence without its end."""
    return change._describe(stack)


def keeps_shares(change: Change) -> bool:
    """Whether rows are still shares of one."""
    return change._shares


def layer_change(
    changes: Sequence[Change], stack: AttentionStack, layer: int
) -> LayerChange | None:
    """All changes of one layer together, in their order; None where there is none."""
    here = [each for each in changes if layer in each._layers_of(stack)]
    if not here:
        return None
    rows: dict[int, NDArray[np.int64]] = {}
    factors: dict[int, float] = {}
    for change in here:
        for head in change._heads_of(stack, layer):
            if change._factor is not None:
                factors[head] = factors.get(head, 1.0) * change._factor
            changed = change._rows(stack)
            if len(changed):
                rows[head] = np.union1d(rows.get(head, changed), changed)

    def attend(attention: LayerAttention) -> LayerAttention:
        for change in here:
            attention = change._attend(stack, layer, attention)
        return attention

    there = stack.attention(layer)
    return LayerChange(attend, rows, factors, (there.num_queries, there.num_keys))
