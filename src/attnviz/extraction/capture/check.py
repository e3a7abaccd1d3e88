"""Comparison of weights computed from queries and keys with the model's own attention.

A difference may occur in one head, in a few rows, in one example of a batch or in one window. In
every call, sampled rows of each of these are compared:

- Number of rows: all rows if the call has few weights (`_MIN_ENTRIES`). Otherwise a number
  of rows per head that costs a few percent of the layer's time: at least 32, or at least 8 per
  window or example if several are compared together. For a function that transformers does not ship
  (`foreign_name`) the limit is `_MIN_FOREIGN_ENTRIES`.
- Choice of rows: they are drawn for each call, from a generator with a fixed seed, so that a second
  extraction compares the same rows. The heads of a call share one random order of all rows: m rows
  of each of h heads contain every row at least once if h * m >= n. So a mask that is wrong in one
  row of all heads is found with certainty, in each single layer.
- Probability of finding a difference in k of n rows of one head of one layer: 1 if all rows are
  compared, else ``1 - C(n - k, m) / C(n, m)``, about ``1 - (1 - m / n)**k``. For m = 32, n = 512 it
  is 6% for one row, 64% for 16 rows, and 1 for a head that differs in more than n - m rows.

A difference counts only if it is larger than rounding explains (`_MAX_ROW_ERROR`). Outputs are
compared in a few random projections of the values: a difference in any direction shows in some of
them.
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

# Minimum number of compared rows per head: for one example, for each of several, and one row for
# each `_WIDTH_PER_ROW` entries of the layer's width. The cost of a layer grows with the square of
# its width, the cost of the comparison with rows times width.
_MIN_ROWS = 32
_MIN_ROWS_OF_SEVERAL = 8
_WIDTH_PER_ROW = 24
# At least this many weights of a call are compared: all rows of 73 tokens with 12 heads.
_MIN_ENTRIES = 1 << 16
# At least this many weights are compared for a foreign function.
_MIN_FOREIGN_ENTRIES = 1 << 22
# Number of weights computed at once (1 MiB of float32), unless one row of one head has more.
_MAX_ENTRIES_AT_ONCE = 1 << 18
# One projection shows less than a fifth of a difference with probability 0.16, all with 4e-7.
_PROJECTIONS = 8

# Largest difference that rounding explains, in units u of the coarsest dtype (`_rounding_unit`). A
# model rounds the logits of a row by a few u |l|, and its weights w and its output o by a few u
# each. So with projected values p, and rms and std over the keys weighted by w,
#
#     |error of o p| <= c u (|o| + rms(p) + |l| std(p))       |error of w| <= c u (1 + |l|)
#
# |l| is the absolute log-normalizer of the row plus log(n), which covers the logits below it. In
# 222 extractions of tiny models in bfloat16 and float16 the largest c was 1.8. If logits are so
# large that their rounding alone moves the weights, few differences can be noticed.
_MAX_ROW_ERROR = 4.0
# Limit for the root mean square of a head's errors, which was at most 0.5 in those extractions:
# rounding errors differ from row to row, errors of a formula do not.
_MAX_HEAD_ERROR = 1.0
_MAX_WEIGHT_ERROR = 4.0
# Sums in float32 are rounded at each term, and sharp logits amplify that. With 16, three of 615
# tiny models were refused wrongly (5.8, with 4 allowed). Wrong formulas exceed the limit by far.
_ROUNDINGS_PER_SUM = 64

_SHIPPED, _TORCH = (
    f"{Path(str(package.__file__)).parent}{os.sep}" for package in (transformers, torch)
)


@dataclass(frozen=True)
class _Sample:
    """Rows of some examples (or windows) of a call that share their mask and bias.

    `rows` are int64, (heads, rows), or (1, rows) if all heads have the same rows. `positions` are
    the same rows as the model counts them, with padding.
    """

    examples: list[int]
    attention: QueryKeyAttention
    unpadded: Positions
    heads: Sequence[int]
    rows: torch.Tensor
    positions: torch.Tensor

    def parts(self) -> Iterator[tuple[slice, slice, slice]]:
        """Yield slices of examples, heads and rows whose weights fit into memory at once."""
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
        """Return an array of errors, (examples, heads, rows), filled with infinity."""
        size = len(self.examples), len(self.heads), self.rows.shape[1]
        return torch.full(size, torch.inf, device=device)

    def index(
        self, part: tuple[slice, slice, slice], tensor: torch.Tensor, numbers: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return examples, heads and rows of a part.

        They index a tensor whose first axis is examples.
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
    """Kinds of calls that were already compared in the forwards of a corpus.

    The kind of a call is given by its module, function, form of mask, presence of padding, and
    length up to the next power of two. Examples of a corpus are sorted by length. The first call of
    a kind is compared for the first and the last example, and every later call for one example,
    drawn with a fixed seed. Calls of functions that transformers does not ship are compared for all
    examples.
    """

    def __init__(self) -> None:
        self._kinds: set[tuple[object, ...]] = set()
        self._generator = torch.Generator().manual_seed(0)

    def examples(self, call: AttentionCall, unpadded: Sequence[Positions], name: str) -> list[int]:
        """Return the indices of the examples (or windows) of a call that are compared."""
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
    """Comparison of the attention captured in one forward with the model's own.

    `checked` are the calls of earlier forwards: calls like them are compared for fewer examples.
    `foreign` has an entry for each function that transformers does not ship: the smallest number of
    compared rows per head with the number of all rows, or None if there was nothing to compare
    with.
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
        """Compare the weights of some heads with the output of the model's attention.

        `attentions` and `unpadded` have one entry for each example (or window) of the call. Raise
        NotImplementedError if rounding does not explain the difference: an ignored mask, a gate, or
        a term in an unknown keyword argument. Raise ValueError if the output is NaN.
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
        """Whether the weights of traced queries and keys agree with `call.weights`."""
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
        """Draw rows for all examples. Examples that share mask and bias get the same rows.

        `selected` are the examples to compare, by default all.
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
        """Return the errors of the output in units of rounding: (examples, heads, rows)."""
        unit, device = _rounding_unit(call), value.device
        directions = self._directions_of(value.shape[-1], device)
        ratios = sample.infinite_errors(device)
        limits = torch.finfo(output.dtype)
        sinks = sinks_of(call)
        for part in sample.parts():
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                exponentials, top = _exponentials(call, sample, part)
                projected = _values_of_heads(sample, part, value).float() @ directions
                # Values of masked keys may be anything.
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
                # The output of a row without allowed keys is arbitrary.
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

    The file of its code decides. So a function registered under one of transformers' own names is
    foreign too. A kernel from the hub is recognised by its name.
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
    """Whether a function is torch's wrapper around another one, such as torch.no_grad's."""
    code = getattr(function, "__code__", None)
    of_torch = isinstance(code, CodeType) and code.co_filename.startswith(_TORCH)
    return of_torch and hasattr(function, "__wrapped__")


def uses_sink_as_gate(module: nn.Module) -> bool:
    """Whether a model's code applies the sink as a gate on the output, outside of its weights.

    A sink in the softmax and such a gate give the same output, so the code is inspected.
    """
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    return "sigmoid" in getattr(getattr(eager, "__code__", None), "co_names", ())


def sinks_of(call: AttentionCall) -> torch.Tensor | None:
    """Return the sinks of a call's heads, (heads,), or None if it has none.

    Raise NotImplementedError if there is not one sink per head.
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
    """Return the output as (batch, queries, heads, value_dim), or None if it has another size."""
    output, value = call.output, call.value
    if not isinstance(output, torch.Tensor) or value is None or not output.is_floating_point():
        return None
    shape = (call.num_examples, call.num_queries, call.num_heads, value.shape[-1])
    return output.reshape(shape) if output.numel() == math.prod(shape) else None


def _exponentials(
    call: AttentionCall, sample: _Sample, part: tuple[slice, slice, slice]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights before they are divided by their sum, and the largest logit of each row.

    Their shapes are (examples, heads, rows, keys) and (examples, heads, rows). The largest logit is
    minus infinity if a row has no allowed key.
    """
    if call.query is None:
        raise TypeError("a call without queries cannot be checked")
    attention, heads = sample.attention, sample.heads[part[1]]
    examples, own_heads, rows = sample.index(part, call.query, sample.positions)
    queries = call.query.detach()[examples, own_heads, rows].float() * attention.scale
    key_heads = [attention.key_head(head) for head in heads]
    # Complete groups use each key head equally often: its keys are read once.
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
    """Return the values of each head, (examples, heads, keys, value_dim)."""
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
    """Return some heads of some examples, without a copy if they are contiguous.

    `alone` is the tensor of a single example, without its padding.
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
    """Return the errors of weights in units of rounding: (examples, heads, rows)."""
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
            # A row without allowed keys has equal weights in the model, and zeros here.
            ratios[part] = error.masked_fill(top.isneginf(), 0.0)
    return ratios


def _relative_errors(error: torch.Tensor) -> torch.Tensor:
    """Return the relative errors of weights due to errors of logits. They grow exponentially."""
    return torch.expm1((_MAX_ROW_ERROR * error).clamp_max(60.0)) / _MAX_ROW_ERROR


def _worst_errors(ratios: Sequence[torch.Tensor]) -> list[list[float]]:
    """Return the worst row and the worst head of each sample, with one transfer from the device."""
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
    """Return the relative rounding error of the least precise tensor of a call."""
    tensors = [call.query, call.key, call.value, call.output, call.weights]
    dtypes = {tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor)}
    device = next((tensor.device.type for tensor in tensors if tensor is not None), "cpu")
    if torch.is_autocast_enabled(device):
        dtypes.add(torch.get_autocast_dtype(device))
    unit = _ROUNDINGS_PER_SUM * torch.finfo(torch.float32).eps / 2
    for dtype in dtypes:
        if dtype.is_floating_point:
            unit = max(unit, torch.finfo(dtype).eps / 2)
    # Users may request products of float32 with fewer bits: TF32 or bfloat16. Devices other than
    # CPUs may use TF32 and approximate exponentials without a request. They were not measured, so
    # they get the limit of TF32.
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
    """Raise an error with the position and size of the largest difference of outputs."""
    candidates = (
        ratios.square().mean(dim=-1, keepdim=True).expand_as(ratios) if whole_head else ratios
    )
    if whole_head:
        # The largest error of the worst head.
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
