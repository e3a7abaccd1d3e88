"""A part of a run that is measured in separate processes and has a table on the page.

A module of this folder defines it as `SECTION`, beside the code that measures it. To add a table,
add its section to `SECTIONS` of `report.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.guarded import Limits


@dataclass(frozen=True)
class Section:
    """Description of one section.

    Parameters
    ----------
    name : str
        Key of the figures in docs/benchmarks.json.
    title : str
        Heading of the section.
    words : str
        Text above the table: what was measured, with which inputs, in which unit.
    module : str
        Module that measures: ``python -m module *arguments``. It writes lines of JSON, each an
        object, which are merged. A list of numbers is several measurements of one figure, of which
        `figures.spread` writes the median, minimum and maximum.
    rows : callable
        Returns the lines of the table from all figures, the heading first.
    runs : tuple of tuple of str
        Arguments of each process. They run one after another.
    quick : tuple of tuple of str
        Arguments of each process for ``--quick``, or empty to skip the section.
    seconds : float
        Approximate time of the section on a quiet machine with two cores. A test adds these up:
        a run takes at most 14 minutes.
    limits : Limits
        Limits of each process.
    """

    name: str
    title: str
    words: str
    module: str
    rows: Callable[[Mapping[str, Any]], list[list[str]]]
    runs: tuple[tuple[str, ...], ...] = ((),)
    quick: tuple[tuple[str, ...], ...] = ()
    seconds: float = 30
    limits: Limits = field(default=Limits(120, 12 << 30, more_seconds=600))
