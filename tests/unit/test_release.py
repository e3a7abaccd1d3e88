"""Version numbers, format numbers and package extras agree in all files of a release."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import attnviz

ROOT = Path(__file__).parents[2]


def test_the_citation_and_the_changelog_have_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [attnviz.__version__]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == attnviz.__version__


def test_the_changelog_names_the_formats_that_are_written(tmp_path: Path) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(r"^Formats of this version(.*?)\n\n", changelog, re.MULTILINE | re.DOTALL)
    assert section is not None
    records: dict[str, Any] = {
        "weights": attnviz.AttentionRecord.from_weights([[[[1.0]]]], ["a"]),
        "differences": attnviz.AttentionRecord.from_weights(
            [[[[-1.0]]]], ["a"], signed=True, measure="difference"
        ),
    }
    statistics = attnviz.HeadStatistics()
    statistics.add(records["weights"])
    page = attnviz.HeadView(records["weights"]).to_html()
    written = {}
    saved: dict[str, Any] = {**records, "statistics": statistics}
    for name, value in saved.items():
        path = tmp_path / f"{name}.safetensors"
        value.save(path)
        # The JSON header of safetensors contains attnviz's header as a string of JSON.
        (written[name],) = map(int, re.findall(rb'"format\\?": ?(\d+)', path.read_bytes()))
    (written["pages"],) = map(int, re.findall(r'"format":(\d+),"view"', page))
    assert written["differences"] == written["weights"]
    assert re.findall(r"\d+", section[1]) == [
        str(written[name]) for name in ("weights", "statistics", "pages")
    ]


def test_hooks_run_the_versions_that_make_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (ruff,) = re.findall(r"^ruff==(.*)$", constraints, re.MULTILINE)
    package = json.loads((ROOT / "js" / "package.json").read_text(encoding="utf-8"))
    biome = package["devDependencies"]["@biomejs/biome"]
    revisions = dict(re.findall(r"repo: \S*/(\S+)\n    rev: v(\S+)", hooks))
    assert revisions["ruff-pre-commit"] == ruff
    assert revisions["pre-commit"] == biome
    assert f"@biomejs/biome@{biome}" in hooks


def test_the_extra_all_contains_every_extra_except_kvpress_and_ray() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"all"}
    (everything,) = project["optional-dependencies"]["all"]
    named = set(everything.removeprefix("attnviz[").removesuffix("]").split(","))
    # The extra "all" leaves out Ray, which is for clusters and larger than all other extras, and
    # kvpress, which requires an older transformers.
    assert named == extras - {"kvpress", "ray"}
