"""Functions that check, before a model runs, whether memory or disk has enough free space.

The check of the captured attention counts the queries and keys of each layer that attends to tokens
of a text and, if requested, the outputs of its heads. For torch's ``nn.MultiheadAttention``, whose
queries and keys cannot be captured, the check counts the weights. For a linear layer, it counts the
inputs of its rule, and for an indexer its queries, keys and weights of heads, or its scores of
blocks or summaries. The check does not count:

- attention over patches and frames, because only the model knows their number;
- masks and position biases, because nearly all of them are stored as a few numbers;
- weights of modules that do not use transformers' attention dispatcher, because the weights are
  kept only if the captured queries and keys do not give them.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from humanize import naturalsize
from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.capture.collector import Collector
from attnviz.extraction.families import (
    IndexerBlocks,
    attention_size,
    indexer_blocks,
    indexer_of,
    indexer_size,
    linear_size,
    sparse_kind,
)
from attnviz.extraction.inputs.batch import TokenSequence
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import TEXTS_OF_STACKS, AttentionModule
from attnviz.extraction.options import CaptureOptions


def free_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the number of free bytes of a device.

    Parameters
    ----------
    device : device
        The device. The number of free bytes can be known only for the CPU and for devices with a
        function `mem_get_info` in torch, such as CUDA.
    root : Path
        Folder that contains the ``proc`` and ``sys`` folders of Linux.

    Returns
    -------
    int or None
        For the CPU, the memory that is available without swapping, or the remaining memory of the
        container (cgroups, version 2) if that is less. For other devices, the free memory of the
        device plus the memory that torch has reserved but does not use. None if the number is
        unknown.
    """
    if device.type != "cpu":
        module: Any = getattr(torch, device.type, None)
        if not hasattr(module, "mem_get_info"):
            return None
        unused = module.memory_reserved(device) - module.memory_allocated(device)
        return int(module.mem_get_info(device)[0]) + int(unused)
    sizes = [*_free_in_system(root), *_free_in_groups(root)]
    return max(0, min(sizes)) if sizes else None


def _free_in_system(root: Path) -> Iterator[int]:
    # macOS and Windows have no such file, so the available memory is not known there.
    for line in _read_lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield the remaining memory of this process's control group (cgroup) and its parent groups."""
    top = root / "sys/fs/cgroup"
    for line in _read_lines(root / "proc/self/cgroup"):
        if not line.startswith("0::"):
            continue
        folder = top / line[3:].strip().lstrip("/")
        # The limits of all parent groups apply, too. In a container, the path may be a path of the
        # host. Then only some of these folders exist.
        for group in [folder, *folder.parents]:
            if group == top.parent:
                break
            limit, num_used = (
                _read_number(group / f"memory.{name}") for name in ("max", "current")
            )
            if limit is None or num_used is None:
                continue
            # Cached files that were not used recently ("inactive") count as free memory, because
            # the system drops them if necessary.
            cached = [
                int(entry.split()[1])
                for entry in _read_lines(group / "memory.stat")
                if entry.startswith("inactive_file ")
            ]
            yield limit - num_used + sum(cached)


def _read_number(path: Path) -> int | None:
    # The file memory.max contains "max" instead of a number if the group has no limit.
    text = "".join(_read_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def in_words(count: int) -> str:
    """Format a number of bytes with two significant digits and a unit: "34 GB"."""
    return naturalsize(float(f"{count:.2g}"), format="%.3g")


@dataclass(frozen=True)
class LayerSize:
    """Size of the attention that is captured from one layer.

    Attributes
    ----------
    num_heads, num_key_heads, head_dim : int
        Number of query heads, number of key heads, and size of a query or key.
    lengths : tuple of (int, int)
        Number of queries and number of keys of each example. For the scores of an indexer, number
        of queries and number of blocks or summaries.
    dtype : dtype
        Dtype of the queries and keys in the model, or of other captured numbers.
    device : device
        Device of the queries and keys in the model.
    as_weights : bool
        Whether the weights are captured instead of queries and keys.

    The numbers that are captured for each token of a linear layer or an indexer count as one key.
    Scores of blocks or summaries count as weights.
    """

    num_heads: int
    num_key_heads: int
    head_dim: int
    lengths: tuple[tuple[int, int], ...]
    dtype: torch.dtype
    device: torch.device
    as_weights: bool = False

    def size(self, options: CaptureOptions) -> int:
        """Return the number of bytes that the copies of the layer's attention need."""
        itemsize = (options.dtype or self.dtype).itemsize
        if self.as_weights:
            pairs = sum(queries * keys for queries, keys in self.lengths)
            return self.num_heads * pairs * itemsize
        num_queries = self.num_heads * sum(queries for queries, _ in self.lengths)
        num_keys = self.num_key_heads * sum(keys for _, keys in self.lengths)
        needed = (num_queries + num_keys) * self.head_dim * itemsize
        if options.outputs:
            needed += num_queries * self.head_dim * torch.float32.itemsize
        return needed


def layer_sizes(collector: Collector) -> list[LayerSize]:
    """Return the size of the attention that `collector` would copy from each layer.

    The list has only layers that attend to tokens of a text. Layers that `collector` would not copy
    are omitted, and so are layers whose number of heads or head size is not known.
    """
    sizes = []
    model, scan = collector.model, collector.scan
    own_device, dtype = model.device, model.dtype
    for stack, entries in collector.stacks.items():
        lengths = _lengths(stack, collector.sequences)
        for entry in entries if lengths else ():
            if not collector.is_requested(entry.name):
                continue
            parameter = next(entry.module.parameters(), None)
            device = own_device if parameter is None else parameter.device
            # Parameters that are offloaded to disk have the device "meta". Their modules compute on
            # the CPU.
            device = torch.device("cpu") if device.type == "meta" else device
            numbers, blocks, size = scan.once(
                ("size", entry.name), partial(_sizes_per_token, model, entry)
            )
            if numbers is not None:
                sizes.append(LayerSize(0, 1, numbers, lengths, torch.float32, device))
            if blocks is not None:
                pairs = tuple((queries, -(-keys // blocks.size)) for queries, keys in lengths)
                heads = blocks.num_heads
                sizes.append(LayerSize(heads, 0, 0, pairs, torch.float32, device, as_weights=True))
            if size is not None:
                heads, key_heads, head_dim = size
                as_weights = isinstance(entry.module, nn.MultiheadAttention)
                own = torch.float32 if as_weights else dtype
                sizes.append(
                    LayerSize(heads, key_heads, head_dim, lengths, own, device, as_weights)
                )
    return sizes


def _sizes_per_token(
    model: PreTrainedModel, entry: AttentionModule
) -> tuple[int | None, IndexerBlocks | None, tuple[int, int, int] | None]:
    """Return what a record keeps of a module: three values, each of which may be None.

    They are how many numbers per token it keeps of a linear layer or an indexer, the blocks that an
    indexer scores, and the number of heads, the number of key heads and the size of a key.
    """
    if entry.linear:
        return linear_size(entry.module), None, None
    size = attention_size(model, entry.name)
    if size is not None and sparse_kind(entry.module) == "Longformer":
        # With global tokens, queries and keys have two halves (`sparse`).
        size = (*size[:2], 2 * size[2])
    return indexer_size(entry.module), indexer_blocks(indexer_of(entry.module)), size


def _lengths(stack: str, sequences: Mapping[str, TokenSequence]) -> tuple[tuple[int, int], ...]:
    names = TEXTS_OF_STACKS.get(stack, ())
    if not names or not set(names) <= set(sequences):
        return ()
    counts = [
        [sequence.length if unpadded is None else len(unpadded) for unpadded in sequence.unpadded]
        for sequence in (sequences[name] for name in names)
    ]
    return tuple(zip(*counts, strict=False))


def needed_memory(sizes: Iterable[LayerSize], options: CaptureOptions) -> dict[torch.device, int]:
    """Return the number of bytes that copies of the layers' attention need on each device."""
    needed: dict[torch.device, int] = {}
    for layer in sizes:
        device = options.device or layer.device
        needed[device] = needed.get(device, 0) + layer.size(options)
    return needed


# Estimated size of a layer's activations for each token, in vectors of the model's width.
_VECTORS_PER_TOKEN = 16


def forward_memory(loaded: Loaded, count: int, length: int) -> int:
    """Estimate the bytes that a forward of `count` texts of `length` tokens needs.

    The parameters of the model are not included. The estimate is the sum of the activations of one
    layer, its attention weights, and the float32 copy of these weights that eager attention makes.
    If the model cannot skip logits, twice the size of the logits of all tokens is added.
    """
    model: Any = loaded.model
    config = model.config.get_text_config()
    width = int(getattr(config, "hidden_size", 0) or getattr(config, "d_model", 0) or 1024)
    heads = int(getattr(config, "num_attention_heads", 0) or 16)
    numbers = width * _VECTORS_PER_TOKEN
    if not loaded.shortens_logits:
        table = model.get_output_embeddings()
        numbers += 0 if table is None else 2 * int(getattr(config, "vocab_size", 0) or 0)
    weights = count * heads * length**2 * (4 + model.dtype.itemsize)
    return int(count * length * numbers * model.dtype.itemsize + weights)


# Minimum number of vectors of the model's width that a layer holds at once for each token: its
# input, queries, keys, values, the output of its attention, and its own output.
_MIN_VECTORS_AT_ONCE = 6


def check_runs(
    sizes: Sequence[LayerSize],
    doing: str,
    *,
    copies: int,
    num_kept: Callable[[int], int],
    eager: bool,
) -> None:
    """Raise MemoryError if a forward of several copies of a text does not fit into free memory.

    Interventions run copies of a text in one batch, unchanged and changed.

    `sizes` are the layers of the model, and `doing` describes the computation in the error.
    `copies` is the number of copies of the text in the forward. `num_kept` is a function of the
    number of tokens of the text that returns the number of vectors of the model's width that are
    kept per token and layer. `eager` is whether a layer has all its attention weights in memory at
    once.

    The needed memory is a lower bound, so a text that passes the check may still need too much. If
    `sizes` is empty or the free memory is not known, nothing is checked.
    """
    if not sizes:
        return
    width = max(layer.num_heads * layer.head_dim for layer in sizes)
    heads = max(layer.num_heads for layer in sizes)
    device, itemsize = sizes[0].device, min(layer.dtype.itemsize for layer in sizes)
    num_free = free_memory(device)

    def needed(length: int) -> int:
        vectors = copies * _MIN_VECTORS_AT_ONCE + len(sizes) * num_kept(length)
        weights = copies * heads * length if eager else 0
        return length * (vectors * width + weights) * itemsize

    longest = max(map(_num_tokens, sizes))
    if num_free is None or needed(longest) <= num_free:
        return
    raise MemoryError(
        f"inputs: {doing} takes at least {in_words(needed(longest))} on {device} for "
        f"{longest:,} tokens, and {in_words(num_free)} are free. Pass a shorter text, or "
        "truncation=."
    )


# Copies of fewer bytes are not compared with the free memory, because reading the amount of free
# memory takes as long as a few layers of a small model.
_MIN_CHECKED = 1 << 22


def check_memory(sizes: Sequence[LayerSize], options: CaptureOptions) -> None:
    """Raise MemoryError if the captured attention needs more memory than is free on a device."""
    for device, needed in needed_memory(sizes, options).items():
        num_free = free_memory(device) if needed >= _MIN_CHECKED else None
        if num_free is not None and needed > num_free:
            raise MemoryError(
                f"inputs: keeping {_describe(sizes)} takes {in_words(needed)} on "
                f"{device}, and {in_words(num_free)} are free. Pass fewer layers (layers=) or a "
                'shorter text, or pass dtype="bfloat16" or spool="folder" to av.extract.'
            )


def check_disk(sizes: Sequence[LayerSize], options: CaptureOptions, folder: Path) -> None:
    """Raise OSError if the copies need more space than is free on the disk of a folder.

    The folder need not exist yet.
    """
    free, needed = free_disk(folder), sum(needed_memory(sizes, options).values())
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"spool: {_describe(sizes)} take {in_words(needed)}, and {in_words(free)} are "
            'free on that disk. Pass fewer layers (layers=), dtype="bfloat16" or a shorter text.',
            str(folder),
        )


def free_disk(folder: Path) -> int:
    """Return the free bytes on the disk of a folder that may not exist yet."""
    absolute = folder.expanduser().absolute()
    existing = next((path for path in (absolute, *absolute.parents) if path.exists()), absolute)
    return shutil.disk_usage(existing).free


def _describe(sizes: Sequence[LayerSize]) -> str:
    tokens = max(map(_num_tokens, sizes))
    return f"the queries and keys of {len(sizes)} layers for {tokens:,} tokens"


def _num_tokens(layer: LayerSize) -> int:
    return sum(max(pair) for pair in layer.lengths)
