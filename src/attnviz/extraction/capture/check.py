"""Comparison of weights computed from queries and keys with the model's own attention.

The computed weights may be wrong in a single head, in a few rows, in one example of a batch, or in
one window. A row has the weights of one query. In every call, rows of every requested head are
compared in every example and window (in fewer examples if `CheckedCalls` is used):

- Number of rows: all rows of a call with at most `_MIN_ENTRIES` weights. Otherwise the number of
  rows per head is chosen so that the comparison takes a few percent of the layer's time: at least
  32, or at least 8 per example or window if several are compared together. For a function that
  transformers does not ship (`foreign_name`), `_MIN_FOREIGN_ENTRIES` replaces `_MIN_ENTRIES`.
- Choice of rows: rows are drawn from a generator with a fixed seed, so a second extraction compares
  the same rows. The n rows are put into a random order. Each of the h heads takes the next m rows
  in this order, so every row is compared in at least one head if h * m >= n. Then a mask that is
  wrong in one row of all heads is always found.
- Probability of finding a difference in k of the n rows of one head: 1 if all rows are compared,
  else ``1 - C(n - k, m) / C(n, m)``, about ``1 - (1 - m / n)**k``. For m = 32 and n = 512 the
  probability is 6% for k = 1, 64% for k = 16, and 1 for k > n - m.

A difference counts only if it is larger than rounding errors can be (`_MAX_ROW_ERROR`). Output
vectors are compared by their projections on a few random directions. It is nearly certain that a
difference of two vectors is visible in one of the projections.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import torch
import transformers
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.softmax import exp_in_place

__all__ = ["CheckedCalls", "SelfCheck", "foreign_name", "sinks_of", "uses_sink_as_gate"]

# Minimum number of compared rows per head in a call with one example.
_MIN_ROWS = 32
# Minimum number of compared rows per head and example in a call with several examples.
_MIN_ROWS_OF_SEVERAL = 8
# Increase of a layer's width (heads times head size) for which one more row per head is compared.
# The time of a layer grows with the square of its width, and the time of the comparison with the
# number of rows times the width. Therefore the comparison takes the same small share at any width.
_WIDTH_PER_ROW = 24
# Minimum number of compared weights of a call, enough for all rows of 73 tokens with 12 heads.
_MIN_ENTRIES = 1 << 16
# Minimum number of compared weights of a call of a function that transformers does not ship.
_MIN_FOREIGN_ENTRIES = 1 << 22
# Largest number of weights computed at once (1 MiB of float32), unless one row of a head has more.
_MAX_ENTRIES_AT_ONCE = 1 << 18
# Number of random directions. With probability 0.16, the projection of a vector on a direction is
# less than a fifth of its usual size. With probability 4e-7, all 8 projections are that small.
_PROJECTIONS = 8

# Limit of the error of a row of outputs. The error is the smallest c for which the first inequality
# below holds. Rounding causes only a small c. The second inequality is for a row of weights.
#
#     |error of the projected output| <= c u (|o| + rms(p) + |l| std(p))
#     |error of w| <= c u (1 + |l|)
#
# u: the relative rounding error of the least precise computation of the call (`_rounding_unit`)
# o: the output vector of the row
# w: the weights of the row
# p: the projected values. Their root mean square (rms) and standard deviation (std) over the keys
#    are weighted by w.
# |l|: the size of the row's logits, computed as the absolute log-normalizer of the row plus the
#    logarithm of the number of keys
#
# In 222 extractions of tiny models in bfloat16 and float16, the largest c was 1.8. If the logits
# are large, the right-hand sides are large, and small errors of a formula are not found.
_MAX_ROW_ERROR = 4.0
# Limit of the error of a head: the root mean square of the errors of its rows. The largest error
# in the 222 extractions was 0.5. The limit is lower than that of a single row, because rounding
# errors are large in few rows only. The error of a wrong formula is large in all rows.
_MAX_HEAD_ERROR = 1.0
# Limit of the error of a row of weights: the smallest c for which the second inequality holds.
_MAX_WEIGHT_ERROR = 4.0
# Assumed number of roundings in a sum of float32. Each term is rounded, and large logits amplify
# the errors. With 16 roundings, three of 615 tiny models were rejected wrongly (their largest error
# was 5.8, and the limit is 4). The errors of wrong formulas are far larger.
_ROUNDINGS_PER_SUM = 64

_SHIPPED, _TORCH = (
    f"{Path(str(package.__file__)).parent}{os.sep}" for package in (transformers, torch)
)


@dataclass(frozen=True)
class _Sample:
    """Rows to compare in examples (or windows) with the same mask and the same bias.

    `attention` and `unpadded` (positions without padding) are those of the first example. `rows`
    are row indices that do not count padding, int64: (heads, rows), or (1, rows) if they are the
    same for all heads. `positions` are the indices of these rows in the model's padded tensors.
    """

    examples: list[int]
    attention: QueryKeyAttention
    unpadded: Positions
    heads: Sequence[int]
    rows: torch.Tensor
    positions: torch.Tensor

    def parts(self) -> Iterator[tuple[slice, slice, slice]]:
        """Divide the sample into parts with at most `_MAX_ENTRIES_AT_ONCE` weights or with one row.

        Yield each part as slices of `examples`, of `heads` and of the second axis of `rows`.
        """
        count, num_keys = self.rows.shape[1], max(1, self.attention.num_keys)
        steps = []
        remaining = _MAX_ENTRIES_AT_ONCE // num_keys
        for size in (count, len(self.heads), len(self.examples)):
            steps.append(max(1, min(size, remaining)))
            remaining //= max(1, size)
        for example in range(0, len(self.examples), steps[2]):
            for head in range(0, len(self.heads), steps[1]):
                for row in range(0, count, steps[0]):
                    yield (
                        slice(example, example + steps[2]),
                        slice(head, head + steps[1]),
                        slice(row, row + steps[0]),
                    )

    def infinite_errors(self, device: torch.device) -> torch.Tensor:
        """Return a tensor of errors, (examples, heads, rows), filled with infinity."""
        size = len(self.examples), len(self.heads), self.rows.shape[1]
        return torch.full(size, torch.inf, device=device)

    def index(
        self, part: tuple[slice, slice, slice], tensor: torch.Tensor, numbers: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return index tensors into `tensor` for the examples, heads and rows of a part.

        The index tensors broadcast to (examples, heads, rows). `part` is one of ``self.parts()``.
        The first axis of `tensor` is examples, or has size 1 if all examples share the tensor.
        `numbers` are either the `rows` or the `positions` of this sample.
        """
        examples, heads, rows = part
        example_indices = torch.tensor(self.examples[examples]) % tensor.shape[0]
        own_rows = numbers[heads if len(numbers) > 1 else slice(None), rows]
        return (
            example_indices[:, None, None].to(tensor.device),
            torch.tensor(self.heads[heads])[None, :, None].to(tensor.device),
            own_rows[None].to(tensor.device),
        )


class CheckedCalls:
    """Kinds of calls that were compared in earlier forwards over a corpus.

    Calls are of the same kind if they have the same module, implementation and type of mask, if
    both or neither have padding, and if their numbers of queries and of keys lie between the same
    powers of two. The first call of a kind is compared for the first and the last example, because
    examples are sorted by length. Every later call of the kind is compared for one random example.
    Calls of functions that transformers does not ship are always compared for all examples.
    """

    def __init__(self) -> None:
        self._kinds: set[tuple[object, ...]] = set()
        self._generator = torch.Generator().manual_seed(0)

    def examples(self, call: AttentionCall, unpadded: Sequence[Positions], name: str) -> list[int]:
        """Return the indices of the examples (or windows) to compare in a call."""
        mask = call.mask
        padded = any(
            positions.queries is not None or positions.keys is not None for positions in unpadded
        )
        kind = (
            name,
            call.implementation,
            (type(mask), getattr(mask, "dtype", None), getattr(mask, "ndim", 0)),
            padded,
            call.num_queries.bit_length(),
            call.num_keys.bit_length(),
        )
        count = len(unpadded)
        if foreign_name(call) is not None:
            return list(range(count))
        if kind not in self._kinds:
            self._kinds.add(kind)
            return sorted({0, count - 1})
        return [int(torch.randint(count, (), generator=self._generator))]


class SelfCheck:
    """Comparison of the attention captured in one forward with the model's own attention.

    If `checked` is passed, outputs are compared only for the examples that `checked` selects.
    `foreign` has an entry for each attention function that transformers does not ship: the number
    of compared rows per head and the number of all rows. If calls differ, the entry is that of the
    smallest share of compared rows. The entry is None if a call had no output to compare with.
    """

    def __init__(self, checked: CheckedCalls | None = None) -> None:
        self._checked = checked
        self.foreign: dict[str, tuple[int, int] | None] = {}
        self._generator = torch.Generator().manual_seed(0)
        self._directions: dict[tuple[int, torch.device], torch.Tensor] = {}

    def check_output(
        self,
        call: AttentionCall,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        heads: Sequence[int],
        name: str,
    ) -> None:
        """Compare outputs of `heads` computed from `attentions` with the call's output, if known.

        `attentions` and `unpadded` have one entry for each example (or window) of the call. Raise
        NotImplementedError if a difference is larger than rounding can cause. Possible causes are a
        mask that the model ignores, a gate, and a term of the logits in an unknown keyword
        argument. Raise ValueError if the output is NaN.
        """
        foreign = foreign_name(call)
        output = _checkable_output(call)
        if output is None or call.value is None:
            if foreign is not None:
                self.foreign[foreign] = None
            return
        selected = None
        if self._checked is not None:
            selected = self._checked.examples(call, unpadded, name)
        samples = list(self._draw_samples(call, attentions, unpadded, heads, selected))
        ratios = [self._output_errors(call, output, call.value, sample) for sample in samples]
        for sample, sample_ratios, (row_error, head_error) in zip(
            samples, ratios, _worst_errors(ratios), strict=True
        ):
            if math.isnan(row_error):
                raise ValueError(
                    f"model: the attention of {name} ({type(call.module).__name__}) returned "
                    "NaN. Check its weights and its dtype."
                )
            if not (row_error <= _MAX_ROW_ERROR and head_error <= _MAX_HEAD_ERROR):
                _raise_difference(
                    call,
                    output,
                    sample,
                    sample_ratios,
                    name,
                    whole_head=row_error <= _MAX_ROW_ERROR,
                )
            if foreign is not None:
                self._record_foreign(foreign, sample)

    def agrees_with_weights(
        self,
        call: AttentionCall,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        heads: Sequence[int],
    ) -> bool:
        """Whether weights computed from the call's queries and keys agree with `call.weights`.

        Only sampled rows of `heads` are compared. False if the call has no weights.
        """
        model_weights = call.weights
        if model_weights is None:
            return False
        first = attentions[0]
        expected = (call.num_heads, call.num_queries, call.num_keys)
        if tuple(model_weights.shape[1:]) != expected or first.num_heads != call.num_heads:
            return False
        samples = self._draw_samples(call, attentions, unpadded, heads)
        ratios = [_weight_errors(call, model_weights, sample) for sample in samples]
        return all(row_error <= _MAX_WEIGHT_ERROR for row_error, _ in _worst_errors(ratios))

    def _draw_samples(
        self,
        call: AttentionCall,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        heads: Sequence[int],
        selected: Sequence[int] | None = None,
    ) -> Iterator[_Sample]:
        """Draw the rows to compare.

        Examples without padding form one sample if they have the same mask and bias. `selected` are
        the indices of the examples to compare. The default is all examples.
        """
        groups: dict[tuple[int, ...], list[int]] = {}
        for index in range(len(attentions)) if selected is None else selected:
            attention, positions = attentions[index], unpadded[index]
            key: tuple[int, ...] = (id(attention.mask), id(attention.bias))
            if positions.queries is not None or positions.keys is not None:
                key = (index,)
            groups.setdefault(key, []).append(index)
        for examples in groups.values():
            attention, positions = attentions[examples[0]], unpadded[examples[0]]
            if not attention.num_queries or not attention.num_keys:
                continue
            rows = self._draw_rows(call, attention, len(heads), len(examples))
            placed = rows if positions.queries is None else positions.queries.cpu()[rows]
            yield _Sample(examples, attention, positions, heads, rows, placed)

    def _draw_rows(
        self, call: AttentionCall, attention: QueryKeyAttention, heads: int, examples: int
    ) -> torch.Tensor:
        num_queries = attention.num_queries
        width = (attention.queries if call.value is None else call.value).shape[-1]
        min_entries = _MIN_ENTRIES if foreign_name(call) is None else _MIN_FOREIGN_ENTRIES
        count = max(
            _MIN_ROWS // examples,
            _MIN_ROWS_OF_SEVERAL,
            attention.num_heads * width // _WIDTH_PER_ROW,
            min_entries // (examples * heads * attention.num_keys),
        )
        if count >= num_queries:
            return torch.arange(num_queries)[None]
        order = torch.randperm(num_queries, generator=self._generator)
        shared_rows = order[torch.arange(heads * count) % num_queries]
        return shared_rows.view(heads, count).sort(dim=1).values

    def _output_errors(
        self, call: AttentionCall, output: torch.Tensor, value: torch.Tensor, sample: _Sample
    ) -> torch.Tensor:
        """Return the error of each sampled row of the output, (examples, heads, rows).

        The error of a row is the largest difference between a projection of the computed output and
        of the model's output, divided by the limit for c = 1 (see `_MAX_ROW_ERROR`).
        """
        unit, device = _rounding_unit(call), value.device
        directions = self._directions_of(value.shape[-1], device)
        ratios = sample.infinite_errors(device)
        limits = torch.finfo(output.dtype)
        sinks = sinks_of(call)
        for part in sample.parts():
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                exponentials, top = _exponentials(call, sample, part)
                projected = _values_of_heads(sample, part, value).float() @ directions
                # The values of masked keys may be infinite, and 0 times infinity would be NaN.
                projected.masked_fill_(~projected.isfinite(), 0.0)
                largest = projected.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
                projected /= largest
                ones = torch.ones_like(projected[..., :1])
                sums = exponentials @ torch.cat([projected, projected.square(), ones], dim=-1)
                total = sums[..., -1:]
                if sinks is not None:
                    sink_logits = sinks[list(sample.heads[part[1]])].to(device).float()
                    total = total + torch.exp(sink_logits[None, :, None, None] - top[..., None])
                expected, square = (sums[..., :-1] / total).chunk(2, dim=-1)
                spread = (square - expected.square()).clamp_min(1e-12).sqrt()
                examples, heads, rows = sample.index(part, output, sample.positions)
                actual = output.detach()[examples, rows, heads].float() / largest
                logits = (top + total[..., 0].log()).abs() + math.log(sample.attention.num_keys + 1)
                allowed = actual.norm(dim=-1, keepdim=True) + square.sqrt()
                allowed = unit * allowed + _relative_errors(unit * logits)[..., None] * spread
                allowed += 4 * limits.tiny * limits.eps * math.sqrt(value.shape[-1]) / largest
                part_ratios = ((actual @ directions - expected).abs() / allowed).amax(dim=-1)
                # Ignore rows without allowed keys: their output is arbitrary.
                ratios[part] = part_ratios.masked_fill(top.isneginf(), 0.0)
        return ratios

    def _directions_of(self, width: int, device: torch.device) -> torch.Tensor:
        if (width, device) not in self._directions:
            directions = torch.randn(width, _PROJECTIONS, generator=self._generator)
            self._directions[width, device] = directions.to(device)
        return self._directions[width, device]

    def _record_foreign(self, foreign: str, sample: _Sample) -> None:
        size = (sample.rows.shape[1], sample.attention.num_queries)
        previous = self.foreign.get(foreign, size)
        if previous is not None:
            self.foreign[foreign] = min(previous, size, key=lambda rows: rows[0] / rows[1])


def foreign_name(call: AttentionCall) -> str | None:
    """Return the name of a call's attention function, or None if transformers ships it.

    A function is shipped if its code is part of transformers. Its registered name does not matter,
    except for kernels from the hub: their names contain a slash, and they are never shipped. Return
    None, too, if the function is unknown.
    """
    function = call.function
    if function is None:
        return None
    while isinstance(function, functools.partial) or _is_decorated(function):
        attribute = "func" if isinstance(function, functools.partial) else "__wrapped__"
        function = getattr(function, attribute)
    code = getattr(function, "__code__", None)
    shipped = (
        code.co_filename.startswith(_SHIPPED)
        if isinstance(code, CodeType)
        else type(function).__module__.partition(".")[0] == "transformers"
    )
    if shipped and "/" not in (call.implementation or ""):
        return None
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{call.implementation!r} ({kind.__qualname__} of {kind.__module__})"


def _is_decorated(function: Callable[..., Any]) -> bool:
    """Whether torch wrapped a function, for example with the decorator `torch.no_grad`."""
    code = getattr(function, "__code__", None)
    of_torch = isinstance(code, CodeType) and code.co_filename.startswith(_TORCH)
    return of_torch and hasattr(function, "__wrapped__")


def uses_sink_as_gate(module: nn.Module) -> bool:
    """Whether an attention module multiplies its output by a gate that depends on the sink.

    Such a gate and a sink in the softmax give the same output, but different weights. A module is
    assumed to have such a gate if the code of the model's eager attention calls `sigmoid`.
    """
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    return "sigmoid" in getattr(getattr(eager, "__code__", None), "co_names", ())


def sinks_of(call: AttentionCall) -> torch.Tensor | None:
    """Return the logits of the sinks, (heads,), or None if a call has no sinks or has weights.

    Raise NotImplementedError if the number of sinks is not the number of heads.
    """
    sinks = call.options.get("s_aux")
    if sinks is None:
        sinks = call.options.get("sinks", getattr(call.module, "sinks", None))
    if not isinstance(sinks, torch.Tensor) or call.weights is not None:
        return None
    if call.query is not None and sinks.numel() != call.query.shape[1]:
        raise NotImplementedError(
            f"model: the sinks of {type(call.module).__name__}, {tuple(sinks.shape)}, are not "
            f"one for each of its {call.query.shape[1]} heads (they depend on the query), "
            "which cannot be shown yet. Show the model's own weights with "
            "AttentionRecord.from_weights."
        )
    return sinks.detach().flatten()


def _checkable_output(call: AttentionCall) -> torch.Tensor | None:
    """Return the output of a call as (batch, queries, heads, value_dim).

    Return None if the output is not a floating-point tensor of this size, or if the values of the
    call are not known.
    """
    output, value = call.output, call.value
    if not isinstance(output, torch.Tensor) or value is None or not output.is_floating_point():
        return None
    shape = (call.num_examples, call.num_queries, call.num_heads, value.shape[-1])
    return output.reshape(shape) if output.numel() == math.prod(shape) else None


def _exponentials(
    call: AttentionCall, sample: _Sample, part: tuple[slice, slice, slice]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``exp(logits - largest logit)`` of a part's rows, and the largest logit of each row.

    `part` is one of ``sample.parts()``. The shapes are (examples, heads, rows, keys) and (examples,
    heads, rows). The largest logit of a row without allowed keys is minus infinity.
    """
    if call.query is None:
        raise TypeError("a call without queries cannot be checked")
    attention, heads = sample.attention, sample.heads[part[1]]
    examples, own_heads, rows = sample.index(part, call.query, sample.positions)
    queries = call.query.detach()[examples, own_heads, rows].float() * attention.scale
    key_heads = [attention.key_head(head) for head in heads]
    # If each key head serves equally many consecutive `heads`, read its keys only once.
    distinct = sorted(set(key_heads))
    if key_heads == [head for head in distinct for _ in range(len(key_heads) // len(distinct))]:
        key_heads = distinct
    keys = _heads_of_examples(call.key, sample, part, key_heads, attention.keys).float()
    grouped = queries.reshape(*queries.shape[:1], keys.shape[1], -1, queries.shape[-1])
    products = (grouped @ keys.mT).view(*queries.shape[:3], -1)
    of_heads = sample.rows[part[1] if len(sample.rows) > 1 else slice(None), part[2]]
    logits = attention.logits_of_products(products, heads, of_heads)
    top = logits.amax(dim=-1)
    logits -= top.masked_fill(top.isneginf(), 0.0)[..., None]
    return exp_in_place(logits), top


def _values_of_heads(
    sample: _Sample, part: tuple[slice, slice, slice], value: torch.Tensor
) -> torch.Tensor:
    """Return the values for a part of a sample: (examples, heads, keys, value_dim).

    Keys that are padding are dropped.
    """
    size = sample.attention.num_heads // value.shape[1]
    value_heads = [head // size for head in sample.heads[part[1]]]
    values = _heads_of_examples(value, sample, part, value_heads, None)
    keys = sample.unpadded.keys
    return values if keys is None else values[:, :, keys.to(values.device)]


def _heads_of_examples(
    tensor: torch.Tensor | None,
    sample: _Sample,
    part: tuple[slice, slice, slice],
    heads: Sequence[int],
    alone: torch.Tensor | None,
) -> torch.Tensor:
    """Return `heads` of `tensor` for the examples of a part of a sample.

    `alone` is `tensor` for the sample's first example only, without padding, or None. `alone` is
    used instead of `tensor` if the sample has no other examples.
    """
    examples = sample.examples[part[0]]
    if tensor is None or (alone is not None and len(sample.examples) == 1):
        if alone is None:
            raise TypeError("a call without keys cannot be checked")
        block = alone[None]
    elif tensor.shape[0] == 1:
        block = tensor.detach()
    else:
        block = tensor.detach()[_as_slice(examples)]
    return block[:, _as_slice(heads)]


def _as_slice(numbers: Sequence[int]) -> slice | list[int]:
    first, stop = numbers[0], numbers[-1] + 1
    same = list(numbers) == list(range(first, stop))
    return slice(first, stop) if same else list(numbers)


def _weight_errors(
    call: AttentionCall, model_weights: torch.Tensor, sample: _Sample
) -> torch.Tensor:
    """Return the error of each sampled row of weights, (examples, heads, rows).

    The error of a row is the largest difference between a computed weight and the model's weight,
    divided by the limit for c = 1 (see `_MAX_ROW_ERROR`).
    """
    unit = _rounding_unit(call)
    ratios = sample.infinite_errors(model_weights.device)
    for part in sample.parts():
        with torch.no_grad(), torch.autocast(model_weights.device.type, enabled=False):
            weights, top = _exponentials(call, sample, part)
            total = weights.sum(dim=-1, keepdim=True)
            weights /= total
            examples, heads, rows = sample.index(part, model_weights, sample.positions)
            actual = model_weights.detach()[examples, heads, rows].float()
            if sample.unpadded.keys is not None:
                actual = actual[..., sample.unpadded.keys.to(actual.device)]
            logits = (top + total[..., 0].log()).abs() + math.log(sample.attention.num_keys + 1)
            error = (weights - actual).abs().amax(dim=-1) / (unit * (1 + logits))
            # Ignore rows without allowed keys: their softmax is not defined.
            ratios[part] = error.masked_fill(top.isneginf(), 0.0)
    return ratios


def _relative_errors(error: torch.Tensor) -> torch.Tensor:
    """Convert errors of logits into relative errors of weights.

    If a logit has the error ``c * e``, its weight has the relative error ``exp(c * e) - 1``.
    `error` is e, and the result is the relative error divided by c, where c is `_MAX_ROW_ERROR`.
    """
    return torch.expm1((_MAX_ROW_ERROR * error).clamp_max(60.0)) / _MAX_ROW_ERROR


def _worst_errors(ratios: Sequence[torch.Tensor]) -> list[list[float]]:
    """Return the largest error of a row and the largest error of a head for each sample.

    The error of a head is the root mean square of the errors of its rows. The results for all
    samples are copied from the device at once, because each copy waits for the device.
    """
    if not ratios:
        return []
    with torch.no_grad():
        limits = [
            torch.stack([sample_ratios.amax(), sample_ratios.square().mean(dim=-1).sqrt().amax()])
            for sample_ratios in ratios
        ]
        worst: list[list[float]] = torch.stack(limits).tolist()
    return worst


def _rounding_unit(call: AttentionCall) -> float:
    """Return the relative rounding error of the least precise computation in a call."""
    tensors = [call.query, call.key, call.value, call.output, call.weights]
    dtypes = {tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor)}
    device = next((tensor.device.type for tensor in tensors if tensor is not None), "cpu")
    if torch.is_autocast_enabled(device):
        dtypes.add(torch.get_autocast_dtype(device))
    unit = _ROUNDINGS_PER_SUM * torch.finfo(torch.float32).eps / 2
    for dtype in dtypes:
        if dtype.is_floating_point:
            unit = max(unit, torch.finfo(dtype).eps / 2)
    # Users may allow torch to multiply float32 matrices with fewer bits: TF32 or bfloat16. Devices
    # other than CPUs may use TF32 and approximate exponentials by default. Errors on such devices
    # were not measured, so at least the rounding error of TF32 is assumed.
    precision = "high" if device != "cpu" else "highest"
    bits = {"highest": 0.0, "high": 2**-11, "medium": 2**-8}
    return max(unit, bits[precision], bits.get(torch.get_float32_matmul_precision(), 0.0))


def _raise_difference(
    call: AttentionCall,
    output: torch.Tensor,
    sample: _Sample,
    ratios: torch.Tensor,
    name: str,
    *,
    whole_head: bool,
) -> NoReturn:
    """Raise NotImplementedError that states the head, query and size of the worst difference.

    `ratios` are the errors of the sampled rows. If `whole_head` is True, search only the head with
    the largest root mean square error.
    """
    candidates = (
        ratios.square().mean(dim=-1, keepdim=True).expand_as(ratios) if whole_head else ratios
    )
    if whole_head:
        best = candidates == candidates.amax()
        candidates = ratios.masked_fill(~best, -1.0)
    example, head, row = (
        int(index) for index in torch.unravel_index(candidates.argmax(), candidates.shape)
    )
    part = (slice(example, example + 1), slice(head, head + 1), slice(row, row + 1))
    exponentials, top = _exponentials(call, sample, part)
    total = exponentials.sum(dim=-1, keepdim=True)
    sinks = sinks_of(call)
    if sinks is not None:
        total = total + torch.exp(sinks[sample.heads[head]].float().to(top.device) - top[..., None])
    assert call.value is not None  # noqa: S101
    expected = exponentials / total @ _values_of_heads(sample, part, call.value).float()
    examples, heads, rows = sample.index(part, output, sample.positions)
    error = float((output[examples, rows, heads].float() - expected).abs().max())
    limit = _MAX_HEAD_ERROR if whole_head else _MAX_ROW_ERROR
    allowed = error * limit / max(float(candidates.max()), limit)
    raise NotImplementedError(
        f"model: the attention of {name} ({type(call.module).__name__}, implementation "
        f"{call.implementation!r}) is not softmax(scale * q k^T + bias + mask): its output "
        f"differs by {error:.2g} (allowed {allowed:.2g}) in head {sample.heads[head]}, query "
        f"{int(rows.flatten()[0])}. Its weights are not known. Show your own weights with "
        "AttentionRecord.from_weights."
    )
