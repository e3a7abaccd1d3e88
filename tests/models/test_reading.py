"""Texts that are read together have the weights that the model gives each of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.corpus.reading import ReadText, read_records
from attnviz.corpus.texts import Texts

pytestmark = pytest.mark.models

TEXTS = [
    "The cat sat on the mat and looked at the dog.",
    "It was too tired.",
    "A date such as 3 May 2021.",
    "hello",
    "The animal didn't cross the street because it was too tired.",
    "user says hello",
    "the dog",
]
TARGETS = ["a dog", "it was too tired", "3 May", "cat", "the street", "hello user", "the cat sat"]
DECODERS = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss", "bloom"]

Make = Callable[..., Any]
Weights = dict[str, list[NDArray[np.float32]]]


class Forwards:
    """How many examples each forward of a model had."""

    def __init__(self, model: Any) -> None:
        self.sizes: list[int] = []
        self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        first = (*args, *(options.get(name) for name in ("input_ids", "pixel_values")))
        self.sizes.append(len(next(each for each in first if each is not None)))

    def __enter__(self) -> list[int]:
        return self.sizes

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


def read(model: Any, texts: Sequence[Any], **options: Any) -> list[ReadText]:
    return list(read_records(model, Texts(texts), range(len(texts)), **options))


def alone(kind: str, model: Any, tokenizer: Any, reference: Make, place: int) -> Weights:
    """The model's own eager weights of one text that runs by itself."""
    inputs = dict(tokenizer(TEXTS[place], return_tensors="pt"))
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    if kind == "gpt_oss":
        del inputs["attention_mask"]
    if kind in ("bart", "t5"):
        inputs["labels"] = tokenizer(text_target=TARGETS[place], return_tensors="pt")["input_ids"]
    found: Weights = reference(model, inputs)
    return found


@pytest.mark.parametrize("kind", ["bert", "albert", "roberta", *DECODERS, "bart", "t5"])
def test_texts_that_are_read_together_have_their_own_weights(
    kind: str,
    make_model: Make,
    reference: Make,
    largest_error: Make,
    request: pytest.FixtureRequest,
) -> None:
    name = {"t5": "piece", "bart": "piece"}.get(kind, "byte" if kind in DECODERS else "word")
    tokenizer = request.getfixturevalue(f"{name}_tokenizer")
    model = make_model(kind)
    target = TARGETS if kind in ("bart", "t5") else None
    with Forwards(model) as sizes:
        found = read(model, TEXTS, tokenizer=tokenizer, target=target, batch_size=6)
    # The first alone, the others together, and the shortest of them alone to compare.
    assert sizes == [1, 6, 1]
    assert [each.place for each in found] == list(range(7))
    for each in found:
        own = alone(kind, model, tokenizer, reference, each.place)
        assert largest_error(each.record, own) < 1e-4


@pytest.mark.parametrize(
    "implementation",
    ["eager", "sdpa", pytest.param("flex_attention", marks=pytest.mark.slow)],
)
def test_whatever_computes_attention(
    implementation: str,
    make_model: Make,
    byte_tokenizer: Any,
    reference: Make,
    largest_error: Make,
) -> None:
    model = make_model("llama", implementation)
    with Forwards(model) as sizes:
        found = read(model, TEXTS, tokenizer=byte_tokenizer, batch_size=3)
    assert sizes == [1, 3, 1, 3, 1]
    for each in found:
        own = alone("llama", model, byte_tokenizer, reference, each.place)
        assert largest_error(each.record, own) < 1e-4
