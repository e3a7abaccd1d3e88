"""Capture of attention that does not use transformers' attention dispatcher.

Many models compute a softmax over keys in their own code. While one of their attention modules
runs, every torch function that the module calls is observed ("traced"): the product of queries and
keys, its scaling, added terms and masks, the softmax, and the product with the values. The input of
the softmax are the logits. The results do not change unless a change of the attention is requested.
The captured queries and keys are used only if they give the weights that the model computed.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn, overrides
from torch.overrides import TorchFunctionMode

from attnviz.extraction.capture.dispatch import AttentionCall, Sink
from attnviz.utils.cleanup import Cleanup

# Names of torch functions and tensor methods. All functions of a set are treated in the same way.
_PRODUCTS = {"matmul", "__matmul__", "bmm", "baddbmm", "einsum"}
_TIMES = {"mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply"}
_OVER = {"div", "__truediv__", "div_", "__itruediv__", "true_divide", "divide"}
_PLUS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
_MINUS = {"sub", "__sub__", "sub_", "__isub__"}
_FILL = {"masked_fill", "masked_fill_"}
_RESHAPED = {"view", "reshape", "unsqueeze", "squeeze", "unflatten", "flatten"}
_SAME = {
    "float",
    "half",
    "bfloat16",
    "double",
    "to",
    "type",
    "type_as",
    "contiguous",
    "clone",
    "dropout",
    "nan_to_num",
}
_BOUNDED = {"max", "maximum", "clamp", "clamp_"}
# Functions that a module may call between the softmax and the product with the values. A factor or
# a fill is allowed only if it changes no weight, which `_changes_weights` tests.
_CARRIED = _SAME | _RESHAPED | _TIMES | _FILL | {"transpose", "permute", "__getitem__"}
# Values of at most this number mask a key if they replace its logit. Models use the lowest value of
# a dtype, or a value such as -1e4, so that the weight of the key becomes 0.
_MAX_BLOCKING = -1e3


def _end_interrupted(error: BaseException | None) -> None:
    """Close context managers that an interrupt has left open.

    While the code of a function mode (`FunctionWatch`) runs, a context manager of torch keeps the
    mode out of torch's list of active modes, and then puts it back. An interrupt can leave the
    context manager open until Python frees the traceback of the interrupt. This may be after the
    end of the capture, and would make the mode active again. So close all context managers in the
    tracebacks of `error` and of the errors during which it was raised.
    """
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            manager = trace.tb_frame.f_locals.get("self")
            is_context_manager = trace.tb_frame.f_code.co_filename == contextlib.__file__
            if is_context_manager and isinstance(manager, contextlib._GeneratorContextManager):
                # An interrupt of its constructor leaves a context manager without a generator.
                generator = getattr(manager, "gen", None)
                if generator is not None:
                    generator.close()
            trace = trace.tb_next
        error = error.__context__


@dataclass(frozen=True)
class Logits:
    """Product of queries and keys, and the operations that the module has applied to it so far.

    Attributes
    ----------
    queries, keys : Tensor
        Queries, (..., queries, head_dim), and keys, (..., keys, head_dim).
    scale : float
        Factor of the product.
    softcap : float or None
        Soft cap of the logits, or None if they have no soft cap.
    is_bounded : bool
        Whether the last operation was the `tanh` of a soft cap c, which computes c * tanh(x). The
        multiplication by c must follow.
    added : tuple of Tensor
        Terms that were added to the scaled product.
    blocked : tuple of Tensor
        Masks that are True if a query may not attend to a key.
    has_all_logits : bool
        As in `AttentionCall`.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    scale: float = 1.0
    softcap: float | None = None
    is_bounded: bool = False
    added: tuple[torch.Tensor, ...] = ()
    blocked: tuple[torch.Tensor, ...] = ()
    has_all_logits: bool = True

    @property
    def is_only_scaled(self) -> bool:
        """Whether the module has only scaled the product: no added term, no mask, no soft cap."""
        return not (self.added or self.blocked or self.is_bounded or self.softcap is not None)


@dataclass(frozen=True)
class _Call:
    """Call of a torch function, and its result. `name` is the name of the function."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: torch.Tensor

    def argument(self, position: int, name: str) -> Any:
        """Return the argument at a position or with a keyword, or None if it was not passed."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name)


@dataclass
class _ModuleTrace:
    """Tensors that one run of a module computed, identified by their `id`.

    The keys of `logits` and `weights` are ids. `logits` has an entry for each product of queries
    and keys, and for each tensor computed from such a product by known operations. The value of an
    entry states these operations. `weights` has an entry for the result of each softmax, and for
    each tensor computed from this result. The entries of one softmax share one value, a pair: the
    result before it was edited, and the logits of the softmax (None if they are not known). The
    tensors are kept alive, because Python may reuse the id of a freed object.
    """

    module: nn.Module
    logits: dict[int, Logits] = field(default_factory=dict)
    weights: dict[int, tuple[torch.Tensor, Logits | None]] = field(default_factory=dict)
    # Names of functions with which the module changed weights after the softmax. A key is the id of
    # the softmax's result before it was edited: the first entry of a pair in `weights`.
    changed: dict[int, str] = field(default_factory=dict)
    # Ids of tensors of weights that the module has already multiplied by values.
    multiplied: set[int] = field(default_factory=set)
    # Ids of all matrix products, and of all tensors computed from them. If a term that is added to
    # logits is among them, the logits are a sum of two products.
    from_products: set[int] = field(default_factory=set)
    kept_alive: list[Any] = field(default_factory=list)


class FunctionMode(TorchFunctionMode):
    """Observer of the torch functions that this thread calls, from `start` to `stop`."""

    def start(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call, unused-ignore]

    def stop(self) -> None:
        """Stop observing. This also works after an interrupt."""
        _end_interrupted(sys.exception())
        # An interrupt may have left other modes that were entered after this mode. Remove them,
        # too.
        while self in overrides._get_current_function_mode_stack():
            overrides._pop_mode()


class FunctionWatch(FunctionMode):
    """Observer of the torch functions of attention modules. `sink` receives the attention calls.

    `current` returns the attention module that runs in this thread and an object that identifies
    the run, or None if no traced module runs. `edit` gets the weights of a module after its
    softmax. It may overwrite them, and returns whether it did. `sink` always receives the weights
    before the edit.

    If `outputs` is True, `sink` may overwrite the output of a call. Then NotImplementedError is
    raised if a module multiplies its weights by several tensors of values.
    """

    def __init__(
        self,
        current: Callable[[], tuple[nn.Module, object] | None],
        sink: Sink,
        edit: Callable[[torch.Tensor], bool] | None = None,
        *,
        outputs: bool = False,
    ) -> None:
        super().__init__()
        self._outputs = outputs
        self._current = current
        self._sink = sink
        self._edit = edit
        self._run: object = None
        self._trace: _ModuleTrace | None = None

    def watch(self, undo: Cleanup) -> None:
        """Observe the torch functions of this thread until the ``with`` block of `undo` ends."""
        undo.add(self.stop)
        self.start()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run a torch function, read its arguments and its result, and return the result."""
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        current = self._current()
        if current is None:
            self._trace = self._run = None
            return result
        module, run = current
        if self._trace is None or run is not self._run:
            self._run, self._trace = run, _ModuleTrace(module)
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            self._sink(_call_of_sdpa(module, _Call(name, args, kwargs, result)))
        elif name == "multi_head_attention_forward":
            self._sink(_call_of_multi_head(module, func, args, kwargs))
        elif isinstance(result, torch.Tensor):
            if name == "einsum" and len(args) == 2 and isinstance(args[1], list | tuple):
                args = (args[0], *args[1])
            self._read(self._trace, _Call(name, args, kwargs, result))
        return result

    def _read(self, trace: _ModuleTrace, call: _Call) -> None:
        if call.name == "softmax":
            self._softmax(trace, call)
            return
        if call.name in _PRODUCTS:
            self._product(trace, call)
            return
        result = call.result
        before = next((arg for arg in call.args if id(arg) in trace.weights), None)
        if before is not None and call.name in _CARRIED:
            traced = trace.weights[id(before)]
            if call.name in _TIMES | _FILL and _changes_weights(before, call):
                trace.changed[id(traced[0])] = call.name
            trace.weights[id(result)] = traced
            trace.kept_alive.append(result)
            return
        if any(id(arg) in trace.from_products for arg in call.args):
            trace.from_products.add(id(result))
            trace.kept_alive.append(result)
        logits = _follow(trace, call)
        if logits is not None:
            trace.logits[id(result)] = logits
        else:
            # If an unknown function has changed the tensor in place, its entry is no longer true.
            trace.logits.pop(id(result), None)

    def _softmax(self, trace: _ModuleTrace, call: _Call) -> None:
        result = call.result
        if result.dim() < 3 or call.argument(1, "dim") not in (-1, result.dim() - 1):
            return
        scores = call.argument(0, "input")
        logits, unedited = trace.logits.get(id(scores)), result
        # Edit only the weights of attention: the input of their softmax is computed from a matrix
        # product. Other softmaxes, such as those of a router, are not edited.
        if self._edit is not None and id(scores) in trace.from_products:
            before = result.clone()
            unedited = before if self._edit(result) else result
        trace.weights[id(result)] = (unedited, logits)
        trace.kept_alive.append(result)

    def _product(self, trace: _ModuleTrace, call: _Call) -> None:
        args, result = call.args, call.result
        traced = next((trace.weights[id(arg)] for arg in args if id(arg) in trace.weights), None)
        if traced is not None:
            weights, logits = traced
            if id(weights) in trace.changed:
                raise NotImplementedError(
                    f"model: {type(trace.module).__name__} changes its attention weights after "
                    f"the softmax (by {trace.changed[id(weights)]}), so the weights of the "
                    "values are not known. Show your own weights with "
                    "AttentionRecord.from_weights."
                )
            # Send weights to the sink only once, even if they are multiplied by several tensors of
            # values.
            for key in [key for key, (other, _) in trace.weights.items() if other is weights]:
                del trace.weights[key]
                trace.multiplied.add(key)
            attention = _call_of_softmax(trace.module, weights, logits)
            self._sink(replace(attention, output=_output_of(call, trace.multiplied)))
            return
        if self._outputs and any(id(arg) in trace.multiplied for arg in args):
            raise NotImplementedError(
                f"model: the attention weights of {type(trace.module).__name__} are multiplied "
                "by several values, so its outputs cannot be changed yet"
            )
        logits = product_of(call.name, args, call.kwargs)
        if logits is None:
            return
        trace.logits[id(result)] = logits
        trace.from_products.add(id(result))
        # Keep the operands alive, too, because the queries and keys are read only after the
        # softmax.
        trace.kept_alive += [result, *args]


def _changes_weights(before: torch.Tensor, call: _Call) -> bool:
    """Whether a factor or a mask has changed weights after their softmax.

    If all weights of a query become 0, they do not count as changed: the query is assumed to have
    no allowed keys.

    If the factor or mask was applied in place, the weights before it are lost, so only a factor is
    tested. A number other than 1, or a tensor with an entry other than 0 and 1, counts as a change.
    Masks, and factors of 0 in a tensor, are assumed to apply only to weights that were already 0.
    """
    if call.result is not before:
        result = call.result.detach()
        has_weight = result.ne(0).any(dim=-1, keepdim=True)
        return bool((result.ne(before.detach()) & has_weight).any())
    factor = call.argument(1, "other")
    if isinstance(factor, torch.Tensor) and factor.dtype != torch.bool:
        return bool((factor.ne(1) & factor.ne(0)).any())
    return isinstance(factor, int | float) and factor != 1


def _follow(trace: _ModuleTrace, call: _Call) -> Logits | None:
    """Return the logits that a torch function computes from traced logits.

    Return None if no positional argument is traced logits, or if the effect of the function is
    unknown.
    """
    name, args, traced = call.name, call.args, trace.logits
    positions = [position for position, arg in enumerate(args) if id(arg) in traced]
    if not positions:
        return None
    # If both arguments are computed from matrix products, assume that the one that was computed
    # first comes from queries and keys, and that the other one comes from position embeddings. So
    # the other argument becomes an added term.
    position = min(positions, key=lambda index: list(traced).index(id(args[index])))
    logits = traced[id(args[position])]
    others = [arg for index, arg in enumerate(args) if index != position]
    other = others[0] if others else call.kwargs.get("other")
    if name in _SAME | _RESHAPED:
        return _reshape_terms(logits, args[position].shape, call.result.shape)
    if name in _TIMES or (name in _OVER and position == 0):
        return _scale(logits, other, over=name in _OVER)
    if name in _PLUS or (name in _MINUS and position == 0):
        terms = id(other) in trace.from_products
        return _add_term(logits, other, minus=name in _MINUS, terms=terms)
    if name == "tanh":
        return replace(logits, is_bounded=True) if logits.is_only_scaled else None
    return None if logits.is_bounded else _mask(logits, position, call)


def _reshape_terms(logits: Logits, old: torch.Size, new: torch.Size) -> Logits:
    if old == new:
        return logits
    return replace(
        logits,
        added=tuple(_reshape_term(term, old, new) for term in logits.added),
        blocked=tuple(_reshape_term(mask, old, new) for mask in logits.blocked),
    )


def _reshape_term(tensor: torch.Tensor, old: torch.Size, new: torch.Size) -> torch.Tensor:
    """Reshape an added term or a mask as its logits were reshaped, from `old` to `new`."""
    if old[-2:] == new[-2:] and tensor.dim() == len(old):
        # If only the axes of examples and heads change, return a view. The address of its memory is
        # the same in all layers that share the term, so `MaskReader` reads the term only once.
        if tensor.shape[:-2] == old[:-2]:
            return tensor.reshape(*new[:-2], *tensor.shape[-2:])
        if tensor.shape[:-2].numel() == 1:
            return tensor.reshape(*(1 for _ in new[:-2]), *tensor.shape[-2:])
    return tensor.expand(old).reshape(new)


def _add_term(logits: Logits, other: Any, *, minus: bool, terms: bool) -> Logits | None:
    if not isinstance(other, torch.Tensor):
        # Ignore a number that is added to all logits, because it does not change the softmax.
        return logits
    if logits.is_bounded:
        return None
    added = (*logits.added, -other if minus else other)
    return replace(logits, added=added, has_all_logits=logits.has_all_logits and not terms)


def _mask(logits: Logits, position: int, call: _Call) -> Logits | None:
    args = call.args
    if call.name in _FILL and position == 0:
        mask = call.argument(1, "mask")
        if isinstance(mask, torch.Tensor) and _is_blocking(call.argument(2, "value")):
            return replace(logits, blocked=(*logits.blocked, mask.bool()))
    if call.name == "where" and len(args) == 3 and isinstance(args[0], torch.Tensor):
        fill = args[2] if position == 1 else args[1]
        if _is_blocking(fill):
            blocked = ~args[0] if position == 1 else args[0]
            return replace(logits, blocked=(*logits.blocked, blocked))
    if call.name in _BOUNDED:
        bounds = [*args[1:], *call.kwargs.values()]
        if all(
            bound is None or abs(_as_number(bound) or 0.0) >= -_MAX_BLOCKING for bound in bounds
        ):
            return logits
    return None


def _scale(logits: Logits, factor: Any, *, over: bool) -> Logits | None:
    number = _as_number(factor)
    if number is None:
        # A tensor (..., heads, 1, 1) has a factor for each head, as in Swin 2. Apply it to the
        # queries, because `scale` is one number for all heads.
        is_of_heads = isinstance(factor, torch.Tensor) and factor.shape[-2:] == (1, 1)
        if not is_of_heads or not logits.is_only_scaled:
            return None
        queries = logits.queries / factor if over else logits.queries * factor
        return replace(logits, queries=queries)
    number = 1 / number if over else number
    if logits.is_bounded:
        # The module has computed c * tanh(s * q k), where c is `number` and s is `logits.scale`.
        # This is a soft cap of c on the logits c * s * q k, so multiply the scale by c.
        return replace(logits, is_bounded=False, softcap=number, scale=logits.scale * number)
    if logits.blocked or logits.softcap is not None:
        return None
    added = tuple(term * number for term in logits.added)
    return replace(logits, scale=logits.scale * number, added=added)


def _as_number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else None
    return float(value) if isinstance(value, int | float) else None


def _is_blocking(value: Any) -> bool:
    number = _as_number(value)
    return number is not None and number <= _MAX_BLOCKING


def _call_of_sdpa(module: nn.Module, call: _Call) -> AttentionCall:
    """Convert a call of torch's `scaled_dot_product_attention` into an `AttentionCall`.

    Tensors with three axes have no axis of heads. They get such an axis, of size 1.
    """
    tensors = [call.argument(index, name) for index, name in enumerate(("query", "key", "value"))]
    tensors.append(call.result)
    if call.result.dim() == 3:
        tensors = [tensor[:, None] for tensor in tensors]
    query, key, value, output = tensors
    return AttentionCall(
        module,
        "sdpa",
        query,
        key,
        value,
        call.argument(3, "attn_mask"),
        {"scaling": call.argument(6, "scale"), "is_causal": bool(call.argument(5, "is_causal"))},
        output.transpose(1, 2),
    )


def _call_of_multi_head(
    module: nn.Module, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AttentionCall:
    """Run torch's multi-head attention again for its weights. Return an `AttentionCall` of them."""
    options = {**kwargs, "need_weights": True, "average_attn_weights": False}
    with torch.no_grad():
        _, weights = func(*args, **options)
    query = args[0] if args else kwargs["query"]
    # A query of shape (tokens, width) has no axis of examples. Add this axis to the weights.
    weights = weights if query.dim() == 3 else weights[None]
    return AttentionCall(module, weights=weights)


def _call_of_softmax(
    module: nn.Module, weights: torch.Tensor, logits: Logits | None
) -> AttentionCall:
    """Return the attention of a traced softmax as an `AttentionCall` with weights.

    If the operations before the softmax could not be followed, the call has no queries and keys.
    """
    if logits is None or logits.is_bounded:
        return AttentionCall(module, weights=weights)
    shape = weights.shape
    mask = None
    if logits.blocked:
        blocked = functools.reduce(torch.logical_or, logits.blocked)
        mask = ~_with_leading_axes(blocked, shape)
    return AttentionCall(
        module,
        "eager",
        logits.queries,
        logits.keys,
        mask=mask,
        options={"scaling": logits.scale, "softcap": logits.softcap},
        added=tuple(_with_leading_axes(term, shape) for term in logits.added),
        weights=weights,
        has_all_logits=logits.has_all_logits,
    )


def _output_of(call: _Call, multiplied: Collection[int]) -> torch.Tensor | None:
    """Return the result of `call`, the product of weights and values: (..., queries, value_dim).

    The returned tensor is the result of `call` or a view of it. Its axes before the last two are in
    the order of the weights' axes. `multiplied` has the ids of the tensors of weights. Return None
    if the axes of the result cannot be identified.
    """
    if call.name == "einsum":
        letters, operands, of_result = _read_einsum(call.args)
        if not letters:
            return None
        weights, values = letters if id(operands[0]) in multiplied else reversed(letters)
        added = [letter for letter in of_result if letter not in weights]
        order = [*(letter for letter in weights if letter in of_result), *added]
        if len(added) != 1 or added[0] not in values or len(order) != len(weights):
            return None
        return call.result.permute([of_result.index(letter) for letter in order])
    left = call.argument(1, "batch1") if call.name == "baddbmm" else call.argument(0, "input")
    return call.result if id(left) in multiplied else None


def _with_leading_axes(tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Add leading axes of size 1 until a tensor has as many axes as `shape`."""
    return tensor.reshape((1,) * (len(shape) - tensor.dim()) + tuple(tensor.shape))


_EQUATION = re.compile(r"^([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)$")


def product_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Logits | None:
    """Return the `Logits` of a matrix product, with its operands as queries and keys.

    `name` is the name of a torch function that computes matrix products, such as ``"matmul"``, and
    `args` and `kwargs` are its arguments. The last two axes of the product are those of the queries
    and the keys.

    Return None if an operand of ``matmul`` or ``bmm`` has fewer than three axes, or if an
    ``einsum`` is not such a product: its result must have at least three axes, and its sum must be
    over one axis that both operands have.

    Examples
    --------
    >>> q, k = torch.ones(2, 3, 4), torch.ones(2, 5, 4)
    >>> product_of("einsum", ("hid,hjd->hij", q, k), {}).keys.shape
    torch.Size([2, 5, 4])
    """
    if name == "einsum":
        return _product_of_einsum(args)
    if name == "baddbmm":
        arguments = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | dict(kwargs)
        beta, left, right = arguments.get("beta", 1), arguments["batch1"], arguments["batch2"]
        # If beta is 0, torch ignores the added term, which may be uninitialised memory. If it is 1,
        # do not copy the term, so that the layers are known to have the same.
        bias = arguments["input"]
        added = () if beta == 0 else (bias if beta == 1 else bias * beta,)
        scale = float(arguments.get("alpha", 1))
        return Logits(left, right.transpose(-1, -2), scale, added=added)
    operands = [*args, *kwargs.values()]
    if len(operands) != 2 or not all(isinstance(operand, torch.Tensor) for operand in operands):
        return None
    left, right = operands
    if min(left.dim(), right.dim()) < 3:
        return None
    return Logits(left, right.transpose(-1, -2))


def _read_einsum(args: Sequence[Any]) -> tuple[Sequence[str], Sequence[torch.Tensor], str]:
    """Return the letters of both operands of `einsum`, the operands, and the letters of the result.

    All are empty unless `einsum` has two operands, and an equation of letters with one comma and an
    arrow, such as ``"hid,hjd->hij"``. An equation with dots gives empty results.
    """
    operands = args[1:]
    equation = _EQUATION.match(str(args[0]).replace(" ", ""))
    if equation is None or len(operands) != 2:
        return (), (), ""
    *letters, result = equation.groups()
    return letters, operands, result


def _product_of_einsum(args: Sequence[Any]) -> Logits | None:
    letters, operands, result = _read_einsum(args)
    if not letters:
        return None
    summed = (set(letters[0]) & set(letters[1])) - set(result)
    # The last two letters of the result are the axes of queries and keys. The sum must be over
    # exactly one letter: the axis of the entries of a query or key.
    if len(set(result)) != len(result) or len(result) < 3 or len(summed) != 1:
        return None
    (dimension,) = summed
    vectors = [
        _permuted(operand, axes, f"{result[:-2]}{own}{dimension}")
        for own in result[-2:]
        for axes, operand in zip(letters, operands, strict=True)
        if own in axes
    ]
    # Each operand must be either the queries or the keys.
    if len(vectors) != 2 or vectors[0] is None or vectors[1] is None:
        return None
    return Logits(vectors[0], vectors[1])


def _permuted(tensor: torch.Tensor, letters: str, order: str) -> torch.Tensor | None:
    """Permute the axes of a tensor from `letters` to `order`, with size 1 for missing axes.

    Return None if the tensor has an axis that is not in `order`.
    """
    if not set(letters) <= set(order):
        return None
    missing = [letter for letter in order if letter not in letters]
    names = [*letters, *missing]
    return tensor[(..., *[None] * len(missing))].permute([names.index(x) for x in order])
