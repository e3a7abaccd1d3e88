"""The command `attnviz demo` writes a page that shows what a demo model learned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.cli import main
from unit import page_data


@pytest.mark.parametrize(
    ("name", "stack", "token"),
    [("decoder", "self", -1), ("encoder-decoder", "cross", 5), ("vision", "vision", 0)],
)
def test_a_page_of_a_demo_model_is_written_and_only_its_path_is_printed(
    name: str, stack: str, token: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.html"
    assert main(["demo", "--model", name, "-o", str(path)]) == 0
    output = capsys.readouterr()
    assert output.out == f"{path}\n"
    assert "Traceback" not in output.err
    data = page_data.bare_data_of(path.read_text(encoding="utf-8"))
    tokens = {
        entry["name"]: entry["query_tokens"]["text"] for entry in data["description"]["stacks"]
    }
    assert data["state"]["stack"] == stack
    assert data["state"]["token"] == token % len(tokens[stack])


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "-o", str(tmp_path / "none" / "x.html")]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert str(tmp_path / "none") in output.err


def test_the_module_runs_as_a_program() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "attnviz", "--help"], capture_output=True, text=True, check=True
    )
    assert "demo" in shown.stdout
