"""Records of models for images and text have named patches and the models' own weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from attnviz import AttentionRecord, extract
from model_types.build import tiny_model
from models.image_models import MODELS, chat, mixing_nothing
from models.tiny import assert_own, changed_queries, picture, reference, sharpen, with_patch

TEXT = "The cat sat"
# Height and width of an image that the processor does not resize, pixels per side of a patch, and
# patches per side of the square that becomes one token of the text.
SIZES: dict[str, tuple[tuple[int, int], int, int]] = {
    "llava": ((32, 32), 8, 1),
    "gemma 3": ((32, 32), 8, 2),
    # The image becomes three rows of four tokens. A window of attention has two by two tokens.
    "qwen 2.5": ((84, 112), 14, 2),
}
Make = Callable[[str], tuple[Any, Any]]


@pytest.fixture(scope="module")
def make(byte_tokenizer: Any) -> Make:
    """Function that returns the model and the processor of a kind, which are made only once."""
    return cache(lambda kind: MODELS[kind](byte_tokenizer))


def encoded(processor: Any, *parts: Any, **options: Any) -> dict[str, Any]:
    """Encode a chat with one message, which consists of the texts and images `parts`."""
    return dict(
        processor.apply_chat_template(
            chat(*parts), tokenize=True, return_dict=True, return_tensors="pt", **options
        )
    )


@pytest.mark.parametrize("kind", SIZES)
def test_tokens_of_patches_are_named_by_their_positions(kind: str, make: Make) -> None:
    """A changed patch changes one query in layer 0 of the vision tower: that of its row and column.

    In the text model, a token of the image stands for a square of patches, and its name is the row
    and column of the square. If attention in the tower is turned off, a changed patch changes only
    the query of its square.
    """
    (height, width), patch, block = SIZES[kind]
    model, processor = make(kind)
    image = picture(height, width)
    record = extract(model, (image, TEXT), processor=processor)
    rows, columns = height // patch, width // patch
    stacks = {"vision": (model, 1), "self": (mixing_nothing(model), block)}
    for name, (changed_model, size) in stacks.items():
        tokens = record.stacks[name].query_tokens
        (grid,) = tokens.grids
        assert (grid.image, grid.rows, grid.columns) == (0, rows // size, columns // size)
        assert not any(tokens.special[grid.start : grid.stop])
        for row, column in [(0, 0), (1, 2), (2, columns - 1), (rows - 1, columns - 1)]:
            other = with_patch(image, (patch * row, patch * column), patch)
            pair = ((image, TEXT), (other, TEXT))
            changed = changed_queries(changed_model, processor, pair, name, 0)
            label = f"{row // size},{column // size}"
            assert [tokens.text[token] for token in changed] == [label]
    assert "".join(tokens.text[grid.stop :]).endswith("The·cat·sat</s>")
    assert len(record.images) == 1
    assert np.abs(record.images[0].astype(int) - image).max() <= 1
    assert not record.notes


def test_windows_of_patches_have_their_positions_in_the_image(make: Make) -> None:
    """Layer 0 mixes the 16 patches of a window: one changed patch changes 16 queries of layer 1."""
    (height, width), patch, _ = SIZES["qwen 2.5"]
    model, processor = make("qwen 2.5")
    image = picture(height, width)
    other = with_patch(image, (patch * 2, patch * 5), patch)
    changed = changed_queries(model, processor, ((image, TEXT), (other, TEXT)), "vision", 1)
    positions = {divmod(token, width // patch) for token in changed}
    assert positions == {(row, column) for row in range(4) for column in range(4, 8)}


@pytest.mark.parametrize("layers", [[0], [1, 2]])
def test_windows_that_run_one_by_one_are_kept_together(layers: list[int], make: Make) -> None:
    """Layer 1 attends to all patches in one call. Layers 0 and 2 make a call for each window."""
    model, processor = make("qwen 2.5")
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
    """Whether two records are equal, except that only a chat has the passages of its turns."""
    return all(
        replace(one.stacks[name].query_tokens, passages=())
        == replace(other.stacks[name].query_tokens, passages=())
        and np.array_equal(one.stacks[name].weights(layer=0), other.stacks[name].weights(layer=0))
        for name in one.stacks
    )


@pytest.mark.parametrize("kind", SIZES)
def test_the_last_message_of_the_assistant_is_continued(kind: str, make: Make) -> None:
    model, processor = make(kind)
    messages = chat(picture(*SIZES[kind][0]), TEXT)
    messages.append({"role": "assistant", "content": [{"type": "text", "text": "A dog"}]})
    encoded = processor.apply_chat_template(
        messages,
        continue_final_message=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    prompt = encoded["input_ids"][0].tolist()
    tokens = extract(model, messages, processor=processor, generate=2).stack("self").query_tokens
    assert list(tokens.ids or ())[: len(prompt)] == prompt
    assert len(tokens) == len(prompt) + 2
    closed = extract(model, messages, processor=processor).stack("self").query_tokens
    assert len(closed) != len(prompt)


@pytest.mark.parametrize("kind", SIZES)
def test_an_image_with_a_text_in_every_form(kind: str, make: Make) -> None:
    model, processor = make(kind)
    image = picture(*SIZES[kind][0])
    record = extract(model, (image, TEXT), processor=processor)
    assert same(record, extract(model, (TEXT, image), processor=processor))
    assert same(record, extract(model, (Image.fromarray(image), TEXT), processor=processor))
    assert same(record, extract(model, chat(image, TEXT), processor=processor))
    assert same(record, extract(model, encoded(processor, image, TEXT), processor=processor))
    several = extract(model, [(image, TEXT), (image, "A dog")], processor=processor, progress=False)
    assert same(record, several[0])


@pytest.mark.parametrize("kind", SIZES)
def test_two_images_in_one_prompt(kind: str, make: Make) -> None:
    (height, width), patch, block = SIZES[kind]
    model, processor = make(kind)
    image, second = picture(height, width), picture(height, width, seed=1)
    # The second image of a prompt may be the first image again.
    for other in (image, second):
        record = extract(model, chat(image, TEXT, other), processor=processor)
        tokens = record.stacks["self"].query_tokens
        assert [(grid.image, grid.rows, grid.columns) for grid in tokens.grids] == [
            (number, height // patch // block, width // patch // block) for number in (0, 1)
        ]
        assert [grid.image for grid in record.stacks["vision"].query_tokens.grids] == [0, 1]
        for stored, original in zip(record.images, (image, other), strict=True):
            assert np.abs(stored.astype(int) - original).max() <= 1
        inputs = encoded(processor, image, TEXT, other)
        assert_own(record, reference(model, inputs), peak=0.2)
    pair = (chat(image, TEXT, second), chat(image, TEXT, with_patch(second, (0, 0), patch)))
    changed = changed_queries(mixing_nothing(model), processor, pair, "self", 0)
    assert [tokens.text[token] for token in changed] == ["2: 0,0"]


@pytest.mark.parametrize("kind", SIZES)
def test_text_generated_after_an_image(kind: str, make: Make) -> None:
    model, processor = make(kind)
    image = picture(*SIZES[kind][0])
    inputs = encoded(processor, image, TEXT, add_generation_prompt=True)
    with torch.no_grad():
        ids = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    record = extract(model, (image, TEXT), processor=processor, generate=5, progress=False)
    tokens = record.stacks["self"].query_tokens
    assert tokens.ids == tuple(ids[0].tolist())
    assert [prediction.token.id for prediction in tokens.predictions] == ids[0, -5:].tolist()
    assert len(tokens.grids) == len(record.images) == 1
    whole = {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for name in {"mm_token_type_ids", "token_type_ids"} & set(whole):
        whole[name] = torch.nn.functional.pad(whole[name], (0, 5))
    assert_own(record, reference(model, whole), peak=0.2)
    with_target = extract(model, (image, TEXT), processor=processor, target=" the dog")
    tokens = with_target.stacks["self"].query_tokens
    assert "".join(tokens.text).endswith("<|assistant|>·the·dog")
    assert len(tokens.grids) == 1


@pytest.mark.parametrize("with_types", [True, False])
@pytest.mark.parametrize("options", [{"target": " on the mat"}, {"generate": 3}], ids=str)
def test_paligemma_is_causal_after_its_bidirectional_prompt(
    with_types: bool, options: dict[str, Any], byte_tokenizer: Any
) -> None:
    text = {"vocab_size": 400, "max_position_embeddings": 512}
    model = tiny_model("paligemma", "PaliGemmaForConditionalGeneration", {"text_config": text})
    sharpen(model, 2.0)
    prompt = torch.tensor([byte_tokenizer(TEXT)["input_ids"]])
    inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
    # Processors return the types of tokens, but tokenizers do not.
    if with_types:
        inputs["token_type_ids"] = torch.zeros_like(prompt)
    record = extract(model, inputs, tokenizer=byte_tokenizer, progress=False, **options)
    ids = torch.tensor([record.stack().query_tokens.ids])
    types = torch.ones_like(ids)
    types[:, : prompt.shape[1]] = 0
    whole = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": types,
    }
    assert ids.shape[1] == prompt.shape[1] + 3
    assert_own(record, reference(model, whole))
    # A token attends to the prompt, to itself, and to the tokens before it.
    expected = np.tri(ids.shape[1], dtype=bool)
    expected[:, : prompt.shape[1]] = True
    assert np.array_equal(record.stack().allowed(layer=0, head=0), expected)


def test_a_padded_batch_of_images_with_texts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The padded texts have 16 tokens, which must not be taken for the 16 patches of an image."""
    model, processor = make("gemma 3")
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


def test_a_batch_with_all_images_in_one_row(make: Make) -> None:
    model, processor = make("qwen 2.5")
    text = "<|vision_start|><|image_pad|><|vision_end|>The cat"
    images = [picture(56, 84), picture(56, 56)]
    batch = processor(images=images, text=[text, text], padding=True, return_tensors="pt")
    with pytest.raises(ValueError, match=r"images of 2 examples .* Encode one example at a time"):
        extract(model, batch, processor=processor)
