"""Write the page that opens saved records in a browser: one file, which needs no network.

    python scripts/open_page.py open.html

docs/open.md says what it opens.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from attnviz.pages.opener import opener_page
from attnviz.utils.files import write_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("output", type=Path, help="where to write the page")
    output = parser.parse_args().output
    output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output, opener_page().encode())
    print(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
