"""Make a tiny random model of any model type.

Parameters that would hardly affect the output get other values (see `_enliven`).
"""

from __future__ import annotations

import importlib
import inspect
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from model_types.shrink import tiny_config

# Mappings of transformers from model types to classes. The class of a model type comes from the
# first mapping that has the model type. Mappings to classes that need few inputs come first.
_MAPPINGS = (
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_KEYPOINT_MATCHING_MAPPING_NAMES",
    "MODEL_FOR_BACKBONE_MAPPING_NAMES",
)
_MAX_PARAMETERS = 60_000_000


def seed_of(model_type: str) -> int:
    """Return a seed that depends only on a name, so that every check draws the same numbers."""
    return zlib.crc32(model_type.encode())


def class_of(model_type: str, class_name: str | None = None) -> type[PreTrainedModel]:
    """Return the class `class_name`, or the base model of the model type if `class_name` is None.

    If the model type has no base model, return another of its classes. Raise LookupError if
    transformers does not have the class, or no class for the model type.
    """
    if class_name is not None:
        return _named(model_type, class_name)
    for mapping in _MAPPINGS:
        names = getattr(modeling_auto, mapping, {}).get(model_type)
        if names:
            name = names if isinstance(names, str) else names[0]
            return _named(model_type, name)
    for kind in _classes_beside(CONFIG_MAPPING[model_type]):
        return kind
    raise LookupError(f"transformers names no model class for {model_type}")


def _named(model_type: str, name: str) -> type[PreTrainedModel]:
    candidate = getattr(transformers, name, None)
    if candidate is None:
        for module in _modeling_modules(CONFIG_MAPPING[model_type]):
            candidate = getattr(module, name, None)
            if candidate is not None:
                break
    if candidate is None:
        raise LookupError(f"transformers has no class {name}")
    kind: type[PreTrainedModel] = candidate
    return kind


def _modeling_modules(kind: type[PretrainedConfig]) -> Iterator[Any]:
    source = kind.__module__
    yield importlib.import_module(source.replace("configuration_", "modeling_"))


def _classes_beside(kind: type[PretrainedConfig]) -> Iterator[type[PreTrainedModel]]:
    """Yield the model classes whose configuration class is `kind`.

    The classes are defined in the file ``modeling_*.py`` beside the file that defines `kind`.
    Classes with "For" in their names, which are for special tasks, come last.
    """
    for module in _modeling_modules(kind):
        fitting = [
            candidate
            for _, candidate in inspect.getmembers(module, inspect.isclass)
            if issubclass(candidate, PreTrainedModel)
            and candidate.__module__ == module.__name__
            and getattr(candidate, "config_class", None) is kind
            and "forward" in vars(candidate)
        ]
        yield from sorted(
            fitting, key=lambda candidate: ("For" in candidate.__name__, candidate.__name__)
        )


def tiny_model(
    model_type: str, class_name: str | None, changes: Mapping[str, Any]
) -> PreTrainedModel:
    """Return a tiny random model in evaluation mode. Equal arguments give equal models.

    `class_name` is None for the base model. `changes` contains settings of the configuration (see
    `tiny_config`). Raise MemoryError if the model has more than `_MAX_PARAMETERS` parameters.
    """
    kind = class_of(model_type, class_name)
    config = _of_kind(kind, tiny_config(model_type, changes))
    torch.manual_seed(seed_of(model_type))
    with _nan_in_new_memory():
        model = kind._from_config(config) if hasattr(kind, "_from_config") else kind(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > _MAX_PARAMETERS:
        raise MemoryError(f"{count / 1e6:.0f} million parameters are too many for a tiny model")
    _enliven(model)
    return model.float().eval()


@contextmanager
def _nan_in_new_memory() -> Iterator[None]:
    """Within the context, fill the memory of new tensors with NaN.

    Some classes do not initialize all parameters, such as the experts of `Qwen3OmniMoeTalkerModel`.
    Their parameters would contain what the memory contained before, which differs between runs.
    `_enliven` replaces NaN by random numbers.
    """
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=False)


def _of_kind(kind: type[PreTrainedModel], config: PretrainedConfig) -> PretrainedConfig:
    """Return the configuration that the model class `kind` needs.

    This is `config`, or a configuration in `config`, such as `text_config`. Return `config` if
    neither has the class that `kind` needs.
    """
    config_class = kind.config_class
    parts = [part for part in vars(config).values() if isinstance(part, PretrainedConfig)]
    if config_class is None or isinstance(config, config_class):
        return config
    return next((part for part in parts if isinstance(part, config_class)), config)


@torch.no_grad()
def _enliven(model: nn.Module) -> None:
    """Change the parameters so that each affects the output.

    - Parameters that are all 0, such as position biases, gates and sinks, become random. So do
      matrices whose entries are all equal. Otherwise attnviz could ignore these parameters and
      still compute the right attention weights.
    - Matrices whose entries differ little are scaled up. Otherwise all tokens would have nearly
      equal vectors.
    - Parameters with infinite, NaN or huge values become random.

    A sink is a learned logit that takes a share of the attention of each query.
    """
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        values = parameter.data
        if not values.is_floating_point() or values.numel() == 0:
            continue
        usual = bool(torch.isfinite(values).all()) and float(values.abs().max()) < 1e4
        if not usual:
            values.normal_(0, 0.5, generator=generator)
        elif values.dim() >= 2:
            inputs = values[0].numel()
            spread = 1.0 if "embed" in name else max(inputs, 1) ** -0.5
            deviation = float(values.std()) if values.numel() > 1 else 0.0
            if deviation == 0.0:
                values.add_(torch.randn(values.shape, generator=generator) * spread)
            elif deviation < spread:
                values.mul_(spread / deviation)
        elif not bool(values.any()):
            values.normal_(0, 0.3, generator=generator)
