"""The built package, installed in an empty environment.

`make test` omits these tests because the installation takes minutes. `make package` runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest
from readme_renderer.markdown import render

import attnviz

ROOT = Path(__file__).resolve().parents[2]
# Limit in megabytes. The demo models take 4, and the rest is bundles and code.
LARGEST_WHEEL = 6.0

pytestmark = pytest.mark.timeout(900)


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return its output. Fail the test with the output if the command fails."""
    answer = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        pytest.fail(f"{command} ended with {answer.returncode}:\n{answer.stdout}", pytrace=False)
    return answer.stdout


@pytest.fixture(scope="module")
def no_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH without any program, so without Node."""
    return str(tmp_path_factory.mktemp("no-programs"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the wheel and the source distribution, built as for a release."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--sdist", "--wheel", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(packages: tuple[Path, Path]) -> Path:
    return packages[0]


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename for info in archive.infolist() if info.file_size > 0}


def test_the_wheel_contains_only_the_necessary_files(wheel: Path) -> None:
    files = files_in(wheel)
    assert {"attnviz/static/records.js", "attnviz/static/head-page.js"} <= files
    assert {"attnviz/pages/note.js", "attnviz/pages/loader.js", "attnviz/views/widget.js"} <= files
    for demo in ("decoder", "encoder-decoder", "vision"):
        assert any(f"/{demo}/" in file and file.endswith(".safetensors") for file in files), demo
    with zipfile.ZipFile(wheel) as archive:
        assert "attnviz/py.typed" in archive.namelist()
        # All users may read the installed files.
        assert all((info.external_attr >> 16) & 0o004 for info in archive.infolist())
    assert metadata_of(wheel)["License-Expression"] == "Apache-2.0"
    top = {PurePosixPath(file).parts[0] for file in files}
    assert {part for part in top if not part.endswith(".dist-info")} == {"attnviz"}
    assert not [file for file in files if file.endswith((".ts", ".tsx", ".pyc", ".map"))]
    assert wheel.stat().st_size < LARGEST_WHEEL * 1e6


def test_the_package_index_shows_the_readme_with_its_links_and_pictures(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Version"] == attnviz.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    html = render(str(metadata.get_payload()))
    assert html is not None
    targets = re.findall(r'(?:href|src)="([^"]*)"', html)
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    # Links of the README to other documents, and its pictures without those of the dark theme.
    links = re.findall(r"\]\((?!#)[^)]*\)|<img src=", written)
    assert len([target for target in targets if not target.startswith("#")]) == len(links)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    own = re.compile(r"https://[^/]+/attnviz/attnviz/(?:blob/)?v([^/]+)/([^#]+)")
    versions = [match.groups() for target in targets if (match := own.match(target))]
    assert len(versions) > 30
    assert {version for version, _ in versions} == {attnviz.__version__}
    assert [path for _, path in versions if not (ROOT / path).exists()] == []


def test_the_source_distribution_makes_the_same_wheel_without_node(
    packages: tuple[Path, Path], no_path: str, tmp_path: Path
) -> None:
    wheel, sdist = packages
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert (source / "js" / "src" / "views" / "head" / "index.tsx").is_file()
    assert not (source / "js" / "node_modules").exists()
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, source, PATH=no_path)
    assert files_in(next(tmp_path.glob("*.whl"))) == files_in(wheel)


def test_the_wheel_works_where_nothing_else_is(wheel: Path, no_path: str, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    install = python, "-m", "pip", "install", "--no-compile"
    run(*install, "--constraint", constraints, wheel, PATH=no_path)
    page = tmp_path / "decoder-head-view.html"
    command = home / "bin" / "attnviz", "demo", "-o", page
    output = run(*command, PATH=no_path, HF_HUB_OFFLINE="1", HOME=str(tmp_path))
    assert str(page) in output
    assert "Traceback" not in output
    html = page.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in html
    assert 'id="attnviz-data"' in html
