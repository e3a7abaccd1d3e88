"""Images and sounds, alone or with a text, encoded by a model's processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from attnviz.extraction.inputs import is_image

__all__ = ["encode_chat", "encode_image", "encode_image_and_text", "encode_sound", "has_media"]


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


def encode_image(model: PreTrainedModel, image: Any, processor: Any) -> Mapping[str, Any]:
    """Encode an image for a model that takes nothing else.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    image : object
        An image of PIL or an array.
    processor : object or None
        The model's image processor.

    Returns
    -------
    mapping
        The processor's output.

    Raises
    ------
    TypeError
        If it is no image.
    ValueError
        If there is no processor.
    """
    if not (is_image(image) or isinstance(image, np.ndarray | torch.Tensor)):
        raise TypeError(
            f"inputs: {type(model).__name__} takes images, and a {type(image).__name__} was "
            "given; give an image (PIL, or an array), pixel values, or a processor's output"
        )
    if processor is None:
        raise ValueError(
            "processor: an image was given, and no image processor was found beside the "
            "model; give it as processor=, or give pixel values as inputs"
        )
    encoded: Mapping[str, Any] = processor(images=image, return_tensors="pt")
    return encoded


def encode_image_and_text(
    model: PreTrainedModel, pair: tuple[Any, Any], processor: Any, *, ends_open: bool
) -> Mapping[str, Any]:
    """Encode an image and a text about it, as one chat message where the processor knows chats.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    pair : tuple
        An image and a text, in any order.
    processor : object or None
        The model's processor, which encodes both.
    ends_open : bool
        Whether an answer is to come.

    Returns
    -------
    mapping
        The processor's output.

    Raises
    ------
    ValueError
        If there is no processor of both.
    """
    image, text = (pair[1], pair[0]) if isinstance(pair[0], str) else pair
    _need_both(model, processor, "an image and a text were given")
    marks = [getattr(processor, name, None) for name in ("image_token", "boi_token")]
    marked = any(isinstance(mark, str) and mark in text for mark in marks)
    if getattr(processor, "chat_template", None) and not marked:
        content = [{"type": "image", "image": image}, {"type": "text", "text": text}]
        return encode_chat(
            model, [{"role": "user", "content": content}], processor, ends_open=ends_open
        )
    if not marked and isinstance(marks[0], str):
        text = marks[0] + text
    encoded: Mapping[str, Any] = processor(images=image, text=text, return_tensors="pt")
    return encoded


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
    ValueError
        If there is no processor, or it has no chat template.
    """
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


def encode_sound(model: PreTrainedModel, sound: Any, processor: Any) -> Mapping[str, Any]:
    """Encode a sound.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    sound : array
        Floating point, (samples,), at the sampling rate that the model was made for.
    processor : object or None
        The model's processor or feature extractor.

    Returns
    -------
    mapping
        The processor's output.

    Raises
    ------
    ValueError
        If there is no processor.
    """
    extractor = getattr(processor, "feature_extractor", processor)
    if extractor is None:
        raise ValueError(
            "processor: a sound was given, and no feature extractor was found beside the model; "
            f"give {type(model).__name__}'s as processor=, or give its output as inputs"
        )
    samples = sound.detach().cpu().numpy() if isinstance(sound, torch.Tensor) else sound
    encoded: Mapping[str, Any] = extractor(
        samples, sampling_rate=extractor.sampling_rate, return_tensors="pt"
    )
    return encoded
