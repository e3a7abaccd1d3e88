"""The code in README.md runs, and the sizes in docs/limits.md are those of saved records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attnviz import AttentionRecord

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.slow
def test_the_code_of_the_readme_runs_after_a_plain_installation(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    """Run the code in a process in which optional packages, such as pandas, cannot be imported."""
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


def test_a_record_has_the_size_in_the_table_of_limits(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    # Queries and keys of one of GPT-2's 12 layers: 12 heads, 1024 tokens, 64 dimensions.
    vectors = torch.randn(2, 1, 12, 1024, 64, generator=torch.Generator().manual_seed(0))
    tokens = [f"t{index}" for index in range(1024)]
    for dtype, bytes_each in ((torch.float32, 4), (torch.bfloat16, 2)):
        queries, keys = vectors.to(dtype)
        record = AttentionRecord.from_qk([queries], [keys], tokens, causal=True)
        layer = (12 + 12) * 64 * 1024 * bytes_each
        record.save(tmp_path / "layer.safetensors")
        assert (tmp_path / "layer.safetensors").stat().st_size == pytest.approx(layer, rel=0.02)
        assert f"{12 * layer / 1e6:.1f} MB" in page
