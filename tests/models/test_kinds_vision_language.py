"""Models of images and text: the tokens of a text that are patches of an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from attnviz import AttentionRecord, extract
from models.image_models import MODELS, chat, mixing_nothing
from models.tiny import assert_own, changed_queries, picture, reference, with_patch

TEXT = "The cat sat"
# Height and width of an image that the processor does not resize, pixels per side of a patch, and
# patches per side of the block that becomes one token.
SIZES: dict[str, tuple[tuple[int, int], int, int]] = {
    "llava": ((32, 32), 8, 1),
    "gemma 3": ((32, 32), 8, 2),
    "qwen 2": ((56, 84), 14, 2),
    # Three rows and four columns of tokens, in windows of two by two.
    "qwen 2.5": ((84, 112), 14, 2),
}


@pytest.fixture(scope="module")
def model_and_processor(byte_tokenizer: Any) -> Callable[[str], tuple[Any, Any]]:
    """Return a function that returns the model and processor of a kind. Each is made once."""
    models: dict[str, tuple[Any, Any]] = {}

    def make(kind: str) -> tuple[Any, Any]:
        if kind not in models:
            models[kind] = MODELS[kind](byte_tokenizer)
        return models[kind]

    return make


def encoded(processor: Any, *parts: Any) -> dict[str, Any]:
    """Return the inputs that the processor makes of a message."""
    return dict(
        processor.apply_chat_template(
            chat(*parts), tokenize=True, return_dict=True, return_tensors="pt"
        )
    )


@pytest.mark.parametrize("kind", SIZES)
def test_names_grids_and_the_picture(
    kind: str, model_and_processor: Callable[[str], tuple[Any, Any]]
) -> None:
    (height, width), patch, block = SIZES[kind]
    model, processor = model_and_processor(kind)
    image = picture(height, width)
    record = extract(model, (image, TEXT), processor=processor)
    rows, columns = height // patch, width // patch
    for name, size in (("self", block), ("vision", 1)):
        tokens = record.stacks[name].query_tokens
        (grid,) = tokens.grids
        assert (grid.image, grid.rows, grid.columns) == (0, rows // size, columns // size)
        named = tokens.text[grid.start : grid.stop]
        assert named == tuple(f"{r},{c}" for r in range(grid.rows) for c in range(grid.columns))
        assert not any(tokens.special[grid.start : grid.stop])
    # The text around the patches is unchanged.
    tokens = record.stacks["self"].query_tokens
    (grid,) = tokens.grids
    assert "".join(tokens.text[grid.stop :]).endswith("The·cat·sat</s>")
    assert len(record.images) == 1
    assert np.abs(record.images[0].astype(int) - image).max() <= 1
    assert not record.notes


@pytest.mark.parametrize("kind", SIZES)
def test_a_patch_of_other_pixels_is_the_token_of_its_name(
    kind: str, model_and_processor: Callable[[str], tuple[Any, Any]]
) -> None:
    """Changed pixels affect one token in the first layer of the tower.

    If the tower does not mix patches, they affect also only one token of the text.
    """
    (height, width), patch, block = SIZES[kind]
    model, processor = model_and_processor(kind)
    alone = mixing_nothing(model)
    image = picture(height, width)
    record = extract(model, (image, TEXT), processor=processor)
    first = {name: record.stacks[name].query_tokens.grids[0].start for name in ("vision", "self")}
    rows, columns = height // patch, width // patch
    for row, column in [(0, 0), (1, 2), (rows - 1, 0), (2, columns - 1), (rows - 1, columns - 1)]:
        other = with_patch(image, (patch * row, patch * column), patch)
        pair = ((image, TEXT), (other, TEXT))
        token = first["vision"] + row * columns + column
        assert changed_queries(model, processor, pair, "vision", 0) == {token}
        token = first["self"] + row // block * (columns // block) + column // block
        assert changed_queries(alone, processor, pair, "self", 0) == {token}
        if kind == "qwen 2.5":
            # The first layer attends in windows, so the second layer shows the whole window.
            second = changed_queries(model, processor, pair, "vision", 1)
            assert {divmod(token, columns) for token in second} == {
                (r, c)
                for r in range(rows)
                for c in range(columns)
                if (r // 4, c // 4) == (row // 4, column // 4)
            }


@pytest.mark.parametrize("layers", [[0], [1, 2]])
def test_windows_that_run_one_by_one_are_kept_together(
    layers: list[int], model_and_processor: Callable[[str], tuple[Any, Any]]
) -> None:
    """The layer over all patches runs in one call, those over windows in several."""
    model, processor = model_and_processor("qwen 2.5")
    inputs = (picture(*SIZES["qwen 2.5"][0]), TEXT)
    whole = extract(model, inputs, processor=processor)
    record = extract(model, inputs, processor=processor, layers=layers)
    for name, stack in record.stacks.items():
        expected = whole.stacks[name]
        assert stack.layers == tuple(layer for layer in expected.layers if layer in layers)
        for layer in stack.layers:
            difference = stack.weights(layer=layer) - expected.weights(layer=layer)
            assert np.abs(difference).max() < 1e-6
    assert list(record.stacks) == ["self", "vision"]


def same(one: AttentionRecord, other: AttentionRecord) -> bool:
    return all(
        one.stacks[name].query_tokens == other.stacks[name].query_tokens
        and np.array_equal(one.stacks[name].weights(layer=0), other.stacks[name].weights(layer=0))
        for name in one.stacks
    )


@pytest.mark.parametrize("kind", SIZES)
def test_an_image_with_a_text_in_every_form(
    kind: str, model_and_processor: Callable[[str], tuple[Any, Any]]
) -> None:
    model, processor = model_and_processor(kind)
    image = picture(*SIZES[kind][0])
    record = extract(model, (image, TEXT), processor=processor)
    assert same(record, extract(model, (TEXT, image), processor=processor))
    assert same(record, extract(model, (Image.fromarray(image), TEXT), processor=processor))
    assert same(record, extract(model, chat(image, TEXT), processor=processor))
    assert same(record, extract(model, encoded(processor, image, TEXT), processor=processor))
    several = extract(model, [(image, TEXT), (image, "A dog")], processor=processor, progress=False)
    assert same(record, several[0])


@pytest.mark.parametrize("kind", SIZES)
def test_two_images_in_one_prompt(
    kind: str, model_and_processor: Callable[[str], tuple[Any, Any]]
) -> None:
    (height, width), patch, block = SIZES[kind]
    model, processor = model_and_processor(kind)
    image, second = picture(height, width), picture(height, width, seed=1)
    for other in (second, image):
        record = extract(model, chat(image, TEXT, other), processor=processor)
        tokens = record.stacks["self"].query_tokens
        assert [(grid.image, grid.rows, grid.columns) for grid in tokens.grids] == [
            (number, height // patch // block, width // patch // block) for number in (0, 1)
        ]
        assert tokens.text[tokens.grids[1].start] == "2: 0,0"
        assert [grid.image for grid in record.stacks["vision"].query_tokens.grids] == [0, 1]
        for stored, original in zip(record.images, (image, other), strict=True):
            assert np.abs(stored.astype(int) - original).max() <= 1
        inputs = encoded(processor, image, TEXT, other)
        assert_own(record, reference(model, inputs), peak=0.2)
    # A changed patch of the second image changes its token.
    alone = mixing_nothing(model)
    changed = with_patch(second, (0, 0), patch)
    pair = (chat(image, TEXT, second), chat(image, TEXT, changed))
    start = extract(model, pair[0], processor=processor).stacks["self"].query_tokens.grids[1].start
    assert changed_queries(alone, processor, pair, "self", 0) == {start}


@pytest.mark.parametrize("kind", SIZES)
def test_text_generated_after_an_image(
    kind: str, model_and_processor: Callable[[str], tuple[Any, Any]]
) -> None:
    model, processor = model_and_processor(kind)
    image = picture(*SIZES[kind][0])
    inputs = processor.apply_chat_template(
        chat(image, TEXT),
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        add_generation_prompt=True,
    )
    with torch.no_grad():
        came = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    record = extract(model, (image, TEXT), processor=processor, generate=5, progress=False)
    tokens = record.stacks["self"].query_tokens
    assert tokens.ids == tuple(came[0].tolist())
    assert [prediction.token.id for prediction in tokens.predictions] == came[0, -5:].tolist()
    assert len(tokens.grids) == len(record.images) == 1
    whole = {**inputs, "input_ids": came, "attention_mask": torch.ones_like(came)}
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in whole:
            zeros = torch.zeros(1, 5, dtype=torch.long)
            whole[name] = torch.cat([whole[name], zeros], dim=1)
    assert_own(record, reference(model, whole), peak=0.2)
    aimed = extract(model, (image, TEXT), processor=processor, target=" the dog")
    assert "".join(aimed.stacks["self"].query_tokens.text).endswith("<|assistant|>·the·dog")
    assert aimed.stacks["self"].query_tokens.grids == tokens.grids


def test_a_padded_batch_of_images_with_texts(
    model_and_processor: Callable[[str], tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter text of Gemma 3 has as many padding tokens as an image has patches."""
    model, processor = model_and_processor("gemma 3")
    images = [picture(32, 32), picture(32, 32, seed=1)]
    texts = ["<start_of_image>The cat", "<start_of_image>The dog sat on the"]
    monkeypatch.setattr(processor.tokenizer, "padding_side", "left")
    batch = processor(
        images=[[image] for image in images], text=texts, padding=True, return_tensors="pt"
    )
    assert batch["input_ids"].shape[1] == 16
    records = extract(model, batch, processor=processor)
    for record, image, text in zip(records, images, texts, strict=True):
        assert len(record.stacks["vision"].query_tokens) == 16
        assert np.abs(record.images[0].astype(int) - image).max() <= 1
        alone = extract(
            model, processor(images=image, text=text, return_tensors="pt"), processor=processor
        )
        for name in ("self", "vision"):
            stack = record.stacks[name]
            assert stack.query_tokens.text == alone.stacks[name].query_tokens.text
            difference = stack.weights(layer=1) - alone.stacks[name].weights(layer=1)
            assert np.abs(difference).max() < 1e-4


def test_a_batch_with_all_images_in_one_row(
    model_and_processor: Callable[[str], tuple[Any, Any]],
) -> None:
    model, processor = model_and_processor("qwen 2")
    text = "<|vision_start|><|image_pad|><|vision_end|>The cat"
    images = [picture(56, 84), picture(56, 56)]
    batch = processor(images=images, text=[text, text], padding=True, return_tensors="pt")
    with pytest.raises(ValueError, match=r"images of 2 examples .* Encode one example at a time"):
        extract(model, batch, processor=processor)
