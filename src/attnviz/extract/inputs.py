"""From what a caller may give as inputs to batches that a model takes, with their tokens."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from attnviz.extract.collect import Side
from attnviz.extract.display import display_tokens
from attnviz.extract.limits import check_ids, check_length
from attnviz.extract.models import Loaded, find_processor, find_tokenizer
from attnviz.extract.modules import attention_modules
from attnviz.tokens import Tokens

__all__ = ["Batch", "Encoder", "examples_of"]

# What tokenizers return beside what models take.
_NOT_FOR_THE_MODEL = {
    "labels",
    "length",
    "num_truncated_tokens",
    "offset_mapping",
    "overflow_to_sample_mapping",
    "overflowing_tokens",
    "special_tokens_mask",
}
_KINDS = (
    "a text, a pair of texts (first, second), a list of texts, a list of chat messages, a "
    "tokenizer's or processor's own output, a tensor of ids, or an image where the model takes one"
)


@dataclass
class Batch:
    """What one forward takes.

    Attributes
    ----------
    arguments : dict
        The model's keyword arguments.
    size : int
        Number of examples.
    sides : dict of str to Side
        Lists of tokens with their padding: ``"input"`` and ``"decoder"``.
    tokens : dict of str to list of Tokens
        The same without padding, one entry an example.
    notes : list of str
        What a reader must know.
    """

    arguments: dict[str, Any]
    size: int
    sides: dict[str, Side] = field(default_factory=dict)
    tokens: dict[str, list[Tokens]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def examples_of(inputs: Any) -> tuple[list[Any], bool]:
    """Tell one example from a list of them.

    Parameters
    ----------
    inputs : object
        As the caller gave it.

    Returns
    -------
    examples : list
        What to run, one forward each.
    many : bool
        Whether the caller gave a list of examples.

    Raises
    ------
    ValueError
        If there is nothing in it.
    TypeError
        If it is a mixture or something unknown.
    """
    if inputs is None:
        raise ValueError(f"inputs: nothing was given; give {_KINDS}")
    if isinstance(inputs, tuple):
        if len(inputs) != 2 or not all(isinstance(part, str) for part in inputs):
            raise TypeError(
                f"inputs: a tuple is a pair of texts (first, second); got {len(inputs)} entries "
                f"({', '.join(type(part).__name__ for part in inputs[:3])}). For several texts "
                "give a list; for attentions use AttentionRecord.from_weights(attentions, tokens)"
            )
        return [inputs], False
    if not isinstance(inputs, list):
        return [inputs], False
    if not inputs:
        raise ValueError(f"inputs: the list is empty; give {_KINDS}")
    if all(_is_message(entry) for entry in inputs):
        return [inputs], False
    if all(isinstance(entry, int) and not isinstance(entry, bool) for entry in inputs):
        return [torch.tensor([inputs])], False
    kinds = {_kind(entry) for entry in inputs}
    if len(kinds) > 1 or None in kinds:
        names = ", ".join(sorted({type(entry).__name__ for entry in inputs}))
        raise TypeError(f"inputs: cannot read a list of {names}; give {_KINDS}")
    return list(inputs), True


def _is_message(entry: Any) -> bool:
    return isinstance(entry, Mapping) and "role" in entry


def _is_image(entry: Any) -> bool:
    return type(entry).__module__.partition(".")[0] == "PIL"


def _kind(entry: Any) -> str | None:
    """Name what an entry of a list is, so that mixtures are noticed."""
    if isinstance(entry, str):
        return "text"
    if isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(e, str) for e in entry):
        return "pair"
    if isinstance(entry, list) and entry and all(_is_message(message) for message in entry):
        return "chat"
    if _is_image(entry) or isinstance(entry, np.ndarray):
        return "image"
    if isinstance(entry, list) and entry and all(isinstance(number, int) for number in entry):
        return "ids"
    return None


class Encoder:
    """Encodes examples for one model.

    Parameters
    ----------
    loaded : Loaded
        The model with the tokenizer and processor that the caller gave.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._model: PreTrainedModel = loaded.model
        self._tokenizer: Any = loaded.tokenizer
        self._looked = loaded.tokenizer is not None
        self._accepted = inspect.signature(self._model.forward).parameters
        self.encoder_decoder = bool(getattr(self._model.config, "is_encoder_decoder", False))
        self.vision = getattr(self._model, "main_input_name", "") == "pixel_values"

    def encode(self, example: Any, target: Any = None, decoder_input_ids: Any = None) -> Batch:
        """Encode one example (or one batch that is encoded already).

        Parameters
        ----------
        example : object
            As `examples_of` gives it.
        target : str or list of str, optional
            Text that the model is made to produce.
        decoder_input_ids : Tensor or sequence of int, optional
            Ids that the decoder is given.

        Returns
        -------
        Batch

        Raises
        ------
        ValueError, TypeError
            With the argument's name, what was given and what would work.
        """
        self._check_target(example, target, decoder_input_ids)
        if isinstance(example, str | tuple):
            batch = self._encode_text(example)
        elif isinstance(example, list) and _kind(example) == "chat":
            batch = self._encode_chat(example, ends_open=target is not None)
        elif _is_message(example):
            batch = self._encode_chat([example], ends_open=target is not None)
        elif isinstance(example, Mapping):
            batch = self._encode_mapping(example)
        elif self.vision and not isinstance(example, list):
            batch = self._encode_image(example)
        else:
            batch = self._encode_ids(example)
        if self.encoder_decoder:
            self._add_decoder(batch, target, decoder_input_ids)
        elif target is not None:
            self._append(batch, target)
        for name, side in batch.sides.items():
            argument = "inputs" if name == "input" else "target"
            check_length(self._model, side.length, argument, decoder=name == "decoder")
        return batch

    def _check_target(self, example: Any, target: Any, decoder_input_ids: Any) -> None:
        kind = type(self._model).__name__
        if target is not None and decoder_input_ids is not None:
            raise ValueError("target and decoder_input_ids say the same thing; give one of them")
        if decoder_input_ids is not None and not self.encoder_decoder:
            raise ValueError(
                f"decoder_input_ids: {kind} has no decoder beside an encoder; "
                "give the text that it is to produce as target="
            )
        if target is not None and not self.encoder_decoder and not self._is_causal():
            raise ValueError(
                f"target: {kind} produces no text (its attention looks both ways); for a second "
                "text give inputs=(first, second)"
            )
        given = target is not None or decoder_input_ids is not None
        if isinstance(example, Mapping):
            given = given or "decoder_input_ids" in example or "labels" in example
        if self.encoder_decoder and not given:
            raise ValueError(
                f"target: {kind} has a decoder, and nothing says what it is to produce; give the "
                "text as target=, or ids as decoder_input_ids="
            )

    def _is_causal(self) -> bool:
        return any(
            bool(getattr(entry.module, "is_causal", False))
            for entry in attention_modules(self._model)
        )

    def tokenizer(self, *, needed: bool) -> Any:
        """Find the tokenizer, once.

        Parameters
        ----------
        needed : bool
            Whether text was given, so that none is an error.

        Returns
        -------
        PreTrainedTokenizerBase or None

        Raises
        ------
        ValueError
            If it is needed and there is none.
        """
        if not self._looked:
            self._tokenizer = find_tokenizer(self._loaded)
            self._looked = True
        if self._tokenizer is None and needed:
            source = getattr(self._model, "name_or_path", "")
            where = f"none lies beside {source!r}" if source else "the model doesn't say where from"
            raise ValueError(
                f"tokenizer: text was given, and no tokenizer was found ({where}); give it as "
                "tokenizer=, or give ids as inputs"
            )
        return self._tokenizer

    def _encode_text(self, text: str | tuple[str, str]) -> Batch:
        parts = (text,) if isinstance(text, str) else text
        for part, place in zip(parts, ("the text", "the second text"), strict=False):
            if not part:
                raise ValueError(f"inputs: {place} is empty; give at least one word")
        if self.vision:
            raise TypeError(
                f"inputs: {type(self._model).__name__} takes images, and a text was given; give an "
                "image, or a processor's output"
            )
        tokenizer = self.tokenizer(needed=True)
        return self._tokenized(tokenizer(*parts, return_tensors="pt"))

    def _encode_chat(self, messages: list[Any], *, ends_open: bool) -> Batch:
        tokenizer = self.tokenizer(needed=True)
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "inputs: chat messages were given, and the tokenizer has no chat template; set "
                "tokenizer.chat_template, or give the text"
            )
        # As ids at once: the template's text may hold the first token already, and encoding it
        # again would add another one.
        encoded = tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=ends_open,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        return self._tokenized(encoded)

    def _tokenized(self, encoded: Any) -> Batch:
        """Make a batch of a tokenizer's output, leaving out what this model doesn't take."""
        for name in list(encoded):
            if name not in ("input_ids", "attention_mask") and name not in self._accepted:
                del encoded[name]
        return self._encode_mapping(encoded)

    def _encode_mapping(self, given: Mapping[str, Any]) -> Batch:
        arguments = {name: _tensor(name, value) for name, value in given.items()}
        if not arguments:
            raise ValueError("inputs: the encoded batch is empty; give a tokenizer's output")
        labels = arguments.get("labels")
        for name in _NOT_FOR_THE_MODEL & arguments.keys():
            del arguments[name]
        main = next(
            (arguments[name] for name in self._main_names() if name in arguments),
            next(iter(arguments.values()), None),
        )
        if main is None or main.dim() == 0:
            raise ValueError(
                f"inputs: no model input among {', '.join(given)}; give a tokenizer's or "
                "processor's own output"
            )
        if main is arguments.get("input_ids") and main.dim() == 1:
            arguments = {
                name: value[None] if value.dim() == 1 else value
                for name, value in arguments.items()
            }
            main = arguments["input_ids"]
            labels = labels[None] if labels is not None and labels.dim() == 1 else labels
        batch = Batch(arguments, size=main.shape[0])
        encodings = getattr(given, "encodings", None)
        if "input_ids" in arguments:
            self._add_side(batch, "input", "inputs", encodings)
        if self.encoder_decoder:
            if labels is not None and "decoder_input_ids" not in arguments:
                self._shift(batch, labels)
            if "decoder_input_ids" in arguments:
                self._add_side(batch, "decoder", "decoder_input_ids", None)
        return batch

    def _main_names(self) -> tuple[str, ...]:
        return (getattr(self._model, "main_input_name", "input_ids"), "input_ids", "pixel_values")

    def _encode_ids(self, given: Any) -> Batch:
        if not isinstance(given, torch.Tensor | np.ndarray | list):
            raise TypeError(f"inputs: cannot read a {type(given).__name__}; give {_KINDS}")
        ids = torch.as_tensor(given)
        if ids.dtype == torch.bool or ids.is_floating_point() or ids.dim() not in (1, 2):
            raise TypeError(
                "inputs: ids must be whole numbers, (tokens,) or (examples, tokens); got "
                f"{ids.dtype} of shape {tuple(ids.shape)}"
            )
        return self._encode_mapping({"input_ids": ids if ids.dim() == 2 else ids[None]})

    def _encode_image(self, given: Any) -> Batch:
        if isinstance(given, torch.Tensor) and given.is_floating_point() and given.dim() in (3, 4):
            return self._encode_mapping(
                {"pixel_values": given if given.dim() == 4 else given[None]}
            )
        if not (_is_image(given) or isinstance(given, np.ndarray | torch.Tensor)):
            raise TypeError(
                f"inputs: {type(self._model).__name__} takes images, and a {type(given).__name__} "
                "was given; give an image (PIL, or an array), pixel values, or a processor's output"
            )
        processor = find_processor(self._loaded)
        if processor is None:
            raise ValueError(
                "processor: an image was given, and no image processor was found beside the "
                "model; give it as processor=, or give pixel values as inputs"
            )
        return self._encode_mapping(processor(images=given, return_tensors="pt"))

    def _add_side(
        self, batch: Batch, name: str, argument: str, encodings: Sequence[Any] | None
    ) -> None:
        """Note a list of tokens: which places are padding, and what is shown for the others."""
        prefix = "" if name == "input" else "decoder_"
        ids = batch.arguments[f"{prefix}input_ids"]
        if ids.dim() != 2:
            raise ValueError(
                f"{argument}: input_ids must be (examples, tokens); got {tuple(ids.shape)}"
            )
        check_ids(self._model, ids, argument)
        mask = batch.arguments.get(f"{prefix}attention_mask")
        kept = _kept(ids, mask, f"{prefix}attention_mask")
        tokenizer = self.tokenizer(needed=False)
        if tokenizer is None and not encodings:
            batch.notes.append("No tokenizer was given: tokens are shown as #id.")
        batch.sides[name] = Side(ids.shape[1], kept)
        batch.tokens[name] = []
        for index, places in enumerate(kept):
            tokens = display_tokens(
                ids[index].tolist(),
                tokenizer=tokenizer,
                encoding=encodings[index] if encodings else None,
                sequence=_sequence(batch.arguments, index) if name == "input" else None,
            )
            batch.tokens[name].append(tokens if places is None else _pick(tokens, places))

    def _add_decoder(self, batch: Batch, target: Any, decoder_input_ids: Any) -> None:
        if decoder_input_ids is not None:
            ids = torch.as_tensor(decoder_input_ids)
            ids = ids[None] if ids.dim() == 1 else ids
            if ids.is_floating_point() or ids.dim() != 2 or ids.shape[0] != batch.size:
                raise ValueError(
                    f"decoder_input_ids must be whole numbers ({batch.size}, tokens), a row an "
                    f"example; got {ids.dtype} of shape {tuple(ids.shape)}"
                )
            batch.arguments["decoder_input_ids"] = ids
        elif target is not None:
            texts = _target_texts(target, batch.size)
            tokenizer = self.tokenizer(needed=True)
            encoded = tokenizer(text_target=texts, return_tensors="pt", padding=len(texts) > 1)
            check_ids(self._model, encoded["input_ids"], "target")
            self._shift(batch, encoded["input_ids"])
            # The decoder is given one token before each of the target's: as many are padding.
            batch.arguments["decoder_attention_mask"] = encoded["attention_mask"]
        else:
            return
        self._add_side(
            batch, "decoder", "target" if target is not None else "decoder_input_ids", None
        )

    def _shift(self, batch: Batch, labels: torch.Tensor) -> None:
        """Make decoder inputs of what the decoder is to produce: one step later."""
        model: Any = self._model
        shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        if shift is not None:
            batch.arguments["decoder_input_ids"] = shift(labels=labels.to(model.device)).cpu()
            return
        generation = getattr(model, "generation_config", None)
        start = getattr(model.config, "decoder_start_token_id", None)
        if start is None:
            start = getattr(generation, "decoder_start_token_id", None)
        if start is None:
            raise ValueError(
                f"target: {type(model).__name__} doesn't say which token its decoder starts with "
                "(config.decoder_start_token_id); give ids as decoder_input_ids="
            )
        padding = getattr(model.config, "pad_token_id", None) or 0
        first = torch.full_like(labels[:, :1], start)
        shifted = torch.cat([first, labels[:, :-1]], dim=1)
        batch.arguments["decoder_input_ids"] = shifted.masked_fill(shifted == -100, padding)

    def _append(self, batch: Batch, target: Any) -> None:
        """Put the target behind the prompt: a decoder-only model produces it there."""
        (text,) = _target_texts(target, 1)
        if batch.size != 1 or batch.sides["input"].kept[0] is not None:
            raise ValueError(
                f"target: it goes behind one prompt without padding; got {batch.size} encoded "
                "examples. Give a list of texts and a list of targets"
            )
        tokenizer = self.tokenizer(needed=True)
        # By itself, as the model would produce it: joining the texts first could change the
        # prompt's last token.
        encoded = tokenizer(text, add_special_tokens=False, return_tensors="pt")
        added = encoded["input_ids"]
        check_ids(self._model, added, "target")
        length = added.shape[1]
        for name, value in list(batch.arguments.items()):
            if name == "input_ids":
                batch.arguments[name] = torch.cat([value.cpu(), added], dim=1)
            elif name == "attention_mask":
                batch.arguments[name] = torch.cat([value.cpu(), torch.ones_like(added)], dim=1)
            elif name == "token_type_ids":
                batch.arguments[name] = torch.cat([value, value[:, -1:].expand(1, length)], dim=1)
        prompt = batch.tokens["input"][0]
        answer = display_tokens(
            added[0].tolist(), tokenizer=tokenizer, sequence=[1] * added.shape[1]
        )
        batch.sides["input"] = Side(len(prompt) + len(answer), [None])
        batch.tokens["input"] = [_joined(prompt, answer)]
        batch.notes.append(f"The last {len(answer)} tokens are the target (the second text).")


def _tensor(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(np.asarray(value))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"inputs: {name} cannot be made a tensor ({type(value).__name__} of rows of different "
            "lengths?); call the tokenizer with return_tensors='pt', padding=True"
        ) from error


def _kept(ids: torch.Tensor, mask: torch.Tensor | None, argument: str) -> list[torch.Tensor | None]:
    if mask is None or mask.dim() != 2:
        return [None] * ids.shape[0]
    if mask.shape != ids.shape:
        raise ValueError(
            f"{argument} must be as large as the ids, {tuple(ids.shape)}; got {tuple(mask.shape)}"
        )
    kept: list[torch.Tensor | None] = []
    for index, row in enumerate(mask.cpu() != 0):
        if not bool(row.any()):
            raise ValueError(
                f"{argument}: example {index} is all padding; leave it out of the batch"
            )
        kept.append(None if bool(row.all()) else torch.nonzero(row).flatten())
    return kept


def _sequence(arguments: Mapping[str, torch.Tensor], index: int) -> list[int | None] | None:
    types = arguments.get("token_type_ids")
    return None if types is None else [int(number) for number in types[index]]


def _pick(tokens: Tokens, places: torch.Tensor) -> Tokens:
    chosen = places.tolist()
    return Tokens(
        text=tuple(tokens.text[place] for place in chosen),
        special=tuple(tokens.special[place] for place in chosen),
        sequence=tuple(tokens.sequence[place] for place in chosen),
        ids=None if tokens.ids is None else tuple(tokens.ids[place] for place in chosen),
    )


def _joined(first: Tokens, second: Tokens) -> Tokens:
    ids = None if first.ids is None or second.ids is None else first.ids + second.ids
    return Tokens(
        text=first.text + second.text,
        special=first.special + second.special,
        sequence=first.sequence + second.sequence,
        ids=ids,
    )


def _target_texts(target: Any, count: int) -> list[str]:
    texts = [target] if isinstance(target, str) else target
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"target must be a text, or a list of {count} texts; got {type(target).__name__}"
        )
    if len(texts) != count:
        raise ValueError(f"target must have a text an example, {count}; got {len(texts)}")
    if not all(texts):
        raise ValueError("target: the text is empty; give at least one word")
    return texts
