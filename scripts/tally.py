"""Print the numbers of passed, failed and skipped tests: `python scripts/tally.py FILE...`.

The files are JUnit reports of pytest and Vitest. A missing file counts as a failure, because its
run did not take place. Browser tests that passed only the second time are named. Failures and their
reasons are printed last, where they are visible even if only the end of a log is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET


def second_tries(paths: Iterable[Path]) -> list[str]:
    """Return the names of the tests that passed only the second time."""
    return [
        entry.get("value", "")
        for path in paths
        if path.is_file()
        # Commands of this project have written these reports, so parsing them is safe (S314).
        for case in ET.parse(path).getroot().iter("testcase")  # noqa: S314
        if case.find("failure") is None and case.find("error") is None
        for entry in case.iter("property")
        if entry.get("name") == "second_try"
    ]


def failures(paths: Iterable[Path]) -> list[str]:
    """Return a line for each failed test: its name and the first line of the reason."""
    names = []
    for path in paths:
        if not path.is_file():
            continue
        # Commands of this project have written these reports, so parsing them is safe (S314).
        for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314
            for fault in (*case.findall("failure"), *case.findall("error")):
                reason = (fault.get("message") or fault.text or "").strip().split("\n")[0]
                name = f"{case.get('classname', '')} {case.get('name', '')}"
                names.append(f"failed: {name}: {reason[:300]}")
    return names


def main(paths: list[str]) -> int:
    """Print the numbers of all reports together. Return 1 if anything failed, otherwise 0."""
    total = failed = skipped = 0
    for path in map(Path, paths):
        if not path.is_file():
            print(f"{path.name}: no report, because its run did not take place")
            failed += 1
            total += 1
            continue
        # Commands of this project have written these reports, so parsing them is safe (S314).
        for suite in ET.parse(path).getroot().iter("testsuite"):  # noqa: S314
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    again = second_tries(map(Path, paths))
    for name in again:
        print(f"passed only on the second try: {name}")
    tries = f", {len(again)} passed only on the second try" if again else ""
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped{tries}")
    for line in failures(map(Path, paths)):
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
