"""Functions that read which arguments and how many tokens a model takes, and that check ids.

`attnviz.extraction.models.Loaded` has the results for one model.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.adapters import base_of, virtual_tokens
from attnviz.extraction.families import NOT_TEXT, POSITION_TABLE, is_encoder_decoder
from attnviz.extraction.modules import ModuleScan, scan_modules

# Cache of the names of parameters, by function. Reading the signature at every forward would
# take longer than running a small layer.
_parameters: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()


def accepted_arguments(model: Any) -> frozenset[str]:
    """Return the names of the arguments of a model's forward.

    If the model is an adapter with virtual tokens, the arguments are those of the model inside of
    the adapter.
    """
    return frozenset(parameter_names(base_of(model).forward))


def parameter_names(method: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a method or function, without ``self``."""
    function = getattr(method, "__func__", method)
    if function not in _parameters:
        _parameters[function] = tuple(inspect.signature(method).parameters)
    return _parameters[function]


def shortens_logits(model: PreTrainedModel) -> bool:
    """Whether a model can compute logits for the final positions only (``logits_to_keep``).

    This is True only for models that can generate, and whose code is in transformers. Some
    classifiers have the argument but fail if logits are missing. Code outside of transformers may
    accept a number but no slice as the argument.
    """
    module = str(getattr(base_of(model).forward, "__module__", ""))
    return (
        "logits_to_keep" in accepted_arguments(model)
        and model.can_generate()
        and module.startswith("transformers.")
    )


class TooManyTokensError(ValueError):
    """Error for a text with more tokens than the model has positions."""


def check_ids(
    model: PreTrainedModel, ids: torch.Tensor, argument: str, *, decoder: bool = False
) -> None:
    """Raise ValueError if `ids` is empty, or if the model has no embedding for one of the ids.

    A model without token embeddings accepts all ids. `argument` is the name of the caller's
    argument with the ids, for the error. `decoder` is whether the decoder of an encoder-decoder
    model gets the ids. It may have another vocabulary than the encoder.
    """
    if ids.numel() == 0:
        raise ValueError(f"{argument} contains no tokens. Pass some text.")
    try:
        part: Any = model.get_decoder() if decoder else model
        table = part.get_input_embeddings()
    except (NotImplementedError, AttributeError):
        return
    num_ids = getattr(getattr(table, "weight", None), "shape", (None,))[0]
    lowest, highest = int(ids.min()), int(ids.max())
    if num_ids is not None and (highest >= num_ids or lowest < 0):
        worst = highest if highest >= num_ids else lowest
        raise ValueError(
            f"{argument}: token id {worst} is out of range. {type(model).__name__} has the ids "
            f"0 to {num_ids - 1}{' in its decoder' * decoder}, so the tokenizer belongs to another "
            "model. Pass the tokenizer of this model as tokenizer="
            f"{', or (source, target) if its decoder has its own' * decoder}."
        )


def check_length(model: PreTrainedModel, length: int, argument: str, bound: int | None) -> None:
    """Raise TooManyTokensError if `length` (with padding) is larger than `bound`.

    `bound` is the result of `num_positions`. If it is None, every length is valid. `argument` is
    the name of the caller's argument with the text, for the error.
    """
    if bound is not None and length > bound:
        remedy = (
            "Shorten the text, pass truncation=True, or pass a tokenizer's output with "
            f"truncation=True, max_length={bound}."
        )
        if argument == "decoder_input_ids":
            remedy = "Pass fewer ids."
        raise TooManyTokensError(
            f"{argument}: {length} tokens are too many. {type(model).__name__} has {bound} "
            f"positions. {remedy}"
        )


def num_positions(model: PreTrainedModel) -> dict[str, int | None]:
    """Return the number of tokens for which a model has position embeddings.

    The keys are ``"input"`` and, for an encoder-decoder model, ``"decoder"``. Positions of virtual
    tokens (learned vectors before the text) are not counted. A number is None if there is no table
    of position embeddings.
    """
    scan, virtual = scan_modules(model), virtual_tokens(model)
    sides: dict[str, bool | None] = {"input": None}
    if is_encoder_decoder(model.config):
        sides = {"input": False, "decoder": True}
    numbers: dict[str, int | None] = {}
    for name, side in sides.items():
        index = scan.once(("position table", side), partial(_table_index, scan, side=side))
        table: Any = None if index is None else scan.modules[index]
        # Subtract the first entries of a table if no token uses them: in BART because of an
        # offset, in RoBERTa because of the padding id.
        unused = int(getattr(table, "offset", 0))
        if type(table) is nn.Embedding and table.padding_idx is not None:
            unused += table.padding_idx + 1
        if virtual is not None and name == "input":
            unused += virtual.count
        numbers[name] = None if table is None else int(table.num_embeddings) - unused
    return numbers


def _table_index(scan: ModuleScan, *, side: bool | None) -> int | None:
    """Find the table of position embeddings of a text.

    Return its index in `scan.modules`, or None if the model has no such table. `side` selects the
    table of the decoder (True), of the encoder (False), or of a model without these parts (None).
    Tables of images and sounds do not count.
    """
    for index, (name, module) in enumerate(zip(scan.names, scan.modules, strict=True)):
        parts = name.split(".")
        if not isinstance(module, nn.Embedding) or not POSITION_TABLE.match(parts[-1]):
            continue
        if any(NOT_TEXT.search(part) for part in parts):
            continue
        if side is None or any(part.endswith("decoder") for part in parts[:-1]) == side:
            return index
    return None
