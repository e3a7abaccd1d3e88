"""Comparison of weights computed from queries and keys with the model's own attention.

A row is the weights of one query. A sink is a learned logit of a head that takes a share of each
row. In every call of an attention function, 32 rows of each head are computed, or all rows of a
short text. The weights of a row are multiplied by the values, and the product is compared with the
model's output. If the model's own weights are known, the rows are compared with these weights
instead. If a call has several examples or windows, the 32 rows are divided among them, with at
least 4 rows of each head in every example. More rows are compared for functions that transformers
does not ship: all rows, unless they have more than `_MAX_FOREIGN_ENTRIES` weights.

The rows of a head are evenly spread over the text, and shifted a little from head to head. If a
text has at most 32 times as many tokens as there are heads, the heads together cover all rows. Then
a mask that is wrong in one row of all heads is found. If a head has n rows and more than n / 32
consecutive rows are wrong, at least one of the wrong rows is compared. These statements hold for
calls with one example. If there are several examples, fewer rows of each example are compared.

A difference counts only if it is larger than rounding errors can be (`_MAX_ROW_ERROR`).

A model has many layers of the same shape. Their rows are collected and compared together, because a
few operations on large tensors are faster than many operations on small tensors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions, without_padding
from attnviz.extraction.capture.postponed import Postponed
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.softmax import exp_in_place
from attnviz.utils.arrays import moved

# Number of compared rows of each head in a call. They are divided among the examples of the call.
_ROWS = 32
# Minimum number of compared rows of each head and example in a call with several examples.
_MIN_ROWS_OF_EXAMPLE = 4
# Maximum number of compared weights in a call of a function that transformers does not ship. All
# rows are compared if they have at most this number of weights. At least as many rows are compared
# as for other functions, even if these rows have more weights.
_MAX_FOREIGN_ENTRIES = 1 << 22
# Maximum number of weights that are computed at once (512 KiB of float32). `_Sample.parts` names an
# exception.
_MAX_ENTRIES_AT_ONCE = 1 << 17

# Limit of the relative error c of a row whose output is compared. c is the smallest number for
# which the first inequality below holds, where "error of x" is the difference between the computed
# x and the model's x. Rounding causes only a small c. The second inequality is for a row whose
# weights are compared.
#
#     |error of o| <= c u (|o| + rms(v) + |l| std(v))
#     |error of w| <= c u (1 + |l|)
#
# |o|, |error of o|: the lengths of these vectors
# |error of w|: the largest absolute error of a weight of the row
# u: the relative rounding error of the least precise computation of the call (`_rounding_unit`)
# o: the output vector of the row
# w: the weights of the row
# v: the value vectors. Their root mean square (rms) and standard deviation (std) over the keys are
#    weighted by w.
# |l|: the size of the row's logits: the logarithm of one more than the number of keys, plus the
#    absolute value of the largest logit, or scale |q| max|k| / sqrt(head_dim) if it is larger. This
#    is the size of a product q k^T of vectors of random directions. Rounding q and k makes an error
#    of this size times u, even if the sum is almost 0.
#
# The code adds two details to the first inequality (`_limit_of_values`, `_compare`). If u |l| is
# not small, the effect of an error of the logits grows exponentially. Outputs close to 0 are
# rounded to multiples of the smallest number of their dtype.
#
# With the simulated kernels of `tests/models/test_arithmetic.py` (TF32, fused softmax, sums in
# float16), the largest c was 0.8. If the logits are large, the right-hand sides are large, so small
# errors of captured queries, keys or masks are not found.
_MAX_ROW_ERROR = 4.0
# Limit of the error of a head whose outputs are compared: the root mean square of c over its
# compared rows. The limit is lower than that of a row, because rounding errors are large in few
# rows only, but a wrong formula causes errors in all rows. The largest error of a head with the
# kernels mentioned above was 0.22.
_MAX_HEAD_ERROR = 1.0
# Limit of the relative error c of a row whose weights are compared (second inequality above).
_MAX_WEIGHT_ERROR = 4.0
# Assumed number of roundings in a sum of float32. Each term is rounded, and large logits amplify
# the errors. With 16 roundings, three of 615 tiny models were rejected wrongly (their largest error
# was 5.8, and the limit is 4). If the weights of a model follow another formula, the error is far
# larger.
_ROUNDINGS_PER_SUM = 64


@dataclass(frozen=True)
class _Sample:
    """Rows of one example or window of a call, and the model's own results for these rows.

    Attributes
    ----------
    attention : QueryKeyAttention
        The captured attention of the example.
    rows : Tensor
        Indices of the compared rows, int64: (heads, rows), or (1, rows) if all heads have the same
        indices. Indices do not count the queries that are padding.
    actual : Tensor
        The model's output vectors of the rows, (heads, rows, value_dim), or its weights,
        (heads, rows, keys).
    values : Tensor or None
        Values of the example without padding, (value_heads, keys, value_dim). None if weights are
        compared.
    sinks : Tensor or None
        Logits of the sinks, (heads,), or None if the heads have none.
    name : str
        Path of the module, with its class and its attention function, for errors.
    """

    attention: QueryKeyAttention
    rows: torch.Tensor
    actual: torch.Tensor
    values: torch.Tensor | None
    sinks: torch.Tensor | None
    name: str

    @property
    def kind(self) -> tuple[object, ...]:
        """Properties that samples must share to be compared together."""
        attention = self.attention
        tensors = (attention.queries, attention.keys, self.values, self.actual)
        return (
            id(attention.mask),
            id(attention.bias),
            attention.scale,
            attention.softcap,
            self.sinks is None,
            *((x.shape, x.dtype, x.device) for x in tensors if x is not None),
        )

    def parts(self, num_samples: int) -> Iterator[tuple[slice, slice]]:
        """Divide the compared weights into parts of at most `_MAX_ENTRIES_AT_ONCE` weights.

        Yield a slice of the heads and a slice of the rows for each part. A part has these heads and
        rows of all `num_samples` samples that are compared together. Heads that share keys or
        values are in the same part. Therefore the smallest possible part, one row of each of these
        heads, may have more weights than `_MAX_ENTRIES_AT_ONCE`.
        """
        num_heads, num_rows = self.actual.shape[:2]
        num_keys = self.attention.num_keys
        shared = num_heads // self.attention.num_key_heads
        if self.values is not None:
            shared = math.lcm(shared, num_heads // len(self.values))
        max_rows = _MAX_ENTRIES_AT_ONCE // (num_samples * num_keys)
        head_step = max(1, max_rows // (num_rows * shared)) * shared
        row_step = max(1, min(num_rows, max_rows // shared))
        for head in range(0, num_heads, head_step):
            for row in range(0, num_rows, row_step):
                yield (
                    slice(head, min(head + head_step, num_heads)),
                    slice(row, min(row + row_step, num_rows)),
                )


class SelfCheck:
    """Comparison of the attention captured in one forward with the model's own attention.

    The keys of `foreign` are the names of those attention functions that the model called and
    that transformers does not ship. A value is True if the outputs of all calls of the function
    were compared.
    """

    def __init__(self) -> None:
        self.foreign: dict[str, bool] = {}
        self.postponed = Postponed()
        self._samples: list[_Sample] = []

    def compare_output(
        self,
        call: AttentionCall,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        name: str,
    ) -> bool:
        """Compare the call's output, if it is known, with outputs computed from `attentions`.

        `attentions` and `unpadded` have one entry for each example (or window) of the call. The
        comparison is postponed to the next call of `compare_samples` or `finish`, which also tests
        whether all queries and keys are finite. Return whether the output is known.
        """
        foreign = foreign_name(call)
        output = _checkable_output(call)
        if foreign is not None:
            self.foreign[foreign] = output is not None and self.foreign.get(foreign, True)
        if output is None or call.value is None:
            return False
        kind = f"{name} ({type(call.module).__name__}, implementation {call.implementation!r})"
        self._samples += self._samples_of(
            call, attentions, unpadded, output.transpose(1, 2), kind, all_rows=foreign is not None
        )
        return True

    def require_finite(self, tensors: Iterable[torch.Tensor], name: str) -> None:
        """Raise ValueError, now or in `finish`, if numbers of a module are NaN or infinite."""
        flags = [_are_finite(tensor[None]) for tensor in tensors if tensor.numel()]
        if flags:
            self.postponed.check(torch.cat(flags), partial(_check_finite, [name] * len(flags)))

    def finish(self) -> None:
        """Complete the comparisons, and everything else that was postponed.

        Raise NotImplementedError if a difference is larger than rounding can cause. Possible causes
        are a mask that the model ignores, a gate, and a term of the logits in an unknown keyword
        argument. Raise ValueError if a compared output contains NaN, or if queries or keys contain
        NaN or infinity.
        """
        self.compare_samples()
        self.postponed.finish()

    def compare_samples(self) -> None:
        """Compare the collected samples. `finish` reads the differences on a device."""
        samples, self._samples = self._samples, []
        for group in _groups(samples):
            ratios, errors, are_finite = _compare(group)
            with torch.no_grad():
                of_heads = _length(ratios).div_(math.sqrt(ratios.shape[-1]))
                largest = torch.stack([ratios.amax(), of_heads.amax()])
            # The samples hold queries and keys, which the model needs no longer.
            rows = [(sample.name, sample.rows) for sample in group]
            names = [name for name, _ in rows]
            self.postponed.check(are_finite, partial(_check_finite, names))
            self.postponed.check(largest, partial(_check_errors, rows, ratios, errors))

    def agrees_with_weights(
        self,
        call: AttentionCall,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
    ) -> bool:
        """Whether weights computed from the call's queries and keys agree with `call.weights`.

        Only some rows of each head are compared. False if the call has no weights, or if the shape
        of the weights does not fit the queries and keys.
        """
        weights = call.weights
        expected = (call.num_heads, call.num_queries, call.num_keys)
        if weights is None or tuple(weights.shape[1:]) != expected:
            return False
        foreign = foreign_name(call) is not None
        samples = self._samples_of(call, attentions, unpadded, weights, "", all_rows=foreign)
        return all(
            float(_compare(group)[0].amax()) <= _MAX_WEIGHT_ERROR for group in _groups(samples)
        )

    def _samples_of(
        self,
        call: AttentionCall,
        attentions: Sequence[QueryKeyAttention],
        unpadded: Sequence[Positions],
        own: torch.Tensor,
        name: str,
        *,
        all_rows: bool,
    ) -> Iterator[_Sample]:
        """Choose the rows to compare in each example. Skip examples without queries or keys.

        `own` are the model's own weights or outputs: (examples, heads, queries, ...). `all_rows` is
        whether to choose all rows, unless they have more than `_MAX_FOREIGN_ENTRIES` weights.
        """
        sinks, num_examples = sinks_of(call), len(attentions)
        max_rows = max(_ROWS // num_examples, min(_ROWS, _MIN_ROWS_OF_EXAMPLE))
        if all_rows:
            entries_of_rows = max(1, num_examples * call.num_heads * call.num_keys)
            max_rows = max(max_rows, _MAX_FOREIGN_ENTRIES // entries_of_rows)
        for index, (attention, positions) in enumerate(zip(attentions, unpadded, strict=True)):
            if not attention.num_queries or not attention.num_keys:
                continue
            rows = _choose_rows(attention.num_heads, attention.num_queries, max_rows)
            # Copy the rows, because the model may overwrite them before they are compared.
            actual = _rows_of(without_padding(own, index, positions.queries), rows)
            values = None
            if call.value is not None:
                values = without_padding(call.value, index, positions.keys)
            elif positions.keys is not None:
                actual = actual[..., moved(positions.keys, actual.device)]
            yield _Sample(attention, rows, actual, values, sinks, name)


@lru_cache(maxsize=64)
def _choose_rows(num_heads: int, num_queries: int, max_rows: int) -> torch.Tensor:
    """Return the indices of the rows to compare, at most `max_rows` per head.

    The result has the shape of `_Sample.rows`. It is cached, because all layers and many examples
    have the same rows. Do not change it in place.
    """
    if num_queries <= max_rows:
        return torch.arange(num_queries, device="cpu")[None]
    numbers = torch.arange(num_heads * max_rows, device="cpu").view(max_rows, num_heads).T
    return numbers * num_queries // (num_heads * max_rows)


def _rows_of(tensor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Copy rows of each head: from (..., heads, queries, size) to (..., heads, rows, size).

    `rows` are the indices, as in `_Sample.rows`.
    """
    if rows.shape == (1, tensor.shape[-2]):
        return tensor.clone()
    heads = torch.arange(tensor.shape[-3], device=tensor.device)[:, None]
    return tensor[..., heads, moved(rows, tensor.device), :]


def _groups(samples: Iterable[_Sample]) -> Iterable[list[_Sample]]:
    """Group samples that can be compared together."""
    groups: dict[tuple[object, ...], list[_Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.kind, []).append(sample)
    return groups.values()


def _compare(samples: Sequence[_Sample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compare samples with equal shapes and settings (see `_Sample.kind`).

    Return the relative and the absolute error of each row, (samples, heads, rows), and whether all
    queries and keys of each sample are finite, (samples,).

    The absolute error of a row is the length of the difference between the computed and the model's
    output vector. If weights are compared, it is the largest absolute difference of a weight. The
    relative error is the absolute error divided by the error that rounding may cause (the
    right-hand sides of the inequalities at `_MAX_ROW_ERROR`, without c). It is 0 if the query of
    the row has no allowed keys.
    """
    first = samples[0]
    attention, rows, unit = first.attention, first.rows, _rounding_unit(first)
    device = attention.queries.device.type
    # Disabling autocast takes as long as several operations on small tensors, so do this only if it
    # is enabled.
    is_autocast = torch.is_autocast_enabled(device)
    autocast = torch.autocast(device, enabled=False) if is_autocast else nullcontext()
    with torch.no_grad(), autocast:
        tensors = [
            (sample.attention.queries, sample.attention.keys, sample.values, sample.sinks)
            for sample in samples
        ]
        queries, keys, values, sinks = map(_stacked, zip(*tensors, strict=True))
        actual = _stacked([sample.actual for sample in samples])
        if queries is None or keys is None or actual is None:
            raise TypeError("a call without queries, keys and outputs cannot be compared")
        are_finite = _are_finite(queries) & _are_finite(keys)
        if rows.shape[1] < attention.num_queries:
            queries = _rows_of(queries, rows)
        lengths = cache(partial(_lengths, queries, keys, attention.scale))
        ratios = torch.empty(actual.shape[:3], device=actual.device)
        errors = torch.empty_like(ratios)
        for own_heads, own_rows in first.parts(len(samples)):
            logits = attention.logits_of_products(
                _times(
                    queries[:, own_heads, own_rows].float() * attention.scale,
                    _of_heads(keys, own_heads, attention.num_heads).float().mT,
                ),
                range(own_heads.start, own_heads.stop),
                rows[own_heads if len(rows) > 1 else slice(None), own_rows],
            )
            top = logits.amax(dim=-1, keepdim=True)
            # If a row has no allowed keys, these are NaN.
            exponentials = exp_in_place(logits.sub_(top))
            total = exponentials.sum(dim=-1, keepdim=True)
            if sinks is not None:
                own_sinks = sinks[:, own_heads, None, None].to(top.device, torch.float32)
                total += torch.exp(own_sinks - top)
            rows_of_model = actual[:, own_heads, own_rows].float()
            own_values = None
            if values is None:
                error = (exponentials.div_(total) - rows_of_model).abs().amax(dim=-1, keepdim=True)
                limit = error.new_full((), unit)
            else:
                # The values of masked keys may be infinite, and 0 times infinity would be NaN.
                own_values = _of_heads(values, own_heads, attention.num_heads).float()
                own_values = own_values.nan_to_num(0.0, 0.0, 0.0)
                expected = _times(exponentials, own_values).div_(total)
                error = _length(rows_of_model - expected)
                limit = _length(rows_of_model).mul_(unit)
            # Almost all errors are less than this first term of the limit. Then the other terms are
            # not needed. On a device, they take less time than waiting for this answer.
            if device != "cpu" or not bool((error < limit).all()):
                size = torch.maximum(top.abs(), lengths()[:, own_heads, own_rows])
                size += math.log(attention.num_keys + 1)
                if own_values is None:
                    limit = limit + unit * size
                else:
                    squares = own_values.square().sum(dim=-1, keepdim=True)
                    mean_square = _times(exponentials, squares).div_(total)
                    limit += _limit_of_values(_length(expected), mean_square, size, unit)
                    limit += 4 * _smallest(actual.dtype) * math.sqrt(own_values.shape[-1])
            errors[:, own_heads, own_rows] = error[..., 0]
            # The softmax of a row without allowed keys is not defined.
            ratio = (error / limit).masked_fill_(top.isneginf(), 0.0)
            ratios[:, own_heads, own_rows] = ratio[..., 0]
    return ratios, errors, are_finite


def _limit_of_values(
    length: torch.Tensor, mean_square: torch.Tensor, size: torch.Tensor, unit: float
) -> torch.Tensor:
    """Return the terms with values in the first inequality above `_MAX_ROW_ERROR`, for c = 1.

    `length` is the length of each computed output vector, `mean_square` the mean square of the
    values, and `size` is |l|.
    """
    # Let e = unit * size. If a logit has the error c * e, its weight has the relative error
    # exp(c * e) - 1. `growth` is this relative error for c = `_MAX_ROW_ERROR`.
    growth = (_MAX_ROW_ERROR * unit * size).clamp_max_(60.0).expm1_()
    variance = torch.addcmul(mean_square, length, length, value=-1)
    deviation = torch.maximum(variance, 1e-12 * mean_square).sqrt_()
    limit = mean_square.sqrt().mul_(unit)
    return limit.addcmul_(growth, deviation, value=1 / _MAX_ROW_ERROR)


def _lengths(queries: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the typical size of a product of each query and keys of random directions.

    `queries` is (samples, heads, rows, head_dim), and `keys` is (samples, key_heads, keys,
    head_dim). The result is (samples, heads, rows, 1).
    """
    dtype = torch.promote_types(keys.dtype, torch.float32)
    of_queries = torch.linalg.vector_norm(queries, dim=-1, keepdim=True, dtype=dtype)
    longest = torch.linalg.vector_norm(keys, dim=-1, dtype=dtype).amax(dim=-1)
    longest *= abs(scale) * keys.shape[-1] ** -0.5
    by_key_head = of_queries.unflatten(1, (keys.shape[1], -1))
    sizes: torch.Tensor = by_key_head * longest[..., None, None, None]
    return sizes.flatten(1, 2).float()


def _are_finite(tensor: torch.Tensor) -> torch.Tensor:
    """Return whether all numbers of each entry of the first axis are finite, (entries,)."""
    tensor = tensor.detach().flatten(1)
    if tensor.device.type != "cpu":
        # This needs no temporary tensor of this size.
        return torch.stack(torch.aminmax(tensor, dim=1)).isfinite().all(dim=0)
    # A finite sum shows this, and is faster than a test of each number. Only if the sum is not
    # finite, test each number: the sum may have overflowed.
    total = tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32))
    if math.isfinite(total):
        return torch.ones(len(tensor), dtype=torch.bool)
    return tensor.isfinite().all(dim=1)


def _length(vectors: torch.Tensor) -> torch.Tensor:
    lengths: torch.Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return lengths


def _stacked(tensors: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    known = [tensor for tensor in tensors if tensor is not None]
    if len(known) == 1:
        # Return a view, because `torch.stack` would copy the tensor.
        return known[0][None]
    return torch.stack(known) if known else None


def _of_heads(tensor: torch.Tensor, heads: slice, num_heads: int) -> torch.Tensor:
    """Return the keys or values of the key heads that the query heads in the slice `heads` use.

    `tensor` is (samples, key_heads, keys, ...), and `num_heads` is the number of query heads.
    """
    shared = num_heads // tensor.shape[1]
    return tensor[:, heads.start // shared : -(-heads.stop // shared)]


def _times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply the matrices of each head: (samples, heads, m, k) by (samples, key_heads, k, n).

    Each matrix of `right` is shared by the same number of consecutive heads of `left`.
    """
    right = right.flatten(0, 1)
    grouped = left.reshape(len(right), -1, left.shape[-1])
    return torch.bmm(grouped, right).view(*left.shape[:-1], right.shape[-1])


def _smallest(dtype: torch.dtype) -> float:
    """Return the smallest positive number of a dtype: the size of rounding errors close to 0."""
    limits = torch.finfo(dtype)
    return limits.smallest_normal * limits.eps


def foreign_name(call: AttentionCall) -> str | None:
    """Return the name of a call's attention function, or None if transformers ships it.

    Kernels from the hub have a slash in their registered name, and are never shipped. Return None,
    too, if the function is unknown.
    """
    if call.function is None:
        return None
    function = getattr(call.function, "func", call.function)
    shipped = str(function.__module__).startswith("transformers.")
    if shipped and "/" not in (call.implementation or ""):
        return None
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{call.implementation!r} ({kind.__qualname__} of {kind.__module__})"


def uses_sink_as_gate(module: nn.Module) -> bool:
    """Whether an attention module multiplies its output by a gate that depends on the sink.

    Such a gate and a sink in the softmax give the same output, but different weights. A module is
    assumed to have such a gate if the code of the model's eager attention calls `sigmoid`.
    """
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    return "sigmoid" in getattr(getattr(eager, "__code__", None), "co_names", ())


def sinks_of(call: AttentionCall) -> torch.Tensor | None:
    """Return the logits of the sinks of a call, (heads,), or None if it has no sinks.

    Return zeros if the sinks depend on the query (see `AttentionCall.query_sinks`). Return None,
    too, if the weights of the call are known. Raise NotImplementedError if the number of sinks is
    not the number of heads.
    """
    sinks = call.options.get("s_aux")
    if sinks is None:
        sinks = call.options.get("sinks", getattr(call.module, "sinks", None))
    if not isinstance(sinks, torch.Tensor) or call.weights is not None:
        return None
    if call.query_sinks is not None:
        return sinks.new_zeros(call.num_heads)
    if call.query is not None and sinks.numel() != call.query.shape[1]:
        raise NotImplementedError(
            f"model: the sinks of {type(call.module).__name__}, {tuple(sinks.shape)}, are not "
            f"one for each of its {call.query.shape[1]} heads, which cannot be shown yet. Show the "
            "model's own weights with AttentionRecord.from_weights."
        )
    return sinks.detach().flatten()


def _checkable_output(call: AttentionCall) -> torch.Tensor | None:
    """Return the output of a call as (batch, queries, heads, value_dim).

    Return None if the values of the call are not known, or if the output is not a floating-point
    tensor whose number of entries fits this shape.
    """
    output, shape = call.output, call.output_shape
    if not isinstance(output, torch.Tensor) or shape is None or not output.is_floating_point():
        return None
    return output.reshape(shape) if output.numel() == math.prod(shape) else None


def _rounding_unit(sample: _Sample) -> float:
    """Return the relative rounding error of the least precise computation in the call of a sample.

    A call computes in the dtypes of its tensors, in the dtype of autocast, and in float32, with
    `_ROUNDINGS_PER_SUM` roundings. Torch may multiply float32 matrices less precisely.
    """
    attention = sample.attention
    tensors = (attention.queries, attention.keys, sample.values, sample.actual)
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    device = attention.queries.device.type
    if torch.is_autocast_enabled(device):
        dtypes.add(torch.get_autocast_dtype(device))
    return _unit_of(frozenset(dtypes), device, torch.get_float32_matmul_precision())


@lru_cache(maxsize=64)
def _unit_of(dtypes: frozenset[torch.dtype], device: str, allowed: str) -> float:
    """Return the relative rounding error of products of `dtypes`.

    `allowed` is the precision that torch may use for products of float32 matrices.
    """
    unit = _ROUNDINGS_PER_SUM * torch.finfo(torch.float32).eps / 2
    for dtype in dtypes:
        if dtype.is_floating_point:
            unit = max(unit, torch.finfo(dtype).eps / 2)
    # Users may allow torch to multiply float32 matrices with fewer bits: TF32 or bfloat16. Devices
    # other than CPUs may use TF32 and approximate exponentials by default. Errors on such devices
    # were not measured, so at least the rounding error of TF32 is assumed.
    precision = "high" if device != "cpu" else "highest"
    bits = {"highest": 0.0, "high": 2**-11, "medium": 2**-8}
    return max(unit, bits[precision], bits.get(allowed, 0.0))


def _check_finite(names: Sequence[str], flags: Sequence[float]) -> None:
    if not all(flags):
        raise ValueError(
            f"model: the queries or keys of {names[flags.index(0)]} contain NaN or infinity. Check "
            "its weights and its dtype."
        )


def _check_errors(
    samples: Sequence[tuple[str, torch.Tensor]],
    ratios: torch.Tensor,
    errors: torch.Tensor,
    largest: Sequence[float],
) -> None:
    """Raise an error if the error of a row or a head is larger than rounding can cause.

    `samples` has the name and the rows of each sample. `ratios` and `errors` are the relative and
    absolute errors that `_compare` returns. `largest` is the largest ratio of a row and of a head.
    """
    row_error, head_error = largest
    if math.isnan(row_error):
        name, _ = samples[int(ratios.isnan().nonzero()[0, 0])]
        raise ValueError(
            f"model: the attention of {name} returned NaN. Check its weights and its dtype."
        )
    if row_error > _MAX_ROW_ERROR:
        raise _difference_error(samples, ratios, errors, _MAX_ROW_ERROR / row_error)
    if head_error > _MAX_HEAD_ERROR:
        of_heads = ratios.square().mean(dim=-1, keepdim=True)
        ratios = ratios.masked_fill(of_heads < of_heads.amax(), -1.0)
        raise _difference_error(samples, ratios, errors, _MAX_HEAD_ERROR / head_error)


def _difference_error(
    samples: Sequence[tuple[str, torch.Tensor]],
    ratios: torch.Tensor,
    errors: torch.Tensor,
    share: float,
) -> NotImplementedError:
    """Return an error that states the module, head, query and size of the worst difference.

    The arguments are those of `_check_errors`. `share` is the ratio of the allowed difference to
    the worst difference.
    """
    index = torch.unravel_index(ratios.argmax(), ratios.shape)
    number, head, row = (int(position) for position in index)
    (name, rows), error = samples[number], float(errors[index])
    query = int(rows[head if len(rows) > 1 else 0, row])
    return NotImplementedError(
        f"model: the attention of {name} is not softmax(scale * q k^T + bias + mask): its "
        f"output differs by {error:.2g} (allowed {error * share:.2g}) in head {head}, query "
        f"{query}. Its weights are not known. Show your own weights with "
        "AttentionRecord.from_weights."
    )
