"""What was found of one model type."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["REFERENCED", "Row"]

# Results of types whose own weights are known: what the share of those that are right is taken of.
REFERENCED = ("ok", "partly", "wrong", "refused")


@dataclass
class Row:
    """One line of the table.

    Attributes
    ----------
    model_type, kind : str
        The model type and the class that was built.
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
    notes : list of str
        The record's notes, warnings, and what is special about the comparison.
    seconds : float
        How long it took.
    """

    model_type: str
    kind: str = ""
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
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
