"""Make a tiny configuration of any model type: the default configuration with smaller sizes.

The small sizes are in `model_types.sizes`. Settings of single model types are in
`model_types.overrides`. A part is a configuration in another configuration, such as `text_config`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from model_types.overrides import OVERRIDES
from model_types.sizes import (
    FILLED,
    LAYER_COUNTS,
    LAYER_LISTS,
    SIZES,
    SPECIAL_IDS,
    STAGE_DEPTHS,
    UPPER_BOUNDS,
    VOCABULARY,
)

_TOKEN = re.compile(r"token_?(id|index)$|_(bos|eos|pad|start|end|patch)_id$|im_\w+_id$")
# Settings that are not changed, because they are not sizes, or follow from other settings.
_LEFT_ALONE = {
    "architectures",
    "dtype",
    "id2label",
    "label2id",
    "per_layer_config",
    "rope_parameters",
    "transformers_version",
    "vision_feature_layer",
}


def tiny_config(model_type: str, changes: Mapping[str, Any]) -> PretrainedConfig:
    """Return the tiny configuration of a model type.

    `changes` has settings whose values are used instead of the small sizes. The settings of a part
    are a dict in `changes`. The part also has the settings in the `overrides` for its model type.
    If a setting is in both, the value in `changes` counts.

    A part can be replaced by a part of another model type, which the key "model_type" of its dict
    names. The new part has the small sizes and the settings in the dict, and not the settings in
    the `overrides`.
    """
    return _shrunk(CONFIG_MAPPING[model_type](), changes, _Ids())


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested dicts of settings. Values of `other` replace values of `one`."""
    result = dict(one)
    for name, value in other.items():
        previous = result.get(name)
        if isinstance(previous, Mapping) and isinstance(value, Mapping):
            result[name] = merged(previous, value)
        else:
            result[name] = value
    return result


def token_ids(config: PretrainedConfig) -> dict[str, int]:
    """Return the ids of special tokens in a configuration and its parts.

    The keys are the names of the settings, such as "pad_token_id". If a setting is in the
    configuration and in a part, the id in the configuration counts. Ids that are not in the tiny
    vocabulary are left out.
    """
    ids: dict[str, int] = {}
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            for inner, number in token_ids(value).items():
                ids.setdefault(inner, number)
        elif _TOKEN.search(name) and isinstance(value, int) and 0 <= value < VOCABULARY:
            ids[name] = value
    return ids


class _Ids:
    """Source of small ids for special tokens.

    A setting, such as "image_token_id", gets the same id in all parts.
    """

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        if name in SPECIAL_IDS:
            return SPECIAL_IDS[name]
        stem = name.removesuffix("_id").removesuffix("_index")
        return self._given.setdefault(stem, 10 + len(self._given))


def _shrunk(default: PretrainedConfig, changes: Mapping[str, Any], ids: _Ids) -> PretrainedConfig:
    kind = type(default)
    layers = _layers_of(default, changes)
    settings = _settings_that_belong_together(default, changes, layers)
    accepted = set(inspect.signature(kind.__init__).parameters) | set(SPECIAL_IDS)
    accepted |= set(getattr(kind, "__dataclass_fields__", {}))
    for name, value in vars(default).items():
        if name in changes or name in settings or name in _LEFT_ALONE or name.startswith("_"):
            continue
        if isinstance(value, PretrainedConfig):
            settings[name] = _shrunk_part(value, {}, ids)
        elif name in accepted and (small := _smaller(name, value, layers, ids)) is not None:
            settings[name] = small
    for name, value in changes.items():
        part = vars(default).get(name)
        if isinstance(value, Mapping) and "model_type" in value:
            own_settings = {n: entry for n, entry in value.items() if n != "model_type"}
            settings[name] = tiny_config(value["model_type"], own_settings)
        elif isinstance(value, Mapping) and isinstance(part, PretrainedConfig):
            settings[name] = _shrunk_part(part, value, ids)
        else:
            settings[name] = value
    config = kind(**settings)
    parts = {name: part for name, part in settings.items() if isinstance(part, PretrainedConfig)}
    if all(hasattr(config, name) for name in parts):
        return config
    # Before transformers 5.2, some configurations accept parts only as dicts.
    return kind(**settings | {name: part.to_dict() for name, part in parts.items()})


def _shrunk_part(part: PretrainedConfig, changes: Mapping[str, Any], ids: _Ids) -> PretrainedConfig:
    """Return the tiny configuration of a part.

    It has the settings in the `overrides` for the model type of the part, and those in `changes`.
    If a setting is in both, the value in `changes` counts.
    """
    own = OVERRIDES.get(part.model_type, {}).get("config", {})
    return _shrunk(part, merged(own, changes), ids)


@dataclass(frozen=True)
class _Layers:
    """The layers of the default configuration that are kept.

    Attributes
    ----------
    number : int
        Number of layers in the default configuration, or 0 if unknown.
    kept : sequence of int
        Numbers of the kept layers. If the layers have kinds, such as sliding-window and full
        attention, these are the first two layers of each kind. Otherwise they are the first two
        layers, or the first `num_hidden_layers` layers if the caller changes this setting. Empty if
        `number` is unknown.
    staged : bool
        Whether the layers are divided into stages. A setting then lists the number of layers in
        each stage. All stages are kept, and `number` and `kept` are not used.
    """

    number: int
    kept: Sequence[int]
    staged: bool = False


def _layers_of(default: PretrainedConfig, changes: Mapping[str, Any]) -> _Layers:
    values = vars(default)
    if any(isinstance(values.get(name), list | tuple) for name in STAGE_DEPTHS):
        return _Layers(0, (), staged=True)
    number = getattr(default, "num_hidden_layers", None)
    if not isinstance(number, int):
        return _Layers(0, ())
    kinds = getattr(default, "layer_types", None) or getattr(default, "layers_block_type", None)
    if not isinstance(kinds, list | tuple) or len(kinds) != number or number <= 2:
        return _Layers(number, range(min(number, changes.get("num_hidden_layers", 2))))
    selected: list[int] = []
    for kind in dict.fromkeys(kinds):
        selected += [index for index, other in enumerate(kinds) if other == kind][:2]
    return _Layers(number, sorted(selected))


def _settings_that_belong_together(
    default: PretrainedConfig, changes: Mapping[str, Any], layers: _Layers
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if "kv_lora_rank" in vars(default):
        # Latent attention needs as many key heads as heads.
        settings["num_key_value_heads"] = SIZES["num_attention_heads"]
    stages = vars(default).get("_out_indices")
    overridden = changes.keys() & {"out_indices", "out_features"}
    if isinstance(stages, list | tuple) and len(stages) > 1 and not overridden:
        # This is the configuration of a backbone, an image encoder that returns the outputs of
        # several stages. Return as many as in the default configuration. If the backbone has no
        # stages, each of its layers counts as a stage.
        settings["out_indices"] = list(stages)
        if not layers.staged:
            settings["out_indices"] = list(range(1, len(stages) + 1))
            settings["num_hidden_layers"] = len(stages)
    rope = _rope(default)
    if rope is not None:
        settings["rope_parameters"] = rope
    return {name: value for name, value in settings.items() if name not in changes}


def _rope(default: PretrainedConfig) -> dict[str, Any] | None:
    """Return parameters of rotary position embeddings that fit a small head.

    Their entry "mrope_section" divides the pairs of dimensions of a head among time, height and
    width. Return None if the configuration does not use "mrope_section", or if its parameters lack
    "rope_theta".
    """
    parameters = vars(default).get("rope_parameters")
    rope_names = getattr(type(default), "ignore_keys_at_rope_validation", None) or ()
    if "mrope_section" not in rope_names or not isinstance(parameters, Mapping):
        return None
    if "rope_theta" not in parameters:
        return None
    pairs = int(SIZES["head_dim"] * (parameters.get("partial_rotary_factor") or 1.0)) // 2
    sections = [pairs // 3 + (index < pairs % 3) for index in range(3)]
    return {**parameters, "mrope_section": sections}


def _smaller(name: str, value: Any, layers: _Layers, ids: _Ids) -> Any:
    """Return a small value for a setting, or None to keep the default."""
    if value is None:
        return FILLED.get(name)
    if isinstance(value, bool | str | Mapping):
        return None
    if name in SPECIAL_IDS or _TOKEN.search(name):
        return [ids(name)] if isinstance(value, list | tuple) else ids(name)
    if isinstance(value, list | tuple):
        return _smaller_list(name, value, layers)
    if name in LAYER_COUNTS:
        return _smaller_count(name, value, layers)
    size = SIZES.get(name)
    smaller = name in UPPER_BOUNDS and isinstance(size, int) and value < size
    return value if smaller else size if isinstance(size, int) else None


def _smaller_count(name: str, value: Any, layers: _Layers) -> int | None:
    if layers.staged or not isinstance(value, int):
        return None
    if value == layers.number > 0 and name in ("num_hidden_layers", "n_layer"):
        return len(layers.kept)
    return min(value, 2)


def _smaller_list(name: str, value: Sequence[Any], layers: _Layers) -> Any:
    size = SIZES.get(name)
    smaller: Sequence[Any] | None = None
    if name in LAYER_LISTS:
        smaller = [1]
    elif isinstance(size, tuple):
        smaller = size
    elif name in ("image_size", "patch_size") and value and isinstance(value[0], int):
        smaller = [size] * len(value)
    elif name in STAGE_DEPTHS:
        smaller = [min(entry, 2) for entry in value]
    elif len(value) == layers.number > 2:
        smaller = [value[index] for index in layers.kept]
    if smaller is None:
        return None
    return tuple(smaller) if isinstance(value, tuple) else list(smaller)
