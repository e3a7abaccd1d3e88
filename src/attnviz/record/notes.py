"""Notes of a record: sentences for its readers, some of which have a kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

#: Kinds of notes. "part of a text": the model read only a part of the text, or another text. "not
#: shown": attention that the record does not have. "no outputs": layers without outputs of heads.
#: "no places": tokens of an image, sound or time series without a place.
#: "" for all other notes, such as those that say how to read the numbers.
NoteKind = Literal["", "part of a text", "not shown", "no outputs", "no places"]


class Note(str):
    """Note of a record with its kind. A note that is a plain string has the kind "".

    Examples
    --------
    >>> Note("The text was truncated.", "part of a text").kind
    'part of a text'
    """

    kind: NoteKind

    def __new__(cls, text: str, kind: NoteKind = "") -> Note:
        note = super().__new__(cls, text)
        note.kind = kind
        return note


def kind_of(note: str) -> NoteKind:
    """Return the kind of a note.

    >>> kind_of("Each head has a learned sink.")
    ''
    """
    return note.kind if isinstance(note, Note) else ""


def of_kind(notes: Iterable[str], *kinds: NoteKind) -> list[str]:
    """Return the notes that have one of `kinds`."""
    return [note for note in notes if kind_of(note) in kinds]
