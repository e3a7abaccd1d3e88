"""Dates in nine written forms, such as "7 March 2021", and in ISO 8601 form (2021-03-07).

One day in ten is held out: training contains none of these days, in any form.
"""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

_FIRST = dt.date(1900, 1, 1).toordinal()
_LAST = dt.date(2099, 12, 31).toordinal()
_HELD_OUT_EVERY = 10


def _ordinal(day: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{'th' if 11 <= day <= 13 else ending}"


# A written date in pieces: (kind, text) with the kind "d" for the day, "m" for the month, and ""
# for other text.
_Pieces = list[tuple[str, str]]

FORMS: dict[str, Callable[[dt.date], _Pieces]] = {
    "3 March 2021": lambda date: [
        ("d", str(date.day)),
        ("", " "),
        ("m", calendar.month_name[date.month]),
        ("", f" {date.year}"),
    ],
    "3 Mar 2021": lambda date: [
        ("d", str(date.day)),
        ("", " "),
        ("m", calendar.month_abbr[date.month]),
        ("", f" {date.year}"),
    ],
    "March 3, 2021": lambda date: [
        ("m", calendar.month_name[date.month]),
        ("", " "),
        ("d", str(date.day)),
        ("", f", {date.year}"),
    ],
    "Mar 3rd, 2021": lambda date: [
        ("m", calendar.month_abbr[date.month]),
        ("", " "),
        ("d", _ordinal(date.day)),
        ("", f", {date.year}"),
    ],
    "3rd of March 2021": lambda date: [
        ("d", _ordinal(date.day)),
        ("", " of "),
        ("m", calendar.month_name[date.month]),
        ("", f" {date.year}"),
    ],
    "Wednesday, 3 March 2021": lambda date: [
        ("", f"{calendar.day_name[date.weekday()]}, "),
        ("d", str(date.day)),
        ("", " "),
        ("m", calendar.month_name[date.month]),
        ("", f" {date.year}"),
    ],
    "03-Mar-2021": lambda date: [
        ("d", f"{date.day:02}"),
        ("", "-"),
        ("m", calendar.month_abbr[date.month]),
        ("", f"-{date.year}"),
    ],
    "3.3.2021": lambda date: [
        ("d", str(date.day)),
        ("", "."),
        ("m", str(date.month)),
        ("", f".{date.year}"),
    ],
    "03/03/2021": lambda date: [
        ("d", f"{date.day:02}"),
        ("", "/"),
        ("m", f"{date.month:02}"),
        ("", f"/{date.year}"),
    ],
}

CHARACTERS = "".join(
    sorted(
        set(
            "0123456789-/., stndrdthof"
            + "".join([*calendar.month_name, *calendar.month_abbr, *calendar.day_name])
        )
    )
)


@dataclass(frozen=True)
class WrittenDate:
    """Date in a written form and in ISO form.

    Attributes
    ----------
    text : str
        The written form.
    iso : str
        The same date in ISO form, always 10 characters.
    day, month : range
        Positions of the characters in `text` that state the day and the month.
    """

    text: str
    iso: str
    day: range
    month: range


def write_date(date: dt.date, form: str) -> WrittenDate:
    """Write a date in one of the nine forms.

    Examples
    --------
    >>> write_date(dt.date(2021, 3, 7), "3rd of March 2021").text
    '7th of March 2021'
    """
    text, positions = "", {"d": range(0), "m": range(0)}
    for part, piece in FORMS[form](date):
        positions[part] = range(len(text), len(text) + len(piece))
        text += piece
    return WrittenDate(text, date.isoformat(), positions["d"], positions["m"])


def is_held_out(date: dt.date) -> bool:
    """Return whether a day is held out from training.

    Examples
    --------
    >>> [day for day in range(1, 32) if is_held_out(dt.date(2021, 3, day))]
    [1, 11, 21, 31]
    """
    return date.toordinal() % _HELD_OUT_EVERY == 0


def draw_date(
    generator: np.random.Generator, *, held_out: bool, form: str | None = None
) -> WrittenDate:
    """Draw a random date of the years 1900 to 2099, and write it in a form.

    If `form` is None, the form is also random. If `held_out`, only held-out days are drawn,
    otherwise only the other days.

    Examples
    --------
    >>> len(draw_date(np.random.default_rng(0), held_out=True).iso)
    10
    """
    if form is None:
        form = list(FORMS)[int(generator.integers(len(FORMS)))]
    while True:
        date = dt.date.fromordinal(int(generator.integers(_FIRST, _LAST + 1)))
        if is_held_out(date) == held_out:
            return write_date(date, form)
