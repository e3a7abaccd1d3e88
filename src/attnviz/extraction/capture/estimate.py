"""What keeping queries and keys will take, told before a model runs.

Counted are the queries and keys of every attention over the tokens of a text, and the weights of
torch's own ``nn.MultiheadAttention``, of which nothing else is known. Not counted are those over
patches and frames, whose number only the model knows; masks and position biases, which nearly
always are a few numbers each; and weights that a model computes past the dispatcher, which are kept
only where its queries and keys don't account for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attnviz.extraction.inputs.batch import Side
from attnviz.extraction.modules import AttentionModule, layer_numbers
from attnviz.extraction.options import Keeping

__all__ = ["LayerSize", "layer_sizes", "needed_memory"]

_NUM_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_HEAD_DIM = ("qk_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim")
_NUM_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")


@dataclass(frozen=True)
class LayerSize:
    """How large the attention of a layer is.

    Attributes
    ----------
    number : int or None
        The model's number of the layer; None where only a run tells.
    num_heads, num_key_heads, head_dim : int
        As the model's configuration says.
    lengths : tuple of (int, int)
        For each example its number of queries and of keys.
    dtype : dtype
        As what its queries and keys will be received.
    device : device
        Where.
    as_weights : bool
        Whether weights are all that is known.
    """

    number: int | None
    num_heads: int
    num_key_heads: int
    head_dim: int
    lengths: tuple[tuple[int, int], ...]
    dtype: torch.dtype
    device: torch.device
    as_weights: bool = False

    def size(self, keeping: Keeping) -> int:
        """Bytes that it takes.

        Parameters
        ----------
        keeping : Keeping
            What is kept of it, and as what.

        Returns
        -------
        int
        """
        if self.number is None:
            heads: Sequence[int] = range(self.num_heads) if keeping.everything else ()
        else:
            heads = keeping.heads_of(self.number, self.num_heads)
        if self.as_weights:
            entries = len(heads) * sum(queries * keys for queries, keys in self.lengths)
            return entries * (keeping.dtype or torch.float32).itemsize
        group = max(1, self.num_heads // self.num_key_heads)
        num_key_heads = len({head // group for head in heads})
        vectors = sum(len(heads) * queries + num_key_heads * keys for queries, keys in self.lengths)
        return vectors * self.head_dim * (keeping.dtype or self.dtype).itemsize


def layer_sizes(
    model: nn.Module, stacks: Mapping[str, Sequence[AttentionModule]], sides: Mapping[str, Side]
) -> list[LayerSize]:
    """Read the sizes of a model's layers, of those that attend over the tokens of a text.

    Parameters
    ----------
    model : PreTrainedModel
        Any model.
    stacks : mapping of str to sequence of AttentionModule
        The modules of each stack.
    sides : mapping of str to Side
        The tokens: ``"input"`` and, for an encoder-decoder model, ``"decoder"``.

    Returns
    -------
    list of LayerSize
        Without modules whose configuration doesn't tell.
    """
    found = []
    for stack, entries in stacks.items():
        lengths = _lengths(stack, sides)
        numbers: Sequence[int | None] = layer_numbers([entry.name for entry in entries]) or [
            None for _ in entries
        ]
        for number, entry in zip(numbers, entries, strict=True):
            size = _layer_size(model, entry, number, lengths)
            if lengths and size is not None:
                found.append(size)
    return found


def _lengths(stack: str, sides: Mapping[str, Side]) -> tuple[tuple[int, int], ...]:
    names = {
        "self": ("input", "input"),
        "encoder": ("input", "input"),
        "decoder": ("decoder", "decoder"),
        "cross": ("decoder", "input"),
    }.get(stack, ())
    if not names or not set(names) <= set(sides):
        return ()
    counts = [
        [side.length if kept is None else len(kept) for kept in side.kept]
        for side in (sides[name] for name in names)
    ]
    return tuple(zip(*counts, strict=False))


def _layer_size(
    model: Any, entry: AttentionModule, number: int | None, lengths: tuple[tuple[int, int], ...]
) -> LayerSize | None:
    module = entry.module
    config = _config_of(model, entry.name)
    num_heads = _first(module, _NUM_HEADS) or _first(config, _NUM_HEADS)
    width = _first(config, ("hidden_size", "d_model"))
    head_dim = _first(module, _HEAD_DIM) or _first(config, _HEAD_DIM)
    if num_heads is None or (head_dim is None and width is None):
        return None
    groups = _first(module, ("num_key_value_groups",))
    num_key_heads = num_heads // groups if groups else _first(module, _NUM_KEY_HEADS)
    parameter = next(module.parameters(), None)
    device = model.device if parameter is None else parameter.device
    return LayerSize(
        number,
        num_heads,
        num_key_heads or num_heads,
        head_dim or (width or 0) // num_heads,
        lengths,
        model.dtype,
        # What lies on disk until it is needed computes on the CPU.
        torch.device("cpu") if device.type == "meta" else device,
        as_weights=isinstance(module, nn.MultiheadAttention),
    )


def _config_of(model: nn.Module, name: str) -> Any:
    """The configuration of the part of a model that a module belongs to."""
    while True:
        config = getattr(model.get_submodule(name), "config", None)
        if config is not None or not name:
            return config
        name = name.rpartition(".")[0]


def _first(source: Any, names: Iterable[str]) -> int | None:
    values = (getattr(source, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def needed_memory(sizes: Iterable[LayerSize], keeping: Keeping) -> dict[torch.device, int]:
    """Bytes that will be kept on each device.

    Parameters
    ----------
    sizes : iterable of LayerSize
        The layers.
    keeping : Keeping
        What is kept of them.

    Returns
    -------
    dict of device to int
    """
    needed: dict[torch.device, int] = {}
    for layer in sizes:
        device = keeping.device or layer.device
        needed[device] = needed.get(device, 0) + layer.size(keeping)
    return needed
