"""Images and sounds, alone or with a text, encoded by a model's processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedModel

from attnviz.extraction.capabilities import Senses, checked_image, checked_sound, senses_of
from attnviz.extraction.inputs.examples import is_image, is_media_and_text, is_sound

__all__ = ["Seen", "encode_chat", "encode_media", "has_media"]


def has_media(messages: Sequence[Any]) -> bool:
    """Whether any of some chat messages holds an image, a video or a sound.

    Parameters
    ----------
    messages : sequence of mapping
        Chat messages; a content is a text, or a list of parts.

    Returns
    -------
    bool
    """
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(isinstance(part, Mapping) and part.get("type", "text") != "text" for part in parts)


@dataclass(frozen=True)
class Seen:
    """An encoded image or sound.

    Attributes
    ----------
    encoded : mapping
        What the model takes.
    processor : object or None
        What made it; None where it was given like that.
    samples : int
        How many samples a sound had.
    """

    encoded: Mapping[str, Any]
    processor: Any = None
    samples: int = 0


def encode_media(
    model: PreTrainedModel,
    example: Any,
    find: Callable[[Literal["of both", "of images", "of sounds"]], Any],
    *,
    ends_open: bool,
) -> Seen | None:
    """Encode an image or a sound, alone or with a text.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    example : object
        As `attnviz.extraction.inputs.examples.examples_of` gives it.
    find : callable
        Finds the processor of what is to be encoded; gives None where there is none.
    ends_open : bool
        Whether an answer is to come.

    Returns
    -------
    Seen or None
        None where the example is neither.

    Raises
    ------
    TypeError
        If the model takes no such thing.
    ValueError
        If there is nothing in it, or no processor.
    """
    senses = senses_of(model)
    if is_media_and_text(example):
        sound = any(map(is_sound, example))
        if not (senses.reads and (senses.hears if sound else senses.sees)):
            given = "a sound with a text" if sound else "an image with a text"
            raise senses.refuse(given)
        processor = find("of both")
        return Seen(_with_text(model, example, processor, ends_open=ends_open), processor)
    array = isinstance(example, np.ndarray | torch.Tensor)
    if is_sound(example) or (array and senses.hears and not senses.reads):
        if not senses.hears:
            raise senses.refuse("a sound (an array of floating point)")
        processor = find("of sounds")
        samples = example["array"] if isinstance(example, Mapping) else example
        return Seen(_sound(model, example, processor), processor, len(samples))
    only = (
        senses.sees and not senses.reads and not isinstance(example, list | Mapping | str | tuple)
    )
    if only or is_image(example) or (senses.sees and array and example.ndim == 3):
        return _image(model, senses, example, find)
    return None


def _image(
    model: PreTrainedModel,
    senses: Senses,
    image: Any,
    find: Callable[[Literal["of both", "of images", "of sounds"]], Any],
) -> Seen:
    if not senses.sees:
        raise senses.refuse("an image")
    if senses.reads:
        raise senses.refuse("an image without a text", "give (image, text)")
    pixels = isinstance(image, torch.Tensor) and image.is_floating_point()
    if pixels and image.dim() in (3, 4):
        return Seen({"pixel_values": image if image.dim() == 4 else image[None]})
    if not (is_image(image) or isinstance(image, np.ndarray | torch.Tensor)):
        raise senses.refuse(f"a {type(image).__name__}")
    image, processor = checked_image(model, image), find("of images")
    if processor is None:
        raise ValueError(
            "processor: an image was given, and no image processor was found beside the "
            "model; give it as processor=, or give pixel values as inputs"
        )
    return Seen(processor(images=image, return_tensors="pt"), processor)


def _with_text(
    model: PreTrainedModel, pair: tuple[Any, Any], processor: Any, *, ends_open: bool
) -> Mapping[str, Any]:
    """Encode both, as a chat message where the processor knows chats."""
    given, text = (pair[1], pair[0]) if isinstance(pair[0], str) else pair
    sound = is_sound(given)
    kind = "audio" if sound else "image"
    _need_both(model, processor, f"{'a sound' if sound else 'an image'} and a text were given")
    rate = _rate(processor)
    given = checked_sound(given, rate) if sound else checked_image(model, given)
    marks = [getattr(processor, name, None) for name in (f"{kind}_token", "boi_token")]
    marked = any(isinstance(mark, str) and mark in text for mark in marks)
    if getattr(processor, "chat_template", None) and not marked:
        content = [{"type": kind, kind: given}, {"type": "text", "text": text}]
        return encode_chat(
            model, [{"role": "user", "content": content}], processor, ends_open=ends_open
        )
    if not marked and isinstance(marks[0], str):
        text = marks[0] + text
    media = {"audio": given, "sampling_rate": rate} if sound else {"images": given}
    encoded: Mapping[str, Any] = processor(text=text, return_tensors="pt", **media)
    return encoded


def _rate(processor: Any) -> int | None:
    """Samples a second of the sounds that a processor takes."""
    rate = getattr(getattr(processor, "feature_extractor", processor), "sampling_rate", None)
    return None if rate is None else int(rate)


def encode_chat(
    model: PreTrainedModel, messages: Sequence[Any], processor: Any, *, ends_open: bool
) -> Mapping[str, Any]:
    """Encode chat messages that hold images or sounds.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    messages : sequence of mapping
        The messages, as ``processor.apply_chat_template`` takes them.
    processor : object or None
        The model's processor.
    ends_open : bool
        Whether an answer is to come.

    Returns
    -------
    mapping
        The processor's output.

    Raises
    ------
    TypeError
        If the model takes no such thing.
    ValueError
        If there is no processor, or it has no chat template.
    """
    senses = senses_of(model)
    if not (senses.reads and (senses.sees or senses.hears)):
        raise senses.refuse("a chat with images or sounds")
    _need_both(model, processor, "chat messages with images or sounds were given")
    if not getattr(processor, "chat_template", None):
        raise ValueError(
            "processor: chat messages were given, and the processor has no chat template; set "
            "processor.chat_template, or give the processor's own output"
        )
    encoded: Mapping[str, Any] = processor.apply_chat_template(
        list(messages),
        add_generation_prompt=ends_open,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    return encoded


def _need_both(model: PreTrainedModel, processor: Any, given: str) -> None:
    if processor is None or not hasattr(processor, "apply_chat_template"):
        raise ValueError(
            f"processor: {given}, and no processor of both was found beside the model; give "
            f"{type(model).__name__}'s as processor= (AutoProcessor.from_pretrained), or give its "
            "output as inputs"
        )


def _sound(model: PreTrainedModel, sound: Any, processor: Any) -> Mapping[str, Any]:
    samples = checked_sound(sound, _rate(processor))
    extractor = getattr(processor, "feature_extractor", processor)
    if extractor is None:
        raise ValueError(
            "processor: a sound was given, and no feature extractor was found beside the model; "
            f"give {type(model).__name__}'s as processor=, or give its output as inputs"
        )
    encoded: Mapping[str, Any] = extractor(
        samples, sampling_rate=extractor.sampling_rate, return_tensors="pt"
    )
    return encoded
