"""Functions that check images and sounds, and that encode them by a model's processor.

A processor is the object that converts images or sounds, with or without a text, into arguments of
a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from attnviz.extraction.families import IMAGES, SOUNDS, config_values
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.preprocessors import call_reader, takes_chats
from attnviz.utils.arrays import as_array


def is_image(entry: object) -> bool:
    """Whether an object is an image of PIL. PIL need not be installed."""
    return type(entry).__module__.partition(".")[0] == "PIL"


def is_media_and_text(entry: object) -> bool:
    """Whether an object is a tuple of two entries: a text, and an image or a sound, in any order.

    An image is a PIL image, or an array with two or three axes.
    """
    if not isinstance(entry, tuple) or len(entry) != 2:
        return False
    texts = [part for part in entry if isinstance(part, str)]
    media = [
        part
        for part in entry
        if is_image(part)
        or is_sound(part)
        or (isinstance(part, np.ndarray | torch.Tensor) and part.ndim in (2, 3))
    ]
    return len(texts) == len(media) == 1


def is_sound(entry: object) -> bool:
    """Whether an object is a sound: a float array of one axis, or a mapping with key "array"."""
    if isinstance(entry, Mapping):
        return "array" in entry
    if isinstance(entry, np.ndarray):
        return entry.ndim == 1 and entry.dtype.kind == "f"
    return isinstance(entry, torch.Tensor) and entry.dim() == 1 and entry.is_floating_point()


def has_media(messages: Sequence[Any]) -> bool:
    """Whether any chat message has contents other than text, such as an image or a sound."""
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(isinstance(part, Mapping) and part.get("type", "text") != "text" for part in parts)


#: Arguments for the model, and the processor that computed them. The processor is None if the
#: caller passed pixel values.
Processed = tuple[Mapping[str, Any], Any]


def sounds_in(example: Any) -> list[Any]:
    """Return the sounds in an example: the example itself, a part of it, or contents of a chat."""
    if is_sound(example):
        return [example]
    if isinstance(example, Mapping):
        example = example.get("audio", example.get("content"))
        return sounds_in(example) if isinstance(example, list) or is_sound(example) else []
    parts = example if isinstance(example, list | tuple) else ()
    return [sound for part in parts for sound in sounds_in(part)]


def encode_media(loaded: Loaded, example: Any, *, expects_answer: bool) -> Processed | None:
    """Encode an image or a sound, alone or with a text. Return None for other examples.

    An image is an image of PIL, or pixel values (see `as_picture`).
    `expects_answer` is whether a chat template adds its generation prompt. Raise TypeError or
    ValueError if the model does not take the example, if the image or sound is invalid, or if no
    processor is found.
    """
    takes = loaded.takes
    if is_media_and_text(example):
        sound = any(map(is_sound, example))
        if not (takes["texts"] and takes["sounds" if sound else "images"]):
            raise loaded.refuse("a sound with a text" if sound else "an image with a text")
        return _encode_with_text(loaded, example, sound=sound, expects_answer=expects_answer)
    is_array = isinstance(example, np.ndarray | torch.Tensor)
    if is_sound(example) or (is_array and takes["sounds"] and not takes["texts"]):
        return _encode_sound(loaded, example)
    is_pixels = is_array and takes["images"] and (example.ndim == 3 or not takes["texts"])
    return _encode_image(loaded, example) if is_image(example) or is_pixels else None


def chat_processor(loaded: Loaded) -> Any:
    """Return the processor that encodes chat messages with images or sounds.

    Raise TypeError if the model takes no texts, or neither images nor sounds. Raise ValueError if
    there is no processor.
    """
    if not (loaded.takes["texts"] and (loaded.takes["images"] or loaded.takes["sounds"])):
        raise loaded.refuse("a chat with images or sounds")
    return _processor(loaded, "of both", "chat messages with images or sounds")


def encode_chat(
    reader: Any, messages: Sequence[Any], *, expects_answer: bool, **options: Any
) -> Mapping[str, Any]:
    """Encode chat messages, using the chat template of a tokenizer or processor.

    If `expects_answer` is True, the chat ends with the generation prompt. If the last message is
    one of the assistant, the model continues this message instead, as in pipelines of transformers.
    `options` are further arguments of the template. Raise ValueError if `reader` has no template.
    """
    if not takes_chats(reader):
        is_tokenizer = isinstance(reader, PreTrainedTokenizerBase)
        name, valid = ("tokenizer", "text") if is_tokenizer else ("processor", "processor's output")
        raise ValueError(
            f"inputs: chat messages were passed, but the {name} has no chat template. Set "
            f"{name}.chat_template, or pass the {valid}."
        )
    # mistral-common has no templates, and always expects an answer.
    expects_answer = expects_answer or not getattr(reader, "chat_template", None)
    continues = expects_answer and messages[-1].get("role") == "assistant"
    ending = {"continue_final_message": True} if continues else {}
    # Let the template return ids. Its text contains a start token, and encoding this text could add
    # another one.
    encoded: Mapping[str, Any] = call_reader(
        reader.apply_chat_template,
        list(messages),
        add_generation_prompt=expects_answer and not continues,
        **ending,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        **options,
    )
    return encoded


def _encode_with_text(
    loaded: Loaded, pair: tuple[Any, Any], *, sound: bool, expects_answer: bool
) -> Processed:
    """Encode a text with a sound if `sound` is True, else with an image.

    The text may contain a special token that stands for the image or sound. If the text does not
    contain this token, the text and the image or sound are encoded as one chat message, with the
    chat template of the processor. If the processor has no template, the special token is put
    before the text instead.
    """
    media_input, text = (pair[1], pair[0]) if isinstance(pair[0], str) else pair
    kind = "audio" if sound else "image"
    processor = _processor(loaded, "of both", f"{'a sound' if sound else 'an image'} and a text")
    rate = _sampling_rate(processor)
    if sound:
        media_input = _checked_sound(media_input, rate)
    else:
        media_input = _picture(loaded.model, media_input)
    marks = [getattr(processor, name, None) for name in (f"{kind}_token", "boi_token")]
    marked = any(isinstance(mark, str) and mark in text for mark in marks)
    if getattr(processor, "chat_template", None) and not marked:
        content = [{"type": kind, kind: media_input}, {"type": "text", "text": text}]
        message = {"role": "user", "content": content}
        return encode_chat(processor, [message], expects_answer=expects_answer), processor
    if not marked and isinstance(marks[0], str):
        text = marks[0] + text
    media = {"audio": media_input, "sampling_rate": rate} if sound else {"images": media_input}
    return call_reader(processor, text=text, return_tensors="pt", **media), processor


def _processor(
    loaded: Loaded, of: Literal["of both", "of images", "of sounds"], contents: str
) -> Any:
    """Return the model's processor for one kind of input. Raise ValueError if there is none.

    `contents` describes the inputs, for the error.
    """
    processor = loaded.find_processor(of)
    kind = {"of images": "image processor", "of sounds": "feature extractor"}.get(of)
    if processor is None or (kind is None and not hasattr(processor, "apply_chat_template")):
        raise ValueError(
            f"processor: inputs contain {contents}, and the model has no "
            f"{kind or 'processor for both'}. Pass {type(loaded.model).__name__}'s as processor= "
            "(AutoProcessor.from_pretrained), or pass its output as inputs."
        )
    return processor


def _encode_image(loaded: Loaded, image: Any) -> Processed:
    if not loaded.takes["images"]:
        raise loaded.refuse("an image")
    if loaded.takes["texts"]:
        raise loaded.refuse("an image without a text", "(image, text)")
    if isinstance(image, torch.Tensor):
        return {"pixel_values": image if image.dim() == 4 else image[None]}, None
    processor = _processor(loaded, "of images", "an image")
    image = _picture(loaded.model, image)
    return call_reader(processor, images=image, return_tensors="pt"), processor


def _encode_sound(loaded: Loaded, sound: Any) -> Processed:
    if not loaded.takes["sounds"]:
        raise loaded.refuse("a sound (an array of floating point)")
    processor = _processor(loaded, "of sounds", "a sound")
    extractor = getattr(processor, "feature_extractor", processor)
    rate = extractor.sampling_rate
    samples = _checked_sound(sound, rate)
    encoded = call_reader(extractor, samples, sampling_rate=rate, return_tensors="pt")
    return encoded, processor


def _sampling_rate(processor: Any) -> int | None:
    """Return the samples per second that a processor requires, or None if it states no number."""
    rate = getattr(getattr(processor, "feature_extractor", processor), "sampling_rate", None)
    return None if rate is None else int(rate)


def as_picture(loaded: Loaded, example: Any) -> Any:
    """Return an array of an image as an image of PIL. Return others, and pixel values, as they are.

    Pixel values are a float tensor.
    """
    if not isinstance(example, np.ndarray | torch.Tensor) or is_sound(example):
        return example
    is_image_array = example.ndim == 3 or not loaded.takes["texts"]
    are_pixels = isinstance(example, torch.Tensor) and example.is_floating_point()
    if not (is_image_array and loaded.takes["images"]) or (are_pixels and example.ndim in (3, 4)):
        return example
    return _picture(loaded.model, example)


def num_samples(sound: Any, processor: Any) -> int:
    """Return the number of samples of a sound at the sampling rate of a processor."""
    samples = sound["array"] if isinstance(sound, Mapping) else sound
    rate = _sampling_rate(processor)
    given_rate = sound.get("sampling_rate") if isinstance(sound, Mapping) else None
    return round(len(samples) * (rate / given_rate if rate and given_rate else 1))


def _picture(model: PreTrainedModel, image: Any) -> Any:
    """Return an image as an image of PIL with three colours, or any number if the model takes one.

    `image` is an image of PIL or an array. The shape of an array is (height, width),
    (height, width, colours) or (colours, height, width), with 1, 3 or 4 colours. Its values are
    integers from 0 to 255, or floats from 0 to 1. Raise ValueError if an array is empty or invalid.
    """
    if not is_image(image):
        array = as_array(image)
        original = array
        if array.ndim == 2:
            array = array[..., None]
        elif array.ndim == 3 and array.shape[-1] not in (1, 3, 4):
            array = np.moveaxis(array, 0, -1)
        is_image_shape = array.ndim == 3 and array.shape[-1] in (1, 3, 4) and array.size > 0
        if not is_image_shape or array.dtype.kind not in "iuf":
            raise ValueError(
                "inputs: an image must have numbers and the shape (height, width), (height, width, "
                "colours) or (colours, height, width), with 1, 3 or 4 colours; got "
                f"{original.dtype} of shape {original.shape}"
            )
        highest = 1 if array.dtype.kind == "f" else 255
        # If the image contains NaN, both comparisons are False, so this is an error, too.
        if not (array.min() >= 0 and array.max() <= highest):
            raise ValueError(
                f"inputs: an image of {array.dtype} must have values from 0 to {highest}; got "
                f"{array.min():.4g} to {array.max():.4g}. Pass the model's pixel values as "
                "{'pixel_values': ...}."
            )
        from PIL import Image

        array = np.rint(array * (255 / highest)).astype(np.uint8)
        image = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    # Image processors do not accept an alpha channel.
    one_colour = 1 in config_values(model.config, "num_channels")
    return image if one_colour or image.mode == "RGB" else image.convert("RGB")


def _checked_sound(sound: Any, rate: int | None) -> NDArray[np.float32]:
    """Check a sound, and convert it into samples of one channel: float32, (samples,).

    `sound` is an array of floats, (samples,), or ``{"array": ..., "sampling_rate": ...}``. `rate`
    is the model's sampling rate in samples per second, or None if it is not known. Raise ValueError
    if the sound is empty or invalid, or states another sampling rate.
    """
    if isinstance(sound, Mapping):
        given_rate = sound.get("sampling_rate")
        if given_rate is not None and rate is not None and int(given_rate) != rate:
            raise ValueError(
                f"inputs: the sound has {given_rate} samples per second, and the model needs "
                f"{rate}. Resample it (librosa.resample, torchaudio.functional.resample)."
            )
        sound = sound["array"]
    samples = as_array(sound)
    are_floats = samples.dtype.kind == "f" and bool(np.isfinite(samples).all())
    if samples.ndim != 1 or not samples.size or not are_floats:
        raise ValueError(
            "inputs: a sound must have one channel, (samples,), of finite floats from -1 to 1; got "
            f"{samples.dtype} of shape {samples.shape}"
        )
    return samples.astype(np.float32, copy=False)


def check_media(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if images or sounds in a model's arguments are empty or not finite."""
    for name, value in arguments.items():
        if name.startswith((*IMAGES, *SOUNDS)) and isinstance(value, torch.Tensor):
            if not value.numel():
                raise ValueError(f"inputs: {name} is empty, {tuple(value.shape)}")
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise ValueError(f"inputs: {name} contains NaN or infinity")
