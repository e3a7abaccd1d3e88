"""Capture of attention that computes only some pairs of tokens, in chunks.

Hooks of the projections of an attention module read queries, keys and values. The pairs that the
module computes follow from its settings, and are stored as a mask. The attention that results is
compared with the output of the module.

- Longformer, LED: a local token attends to a window around it and to the global tokens. A global
  token attends to all tokens, with queries, keys and values from three separate projections.
  Therefore the stored vectors have two halves: a query is (q, 0) for a local token and (0, q) for a
  global token, and a key has the key for local queries and the key for global queries. The product
  of query and key is then the logit of the model, and memory grows linearly with the text.
- LongT5, local: a token attends to a window around it. A bias depends on the distance.
- BigBird: tokens are in blocks. A block attends to itself, its neighbours, the first and the last
  block, and random blocks. The first and the last block attend to all blocks. Except in training,
  each random block is the first block. The keys of the first block then occur several times in the
  softmax, which is stored as a bias: the logarithm of the number of times.
- Reformer, local: tokens are in chunks of neighbours. A chunk attends to itself and to chunks near
  it.
- Reformer, LSH: each head sorts the tokens by a hash, and then divides them into chunks as above.
  There are several rounds with different hashes. The keys of all rounds enter one softmax, so a key
  may occur several times, as in BigBird.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.check import SelfCheck
from attnviz.extraction.capture.dispatch import AttentionCall, Sink
from attnviz.extraction.capture.masks import Positions
from attnviz.extraction.families import sparse_kind
from attnviz.extraction.hooks import Hooks, named_arguments
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import (
    BandMask,
    Bias,
    CutMask,
    DistanceBias,
    Mask,
    WindowBias,
    compact_bias,
    compact_mask,
)
from attnviz.utils.cleanup import Cleanup

#: Function of the index of an example and the positions of its tokens that are not padding, int64.
#: It returns the mask (None if all pairs are allowed) and the bias (or None).
Pairs = Callable[[int, torch.Tensor], tuple[Mask | None, Bias | None]]


@dataclass(frozen=True, kw_only=True)
class SparseCall(AttentionCall):
    """Attention that computes only some pairs of tokens. Queries and keys are the same tokens.

    If there are global tokens, `value` has the values for queries of local tokens.

    Attributes
    ----------
    pairs : callable
        Function that returns the mask and the bias of an example.
    is_padding : Tensor or None
        Whether each token is padding, bool, (batch, tokens). None if the model adds no padding.
    is_global : Tensor or None
        Whether each token is global, bool, (batch, tokens).
    global_value : Tensor or None
        Values for queries of global tokens, with the axes of `value`. None without global tokens.
    has_rounds : bool
        Whether the output is a sum over several rounds of hashing, as in Reformer.
    """

    pairs: Pairs
    is_padding: torch.Tensor | None = None
    is_global: torch.Tensor | None = None
    global_value: torch.Tensor | None = None
    has_rounds: bool = False

    def first_tokens(self, count: int | None = None) -> SparseCall:
        """Return the call of the first `count` tokens, as views of the same tensors.

        The model may pad each text to a multiple of its window. By default, `count` is the position
        after the last token that is not padding.
        """
        if self.is_padding is None:
            return self
        if count is None:
            count = int((~self.is_padding).any(dim=0).nonzero().max()) + 1

        def first(tensor: torch.Tensor | None, axis: int = 2) -> torch.Tensor | None:
            return None if tensor is None else tensor.narrow(axis, 0, count)

        return replace(
            self,
            query=first(self.query),
            key=first(self.key),
            value=first(self.value),
            global_value=first(self.global_value),
            output=first(self.output, axis=1),
            is_global=first(self.is_global, axis=1),
            is_padding=first(self.is_padding, axis=1),
        )

    def read_pairs(self, unpadded: Sequence[Positions]) -> list[tuple[Mask | None, Bias | None]]:
        """Return the mask and the bias of each example, as `MaskReader.read` does."""
        tokens = torch.arange(self.num_keys)
        return [
            self.pairs(index, tokens if positions.keys is None else positions.keys.cpu())
            for index, positions in enumerate(unpadded)
        ]

    def compare(
        self,
        check: SelfCheck,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        name: str,
    ) -> None:
        """Compare the output of the call, as `SelfCheck.compare_output` does.

        The outputs of local and of global tokens are compared separately, because they are sums of
        different values.
        """
        if self.has_rounds:
            # Reformer sets the logit of a token's own key to -1e5. If a token has no other key,
            # float32 rounds the log-sum-exp over its rounds to a multiple of 1/128. The shares of
            # the rounds are then wrong by up to 1%, so such queries are not compared.
            attentions = list(map(_without_single_keys, attentions))
        if self.global_value is None or self.is_global is None:
            check.compare_output(self, attentions, unpadded, name)
            return
        of_local, of_global, positions_of_global = [], [], []
        for index, (attention, positions) in enumerate(zip(attentions, unpadded, strict=True)):
            flags = self.is_global[index].cpu()
            tokens = flags.nonzero().flatten()
            if positions.queries is not None:
                flags = flags[positions.queries.cpu()]
            of_local.append(_without_queries(attention, flags))
            queries = attention.queries[:, flags.to(attention.queries.device)]
            of_global.append(replace(attention, queries=queries, mask=None))
            positions_of_global.append(Positions(tokens, positions.keys))
        check.compare_output(self, of_local, unpadded, name)
        call = replace(self, value=self.global_value)
        check.compare_output(call, of_global, positions_of_global, name)


def _without_single_keys(attention: QueryKeyAttention) -> QueryKeyAttention:
    """Mask all keys of each query that has only one allowed key in some head."""
    single = torch.full((attention.num_queries,), attention.num_keys == 1)
    if attention.mask is not None:
        flags = attention.mask.all_allowed(attention.num_queries, attention.num_keys)
        single = (flags.sum(dim=-1) == 1).any(dim=0)
    return _without_queries(attention, single)


def _without_queries(attention: QueryKeyAttention, queries: torch.Tensor) -> QueryKeyAttention:
    """Mask all keys of the flagged queries. Queries without allowed keys are not compared."""
    is_key = torch.ones_like(queries)
    mask = CutMask(torch.tensor([True]), queries, is_key, attention.mask)
    return replace(attention, mask=mask)


def report_sparse(modules: Sequence[nn.Module], sink: Sink, undo: Cleanup) -> None:
    """Pass the calls of `modules` in this thread to `sink` until the block of `undo` ends."""
    # The arguments of each running module and the outputs of its projections, by name.
    tensors: dict[nn.Module, dict[str, Any]] = {}

    def begin(module: Any, args: Any, kwargs: Any) -> None:
        arguments = named_arguments(module.forward, args, kwargs)
        cache = arguments.get("past_buckets_states")
        if cache is not None and len(cache) > module.layer_idx:
            raise NotImplementedError(
                f"model: {type(module).__name__} with a cache cannot be read. Pass the whole text, "
                'and generate={"use_cache": False}.'
            )
        tensors[module] = arguments

    def keep(module: nn.Module, name: str, *hooked: Any) -> None:
        # For short texts, BigBird runs another module, which has the same projections.
        if module in tensors:
            # Longformer scales this tensor in place later. It then has the scaled queries.
            tensors[module][name] = hooked[-1]

    def report(module: nn.Module, *hooked: Any) -> None:
        # The last argument of the hook has the outputs of the module, or the inputs of its output
        # projection `o`.
        read = _READERS[sparse_kind(module) or ""]
        sink(read(module, tensors.pop(module), hooked[-1]))

    for module in modules:
        Hooks(undo).add(module.register_forward_pre_hook, begin, with_kwargs=True)
        last: Any = getattr(module, "o", None)
        for name, projection in module.named_children():
            if projection is not last:
                Hooks(undo).add(projection.register_forward_hook, partial(keep, module, name))
        # With `prepend`, the call is reported before other hooks read the output or record that the
        # run of the module has ended.
        ended = module.register_forward_hook if last is None else last.register_forward_pre_hook
        Hooks(undo).add(ended, partial(report, module), prepend=True)


def _by_head(vectors: torch.Tensor, heads: int) -> torch.Tensor:
    """Return vectors (batch, tokens, width) as (batch, heads, tokens, head_dim)."""
    return vectors.detach().view(*vectors.shape[:2], heads, -1).transpose(1, 2)


def _call_of(
    module: nn.Module, vectors: tuple[torch.Tensor, ...], output: torch.Tensor, **options: Any
) -> SparseCall:
    """Return a call with `vectors`: queries, keys and values.

    `output` is (batch, tokens, width). The output of the call is a view of it, so that the sink can
    change it in place.
    """
    query, key, value = vectors
    by_head = output.unflatten(-1, (query.shape[1], -1))
    return SparseCall(module, "sparse", query, key, value, output=by_head, **options)


def _longformer(module: Any, tensors: dict[str, Any], outputs: Any) -> SparseCall:
    def by_head(name: str) -> torch.Tensor:
        # Projections return (tokens, batch, width).
        return _by_head(tensors[name].transpose(0, 1), module.num_heads)

    query, key, global_value = by_head("query"), by_head("key"), None
    is_global: torch.Tensor = tensors["is_index_global_attn"]
    if bool(is_global.any()):
        # The output of `query_global` has only the global tokens. Those of an example are its first
        # entries, and padding follows if another example has more.
        example, token = is_global.nonzero(as_tuple=True)
        index = is_global.cumsum(dim=1)[example, token] - 1
        global_query = torch.zeros_like(query)
        global_query[example, :, token] = by_head("query_global")[example, :, index]
        local_query = query.masked_fill(is_global[:, None, :, None], 0.0)
        query = torch.cat([local_query, global_query], dim=-1)
        key = torch.cat([key, by_head("key_global")], dim=-1)
        global_value = by_head("value_global")
    flags = is_global.cpu()

    def pairs(index: int, tokens: torch.Tensor) -> tuple[Mask | None, Bias | None]:
        band, local = _band(module.one_sided_attn_window_size, tokens), ~flags[index, tokens]
        if band is None or bool(local.all()):
            return band, None
        return CutMask(torch.tensor([True]), local, local, kept=band), None

    return _call_of(
        module,
        (query, key, by_head("value")),
        outputs[0],
        pairs=pairs,
        options={"scaling": 1.0},
        is_global=is_global,
        is_padding=tensors["is_index_masked"],
        global_value=global_value,
    )


def _band(window: int, tokens: torch.Tensor) -> Mask | None:
    """Return the mask of tokens at the positions `tokens` that attend within a window."""
    span = int(tokens[-1] - tokens[0])
    if window >= span:
        return None
    if span < len(tokens):
        return BandMask(window, window)
    # There is padding between the tokens. It counts as distance, so a band does not fit.
    distances = (tokens[:, None] - tokens).abs()
    return compact_mask(distances[None] <= window)


def _local_t5(module: Any, tensors: dict[str, Any], outputs: Any) -> SparseCall:
    size, heads = module.block_len, module.n_heads
    bias = tensors.get("position_bias")
    if bias is None:
        # The first layer computes the bias from embeddings of the distances. Other layers receive
        # it as an argument.
        bias = tensors["relative_attention_bias"].permute(2, 0, 1)[None, None]
    # `bias` is (batch, blocks, heads, size, 3 * size), for keys of three blocks, and may contain
    # the mask. Entries with the same distance are equal unless they are masked. Masked entries are
    # smaller, so take the largest.
    largest = bias.detach().float().cpu().flatten(0, 1).amax(dim=0)
    columns = torch.arange(size)[:, None] + torch.arange(1, 2 * size)
    by_distance: torch.Tensor = largest.gather(2, columns.expand(heads, -1, -1)).amax(dim=1)

    def values_of(distances: torch.Tensor) -> torch.Tensor:
        indices = distances.clamp(1 - size, size - 1) + size - 1
        return by_distance[:, indices]

    def pairs(index: int, tokens: torch.Tensor) -> tuple[Mask | None, Bias | None]:
        del index
        mask, span = _band(size - 1, tokens), int(tokens[-1] - tokens[0])
        if span < len(tokens):
            return mask, DistanceBias(values_of(torch.arange(-span, span + 1)), span + 1)
        # There is padding between the tokens, which counts as distance.
        return mask, compact_bias(values_of(tokens - tokens[:, None]))

    vectors = tuple(_by_head(tensors[name], heads) for name in "qkv")
    return _call_of(module, vectors, outputs[0], pairs=pairs, options={"scaling": 1.0})


def _bigbird(module: Any, tensors: dict[str, Any], outputs: Any) -> SparseCall:
    heads, size = module.num_attention_heads, module.block_size
    is_padding = tensors["to_mask"][:, 0, 0] == 0
    num_blocks = is_padding.shape[1] // size
    # Number of times that the keys of a block (columns) occur in the softmax of the queries of a
    # block (rows).
    counts = torch.ones(num_blocks, num_blocks).tril(1).triu(-1)
    counts[:, [0, -1]] = counts[[0, -1]] = 1
    counts[1:-1, 0] += module.num_random_blocks

    def pairs(index: int, tokens: torch.Tensor) -> tuple[Mask | None, Bias | None]:
        del index
        blocks = tokens // size
        mask = compact_mask((counts > 0)[None, blocks][:, :, blocks])
        window, logarithms = torch.zeros_like(blocks), counts.clamp_min(1).log()[None, None]
        return mask, WindowBias(logarithms, window, window, blocks, blocks)

    vectors = tuple(_by_head(tensors[name], heads) for name in ("query", "key", "value"))
    return _call_of(module, vectors, outputs[0], pairs=pairs, is_padding=is_padding)


def _reformer(module: Any, tensors: dict[str, Any], outputs: Any) -> SparseCall:
    heads, size = module.num_attention_heads, module.chunk_length
    is_shared = "query_key" in tensors
    names = ("query_key", "query_key", "value") if is_shared else ("query", "key", "value")
    query, key, value = (_by_head(tensors[name], heads) for name in names)
    if is_shared:
        with torch.no_grad():
            key = module._len_and_dim_norm(key, key.shape[-1] ** 0.5)
    count, buckets = query.shape[2], getattr(outputs, "buckets", None)

    def pairs(index: int, tokens: torch.Tensor) -> tuple[Mask | None, Bias | None]:
        order = torch.arange(count)[None]
        if buckets is not None:
            order = buckets[index].flatten(1).argsort(dim=-1, stable=True).cpu() % count
        # How many times each query attends to each key, (heads or 1, queries, keys). A key can
        # occur in several rounds, and in a short text in several neighbours of a chunk.
        counts = torch.ones(1, count, count)
        if count > size:
            counts = torch.zeros(len(order), count, count)
            chunks = order.unflatten(1, (-1, size))
            steps = range(-module.num_chunks_before, module.num_chunks_after + 1)
            keys = torch.cat([chunks.roll(-step, dims=1) for step in steps], dim=-1)
            head = torch.arange(len(order))[:, None, None, None]
            one = torch.ones(())
            counts.index_put_((head, chunks[..., None], keys[:, :, None]), one, accumulate=True)
        counts = counts[:, tokens][:, :, tokens]
        if module.is_decoder:
            counts = counts.tril()
        if is_shared:
            # A token attends to itself only if there is no other key.
            own = counts.diagonal(dim1=1, dim2=2)
            own *= own == counts.sum(dim=-1)
        return compact_mask(counts > 0), compact_bias(counts.clamp_min(1).log())

    mask = tensors.get("attention_mask")
    return _call_of(
        module,
        (query, key, value),
        outputs[0],
        pairs=pairs,
        options={"scaling": 1.0 if is_shared else key.shape[-1] ** -0.5},
        is_padding=None if mask is None else mask == 0,
        has_rounds=buckets is not None and buckets.shape[2] > 1,
    )


_READERS = {
    "Longformer": _longformer,
    "local LongT5": _local_t5,
    "BigBird": _bigbird,
    "Reformer": _reformer,
}
