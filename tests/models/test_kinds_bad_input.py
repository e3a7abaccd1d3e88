"""`extract` refuses invalid images, sounds and processors, and accepts all valid images."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from attnviz import extract
from models.image_models import MODELS, chat
from models.make_models import make_model
from models.tiny import SIZE, built, picture

TEXT = "The cat"
IMAGE = picture(32, 32)
SOUND = np.random.default_rng(0).standard_normal(8000).astype(np.float32)


@cache
def vit() -> Any:
    return built("ViTModel", {**SIZE, "image_size": 32, "patch_size": 8})


@cache
def wav2vec2() -> Any:
    settings = {
        "conv_dim": [16] * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
    }
    return built("Wav2Vec2Model", {**SIZE, **settings})


@cache
def seeing() -> Any:
    return transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})


@cache
def hearing() -> Any:
    return transformers.Wav2Vec2FeatureExtractor()


@pytest.fixture(scope="module")
def llava(byte_tokenizer: Any) -> tuple[Any, Any]:
    model_and_processor: tuple[Any, Any] = MODELS["llava"](byte_tokenizer)
    return model_and_processor


# Kind of inputs that a model reads, inputs of another kind, and a pattern of the error message.
UNREADABLE: list[tuple[str, Any, str]] = [
    ("texts", Image.fromarray(IMAGE), "got an image. Pass one of these"),
    ("texts", chat(IMAGE, TEXT), "got a chat with images or sounds. Pass one"),
    ("images", TEXT, "got a text. Pass one of these"),
    ("sounds", TEXT, "got a text. Pass one of these"),
    ("texts and images", IMAGE, r"got an image without a text. Pass \(image, text\)"),
    ("texts and images", (SOUND, TEXT), "got a sound with a text. Pass one of these"),
]


@pytest.mark.parametrize(("kind", "inputs", "words"), UNREADABLE)
def test_inputs_of_another_kind_than_the_model_reads_are_refused(
    kind: str, inputs: Any, words: str, llava: tuple[Any, Any], byte_tokenizer: Any
) -> None:
    models = {
        "texts": (make_model("gpt2"), None),
        "images": (vit(), seeing()),
        "sounds": (wav2vec2(), hearing()),
        "texts and images": llava,
    }
    model, processor = models[kind]
    with pytest.raises(TypeError, match=rf"^inputs: {type(model).__name__} takes {kind}; {words}"):
        extract(model, inputs, processor=processor, tokenizer=byte_tokenizer)


def test_images_and_sounds_need_a_processor(llava: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"^processor: inputs contain an image, .* Pass"):
        extract(vit(), IMAGE)
    with pytest.raises(
        ValueError, match=r"^processor: inputs contain a sound, .* Pass Wav2Vec2Model's"
    ):
        extract(wav2vec2(), SOUND)
    model, processor = llava
    for inputs in ((IMAGE, TEXT), chat(IMAGE, TEXT)):
        with pytest.raises(ValueError, match=r"^processor: .* no processor for both"):
            extract(
                model, inputs, tokenizer=processor.tokenizer, processor=processor.image_processor
            )


def test_a_processor_without_a_chat_template_is_refused(byte_tokenizer: Any) -> None:
    model, processor = MODELS["blip 2"](byte_tokenizer)
    with pytest.raises(ValueError, match="the processor has no chat template"):
        extract(model, chat(IMAGE, TEXT), processor=processor)


@pytest.mark.parametrize(
    ("image", "kind", "words"),
    [
        (np.zeros((0, 32, 3), np.uint8), ValueError, r"got uint8 of shape \(0, 32, 3\)"),
        (np.full((32, 32, 3), np.nan), ValueError, "must have values from 0 to 1; got nan"),
        (IMAGE.astype(float), ValueError, r"float64 must have values from 0 to 1; got 0 to 255"),
        (
            np.zeros((32, 32, 5), np.uint8),
            ValueError,
            r"colours; got uint8 of shape \(32, 32, 5\)",
        ),
        (np.zeros((32, 32, 3), bool), ValueError, "an image must have numbers .* got bool"),
    ],
)
def test_arrays_that_are_not_images_are_refused(
    image: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=f"^inputs: .*{words}"):
        extract(vit(), image, processor=seeing())


@pytest.mark.parametrize(
    ("image", "stored"),
    [
        (np.dstack([IMAGE, np.full((32, 32), 7, np.uint8)]), IMAGE),
        (IMAGE.transpose(2, 0, 1), IMAGE),
        ((IMAGE / 255).astype(np.float32), IMAGE),
        (IMAGE.astype(np.int64), IMAGE),
        (torch.from_numpy(IMAGE), IMAGE),
        (IMAGE[..., 0], IMAGE[..., :1]),
        (Image.fromarray(IMAGE[..., 0]).convert("LA"), IMAGE[..., :1]),
    ],
    ids=["RGBA", "colours first", "fractions", "int64", "tensor", "grey", "grey and alpha of PIL"],
)
def test_every_form_of_an_image_is_stored_with_its_colours(image: Any, stored: Any) -> None:
    """The alpha channel is removed, and grey images get three equal colours."""
    record = extract(vit(), image, processor=seeing())
    assert record.images[0].shape == (32, 32, 3)
    assert np.abs(record.images[0].astype(int) - stored).max() <= 1


@pytest.mark.parametrize(
    ("inputs", "kind", "words"),
    [
        (np.zeros(0, np.float32), ValueError, r"got float32 of shape \(0,\)"),
        (np.full(8000, np.nan, np.float32), ValueError, "of finite floats"),
        ((SOUND * 1000).astype(np.int16), ValueError, "floats from -1 to 1; got int16"),
        (np.stack([SOUND, SOUND]), ValueError, r"one channel, .* got float32 of shape \(2, 8000\)"),
        ({"array": SOUND, "sampling_rate": 44_100}, ValueError, "has 44100 samples .* needs 16000"),
    ],
)
def test_arrays_that_are_not_sounds_are_refused(
    inputs: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=f"^inputs: .*{words}"):
        extract(wav2vec2(), inputs, processor=hearing())


def test_pixel_values_without_finite_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^inputs: pixel_values contains NaN or infinity"):
        extract(vit(), torch.full((1, 3, 32, 32), torch.inf))
    with pytest.raises(ValueError, match=r"^inputs: pixel_values is empty"):
        extract(vit(), torch.zeros(1, 3, 0, 32))
