"""Keys that a press of kvpress keeps.

A press cuts a key-value cache. ``press(model)`` is a context manager, in which a forward of the
model on a context leaves a cache with fewer keys (Devoto et al. 2025, arXiv 2510.00636). This
module finds the kept keys: it looks up the entries of this cache in the cache of an ordinary
forward on the same context. kvpress itself is not imported, so other libraries with the same
interface work, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.hooks import evaluate, hook
from attnviz.extraction.modules import attention_modules, modules_of
from attnviz.interventions.example import Example
from attnviz.utils.arguments import short_repr
from attnviz.utils.cleanup import Cleanup

#: Function that takes a model and returns a context manager, such as a press of kvpress.
Press = Callable[[Any], AbstractContextManager[Any]]
# Attribute that kvpress adds to attention modules if heads keep different numbers of keys. It has
# the entries of the cache that get no weight, as three arrays of indices: example, key head, row.
_MASKED = "masked_key_indices"


def keys_kept_by(press: Press, example: Example, context: int) -> dict[int, torch.Tensor]:
    """Return which of the first `context` tokens of an example a press keeps as keys.

    The result has a tensor for each layer with keys in the cache, bool, (key_heads, context). Raise
    TypeError if `press` does not return a context manager. Raise NotImplementedError if the model
    has an encoder, if its input is not token ids, or if the press changes keys or values.
    """
    model = example.loaded.model
    arguments = arguments_of(example.loaded, example.batch) | {"use_cache": True}
    if "input_ids" not in arguments or example.loaded.is_encoder_decoder:
        raise NotImplementedError("keep: a press needs a decoder-only model and a text")
    length = arguments["input_ids"].shape[-1]
    for name, value in arguments.items():
        # Shorten the arguments that have one entry per token: ids, the mask and positions.
        if isinstance(value, torch.Tensor) and value.shape[-1:] == (length,):
            arguments[name] = value[..., :context]
    modules: dict[int, Any] = {
        number: entry.module
        for entry in attention_modules(model)
        if entry.softmax and isinstance(number := getattr(entry.module, "layer_idx", None), int)
    }
    # kvpress reads the arguments `cache_position` and `past_key_values` of attention modules. The
    # models of transformers 5.3 and later do not pass the positions, and those of 5.24 and later
    # pass the cache as `cache`.
    positions = {"cache_position": torch.arange(context, device=model.device)}

    def add_arguments(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        renamed = {"past_key_values": named["cache"]} if "cache" in named else {}
        return inputs, positions | renamed | named

    manager = press(model)
    if not isinstance(manager, AbstractContextManager):
        raise TypeError(
            f"keep={short_repr(press)} is not a press: it does not return a context manager"
        )
    with Cleanup() as undo, undo:
        evaluate(modules_of(model), undo)
        complete = model(**arguments).past_key_values
        for module in modules.values():
            undo.add(partial(module.__dict__.pop, _MASKED, None))
            hook(undo, module.register_forward_pre_hook, add_arguments, with_kwargs=True)
        with manager, warnings.catch_warnings():
            # transformers warns because the cache is passed under both names.
            warnings.filterwarnings("ignore", ".*`past_key_values`", FutureWarning)
            cut = model(**arguments).past_key_values
        masked = {number: getattr(module, _MASKED, None) for number, module in modules.items()}
    kept = {}
    for number, (before, after) in enumerate(zip(complete.layers, cut.layers, strict=True)):
        if getattr(before, "keys", None) is not None:
            kept[number] = _kept(_rows(before), _rows(after), masked.get(number), context)
    return kept


def _rows(layer: Any) -> list[list[bytes]]:
    """Return the bytes of the key and value of each row in a layer's cache, one list per head."""
    both = torch.cat([layer.keys[0], layer.values[0]], dim=-1).contiguous().cpu()
    return [[row.tobytes() for row in head] for head in both.view(torch.uint8).numpy()]


def _kept(
    complete: list[list[bytes]], cut: list[list[bytes]], masked: Any, context: int
) -> torch.Tensor:
    """Return which keys of a layer's cache remain in the cut cache, bool, (key_heads, context).

    `complete` and `cut` are results of `_rows`. `masked` is the attribute `_MASKED`, or None.
    """
    # The cache of a sliding window has only the last keys. No later query may attend to the others.
    first = context - len(complete[0])
    flags = torch.zeros(len(complete), context, dtype=torch.bool)
    positions_of_cut = []
    for rows, remaining in zip(complete, cut, strict=True):
        positions: dict[bytes, list[int]] = {}
        for position, row in enumerate(rows, first):
            positions.setdefault(row, []).append(position)
        try:
            positions_of_cut.append([positions[row].pop() for row in remaining])
        except LookupError as error:
            raise NotImplementedError(
                "keep: the press changes keys or values, and does not only select them. Its lost "
                "weight is not defined."
            ) from error
    kept = torch.tensor(positions_of_cut, dtype=torch.int64)
    flags.scatter_(1, kept, value=True)
    if masked is not None:
        _, heads, rows_of_cache = (torch.as_tensor(numbers).cpu() for numbers in masked)
        flags[heads, kept[heads, rows_of_cache]] = False
    return flags
