"""Cases of a model type: the tiny models that are checked.

The cases are the base model (such as `BertModel`), each class with a head, and each unusual
setting. A class with a head is a class for a task, such as `BertForMaskedLM`. An unusual setting is
a setting of the configuration that changes attention, with a value other than the default (see
`model_types.flags`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers.models.auto import modeling_auto

from model_types.flags import FLAGS, settings_of
from model_types.overrides import OVERRIDES
from model_types.shrink import merged, tiny_config

# Auto classes of transformers, and the names of their mappings from model types to classes with a
# head. Unusual settings are checked with only one class of a model type: the class in the first of
# these mappings that has the model type, or else the base model.
AUTO_CLASSES = {
    "AutoModelForCausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "AutoModelForSpeechSeq2Seq": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "AutoModelForImageTextToText": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "AutoModelForMultimodalLM": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "AutoModelForCTC": "MODEL_FOR_CTC_MAPPING_NAMES",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
}


@dataclass(frozen=True)
class Case:
    """A tiny model to check.

    Attributes
    ----------
    model_type : str
    kind : str
        Name of the model's class, or "" for the base model.
    auto : tuple of str
        Auto classes that load the model's class. Empty for the base model and for unusual settings.
    flag : str
        Unusual setting as ``name=value``, or "" for the default configuration.
    settings : dict
        Changed settings of the configuration, as a nested dict. Empty without a `flag`.
    inputs : dict
        Additional arguments of the model, written as in `overrides`. Empty without a `flag`.
    """

    model_type: str
    kind: str = ""
    auto: tuple[str, ...] = ()
    flag: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_base(self) -> bool:
        """Whether this is the base model of the model type in its default configuration."""
        return not self.auto and not self.flag


def cases_of(model_type: str) -> Iterator[Case]:
    """Yield a case for the base model, each class with a head, and each unusual setting."""
    yield Case(model_type)
    classes = _classes(model_type)
    for kind, auto in classes.items():
        yield Case(model_type, kind, tuple(auto))
    kind = next(iter(classes), "")
    yield from _flagged(model_type, kind)


def override_of(case: Case) -> dict[str, Any]:
    """Return the entry of `overrides` for a case.

    The entry of the model type is merged with the entry of the class, and then with the settings
    and inputs of the case. Later values replace earlier values. The value of "class" is the name of
    the class to build, or None for the base model.
    """
    override = OVERRIDES.get(case.model_type, {})
    head = override.get("heads", {}).get(case.kind, {})
    arguments = {
        name: merged(merged(override.get(name, {}), head.get(name, {})), own)
        for name, own in (("config", case.settings), ("inputs", case.inputs))
    }
    kind = case.kind or override.get("class")
    return {**override, **head, **arguments, "class": kind}


def _classes(model_type: str) -> dict[str, list[str]]:
    """Return the classes with a head of a model type.

    The result maps the name of each class to the names of the auto classes that load it.
    """
    auto_classes: dict[str, list[str]] = {}
    for auto, mapping in AUTO_CLASSES.items():
        names = getattr(modeling_auto, mapping, {}).get(model_type, ())
        for name in (names,) if isinstance(names, str) else names:
            auto_classes.setdefault(name, []).append(auto)
    return auto_classes


def _flagged(model_type: str, kind: str) -> Iterator[Case]:
    override = OVERRIDES.get(model_type, {})
    if "skip" in override:
        return
    try:
        config = tiny_config(model_type, override.get("config", {}))
    # The check of the base model reports this error, so yield nothing here.
    except Exception:  # noqa: BLE001
        return
    tried: list[Mapping[str, Any]] = []
    for flag in FLAGS:
        settings = settings_of(config, flag)
        # Skip a flag that sets the same values as an earlier flag.
        if settings and settings not in tried:
            tried.append(settings)
            name = _named(next(iter(flag.settings)), settings)
            yield Case(model_type, kind, (), name, settings, flag.inputs)


def _named(first: str, settings: Mapping[str, Any]) -> str:
    if first in settings:
        value = settings[first]
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = ", ".join(entry.removesuffix("_attention") for entry in value)
        return f"{first}={value}"
    inner = (_named(first, part) for part in settings.values() if isinstance(part, Mapping))
    return next((name for name in inner if name), "")
