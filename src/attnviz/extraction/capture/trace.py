"""The second way: attention that bypasses the dispatcher, read from the torch functions it calls.

Many models compute a softmax over keys by themselves. While one of their attention modules runs,
every torch function that it calls is seen here: the product of queries and keys, what scales it, is
added to it and masked in it, up to the softmax whose result meets the values. Nothing is changed,
and what was read is held against the weights that the model computed before it is believed.
"""

from __future__ import annotations

import contextlib
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

__all__ = ["FunctionWatch", "Product", "product_of"]

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
# Weights on their way to the values. A factor of ones and zeros where there is no weight change
# nothing; `_is_changed` looks.
_CARRIED = _SAME | _RESHAPED | _TIMES | _FILL | {"transpose", "permute", "__getitem__"}
# What is filled in where a key is not allowed: the lowest value of a dtype, or -1e4 and the like,
# beside which every logit vanishes.
_BLOCKED = -1e3


def _end_interrupted(error: BaseException | None) -> None:
    """End the generators of context managers in which an error was raised.

    Torch takes a mode off while it runs, and a generator puts it back. An interrupt can leave that
    generator open: then the mode would come back when the traceback goes, long after its end.
    """
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            manager = trace.tb_frame.f_locals.get("self")
            inside = trace.tb_frame.f_code.co_filename == contextlib.__file__
            if inside and isinstance(manager, contextlib._GeneratorContextManager):
                manager.gen.close()
            trace = trace.tb_next
        error = error.__context__


@dataclass(frozen=True)
class _Logits:
    """Logits on their way to the softmax: a product, and what was done to it since."""

    product: Product
    scale: float = 1.0
    softcap: float | None = None
    capped: bool = False
    added: tuple[torch.Tensor, ...] = ()
    blocked: tuple[torch.Tensor, ...] = ()
    whole: bool = True


@dataclass
class _ModuleTrace:
    """What one run of a module has computed so far; tensors stay alive, so that ids stay theirs."""

    module: nn.Module
    logits: dict[int, _Logits] = field(default_factory=dict)
    weights: dict[int, tuple[torch.Tensor, _Logits | None]] = field(default_factory=dict)
    # Of weights that are other numbers when they meet the values: the function that changed them.
    changed: dict[int, str] = field(default_factory=dict)
    # Weights that have met the values.
    met: set[int] = field(default_factory=set)
    # Everything that came from a product, so that a sum of two is noticed.
    from_products: set[int] = field(default_factory=set)
    alive: list[Any] = field(default_factory=list)


class FunctionWatch(TorchFunctionMode):
    """Sees the torch functions that attention modules call, and reports each attention to `sink`.

    `current` gives the attention module that runs in this thread and the number of its run; None
    where none does. `edit` may write over the weights of a module as they come out of its softmax;
    it says whether it did. What is reported then are the weights before. With `outputs` what `sink`
    writes into a call's output is all that the module goes on with, or it is refused.
    """

    def __init__(
        self,
        current: Callable[[], tuple[nn.Module, int] | None],
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
        self._run: int | None = None
        self._trace: _ModuleTrace | None = None

    def watch(self, undo: Cleanup) -> None:
        """Watch the functions of this thread until the block of `undo` ends."""
        undo.add(self._stop)
        self.__enter__()  # type: ignore[no-untyped-call, unused-ignore]

    def _stop(self) -> None:
        _end_interrupted(sys.exception())
        # One that an interrupt left behind may lie above it.
        while self in overrides._get_current_function_mode_stack():
            overrides._pop_mode()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run a torch function and read what it did."""
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        current = self._current()
        if current is None:
            self._trace = self._run = None
            return result
        module, run = current
        if self._trace is None or run != self._run:
            self._run, self._trace = run, _ModuleTrace(module)
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            self._sink(_of_sdpa(module, args, kwargs, result))
        elif name == "multi_head_attention_forward":
            self._sink(_of_multi_head(module, func, args, kwargs))
        else:
            self._read(name, args, kwargs, result)
        return result

    def _read(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        trace = self._trace
        if trace is None or not isinstance(result, torch.Tensor):
            return
        if name == "softmax":
            self._softmax(trace, args, kwargs, result)
            return
        if name in _PRODUCTS:
            self._product(trace, name, args, kwargs, result)
            return
        before = next((arg for arg in args if id(arg) in trace.weights), None)
        if before is not None and name in _CARRIED:
            carried = trace.weights[id(before)]
            if name in _TIMES | _FILL and _is_changed(before, args, kwargs, result):
                trace.changed[id(carried[0])] = name
            trace.weights[id(result)] = carried
            trace.alive.append(result)
            return
        if any(id(arg) in trace.from_products for arg in args):
            trace.from_products.add(id(result))
            trace.alive.append(result)
        logits = _step(trace, name, args, kwargs, result)
        if logits is not None:
            trace.logits[id(result)] = logits
        else:
            # Also what was changed in place in a way that isn't known.
            trace.logits.pop(id(result), None)

    def _softmax(
        self,
        trace: _ModuleTrace,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> None:
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if result.dim() < 3 or dim not in (-1, result.dim() - 1):
            return
        scores = kwargs.get("input", args[0] if args else None)
        logits, own = trace.logits.get(id(scores)), result
        # A softmax of anything but a product of two stacks of vectors is not attention.
        if self._edit is not None and id(scores) in trace.from_products:
            before = result.clone()
            own = before if self._edit(result) else result
        trace.weights[id(result)] = (own, logits)
        trace.alive.append(result)

    def _product(
        self,
        trace: _ModuleTrace,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> None:
        found = next((trace.weights[id(arg)] for arg in args if id(arg) in trace.weights), None)
        if found is not None:
            weights, logits = found
            if id(weights) in trace.changed:
                raise NotImplementedError(
                    f"model: {type(trace.module).__name__} changes its attention weights after the "
                    f"softmax (by {trace.changed[id(weights)]}): what meets the values is not "
                    "known here. Draw weights of your own with AttentionRecord.from_weights"
                )
            # Each once, also where they meet several values.
            for key in [key for key, (known, _) in trace.weights.items() if known is weights]:
                del trace.weights[key]
                trace.met.add(key)
            call = _of_softmax(trace.module, weights, logits)
            self._sink(replace(call, output=_output_of(name, args, trace.met, result)))
            return
        if self._outputs and any(id(arg) in trace.met for arg in args):
            raise NotImplementedError(
                f"model: the attention weights of {type(trace.module).__name__} meet several "
                "values, where outputs cannot be changed yet"
            )
        product = product_of(name, args, kwargs)
        if product is None:
            return
        logits = _Logits(product, scale=product.alpha)
        if product.added is not None:
            logits = replace(logits, added=(product.added,))
        trace.logits[id(result)] = logits
        trace.from_products.add(id(result))
        # The operands too: their memory must not be given to others before the softmax.
        trace.alive += [result, *args]


def _is_changed(
    before: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> bool:
    """Whether a factor or a mask has changed weights after their softmax.

    Rows that become zero as a whole are of queries that may attend to nothing. Where weights were
    changed in place, a factor is looked at, and a mask is believed to lie where no weight is.
    """
    if result is not before:
        there = result.detach().ne(0).any(dim=-1, keepdim=True)
        return bool((result.detach().ne(before.detach()) & there).any())
    factor = next((each for each in (*args, *kwargs.values()) if each is not before), None)
    if isinstance(factor, torch.Tensor) and factor.dtype != torch.bool:
        return bool((factor.ne(1) & factor.ne(0)).any())
    return isinstance(factor, int | float) and factor != 1


def _step(
    trace: _ModuleTrace,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: torch.Tensor,
) -> _Logits | None:
    """Follow logits through one function; None where they are lost."""
    known = trace.logits
    positions = [position for position, arg in enumerate(args) if id(arg) in known]
    if not positions:
        return None
    position = positions[0]
    if len(positions) == 2:
        # The product that came first is that of queries and keys: others are of positions.
        first, second = (list(known).index(id(args[each])) for each in positions)
        position = positions[0] if first <= second else positions[1]
    logits = known[id(args[position])]
    others = [arg for index, arg in enumerate(args) if index != position]
    other = others[0] if others else kwargs.get("other")
    if name in _SAME | _RESHAPED:
        return _reshaped(logits, args[position].shape, result.shape)
    if name in _TIMES or (name in _OVER and position == 0):
        return _scaled(logits, other, over=name in _OVER)
    if name in _PLUS or (name in _MINUS and position == 0):
        terms = id(other) in trace.from_products
        return _plus(logits, other, minus=name in _MINUS, terms=terms)
    if name == "tanh":
        changed = logits.added or logits.blocked or logits.capped
        return None if changed else replace(logits, capped=True)
    return None if logits.capped else _masked(logits, name, position, args, kwargs)


def _reshaped(logits: _Logits, old: torch.Size, new: torch.Size) -> _Logits:
    if old == new:
        return logits
    return replace(
        logits,
        added=tuple(_as_reshaped(each, old, new) for each in logits.added),
        blocked=tuple(_as_reshaped(each, old, new) for each in logits.blocked),
    )


def _as_reshaped(tensor: torch.Tensor, old: torch.Size, new: torch.Size) -> torch.Tensor:
    """What was added to logits of one shape, for the same logits in another."""
    if old[-2:] == new[-2:] and tensor.dim() == len(old):
        # Examples and heads alone change places: a view, which is known again in other layers.
        if tensor.shape[:-2] == old[:-2]:
            return tensor.reshape(*new[:-2], *tensor.shape[-2:])
        if tensor.shape[:-2].numel() == 1:
            return tensor.reshape(*(1 for _ in new[:-2]), *tensor.shape[-2:])
    return tensor.expand(old).reshape(new)


def _plus(logits: _Logits, other: Any, *, minus: bool, terms: bool) -> _Logits | None:
    if not isinstance(other, torch.Tensor):
        # The same for all keys: the softmax doesn't notice.
        return logits
    if logits.capped:
        return None
    added = (*logits.added, -other if minus else other)
    return replace(logits, added=added, whole=logits.whole and not terms)


def _masked(
    logits: _Logits, name: str, position: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> _Logits | None:
    if name in _FILL and position == 0:
        mask = args[1] if len(args) > 1 else kwargs.get("mask")
        value = args[2] if len(args) > 2 else kwargs.get("value")
        if isinstance(mask, torch.Tensor) and _blocks(value):
            return replace(logits, blocked=(*logits.blocked, mask.bool()))
    if name == "where" and len(args) == 3 and isinstance(args[0], torch.Tensor):
        fill = args[2] if position == 1 else args[1]
        if _blocks(fill):
            blocked = ~args[0] if position == 1 else args[0]
            return replace(logits, blocked=(*logits.blocked, blocked))
    if name in _BOUNDED:
        bounds = [*args[1:], *kwargs.values()]
        if all(bound is None or abs(_number(bound) or 0.0) >= -_BLOCKED for bound in bounds):
            return logits
    return None


def _scaled(logits: _Logits, factor: Any, *, over: bool) -> _Logits | None:
    number = _number(factor)
    if number is None:
        return _scaled_by_head(logits, factor, over=over)
    number = 1 / number if over else number
    if logits.capped:
        # c * tanh(s q k): a cap of c on the logits c * s q k.
        return replace(logits, capped=False, softcap=number, scale=logits.scale * number)
    if logits.blocked or logits.softcap is not None:
        return None
    added = tuple(each * number for each in logits.added)
    return replace(logits, scale=logits.scale * number, added=added)


def _scaled_by_head(logits: _Logits, factor: Any, *, over: bool) -> _Logits | None:
    """A factor for each head (Swin 2) goes into its queries."""
    fits = isinstance(factor, torch.Tensor) and factor.dim() >= 3 and factor.shape[-2:] == (1, 1)
    if not fits or logits.added or logits.blocked or logits.capped or logits.softcap is not None:
        return None
    queries = logits.product.queries
    queries = queries / factor if over else queries * factor
    return replace(logits, product=replace(logits.product, queries=queries))


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else None
    return float(value) if isinstance(value, int | float) else None


def _blocks(value: Any) -> bool:
    number = _number(value)
    return number is not None and number <= _BLOCKED


def _of_sdpa(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], output: torch.Tensor
) -> AttentionCall:
    """An attention that torch's own function computed."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    tensors = [given["query"], given["key"], given["value"], output]
    if output.dim() == 3:
        tensors = [tensor[:, None] for tensor in tensors]
    query, key, value, output = tensors
    return AttentionCall(
        module,
        "sdpa",
        query,
        key,
        value,
        given.get("attn_mask"),
        {"scaling": given.get("scale"), "is_causal": bool(given.get("is_causal"))},
        output.transpose(1, 2),
    )


def _of_multi_head(
    module: nn.Module, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AttentionCall:
    """An attention of torch's own module, which gives its weights when asked to."""
    asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
    with torch.no_grad():
        _, weights = func(*args, **asked)
    query = args[0] if args else kwargs["query"]
    # Given as (tokens, examples, width), or (tokens, width) of one example.
    weights = weights if query.dim() == 3 else weights[None]
    return AttentionCall(module, None, None, None, None, None, {}, None, weights=weights)


def _of_softmax(module: nn.Module, weights: torch.Tensor, logits: _Logits | None) -> AttentionCall:
    """An attention that ended in a softmax which met the values."""
    if logits is None or logits.capped:
        return AttentionCall(module, None, None, None, None, None, {}, None, weights=weights)
    shape = weights.shape
    queries, keys = logits.product.queries, logits.product.keys
    blocked = None
    for each in logits.blocked:
        blocked = each if blocked is None else blocked | each
    return AttentionCall(
        module,
        "eager",
        queries,
        keys,
        None,
        None if blocked is None else ~_like(blocked, shape),
        {"scaling": logits.scale, "softcap": logits.softcap},
        None,
        added=tuple(_like(each, shape) for each in logits.added),
        weights=weights,
        whole=logits.whole,
    )


def _output_of(
    name: str, args: Sequence[Any], met: Collection[int], result: torch.Tensor
) -> torch.Tensor | None:
    """What weights and values gave, in the order of the weights' axes: (..., queries, value_dim).

    The memory is that of `result`. None where its order is not known.
    """
    if name == "einsum":
        operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
        equation = _EQUATION.match(str(args[0]).replace(" ", ""))
        if equation is None or len(operands) != 2:
            return None
        *letters, of_result = equation.groups()
        weights, values = letters if id(operands[0]) in met else reversed(letters)
        added = [letter for letter in of_result if letter not in weights]
        wanted = [*(letter for letter in weights if letter in of_result), *added]
        if len(added) != 1 or added[0] not in values or len(wanted) != len(weights):
            return None
        return result.permute([of_result.index(letter) for letter in wanted])
    left = args[1] if name == "baddbmm" and len(args) > 1 else args[0] if args else None
    return result if id(left) in met else None


def _like(tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """With as many dimensions as the weights, not expanded where it needs not be."""
    return tensor.reshape((1,) * (len(shape) - tensor.dim()) + tuple(tensor.shape))


_EQUATION = re.compile(r"^([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)$")


@dataclass(frozen=True)
class Product:
    """``alpha * queries @ keys^T + added``.

    Attributes
    ----------
    queries : Tensor
        (..., queries, head_dim).
    keys : Tensor
        (..., keys, head_dim).
    alpha : float
        Factor of the product.
    added : Tensor or None
        What was added in the same step.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    alpha: float = 1.0
    added: torch.Tensor | None = None


def product_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """Read a product of two stacks of vectors from a torch function's arguments; None if not one.

    Examples
    --------
    >>> q, k = torch.ones(2, 3, 4), torch.ones(2, 5, 4)
    >>> product_of("einsum", ("hid,hjd->hij", q, k), {}).keys.shape
    torch.Size([2, 5, 4])
    """
    if name == "einsum":
        return _of_einsum(args)
    if name == "baddbmm":
        given = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | dict(kwargs)
        beta, left, right = given.get("beta", 1), given["batch1"], given["batch2"]
        # With beta 0 what is added isn't even read: it may hold anything.
        added = None if beta == 0 else given["input"] * beta
        return Product(left, right.transpose(-1, -2), float(given.get("alpha", 1)), added)
    operands = [*args, *kwargs.values()]
    if len(operands) != 2 or not all(isinstance(each, torch.Tensor) for each in operands):
        return None
    left, right = operands
    if min(left.dim(), right.dim()) < 3:
        return None
    return Product(left, right.transpose(-1, -2))


def _of_einsum(args: Sequence[Any]) -> Product | None:
    operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
    equation = _EQUATION.match(str(args[0]).replace(" ", ""))
    if equation is None or len(operands) != 2:
        return None
    left, right, result = equation.groups()
    if len(set(result)) != len(result) or len(result) < 3:
        return None
    query, key = result[-2], result[-1]
    operand = dict(zip((left, right), operands, strict=True))
    summed = (set(left) & set(right)) - set(result)
    # The last two letters of the result are queries and keys; one letter is summed over.
    if len(summed) != 1 or left == right:
        return None
    of_query = next((each for each in (left, right) if query in each and key not in each), None)
    of_key = next((each for each in (left, right) if key in each and query not in each), None)
    if of_query is None or of_key is None:
        return None
    (dimension,) = summed
    queries = _ordered(operand[of_query], of_query, result[:-2], query + dimension)
    keys = _ordered(operand[of_key], of_key, result[:-2], key + dimension)
    return None if queries is None or keys is None else Product(queries, keys)


def _ordered(tensor: torch.Tensor, letters: str, batch: str, last: str) -> torch.Tensor | None:
    """Put a tensor's axes into the order of the result's, 1 where it has none of an axis."""
    if set(letters) - set(batch) - set(last):
        return None
    present = [letter for letter in batch + last if letter in letters]
    ordered = tensor.permute([letters.index(letter) for letter in present])
    for position, letter in enumerate(batch + last):
        if letter not in letters:
            ordered = ordered.unsqueeze(position)
    return ordered
