"""Wrapper of transformers' attention dispatcher. The wrapper exists only during a capture.

Every model that uses the dispatcher calls ``AttentionInterface.get_interface`` to get the function
that computes its attention. Only this method is wrapped. The attention function is called with the
same arguments as without the wrapper. Afterwards the call is passed to another function, the sink,
which stores or changes the attention. Unless the sink overwrites the output of a call, the model's
outputs are bit-identical to those without the wrapper. Queries and keys are observed as the
attention function receives them: after rotary position embedding and normalisation, and before key
heads are repeated for the query heads of their group.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import AttentionInterface

from attnviz.utils.cleanup import Cleanup, SharedReplacement


@dataclass(frozen=True)
class AttentionCall:
    """Inputs and output of one computation of attention.

    Either the queries and keys, the weights, or only the values are known. In the last case, the
    queries and the keys are the same tokens as the values.

    The tensors belong to the model, which may overwrite them. Copy the tensors that are needed
    after the call. Tensors that were observed in a module's own code may have other axes before the
    last two than stated here. `attnviz.extraction.capture.calls.with_four_axes` reshapes these
    tensors, except `output`.

    Attributes
    ----------
    module : Module
        The attention module that made the call.
    implementation : str or None
        Name of the attention function: ``"eager"``, ``"sdpa"``, ... None if only the weights are
        known.
    query, key, value : Tensor or None
        (batch, heads, queries, head_dim), (batch, key_heads, keys, head_dim) and
        (batch, key_heads, keys, value_dim), or None if they are not known.
    mask : Tensor, BlockMask or None
        Mask argument of the function. Its meaning depends on the implementation.
    options : dict
        Keyword arguments of the function: ``scaling``, ``is_causal``, ``position_bias``,
        ``softcap``, ...
    output : Tensor or None
        (batch, queries, heads, value_dim), or None if it is not known. If `weights` were observed,
        (..., queries, value_dim) with the same leading axes as the observed weights.
    added : tuple of Tensor
        Terms added to the logits, except the mask and the option ``position_bias``.
    weights : Tensor or None
        Weights after the softmax, (batch, heads, queries, keys), or None if they were not observed.
    has_all_logits : bool
        Whether the product of queries and keys is the only product in the logits. False for
        disentangled attention, which adds products with positions.
    multiplies_values : bool
        Whether the output of a head is the product of its weights and values. False for Mamba-1,
        which has a matrix of weights for each channel.
    function : callable or None
        Function that computed the attention, if the dispatcher returned it, else None.
    """

    module: nn.Module
    implementation: str | None = None
    query: torch.Tensor | None = None
    key: torch.Tensor | None = None
    value: torch.Tensor | None = None
    mask: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    added: tuple[torch.Tensor, ...] = ()
    weights: torch.Tensor | None = None
    has_all_logits: bool = True
    multiplies_values: bool = True
    function: Callable[..., Any] | None = None

    @property
    def num_examples(self) -> int:
        """Number of examples.

        A tensor that all examples share may have size 1 on the batch axis. So this is the largest
        size of that axis.
        """
        tensors = (self.query, self.key, self.weights)
        sizes = [tensor.shape[0] for tensor in tensors if tensor is not None]
        return max(sizes, default=0 if self.value is None else len(self.value))

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self._first_of(self.query).shape[1]

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return self._first_of(self.query).shape[2]

    @property
    def num_keys(self) -> int:
        """Number of keys."""
        axis = 3 if self.key is None and self.weights is not None else 2
        return self._first_of(self.key).shape[axis]

    @property
    def output_shape(self) -> tuple[int, ...] | None:
        """Expected shape of the output, or None if the values are not known."""
        if self.value is None:
            return None
        return self.num_examples, self.num_queries, self.num_heads, self.value.shape[-1]

    def _first_of(self, tensor: torch.Tensor | None) -> torch.Tensor:
        """Return the first of `tensor`, the weights and the values that is not None."""
        tensor = self.weights if tensor is None else tensor
        tensor = self.value if tensor is None else tensor
        if tensor is None:
            raise TypeError("a call without queries, keys and weights must have values")
        return tensor

    @property
    def query_sinks(self) -> torch.Tensor | None:
        """Logits of sinks that depend on the query, (batch, heads, queries, 1), or None.

        A softmax stays the same if a number is added to all logits of a row. Therefore these sinks
        are read as sinks with the logit 0, and a bias of -`query_sinks` in the logits of all keys.
        """
        sinks = self.options.get("sinks")
        if not isinstance(sinks, torch.Tensor) or self.query is None or sinks.dim() != 4:
            return None
        return sinks if sinks.shape[1:] == (self.num_heads, self.num_queries, 1) else None


#: Function that receives attention calls.
Sink = Callable[[AttentionCall], None]

# `_sink` and `_dispatching` are context variables, so a capture in one thread or asyncio task does
# not observe attention in others.
_sink: ContextVar[Sink | None] = ContextVar("attnviz_sink", default=None)
_dispatching: ContextVar[bool] = ContextVar("attnviz_dispatching", default=False)

_AttentionFunction = Callable[..., Any]


def dispatching() -> bool:
    """Whether an attention function that the dispatcher returned runs in this thread."""
    return _dispatching.get()


def report(sink: Sink, undo: Cleanup) -> None:
    """Pass the attention calls of this thread to `sink` until the ``with`` block of `undo` ends.

    Only calls of functions that the dispatcher returns during this block are passed. An error
    raised in `sink` ends the model's forward. If captures run in several threads at once, the last
    capture that ends restores the original method of transformers.
    """
    undo.add(partial(_sink.set, _sink.get()))
    # An interrupt inside of an attention function may leave `_dispatching` set, so restore it, too.
    undo.add(partial(_dispatching.set, _dispatching.get()))
    _sink.set(sink)
    _wrap.hold(undo)


def _wrapped(original: Callable[..., _AttentionFunction]) -> Callable[..., _AttentionFunction]:
    """Wrap `get_interface`: the functions that it returns pass their calls to the current sink."""

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
                # `_dispatching` is still set here, so that computations of the sink are not traced
                # as attention of the module.
                call = AttentionCall(
                    module, implementation, *tensors, kwargs, output, function=function
                )
                sink(call)
        finally:
            _dispatching.reset(token)
        return result

    return attention


_METHOD = (AttentionInterface, "get_interface")
_wrap = SharedReplacement[Callable[..., _AttentionFunction]](
    partial(getattr, *_METHOD), partial(setattr, *_METHOD), _wrapped
)
