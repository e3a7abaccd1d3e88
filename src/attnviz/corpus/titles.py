"""What a text of many is called in a list of them."""

from __future__ import annotations

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens

__all__ = ["title_of"]

# Characters of a text that name it.
_LENGTH = 40


def title_of(record: AttentionRecord, place: int) -> str:
    """Name a record by what the model read.

    Parameters
    ----------
    record : AttentionRecord
        Of one text or image.
    place : int
        Its number among all.

    Returns
    -------
    str
        The first words of a text, put together from the tokens of its first stack; ``"image 3"``,
        or ``"text 3"`` where there are no words.

    Examples
    --------
    >>> record = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["the", "Ġcat"])
    >>> title_of(record, 3)
    'the cat'
    """
    tokens = record.stack().query_tokens
    if tokens.grids:
        return f"image {place}"
    return _first_words(tokens) or f"text {place}"


def _first_words(tokens: Tokens) -> str:
    shown = [
        token
        for token, special in zip(tokens.text[:_LENGTH], tokens.special, strict=False)
        if not special
    ]
    # Where a space is a part of tokens, they follow each other without one.
    between = "" if any("·" in token for token in shown) else " "
    text = between.join(shown).replace(" ##", "").replace("·", " ").replace("⏎", " ").strip()
    if len(text) > _LENGTH or len(tokens) > _LENGTH:
        return f"{text[: _LENGTH - 1].rstrip()}…"
    return text
