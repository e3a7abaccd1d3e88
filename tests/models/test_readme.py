"""What README.md says runs, and what it points to is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from attnviz import AttentionRecord, HeadView

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


def test_they_run_after_a_plain_install(checkpoint_folder: Path, tmp_path: Path) -> None:
    """With what `pip install .` brings and without the extras: pandas, Pillow, playwright, ..."""
    (code,) = re.findall(r"```python\n(.+?)```", README, re.DOTALL)
    code = code.replace(HUB_ID, checkpoint_folder.as_posix())
    extras = ("pandas", "PIL", "playwright", "sklearn", "umap", "openTSNE", "datasets")
    without = f"import sys; sys.modules.update(dict.fromkeys({extras}))\n"
    ran = subprocess.run(
        [sys.executable, "-c", without + code],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert (tmp_path / "head_view.html").is_file()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/analysis.md",
        "docs/from-bertviz.md",
        "docs/from-elsewhere.md",
        "docs/kinds.md",
        "docs/limits.md",
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
            file, _, part = link.partition("#")
            target = path.parent / file if file else path
            assert target.exists(), link
            if part:
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
                names = [re.sub(r"[^\w -]", "", each.lower()) for each in headings]
                assert part in [name.replace(" ", "-") for name in names], link


def test_every_command_of_make_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    said = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:\$ |`)make ([a-z-]+)", said)) <= set(targets)


def test_a_record_takes_what_the_table_of_limits_says(tmp_path: Path) -> None:
    said = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    # One of GPT-2's 12 layers: 12 heads of 64 dimensions, 1,024 tokens.
    vectors = torch.randn(2, 1, 12, 1024, 64, generator=torch.Generator().manual_seed(0))
    tokens = [f"t{place}" for place in range(1024)]
    for dtype, bytes_each in ((torch.float32, 4), (torch.bfloat16, 2)):
        queries, keys = vectors.to(dtype)
        record = AttentionRecord.from_qk([queries], [keys], tokens, causal=True)
        layer = (12 + 12) * 64 * 1024 * bytes_each
        record.save(tmp_path / "layer.safetensors")
        assert (tmp_path / "layer.safetensors").stat().st_size == pytest.approx(layer, rel=0.02)
        assert f"{12 * layer / 1e6:.1f} MB" in said
