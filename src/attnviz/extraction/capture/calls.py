"""Conversion of an attention call into the attention of each example of its batch.

An attention call is one computation of attention by a module, for all examples of the batch. The
attention of an example consists of its queries, keys, mask and bias, or only of its weights. Some
image encoders attend in windows: each window of patches is then an example of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch

from attnviz.extraction.capture.check import SelfCheck, sinks_of, uses_sink_as_gate
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.linear import RuleCall, read_linear
from attnviz.extraction.capture.masks import MaskReader, Positions, without_padding
from attnviz.extraction.capture.sparse import SparseCall
from attnviz.record.attention import QueryKeyAttention, StoredAttention, StoredWeights
from attnviz.record.masks import Bias, Mask
from attnviz.utils.arrays import moved


def with_four_axes(
    call: AttentionCall, batch_size: int, num_tokens: Collection[int] = ()
) -> AttentionCall:
    """Reshape the tensors of a call to four axes: (batch, heads, queries or keys, ...).

    A call without weights is returned unchanged, because its tensors have four axes already. The
    tensors of a call with weights were observed in a module's own code. Instead of (batch, heads),
    the axes before the last two may be:

    - (batch * heads,);
    - (batch, groups of heads, heads of a group);
    - (batch, heads, image windows) in Hiera. Each image window becomes an example.

    All tensors of such a call are reshaped except its output. `num_tokens` are the possible numbers
    of tokens of an example. They distinguish the last two cases: the third axis has windows if its
    size times the number of keys of a window is one of these numbers.
    """
    if call.weights is None:
        return call
    leading = call.weights.shape[:-2]
    if len(leading) == 3 and leading[2] * call.weights.shape[-1] in num_tokens:
        # The axes are (batch, heads, windows, queries, keys).
        return _map_tensors(call, lambda tensor: tensor.transpose(1, 2).flatten(0, 1))

    def with_four(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 5:
            shape = leading if len(leading) == 3 else tensor.shape[:3]
            return tensor.expand(*shape, *tensor.shape[-2:]).flatten(1, 2)
        if tensor.dim() == 3:
            examples = 1 if len(tensor) == 1 else batch_size
            return tensor.reshape(examples, -1, *tensor.shape[1:])
        return tensor

    return _map_tensors(call, with_four)


def _map_tensors(
    call: AttentionCall, change: Callable[[torch.Tensor], torch.Tensor]
) -> AttentionCall:
    def changed(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else change(tensor)

    return replace(
        call,
        query=changed(call.query),
        key=changed(call.key),
        mask=changed(call.mask),
        weights=changed(call.weights),
        added=tuple(map(change, call.added)),
    )


def read_attention(
    call: AttentionCall,
    unpadded: Sequence[Positions],
    masks: MaskReader,
    check: SelfCheck,
    *,
    name: str,
) -> Sequence[StoredAttention]:
    """Return the attention of each example (or window) of a call, without copying it.

    `unpadded` has the queries and keys of each example or window that are not padding. `name` is
    the path of the module.

    If the model's weights are known, they are compared with weights computed from the queries and
    keys. The result has the queries and keys if both agree, else the model's weights. It also has
    the model's weights if the queries, the keys or the mask are not known.

    If the model's weights are not known, the result has the queries and keys. The output of the
    call is compared with an output computed from them, perhaps later (see
    `SelfCheck.compare_output`). Raise NotImplementedError if the outputs differ, or if the mask or
    the sinks (learned logits that take a share of each row) cannot be read. Raise ValueError if a
    compared output contains NaN, or if queries, keys or weights contain NaN or infinity.
    """
    if isinstance(call, RuleCall):
        return read_linear(call, unpadded, name)
    kind = f"{name} ({type(call.module).__name__})"

    def known_weights() -> list[StoredWeights]:
        weights = _known_weights(call, unpadded)
        check.require_finite([layer.weights for layer in weights], kind)
        return weights

    if call.query is None or call.key is None:
        return known_weights()
    masks_and_biases: list[tuple[Mask | None, Bias | None]]
    try:
        if isinstance(call, SparseCall):
            masks_and_biases = masks.shared(call.read_pairs(unpadded))
        else:
            masks_and_biases = masks.read(call, unpadded)
    except NotImplementedError:
        if call.weights is None:
            raise
        return known_weights()
    sinks = sinks_of(call)
    if sinks is not None and uses_sink_as_gate(call.module):
        sinks = None
    attentions = [
        QueryKeyAttention(
            queries=without_padding(call.query, index, positions.queries),
            keys=without_padding(call.key, index, positions.keys),
            scale=_scale(call),
            mask=mask,
            bias=bias,
            softcap=_softcap(call),
            sinks=sinks,
        )
        for index, (positions, (mask, bias)) in enumerate(
            zip(unpadded, masks_and_biases, strict=True)
        )
    ]
    is_compared = False
    if isinstance(call, SparseCall):
        call.compare(check, attentions, unpadded, name)
    elif call.weights is None:
        is_compared = check.compare_output(call, attentions, unpadded, name)
    elif not check.agrees_with_weights(call, attentions, unpadded):
        # The queries and keys that were observed in the module's own code do not give its weights,
        # so use the weights.
        return known_weights()
    if not is_compared:
        check.require_finite(
            [part for layer in attentions for part in (layer.queries, layer.keys)], kind
        )
    return attentions


def _known_weights(call: AttentionCall, unpadded: Sequence[Positions]) -> list[StoredWeights]:
    if call.weights is None:
        raise TypeError("a call without queries and keys must have weights")
    blocks = []
    for index, positions in enumerate(unpadded):
        block = without_padding(call.weights, index, positions.queries)
        if positions.keys is not None:
            block = block[..., moved(positions.keys, block.device)]
        blocks.append(StoredWeights(block.float()))
    return blocks


def _scale(call: AttentionCall) -> float:
    scaling = call.options.get("scaling")
    if scaling is None:
        return 1.0 if call.query is None else float(call.query.shape[-1] ** -0.5)
    return float(scaling)


def _softcap(call: AttentionCall) -> float | None:
    # Ignore a soft cap that a model passes to "sdpa", because "sdpa" does not apply it.
    softcap = None if call.implementation == "sdpa" else call.options.get("softcap")
    return None if softcap is None else float(softcap)
