"""Scores of the demo models on held-out data.

A score of a kind of head, such as "previous-token head", is the score of the best head of the
model. The weights come from the model itself, not from attnviz.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.analysis.patterns import mass_on, previous_token, repeated_induction
from train_demos.dates import draw_date
from train_demos.scenes import draw_scene
from train_demos.sentences import (
    Sentence,
    antecedent_sentence,
    recipient_sentence,
    repeated_halves,
)
from train_demos.shapes import draw_shapes, patches_of

_SEED = 1000
_EXAMPLES = 200


def scores(name: str, model: Any, reader: Any) -> dict[str, float]:
    """Return the scores of a demo model on held-out data, by name of the score, from 0 to 1.

    The function sets the attention implementation of the model to "eager", which returns weights.

    Examples
    --------
    >>> from attnviz import demos
    >>> scores("vision", *demos.load("vision"))["accuracy"] > 0.9
    True
    """
    model.set_attn_implementation("eager")
    generator = np.random.default_rng(_SEED)
    of = {
        "decoder": _decoder,
        "encoder-decoder": _encoder_decoder,
        "vision": _vision,
        "vision-language": _vision_language,
        "induction": _induction,
        "hybrid": _induction,
    }[name]
    with torch.no_grad():
        return of(model, reader, generator)


def _stacked(attentions: tuple[torch.Tensor, ...]) -> NDArray[np.float32]:
    """Stack the weights of all layers into an array (layers, examples, heads, queries, keys)."""
    weights: NDArray[np.float32] = torch.stack(attentions).numpy()
    return weights


def _best(per_head: NDArray[Any]) -> float:
    """Return the highest mean over examples. `per_head` is (layers, examples, heads)."""
    return float(per_head.mean(axis=1).max())


def _repeating(
    model: Any, tokenizer: Any, generator: np.random.Generator, lengths: tuple[int, ...]
) -> dict[str, float]:
    figures: dict[str, float] = {}
    words = np.arange(len(tokenizer.all_special_ids), len(tokenizer))
    for length in lengths:
        rows = repeated_halves(generator, words, rows=32, length=length)
        outputs = model(torch.from_numpy(rows), output_attentions=True)
        weights = _stacked(outputs.attentions)
        guesses = outputs.logits[:, length:-1].argmax(dim=-1).numpy()
        figures[f"previous-token head, {length} tokens twice"] = _best(previous_token(weights))
        induction = repeated_induction(weights, length)
        figures[f"induction head, {length} tokens twice"] = _best(induction)
        figures[f"repeats right, {length} tokens twice"] = float(
            np.mean(guesses == rows[:, length + 1 :])
        )
    return figures


def _induction(model: Any, tokenizer: Any, generator: np.random.Generator) -> dict[str, float]:
    return _repeating(model, tokenizer, generator, (8, 16))


def _decoder(model: Any, tokenizer: Any, generator: np.random.Generator) -> dict[str, float]:
    figures = _repeating(model, tokenizer, generator, (20, 40, 60))
    for kind, make in (("antecedent", antecedent_sentence), ("recipient", recipient_sentence)):
        sentences = [make(generator, held_out=True) for _ in range(_EXAMPLES)]
        right, on_source, on_distractor = zip(
            *(_completion(model, tokenizer, sentence) for sentence in sentences), strict=True
        )
        figures[f"{kind} right"] = float(np.mean(right))
        if kind == "antecedent":
            source, distractor = np.mean(on_source, axis=0), np.mean(on_distractor, axis=0)
            figures["antecedent head, on the antecedent"] = float(source.max())
            figures["antecedent head, on the other noun"] = float(distractor.flat[source.argmax()])
    return figures


def _completion(
    model: Any, tokenizer: Any, sentence: Sentence
) -> tuple[bool, NDArray[np.float32], NDArray[np.float32]]:
    """Return whether the model completes the prompt correctly, and the weights of its last query.

    The two arrays (layers, heads) are the weights on the source and on the distractor.
    """
    ids = tokenizer(sentence.prompt, return_tensors="pt")["input_ids"]
    outputs = model(ids, output_attentions=True)
    guess = tokenizer.convert_ids_to_tokens(int(outputs.logits[0, -1].argmax()))
    last = _stacked(outputs.attentions)[:, 0, :, -1]
    right = guess == sentence.words[sentence.answer]
    return right, last[..., sentence.source], last[..., sentence.distractor]


def _encoder_decoder(
    model: Any, tokenizer: Any, generator: np.random.Generator
) -> dict[str, float]:
    dates = [draw_date(generator, held_out=True) for _ in range(_EXAMPLES)]
    inputs = tokenizer([date.text for date in dates], padding=True, return_tensors="pt")
    written = model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False
    )
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    pairs = zip(texts, dates, strict=True)
    figures = {"dates right": float(np.mean([text == date.iso for text, date in pairs]))}

    labels = tokenizer([date.iso for date in dates], return_tensors="pt")["input_ids"]
    outputs = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        labels=labels,
        output_attentions=True,
    )
    weights = _stacked(outputs.cross_attentions)
    for field, positions in (("month", (5, 6)), ("day", (8, 9))):
        on_field = np.zeros((len(dates), 1, 1, weights.shape[-1]), dtype=bool)
        for number, date in enumerate(dates):
            on_field[number, 0, 0, getattr(date, field)] = True
        for digit, position in enumerate(positions, start=1):
            # The query at a position of the decoder predicts the character at the same position of
            # the label, because the decoder's input begins with a start token.
            mass = mass_on(weights[..., position : position + 1, :], on_field)
            figures[f"head on the {field}, digit {digit}"] = _best(mass)
    return figures


def _vision(model: Any, processor: Any, generator: np.random.Generator) -> dict[str, float]:
    images, kinds, masks = draw_shapes(generator, 500)
    pixels = processor(list(images), return_tensors="pt")["pixel_values"]
    outputs = model(pixel_values=pixels, output_attentions=True)
    patches = patches_of(masks)
    # The keys are the CLS token and the patches. The CLS token is not on the shape.
    on_shape = np.pad(patches, ((0, 0), (1, 0)))[:, None, None, :]
    mass = mass_on(_stacked(outputs.attentions)[..., :1, :], on_shape)
    return {
        "accuracy": float(np.mean(outputs.logits.argmax(dim=-1).numpy() == kinds)),
        "head from CLS to the shape": _best(mass),
        "share of patches with the shape": float(patches.mean()),
    }


def _vision_language(
    model: Any, processor: Any, generator: np.random.Generator
) -> dict[str, float]:
    scenes = [draw_scene(generator) for _ in range(_EXAMPLES)]
    inputs = processor(
        images=[scene.image for scene in scenes],
        text=[f"{processor.image_token}{scene.prompt(0)} {scene.answer(0)}" for scene in scenes],
        return_tensors="pt",
    )
    outputs = model(**inputs, output_attentions=True)
    # The last word is the answer. The query of the word before the answer predicts it.
    guesses = outputs.logits[:, -2].argmax(dim=-1)
    right = guesses == inputs["input_ids"][:, -1]
    weights = _stacked(outputs.attentions)[..., -2:-1, :]
    patches = np.stack([patches_of(scene.masks) for scene in scenes])
    # The keys are the patches, followed by the words. No word is on a shape.
    marks = np.pad(patches, ((0, 0), (0, 0), (0, weights.shape[-1] - patches.shape[-1])))
    asked, other = (mass_on(weights, marks[:, which, None, None]).mean(axis=1) for which in (0, 1))
    head = np.unravel_index(asked.argmax(), asked.shape)
    return {
        "shapes right": float(right.float().mean()),
        "head on the shape of that colour": float(asked[head]),
        "the same head on the other shape": float(other[head]),
        "share of tokens with the shape": float(marks[:, 0].mean()),
    }
