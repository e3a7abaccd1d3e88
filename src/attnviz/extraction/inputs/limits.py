"""What a model cannot take, said before it runs."""

from __future__ import annotations

import re

import torch
from torch import nn
from transformers import PreTrainedModel

__all__ = ["TooManyTokensError", "check_ids", "check_length", "num_positions"]

_POSITION_TABLE = re.compile(r"^(wpe|embed_positions|position_embeddings?|pos_emb(eds?)?)$")
_NOT_TEXT = re.compile(r"vision|visual|image|audio|video", re.IGNORECASE)


class TooManyTokensError(ValueError):
    """A text has more tokens than the model has positions."""


def check_ids(model: PreTrainedModel, ids: torch.Tensor, argument: str) -> None:
    """Refuse ids that the model has no embedding for.

    Parameters
    ----------
    model : PreTrainedModel
        The model that is to take them.
    ids : Tensor
        Integers of any shape.
    argument : str
        The argument that they came from.

    Raises
    ------
    ValueError
        If there are none, or one is out of range: the tokenizer is another model's.
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


def check_length(model: PreTrainedModel, length: int, argument: str, *, decoder: bool) -> None:
    """Refuse more tokens than the model has positions.

    Parameters
    ----------
    model : PreTrainedModel
        The model that is to take them.
    length : int
        Number of tokens, padding included.
    argument : str
        The argument that they came from.
    decoder : bool
        Whether they go into the decoder of an encoder-decoder model.

    Raises
    ------
    TooManyTokensError
        If `length` exceeds the table of learned or fixed positions. Rotary and relative positions
        have no such bound.
    """
    bound = num_positions(model, decoder=decoder)
    if bound is not None and length > bound:
        raise TooManyTokensError(
            f"{argument}: {length} tokens are too many, {type(model).__name__} has positions for "
            f"{bound}. Shorten the text, or give the tokenizer's own output with truncation=True, "
            f"max_length={bound}"
        )


def num_positions(model: PreTrainedModel, *, decoder: bool) -> int | None:
    """Count the positions of a model with a table of them.

    Parameters
    ----------
    model : PreTrainedModel
        Any model.
    decoder : bool
        Whether to look at the decoder of an encoder-decoder model.

    Returns
    -------
    int or None
        None where positions are not looked up in a table.
    """
    encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
    for name, module in model.named_modules():
        parts = name.split(".")
        if not isinstance(module, nn.Embedding) or not _POSITION_TABLE.match(parts[-1]):
            continue
        if any(_NOT_TEXT.search(part) for part in parts):
            continue
        if encoder_decoder and any(part.endswith("decoder") for part in parts[:-1]) != decoder:
            continue
        # Some tables begin with entries that no token gets: BART's offset, RoBERTa's padding.
        unused = int(getattr(module, "offset", 0))
        if type(module) is nn.Embedding and module.padding_idx is not None:
            unused += module.padding_idx + 1
        return module.num_embeddings - unused
    return None
