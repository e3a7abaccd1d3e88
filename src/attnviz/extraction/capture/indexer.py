"""Capture of indexers: modules that score keys, so that a layer can choose some of them.

An indexer of single keys (`attnviz.record.ranks`) calls ``torch.matmul`` twice: for the products of
its queries and keys, and for the sum of these products over heads with the weights of the heads. An
indexer of blocks or summaries passes their scores to ``topk``. The arguments of these calls are
read while the indexer runs.

Records have the ranks of the scores (`attnviz.record.ranks`), and `attnviz.record.masks.ChosenMask`
has the keys that a model chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from attnviz.extraction.capture.masks import Positions, without_padding
from attnviz.extraction.capture.trace import FunctionMode
from attnviz.extraction.families import IndexerBlocks, indexer_blocks
from attnviz.extraction.hooks import Hooks
from attnviz.record.ranks import BlockRanks, IndexerRanks, Ranks, SummaryRanks
from attnviz.utils.cleanup import Cleanup

# Maximum number of queries whose ranks are compared with the choice of the indexer.
_ROWS = 64
# Maximum difference of two scores that can be due to rounding, relative to the largest absolute
# score of the query. Matrix products on some GPUs have only the 10 bits of precision of TF32.
_ROUNDING = 2.0**-9
# Forwards with other batch sizes or devices sum in another order. Largest difference of two scores
# that this can reverse, relative to the largest absolute score of the query, in roundings of dtype.
_ROUNDINGS_OF_TIE = 8


class Ties(NamedTuple):
    """Number of choices of keys that rounding may change.

    Attributes
    ----------
    close : int
        Number of compared choices in which the score of a chosen key and that of another key differ
        by no more than rounding.
    compared : int
        Number of compared choices, for one query each.
    """

    close: int
    compared: int


NO_TIES = Ties(0, 0)


@dataclass
class IndexerRun:
    """Tensors of one run of an indexer.

    Attributes
    ----------
    products : list of (Tensor, Tensor)
        The two arguments of each matrix product.
    scores : list of Tensor
        Arguments of ``topk``: the tensors of which the indexer took the largest entries.
    chosen : Tensor
        Output of the indexer: indices of the chosen keys or summaries, (batch, queries, chosen),
        indices of the chosen blocks, (batch, heads, queries, chosen), or flags, (batch, 1, queries,
        keys). An index of -1 stands for no key.
    mask : Tensor or None
        Mask of the attention module, (batch, 1, queries, keys). None if it got none.
    """

    products: list[tuple[torch.Tensor, torch.Tensor]]
    scores: list[torch.Tensor]
    chosen: torch.Tensor
    mask: torch.Tensor | None = None


#: Function that receives an indexer and its run.
IndexerSink = Callable[[nn.Module, IndexerRun], None]


class _IndexerWatch(FunctionMode):
    """Observer that collects the `products` and `scores` of an `IndexerRun`.

    The products of an indexer of blocks are not kept. Qwen4 makes one for each query, and together
    they are large.
    """

    def __init__(self, indexer: nn.Module) -> None:
        super().__init__()
        self.products: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.scores: list[torch.Tensor] = []
        self._keeps_products = indexer_blocks(indexer) is None

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        del types
        name = getattr(func, "__name__", "")
        if self._keeps_products and name in ("matmul", "__matmul__"):
            self.products.append((args[0], args[1]))
        elif name == "topk":
            self.scores.append(args[0])
        return func(*args, **(kwargs or {}))


def report_indexers(indexers: Sequence[nn.Module], sink: IndexerSink, undo: Cleanup) -> None:
    """Pass each run of `indexers` in this thread to `sink`, until `undo` ends."""
    watches: list[_IndexerWatch] = []

    def end() -> None:
        while watches:
            watches.pop().stop()

    def before(module: nn.Module, _args: Any) -> None:
        watches.append(_IndexerWatch(module))
        watches[-1].start()

    def after(module: nn.Module, _args: Any, output: Any) -> None:
        watch = watches[-1] if watches else None
        end()
        if watch is not None and isinstance(output, torch.Tensor):
            sink(module, IndexerRun(watch.products, watch.scores, output))

    undo.add(end)
    for module in indexers:
        Hooks(undo).add(module.register_forward_pre_hook, before)
        Hooks(undo).add(module.register_forward_hook, after, always_call=True)


def read_ranks(
    indexer: nn.Module, run: IndexerRun, unpadded: Sequence[Positions]
) -> tuple[Sequence[Ranks], Ties]:
    """Return the ranks of each example, without padding, and the ties of all examples.

    `unpadded` has the tokens of each example that are not padding. Raise NotImplementedError if the
    tensors of `run` do not have the shapes of a known indexer, or if the chosen keys are not those
    with the largest scores.
    """
    blocks = indexer_blocks(indexer)
    ranks: Sequence[Ranks]
    try:
        if blocks is None:
            ranks = _key_ranks(run, unpadded)
        elif blocks.as_summaries:
            ranks = _summary_ranks(run, unpadded)
        else:
            ranks = _block_ranks(run, unpadded, blocks)
    except ValueError as error:
        raise NotImplementedError("the scores of the indexer are unknown") from error
    ties = [
        _check_choice(ranks[index], run.chosen, index, positions, blocks)
        for index, positions in enumerate(unpadded)
    ]
    return ranks, Ties(*(sum(counts) for counts in zip(*ties, strict=True)))


def mask_with_summaries(run: IndexerRun) -> torch.Tensor | None:
    """Return the mask of `run` with columns for the summaries that an indexer scores.

    The columns allow all summaries whose score is not minus infinity. Return the mask without them
    if it is None, or if the indexer scored no summaries.
    """
    if run.mask is None or not run.scores:
        return run.mask
    allowed = ~run.scores[0].isneginf()[:, None]
    if run.mask.dtype != torch.bool:
        lowest = torch.finfo(run.mask.dtype).min
        allowed = run.mask.new_zeros(allowed.shape).masked_fill_(~allowed, lowest)
    return torch.cat([run.mask, allowed], dim=-1)


def _key_ranks(run: IndexerRun, unpadded: Sequence[Positions]) -> list[IndexerRanks]:
    if [tensor.dim() for pair in run.products for tensor in pair] != [4] * 4:
        raise ValueError("the products of the indexer are unknown")
    (queries, keys), (head_weights, _) = run.products
    vectors = queries.transpose(1, 2), keys.transpose(2, 3), head_weights.permute(0, 3, 1, 2)
    examples = (
        [without_padding(part, index, positions.queries) for part in vectors]
        for index, positions in enumerate(unpadded)
    )
    return [IndexerRanks(queries, keys, weights[..., 0]) for queries, keys, weights in examples]


def _block_ranks(
    run: IndexerRun, unpadded: Sequence[Positions], blocks: IndexerBlocks
) -> list[BlockRanks]:
    if len(run.scores) == 1 and run.scores[0].dim() > 1:
        [scores] = run.scores
    else:
        scores = _joined_scores(run, blocks.size)
    scores = scores if scores.dim() == 4 else scores[:, None]
    lowest = torch.finfo(scores.dtype).min
    ranks = []
    for index, positions in enumerate(unpadded):
        example = without_padding(scores, index, positions.queries)
        tokens = torch.arange(example.shape[1])
        if blocks.count_padding and positions.keys is not None:
            tokens = positions.keys
        # Add blocks without a score, and omit blocks without a token.
        present, numbers = torch.unique(
            tokens.to(example.device) // blocks.size, return_inverse=True
        )
        num_added = int(present[-1]) + 1 - example.shape[-1]
        example = functional.pad(example, (0, num_added), value=lowest)[..., present]
        if blocks.takes_tail:
            own = numbers[None, :, None].expand(len(example), -1, 1)
            score = example.gather(-1, own)
            example = example.scatter(-1, own, score.masked_fill(score <= lowest, torch.inf))
        ranks.append(BlockRanks(example, numbers))
    return ranks


def _summary_ranks(run: IndexerRun, unpadded: Sequence[Positions]) -> list[SummaryRanks]:
    [scores] = run.scores
    return [
        SummaryRanks(without_padding(scores[:, None], index, positions.queries))
        for index, positions in enumerate(unpadded)
    ]


def _joined_scores(run: IndexerRun, size: int) -> torch.Tensor:
    """Join scores of single queries, (blocks,), to one tensor, (batch, queries, blocks).

    `run` has scores for each query that sees at least one complete block of `size` keys, in the
    order of the examples and queries. All other entries are the lowest number of the dtype.
    """
    if run.mask is None:
        raise ValueError("the mask of the layer is unknown")
    visible = run.mask if run.mask.dtype == torch.bool else run.mask == 0
    counts = visible[:, 0].sum(dim=-1) // size
    entries = torch.cat([torch.empty(0, device=counts.device), *run.scores])
    if len(entries) != int(counts.sum()):
        raise ValueError("the scores do not fit the mask of the layer")
    scores = entries.new_full((*counts.shape, int(counts.max())), torch.finfo(entries.dtype).min)
    is_scored = torch.arange(scores.shape[-1], device=counts.device) < counts[..., None]
    scores[is_scored] = entries
    return scores


def _check_choice(
    ranks: Ranks,
    chosen: torch.Tensor,
    index: int,
    positions: Positions,
    blocks: IndexerBlocks | None,
) -> Ties:
    """Count the choices of keys that rounding may change.

    Raise NotImplementedError if a key that was not chosen has a larger score than a chosen key.

    Keys are those of the example `index`, or its summaries. Differences of the scores of single
    keys up to `_ROUNDING` are ignored, because `ranks` computes these scores again. At most `_ROWS`
    queries are checked.
    """
    num_tokens, num_keys = ranks.num_queries, ranks.num_keys
    rows = torch.linspace(0, num_tokens - 1, min(num_tokens, _ROWS)).long()
    heads = range(ranks.num_heads)
    scores = ranks.scores(heads, rows)[..., ranks.scores_of(slice(0, num_keys))]
    scores = scores.masked_fill(~ranks.allowed(heads, rows).to(scores.device), -torch.inf)
    queries = rows if positions.queries is None else positions.queries[rows]
    keys = positions.keys
    if keys is None or (blocks is not None and blocks.as_summaries):
        keys = torch.arange(num_keys)
    is_chosen = _is_chosen(chosen[index], queries, keys, blocks).to(scores.device)
    smallest = scores.masked_fill(~is_chosen | scores.isneginf(), torch.inf).amin(dim=-1)
    largest = scores.masked_fill(is_chosen, -torch.inf).amax(dim=-1)
    limits = torch.finfo(next(iter(ranks.parts.values())).dtype)
    # Blocks without a score have the lowest number, and blocks that are always chosen infinity.
    is_score = scores.isfinite() & (scores > limits.min)
    size = scores.masked_fill(~is_score, 0).abs().amax(dim=-1)
    is_close = smallest - largest <= _ROUNDINGS_OF_TIE * limits.eps * size
    is_close &= smallest.isfinite() & (largest > limits.min)
    if blocks is None:
        smallest += _ROUNDING * scores.masked_fill(scores.isneginf(), 0).abs().amax(dim=-1)
    if bool((largest > smallest).any()):
        raise NotImplementedError("the scores of the indexer do not give the keys that it chose")
    return Ties(int(is_close.any(dim=0).sum()), len(rows))


def _is_chosen(
    chosen: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor, blocks: IndexerBlocks | None
) -> torch.Tensor:
    """Return whether each query chose each key, (heads, queries, keys).

    `chosen` is the output of the indexer for one example. `queries` and `keys` are positions of
    tokens in this example, where padding counts, too. If the indexer chooses summaries, `keys` are
    the indices of the summaries.
    """
    has_heads = chosen.dim() == 3
    chosen = (chosen if has_heads else chosen[None])[:, queries.to(chosen.device)]
    keys = keys.to(chosen.device)
    if chosen.dtype == torch.bool:
        return chosen[..., keys]
    size = blocks.size if has_heads and blocks is not None else 1
    width = int(keys[-1]) // size + 2
    # -1 and indices after the last key are moved to an extra column.
    chosen = chosen.long().masked_fill((chosen < 0) | (chosen >= width), width - 1)
    flags = torch.zeros(*chosen.shape[:2], width, dtype=torch.bool, device=chosen.device)
    return flags.scatter_(-1, chosen, value=True)[..., keys // size]
