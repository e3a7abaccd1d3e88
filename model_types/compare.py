"""Comparison of a record with a model's own attention weights, by layer and head.

A record is what `attnviz.extract` returns. It has stacks. A stack is the attention of one kind,
such as "self", "cross" or "vision", in all layers.

The model's own weights are those that the model itself returns. Each field of its output with
attention weights, such as "decoder_attentions", has a list with one tensor for each layer. Weights
that are in no field come from the attention modules. A field does not say to which stack it
belongs. Therefore it is compared with several stacks, and the stack that fits best counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz import AttentionRecord
from attnviz.record.attention import LayerAttention
from model_types.reference import Weights
from model_types.shapes import layouts

# Maximum difference between a weight of the record and the model's own weight that counts as equal:
# about three times the difference that float32 rounding causes. This difference is estimated so:
# - A logit of the tiny models is a sum of terms. The absolute values of the terms sum to at most
#   300.
# - A logit is rounded about 20 times, each time with a relative error of at most 6e-8. The error of
#   the logit is then at most 20 * 6e-8 * 300 = 3.6e-4.
# - The errors of independent roundings partly cancel. About a tenth of the error remains, 3.6e-5.
# - The error of a weight is at most half the error of its logits, because of the softmax: 1.8e-5.
# - The record and the model both have this error. The two errors add up to 3.6e-5.
TOLERANCE = 1e-4
# Maximum difference that rounding may cause after several layers. If the largest difference is
# between `TOLERANCE` and this limit, the check repeats the comparison in float64, and then requires
# `TOLERANCE`. `_spread` also uses this limit to decide whether a layer fits. With `TOLERANCE`, no
# layer might fit, and then the comparison could not be repeated.
ROUNDED = 2e-3
# Maximum number of layouts that are tried for a tensor (see `model_types.shapes`).
_MAX_LAYOUTS = 60
# Maximum difference between the weights of a row that counts as uniform.
_EVEN = 1e-6

Array = NDArray[np.float32]
# For each layer: name of its stack, number of the layer, and attention.
Layers = list[tuple[str, int, LayerAttention]]

# Each entry has a pattern for names of output fields, and the stacks whose weights such a field may
# have. The stacks are listed by the beginnings of their names, the most likely stack first. For
# each field, only the first entry with a matching pattern counts.
_STACKS = (
    (re.compile(r"^linear matrices$"), ("linear",)),
    (re.compile(r"qformer|projection|perceiver|connector"), ("connector", "cross", "pooling")),
    (re.compile(r"cross"), ("cross", "connector")),
    (re.compile(r"decoder_attentions"), ("decoder", "self")),
    (re.compile(r"encoder_attentions"), ("encoder", "vision", "audio", "self")),
    (re.compile(r"vision|image|pixel|video"), ("vision", "encoder", "connector")),
    (re.compile(r"audio|speech"), ("audio", "encoder", "self")),
    (re.compile(r"text|language|lm_"), ("self", "text", "decoder", "encoder")),
    (
        re.compile(r""),
        ("self", "vision", "decoder", "encoder", "audio", "connector", "pooling", "text"),
    ),
)


@dataclass
class Pair:
    """A layer of a record, and own weights of the model that may be those of this layer.

    `error` is the largest difference between the two.
    """

    stack: str
    layer: int
    attention: LayerAttention
    own: Array
    error: float = field(init=False)

    def __post_init__(self) -> None:
        self.error = self.difference(layer_weights(self.attention))

    def difference(self, weights: Array) -> float:
        """Return the largest difference between `weights` and the model's own weights.

        If the own weights are equal in all heads, they are the mean over heads, which
        `torch.nn.MultiheadAttention` returns. Then the mean of `weights` over heads is compared.

        A row has the weights of one query. Rows of queries that have no allowed key are not
        compared. Such rows are 0 in a record, and uniform or NaN in a model.
        """
        if len(self.own) > 1 and bool((self.own == self.own[:1]).all()):
            weights = np.broadcast_to(weights.mean(axis=0), weights.shape)
        nothing = ~weights.any(axis=-1) & ~(np.ptp(self.own, axis=-1) > _EVEN)
        return float(np.abs(weights - self.own)[~nothing].max(initial=0.0))


@dataclass
class Match:
    """Layers of the record that fit a list of the model's own weights best.

    `field` is the name of the output field with the list. If the list is in no field, `field` is
    the name of the group of modules that returned the weights. A group has the modules whose names
    differ only in numbers.
    """

    field: str
    stack: str
    pairs: list[Pair]

    @property
    def error(self) -> float:
        """Largest difference between the weights of these layers and the model's own weights."""
        return max(pair.error for pair in self.pairs)


@dataclass
class Comparison:
    """Result of comparing a record with the model's own weights."""

    matches: list[Match]
    # Fields of the output that fit no layers of the record, each with the reason.
    unmatched: list[str]
    # Layers of the record for which the model returns no own weights, by the name of their stack.
    # If the stack also has other layers, the key also says how many layers are unverified.
    unverified: dict[str, Layers]

    @property
    def error(self) -> float:
        """Largest difference of all matches, or 0 without matches."""
        return max((match.error for match in self.matches), default=0.0)

    @property
    def right(self) -> bool:
        """Whether there are matches, all fields are matched, and no error exceeds `TOLERANCE`."""
        return bool(self.matches) and not self.unmatched and self.error <= TOLERANCE


def layer_weights(attention: LayerAttention) -> Array:
    """Return all weights of a layer, (heads, queries, keys)."""
    rows = slice(0, attention.num_queries)
    weights: Array = attention.block(range(attention.num_heads), rows).numpy()
    return weights


def compare(record: AttentionRecord, own: Weights, modules: Weights) -> Comparison:
    """Compare a record with a model's own weights.

    `own` has the weights in the fields of the model's output. `modules` has the weights that the
    attention modules return. First find layers of the record for each field. Then find modules for
    the remaining layers.
    """
    groups = _groups(record)
    matches: list[Match] = []
    unmatched: list[str] = []
    joined = _joined(own)
    for name, tensors in own.items():
        best, problem = _best(name, list(_candidates(name, groups)), groups, tensors)
        if name in joined and (best is None or best.error > TOLERANCE):
            best = _best(name, list(groups), groups, joined[name])[0] or best
        if best is None:
            best = _spread(name, [layer for layers in groups.values() for layer in layers], tensors)
        if best is None:
            unmatched.append(f"{name}: {problem}")
        else:
            matches.append(best)
    unverified: dict[str, Layers] = {}
    for stack in record.stacks.values():
        used = {id(pair.attention) for match in matches for pair in match.pairs}
        remaining = [
            (stack.name, number, stack.attention(number))
            for number in stack.layers
            if id(stack.attention(number)) not in used
        ]
        if not remaining:
            continue
        match = _by_modules(stack.name, remaining, own, modules)
        if match is not None:
            matches.append(match)
        else:
            part = (
                "" if len(remaining) == stack.num_layers else f" ({len(remaining)} of its layers)"
            )
            unverified[f"{stack.name}{part}"] = remaining
    return Comparison(matches, unmatched, unverified)


def _groups(record: AttentionRecord) -> dict[str, Layers]:
    """Return the layers of a record by the name of their stack.

    The stacks "vision stage 1", "vision stage 2" and so on are one group, "vision", because a field
    of the output has the weights of all stages.
    """
    groups: dict[str, Layers] = {}
    for name, stack in record.stacks.items():
        tower = re.sub(r"\s*stage \d+", "", name)
        groups.setdefault(tower, []).extend(
            (name, number, stack.attention(number)) for number in stack.layers
        )
    return groups


def _joined(own: Weights) -> dict[str, list[torch.Tensor | None]]:
    """Join the weights of self- and cross-attention along the keys.

    Some decoders compute one softmax over the keys of self- and cross-attention. Their record has
    one stack for both, but their output has two fields. The result has the joined weights under the
    names of both fields, so that `compare` finds the joined weights for each field. Return {} if
    the output lacks one of these fields, or if their tensors do not fit together.
    """
    selves = "decoder_attentions" if "decoder_attentions" in own else "attentions"
    names = (selves, "cross_attentions")
    if not all(name in own for name in names):
        return {}
    parts = list(zip(own[names[0]], own[names[1]], strict=False))
    together = [
        torch.cat([one, other], dim=-1)
        for one, other in parts
        if one is not None and other is not None and one.shape[:-1] == other.shape[:-1]
    ]
    if len(together) < len(parts):
        return {}
    return {name: list(together) for name in names}


def _candidates(name: str, groups: dict[str, Layers]) -> Iterator[str]:
    for pattern, beginnings in _STACKS:
        if not pattern.search(name):
            continue
        yielded: set[str] = set()
        for beginning in beginnings:
            for group in groups:
                if group.startswith(beginning) and group not in yielded:
                    yielded.add(group)
                    yield group
        return


def _best(
    name: str,
    candidates: Sequence[str],
    groups: dict[str, Layers],
    tensors: Sequence[torch.Tensor | None],
) -> tuple[Match | None, str]:
    matches: list[Match] = []
    problems: list[str] = []
    for group in candidates:
        result = _match(name, group, groups[group], tensors)
        if isinstance(result, str):
            problems.append(f"{group}: {result}")
        else:
            matches.append(result)
    if matches:
        return min(matches, key=lambda match: match.error), ""
    return None, "; ".join(problems) or f"no stack among {', '.join(groups)}"


def _match(
    name: str, group: str, layers: Layers, tensors: Sequence[torch.Tensor | None]
) -> Match | str:
    numbered = [(index, tensor) for index, tensor in enumerate(tensors) if tensor is not None]
    if len(numbered) > len(layers):
        return f"{len(numbered)} layers in the model's own weights, {len(layers)} in the record"
    if len(numbered) < len(layers):
        return _some_of(name, group, layers, [tensor for _, tensor in numbered])
    pairs = []
    for (index, tensor), layer in zip(numbered, layers, strict=True):
        # If `tensors` contains None for layers without attention, its indices are layer numbers,
        # which must equal those of the record.
        if len(numbered) < len(tensors) and index != layer[1]:
            return f"own weights of layer {index} correspond to layer {layer[1]} of the record"
        pair = _pair(layer, tensor)
        if pair is None:
            return _shapes(layer, tensor)
        pairs.append(pair)
    return Match(name, group, pairs)


def _some_of(name: str, group: str, layers: Layers, tensors: Sequence[torch.Tensor]) -> Match | str:
    """Find the layer of each tensor, if there are fewer tensors than layers.

    The tensors are in the order of the layers. Therefore, the search for a tensor starts after the
    layer of the previous tensor. Return an error message if a tensor equals the weights of no
    remaining layer.
    """
    pairs: list[Pair] = []
    remaining = iter(layers)
    for tensor in tensors:
        candidates = (_pair(layer, tensor) for layer in remaining)
        pair = next((p for p in candidates if p is not None and p.error <= TOLERANCE), None)
        if pair is None:
            return f"{len(tensors)} layers in the model's own weights, {len(layers)} in the record"
        pairs.append(pair)
    return Match(name, group, pairs)


def _spread(name: str, layers: Layers, tensors: Sequence[torch.Tensor | None]) -> Match | None:
    """Find the layers for a field that has the weights of several stacks.

    For example, a field of Mllama has the weights of self-attention and of cross-attention. Return
    None if a tensor of the field fits no layer.
    """
    remaining = list(layers)
    pairs: list[Pair] = []
    for index, tensor in enumerate(tensors):
        if tensor is None:
            continue
        # Try the layer with the number `index` first, and then the other layers in their order.
        for layer in sorted(remaining, key=lambda layer: layer[1] != index):
            pair = _pair(layer, tensor)
            if pair is not None and pair.error <= ROUNDED:
                remaining.remove(layer)
                pairs.append(pair)
                break
        else:
            return None
    return Match(name, " + ".join(dict.fromkeys(pair.stack for pair in pairs)), pairs)


def _pair(layer: tuple[str, int, LayerAttention], tensor: torch.Tensor) -> Pair | None:
    stack, number, attention = layer
    shape = (attention.num_heads, attention.num_queries, attention.num_keys)
    best: Pair | None = None
    for own in islice(layouts(tensor, *shape), _MAX_LAYOUTS):
        pair = Pair(stack, number, attention, own)
        if best is None or pair.error < best.error:
            best = pair
        if best.error <= TOLERANCE:
            break
    return best


def _shapes(layer: tuple[str, int, LayerAttention], tensor: torch.Tensor) -> str:
    _, number, attention = layer
    shape = (attention.num_heads, attention.num_queries, attention.num_keys)
    return f"layer {number}: own weights {tuple(tensor.shape)}, record {shape}"


def _by_modules(stack: str, remaining: Layers, own: Weights, modules: Weights) -> Match | None:
    """Find the group of modules that fits the remaining layers of a stack best.

    `modules` has the weights that the modules returned, by group. `own` has the weights in the
    model's output. Return None if no group fits.
    """
    outputs = [tensor for tensors in own.values() for tensor in tensors if tensor is not None]
    matches: list[Match] = []
    for name, tensors in modules.items():
        computed = [
            tensor
            for tensor in tensors
            # Skip weights that are also in the output, because they have been compared already.
            if tensor is not None and not any(torch.equal(tensor, other) for other in outputs)
        ]
        if len(computed) == len(remaining) and isinstance(
            match := _match(name, stack, remaining, computed), Match
        ):
            matches.append(match)
        elif len(computed) > len(remaining):
            # A group can have the modules of all stages of an image model, while the remaining
            # layers are those of one stage.
            pairs = _in_order(remaining, computed)
            if pairs is not None:
                matches.append(Match(name, stack, pairs))
    return min(matches, key=lambda match: match.error, default=None)


def _in_order(layers: Layers, tensors: Sequence[torch.Tensor]) -> list[Pair] | None:
    """Find an equal tensor for each layer.

    The tensors are in the order of the layers, but some tensors may belong to no layer. Return None
    if a layer has no equal tensor.
    """
    pairs: list[Pair] = []
    remaining = iter(tensors)
    for layer in layers:
        candidates = (_pair(layer, tensor) for tensor in remaining)
        pair = next((p for p in candidates if p is not None and p.error <= TOLERANCE), None)
        if pair is None:
            return None
        pairs.append(pair)
    return pairs
