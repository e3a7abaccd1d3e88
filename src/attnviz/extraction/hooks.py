"""Hooks and temporary changes of a model, which end with a block, and arguments of its methods."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from attnviz.extraction.families import config_values
from attnviz.extraction.modules import modules_of
from attnviz.utils.cleanup import Cleanup, fork_safe_lock

# Cache of the names of parameters, by function. Reading the signature at every forward would
# take longer than running a small layer.
_parameters: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()


def parameter_names(method: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a method or function, without ``self``."""
    function = getattr(method, "__func__", method)
    if function not in _parameters:
        _parameters[function] = tuple(inspect.signature(method).parameters)
    return _parameters[function]


# Modules that `evaluate` switched from training to evaluation mode. The value of a module has one
# object for each call of `evaluate` that still needs the module in this mode.
_evaluating: dict[nn.Module, set[object]] = {}
_evaluating_lock = fork_safe_lock()


def evaluate(modules: Iterable[nn.Module], undo: Cleanup) -> bool:
    """Keep modules in evaluation mode, without gradients, until the ``with`` block of `undo` ends.

    In training mode, dropout changes attention weights randomly. Several threads may use the same
    modules. A module returns to training mode when the last ``with`` block that uses it ends.
    Gradients are disabled only in this thread.

    Returns
    -------
    bool
        Whether any module was in training mode at this call, or was switched to evaluation mode by
        another call of `evaluate` whose ``with`` block has not ended yet.
    """
    undo.add(partial(torch.set_grad_enabled, torch.is_grad_enabled()))
    torch.set_grad_enabled(False)
    holder: object = object()
    trained: list[nn.Module] = []
    undo.add(partial(_release, holder, trained))
    with _evaluating_lock:
        trained += [part for part in modules if part.training or part in _evaluating]
        for module in trained:
            _evaluating.setdefault(module, set()).add(holder)
            module.training = False
    return bool(trained)


def _release(holder: object, modules: Sequence[nn.Module]) -> None:
    with _evaluating_lock:
        for module in modules:
            holders = _evaluating.get(module)
            if holders is None:
                continue
            holders.discard(holder)
            if not holders:
                module.training = True
                del _evaluating[module]


def attend_fully(model: PreTrainedModel, num_tokens: int, undo: Cleanup) -> None:
    """Let BigBird use full attention for a short text, until the ``with`` block of `undo` ends.

    In the forward of its first short text, BigBird replaces the modules of its sparse attention,
    and does not put them back. The records of later, longer texts would then depend on this text.
    This function replaces the modules before the forward.
    """
    has_blocks = config_values(model.config, "num_random_blocks") != {None}
    for part in modules_of(model) if has_blocks else ():
        if not isinstance(part, PreTrainedModel) or not hasattr(part, "set_attention_type"):
            continue
        sizes: Any = part.config
        is_short = num_tokens <= (5 + 2 * sizes.num_random_blocks) * sizes.block_size
        if is_short and part.attention_type == "block_sparse":
            for inner in modules_of(part):
                if hasattr(inner, "set_attention_type"):
                    undo.add(partial(inner._modules.update, dict(inner._modules)))
                    undo.add(partial(setattr, inner, "attention_type", "block_sparse"))
            # The new modules get the projections of the old ones. On the meta device, their own
            # projections take no memory and no random numbers.
            with torch.device("meta"):
                part.set_attention_type("original_full")


class Hooks:
    """Hooks of modules that exist until the ``with`` block of `undo` ends.

    They do nothing in threads other than the one that made this object, which may run the same
    model.
    """

    def __init__(self, undo: Cleanup) -> None:
        self._handles: list[RemovableHandle] = []
        self._thread = threading.get_ident()
        undo.add(self._remove)

    def add(
        self,
        register: Callable[..., RemovableHandle],
        function: Callable[..., Any],
        **options: bool,
    ) -> None:
        """Register a hook that calls `function`.

        `register` is a method of a module, such as ``module.register_forward_hook``, and `options`
        are further arguments of this method.
        """
        thread = self._thread

        # If this thread adds or removes a hook while another thread runs the model, torch may omit
        # the last argument of a hook, a dictionary of keyword arguments. Therefore accept any
        # number.
        def hooked(*arguments: Any) -> Any:
            return function(*arguments) if threading.get_ident() == thread else None

        # A KeyboardInterrupt cannot come between the end of `register` and `append`, so every
        # registered hook is removed later.
        self._handles.append(register(hooked, **options))

    def _remove(self) -> None:
        while self._handles:
            self._handles[-1].remove()
            self._handles.pop()


class ReachedError(BaseException):
    """Exception that ends code at a call. Code that catches Exception lets it pass."""


def first_call(
    modules: Iterable[nn.Module], run: Callable[[], object]
) -> tuple[Any, dict[str, Any]] | None:
    """Call `run`, and end it where it would run one of `modules`.

    Return this module and its arguments by name. Return None if `run` ends before.
    """
    calls: list[tuple[Any, dict[str, Any]]] = []

    def reached(module: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> None:
        calls.append((module, named_arguments(forward, args, kwargs)))
        raise ReachedError

    with Cleanup() as undo, undo:
        for module in modules:
            replace_method(module, "forward", partial(reached, module), undo)
        with torch.no_grad(), contextlib.suppress(ReachedError):
            run()
    return calls[0] if calls else None


def named_arguments(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    return dict(zip(parameter_names(method), args, strict=False)) | kwargs


def replace_method(owner: Any, name: str, replacement: Callable[..., Any], undo: Cleanup) -> None:
    """Replace a method of an object in this thread, until the ``with`` block of `undo` ends.

    `replacement` gets the original method as its first argument. A hook would not be enough,
    because adapters call ``forward`` themselves, and ``generate`` has no hooks.
    """
    original = getattr(owner, name)
    thread = threading.get_ident()

    @wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        return replacement(original, *args, **kwargs)

    # Use the dictionary, because classes of users may have their own __setattr__.
    attributes = vars(owner)
    if name in attributes:
        undo.add(partial(attributes.__setitem__, name, attributes[name]))
    else:
        undo.add(partial(attributes.pop, name, None))
    attributes[name] = replaced
