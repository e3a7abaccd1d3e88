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

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
HOW_TO_GET_ONE = (
    "The browser tests need Chrome or Chromium and none was found: install one (on Debian "
    "`apt-get install chromium`, anywhere else `python -m playwright install chromium`), or set "
    "ATTNVIZ_BROWSER to the path of one."
)


def find_browser() -> str | None:
    """The path of an installed Chrome or Chromium, or None.

    The one that ATTNVIZ_BROWSER names comes first, then the machine's, then Playwright's own.
    """
    named = os.environ.get("ATTNVIZ_BROWSER")
    if named:
        return named if Path(named).is_file() else None
    for name in NAMES:
        path = shutil.which(name)
        if path and _runs(path):
            return path
    for path in MAC_APPLICATIONS:
        if Path(path).is_file():
            return path
    return _playwrights_own()


def _runs(path: str) -> bool:
    """Whether it starts: Ubuntu's `chromium-browser` may be a note about a snap."""
    try:
        command = [path, "--version"]
        answer = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0


def _playwrights_own() -> str | None:
    code = (
        "from playwright.sync_api import sync_playwright as start\n"
        "with start() as playwright: print(playwright.chromium.executable_path)"
    )
    # In a process of its own: Playwright cannot be started twice in one.
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    path = answer.stdout.strip()
    return path if path and Path(path).is_file() else None


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
        print(HOW_TO_GET_ONE, file=sys.stderr)
        return 1
    print(browser)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
