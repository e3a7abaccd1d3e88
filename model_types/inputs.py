"""Find inputs for a tiny model from the names of its forward's arguments.

A candidate is a dict of arguments with random tensors. The model is called with one candidate after
the other until it accepts one. A placeholder is a token of a text that stands for a part of an
image, a sound or a video.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from model_types.input_tensors import as_tensor
from model_types.shrink import token_ids
from model_types.sizes import SPECIAL_IDS

# Number of tokens of a text, and number of tokens of the text of a decoder. The numbers differ, so
# that the weights of encoder, decoder and cross-attention have different shapes.
_TEXT_LENGTH = 14
_DECODER_LENGTH = 9
# Error message about a wrong number of placeholders. "present" is the number of placeholders in the
# text, "wanted" the number of vectors that the model makes of the image, sound or video.
_MISMATCH = re.compile(
    r"tokens?\D{0,20}(?P<present>\d+).{0,40}?features?\D{0,20}(?P<wanted>\d+)"
    r"|features?\D{0,20}(?P<wanted_first>\d+).{0,40}?tokens?\D{0,20}(?P<present_then>\d+)",
    re.IGNORECASE | re.DOTALL,
)
_PICTURES = {"hidden_states", "pixel_values", "pixel_values_videos"}
# Names of the nested configurations of image encoders.
_PARTS_THAT_SEE = (
    "vision_config",
    "visual_config",
    "image_config",
    "encoder",
    "vit_config",
    "backbone_config",
)
# Names of the nested configurations of sound encoders.
_PARTS_THAT_HEAR = ("audio_config", "encoder_config", "speech_config", "encoder")
# Names of settings with the number of frequencies of a spectrogram.
_BINS = (
    "num_mel_bins",
    "input_feat_size",
    "feature_size",
    "n_mels",
    "input_dim",
    "n_mel_bins",
    "feature_projection_input_dim",
)

Inputs = dict[str, Any]
Run = Callable[[Inputs], Any]


def find_inputs(model: PreTrainedModel, run: Run, written: Mapping[str, Any] | None) -> Inputs:
    """Return inputs that the model accepts, if possible a text with an image or a sound.

    `run` calls the model. `written` has the inputs in the entry of `overrides` for the model type,
    or is None. These inputs replace the inputs of the same names in each candidate. If the value of
    an input in `written` is None, the input is removed from each candidate.

    If the model accepts no candidate, raise the error that the model raised for the first
    candidate. Raise LookupError without candidates.
    """
    first: Exception | None = None
    for candidate in _Maker(model).all():
        random = torch.Generator().manual_seed(2)
        written_tensors = {
            name: as_tensor(value, random) for name, value in (written or {}).items()
        }
        inputs = {
            n: value for n, value in (candidate | written_tensors).items() if value is not None
        }
        try:
            return fitted(model, inputs, run)
        # A model may raise any exception for inputs that it does not accept.
        except Exception as error:  # noqa: BLE001
            first = first or error
    raise first or LookupError("no inputs to try")


def fitted(model: PreTrainedModel, inputs: Inputs, run: Run) -> Inputs:
    """Run the model, and return the inputs that it accepts.

    If the model raises a ValueError that states the required number of placeholders, and the inputs
    contain `input_ids`, correct the number of placeholders in them and run the model again. Do this
    at most three times. Raise all other errors of the model.
    """
    for _ in range(3):
        try:
            run(inputs)
        except ValueError as error:
            match = _MISMATCH.search(str(error))
            if match is None or "input_ids" not in inputs:
                raise
            present = match["present"] or match["present_then"]
            required = match["wanted"] or match["wanted_first"]
            _set_placeholders(model.config, inputs, int(present), int(required))
        else:
            return inputs
    run(inputs)
    return inputs


def _set_placeholders(
    config: PretrainedConfig, inputs: Inputs, present: int, required: int
) -> None:
    ids = inputs["input_ids"][0].tolist()
    numbers = [placeholder(config, kind) for kind in ("image", "audio", "video")]
    # The error states the number of placeholders in the text, but not whether they stand for an
    # image, a sound or a video. Take the kind of placeholder that occurs `present` times in the
    # text, or that of images if no kind does.
    number = next((n for n in numbers if n is not None and ids.count(n) == present), numbers[0])
    if number is None:
        return
    start = ids.index(number) if number in ids else 3
    others = [entry for entry in ids if entry != number]
    inputs["input_ids"] = torch.tensor([others[:start] + [number] * required + others[start:]])
    if "attention_mask" in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == number).long()


def placeholder(config: PretrainedConfig, kind: str) -> int | None:
    """Return the token id of the placeholder for `kind`: "image", "audio" or "video".

    Return None if the configuration has no such id.
    """
    ids = token_ids(config)
    endings = ("token_id", "token_index", "context_token_id", "pad_token_id", "patch_id")
    return next((ids[n] for e in endings if (n := f"{kind}_{e}") in ids), None)


class _Maker:
    """Source of candidates for one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.config = model.config
        self.random = torch.Generator().manual_seed(1)
        self.names = {
            name
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }

    def all(self) -> Iterator[Inputs]:
        """Yield candidates in the following order.

        - For each image or sound: with a text that has placeholders, with a text without
          placeholders, with a text only for the decoder, and without a text. Texts are left out if
          the model does not take the argument for them.
        - A text without an image or a sound, if the model takes `input_ids`.
        - Otherwise random vectors as `inputs_embeds` or `hidden_states`, if the model takes these,
          and then the model's `dummy_inputs`.
        """
        with_text = "input_ids" in self.names
        for kind, beside in self._beside_text():
            if with_text:
                yield self._text(beside, kind)
                yield self._text(beside, None)
            if "decoder_input_ids" in self.names:
                yield beside | {"decoder_input_ids": self._ids(_DECODER_LENGTH)}
            yield beside
        if with_text:
            yield self._text({}, None)
            return
        width = _number(self.config, ("hidden_size", "d_model", "embed_dim"), 64)
        for name in ("inputs_embeds", "hidden_states"):
            if name in self.names:
                yield {name: self._normal(1, _TEXT_LENGTH, width)}
        yield {n: value for n, value in self.model.dummy_inputs.items() if n in self.names}

    def _beside_text(self) -> Iterator[tuple[str, Inputs]]:
        if self.names & _PICTURES:
            for picture in self._pictures():
                yield "image", picture
        for sound in self._sounds():
            yield "audio", sound

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.random)

    def _ids(self, length: int) -> torch.Tensor:
        return torch.randint(60, 200, (1, length), generator=self.random)

    def _text(self, beside: Inputs, kind: str | None) -> Inputs:
        ids = self._ids(_TEXT_LENGTH)
        inputs: Inputs = dict(beside)
        number = None if kind is None else placeholder(self.config, kind)
        if kind is not None and number is not None:
            count = self._count_of_features(kind, beside)
            ids = torch.cat([ids[:, :3], torch.full((1, count), number), ids[:, 3:]], dim=1)
            if "mm_token_type_ids" in self.names:
                inputs["mm_token_type_ids"] = (ids == number).long()
        inputs["input_ids"] = ids
        if "attention_mask" in self.names:
            inputs["attention_mask"] = torch.ones_like(ids)
        if "decoder_input_ids" in self.names:
            inputs["decoder_input_ids"] = self._ids(_DECODER_LENGTH)
            if type(self.model).__name__.endswith("ForSequenceClassification"):
                # The model makes the text of the decoder from the text of the encoder. It needs an
                # end token, because it classifies the text by the vector of this token.
                del inputs["decoder_input_ids"]
                ids[0, -1] = SPECIAL_IDS["eos_token_id"]
        if "bbox" in self.names:
            corners = torch.randint(0, 50, (1, ids.shape[1], 2), generator=self.random)
            inputs["bbox"] = torch.cat([corners, corners + 20], dim=-1)
        if "qformer_input_ids" in self.names:
            inputs["qformer_input_ids"] = self._ids(6)
        return inputs

    def _count_of_features(self, kind: str, beside: Inputs) -> int:
        """Return how many vectors the model makes of the image or sound in `beside`.

        Return 4 if the model has no method that computes these vectors (such as
        `get_image_features`), or if this method fails.
        """
        ask = getattr(self.model, f"get_{kind}_features", None)
        if ask is None:
            return 4
        parameters = inspect.signature(ask).parameters
        takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        try:
            with torch.no_grad():
                features = ask(**{n: v for n, v in beside.items() if takes_rest or n in parameters})
            features = getattr(features, "pooler_output", features)
            parts = features if isinstance(features, list | tuple) else [features]
            return sum(part.numel() // part.shape[-1] for part in parts)
        except Exception:  # noqa: BLE001
            return 4

    def _pictures(self) -> Iterator[Inputs]:
        config = self._part(_PARTS_THAT_SEE)
        channels = _number(config, ("num_channels", "in_channels", "in_chans"), 3)
        size = getattr(config, "image_size", None) or getattr(self.config, "image_size", None) or 32
        height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
        frames = _number(config, ("num_frames", "frames_per_clip"), 0)
        patch = _number(config, ("patch_size",), 8)
        for grid in ("image_grid_thw", "grid_thw", "image_grid_hw"):
            if grid in self.names:
                deep = _number(config, ("temporal_patch_size",), 1)
                name = "pixel_values" if "pixel_values" in self.names else "hidden_states"
                yield {
                    name: self._normal(16, channels * deep * patch * patch),
                    grid: torch.tensor([[4, 4]] if grid == "image_grid_hw" else [[1, 4, 4]]),
                }
        if "spatial_shapes" in self.names:
            yield {
                "pixel_values": self._normal(1, 16, channels * patch * patch),
                "pixel_attention_mask": torch.ones(1, 16, dtype=torch.long),
                "spatial_shapes": torch.tensor([[4, 4]]),
            }
        if "pixel_values_videos" in self.names and "pixel_values" not in self.names:
            yield {"pixel_values_videos": self._normal(1, frames or 4, channels, height, width)}
        if "pixel_values" not in self.names:
            return
        sizes = {"image_sizes": torch.tensor([[height, width]])}
        extra: Inputs = sizes if "image_sizes" in self.names else {}
        if frames:
            yield {"pixel_values": self._normal(1, frames, channels, height, width)} | extra
        plain: Inputs = {"pixel_values": self._normal(1, channels, height, width)}
        if extra:
            yield plain
        yield plain | extra
        for count in (1, 3):
            yield {"pixel_values": self._normal(1, count, channels, height, width)} | extra

    def _sounds(self) -> Iterator[Inputs]:
        config = self._part(_PARTS_THAT_HEAR)
        bins = _number(config, _BINS, 0) or _number(self.config, _BINS, 80)
        if "input_features" in self.names:
            positions = _number(config, ("max_source_positions",), 24)
            for frames in (2 * positions, 64, 200):
                for shape in ((1, bins, frames), (1, frames, bins)):
                    features: Inputs = {"input_features": self._normal(*shape)}
                    for mask in ("input_features_mask", "feature_attention_mask"):
                        if mask in self.names:
                            flags = torch.ones(1, frames, dtype=torch.long)
                            yield features | {mask: flags}
                            yield features | {mask: flags.bool()}
                    yield features
        if "input_values" in self.names:
            yield {"input_values": self._normal(1, 1600)}
            yield {"input_values": self._normal(1, 1, 1920 * 4)}
            frames = _number(self.config, ("max_length",), 64)
            yield {"input_values": self._normal(1, frames, bins)}

    def _part(self, names: tuple[str, ...]) -> Any:
        """Return the first nested configuration among `names` that the model's configuration has.

        If the model's configuration has a `thinker_config`, search only in `thinker_config`. If no
        nested configuration has one of the names, return the searched configuration.
        """
        whole = getattr(self.config, "thinker_config", self.config)
        parts = (getattr(whole, name, None) for name in names)
        return next((part for part in parts if isinstance(part, PretrainedConfig)), whole)


def _number(config: Any, names: tuple[str, ...], otherwise: int) -> int:
    """Return the value of the first setting in `names` that is an integer or a list of integers.

    For a list, return its first entry. Return `otherwise` if no setting is of these kinds.
    """
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return otherwise
