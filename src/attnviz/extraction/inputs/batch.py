"""Classes for the inputs of one forward, and functions that split, join and convert them.

An example is a text, pair of texts, image or sound that becomes one record. A batch has one or more
examples, which a model processes in one forward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from attnviz.extraction.tokens.reading import Reading
from attnviz.record.tokens import Tokens
from attnviz.utils.arrays import as_array, moved


@dataclass(frozen=True)
class TokenSequence:
    """Length and padding of the token ids that a model or its decoder gets.

    The ids are (examples, tokens).

    Attributes
    ----------
    length : int
        Number of positions in each row, including padding.
    unpadded : list of (Tensor or None)
        For each example, the positions that are not padding, int64, or None if no position of the
        example is padding.
    """

    length: int
    unpadded: list[torch.Tensor | None]


@dataclass(frozen=True)
class ProducedText:
    """Text that the model generated, or that it was forced to produce.

    Attributes
    ----------
    sequence : str
        Name of the token sequence that predicts the text: ``"input"`` or ``"decoder"``.
    first : int
        Index, not counting padding, of the token that predicts the first token of the text. The
        tokens after it predict the following tokens of the text.
    ids : tuple of int
        Vocabulary ids of the text.
    """

    sequence: str
    first: int
    ids: tuple[int, ...]


@dataclass
class Batch:
    """Inputs of one forward.

    Attributes
    ----------
    arguments : dict
        Keyword arguments for the model.
    size : int
        Number of examples.
    sequences : dict of str to TokenSequence
        Token sequences by name: ``"input"`` and ``"decoder"``. A sequence that the model does not
        get is missing.
    tokens : dict of str to list of Tokens
        Tokens of each sequence without padding, one entry per example.
    notes : list of str
        Notes for the records of all examples.
    produced : list of (ProducedText or None)
        For each example, the text that the model produces, or None. Empty if the model produces no
        text for any example.
    processor : object or None
        Processor that computed the pixel values of images, or the features of a sound.
    processor_options : dict
        Keyword arguments with which the user's own call used the processor.
    example_notes : list of list of str
        For each example, further notes that only its record gets. Empty if no example has any.
    readings : list of Reading
        Texts that tokenizers converted into ids of the batch.
    generation : dict
        Keyword arguments of `generate` that the user's own call passes besides the model's inputs,
        such as those of a pipeline.
    sound_end : float or None
        Time in seconds at which the sound ends, if the rest of the input is silence that the
        processor has added to the only sound.
    index : tuple of str or None
        Names of the steps of a time series, such as dates.
    place_images : callable or None
        Function that returns the sizes of the user's images, and the arguments of the model for
        images of places (`attnviz.extraction.tokens.image_boxes`).
    passages : object or None
        Passages of the user, as in `AttentionRecord.with_passages`.
    quotations : list of (str, str, str)
        Passages of a chat (`attnviz.extraction.inputs.passages.quote_chat`).
    """

    arguments: dict[str, Any]
    size: int
    sequences: dict[str, TokenSequence] = field(default_factory=dict)
    tokens: dict[str, list[Tokens]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    produced: list[ProducedText | None] = field(default_factory=list)
    processor: Any = None
    processor_options: dict[str, Any] = field(default_factory=dict)
    example_notes: list[list[str]] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    generation: dict[str, Any] = field(default_factory=dict)
    sound_end: float | None = None
    index: tuple[str, ...] | None = None
    place_images: Callable[[], tuple[list[tuple[int, int]], dict[str, Any]]] | None = None
    passages: Any = None
    quotations: list[tuple[str, str, str]] = field(default_factory=list)


def moved_to_model(model: Any, value: Any) -> Any:
    """Move a tensor to the model's device, and a float tensor also to the model's dtype.

    A mapping of masks is converted, too. Other values are returned unchanged.
    """
    if isinstance(value, dict):
        return {name: moved_to_model(model, item) for name, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    # If weights are offloaded to disk, the model's device is "meta". Then the library accelerate
    # moves the inputs to the right device, so do not move them here.
    device = model.device
    device = value.device if device.type == "meta" else device
    return moved(value, device, model.dtype if value.is_floating_point() else value.dtype)


def split_examples(batch: Batch) -> list[Batch]:
    """Split a batch into one batch per example.

    Padding is removed, except in the inputs of a decoder. Raise ValueError if it is unclear which
    part of a tensor belongs to which example. This is the case for the pixel values of several
    examples that each have a text and an image.
    """
    ids = batch.arguments.get("input_ids")
    singles = []
    for index in range(batch.size):
        sequence = batch.sequences.get("input")
        unpadded = None if sequence is None else sequence.unpadded[index]
        arguments: dict[str, Any] = {}
        for name, value in batch.arguments.items():
            if isinstance(value, dict):
                # A mask that all examples share has a first axis of size 1.
                arguments[name] = {
                    kind: mask if mask is None or len(mask) == 1 else mask[index : index + 1]
                    for kind, mask in value.items()
                }
            elif not isinstance(value, torch.Tensor) or value.dim() == 0:
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
                    f"inputs: it is unclear which part of {name}, {tuple(value.shape)}, "
                    f"belongs to which of the {batch.size} examples. Encode them one at a time."
                )
        sequences = {
            name: TokenSequence(len(batch.tokens[name][index]), [None])
            if name == "input"
            else TokenSequence(sequence.length, [sequence.unpadded[index]])
            for name, sequence in batch.sequences.items()
        }
        singles.append(
            replace(
                batch,
                arguments=arguments,
                size=1,
                sequences=sequences,
                tokens={name: [lists[index]] for name, lists in batch.tokens.items()},
                notes=list(batch.notes),
                produced=batch.produced[index : index + 1],
                example_notes=batch.example_notes[index : index + 1],
            )
        )
    return singles


# Arguments of the model with one number per token, by token sequence: first the ids, then the mask,
# then others. The value is the number for padding tokens, or None for the id of the padding token.
_OF_TOKENS = {
    "input": {"input_ids": None, "attention_mask": 0, "token_type_ids": 0},
    "decoder": {"decoder_input_ids": None, "decoder_attention_mask": 0},
}


def kind_of_example(batch: Batch, accepted: Collection[str]) -> tuple[str, ...] | None:
    """Return the kind of the example in `batch`, or None if it must run alone in a forward.

    Examples of the same kind can be joined and run in one forward (see `joined_examples`). The kind
    consists of the names and dtypes of the arguments. `accepted` has the names of the arguments
    that the model takes. An example must run alone in any of these cases:

    - It has no input ids.
    - It has padding.
    - It has other arguments than those in `_OF_TOKENS`, such as images.
    - The model takes no attention mask for one of the example's token sequences.

    Return None, too, if `batch` has several examples.
    """
    if batch.size != 1 or "input" not in batch.sequences:
        return None
    kind: list[str] = []
    for sequence_name, sequence in batch.sequences.items():
        _, mask, *_ = _OF_TOKENS[sequence_name]
        if sequence.unpadded != [None] or mask not in accepted:
            return None
        kind += [
            f"{name} {value.dtype}"
            for name, value in batch.arguments.items()
            if name in _OF_TOKENS[sequence_name] and value.shape == (1, sequence.length)
        ]
    return tuple(sorted(kind)) if len(kind) == len(batch.arguments) else None


def joined_examples(batches: Sequence[Batch], padding: int) -> Batch:
    """Join batches of one example, all of the same kind (see `kind_of_example`), into one batch.

    Texts are padded at the end with the id `padding`. Padding at the end does not change the
    positions of the tokens of a text. The joined batch always has an attention mask, so that no
    token of a text attends to padding.
    """
    first = batches[0]
    arguments: dict[str, Any] = {}
    sequences = {}
    for name in first.sequences:
        lengths = [batch.sequences[name].length for batch in batches]
        longest = max(lengths)
        ids, mask, *_ = _OF_TOKENS[name]
        for argument, filler in _OF_TOKENS[name].items():
            if argument not in first.arguments and argument != mask:
                continue
            rows = [
                batch.arguments.get(argument, torch.ones_like(batch.arguments[ids]))[0]
                for batch in batches
            ]
            arguments[argument] = pad_sequence(
                rows,
                batch_first=True,
                padding_value=padding if filler is None else filler,
                padding_side="right",
            )
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
        example_notes=[list(batch.notes) for batch in batches],
    )


def tensors_of(name: str, value: Any) -> Any:
    """Convert the value of a model's argument into a tensor, or into a mapping of tensors.

    Models with several kinds of layers also take a mapping of masks, such as
    ``{"full_attention": mask, "sliding_attention": None}``.
    """
    if name.endswith("mask") and isinstance(value, Mapping):
        return {
            kind: None if mask is None else tensor_of(f"{name}[{kind!r}]", mask)
            for kind, mask in value.items()
        }
    return tensor_of(name, value)


def tensor_of(name: str, value: Any) -> torch.Tensor:
    """Convert the value of a model's argument into a tensor.

    `name` is the name of the argument. If it is ``"input_ids"`` or ``"decoder_input_ids"``, the
    result is int32 or int64. Raise ValueError if `value` cannot be converted, and TypeError if ids
    are not integers.
    """
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(as_array(value))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"inputs: {name} ({type(value).__name__}) cannot be converted to a tensor. Call the "
            "tokenizer with return_tensors='pt', padding=True."
        ) from error
    if name not in ("input_ids", "decoder_input_ids"):
        return tensor
    if tensor.dtype == torch.bool or tensor.is_floating_point():
        raise TypeError(f"inputs: {name} must be integers; got {tensor.dtype}")
    return tensor if tensor.dtype in (torch.int32, torch.int64) else tensor.long()


def masks_pairs(arguments: Mapping[str, Any]) -> bool:
    """Whether the attention mask has entries for pairs of tokens: four axes, or a mask by kind."""
    mask = arguments.get("attention_mask")
    return isinstance(mask, dict) or (isinstance(mask, torch.Tensor) and mask.dim() > 2)


def check_can_append(arguments: Mapping[str, Any], argument: str) -> None:
    """Raise ValueError if tokens cannot be appended to a text, because of its attention mask."""
    if masks_pairs(arguments):
        raise ValueError(
            f"{argument}: the attention_mask of inputs has entries for pairs of tokens, so it does "
            "not fit a longer text. Pass a mask with one number per token."
        )


def unpadded_positions(ids: torch.Tensor, mask: object, argument: str) -> list[torch.Tensor | None]:
    """Return, for each example, the positions that are not padding: int64, ascending.

    The entry of an example without padding is None. `ids` and `mask` are (examples, tokens), and
    `mask` is 0 for padding. If `mask` is not a tensor with two axes, no position counts as padding.
    `argument` is the name of the argument with the mask, for errors. Raise ValueError if
    `mask` has two axes but not the shape of `ids`, or if an example is all padding.
    """
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2:
        return [None] * ids.shape[0]
    if mask.shape != ids.shape:
        raise ValueError(
            f"{argument} must have the shape of the ids, {tuple(ids.shape)}; got "
            f"{tuple(mask.shape)}"
        )
    unpadded: list[torch.Tensor | None] = []
    for index, row in enumerate(mask.cpu() != 0):
        if not bool(row.any()):
            raise ValueError(
                f"{argument}: example {index} is all padding. Remove it from the batch."
            )
        unpadded.append(None if bool(row.all()) else torch.nonzero(row).flatten())
    return unpadded
