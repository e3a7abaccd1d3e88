"""Functions that find the virtual tokens of a model, and that reject unsupported adapters.

Virtual tokens are learned vectors that some adapters and the model CPM-Ant put before a text.
Adapters are those of the library PEFT: small modules that are trained in addition to a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from attnviz.extraction.inputs.batch import TokenSequence

# Kinds of adapters (PEFT's names) that put learned vectors before the embeddings of a text.
_AS_TOKENS = ("PROMPT_TUNING", "P_TUNING")
# Kinds of adapters that put learned keys and values before those of a text, in every layer.
_AS_KEYS = ("PREFIX_TUNING", "CARTRIDGE")
_OWN_PROMPT = "CPM-Ant"
# Kinds of adapters that `check_adapter` rejects. The value of each kind is the reason, as a part of
# the error message.
_REFUSED = {
    "ADAPTION_PROMPT": "attends to learned keys by a separate softmax",
    "CPT": "puts a separate prompt before the text",
    "MULTITASK_PROMPT_TUNING": "needs task_ids",
    "POLY": "needs task_ids",
    "XLORA": "runs the model twice",
}


@dataclass(frozen=True)
class VirtualTokens:
    """Learned vectors that a model or its adapter puts before a text.

    Attributes
    ----------
    count : int
        Number of vectors.
    only_keys : bool
        Whether the vectors are keys and values in every layer, but not queries.
    kind : str
        Kind of the adapter, such as ``"PROMPT_TUNING"``, or ``"CPM-Ant"`` for that model.
    """

    count: int
    only_keys: bool
    kind: str

    @property
    def note(self) -> str:
        """Note on these vectors for the reader of a record."""
        vectors = "keys and values, which are not queries," if self.only_keys else "vectors"
        return (
            f"{self.kind} puts {self.count} learned {vectors} before the text: [virtual0], "
            "[virtual1] and so on."
        )

    def sequences(self, sequences: Mapping[str, TokenSequence]) -> dict[str, TokenSequence]:
        """Add the virtual tokens to the lengths and padding of a model's token sequences.

        `sequences` are the sequences without the virtual tokens, by name. The virtual tokens are
        put before the tokens of ``"input"``. If they are only keys, ``"input"`` does not change,
        because it has the queries. Then the result has one more sequence, ``"input keys"``: the
        virtual tokens, followed by the tokens of ``"input"``. Without ``"input"``, nothing is
        added.
        """
        if "input" not in sequences:
            return dict(sequences)
        text = sequences["input"]
        front = torch.arange(self.count)
        longer = replace(
            text,
            length=text.length + self.count,
            unpadded=[
                None if positions is None else torch.cat([front, positions + self.count])
                for positions in text.unpadded
            ],
        )
        return {**sequences, "input keys" if self.only_keys else "input": longer}


def virtual_tokens(model: Any) -> VirtualTokens | None:
    """Return the virtual tokens of a model or of its active adapter, or None if there are none."""
    if getattr(getattr(model, "config", None), "model_type", None) == "cpmant":
        return VirtualTokens(int(model.config.prompt_length), only_keys=False, kind=_OWN_PROMPT)
    config = _config(model)
    if config is None or str(_kind(config)) not in _AS_TOKENS + _AS_KEYS:
        return None
    kind = _kind(config)
    return VirtualTokens(int(config.num_virtual_tokens), only_keys=kind in _AS_KEYS, kind=kind)


def base_of(model: Any) -> Any:
    """Return `model`, or the model inside of it if `model` is an adapter with virtual tokens."""
    inside = getattr(model, "get_base_model", None)
    return model if inside is None or virtual_tokens(model) is None else inside()


def check_adapter(model: Any) -> None:
    """Raise NotImplementedError if attention with the model's adapter cannot be shown.

    The error is raised for the kinds of adapters in `_REFUSED`, for aLoRA, and for adapters that
    put virtual tokens before the text of an encoder-decoder model.
    """
    config = _config(model)
    if config is None:
        return
    kind = _kind(config)
    reason = _REFUSED.get(kind)
    if getattr(config, "alora_invocation_tokens", None):
        kind, reason = "aLoRA", "starts in the middle of a text"
    decodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if kind in _AS_TOKENS + _AS_KEYS and decodes:
        reason = "belongs to an encoder-decoder model"
    if reason is not None:
        raise NotImplementedError(
            f"model: its adapter ({kind}) {reason}, which cannot be shown. Use `with "
            "model.disable_adapter():` to show the model without it."
        )


def _config(model: Any) -> Any:
    """Return the configuration of the active adapter of a PEFT model.

    Return None for other models, and if the adapter is disabled.
    """
    if not any(base.__module__.startswith("peft.") for base in type(model).__mro__):
        return None
    if getattr(model, "_adapters_disabled", False):
        return None
    configs, active = getattr(model, "peft_config", None), getattr(model, "active_adapter", None)
    return configs.get(active) if isinstance(configs, Mapping) else None


def _kind(config: Any) -> str:
    kind = getattr(config, "peft_type", "")
    return str(getattr(kind, "value", kind))
