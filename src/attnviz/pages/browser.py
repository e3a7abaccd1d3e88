"""Find the Chrome or Chromium that pictures are drawn with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["HOW_TO_GET_ONE", "find_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_WINDOWS_PLACES = ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData")

HOW_TO_GET_ONE = (
    "no Chrome or Chromium was found: install one (on Debian `apt-get install chromium`, anywhere "
    "else `python -m playwright install chromium`), or set ATTNVIZ_BROWSER to the path of one"
)


def find_browser() -> str | None:
    """Find an installed Chrome or Chromium.

    Returns
    -------
    str or None
        The path of the one that ATTNVIZ_BROWSER names, else the machine's, else Playwright's own.
    """
    named = os.environ.get("ATTNVIZ_BROWSER")
    if named:
        return named if Path(named).is_file() else None
    for name in _NAMES:
        path = shutil.which(name)
        if path and _runs(path):
            return path
    folders = [os.environ[place] for place in _WINDOWS_PLACES if place in os.environ]
    windows = [str(Path(folder, "Google/Chrome/Application/chrome.exe")) for folder in folders]
    for path in (*_APPLICATIONS, *windows):
        if Path(path).is_file():
            return path
    return _playwrights_own()


def _runs(path: str) -> bool:
    """Whether it starts: Ubuntu's `chromium-browser` may be a note about a snap."""
    try:
        command = [path, "--version"]
        answer = subprocess.run(command, capture_output=True, timeout=60, check=False)  # noqa: S603 - a path that shutil.which found
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
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this Python, with the code above
    path = answer.stdout.strip()
    return path if path and Path(path).is_file() else None
