"""Format measurements: the median with the minimum and maximum."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping

#: One measurement, or a list of repeated measurements.
Figure = float | list[float]


def in_turns(
    ways: Mapping[str, Callable[[], object]], turns: int, clock: Callable[[], float]
) -> dict[str, Figure]:
    """Return the seconds of each way, and in each turn the ratio to the first way.

    The ways alternate, so that other load on the machine affects all of them. An extra first turn
    is not counted, because it loads modules.
    """
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns + 1):
        for way, run in ways.items():
            start = clock()
            run()
            took[way].append(clock() - start)
    first = took[next(iter(ways))]
    figures: dict[str, Figure] = {f"{way}_s": values[1:] for way, values in took.items()}
    for way, values in took.items():
        pairs = zip(values[1:], first[1:], strict=True)
        figures[f"{way}_ratio"] = [one / other for one, other in pairs]
    return figures


def all_of(figure: Figure) -> list[float]:
    """Return the figure as a list of measurements."""
    return list(figure) if isinstance(figure, list) else [figure]


def median(figure: Figure) -> float:
    return statistics.median(all_of(figure))


def spread(figure: Figure, words: Callable[[float], str]) -> str:
    """Return the median with minimum and maximum: "423 ms [401 to 460]"."""
    every = all_of(figure)
    middle, least, most = (words(value) for value in (median(every), min(every), max(every)))
    if least == most:
        return middle
    unit = middle.partition(" ")[2]
    if unit == most.partition(" ")[2] and unit == least.partition(" ")[2]:
        least, most = least.partition(" ")[0], most.partition(" ")[0]
    return f"{middle} [{least} to {most}]"


def seconds(value: float) -> str:
    """Format seconds as "ms" or "s"."""
    if value < 0.00995:
        return f"{value * 1e3:.1f} ms"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def megabytes(value: float) -> str:
    """Format bytes as MB or GB."""
    if value < 1e8:
        return f"{value / 1e6:.1f} MB"
    return f"{value / 1e6:.0f} MB" if value < 1e9 else f"{value / 1e9:.1f} GB"


def count(value: float) -> str:
    """Format a whole number."""
    return f"{value:,.0f}"


def multiple(value: float) -> str:
    """Format a ratio: "3.2x"."""
    return f"{value:,.0f}x" if value >= 10 else f"{value:.1f}x"


def share(value: float) -> str:
    """Format a share of 1 as a percentage."""
    return f"{value:.0%}"


def table(lines: Iterable[list[str]]) -> str:
    """Return a Markdown table. The first line is the heading."""
    head, *body = lines
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))
