"""Wrapper of transformers' attention dispatcher, in place only during a capture.

Every model that uses the dispatcher calls ``AttentionInterface.get_interface`` to get the function
that computes its attention. Only this method is wrapped. The model's implementation, mask and
configuration stay as they are, and the same function is called with the same arguments. So outputs
stay bit-identical. Queries and keys are observed as attention receives them (after rotary position
and normalisation, before grouped key heads are repeated).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import AttentionInterface

from attnviz.utils.cleanup import Cleanup, SharedChange

__all__ = ["AttentionCall", "Sink", "dispatching", "observe", "report"]


@dataclass(frozen=True)
class AttentionCall:
    """Inputs and output of one attention.

    The tensors belong to the model. Copy them to keep them after the call.

    Attributes
    ----------
    module : Module
        The attention module that made the call.
    implementation : str or None
        Requested name of the function: ``"eager"``, ``"sdpa"``, ...
    query, key, value : Tensor or None
        (batch, heads, queries, head_dim), (batch, key_heads, keys, head_dim) and
        (batch, key_heads, keys, value_dim), or None if they are not known.
    mask : Tensor or None
        The mask argument. Its meaning depends on the implementation.
    options : dict
        The keyword arguments: ``scaling``, ``is_causal``, ``position_bias``, ``softcap``, ...
    output : Tensor or None
        (batch, queries, heads, value_dim).
    added : tuple of Tensor
        Terms of the logits other than the mask and the option ``position_bias``.
    weights : Tensor or None
        Result of the softmax, (batch, heads, queries, keys) or with batch and heads as one axis, if
        it was observed.
    has_all_logits : bool
        Whether queries and keys account for all logits that depend on the input. False if further
        products were added (disentangled attention).
    function : callable or None
        The function that computed it, if it was requested by name.
    """

    module: nn.Module
    implementation: str | None
    query: torch.Tensor | None
    key: torch.Tensor | None
    value: torch.Tensor | None
    mask: Any
    options: dict[str, Any]
    output: Any
    added: tuple[torch.Tensor, ...] = ()
    weights: torch.Tensor | None = None
    has_all_logits: bool = True
    function: Callable[..., Any] | None = None

    @property
    def num_examples(self) -> int:
        """Size of the batch axis. A mask, bias or key may have size 1 for all examples."""
        sizes = [
            tensor.shape[0] for tensor in (self.query, self.key, self.weights) if tensor is not None
        ]
        return max(sizes)

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        tensor = self.query if self.query is not None else self.weights
        return 0 if tensor is None else tensor.shape[1]

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        tensor = self.query if self.query is not None else self.weights
        return 0 if tensor is None else tensor.shape[2]

    @property
    def num_keys(self) -> int:
        """Number of keys."""
        if self.key is not None:
            return self.key.shape[2]
        return 0 if self.weights is None else self.weights.shape[3]


Sink = Callable[[AttentionCall], None]

# ContextVars, so that other threads and tasks are not observed.
_sink: ContextVar[Sink | None] = ContextVar("attnviz_sink", default=None)

_observer: ContextVar[Sink | None] = ContextVar("attnviz_observer", default=None)

_dispatching: ContextVar[bool] = ContextVar("attnviz_dispatching", default=False)

_AttentionFunction = Callable[..., Any]


def dispatching() -> bool:
    """Whether a dispatched attention function runs in this thread."""
    return _dispatching.get()


def report(sink: Sink, undo: Cleanup) -> None:
    """Pass every dispatched attention call of this thread to `sink` until the block of `undo` ends.

    Errors raised by `sink` leave the model's forward. Captures may run in several threads at once.
    The last one restores transformers' method, the identical object.
    """
    undo.add(partial(_sink.set, _sink.get()))
    # An interrupt inside of an attention function may leave it set.
    undo.add(partial(_dispatching.set, _dispatching.get()))
    _sink.set(sink)
    _wrap.hold(undo)


def observe(observer: Sink, undo: Cleanup) -> None:
    """Pass every reported call to `observer` too, after the sink, until the block of `undo` ends.

    Its output is the one that the model continues with.
    """
    undo.add(partial(_observer.set, _observer.get()))
    _observer.set(observer)


class _Method:
    """Transformers' `get_interface` method and its replacement."""

    def __init__(self) -> None:
        self._original: Any = None
        self._replacement: Any = None

    def wrap(self) -> None:
        method = AttentionInterface.__dict__["get_interface"]
        if method is not self._replacement:
            self._original, self._replacement = method, _wrapped(method)
            AttentionInterface.get_interface = self._replacement

    def restore(self) -> None:
        if self._original is not None:
            AttentionInterface.get_interface = self._original
            self._original = self._replacement = None


def _wrapped(original: Callable[..., _AttentionFunction]) -> Callable[..., _AttentionFunction]:
    """Wrap `get_interface` so that the functions it returns report to this context's sink."""

    def get_interface(
        self: AttentionInterface, attn_implementation: str, *args: Any, **kwargs: Any
    ) -> _AttentionFunction:
        function = original(self, attn_implementation, *args, **kwargs)
        if _sink.get() is None:
            return function
        return _reporting(function, attn_implementation)

    return get_interface


def _reporting(function: _AttentionFunction, implementation: str | None) -> _AttentionFunction:
    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        token = _dispatching.set(True)
        try:
            result = function(module, query, key, value, attention_mask, *args, **kwargs)
            sink = _sink.get()
            if sink is not None:
                output = result[0] if isinstance(result, tuple) else result
                tensors = (query, key, value, attention_mask)
                # Attention that the sink computes is not attributed to the module: `_dispatching`
                # is set.
                call = AttentionCall(
                    module, implementation, *tensors, kwargs, output, function=function
                )
                sink(call)
                observer = _observer.get()
                if observer is not None:
                    observer(call)
        finally:
            _dispatching.reset(token)
        return result

    return attention


_method = _Method()
_wrap = SharedChange(_method.wrap, _method.restore)
