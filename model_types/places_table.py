"""Write the parts of docs/coverage.md about places in images, sounds and time series.

A row whose `Row.place_names` is "" has no image, sound or time series, or is not read by attnviz.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from model_types.markdown import lines
from model_types.rows import Row

_KINDS = {
    "images": ("pixel_values", "flattened_patches"),
    "sounds": ("input_features", "input_values", "audio_values"),
    "time series": ("past_values",),
}
_RESULTS = ("whole", "in part", "none", "wrong")
_INTRO = """
## Places in images and sounds

A part of an image or sound is changed: a patch, or a frame. The token that moves most must have the
name of this part. This is tried with square, wide and tall images, with two images, and with sounds
of 1.9 and 0.47 seconds, as far as the class takes them. *Whole* means that all tokens of the image
or sound have the right place, *in part* that those of some stacks have none, and *none* that no
token has one. Then a note of the record says so.

"""


def _classes(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each class whose places were probed."""
    return list({row.kind: row for row in rows if row.place_names}.values())


def _of_kind(row: Row) -> str:
    return next(
        (
            kind
            for kind, beginnings in _KINDS.items()
            if any(name.startswith(beginnings) for name in row.inputs)
        ),
        "images",
    )


def places_summary(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the summary about places."""
    probed, entries = _classes(rows), []
    for kind in _KINDS:
        counts = Counter(row.place_names for row in probed if _of_kind(row) == kind)
        if counts:
            entries.append(
                f"- Places are right in **{counts['whole']} of {counts.total()}** classes that "
                f"read {kind}, in part in {counts['in part']}, none in {counts['none']}, and "
                f"wrong in {counts['wrong']}."
            )
    return entries


def places_section(rows: Sequence[Row]) -> str:
    """Return the section about places: counts for each kind of media, and all that is missing."""
    probed = _classes(rows)
    counts = {
        kind: Counter(row.place_names for row in probed if _of_kind(row) == kind) for kind in _KINDS
    }
    parts = [
        _INTRO,
        lines(
            ("Kind", "Classes", *(result.capitalize() for result in _RESULTS)),
            (
                (kind, str(of_kind.total()), *(str(of_kind[result]) for result in _RESULTS))
                for kind, of_kind in counts.items()
            ),
        ),
    ]
    for result in _RESULTS[1:]:
        by_reason: dict[str, list[str]] = {}
        for row in probed:
            if row.place_names == result:
                by_reason.setdefault(row.place_reason, []).append(f"`{row.kind}`")
        entries = [f"- {', '.join(kinds)}: {reason}\n" for reason, kinds in by_reason.items()]
        if entries:
            title = "Wrong" if result == "wrong" else f"{result.capitalize()}, without places in"
            parts.append(f"\n{title}:\n\n{''.join(entries)}")
    return "".join(parts)
