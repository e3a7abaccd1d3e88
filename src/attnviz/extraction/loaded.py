"""A loaded model: its tokenizer and processor, and facts about it, each of which is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.adapters import VirtualTokens, base_of, virtual_tokens
from attnviz.extraction.families import (
    IMAGES,
    NOT_TEXT,
    POSITION_TABLE,
    SOUNDS,
    Family,
    family_of,
    is_encoder_decoder,
)
from attnviz.extraction.hooks import parameter_names
from attnviz.extraction.preprocessors import saved_with


class TooManyTokensError(ValueError):
    """Error for a text with more tokens than the model has positions."""


@dataclass(frozen=True)
class Loaded:
    """Model with its tokenizer and processor, and facts about it, each of which is read once.

    Attributes
    ----------
    model : PreTrainedModel
        The model, ready to run. If an adapter of PEFT adds virtual tokens, `model` is PEFT's model,
        which contains the transformers model.
    tokenizer, processor : object or None
        The tokenizer and processor that the caller passed, or that an object passed by the caller
        (such as a pipeline) contains. None if there is none.
    target_tokenizer : PreTrainedTokenizerBase or None
        The tokenizer of the decoder, if the caller passed one besides that of the encoder.
    wrapper : object or None
        The object that the caller passed, if `model` is inside of it, such as a pipeline, a
        SentenceTransformer or a module of the caller. None if the caller passed the model itself.
    prepares : bool
        Whether `wrapper` prepares inputs for the model. False if the caller passed another
        tokenizer or processor than that of `wrapper`.
    method : callable or None
        The method of `wrapper` that reads inputs, if the caller passed this method.
    notes : tuple of str
        Notes for all records of the model, such as settings that could not be loaded.
    """

    model: PreTrainedModel
    tokenizer: Any
    processor: Any
    wrapper: Any = None
    prepares: bool = False
    method: Callable[[Any], Any] | None = None
    notes: tuple[str, ...] = ()
    target_tokenizer: Any = None

    @cached_property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has an encoder and a decoder."""
        return is_encoder_decoder(self.model.config)

    @cached_property
    def accepted(self) -> frozenset[str]:
        """Names of the arguments of the model's forward.

        If the model is an adapter with virtual tokens, they are those of the model inside of it.
        """
        return frozenset(parameter_names(base_of(self.model).forward))

    @cached_property
    def main_names(self) -> tuple[str, ...]:
        """Names of the arguments that are the model's main input."""
        name = getattr(self.model, "main_input_name", "input_ids")
        return (name,) if isinstance(name, str) else tuple(name)

    @cached_property
    def takes(self) -> dict[str, bool]:
        """Whether the model takes ``"texts"`` (as token ids), ``"images"`` and ``"sounds"``."""
        names = [*self.accepted, *self.main_names]
        return {
            "texts": "input_ids" in self.accepted,
            "images": any(name.startswith(IMAGES) for name in names),
            "sounds": any(name.startswith(SOUNDS) for name in names),
        }

    @cached_property
    def family(self) -> Family:
        """Rules for models of this architecture."""
        return family_of(self.model.config)

    @cached_property
    def virtual(self) -> VirtualTokens | None:
        """Virtual tokens (learned vectors before a text) of the model or its adapter, or None."""
        return virtual_tokens(self.model)

    @cached_property
    def shortens_logits(self) -> bool:
        """Whether the model can compute logits for the final positions only (``logits_to_keep``).

        This is True only for models that can generate, and whose code is in transformers. Some
        classifiers have the argument but fail if logits are missing. Code outside of transformers
        may accept a number but no slice as the argument.
        """
        module = str(getattr(base_of(self.model).forward, "__module__", ""))
        return (
            "logits_to_keep" in self.accepted
            and self.model.can_generate()
            and module.startswith("transformers.")
        )

    @cached_property
    def num_positions(self) -> dict[str, int | None]:
        """Number of tokens for which the model has position embeddings.

        The keys are ``"input"`` and, for an encoder-decoder model, ``"decoder"``. Positions of
        virtual tokens are not counted. A number is None if there is no table of position
        embeddings.
        """
        sides: dict[str, bool | None] = {"input": None}
        if self.is_encoder_decoder:
            sides = {"input": False, "decoder": True}
        numbers: dict[str, int | None] = {}
        for name, side in sides.items():
            table: Any = _position_table(self.model, side=side)
            # Subtract the first entries of a table if no token uses them: in BART because of an
            # offset, in RoBERTa because of the padding id.
            unused = int(getattr(table, "offset", 0))
            if type(table) is nn.Embedding and table.padding_idx is not None:
                unused += table.padding_idx + 1
            if self.virtual is not None and name == "input":
                unused += self.virtual.count
            numbers[name] = None if table is None else int(table.num_embeddings) - unused
        return numbers

    @cached_property
    def num_ids(self) -> dict[str, int | None]:
        """Number of token ids for which the model has embeddings, by token sequence.

        The keys are those of `num_positions`. A number is None if there is no table of embeddings.
        """
        numbers: dict[str, int | None] = {}
        for name in self.num_positions:
            try:
                part: Any = self.model.get_decoder() if name == "decoder" else self.model
                weight = getattr(part.get_input_embeddings(), "weight", None)
            except (NotImplementedError, AttributeError):
                weight = None
            numbers[name] = getattr(weight, "shape", (None,))[0]
        return numbers

    def find_tokenizer(self, *, required: bool = False) -> Any:
        """Return the tokenizer that the caller passed, or else the one saved with the weights.

        A saved tokenizer is read once per model object. Return None if no tokenizer is found. If
        `required` is True, query the hub for a tokenizer that is not on this machine, which takes
        time without a network, and raise ValueError instead of returning None.
        """
        tokenizer = self.tokenizer
        if tokenizer is None:
            tokenizer = saved_with(self.model, "tokenizer", from_hub=required)
        if tokenizer is None and required:
            source = getattr(self.model, "name_or_path", "")
            reason = f"none was found in {source!r}" if source else "the model has no name_or_path"
            raise ValueError(
                f"tokenizer: inputs contain text, and no tokenizer was found ({reason}). Pass "
                "tokenizer=, or pass ids as inputs."
            )
        return tokenizer

    def find_target_tokenizer(self, *, required: bool = False) -> Any:
        """Return the tokenizer of the text that the model produces, or None if there is none.

        It is the tokenizer of the decoder if the caller passed two tokenizers. It is None if the
        model consists of two models with different vocabularies, and the caller passed one
        tokenizer. In this case, raise ValueError if `required` is True.
        """
        if self.target_tokenizer is not None:
            return self.target_tokenizer
        tokenizer = self.find_tokenizer(required=required)
        sizes = [
            getattr(getattr(self.model.config, part, None), "vocab_size", None)
            for part in ("encoder", "decoder")
        ]
        if tokenizer is None or not all(sizes) or sizes[0] == sizes[1]:
            return tokenizer
        if required:
            raise ValueError(
                f"target: the decoder of {type(self.model).__name__} has another vocabulary than "
                f"its encoder ({sizes[1]:,} and {sizes[0]:,} tokens). Pass both tokenizers as "
                "tokenizer=(source, target)."
            )
        return None

    def find_processor(self, of: Literal["of both", "of images", "of sounds"]) -> Any:
        """Return the processor that the caller passed, or else the one saved with the weights.

        `of` selects the kind of saved processor: ``"of images"``, ``"of sounds"``, or ``"of both"``
        for texts with images or sounds. A saved processor is read once per model object. If it is
        not on this machine, the hub is queried. Return None if no processor is found.
        """
        if self.processor is not None:
            return self.processor
        return saved_with(self.model, of, from_hub=True)

    def refuse(
        self, kind: str, valid: str = "one of these, or the output of its tokenizer or processor"
    ) -> TypeError:
        """Return the error for inputs that the model does not take.

        `kind` describes the passed inputs, and `valid` the inputs to pass instead.
        """
        kinds = " and ".join(name for name, takes in self.takes.items() if takes)
        return TypeError(
            f"inputs: {type(self.model).__name__} takes {kinds or 'unknown inputs'}; got {kind}. "
            f"Pass {valid}."
        )


# Paths of the tables of position embeddings of a model, by `side`. None if there is no table.
_tables: WeakKeyDictionary[nn.Module, dict[bool | None, str | None]] = WeakKeyDictionary()


def _position_table(model: nn.Module, *, side: bool | None) -> nn.Module | None:
    """Return the table of position embeddings of a text, or None if the model has no such table.

    `side` selects the table of the decoder (True), of the encoder (False), or of a model without
    these parts (None). Tables of images and sounds do not count.
    """
    paths = _tables.setdefault(model, {})
    if side in paths and paths[side] is None:
        return None
    # An adapter or the caller may have replaced the table.
    with suppress(KeyError, AttributeError):
        table = model.get_submodule(paths[side] or "")
        if isinstance(table, nn.Embedding):
            return table
    path = paths[side] = next(_table_paths(model, side=side), None)
    return None if path is None else model.get_submodule(path)


def _table_paths(model: nn.Module, *, side: bool | None) -> Iterator[str]:
    for name, module in model.named_modules():
        parts = name.split(".")
        if not isinstance(module, nn.Embedding) or not POSITION_TABLE.match(parts[-1]):
            continue
        if any(NOT_TEXT.search(part) for part in parts):
            continue
        if side is None or any(part.endswith("decoder") for part in parts[:-1]) == side:
            yield name
