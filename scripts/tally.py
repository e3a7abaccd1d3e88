"""Add up the tests of several runs and print one line: `python scripts/tally.py FILE...`.

The files are JUnit reports, as pytest and Vitest write them. A file that is missing is a run
that did not happen, and counts as a failure.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET


def main(paths: list[str]) -> int:
    """Print the sum; 1 when anything failed."""
    total = failed = skipped = 0
    for path in map(Path, paths):
        if not path.is_file():
            print(f"{path.name}: no report, as this part was not run")
            failed += 1
            total += 1
            continue
        # Reports that this project's own commands have just written.
        for suite in ET.parse(path).getroot().iter("testsuite"):  # noqa: S314
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
