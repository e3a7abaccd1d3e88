"""Changes of a model's attention: `Ablate`, `Knockout`, `HideTokens` and `SetWeights`.

A change applies to one stack. A stack is the attention of one kind, such as self-attention, in all
layers. A `LayerChange` is what a change does in one of these layers. If the model generates a text,
the prompt is the text before the first generated token.

A new change is a subclass of `Change` with a method that returns what changes in a layer, and one
that describes the change. An effect is a loop over `Runner.answers`, which runs changed copies of a
text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.capture.layer_change import ForwardChange, LayerChange, ModuleRun
from attnviz.record.attention import (
    LayerAttention,
    QueryKeyAttention,
    StoredWeights,
)
from attnviz.record.edited import (
    CutWeights,
    ReplacedWeights,
    UniformWeights,
    remove_pairs,
)
from attnviz.record.masks import BandMask, CutMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens, quote
from attnviz.record.units import in_units
from attnviz.utils.arguments import (
    existing_numbers,
    format_named,
    short_repr,
)
from attnviz.utils.arrays import as_array

#: Name of a stack, and number of a layer in it.
StackLayer = tuple[str, int]
#: For each layer of each stack, the run of an attention module that computes the layer's attention.
#: A `ModuleRun` has the path of the module, and the number of the run within a forward.
ModuleRuns = Mapping[StackLayer, ModuleRun]

Numbers = int | Iterable[int] | None
Flags = NDArray[np.bool_]
TokenSelector = int | str | Sequence[int | str] | Flags | None

# In weights that a user passes, each row must sum to 1, up to this difference.
_ROUNDING = 1e-3
# Maximum number of tokens that the description of a change lists by name.
_NAMED = 4
# Maximum number of changes that are named in the title of a picture.
_MAX_NAMED_CHANGES = 2


class MeanOutputs(NamedTuple):
    """Mean outputs of the heads of an attention module.

    Attributes
    ----------
    vectors : Tensor
        One vector per head, (heads, value_dim).
    projection : Module or None
        Output projection of the module, if the module multiplies the outputs of its heads by a
        gate. Then `vectors` are means of the outputs after the gate.
    """

    vectors: torch.Tensor
    projection: nn.Module | None


class Change(ABC):
    """Base class of a change of a model's attention.

    The parameter `stack` of a method is the stack to which the change applies.
    """

    layers: Numbers
    heads: Numbers
    stack: str | None

    @abstractmethod
    def _of_layer(self, stack: AttentionStack, layer: int) -> LayerChange:
        """Return the change of the attention in one layer of a stack.

        Raise TypeError, ValueError or IndexError if the change cannot be applied to `stack`.
        """

    @abstractmethod
    def _describe(self, stack: AttentionStack) -> str:
        """Return a sentence that describes the change, without a full stop."""

    @abstractmethod
    def _label(self, stack: AttentionStack) -> str:
        """Return a few words that name the change in the title of a picture."""

    def _for_generation(self, stack: AttentionStack, most: tuple[int, int]) -> Change:
        """Return the change for a text that the model generates. See `for_generation`."""
        del stack, most
        return self

    def _layers_of(self, stack: AttentionStack) -> tuple[int, ...]:
        """Return the numbers of the changed layers, ascending."""
        owner = f"stack {stack.name!r} has layers"
        return _numbers("layers", self.layers, stack.layers, owner)

    def _heads_of(self, stack: AttentionStack, layer: int) -> tuple[int, ...]:
        """Return the numbers of the changed heads of a layer, ascending."""
        heads = range(stack.num_heads(layer))
        return _numbers("heads", self.heads, heads, f"layer {layer} has heads")

    def _reweighted(
        self,
        stack: AttentionStack,
        layer: int,
        rows: NDArray[np.int64],
        attend: Callable[[LayerAttention], LayerAttention],
    ) -> LayerChange:
        """Return the `LayerChange` that changes the attention with `attend`.

        `attend` takes the attention of the layer and returns the changed attention. The
        `LayerChange` overwrites the outputs of the queries at the positions `rows`, in the heads
        that the field `heads` selects.
        """
        heads = self._heads_of(stack, layer)
        return LayerChange(
            _shape(stack), attend, rows=dict.fromkeys(heads, rows) if len(rows) else {}
        )

    def _where(self, stack: AttentionStack) -> str:
        """Return the words for the changed layers and heads, such as "layer 1, head 0"."""
        layers = self._layers_of(stack)
        of = f" of the {stack.name} stack" if stack.name != "self" else ""
        if self.heads is None:
            return f"{format_named('layer', layers)}{of}, all heads"
        heads = self._heads_of(stack, layers[0])
        return f"{format_named('layer', layers)}{of}, {format_named('head', heads)}"

    def _in_some(self, stack: AttentionStack) -> str:
        """Return the words " in layer 1, head 0", or "" if all layers and heads are changed."""
        is_whole = self.layers is None and self.heads is None
        return "" if is_whole else f" in {self._where(stack)}"


def _numbers(name: str, numbers: Numbers, valid: Sequence[int], owner: str) -> tuple[int, ...]:
    if numbers is None:
        return tuple(valid)
    return tuple(sorted(set(existing_numbers(name, numbers, valid, owner))))


def _flags(
    name: str, selector: TokenSelector, tokens: Tokens, max_tokens: int | None = None
) -> Flags:
    """Return one flag per token, which is True for selected tokens. None selects all tokens.

    `selector` has positions or texts of tokens, or names of passages. Raise ValueError if it has
    none. If `selector` is an array of flags for a longer text that begins with `tokens`, only the
    flags of `tokens` are returned. `name` is the name of the argument in error messages. If the
    text may grow, pass its maximum number of tokens as `max_tokens`. The result then has
    `max_tokens` flags, and `selector` may also have positions of future tokens.
    """
    if isinstance(selector, np.ndarray) and selector.dtype == np.bool_:
        return selector[: len(tokens)]
    flags = np.zeros(max_tokens or len(tokens), np.bool_)
    if selector is None:
        return ~flags
    several = isinstance(selector, Iterable) and not isinstance(selector, str)
    selected: list[Any] = list(selector) if several else [selector]  # type: ignore[arg-type]
    if not selected:
        raise ValueError(f"{name}={selector!r} is empty. Pass at least one token.")
    for token in selected:
        passage = tokens.passage(token)
        if passage is not None:
            flags[passage.start : passage.stop] = True
            continue
        is_future = type(token) is int and len(tokens) <= token < len(flags)
        flags[token if is_future else tokens.position(token, name)] = True
    return flags


def _shape(stack: AttentionStack) -> tuple[int, int]:
    return len(stack.query_tokens), len(stack.key_tokens)


def _named(flags: Flags, tokens: Tokens) -> str:
    """Return the words for the selected tokens in the description of a change.

    These are up to `_NAMED` names of passages, and texts and positions of other tokens, and the
    number of further ones. If all are selected, the words are "all tokens".

    A change during a generation can select positions after the prompt. The generated text can end
    before these positions. Then none of `tokens` is selected, and the words are "a token that was
    not generated".
    """
    positions = np.flatnonzero(flags).tolist()
    if len(positions) == len(tokens):
        return "all tokens"
    if not positions:
        return "a token that was not generated"
    whole = [
        passage
        for passage in tokens.passages
        if passage.stop > passage.start + 1 and flags[passage.start : passage.stop].all()
    ]
    texts = [f"{quote(one.name)} ({one.stop - one.start} tokens)" for one in whole]
    rest = set(positions).difference(*(range(one.start, one.stop) for one in whole))
    texts += [f"{quote(tokens.text[token].strip('·'))} ({token})" for token in sorted(rest)]
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


@dataclass(frozen=True)
class Ablate(Change):
    """Ablation: the output of a head is multiplied by a factor, usually 0, or set to its mean.

    The weights of the head do not change. With ``factor=0`` this is the head mask of Michel et al.
    (2019, arXiv 1905.10650). With `mean_of` it is mean ablation (Wang et al. 2022, arXiv
    2211.00593).

    Parameters
    ----------
    layers, heads : int or iterable of int, optional
        Numbers of layers and heads, from 0. Negative numbers count from the end. All by default.
    factor : float, default 0.0
        Factor of the output: 0 removes it, 1 does not change it.
    stack : str, optional
        Name of the stack. Required if the model has several stacks.
    mean_of : object or list, optional
        Other texts, each as the inputs of `attnviz.extract`. The output of the head at every query
        is replaced by the head's mean output over all tokens of these texts. If the head has a
        gate, this is the output after the gate, which the head adds to the residual stream.
        `factor` cannot be combined with `mean_of`.

    Raises
    ------
    TypeError, ValueError
        If `factor` is not a finite number, or is not 0 although `mean_of` is passed.

    Examples
    --------
    >>> Ablate(layers=1, heads=0)
    Ablate(layers=1, heads=0, factor=0.0, stack=None, mean_of=None)
    """

    layers: Numbers = None
    heads: Numbers = None
    factor: float = 0.0
    stack: str | None = None
    mean_of: Any = None
    #: Mean outputs of the heads for each (stack, layer). None, except in the copies that
    #: `with_means` returns.
    _means: Mapping[StackLayer, MeanOutputs] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Raise an error if `factor` is not a finite number, or is not 0 with `mean_of`."""
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise TypeError(f"factor={self.factor!r} must be a number, 0 to remove the output")
        if not np.isfinite(self.factor):
            raise ValueError(f"factor={self.factor!r} must be finite")
        if self.mean_of is not None and self.factor != 0:
            raise ValueError(
                f"factor={self.factor!r} cannot be combined with mean_of. Pass only one of them."
            )

    def _of_layer(self, stack: AttentionStack, layer: int) -> LayerChange:
        heads = self._heads_of(stack, layer)
        if self.mean_of is None:
            return LayerChange(_shape(stack), factors=dict.fromkeys(heads, float(self.factor)))
        means = None if self._means is None else self._means.get((stack.name, layer))
        if means is None:
            raise ValueError(
                f"mean_of: the texts did not run through layer {layer} of stack {stack.name!r}, so "
                "that its mean is unknown"
            )
        outputs = {head: means.vectors[head] for head in heads}
        return LayerChange(_shape(stack), outputs=outputs, projection=means.projection)

    def _describe(self, stack: AttentionStack) -> str:
        if self.mean_of is not None:
            count = len(self.mean_of) if isinstance(self.mean_of, list) else 1
            texts = "another text" if count == 1 else f"{count} other texts"
            return f"The output is set to its mean over {texts} in {self._where(stack)}"
        if self.factor == 0:
            return f"The output is set to 0 in {self._where(stack)}"
        return f"The output is multiplied by {self.factor:g} in {self._where(stack)}"

    def _label(self, stack: AttentionStack) -> str:
        if self.mean_of is not None:
            return f"{self._where(stack)} set to the mean"
        return f"{self._where(stack)} " + (f"× {self.factor:g}" if self.factor else "ablated")


def with_means(change: Ablate, means: Mapping[StackLayer, MeanOutputs]) -> Ablate:
    """Return a copy of `change` that stores the mean outputs of the heads.

    `means` has these mean outputs for each (stack, layer).
    """
    made = replace(change)
    object.__setattr__(made, "_means", means)
    return made


@dataclass(frozen=True)
class Knockout(Change):
    """Removal of query-key pairs: the query does not attend to the key.

    Parameters
    ----------
    queries, keys : int, str or sequence of these, optional
        Tokens by position, or by a text that occurs only once, or all tokens of a passage by its
        name. Negative positions count from the end. All by default.
    layers, heads : int or iterable of int, optional
        Numbers of layers and heads, from 0. Negative numbers count from the end. All by default.
    renormalize : bool, default True
        If True, the pairs are removed before the softmax, and the weight of the pairs goes to the
        other keys of the query (attention knockout, Geva et al. 2023, arXiv 2304.14767). If False,
        the weights are set to 0 after the softmax, and the row sums to less than 1. Notes and
        captions state whether pairs were removed before or after the softmax.
    stack : str, optional
        Name of the stack. Required if the model has several stacks.

    Notes
    -----
    If all keys of a query are removed, the output of the head at this query is 0.

    Examples
    --------
    >>> Knockout(queries="it", keys="animal", layers=3, heads=1)  # doctest: +ELLIPSIS
    Knockout(queries='it', keys='animal', layers=3, heads=1, renormalize=True, stack=None)
    """

    queries: TokenSelector = None
    keys: TokenSelector = None
    layers: Numbers = None
    heads: Numbers = None
    renormalize: bool = True
    stack: str | None = None

    def _pairs(self, stack: AttentionStack) -> tuple[Flags, Flags]:
        return (
            _flags("queries", self.queries, stack.query_tokens),
            _flags("keys", self.keys, stack.key_tokens),
        )

    def _of_layer(self, stack: AttentionStack, layer: int) -> LayerChange:
        heads, (queries, keys) = self._heads_of(stack, layer), self._pairs(stack)

        def attend(attention: LayerAttention) -> LayerAttention:
            if self.renormalize:
                return remove_pairs(attention, heads, queries, keys)
            pairs = CutMask(torch.tensor([True]), torch.from_numpy(queries), torch.from_numpy(keys))
            return CutWeights(attention, heads, pairs)

        return self._reweighted(stack, layer, np.flatnonzero(queries), attend)

    def _for_generation(self, stack: AttentionStack, most: tuple[int, int]) -> Change:
        queries, keys = self.queries, self.keys
        if queries is not None:
            queries = _flags("queries", queries, stack.query_tokens, most[0])
        if keys is not None:
            keys = _flags("keys", keys, stack.key_tokens, most[1])
        return replace(self, queries=queries, keys=keys)

    def _describe(self, stack: AttentionStack) -> str:
        queries, keys = self._pairs(stack)
        when = "before" if self.renormalize else "after"
        cut = "Cut" if stack.signed else f"Cut {when} the softmax"
        return (
            f"{cut}: {_named(queries, stack.query_tokens)} does not read "
            f"{_named(keys, stack.key_tokens)} in {self._where(stack)}"
        )

    def _label(self, stack: AttentionStack) -> str:
        queries, keys = self._pairs(stack)
        pair = f"{_named(queries, stack.query_tokens)} → {_named(keys, stack.key_tokens)}"
        return f"{pair} cut{self._in_some(stack)}"


@dataclass(frozen=True)
class HideTokens(Change):
    """Hiding of tokens: no token attends to a hidden token.

    The only exception is that a hidden token can attend to itself in self-attention. Hiding one
    token is leave-one-out by masking.

    Parameters
    ----------
    tokens : int, str or sequence of these
        Tokens by position, or by a text that occurs only once, or all tokens of a passage by its
        name. Negative positions count from the end.
    layers, heads : int or iterable of int, optional
        Numbers of layers and heads, from 0. Negative numbers count from the end. All by default.
    stack : str, optional
        Name of the stack. Required if the model has several stacks.

    Examples
    --------
    >>> HideTokens("it").tokens
    'it'
    """

    tokens: TokenSelector
    layers: Numbers = None
    heads: Numbers = None
    stack: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if `tokens` is None, which would hide all tokens."""
        if self.tokens is None:
            raise ValueError("tokens=None: pass the tokens to hide, by position or text")

    def _of_layer(self, stack: AttentionStack, layer: int) -> LayerChange:
        """Return the change that removes the hidden keys.

        In causal attention, it applies to the queries after the first hidden token, otherwise to
        all queries. A hidden token can still attend to itself.
        """
        heads = self._heads_of(stack, layer)
        keys = _flags("tokens", self.tokens, stack.key_tokens)
        queries = np.ones(len(stack.query_tokens), np.bool_)
        same = stack.key_tokens is stack.query_tokens
        own_keys = np.arange(len(queries)) if same else None
        first = int(keys.argmax()) + 1 if stack.causal else 0

        def attend(attention: LayerAttention) -> LayerAttention:
            return remove_pairs(attention, heads, queries, keys, own_keys)

        return self._reweighted(stack, layer, np.arange(first, len(queries)), attend)

    def _for_generation(self, stack: AttentionStack, most: tuple[int, int]) -> Change:
        return replace(self, tokens=_flags("tokens", self.tokens, stack.key_tokens, most[1]))

    def _describe(self, stack: AttentionStack) -> str:
        hidden = _named(_flags("tokens", self.tokens, stack.key_tokens), stack.key_tokens)
        where = self._where(stack)
        if stack.signed:
            # Only the value is hidden: a convolution before a linear layer may have mixed the token
            # with the tokens after it.
            return f"Hidden: no other token reads the value of {hidden} in {where}"
        return f"Hidden before the softmax: no other token reads {hidden} in {where}"

    def _label(self, stack: AttentionStack) -> str:
        hidden = _named(_flags("tokens", self.tokens, stack.key_tokens), stack.key_tokens)
        return f"{hidden} hidden{self._in_some(stack)}"


@dataclass(frozen=True, eq=False)
class SetWeights(Change):
    """Replacement of the weights of heads.

    Parameters
    ----------
    layers, heads : int or iterable of int, optional
        Numbers of layers and heads, from 0. Negative numbers count from the end. All by default.
    weights : array, AttentionRecord, "uniform" or "previous token"
        - An array has the shape (queries, keys), or (heads, queries, keys) for the selected heads.
          The weights of each query must sum to 1.
        - A record provides the weights of the same layers and heads on another text, which must
          have the same number of tokens (attention patching).
        - ``"uniform"`` sets the same weight for every key that the query may attend to.
        - ``"previous token"`` sets the weight 1 for the token before the query. The first query
          does not change.
    stack : str, optional
        Name of the stack. Required if the model has several stacks.

    Raises
    ------
    ValueError
        If `weights` is None or another string.

    Examples
    --------
    >>> SetWeights(layers=1, heads=0, weights="uniform").weights
    'uniform'
    """

    layers: Numbers = None
    heads: Numbers = None
    weights: Any = None
    stack: str | None = None
    #: Number of queries and number of keys in the prompt, if the model generates a text and
    #: `weights` is an array or a record. These weights apply only to queries in the prompt. Queries
    #: that are generated tokens keep the weights of the model. None in all other cases.
    _prompt_size: tuple[int, int] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError if `weights` is None or another string than the two valid ones."""
        valid = ("uniform", "previous token")
        if self.weights is None or (isinstance(self.weights, str) and self.weights not in valid):
            raise ValueError(
                f'weights={self.weights!r} must be an array, a record, "uniform" or '
                '"previous token"'
            )

    def _of_layer(self, stack: AttentionStack, layer: int) -> LayerChange:
        first = 1 if isinstance(self.weights, str) and self.weights == "previous token" else 0
        last = len(stack.query_tokens) if self._prompt_size is None else self._prompt_size[0]
        rows = np.zeros(len(stack.query_tokens), np.bool_)
        rows[first:last] = True

        def attend(attention: LayerAttention) -> LayerAttention:
            return ReplacedWeights(attention, self._instead(stack, layer, attention), rows)

        # Raise an error before the model runs if the weights do not fit the layer.
        self._instead(stack, layer, stack.attention(layer))
        return self._reweighted(stack, layer, np.flatnonzero(rows), attend)

    def _for_generation(self, stack: AttentionStack, most: tuple[int, int]) -> Change:
        """Return the change for a text that the model generates.

        The weights of an array or of a record apply only to the tokens of `stack`, the prompt.
        """
        del most
        if isinstance(self.weights, str):
            return self
        made = replace(self)
        object.__setattr__(made, "_prompt_size", _shape(stack))
        return made

    def _instead(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> dict[int, tuple[LayerAttention, int]]:
        replacements = self._sources(stack, layer, attention)
        size = attention.num_queries, attention.num_keys
        if self._prompt_size is None or self._prompt_size == size:
            return replacements
        # Add rows and columns of zeros for the generated tokens. `in_units` merges the rows (or
        # columns) starts[i] to starts[i + 1] - 1 of the source into row i of the result. For a
        # token of the prompt, this is row i alone. For a generated token, the range is empty, which
        # gives zeros.
        starts = [
            np.minimum(np.arange(count), prompt)
            for count, prompt in zip(size, self._prompt_size, strict=True)
        ]
        return {
            head: (in_units(source, starts[0], starts[1]), source_head)
            for head, (source, source_head) in replacements.items()
        }

    def _sources(
        self, stack: AttentionStack, layer: int, attention: LayerAttention
    ) -> dict[int, tuple[LayerAttention, int]]:
        heads = self._heads_of(stack, layer)
        size = self._prompt_size or (attention.num_queries, attention.num_keys)
        if isinstance(self.weights, AttentionRecord):
            other = self.weights.stack(stack.name)
            source = other.attention(layer)
            if (source.num_queries, source.num_keys) != size:
                raise ValueError(
                    f"weights: the record has {source.num_queries} x {source.num_keys} tokens in "
                    f"stack {stack.name!r}, but the text has {size[0]} x {size[1]}. Pass a record "
                    "of a text with the same number of tokens."
                )
            return {head: (source, other.head_number(layer, head)) for head in heads}
        if not isinstance(self.weights, str):
            stored = _checked_weights(self.weights, heads, size, signed=stack.signed)
            return {head: (stored, index % stored.num_heads) for index, head in enumerate(heads)}
        if self.weights == "uniform":
            # A layer with signed weights is linear. It has no vectors, but its mask is known: it is
            # causal.
            if not stack.signed and attention.original.vectors is None:
                raise ValueError(
                    f"weights='uniform' needs to know to which keys a query of layer {layer} may "
                    "attend. Pass an array."
                )
            return {head: (UniformWeights(attention), head) for head in heads}
        if stack.key_tokens is not stack.query_tokens:
            raise ValueError(
                f"weights='previous token' needs self-attention, but stack {stack.name!r} has "
                "different tokens as queries and keys"
            )
        zeros = torch.zeros(1, attention.num_queries, 1)
        before = QueryKeyAttention(zeros, zeros, scale=1.0, mask=BandMask(1, -1))
        return dict.fromkeys(heads, (before, 0))

    def _describe(self, stack: AttentionStack) -> str:
        what = "to the passed weights"
        if isinstance(self.weights, AttentionRecord):
            what = "to those of another text"
        elif isinstance(self.weights, str):
            is_uniform = self.weights == "uniform"
            what = (
                f"to {'the same value for every key' if is_uniform else '1 for the previous token'}"
            )
        return f"Weights are set {what} in {self._where(stack)}"

    def _label(self, stack: AttentionStack) -> str:
        return f"weights of {self._where(stack)} set"


def _checked_weights(
    weights: Any, heads: Sequence[int], size: tuple[int, int], *, signed: bool
) -> StoredWeights:
    array = as_array(weights, np.float32)
    values = torch.as_tensor(array[None] if array.ndim == 2 else array)
    if tuple(values.shape) not in {(1, *size), (len(heads), *size)}:
        raise ValueError(
            f"weights has shape {array.shape}. It must be {size}, queries and keys, "
            f"or {(len(heads), *size)} for the {len(heads)} selected heads."
        )
    is_one = (values.sum(dim=-1) - 1).abs() <= _ROUNDING
    if not signed and (not bool((values >= 0).all()) or not bool(is_one.all())):
        raise ValueError("weights must not be negative, and every row must sum to 1")
    return StoredWeights(values)


def description_of(change: Change, stack: AttentionStack) -> str:
    """Return a sentence that describes the change, without a full stop."""
    return change._describe(stack)


def label_of(changes: Sequence[Change], outline: AttentionRecord) -> str:
    """Return a few words that name changes in the title of a picture, such as “it” (7) hidden.

    `outline` has the stacks of the unchanged run.
    """
    if len(changes) > _MAX_NAMED_CHANGES:
        return f"{len(changes)} changes"
    return "; ".join(change._label(outline.stack(change.stack)) for change in changes)


def for_generation(change: Change, stack: AttentionStack, most: tuple[int, int]) -> Change:
    """Return the change for a text that the model generates after the tokens of `stack`.

    `most` has the maximum number of queries and the maximum number of keys at the end of the
    generation. The returned change selects tokens by position, because token texts may occur again
    in the generated text. The weights of `SetWeights` from an array or a record apply only to the
    tokens of `stack`.
    """
    return change._for_generation(stack, most)


def layer_change(
    changes: Sequence[Change], stack: AttentionStack, layer: int
) -> LayerChange | None:
    """Return one `LayerChange` that applies all `changes` to a layer of `stack`, in their order.

    Return None if none of `changes` applies to this layer.
    """
    parts = [
        change._of_layer(stack, layer) for change in changes if layer in change._layers_of(stack)
    ]
    return reduce(LayerChange.then, parts) if parts else None


def plan_of(
    changes: Sequence[Change], outline: AttentionRecord, module_runs: ModuleRuns
) -> ForwardChange:
    """Return for each `ModuleRun` of a forward the `LayerChange` that applies `changes`.

    `outline` is a record with all layers of the model but without attention, as `outline_of`
    returns it. Module runs without a change are left out. Raise TypeError, ValueError or IndexError
    if a change cannot be applied.
    """
    by_stack = changes_by_stack(changes, outline)
    plan = {}
    for (name, number), module_run in module_runs.items():
        change_of_layer = layer_change(by_stack.get(name, ()), outline.stack(name), number)
        if change_of_layer is not None:
            plan[module_run] = change_of_layer
    return plan


def changes_by_stack(
    changes: Sequence[Change], outline: AttentionRecord
) -> dict[str, list[Change]]:
    """Group changes by the name of the stack to which they apply.

    Raise ValueError if a change names a stack that does not exist, or names no stack although
    `outline` has several.
    """
    by_stack: dict[str, list[Change]] = {}
    for change in changes:
        if change.stack is None and len(outline.stacks) > 1:
            raise ValueError(
                f"{type(change).__name__}: stack is required. Pass one of "
                f"{', '.join(map(repr, outline.stacks))}."
            )
        by_stack.setdefault(outline.stack(change.stack).name, []).append(change)
    return by_stack


def identity_of(change: ForwardChange) -> ForwardChange:
    """Return changes that compute outputs of heads again from the unchanged weights.

    The returned changes overwrite the outputs that `change` computes from changed weights. A run
    with the returned changes differs from the unchanged run only by rounding errors, which are the
    noise of the effect. `Ablate` does not change weights, so no output is overwritten for it.
    """
    return {module_run: layer_change.identity for module_run, layer_change in change.items()}


# Classes of the changes that a view can make, with the fields of their JSON form. The JSON form of
# every class also has the fields ``stack``, ``layers`` and ``heads``.
_JSON_FIELDS: dict[type[Change], tuple[str, ...]] = {
    Ablate: (),
    HideTokens: ("tokens",),
    Knockout: ("queries", "keys", "renormalize"),
}


def change_to_json(change: Change) -> dict[str, Any]:
    """Return the JSON form of a change that `change_for_view` returned.

    The entry ``kind`` is the name of the change's class. The other entries are its fields.

    >>> change_to_json(HideTokens(3))
    {'kind': 'HideTokens', 'stack': None, 'layers': None, 'heads': None, 'tokens': 3}
    """
    names = ("stack", "layers", "heads", *_JSON_FIELDS[type(change)])
    return {"kind": type(change).__name__, **{name: getattr(change, name) for name in names}}


def change_from_json(value: Mapping[str, Any]) -> Change:
    """Return the change that a JSON form describes.

    Raise TypeError or ValueError if the class or a field does not exist or is not valid.

    >>> change_from_json({"kind": "Ablate", "layers": 1, "heads": 0, "stack": "self"})
    Ablate(layers=1, heads=0, factor=0.0, stack='self', mean_of=None)
    """
    kinds = {kind.__name__: kind for kind in _JSON_FIELDS}
    kind = kinds.get(value.get("kind", ""))
    if kind is None:
        raise ValueError(f"kind={short_repr(value.get('kind'))} must be one of {', '.join(kinds)}")
    return kind(**{name: field for name, field in value.items() if name != "kind"})


def change_for_view(change: Change, stack: AttentionStack) -> Change:
    """Return `change` as a change that a view can make.

    In the result, each field that selects layers, heads or tokens is one number, or None for all.
    Raise TypeError if a view cannot make such a change: `SetWeights`, or `Ablate` with a factor
    other than 0 or with `mean_of`. Raise ValueError if a field is not None and does not select
    exactly one layer, head or token. Raise TypeError, ValueError or IndexError if the change cannot
    be applied to `stack`.
    """
    scales = isinstance(change, Ablate) and (change.factor != 0 or change.mean_of is not None)
    if type(change) not in _JSON_FIELDS or scales:
        raise TypeError(
            f"{short_repr(change)}: a view makes Knockout, HideTokens, and Ablate with factor=0. "
            "Use attnviz.intervene for other changes."
        )
    layers = change._layers_of(stack)
    for layer in layers:
        change._of_layer(stack, layer)
    numbers: dict[str, Any] = {"layers": layers, "heads": change._heads_of(stack, layers[0])}
    tokens = {"queries": stack.query_tokens, "keys": stack.key_tokens, "tokens": stack.key_tokens}
    for name in tokens.keys() & {*_JSON_FIELDS[type(change)]}:
        numbers[name] = np.flatnonzero(_flags(name, getattr(change, name), tokens[name])).tolist()
    single: dict[str, Any] = {"stack": stack.name}
    for name, selected in numbers.items():
        value = getattr(change, name)
        if value is not None and len(selected) != 1:
            raise ValueError(f"{name}={short_repr(value)}: a view selects one, or all with None")
        single[name] = None if value is None else selected[0]
    return replace(change, **single)  # type: ignore[type-var]  # every change is a dataclass
