"""Results of the check of one tiny model, from which docs/coverage.md is written.

A `Row` has all results for one model. It has a `StackChange` for each stack: the result of changing
this stack. A stack is the attention of one kind, such as "self" or "cross", in all layers.

The model's own weights are the attention weights in its output, or those that its attention modules
return. A record is what `attnviz.extract` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Values of `Row.result` for models whose own weights are known. The percentages in docs/coverage.md
# are the numbers of rows with "ok", divided by the numbers of rows with one of these values.
REFERENCED = ("ok", "partly", "wrong", "refused")


@dataclass
class StackChange:
    """Result of changing one stack.

    Attributes
    ----------
    gate : str
        Result of ablating the last head of each layer, which means that its output is set to 0:

        - "exact": the model's output is, bit for bit, that of a model in which the head's columns
          of the output projections are 0.
        - "changed": the model's output changes, but not to this output. This is allowed because
          attnviz does not find all output projections of the stack.
        - "without effect": the model's output does not change.
        - "refused": attnviz cannot change the stack.
        - "wrong": anything else.
    reason : str
        Reason for the result "refused" or "wrong".
    refused_weights : str
        Reason why attnviz cannot change single weights of a stack whose heads it can ablate, or "".
    identity : bool or None
        Whether the model's output stays the same, bit for bit, if the outputs of all heads are
        multiplied by 1. None if this was not tried or failed.
    noise : float or None
        Largest change of the model's output if attnviz computes the outputs of attention again from
        unchanged weights. It is relative to the largest number of the same output tensor. None if
        this was not tried or failed.
    projection : bool
        Whether `attnviz.interventions` finds a linear output projection in every layer, and every
        layer computes the attention of all tokens in one call. False for attention in windows.
    """

    gate: str
    reason: str = ""
    refused_weights: str = ""
    identity: bool | None = None
    noise: float | None = None
    projection: bool = False


@dataclass
class Row:
    """Result of the check of one model.

    Attributes
    ----------
    model_type, kind : str
        Model type, and name of the class that was built.
    auto : list of str
        Auto classes of transformers that load this class. Empty for the base model and for unusual
        settings.
    flag : str
        Unusual setting (see `model_types.flags`), or "" for the default configuration.
    cached : bool
        Whether the comparison was repeated for a forward with a cache.
    result : str
        - "ok": the record equals the model's own weights. The model is then called right.
        - "partly": the record lacks some attention, and `attnviz.extract` gave a warning.
        - "wrong": the record differs, or lacks attention without a warning, or the extraction
          changed the model.
        - "refused": `attnviz.extract` raised an error.
        - "not built", "no inputs", "no own weights", "too slow", "died": why the model could not be
          compared.
    reason : str
        Explanation of a result other than "ok".
    inputs : list of str
        Names of the arguments with which the model was called.
    source : str
        Source of the model's own weights: "output" or "modules".
    stacks : list of str
        Stacks of the record, with layers and heads.
    way : str
        What the record stores for its layers: "queries and keys", "inputs of linear layers",
        "weights", or several of these, joined by " / ".
    error : float or None
        Largest difference between a weight of the record and the model's own weight. None if no
        weights were compared.
    peak : float or None
        Median, over queries, of the largest weight of a query (see `sharpen.peak`). If the median
        is near 1 / number of keys, attention is nearly uniform, so even a wrong formula gives
        nearly equal weights. None if no weights were computed.
    unnoticed : list of str
        Faults in queries, masks or other inputs of a layer's weights that the comparison would not
        have noticed (see `control`).
    unverified : list of str
        Stacks of the record for which the model returns no own weights.
    changes : dict of str to StackChange
        Result of changing each stack.
    unchanged : str
        Error message, if no stack could be changed although the extraction succeeded. Otherwise "".
    notes : list of str
        Notes of the record, warnings, and notes about the comparison.
    place_names : str
        Result of the probe of places (see `places.places_of`): "whole", "in part", "none", "wrong",
        or "" without an image, a sound or a time series.
    place_reason : str
        Stacks whose tokens have no place, or what is wrong. "" if all have the right place.
    seconds : float
        Duration of the check.
    """

    model_type: str
    kind: str = ""
    auto: list[str] = field(default_factory=list)
    flag: str = ""
    cached: bool = False
    result: str = ""
    reason: str = ""
    inputs: list[str] = field(default_factory=list)
    source: str = ""
    stacks: list[str] = field(default_factory=list)
    way: str = ""
    error: float | None = None
    peak: float | None = None
    unnoticed: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    changes: dict[str, StackChange] = field(default_factory=dict)
    unchanged: str = ""
    notes: list[str] = field(default_factory=list)
    place_names: str = ""
    place_reason: str = ""
    seconds: float = 0.0

    @property
    def is_base(self) -> bool:
        """Whether this is the base model of the model type in its default configuration."""
        return not self.auto and not self.flag

    @classmethod
    def of(cls, written: dict[str, Any]) -> Row:
        """Return the row from which `dataclasses.asdict` made the dict `written`."""
        changes = {name: StackChange(**change) for name, change in written["changes"].items()}
        return cls(**{**written, "changes": changes})
