"""The results for one tiny model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["REFERENCED", "Row", "StackChange"]

# Results of types whose own weights are known: what the share of those that are right is taken of.
REFERENCED = ("ok", "partly", "wrong", "refused")


@dataclass
class StackChange:
    """What came of changing one stack.

    Attributes
    ----------
    gate : str
        "exact": without a head the model gives the bits that it gives with the head's columns of
        the output projections at 0. "changed": it gives something else than before, and the
        attention's output is not what a matrix takes. "without effect": what the model gives does
        not depend on it. "refused", or "wrong".
    reason : str
        Why, where it is refused or wrong.
    identity : bool or None
        Whether a change that multiplies outputs by 1 leaves every bit of what the model gives.
    noise : float or None
        How far that moves where outputs are computed again from the weights as they are, as a share
        of the largest number of the same tensor.
    projection : bool
        Whether `attnviz.interventions` finds the output projection of every layer.
    """

    gate: str
    reason: str = ""
    identity: bool | None = None
    noise: float | None = None
    projection: bool = False


@dataclass
class Row:
    """One line of the table.

    Attributes
    ----------
    model_type, kind : str
        The model type and the class that was built.
    auto : list of str
        The auto classes that load this class; none for the model type's base model.
    flag : str
        The setting of its configuration that is unusual; empty for the usual configuration.
    cached : bool
        Whether a forward with a cache was compared, too.
    result : str
        "ok", "partly" (a warning says that some attention is not shown), "wrong", "refused" (an
        error that says so), or what kept the type from being tried: "not built", "no inputs",
        "no own weights", "too slow", "died".
    reason : str
        Why, where the result is not "ok".
    inputs : list of str
        The arguments that the model ran on.
    source : str
        Where its own weights came from: "output" or "modules".
    stacks : list of str
        Stacks of the record, layers and heads.
    way : str
        "queries and keys", "weights", or both.
    error : float or None
        Largest difference from its own weights.
    peak : float or None
        Median of its rows' largest weights: near one over the number of keys nothing is proved.
    unnoticed : list of str
        Corruptions that the comparison would not have noticed.
    unverified : list of str
        Stacks that nothing of the model's own says anything about.
    changes : dict of str to StackChange
        What came of changing each stack.
    unchanged : str
        Why nothing was changed, where there is a record.
    notes : list of str
        The record's notes, warnings, and what is special about the comparison.
    seconds : float
        How long it took.
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
    seconds: float = 0.0

    @property
    def is_base(self) -> bool:
        """Whether this is the model type's base model in its usual configuration."""
        return not self.auto and not self.flag

    @classmethod
    def of(cls, written: dict[str, Any]) -> Row:
        """A row as `dataclasses.asdict` wrote it."""
        changes = {name: StackChange(**each) for name, each in written["changes"].items()}
        return cls(**{**written, "changes": changes})
