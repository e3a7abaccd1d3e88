"""Tokens as JSON and back, with the patches and predictions among them."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any

from attnviz.record.images import PatchGrid
from attnviz.record.predictions import Candidate, Prediction
from attnviz.record.tokens import Tokens, visible

__all__ = ["tokens_from_header", "tokens_to_header"]

# As `display.display_text` writes it.
_PART = re.compile(
    r"( [1-4]/[1-4](?: (?=\S))?"
    # As `projected.ProjectedKeys` names a group of tokens, and a mixture of all.
    r"| … | \(\d+(?:–\d+)?\)$|(?<=^projection) (?=\d+$))"
)


def tokens_to_header(tokens: Tokens) -> dict[str, Any]:
    """Describe tokens, fit for JSON.

    Parameters
    ----------
    tokens : Tokens
        What to describe.

    Returns
    -------
    dict
    """
    return {
        "text": tokens.text,
        "special": tokens.special,
        "sequence": tokens.sequence,
        "ids": tokens.ids,
        "words": tokens.words,
        "grids": [asdict(grid) for grid in tokens.grids],
        "predictions": [asdict(prediction) for prediction in tokens.predictions],
    }


def tokens_from_header(fields: dict[str, Any]) -> Tokens:
    """Make tokens again.

    Parameters
    ----------
    fields : dict
        What `tokens_to_header` gave.

    Returns
    -------
    Tokens

    Raises
    ------
    LookupError, TypeError, ValueError
        If they do not fit together.
    """
    # Through visible() again: a file is data, and its text must not mislead a reader either.
    tokens = Tokens.of(
        fields["text"],
        special=fields["special"],
        sequence=fields["sequence"],
        ids=fields["ids"],
    )
    # Files of the first days have none.
    words = fields.get("words")
    return replace(
        tokens,
        text=tuple(map(_with_parts, fields["text"])),
        words=None if words is None else tuple(None if n is None else int(n) for n in words),
        grids=tuple(PatchGrid(**grid) for grid in fields.get("grids", [])),
        predictions=tuple(map(_prediction_from_header, fields.get("predictions", []))),
    )


def _prediction_from_header(fields: dict[str, Any]) -> Prediction:
    row = fields["row"]
    return Prediction(
        query=int(fields["query"]),
        token=_candidate_from_header(fields["token"]),
        candidates=tuple(map(_candidate_from_header, fields["candidates"])),
        row=None if row is None else int(row),
    )


def _candidate_from_header(fields: dict[str, Any]) -> Candidate:
    return Candidate(_with_parts(fields["text"]), int(fields["id"]), float(fields["probability"]))


def _with_parts(text: str) -> str:
    """Make a text visible but for the spaces around a part of a character, as in ``é 1/2``."""
    pieces = _PART.split(text)
    pieces[::2] = [visible(piece) if piece else "" for piece in pieces[::2]]
    return "".join(pieces) or visible("")
