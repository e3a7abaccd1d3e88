"""Conversion of an attention function's mask arguments into masks and biases of a record.

A mask states to which keys each query may attend. A bias is added to the logits. The meaning of a
mask argument depends on the implementation of attention. Many layers receive the same mask, so
recent results are cached. Queries and keys that are padding are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
from cachetools import LRUCache
from torch.nn.attention.flex_attention import BlockMask, create_mask

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.record.masks import BandMask, Bias, Mask, compact_bias, compact_mask
from attnviz.utils.arrays import moved

# Number of cached results. Models alternate between few masks (a global and a local one). The cache
# also keeps the mask tensors alive, because a cache key has their addresses, and the memory of a
# freed tensor may be reused by another mask.
_MAX_CACHED = 4
# Values of at most this number mask a key when they are added to its logit. Models add the lowest
# value of a dtype, perhaps scaled, or -1e4, so that the weight of the key becomes 0. Biases are
# never as low.
_MAX_BLOCKING = -8e3


@dataclass(frozen=True)
class Positions:
    """Indices of the queries and keys of one example that are not padding.

    Each attribute is int64, ascending. It is None if there is no padding.
    """

    queries: torch.Tensor | None
    keys: torch.Tensor | None


def without_padding(
    tensor: torch.Tensor, index: int, positions: torch.Tensor | None
) -> torch.Tensor:
    """Return one example of `tensor`, without the entries of padding: (heads, positions, ...).

    `tensor` is (batch, heads, queries or keys, ...), and `index` is the index of the example. The
    batch axis has size 1 if all examples share the tensor. `positions` are the indices of the
    queries or keys that are not padding. None means that none is padding.
    """
    block = tensor.detach().select(0, index if tensor.shape[0] > 1 else 0)
    if positions is None:
        return block
    # If all padding is at the end, return a view instead of a copy.
    first = _as_slice(positions)
    return block[:, moved(positions, block.device) if first is None else first]


# All layers of a forward have the same tensor for an example. Tensors are hashed by identity.
@lru_cache(maxsize=256)
def _as_slice(positions: torch.Tensor) -> slice | None:
    """Return the ascending `positions` as a slice if they are 0, 1, 2 and so on, else None."""
    count = len(positions)
    return slice(count) if int(positions[-1]) == count - 1 else None


class MaskReader:
    """Converter of mask arguments into masks and biases, with a cache.

    Equal masks and biases of different layers and examples become the same object, which saves
    memory in the record.

    Attributes
    ----------
    lowered : dict of int to set of int
        For each example, the queries for which a mask lowers the logits of all keys by finite
        numbers. The softmax of such a row gives weights to masked keys.
    """

    def __init__(self) -> None:
        self.lowered: dict[int, set[int]] = {}
        self._read = LRUCache[object, tuple[object, list[tuple[Mask | None, Bias | None]]]](
            _MAX_CACHED
        )
        self._masks: list[Mask] = []
        self._biases: list[Bias] = []

    def read(
        self, call: AttentionCall, unpadded: Sequence[Positions]
    ) -> list[tuple[Mask | None, Bias | None]]:
        """Return the mask and the bias of each example or window of a call.

        The mask is None if all pairs of queries and keys are allowed, and the bias is None if
        nothing is added to the logits. `unpadded` has the queries and keys of each example or
        window that are not padding. Raise NotImplementedError if the type or shape of a mask
        argument is unknown.
        """
        sinks = call.query_sinks
        added = call.added if sinks is None else (*call.added, -sinks)
        arguments = (call.mask, call.options.get("position_bias"), *added)
        for tensor in arguments:
            if not (tensor is None or isinstance(tensor, torch.Tensor | BlockMask)):
                raise NotImplementedError(
                    f"masks of type {type(tensor).__name__} (implementation "
                    f"{call.implementation!r}) cannot be read yet. Load the model with "
                    "attn_implementation='sdpa' or 'eager'."
                )
        band = _band_of(call)
        sizes = (call.num_queries, call.num_keys)
        key = (*map(_cache_key, arguments), band, sizes, id(unpadded))
        if key not in self._read:
            result = [
                self._read_example(call, arguments, band, index, positions)
                for index, positions in enumerate(unpadded)
            ]
            self._read[key] = ((arguments, unpadded), result)
        return self._read[key][1]

    def _read_example(
        self,
        call: AttentionCall,
        arguments: Sequence[torch.Tensor | BlockMask | None],
        band: BandMask | None,
        index: int,
        unpadded: Positions,
    ) -> tuple[Mask | None, Bias | None]:
        num_queries, num_keys = call.num_queries, call.num_keys
        num_rows = num_queries if unpadded.queries is None else len(unpadded.queries)
        allowed: torch.Tensor | None = None
        added: torch.Tensor | None = None
        for tensor in arguments:
            if tensor is None:
                continue
            tensor_of_batch = (
                _flags_of_block_mask(tensor, call) if isinstance(tensor, BlockMask) else tensor
            )
            block = _block_of_example(tensor_of_batch, index, num_queries, num_keys, unpadded)
            flags, values, lowered = _split_allowed(block)
            if lowered is not None:
                rows = lowered.cpu().expand(num_rows).nonzero().flatten().tolist()
                self.lowered.setdefault(index, set()).update(rows)
            if flags is not None:
                allowed = flags if allowed is None else allowed & flags
            if values is not None:
                added = values if added is None else added + values
        mask: Mask | None = None
        if band is not None and allowed is None and _same_positions(unpadded):
            # A `BandMask` has only three numbers, so prefer it to flags of all pairs.
            mask = band
        else:
            if band is not None:
                device = None if allowed is None else allowed.device
                flags = band.allowed(0, slice(0, num_queries), slice(0, num_keys), device)[None]
                flags = _block_without_padding(flags, unpadded)
                allowed = flags if allowed is None else allowed & flags
            if allowed is not None:
                mask = compact_mask(allowed.expand(-1, num_rows, -1))
        bias = None if added is None else compact_bias(added)
        return self.shared([(mask, bias)])[0]

    def shared(
        self, pairs: Sequence[tuple[Mask | None, Bias | None]]
    ) -> list[tuple[Mask | None, Bias | None]]:
        """Replace masks and biases by equal objects that were read earlier, to save memory."""
        return [(_shared(self._masks, mask), _shared(self._biases, bias)) for mask, bias in pairs]


# Type of the objects that `_shared` compares: either masks or biases.
_Kind = TypeVar("_Kind", Mask, Bias)


def _shared(earlier: list[_Kind], new: _Kind | None) -> _Kind | None:
    """Return the object in `earlier` that equals `new`.

    If no object is equal, add `new` to `earlier` and return it. If `new` is None, return None.
    """
    if new is None:
        return None
    for entry in earlier:
        if entry.equals(new):
            return entry
    earlier.append(new)
    return new


def _band_of(call: AttentionCall) -> BandMask | None:
    """Return the causal mask that a function applies besides its mask arguments, or None."""
    # Eager and flex attention receive every mask as an argument.
    if call.implementation in ("eager", "flex_attention"):
        return None
    flag = call.options.get("is_causal")
    causal = bool(getattr(call.module, "is_causal", True) if flag is None else flag)
    if "flash" not in (call.implementation or ""):
        return BandMask(None, 0) if causal and call.mask is None and call.num_queries > 1 else None
    # Flash attention aligns the last query with the last key. Other functions align the first query
    # with the first key. The window of flash attention counts the key of the query itself, and a
    # `BandMask` counts only the keys before it.
    window = call.options.get("sliding_window")
    before = None if window is None else window - 1
    return BandMask(before, 0, call.num_keys - call.num_queries) if causal else None


def _flags_of_block_mask(mask: BlockMask, call: AttentionCall) -> torch.Tensor:
    """Evaluate a mask of flex attention: (batch, heads, queries, keys), True for allowed pairs."""
    examples, heads = mask.shape[:2]
    device = call.query.device if call.query is not None else torch.device("cpu")
    return create_mask(
        mask.mask_mod, examples, heads, call.num_queries, call.num_keys, device=str(device)
    )


def _cache_key(tensor: object) -> tuple[object, ...] | None:
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor):
        return (id(tensor),)
    # The key contains the version number of the tensor. The number increases with each change in
    # place, so a changed mask is read again. Inference tensors have no version number.
    version = None if tensor.is_inference() else tensor._version
    return (
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        version,
    )


def _block_of_example(
    tensor: torch.Tensor, index: int, num_queries: int, num_keys: int, unpadded: Positions
) -> torch.Tensor:
    """Return the mask or bias of one example without padding: (heads or 1, queries or 1, keys).

    Raise NotImplementedError if `tensor` has an unknown shape.
    """
    if tensor.dim() == 2:
        # The mask of flash attention has one flag for each key: whether the key is not padding.
        tensor = tensor[:, None, None, :].bool()
    if tensor.dim() != 4:
        raise NotImplementedError(
            f"a mask or bias of shape {tuple(tensor.shape)} cannot be read. Valid shapes are "
            "(batch, heads, queries, keys) and (batch, keys)."
        )
    # If attention is in windows, `index` counts the windows of all examples. The tensor may have
    # only the masks of one example's windows, which apply to the windows of every example.
    block = tensor[index % tensor.shape[0]]
    # The mask of a static cache has extra columns for keys that are not filled yet.
    block = block[..., :num_keys]
    if block.shape[1] not in (1, num_queries) or block.shape[2] not in (1, num_keys):
        raise NotImplementedError(
            f"a mask or bias of shape {tuple(tensor.shape)} does not fit {num_queries} queries "
            f"and {num_keys} keys"
        )
    return _block_without_padding(block.expand(-1, -1, num_keys), unpadded)


def _block_without_padding(block: torch.Tensor, unpadded: Positions) -> torch.Tensor:
    if unpadded.queries is not None and block.shape[1] > 1:
        block = block[:, moved(unpadded.queries, block.device)]
    if unpadded.keys is not None:
        block = block[..., moved(unpadded.keys, block.device)]
    return block


def _same_positions(unpadded: Positions) -> bool:
    """Whether queries and keys have the same padding.

    If they do not, a causal mask may no longer be a band after the padding has been dropped.
    """
    if unpadded.queries is None or unpadded.keys is None:
        return unpadded.queries is unpadded.keys
    return torch.equal(unpadded.queries, unpadded.keys)


def _split_allowed(
    block: torch.Tensor,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Split a mask argument into flags of allowed pairs and values to add to the logits.

    `block` has floating-point numbers, which are added to the logits, or flags. The flags in the
    result are True for allowed pairs. The flags are None if `block` has floating-point numbers that
    allow all pairs. The values are None if they are all 0, or if `block` has flags. The third
    result has True for each query for which some head lowers the logits of all keys by finite
    numbers, (queries or 1,). It is None if there is no such query.
    """
    if not block.is_floating_point():
        return block.bool(), None, None
    blocked = block <= _MAX_BLOCKING
    values = block.masked_fill(blocked, 0.0)
    lowered = (blocked.all(dim=-1) & block.isfinite().all(dim=-1)).any(dim=0)
    # Read the numbers at once, because each time the host waits for the device.
    numbers = torch.stack([blocked.any(), values.any(), lowered.any()])
    is_blocked, is_added, is_lowered = numbers.tolist()
    return (
        ~blocked if is_blocked else None,
        values if is_added else None,
        lowered if is_lowered else None,
    )
