"""Conversion of an example, such as a text, into a batch: the arguments of one forward."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from attnviz.extraction.families import CACHES, TOKENIZER_EXTRAS, has_codebooks
from attnviz.extraction.inputs.batch import (
    Batch,
    ProducedText,
    TokenSequence,
    tensors_of,
    unpadded_positions,
)
from attnviz.extraction.inputs.examples import KINDS, kind_of
from attnviz.extraction.inputs.generate import (
    Generated,
    GenerationSettings,
    keep_first_window,
    note_padding,
)
from attnviz.extraction.inputs.media import (
    as_picture,
    chat_processor,
    check_media,
    encode_chat,
    encode_media,
    has_media,
    is_sound,
    num_samples,
    sounds_in,
)
from attnviz.extraction.inputs.own_call import has_own_calls, notes_on_settings, own_call
from attnviz.extraction.inputs.passages import add_passages, passages_of, quote_chat
from attnviz.extraction.inputs.target import (
    add_labels,
    append_ids,
    append_target,
    check_target,
    default_decoder_ids,
    shift_labels,
    target_texts,
)
from attnviz.extraction.inputs.truncate import (
    Truncation,
    notes_on_cuts,
    read_truncation,
    window_notes,
)
from attnviz.extraction.loaded import Loaded, TooManyTokensError
from attnviz.extraction.models import name_of
from attnviz.extraction.options import RecordOptions
from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.frames import length_notes, silence_from
from attnviz.extraction.tokens.image_boxes import with_places
from attnviz.extraction.tokens.patches import grid_of
from attnviz.extraction.tokens.reading import Reading, watch_tokenizers
from attnviz.extraction.tokens.text import read_tokens
from attnviz.record.notes import Note
from attnviz.record.notes import kind_of as kind_of_note
from attnviz.record.tokens import selected_tokens
from attnviz.utils.arguments import whole_number
from attnviz.utils.cleanup import Cleanup

_OTHER_VOCABULARY_NOTE = (
    "The decoder has another vocabulary than the encoder, and one tokenizer was passed: tokens of "
    "the decoder are shown as #id. Pass tokenizer=(source, target)."
)


# Arguments of `generate` that determine the first tokens of a text.
_OF_START = {"decoder_start_token_id", "forced_bos_token_id", "language", "prompt_ids", "task"}


class _Answer(NamedTuple):
    """Text that the model will produce after an example.

    `is_expected` is whether there is such a text, so a chat ends with the model's turn (see
    `encode_chat`). `num_tokens` is the number of tokens for which a truncated text leaves room.
    """

    is_expected: bool
    num_tokens: int


class Encoder:
    """Encoder of examples for one model. It uses the model's tokenizer and processor.

    If the caller passed an object around the model, such as a pipeline, this object prepares the
    inputs (see `own_call`). `options` are arguments of `attnviz.extract`, of which `truncation`,
    `part`, `passages` and `name` are used. Without a name, records have the model's own name.
    `several` is whether the caller passed a list of examples.
    """

    def __init__(self, loaded: Loaded, options: RecordOptions, *, several: bool = False) -> None:
        self.loaded = loaded
        self._several = several
        part = options.get("part")
        self._part = None if part is None else whole_number("part", part, 0)
        self._passages = options.get("passages")
        self.title = options.get("name") or name_of(loaded.model)
        self._model: PreTrainedModel = loaded.model
        self._truncation = Truncation(loaded, read_truncation(options.get("truncation")))

    def encode(
        self,
        example: Any,
        target: Any = None,
        decoder_input_ids: Any = None,
        settings: GenerationSettings | None = None,
        *,
        number: int = 0,
    ) -> Batch:
        """Convert one example into a batch. `number` is its index in the caller's list of examples.

        The batch has one row, unless the example is already encoded and has several rows, such as
        the output of a tokenizer for several texts.

        `target` is the text that the model is forced to produce, or a list with a target for each
        row of the batch. `decoder_input_ids` are the ids for the decoder of the model. Each of
        these two arguments may be None. If `settings` is passed, the model will generate text from
        the example. If the prompt of a decoder-only model is truncated, it leaves room for the
        tokens of the target, or for the maximum number of new tokens (for one token if `settings`
        limit only the total length).
        """
        generating = settings is not None
        check_target(self.loaded, example, target, decoder_input_ids, generating=generating)
        added, num_new_tokens = None, 0
        if not self.loaded.is_encoder_decoder:
            if target is not None:
                added = self._ids_after_prompt(target)
                num_new_tokens = added.shape[1]
            elif settings is not None:
                num_new_tokens = settings.max_new_tokens or 1
        answer = _Answer(generating or target is not None, num_new_tokens)
        # With truncation=True, the target of a decoder is truncated whatever the inputs are.
        truncates_target = self.loaded.is_encoder_decoder and target is not None
        if not (truncates_target and self._truncation.limit is True):
            self._check_truncation(example)
        with Cleanup() as undo, undo:
            readings = watch_tokenizers(undo)
            batch = self._read(example, answer)
            batch.notes += self._notes_on_texts(batch, readings)
            if self.loaded.is_encoder_decoder:
                self._add_decoder(batch, target, decoder_input_ids, readings)
        # A view that follows a generation makes a record several times.
        batch.place_images = cache(partial(self._place_images, example))
        batch.notes += self.loaded.notes
        batch.readings += readings
        batch.passages = passages_of(self._passages, number)
        if batch.passages is None and kind_of(example) in ("chat", "message"):
            reader = batch.processor or self.loaded.find_tokenizer()
            batch.quotations = quote_chat(
                reader, example if isinstance(example, list) else [example]
            )
        for name in batch.sequences:
            self._add_tokens(batch, name)
        if added is not None:
            append_target(self.loaded, batch, added)
        if settings is not None:
            note_padding(self.loaded, batch, settings.for_batch(batch))
        for name, sequence in batch.sequences.items():
            argument = "inputs" if name == "input" else "target"
            if name == "decoder" and decoder_input_ids is not None:
                argument = "decoder_input_ids"
            self._check_length(name, sequence.length, argument)
        return batch

    def _place_images(self, example: Any) -> tuple[list[tuple[int, int]], dict[str, Any]]:
        """Return the sizes of an example's images, and the arguments for images of places."""
        example = as_picture(self.loaded, example)
        # A user's own class would run the model on the images of places.
        if has_own_calls(self.loaded.wrapper) or _is_encoded(example, self.loaded.accepted):
            return [], {}
        sizes, placed = with_places(example)
        answer = _Answer(is_expected=False, num_tokens=0)
        return sizes, self._read(placed, answer).arguments if sizes else {}

    def _check_length(self, name: str, length: int, argument: str) -> None:
        """Raise TooManyTokensError if the sequence `name` has more tokens than positions.

        Padding counts, too. `argument` is the name of the caller's argument, for the error.
        """
        bound = self.loaded.num_positions[name]
        if bound is not None and length > bound:
            remedy = (
                "Shorten the text, pass truncation=True, or pass a tokenizer's output with "
                f"truncation=True, max_length={bound}."
            )
            if argument == "decoder_input_ids":
                remedy = "Pass fewer ids."
            raise TooManyTokensError(
                f"{argument}: {length} tokens are too many. {type(self._model).__name__} has "
                f"{bound} positions. {remedy}"
            )

    def _check_ids(self, ids: torch.Tensor, argument: str, *, decoder: bool = False) -> None:
        """Raise ValueError if `ids` is empty, or if the model has no embedding for one of the ids.

        A model without token embeddings accepts all ids. `argument` is the name of the caller's
        argument with the ids, for the error. `decoder` is whether the decoder of an encoder-decoder
        model gets the ids. It may have another vocabulary than the encoder.
        """
        if ids.numel() == 0:
            raise ValueError(f"{argument} contains no tokens. Pass some text.")
        num_ids = self.loaded.num_ids["decoder" if decoder else "input"]
        lowest, highest = torch.stack(torch.aminmax(ids)).tolist()
        if num_ids is not None and (highest >= num_ids or lowest < 0):
            worst = highest if highest >= num_ids else lowest
            raise ValueError(
                f"{argument}: token id {worst} is out of range. {type(self._model).__name__} has "
                f"the ids 0 to {num_ids - 1}{' in its decoder' * decoder}, so the tokenizer "
                "belongs to another model. Pass the tokenizer of this model as tokenizer="
                f"{', or (source, target) if its decoder has its own' * decoder}."
            )

    def _notes_on_texts(self, batch: Batch, readings: Sequence[Reading]) -> list[str]:
        """Return notes on texts of which the model gets a part, or gets them in another way."""
        if not readings or "input" not in batch.sequences:
            return []
        notes = notes_on_cuts(readings, batch.arguments["input_ids"].tolist())
        if (
            self._several
            and any(map(_pads_before, readings))
            and self.loaded.num_positions["input"]
        ):
            notes.append(
                "The text was read alone. Beside longer texts, "
                f"{type(self.loaded.wrapper).__name__} puts padding before it, which may change "
                "its weights, because the model has a table of positions."
            )
        return notes

    def _check_truncation(self, example: Any) -> None:
        if self._truncation and kind_of(example) not in ("text", "pair", "message", "chat"):
            raise TypeError(
                f"truncation: inputs is {type(example).__name__} and not a text. Remove "
                "truncation=, or pass the text (a tokenizer cuts by truncation=True, "
                "max_length=...)."
            )

    def _read(self, example: Any, answer: _Answer) -> Batch:
        """Return the batch that the caller's object around the model prepares, if there is one.

        If the object cannot prepare the example, the batch is
        that of `_encode`, and a note says which settings of the object were not applied.
        """
        if kind_of(example) in ("text", "pair"):
            _check_not_empty(example)
        example = as_picture(self.loaded, example)
        is_encoded = _is_encoded(example, self.loaded.accepted)
        call, notes = own_call(self.loaded, None if is_encoded else example, self._part)
        if call is not None:
            batch = self._encode_mapping(call.arguments)
            if self._fits(batch, answer.num_tokens):
                batch.generation = call.generation or {}
                batch.processor_options = call.image_options
                batch.notes += notes or self._length_notes(example, batch, self.loaded.processor)
                return batch
            notes = notes_on_settings(self.loaded, "truncation= was passed")
        try:
            batch = self._encode(example, answer)
        except (TypeError, ValueError) as error:
            for note in notes:
                error.add_note(note)
            raise
        batch.notes += notes + self._length_notes(example, batch, batch.processor)
        return batch

    def _length_notes(self, example: Any, batch: Batch, processor: Any) -> list[str]:
        """Return notes on sounds in an example of which the model gets more or less.

        Store in `batch` when a sound without a text ends.
        """
        sounds = sounds_in(example)
        if len(sounds) == 1 and sounds[0] is example:
            samples = num_samples(example, processor)
            batch.sound_end = silence_from(samples, batch.arguments, self._model.config, processor)
        return [
            note
            if len(sounds) == 1
            else Note(note.replace("The sound", f"Sound {number}"), kind_of_note(note))
            for number, sound in enumerate(sounds, 1)
            for note in length_notes(
                num_samples(sound, processor),
                batch.arguments,
                self._model.config,
                processor,
                alone=sound is example,
            )
        ]

    def _fits(self, batch: Batch, num_new_tokens: int) -> bool:
        """Whether a batch of the caller's object satisfies the argument `truncation`."""
        limit = self._truncation.max_tokens(
            self.loaded.tokenizer, decoder=False, num_new_tokens=num_new_tokens
        )
        return (
            limit is None
            or "input" not in batch.sequences
            or batch.sequences["input"].length <= limit
        )

    def _encode(self, example: Any, answer: _Answer) -> Batch:
        """Encode an example according to its type, without the text that the model will produce."""
        kind = kind_of(example)
        if kind in ("text", "pair"):
            return self._encode_text(example, answer)
        if kind in ("chat", "message"):
            return self._encode_chat(example if kind == "chat" else [example], answer)
        processed = encode_media(self.loaded, example, expects_answer=answer.is_expected)
        if processed is not None:
            return self._encode_mapping(*processed)
        if isinstance(example, Mapping):
            batch = self._encode_mapping(example)
            batch.example_notes = window_notes(example, batch.size)
            return batch
        if isinstance(example, torch.Tensor | np.ndarray | list):
            return self._encode_mapping({"input_ids": example})
        raise TypeError(
            f"inputs: {type(example).__name__} cannot be read. Pass {KINDS}. To show attentions, "
            "use AttentionRecord.from_weights(attentions, tokens)."
        )

    def add_generated(self, batch: Batch, generated: Generated, method: str) -> None:
        """Add a generated text to a batch of one example, with a note.

        `method` describes the generation for the note, such as "greedily".
        """
        keep_first_window(self._model, batch)
        added = generated.ids[generated.prefix :]
        if self.loaded.is_encoder_decoder:
            # The decoder predicts the last token but does not read it, so its input has all ids
            # except the last one.
            batch.arguments["decoder_input_ids"] = generated.ids[None, :-1]
            batch.arguments.pop("decoder_attention_mask", None)
            self._add_sequence(batch, "decoder", "generate")
            self._add_tokens(batch, "decoder")
            batch.produced = [ProducedText("decoder", generated.prefix - 1, tuple(added.tolist()))]
            count = "1 token" if len(added) == 1 else f"{len(added)} tokens"
            note = f"The decoder's text, {count}, was generated {method}."
        else:
            self._replace_prompt(batch, generated.ids[None, : generated.prefix])
            append_ids(self.loaded, batch, added[None])
            subject = "token was" if len(added) == 1 else f"{len(added)} tokens were"
            note = f"The last {subject} generated {method}."
        batch.notes.append(note)

    def _replace_prompt(self, batch: Batch, ids: torch.Tensor) -> None:
        """Set the ids of a prompt to `ids`, (1, tokens), with which the model generated."""
        passed = batch.arguments.get("input_ids")
        if passed is not None and torch.equal(passed.cpu(), ids):
            return
        if passed is not None:
            batch.notes.append(
                "The model's generate method changed the prompt. The record has the changed prompt."
            )
            # Other arguments with one number per token do not fit another number of tokens.
            batch.arguments = {
                name: value
                for name, value in batch.arguments.items()
                if getattr(value, "shape", None) != passed.shape or passed.shape == ids.shape
            }
        batch.arguments["input_ids"] = ids
        self._add_sequence(batch, "input", "generate")
        self._add_tokens(batch, "input")

    def _encode_text(self, text: str | tuple[str, str], answer: _Answer) -> Batch:
        parts = (text,) if isinstance(text, str) else text
        takes = self.loaded.takes
        if not takes["texts"] and any(takes.values()):
            raise self.loaded.refuse("a text")
        tokenizer = self.loaded.find_tokenizer(required=True)
        options = self._truncation.options(tokenizer, "inputs", num_new_tokens=answer.num_tokens)
        return self._batch_of_text(call_reader(tokenizer, *parts, return_tensors="pt", **options))

    def _encode_chat(self, messages: list[Any], answer: _Answer) -> Batch:
        expects_answer = answer.is_expected
        if has_media(messages):
            processor = chat_processor(self.loaded)
            encoded = encode_chat(processor, messages, expects_answer=expects_answer)
            return self._encode_mapping(encoded, processor)
        tokenizer = self.loaded.find_tokenizer(required=True)
        encode = partial(encode_chat, tokenizer, messages, expects_answer=expects_answer)
        cut = self._truncation.options(tokenizer, "inputs", num_new_tokens=answer.num_tokens)
        batch = self._batch_of_text(encode(**cut))
        if cut and not getattr(tokenizer, "chat_template", None):
            # mistral-common writes no text that could be observed.
            ids = tuple(encode()["input_ids"][0].tolist())
            rows = batch.arguments["input_ids"].tolist()
            batch.notes += notes_on_cuts([Reading(tokenizer, (), ids, None, {})], rows)
        return batch

    def _batch_of_text(self, encoded: Mapping[str, Any]) -> Batch:
        """Return a batch of one text, one pair of texts, or one chat without images or sounds.

        The model gets only those results of the tokenizer that it takes, but always the ids and the
        attention mask.
        """
        taken = {"input_ids", "attention_mask", *self.loaded.accepted}
        return self._encode_mapping(
            {name: value for name, value in encoded.items() if name in taken}
        )

    def _encode_mapping(self, mapping: Mapping[str, Any], processor: Any = None) -> Batch:
        arguments: dict[str, Any] = {
            # Settings such as `interpolate_pos_encoding` stay as they are.
            name: value if isinstance(value, bool | str) else tensors_of(name, value)
            for name, value in mapping.items()
            if not _is_unused_cache(name, value)
        }
        labels = arguments.get("labels")
        for name in TOKENIZER_EXTRAS & arguments.keys():
            del arguments[name]
        names = (*self.loaded.main_names, "input_ids", "pixel_values")
        main: Any = next(
            (arguments[name] for name in names if name in arguments),
            next(iter(arguments.values()), None),
        )
        if not isinstance(main, torch.Tensor) or main.dim() == 0:
            raise ValueError(
                f"inputs: none of the names {list(mapping)} is a model input. Pass the output of a "
                "tokenizer or processor."
            )
        if main is arguments.get("input_ids", ()) and main.dim() == 1:
            # The numbers of TAPAS's `token_type_ids` have another axis.
            arguments = {
                name: value[None]
                if isinstance(value, torch.Tensor)
                and (value.dim() == 1 or (name, value.shape[:1]) == ("token_type_ids", main.shape))
                else value
                for name, value in arguments.items()
            }
            main = arguments["input_ids"]
            labels = labels[None] if labels is not None and labels.dim() == 1 else labels
        check_media(arguments)
        # Some models get the patches of all images in one tensor without an axis of examples, and
        # the numbers of patches of each image in another argument.
        in_a_row = grid_of(arguments) is not None
        # Features of a sound have no axis of examples if they have only two axes.
        examples = arguments.get("input_ids", main)
        joint = in_a_row or (main is arguments.get("input_features", ()) and main.dim() == 2)
        batch = Batch(
            arguments,
            # A text may have several images.
            size=1 if joint and "input_ids" not in arguments else examples.shape[0],
            processor=processor,
        )
        if in_a_row and batch.size > 1:
            raise ValueError(
                f"inputs: the patches of all images of {batch.size} examples are in one row, "
                "and it is unclear which patches belong to which example. Encode one example "
                "at a time."
            )
        if "input_ids" in arguments:
            self._add_sequence(batch, "input", "inputs")
            # The caller may have called a fast tokenizer, whose result has the places of tokens.
            rows = arguments["input_ids"].tolist()
            batch.readings += [
                Reading(None, (), tuple(row), encoding, {})
                for row, encoding in zip(
                    rows, getattr(mapping, "encodings", None) or (), strict=False
                )
            ]
        if self.loaded.is_encoder_decoder:
            if labels is not None and "decoder_input_ids" not in arguments:
                add_labels(self._model, batch, labels, labels != -100)
            if "decoder_input_ids" in arguments:
                self._add_sequence(batch, "decoder", "decoder_input_ids")
        return batch

    def _ids_after_prompt(self, target: Any) -> torch.Tensor:
        """Return the ids of a target, (1, tokens), for a decoder-only model.

        The model gets these ids after the prompt. The target is encoded separately, because
        encoding prompt and target as one text could change the last token of the prompt.
        """
        [text] = target_texts(target, 1)
        tokenizer = self.loaded.find_tokenizer(required=True)
        encoded = call_reader(tokenizer, text, add_special_tokens=False, return_tensors="pt")
        ids: torch.Tensor = encoded["input_ids"]
        self._check_ids(ids, "target")
        return ids

    def _add_sequence(self, batch: Batch, name: str, argument: str) -> None:
        """Add the token sequence `name` (``"input"`` or ``"decoder"``) to a batch.

        `argument` is the name of the caller's argument with the text, for errors. In models that
        read the codes of an audio codec, a token may have one id for each codebook. Then the
        sequence is not added, and a note says that tokens are shown by their position.
        """
        prefix = "" if name == "input" else "decoder_"
        ids = batch.arguments[f"{prefix}input_ids"]
        has_several_ids = ids.dim() == 3 or ids.shape[0] != batch.size
        if has_several_ids and has_codebooks(self._model.config):
            # A token has one id per codebook, on a third axis or in several rows of the batch.
            batch.notes.append("A token has several ids: tokens are shown by their position.")
            return
        if ids.dim() != 2:
            raise ValueError(
                f"{argument}: input_ids must be (examples, tokens); got {tuple(ids.shape)}"
            )
        self._check_ids(ids, argument, decoder=name == "decoder")
        mask = batch.arguments.get(f"{prefix}attention_mask")
        unpadded = unpadded_positions(ids, mask, f"{prefix}attention_mask")
        batch.sequences[name] = TokenSequence(ids.shape[1], unpadded)

    def _add_tokens(self, batch: Batch, name: str) -> None:
        """Add the tokens of the sequence `name` to a batch."""
        ids = batch.arguments["input_ids" if name == "input" else "decoder_input_ids"]
        is_target = name == "decoder"
        own_tokenizer = self.loaded.find_tokenizer()
        tokenizer = self.loaded.find_target_tokenizer() if is_target else own_tokenizer
        readings = batch.readings
        if is_target and tokenizer is not own_tokenizer:
            readings = [one for one in readings if one.tokenizer is tokenizer]
        # The number is 0 for tokens of the first text of a pair, and 1 for those of the second.
        texts = batch.arguments.get("token_type_ids") if name == "input" else None
        if texts is not None and texts.dim() == 3:
            # TAPAS has several numbers per token. The first is 0 for the question, 1 for the table.
            texts = texts[..., 0]
        batch.tokens[name] = []
        for index, positions in enumerate(batch.sequences[name].unpadded):
            row = ids[index].tolist()
            tokens, notes = read_tokens(
                row,
                tokenizer=tokenizer,
                sequence=None if texts is None else texts[index].tolist(),
                readings=readings,
                target=is_target,
            )
            if tokenizer is None and own_tokenizer is not None:
                notes = [_OTHER_VOCABULARY_NOTE]
            tokens = tokens if positions is None else selected_tokens(tokens, positions.tolist())
            if not is_target:
                tokens, more = add_passages(batch, index, tokens, self._model.config)
                notes = notes + more
            if len(ids) > 1 and tokenizer is not None:
                batch.example_notes = batch.example_notes or [[] for _ in ids]
                batch.example_notes[index] += notes
            else:
                batch.notes += [note for note in notes if note not in batch.notes]
            batch.tokens[name].append(tokens)

    def _add_decoder(
        self, batch: Batch, target: Any, decoder_input_ids: Any, readings: Sequence[Reading]
    ) -> None:
        if decoder_input_ids is not None:
            ids = torch.as_tensor(decoder_input_ids)
            ids = ids[None] if ids.dim() == 1 else ids
            if ids.is_floating_point() or ids.dim() != 2 or ids.shape[0] != batch.size:
                raise ValueError(
                    f"decoder_input_ids must be integers, ({batch.size}, tokens), one row per "
                    f"example; got {ids.dtype} of shape {tuple(ids.shape)}"
                )
            batch.arguments["decoder_input_ids"] = ids
        elif target is not None:
            texts = target_texts(target, batch.size)
            unused = sorted(_OF_START & batch.generation.keys())
            if unused:
                batch.notes.append(
                    f"The target starts as its tokenizer writes it: {', '.join(unused)} of "
                    f"{type(self.loaded.wrapper).__name__} apply only to generated texts."
                )
            tokenizer = self.loaded.find_target_tokenizer(required=True)
            encoded = call_reader(
                tokenizer,
                text_target=texts,
                return_tensors="pt",
                padding=len(texts) > 1,
                padding_side="right",
                **self._truncation.options(tokenizer, "target", decoder=True),
            )
            of_targets = [reading for reading in readings if reading.target]
            batch.notes += notes_on_cuts(of_targets, encoded["input_ids"].tolist(), "target")
            self._check_ids(encoded["input_ids"], "target", decoder=True)
            labels, mask = encoded["input_ids"], encoded["attention_mask"]
            if bool((shift_labels(self._model, labels)[:, 0] == labels[:, 0]).all()):
                # The tokenizer has already added the start token, as that of Whisper does.
                labels, mask = labels[:, 1:], mask[:, 1:]
            batch.arguments.pop("decoder_attention_mask", None)
            add_labels(self._model, batch, labels, mask != 0)
        elif (
            "input_ids" in batch.arguments
            and "decoder_input_ids" in self.loaded.accepted
            and "decoder_input_ids" not in batch.arguments
            and not self._model.can_generate()
        ):
            # An encoder-decoder model that cannot generate, such as a classifier, computes the ids
            # of its decoder from those of its encoder.
            batch.arguments["decoder_input_ids"] = default_decoder_ids(self._model, batch.arguments)
            batch.notes.append("The decoder's ids are those that this class makes by default.")
        else:
            return
        argument = "target" if target is not None else "decoder_input_ids"
        self._add_sequence(batch, "decoder", argument)


def _is_encoded(example: Any, accepted: Collection[str]) -> bool:
    """Whether an example has arguments of the model, such as the output of a tokenizer or ids."""
    if isinstance(example, Mapping):
        return any(name in accepted for name in example)
    is_array = isinstance(example, np.ndarray | torch.Tensor)
    return kind_of(example) == "ids" or (is_array and not is_sound(example))


def _pads_before(reading: Reading) -> bool:
    """Whether a tokenizer was called so that it pads shorter texts of a list on the left."""
    options = reading.options
    side = options.get("padding_side") or reading.tokenizer.padding_side
    return side == "left" and options.get("padding") in (True, "longest")


def _check_not_empty(text: str | tuple[str, str]) -> None:
    parts = (text,) if isinstance(text, str) else text
    for part, label in zip(parts, ("the text", "the second text"), strict=False):
        if not part:
            raise ValueError(f"inputs: {label} is empty. Pass at least one word.")


def _is_unused_cache(name: str, value: Any) -> bool:
    """Whether an argument is for results of an earlier forward, and has no value.

    Such results are a cache of earlier tokens, or the outputs of the encoder. Raise ValueError if
    such an argument has a value, because the record would not contain the attention of the earlier
    forward.
    """
    if name not in (*CACHES, "encoder_outputs"):
        return False
    if value is not None:
        raise ValueError(
            f"inputs: {name} is a result of an earlier forward, whose attention the record would "
            "not contain. Remove it and pass the whole text, or the inputs of the encoder."
        )
    return True
