"""The demo models solve their tasks on held-out data, and heads have the documented patterns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from attnviz import Knockout, demos, extract, intervene
from attnviz.analysis import patterns
from train_demos.dates import FORMS, draw_date
from train_demos.scenes import draw_scene
from train_demos.sentences import (
    Sentence,
    antecedent_sentence,
    recipient_sentence,
    repeated_halves,
)
from train_demos.shapes import draw_shapes, patches_of
from train_demos.vocabulary import WORDS

HOME = Path(demos.__file__).parent

# For each demo model, the kinds of attention ("stacks") in its record, and for each kind the field
# of the model's output that contains the weights.
STACKS = {
    "decoder": {"self": "attentions"},
    "hybrid": {"self": "attentions"},
    "encoder-decoder": {name: f"{name}_attentions" for name in ("encoder", "decoder", "cross")},
    "vision": {"vision": "attentions"},
    "vision-language": {"self": "attentions", "vision": "vision_attentions"},
}
# Seed of test data, which no training uses.
SEED = 4711


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@functools.cache
def loaded(name: str) -> tuple[Any, Any]:
    model, reader = demos.load(name)
    model.set_attn_implementation("eager")
    return model, reader


def stacked(layers: tuple[torch.Tensor, ...]) -> NDArray[np.float32]:
    """Stack the weights of all layers to (layers, examples, heads, queries, keys)."""
    weights: NDArray[np.float32] = torch.stack(layers).numpy()
    return weights


@pytest.mark.parametrize("length", [20, 60])
def test_the_decoder_repeats_random_words(length: int) -> None:
    model, tokenizer = loaded("decoder")
    words = np.array(tokenizer.convert_tokens_to_ids(list(WORDS)))
    rows = repeated_halves(np.random.default_rng(SEED), words, rows=24, length=length)
    outputs = model(torch.from_numpy(rows), output_attentions=True)
    predicted = outputs.logits.argmax(dim=-1).numpy()
    assert (predicted[:, length:-1] == rows[:, length + 1 :]).mean() > 0.97
    weights = stacked(outputs.attentions)
    previous = patterns.previous_token(weights).mean(axis=1).max(axis=1)
    induction = patterns.repeated_induction(weights, length).mean(axis=1).max(axis=1)
    assert previous.max() > 0.9
    assert induction.max() > 0.8
    # The induction head reads the output of the previous-token head, so it is in a later layer.
    assert induction.argmax() > previous.argmax()


@pytest.mark.parametrize("length", [8, 16])
def test_the_hybrid_repeats_words_with_its_softmax_layer(length: int) -> None:
    model, tokenizer = loaded("hybrid")
    words = np.array(tokenizer.convert_tokens_to_ids(list(WORDS)))
    rows = repeated_halves(np.random.default_rng(SEED), words, rows=24, length=length)
    outputs = model(torch.from_numpy(rows), output_attentions=True)
    predicted = outputs.logits.argmax(dim=-1).numpy()
    assert (predicted[:, length:-1] == rows[:, length + 1 :]).mean() > 0.97
    assert patterns.repeated_induction(stacked(outputs.attentions), length).mean(axis=1).min() > 0.6


def completions(
    sentences: list[Sentence],
) -> tuple[list[bool], NDArray[np.float32], NDArray[np.float32]]:
    """Return whether the decoder completes each sentence correctly, and the weights on two words.

    The first word is an earlier occurrence of the answer, and the second is a wrong alternative.
    The weights of the last query on each word have the shape (layers, sentences, heads).
    """
    model, tokenizer = loaded("decoder")
    right, on_source, on_distractor = [], [], []
    for sentence in sentences:
        ids = tokenizer(sentence.prompt, return_tensors="pt")["input_ids"]
        assert ids.shape[1] == sentence.answer
        outputs = model(ids, output_attentions=True)
        guess = tokenizer.decode([int(outputs.logits[0, -1].argmax())])
        right.append(guess == sentence.words[sentence.answer])
        last = stacked(outputs.attentions)[:, 0, :, -1]
        on_source.append(last[..., sentence.source])
        on_distractor.append(last[..., sentence.distractor])
    return right, np.stack(on_source, axis=1), np.stack(on_distractor, axis=1)


def test_the_decoder_finds_the_antecedent_and_attends_to_it() -> None:
    generator = np.random.default_rng(SEED)
    sentences = [antecedent_sentence(generator, held_out=True) for _ in range(150)]
    right, on_source, on_distractor = completions(sentences)
    assert np.mean(right) > 0.97
    source, distractor = on_source.mean(axis=1), on_distractor.mean(axis=1)
    assert source.max() > 0.8
    assert distractor.flat[source.argmax()] < 0.2
    # The demo decoder also completes sentences about the recipient of an object.
    recipients = [recipient_sentence(generator, held_out=True) for _ in range(100)]
    assert np.mean(completions(recipients)[0]) > 0.97


def prediction_after(model: Any, text: str, change: Knockout, **options: Any) -> str:
    """Return the model's most likely next token after `text`, with `change` applied."""
    return str(intervene(model, text, change, **options).effect.candidates_after[0].text)


def test_the_edge_to_the_antecedent_decides_the_noun() -> None:
    model, tokenizer = demos.load("decoder")
    generator = np.random.default_rng(SEED)
    flipped = unchanged = neither = 0
    for _ in range(10):
        sentence = antecedent_sentence(generator, held_out=True)
        right, wrong = sentence.words[sentence.answer], sentence.words[sentence.distractor]
        stack = extract(model, sentence.prompt, tokenizer=tokenizer).stack()
        head = int(stack.weights(layer=1)[:, -1, sentence.source].argmax())

        source, distractor, source_after_softmax = (
            prediction_after(model, sentence.prompt, change, tokenizer=tokenizer)
            for change in (
                Knockout(-1, sentence.source, layers=1, heads=head),
                Knockout(-1, sentence.distractor, layers=1, heads=head),
                Knockout(-1, sentence.source, layers=1, heads=head, renormalize=False),
            )
        )
        flipped += source == wrong
        unchanged += distractor == right
        neither += source_after_softmax not in (right, wrong)
    assert flipped >= 9
    assert unchanged >= 9
    assert neither >= 7


def test_the_encoder_decoder_writes_dates_and_aligns_month_and_day() -> None:
    generator = np.random.default_rng(SEED)
    dates = [draw_date(generator, held_out=True, form=form) for form in FORMS for _ in range(15)]
    model, tokenizer = loaded("encoder-decoder")
    inputs = tokenizer([date.text for date in dates], padding=True, return_tensors="pt")
    written = model.generate(**inputs, do_sample=False)
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert np.mean([text == date.iso for text, date in zip(texts, dates, strict=True)]) > 0.97
    targets = tokenizer([date.iso for date in dates], return_tensors="pt")["input_ids"]
    outputs = model(**inputs, labels=targets, output_attentions=True)
    weights = stacked(outputs.cross_attentions)
    keys = np.arange(weights.shape[-1])
    months = np.stack([np.isin(keys, date.month) for date in dates])[:, None, None]
    days = np.stack([np.isin(keys, date.day) for date in dates])[:, None, None]
    # In a date like 2021-03-07, the month is at positions 5 and 6, and the day at 8 and 9.
    for on_field, off_field, positions in ((months, days, (5, 6)), (days, months, (8, 9))):
        for position in positions:
            row = weights[..., position : position + 1, :]
            on, off = (patterns.mass_on(row, keys).mean(axis=1) for keys in (on_field, off_field))
            assert on.max() > 0.6
            assert off.flat[on.argmax()] < 0.25


def test_the_vision_model_names_the_shape_and_its_cls_attends_to_it() -> None:
    model, processor = loaded("vision")
    images, kinds, masks = draw_shapes(np.random.default_rng(SEED), 500)
    pixels = processor(list(images), return_tensors="pt")["pixel_values"]
    outputs = model(pixel_values=pixels, output_attentions=True)
    assert np.mean(outputs.logits.argmax(dim=-1).numpy() == kinds) > 0.96
    # Add a first key to the masks of the 64 patches, because the CLS token precedes them.
    on_shape = np.pad(patches_of(masks), ((0, 0), (1, 0)))[:, None, None]
    cls = stacked(outputs.attentions)[..., :1, :]
    assert patches_of(masks).mean() < 0.3
    assert patterns.mass_on(cls, on_shape).mean(axis=1).max() > 0.75


@pytest.mark.parametrize("shape", [0, 1])
def test_the_vision_language_model_names_the_shape_with_a_colour_and_attends_to_it(
    shape: int,
) -> None:
    generator = np.random.default_rng(SEED)
    scenes = [draw_scene(generator) for _ in range(150)]
    model, processor = loaded("vision-language")
    prompts = [processor.image_token + scene.prompt(shape) for scene in scenes]
    images = [scene.image for scene in scenes]
    inputs = processor(images=images, text=prompts, return_tensors="pt")
    generated = model.generate(**inputs, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    answers = processor.batch_decode(generated, skip_special_tokens=True)
    right = [text == scene.answer(shape) for text, scene in zip(answers, scenes, strict=True)]
    assert np.mean(right) > 0.9
    # The first 64 keys are patches. The last query is the colour word, which predicts the shape.
    row = stacked(model(**inputs, output_attentions=True).attentions)[..., -1:, :64]
    patches = np.stack([patches_of(scene.masks) for scene in scenes])
    chosen, other = (
        patterns.mass_on(row, patches[:, index, None, None]).mean(axis=1)
        for index in (shape, 1 - shape)
    )
    # With uniform weights, each shape would get the share `patches.mean()`.
    assert patches.mean() < 0.2
    assert chosen.max() > 0.5
    assert other.flat[chosen.argmax()] < 0.1


@pytest.mark.parametrize("name", demos.NAMES)
def test_an_example_is_answered_and_extracted_with_the_models_own_weights(name: str) -> None:
    model, reader = demos.load(name)
    example = demos.example(name)
    # Without tokenizer= and processor=, `extract` loads them from the folder of the model.
    record = extract(model, **example)
    assert record.model == name
    tokens = record.stack("cross" if name == "encoder-decoder" else None).query_tokens
    inputs: dict[str, Any]
    if name == "vision-language":
        image, prompt = example["inputs"]
        text = f"{reader.image_token}{prompt} {example['target']}"
        inputs = dict(reader(images=image, text=text, return_tensors="pt"))
    else:
        inputs = dict(reader(example["inputs"], return_tensors="pt"))
    if name == "encoder-decoder":
        inputs["labels"] = reader(example["target"], return_tensors="pt")["input_ids"]
    model.set_attn_implementation("eager")
    outputs = model(**inputs, output_attentions=True)
    if name == "vision":
        assert model.config.id2label[int(outputs.logits.argmax())] == "triangle"
    elif name not in ("decoder", "hybrid"):
        # Each token of the target is the model's most likely prediction.
        assert tokens.predictions
        assert all(item.token == item.candidates[0] for item in tokens.predictions)
    if name == "vision-language":
        tower = model.model.vision_tower(inputs["pixel_values"], output_attentions=True)
        outputs["vision_attentions"] = tower.attentions
    # Linear layers return no weights. tests/models/test_linear_layers.py tests them.
    assert set(record.stacks) - {"linear"} == set(STACKS[name])
    for stack_name, attribute in STACKS[name].items():
        stack = record.stacks[stack_name]
        for layer, own in zip(stack.layers, outputs[attribute], strict=True):
            np.testing.assert_allclose(stack.weights(layer=layer), own[0].numpy(), atol=1e-4)


def test_the_files_are_small_and_readable_and_store_float16() -> None:
    files = [file for file in HOME.glob("*/**/*.*") if file.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files) < 4.5e6
    for file in files:
        assert file.stat().st_size < 1e6
        assert file.stat().st_mode & 0o777 == 0o644, file
        assert file.suffix in (".json", ".safetensors", ".png", ".txt")
    for weights in HOME.rglob("model.safetensors"):
        with safe_open(weights, framework="np") as stored:
            assert {stored.get_tensor(key).dtype for key in stored.keys()} == {  # noqa: SIM118
                np.dtype(np.float16)
            }
