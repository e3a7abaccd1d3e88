"""A part of a run that is measured in processes and has a table on the page.

A module of this folder defines one as `SECTION`, beside the code that measures it, and `SECTIONS`
of `report.py` lists it: that is all that a new table needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.guarded import Limits


@dataclass(frozen=True)
class Section:
    """One of them.

    Parameters
    ----------
    name : str
        Under this its figures are in docs/benchmarks.json.
    title : str
        Of its heading.
    words : str
        What a reader has to know of the table: what was measured, on what, in which unit.
    module : str
        What measures it: ``python -m module *arguments``. It writes lines of JSON, each an object;
        a line adds to those before it. A list of numbers is several measurements of one figure:
        `figures.spread` writes its median, least and most.
    rows : callable
        From all figures to the lines of the table, the heading first.
    runs : tuple of tuple of str
        Arguments of each process, which run one after another.
    quick : tuple of tuple of str
        The same for ``--quick``; empty for nothing.
    seconds : float
        About how long all of it takes on a quiet machine with two cores. A run takes at most
        14 minutes in all: a test adds these up.
    limits : Limits
        Of each process.
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
