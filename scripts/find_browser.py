"""Find Chrome or Chromium for the browser tests, and install it if it is missing.

python scripts/find_browser.py             print its path, or how to install it
python scripts/find_browser.py --install   also install it if it is missing
python scripts/find_browser.py --others    also install Firefox and WebKit if they are missing

As root on Debian, --install installs the headless Chromium even if another browser exists, because
it opens pages in half the time. --others has an effect only as root on Debian. Tests of Firefox and
WebKit are skipped if these browsers are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from attnviz.pages.image import INSTALL_BROWSER, find_browser

WITHOUT_WINDOWS = "chromium-headless-shell"
#: Commands that the tests of Firefox and WebKit need, with the Debian package of each command.
OTHERS = {
    "firefox": {"firefox-esr": "firefox-esr"},
    "webkit": {"WebKitWebDriver": "webkit2gtk-driver", "xvfb-run": "xvfb", "xauth": "xauth"},
}


def install_browser() -> None:
    """Install Chromium: Debian's package as root on Debian, and Playwright's build elsewhere."""
    if _is_root_on_debian():
        _apt_get("update")
        # Older versions of Debian do not have the headless Chromium.
        if not _apt_get("install", WITHOUT_WINDOWS) and find_browser() is None:
            _apt_get("install", "chromium")
        return
    # Only root may install the system libraries that the browser needs. For other users, Playwright
    # prints which libraries are missing.
    options = ["--with-deps"] if _is_root() and sys.platform == "linux" else []
    command = [sys.executable, "-m", "playwright", "install", *options, "chromium"]
    subprocess.run(command, check=False)


def missing_packages(browser: str) -> list[str]:
    """Return the Debian packages that are missing for the tests of Firefox or WebKit."""
    needed = OTHERS[browser]
    return [package for command, package in needed.items() if shutil.which(command) is None]


def install_others() -> None:
    """Install the missing packages for Firefox and WebKit, if the user is root on Debian."""
    missing = [package for browser in OTHERS for package in missing_packages(browser)]
    if missing and _is_root_on_debian():
        print(f"Installing {' and '.join(missing)} for the browser tests.", file=sys.stderr)
        _apt_get("update")
        _apt_get("install", *missing)


def _apt_get(command: str, *packages: str) -> bool:
    options = ["--yes", "--no-install-recommends"] if packages else []
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    whole = ["apt-get", "--quiet", command, *options, *packages]
    return subprocess.run(whole, env=environment, check=False).returncode == 0


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _is_root_on_debian() -> bool:
    if not _is_root():
        return False
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return "ID=debian" in lines and shutil.which("apt-get") is not None


def _is_wanted(browser: str | None) -> bool:
    return browser is None or (_is_root_on_debian() and shutil.which(WITHOUT_WINDOWS) is None)


def main(arguments: list[str]) -> int:
    """Install what the arguments request. Print the browser's path, or return 1 without one."""
    browser = find_browser()
    if "--others" in arguments:
        install_others()
    if "--install" in arguments and not os.environ.get("ATTNVIZ_BROWSER") and _is_wanted(browser):
        print("Installing Chromium for the browser tests.", file=sys.stderr)
        install_browser()
        browser = find_browser()
    if browser is None:
        print(f"The browser tests need a browser, and {INSTALL_BROWSER}.", file=sys.stderr)
        return 1
    print(browser)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
