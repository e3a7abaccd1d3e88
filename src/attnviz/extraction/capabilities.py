"""What a model takes in, and images and sounds as models take them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel

from attnviz.extraction.inputs.examples import is_image

__all__ = ["SOUNDS", "Senses", "check_finite", "checked_image", "checked_sound", "senses_of"]

_IMAGES = ("pixel_values", "flattened_patches")
#: What models call the sound that they are given.
SOUNDS = ("input_values", "input_features", "audio_values")


@dataclass(frozen=True)
class Senses:
    """What a model takes.

    Attributes
    ----------
    name : str
        The model's class.
    reads, sees, hears : bool
        Whether it takes the ids of a text, images, sounds.
    """

    name: str
    reads: bool
    sees: bool
    hears: bool

    def __str__(self) -> str:
        kinds = {"texts": self.reads, "images": self.sees, "sounds": self.hears}
        return " and ".join(kind for kind, takes in kinds.items() if takes) or "nothing known"

    def refuse(self, given: str, way_out: str | None = None) -> TypeError:
        """Make the error for what it doesn't take."""
        if way_out is None:
            kinds = {
                "a text": self.reads,
                "an image (PIL, or an array)": self.sees,
                "a sound (an array)": self.hears,
            }
            fitting = [kind for kind, takes in kinds.items() if takes]
            way_out = f"give {' or '.join([*fitting, 'the output of its tokenizer or processor'])}"
        return TypeError(f"inputs: {self.name} takes {self}, and {given} was given; {way_out}")


def senses_of(model: PreTrainedModel) -> Senses:
    """Tell what a model takes by its arguments.

    Parameters
    ----------
    model : PreTrainedModel
        The model.

    Returns
    -------
    Senses
    """
    accepted = [*inspect.signature(model.forward).parameters]
    main = str(getattr(model, "main_input_name", "input_ids"))

    def takes(*names: str) -> bool:
        return any(each.startswith(names) for each in [*accepted, main])

    reads = "input_ids" in accepted
    sees = takes(*_IMAGES)
    # Time series have the same name as sounds, and no frames.
    return Senses(type(model).__name__, reads, sees, takes(*SOUNDS))


def checked_image(model: PreTrainedModel, image: Any) -> Any:
    """Take an image as an image processor takes it: with three colours from 0 to 255.

    Parameters
    ----------
    model : PreTrainedModel
        The model that is to see it.
    image : object
        An image of PIL, or an array: (height, width), or with 1, 3 or 4 colours, last or first;
        whole numbers from 0 to 255, or fractions from 0 to 1.

    Returns
    -------
    object
        An image of PIL, or uint8 with three colours; with one, where the model sees one.

    Raises
    ------
    TypeError, ValueError
        If it is none, or has nothing in it.
    """
    one_colour = 1 in _values(model.config, "num_channels")
    if is_image(image):
        if 0 in image.size:
            raise ValueError(f"inputs: the image is empty, {image.size[0]} x {image.size[1]}")
        # An alpha channel says what lies behind shines through: processors cannot take it.
        return image if one_colour or image.mode == "RGB" else image.convert("RGB")
    array = image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
    if array.ndim not in (2, 3) or (array.ndim == 3 and not {1, 3, 4} & {*array.shape[::2]}):
        raise ValueError(
            "inputs: an image is (height, width), (height, width, colours) or (colours, height, "
            f"width) with 1, 3 or 4 colours; got {array.shape}"
        )
    if not array.size:
        raise ValueError(f"inputs: the image is empty, {array.shape}")
    array = _colours(array)
    if array.ndim == 2:
        array = array[..., None]
    elif array.shape[-1] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if one_colour:
        return array
    return np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array[..., :3]


def _colours(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"inputs: an image holds numbers (uint8, or float from 0 to 1); got {array.dtype}"
        )
    if not np.isfinite(array).all():
        raise ValueError("inputs: the image holds NaN or infinite values")
    highest = 1 if array.dtype.kind == "f" else 255
    if array.min() < 0 or array.max() > highest:
        raise ValueError(
            f"inputs: an image of {array.dtype} holds values from 0 to {highest}; got "
            f"{array.min():.4g} to {array.max():.4g}. For pixel values as the model takes them "
            "give {'pixel_values': ...}"
        )
    return np.rint(array * (255 / highest)).astype(np.uint8)


def _values(config: Any, name: str) -> set[Any]:
    """What a configuration and those inside of it say under a name."""
    return {getattr(each, name, None) for each in _configs(config)}


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for each in vars(config).values():
        if isinstance(each, PreTrainedConfig):
            yield from _configs(each)


def checked_sound(sound: Any, rate: int | None) -> NDArray[np.float32]:
    """Take a sound as a feature extractor takes it: samples of one channel.

    Parameters
    ----------
    sound : array or mapping
        Floating point, (samples,); or ``{"array": ..., "sampling_rate": ...}``.
    rate : int or None
        Samples a second that the model was made for.

    Returns
    -------
    ndarray
        float32, (samples,).

    Raises
    ------
    TypeError, ValueError
        If it is none, has nothing in it, or was taken at another rate.
    """
    if isinstance(sound, Mapping):
        given = sound.get("sampling_rate")
        if given is not None and rate is not None and int(given) != int(rate):
            raise ValueError(
                f"inputs: the sound has {given} samples a second, and the model was made for "
                f"{rate}; resample it (librosa.resample, torchaudio.functional.resample)"
            )
        sound = sound["array"]
    samples = sound.detach().cpu().numpy() if isinstance(sound, torch.Tensor) else np.asarray(sound)
    if samples.ndim != 1:
        raise ValueError(
            f"inputs: a sound is (samples,) of one channel; got {samples.shape}. Of several "
            "channels give one, or their mean"
        )
    if samples.dtype.kind in "iu":
        raise TypeError(
            f"inputs: a sound is floating point from -1 to 1; got {samples.dtype}. Divide it by "
            f"{2 ** (8 * samples.dtype.itemsize - 1)}"
        )
    if not samples.size:
        raise ValueError("inputs: the sound is empty")
    if not np.isfinite(samples).all():
        raise ValueError("inputs: the sound holds NaN or infinite values")
    return samples.astype(np.float32, copy=False)


def check_length_of_sound(model: PreTrainedModel, arguments: Mapping[str, Any]) -> None:
    """Refuse a sound of which a model's convolutions leave nothing.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    arguments : mapping
        What it will be given.

    Raises
    ------
    ValueError
        With the number of samples.
    """
    values = arguments.get("input_values")
    frames = getattr(model, "_get_feat_extract_output_lengths", None)
    if isinstance(values, torch.Tensor) and values.dim() == 2 and callable(frames):
        try:
            left = int(frames(torch.tensor(values.shape[1])))
        except AttributeError:
            # transformers' own method asks for what some encoders' configurations lack.
            return
        if left < 1:
            raise ValueError(
                f"inputs: a sound of {values.shape[1]} samples is shorter than one frame of "
                f"{type(model).__name__}; give a longer one"
            )


def check_finite(arguments: Mapping[str, Any]) -> None:
    """Refuse pixel values and features of a sound that are no numbers.

    Parameters
    ----------
    arguments : mapping
        What the model will be given.

    Raises
    ------
    ValueError
        With the argument's name.
    """
    for name, value in arguments.items():
        if name.startswith((*_IMAGES, *SOUNDS)) and isinstance(value, torch.Tensor):
            if not value.numel():
                raise ValueError(f"inputs: {name} is empty, {tuple(value.shape)}")
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise ValueError(f"inputs: {name} holds NaN or infinite values")
