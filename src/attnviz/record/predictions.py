"""What a model predicted: the tokens it produced, the queries that did, and its candidates."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Candidate", "Prediction"]


@dataclass(frozen=True)
class Candidate:
    """A token that the model might have produced.

    Attributes
    ----------
    text : str
        What is shown for it, already visible.
    id : int
        Its vocabulary id.
    probability : float
        From 0 to 1: the softmax of the model's logits, before any sampling setting.

    Raises
    ------
    ValueError
        If the probability is none.
    """

    text: str
    id: int
    probability: float

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.0 <= self.probability <= 1.0 + 1e-6:
            raise ValueError(f"a probability lies between 0 and 1; got {self.probability!r}")


@dataclass(frozen=True)
class Prediction:
    """A token that the model produced, or was made to produce.

    Attributes
    ----------
    query : int
        The query that predicted it: the position before, whose row of weights shows what the model
        looked at while it chose.
    token : Candidate
        The token that came.
    candidates : tuple of Candidate
        The likeliest tokens there, best first.
    row : int or None
        The query that the token itself is; None where the model never read it (the last one of an
        encoder-decoder model's target).

    Raises
    ------
    ValueError
        If a place is negative.

    Examples
    --------
    >>> cat = Candidate("·cat", 17, 0.6)
    >>> Prediction(query=3, token=cat, candidates=(cat,), row=4).token.text
    '·cat'
    """

    query: int
    token: Candidate
    candidates: tuple[Candidate, ...]
    row: int | None

    def __post_init__(self) -> None:
        """Refuse places that are none."""
        if self.query < 0 or (self.row is not None and self.row < 0):
            raise ValueError(f"places count from 0; got query {self.query} and row {self.row}")
