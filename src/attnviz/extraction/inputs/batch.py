"""What one forward takes: its arguments, and its sequences of tokens with their padding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from attnviz.record.tokens import Tokens

__all__ = [
    "Batch",
    "ProducedText",
    "TokenSequence",
    "joined_examples",
    "kind_of_example",
    "moved_to_model",
    "pair_numbers",
    "produced_text_of",
    "selected_tokens",
    "split_examples",
    "tensor_of",
    "unpadded_positions",
]


@dataclass(frozen=True)
class TokenSequence:
    """One list of tokens of a batch: the model's input, or what a decoder is given.

    Attributes
    ----------
    length : int
        Number of positions, padding included.
    unpadded : list of (Tensor or None)
        For each example the positions that are not padding, int64; None keeps all.
    """

    length: int
    unpadded: list[torch.Tensor | None]


@dataclass(frozen=True)
class ProducedText:
    """A text that the model produces, or is made to produce.

    Attributes
    ----------
    sequence : str
        The list of tokens that it belongs to: ``"input"`` or ``"decoder"``.
    first : int
        The token, counted without padding, that predicts the first of it; those behind predict the
        others.
    ids : tuple of int
        Its vocabulary ids.
    likeliest : tuple of (int, float)
        Where it was generated: for each of its tokens what was likeliest in that step, and how
        likely. Empty where that is not known.
    """

    sequence: str
    first: int
    ids: tuple[int, ...]
    likeliest: tuple[tuple[int, float], ...] = ()


@dataclass
class Batch:
    """What one forward takes.

    Attributes
    ----------
    arguments : dict
        The model's keyword arguments.
    size : int
        Number of examples.
    sequences : dict of str to TokenSequence
        Lists of tokens with their padding: ``"input"`` and ``"decoder"``.
    tokens : dict of str to list of Tokens
        The same without padding, one entry an example.
    notes : list of str
        What a reader must know.
    produced : list of (ProducedText or None)
        What each example produces; empty where none does.
    processor : object or None
        What made pixel values of images, or features of a sound.
    own_notes : list of list of str
        What a reader of one example must know, an entry an example; empty where there is nothing.
    """

    arguments: dict[str, Any]
    size: int
    sequences: dict[str, TokenSequence] = field(default_factory=dict)
    tokens: dict[str, list[Tokens]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    produced: list[ProducedText | None] = field(default_factory=list)
    processor: Any = None
    own_notes: list[list[str]] = field(default_factory=list)


def moved_to_model(model: Any, value: Any) -> Any:
    """Put a value where a model is, and into its precision."""
    if not isinstance(value, torch.Tensor):
        return value
    # Weights that lie on disk are moved in when they are needed, and inputs with them.
    device = value.device if model.device.type == "meta" else model.device
    if value.is_floating_point():
        return value.to(device=device, dtype=model.dtype)
    return value.to(device=device)


def split_examples(batch: Batch) -> list[Batch]:
    """Split a batch into its examples, without the padding of the input.

    Raises ValueError if it is unclear what belongs to which example (of images, each may have
    several).
    """
    ids = batch.arguments.get("input_ids")
    singles = []
    for index in range(batch.size):
        sequence = batch.sequences.get("input")
        unpadded = None if sequence is None else sequence.unpadded[index]
        arguments = {}
        for name, value in batch.arguments.items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                arguments[name] = value
            elif ids is not None and value.shape == ids.shape and not name.startswith("decoder_"):
                row = value[index : index + 1]
                arguments[name] = row if unpadded is None else row[:, unpadded.to(row.device)]
            elif batch.size == 1:
                arguments[name] = value
            elif value.shape[0] == batch.size and (name != "pixel_values" or ids is None):
                arguments[name] = value[index : index + 1]
            else:
                raise ValueError(
                    f"inputs: it is unclear which part of {name}, {tuple(value.shape)}, belongs to "
                    f"which of the {batch.size} examples; encode them one at a time"
                )
        sequences = {
            name: TokenSequence(len(batch.tokens[name][index]), [None])
            if name == "input"
            else TokenSequence(sequence.length, [sequence.unpadded[index]])
            for name, sequence in batch.sequences.items()
        }
        tokens = {name: [each[index]] for name, each in batch.tokens.items()}
        singles.append(
            Batch(
                arguments,
                1,
                sequences,
                tokens,
                list(batch.notes),
                batch.produced[index : index + 1],
                processor=batch.processor,
            )
        )
    return singles


# Arguments with a number for each token of a sequence, and what padding is given there; ids get the
# model's own.
_OF_TOKENS = {
    "input": {"input_ids": None, "attention_mask": 0, "token_type_ids": 0},
    "decoder": {"decoder_input_ids": None, "decoder_attention_mask": 0},
}


def kind_of_example(batch: Batch, accepted: Collection[str]) -> tuple[str, ...] | None:
    """What examples that may run in one forward have in common; None where one runs by itself.

    `accepted` are the arguments that the model takes. An example is one text (and the text of its
    decoder): an image, a sound, or whatever is not a number for each token has no padding that
    could be taken off again.
    """
    if batch.size != 1 or "input" not in batch.sequences:
        return None
    rows = {name: batch.arguments.get(f"{name}_ids") for name in ("input", "decoder_input")}
    known = {name for names in _OF_TOKENS.values() for name in names}
    for name, value in batch.arguments.items():
        ids = rows["decoder_input" if name.startswith("decoder_") else "input"]
        if name not in known or not isinstance(value, torch.Tensor) or ids is None:
            return None
        if value.shape != ids.shape or value.is_floating_point():
            return None
    for name, sequence in batch.sequences.items():
        mask = "attention_mask" if name == "input" else "decoder_attention_mask"
        if sequence.unpadded != [None] or mask not in accepted:
            return None
    types = (f"{name} {batch.arguments[name].dtype}" for name in batch.arguments)
    return (*sorted(types), *sorted(batch.sequences))


def joined_examples(batches: Sequence[Batch], padding: int) -> Batch:
    """Join examples of one kind into a batch, padded behind with the id `padding`.

    What comes behind the tokens of a text changes neither their positions nor, in a causal model,
    anything that they see.
    """
    first = batches[0]
    arguments: dict[str, Any] = {}
    sequences = {}
    for name in first.sequences:
        lengths = [batch.sequences[name].length for batch in batches]
        longest = max(lengths)
        ids, mask = ("input_ids", "attention_mask")
        if name == "decoder":
            ids, mask = f"decoder_{ids}", f"decoder_{mask}"
        for argument, filler in _OF_TOKENS[name].items():
            if argument not in first.arguments and argument != mask:
                continue
            rows = [
                batch.arguments.get(argument, torch.ones_like(batch.arguments[ids]))
                for batch in batches
            ]
            value = padding if filler is None else filler
            joined = rows[0].new_full((len(rows), longest), value)
            for row, own in zip(joined, rows, strict=True):
                row[: own.shape[1]] = own[0]
            arguments[argument] = joined
        sequences[name] = TokenSequence(
            longest, [None if length == longest else torch.arange(length) for length in lengths]
        )
    return Batch(
        arguments,
        len(batches),
        sequences,
        {name: [batch.tokens[name][0] for batch in batches] for name in first.tokens},
        produced=[text for batch in batches for text in batch.produced or [None]]
        if any(batch.produced for batch in batches)
        else [],
        own_notes=[list(batch.notes) for batch in batches],
    )


def tensor_of(name: str, value: Any) -> torch.Tensor:
    """Make a tensor of what a tokenizer or processor returned under a name."""
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(value, np.ndarray | list | tuple | int | float):
        raise TypeError(
            f"inputs: {name} must be a tensor, an array or numbers; got {type(value).__name__}"
        )
    try:
        return torch.as_tensor(np.asarray(value))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"inputs: {name} cannot be made a tensor ({type(value).__name__} of rows of different "
            "lengths?); call the tokenizer with return_tensors='pt', padding=True"
        ) from error


def produced_text_of(labels: torch.Tensor, unpadded: torch.Tensor) -> ProducedText | None:
    """What a decoder is made to produce: each label by the token that is fed at its position.

    `labels` are int64, (labels,), `unpadded` bool of that shape. None where there is no label.
    """
    ids = tuple(labels[unpadded.to(labels.device)].tolist())
    return ProducedText("decoder", 0, ids) if ids else None


def unpadded_positions(
    ids: torch.Tensor, mask: torch.Tensor | None, argument: str
) -> list[torch.Tensor | None]:
    """Find the positions that are not padding: for each example int64, or None for all.

    `ids` and `mask` are (examples, tokens), 0 in the mask being padding; a mask with another number
    of axes says nothing of padding. `argument` is the mask's name, for errors.
    """
    if mask is None or mask.dim() != 2:
        return [None] * ids.shape[0]
    if mask.shape != ids.shape:
        raise ValueError(
            f"{argument} must be as large as the ids, {tuple(ids.shape)}; got {tuple(mask.shape)}"
        )
    unpadded: list[torch.Tensor | None] = []
    for index, row in enumerate(mask.cpu() != 0):
        if not bool(row.any()):
            raise ValueError(
                f"{argument}: example {index} is all padding; leave it out of the batch"
            )
        unpadded.append(None if bool(row.all()) else torch.nonzero(row).flatten())
    return unpadded


def pair_numbers(arguments: Mapping[str, torch.Tensor], index: int) -> list[int | None] | None:
    """Which text of a pair each token of an example belongs to; None where nothing says it."""
    types = arguments.get("token_type_ids")
    return None if types is None else [int(number) for number in types[index]]


def selected_tokens(tokens: Tokens, positions: torch.Tensor) -> Tokens:
    """Some of the tokens, by ascending positions, int64; they have no grids and predictions."""
    chosen = positions.tolist()
    return Tokens(
        text=tuple(tokens.text[position] for position in chosen),
        special=tuple(tokens.special[position] for position in chosen),
        sequence=tuple(tokens.sequence[position] for position in chosen),
        ids=None if tokens.ids is None else tuple(tokens.ids[position] for position in chosen),
        words=None
        if tokens.words is None
        else tuple(tokens.words[position] for position in chosen),
    )
