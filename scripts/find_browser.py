"""Find a Chrome or Chromium for the browser tests, and install one where there is none.

python scripts/find_browser.py             print its path, or say how to get one
python scripts/find_browser.py --install   the same, and install one where there is none
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from attnviz.pages.image import HOW_TO_GET_ONE, find_browser


def install_browser() -> None:
    """Install the distribution's Chromium as root on Debian, Playwright's own elsewhere."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root and _is_debian():
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "--quiet", *command], env=environment, check=False)
        return
    # Only root may install the libraries that it needs; elsewhere they are there already or
    # Playwright says which are missing.
    options = ["--with-deps"] if is_root and sys.platform == "linux" else []
    command = [sys.executable, "-m", "playwright", "install", *options, "chromium"]
    subprocess.run(command, check=False)


def _is_debian() -> bool:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return "ID=debian" in lines and shutil.which("apt-get") is not None


def main(arguments: list[str]) -> int:
    """Print the browser's path; 1 when there is none."""
    browser = find_browser()
    if browser is None and "--install" in arguments and not os.environ.get("ATTNVIZ_BROWSER"):
        print("No Chrome or Chromium was found: installing Chromium.", file=sys.stderr)
        install_browser()
        browser = find_browser()
    if browser is None:
        print(f"The browser tests need a browser, and {HOW_TO_GET_ONE}.", file=sys.stderr)
        return 1
    print(browser)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
