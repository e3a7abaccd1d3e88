"""Compare the input of the user's own calls with records, and print the table.

``python -m model_types.calls [pattern]`` judges the cases whose kind or words match a pattern.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import torch
import transformers

from model_types.calls.cost import costs
from model_types.calls.judge import FAILURES, VERDICTS, Case, Row, judged

_FILES = ("texts", "wrappers", "generations", "images", "sounds", "uses")
_RESULT = Path("test-results/calls.json")


def all_cases() -> Iterator[Case]:
    """Yield the cases of all kinds."""
    for name in _FILES:
        yield from import_module(f"model_types.calls.{name}").cases()


def main() -> None:
    """Judge all cases, print a table, and write the rows to a file."""
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    pattern = re.compile(sys.argv[1] if len(sys.argv) > 1 else "", re.IGNORECASE)
    cases = [case for case in all_cases() if pattern.search(f"{case.kind}: {case.words}")]
    rows: list[Row] = []
    for case in cases:
        started = time.perf_counter()
        row = judged(case)
        rows.append(row)
        seconds = time.perf_counter() - started
        _write(f"{row.verdict:8} {case.kind}: {case.words} ({seconds:.1f} s)")
        if row.verdict != "same":
            _write(f"         own    {row.own[:230]}\n         record {row.record[:230]}")
            _write(f"         reason {row.reason[:230]}")
            for note in row.notes:
                _write(f"         note   {note[:230]}")
    _write_table(rows)
    if len(sys.argv) == 1:
        for line in costs():
            _write(line)
        _RESULT.parent.mkdir(exist_ok=True)
        _RESULT.write_text(
            json.dumps([row.as_dict() for row in rows], indent=1, ensure_ascii=False)
        )


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _write_table(rows: list[Row]) -> None:
    names = [*VERDICTS, "not run"]
    _write(f"\n{'kind':34}" + "".join(f"{name:>9}" for name in names))
    for kind in dict.fromkeys(row.kind for row in rows):
        counts = Counter(row.verdict for row in rows if row.kind == kind)
        _write(f"{kind:34}" + "".join(f"{counts[name]:>9}" for name in names))
    counts = Counter(row.verdict for row in rows)
    _write(f"{'all':34}" + "".join(f"{counts[name]:>9}" for name in names))
    failed = sum(counts[name] for name in FAILURES)
    _write(f"{len(rows)} calls, {failed} read another input without a word")


if __name__ == "__main__":
    main()
