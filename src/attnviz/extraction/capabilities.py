"""Functions that read which arguments and how many tokens a model takes.

`attnviz.extraction.models.Loaded` has the results for one model.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

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
