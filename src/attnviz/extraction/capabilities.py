"""What a model takes: texts, images, sounds, which ids, and how many tokens."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.adapters import base_of, virtual_tokens
from attnviz.extraction.families import IMAGES, NOT_TEXT, POSITION_TABLE, SOUNDS

__all__ = [
    "Capabilities",
    "TooManyTokensError",
    "accepted_arguments",
    "capabilities_of",
    "check_ids",
    "check_length",
    "num_positions",
    "shortens_logits",
]


@dataclass(frozen=True)
class Capabilities:
    """What a model takes.

    Attributes
    ----------
    name : str
        The model's class.
    takes_text, takes_images, takes_sounds : bool
        Whether it takes the ids of a text, images, sounds.
    """

    name: str
    takes_text: bool
    takes_images: bool
    takes_sounds: bool

    def __str__(self) -> str:
        kinds = {"texts": self.takes_text, "images": self.takes_images, "sounds": self.takes_sounds}
        return " and ".join(kind for kind, takes in kinds.items() if takes) or "nothing known"

    def refuse(self, given: str, way_out: str | None = None) -> TypeError:
        """Make the error for what it doesn't take."""
        if way_out is None:
            kinds = {
                "a text": self.takes_text,
                "an image (PIL, or an array)": self.takes_images,
                "a sound (an array)": self.takes_sounds,
            }
            fitting = [kind for kind, takes in kinds.items() if takes]
            way_out = " or ".join([*fitting, "the output of its tokenizer or processor"])
        return TypeError(f"inputs: {self.name} takes {self}; got {given}. Pass {way_out}.")


# By the function that is the model's forward: reading a signature takes longer than a small layer.
_accepted: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()


def accepted_arguments(model: Any) -> frozenset[str]:
    """Names of the arguments that a model's forward takes."""
    forward = base_of(model).forward
    function = getattr(forward, "__func__", forward)
    if function not in _accepted:
        _accepted[function] = frozenset(inspect.signature(forward).parameters)
    return _accepted[function]


def shortens_logits(model: PreTrainedModel) -> bool:
    """Whether a model can leave out the logits of positions by ``logits_to_keep``.

    Language heads of transformers do. Others are not known: some classifiers have the argument and
    then read logits that are not there, and code from elsewhere may take integers alone.
    """
    module = str(getattr(base_of(model).forward, "__module__", ""))
    return (
        "logits_to_keep" in accepted_arguments(model)
        and model.can_generate()
        and module.startswith("transformers.")
    )


def capabilities_of(model: PreTrainedModel) -> Capabilities:
    """Read from the arguments of its forward what a model takes."""
    accepted = accepted_arguments(model)
    main = str(getattr(model, "main_input_name", "input_ids"))

    def takes(*names: str) -> bool:
        return any(each.startswith(names) for each in [*accepted, main])

    reads = "input_ids" in accepted
    sees = takes(*IMAGES)
    # Time series have the same name as sounds, and no frames.
    return Capabilities(type(model).__name__, reads, sees, takes(*SOUNDS))


class TooManyTokensError(ValueError):
    """A text has more tokens than the model has positions."""


def check_ids(model: PreTrainedModel, ids: torch.Tensor, argument: str) -> None:
    """Raise ValueError if there are no ids, or one has no embedding (another model's tokenizer).

    `argument` is the one that they came from.
    """
    if ids.numel() == 0:
        raise ValueError(f"{argument}: there are no tokens in it; give some text")
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        return
    known = getattr(getattr(table, "weight", None), "shape", (None,))[0]
    lowest, highest = int(ids.min()), int(ids.max())
    if known is not None and (highest >= known or lowest < 0):
        worst = highest if highest >= known else lowest
        raise ValueError(
            f"{argument}: token id {worst} is out of range, {type(model).__name__} knows the ids 0 "
            f"to {known - 1}. The tokenizer is another model's: give the one that belongs to this "
            "model as tokenizer="
        )


def check_length(model: PreTrainedModel, length: int, argument: str, bound: int | None) -> None:
    """Raise TooManyTokensError if a model has fewer positions than `length`, padding counted too.

    `bound` is what `num_positions` gives. Rotary and relative positions have no such bound.
    """
    if bound is not None and length > bound:
        raise TooManyTokensError(
            f"{argument}: {length} tokens are too many, {type(model).__name__} has positions for "
            f"{bound}. Shorten the text, have it cut by truncation=True, or give the tokenizer's "
            f"own output with truncation=True, max_length={bound}"
        )


def num_positions(model: PreTrainedModel, *, decoder: bool) -> int | None:
    """Count the positions of a model's table (or its decoder's); None if it has no table.

    Virtual tokens of an adapter have positions too: those are not counted.
    """
    virtual = None if decoder else virtual_tokens(model)
    encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
    for name, module in model.named_modules():
        parts = name.split(".")
        if not isinstance(module, nn.Embedding) or not POSITION_TABLE.match(parts[-1]):
            continue
        if any(NOT_TEXT.search(part) for part in parts):
            continue
        if encoder_decoder and any(part.endswith("decoder") for part in parts[:-1]) != decoder:
            continue
        # Some tables begin with entries that no token gets: BART's offset, RoBERTa's padding.
        unused = int(getattr(module, "offset", 0))
        if type(module) is nn.Embedding and module.padding_idx is not None:
            unused += module.padding_idx + 1
        return module.num_embeddings - unused - (0 if virtual is None else virtual.count)
    return None
