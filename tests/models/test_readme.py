"""What README.md says runs, and what it points to is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from attnviz import HeadView

pytestmark = pytest.mark.models

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"


def test_the_lines_of_python_run(
    checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (code,) = re.findall(r"```python\n(.+?)```", README, re.DOTALL)
    # The same checkpoint, without a network.
    assert HUB_ID in code
    names: dict[str, Any] = {}
    exec(code.replace(HUB_ID, checkpoint_folder.as_posix()), names)  # noqa: S102 - our own README
    view = names["view"]
    assert isinstance(view, HeadView)
    assert view.token is not None
    assert view.record.tokens[view.token] == "it"
    weights = view.record.stacks["self"].weights(layer=3, head=1)[view.token]
    assert view.record.tokens[int(weights.argmax())] == "animal"
    assert float(weights.max()) == pytest.approx(0.68, abs=0.005)
    assert (tmp_path / "head_view.html").is_file()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/from-bertviz.md",
        "docs/from-elsewhere.md",
        "docs/kinds.md",
        "docs/long-texts.md",
        "docs/embedding.md",
        "docs/pages.md",
        "docs/where-it-runs.md",
    ],
)
def test_what_is_pointed_to_is_there(document: str) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for link in (one or other for one, other in links):
        if "://" not in link:
            assert (path.parent / link).exists(), link


def test_every_command_of_make_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    said = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:\$ |`)make ([a-z-]+)", said)) <= set(targets)
