"""The documentation site: its sources and its navigation."""

from __future__ import annotations

import importlib
import inspect
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import pytest

import build_site
import griffe_show
import site_gallery
import site_reference

ROOT = Path(__file__).parents[2]


def pages_of(entries: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation from top to bottom."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
            continue
        (value,) = entry.values()
        if isinstance(value, str):
            yield value
        else:
            yield from pages_of(value)


@pytest.fixture(scope="module")
def navigation() -> list[str]:
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    return list(pages_of(config["project"]["nav"]))


@pytest.mark.parametrize("folder", ["docs", "notebooks"])
def test_every_page_has_one_line_in_the_navigation(folder: str, navigation: list[str]) -> None:
    files = [path for end in ("md", "ipynb") for path in (ROOT / folder).rglob(f"*.{end}")]
    pages = [build_site.place_in_site(path) for path in files]
    missing = {str(page) for page in pages} - set(navigation)
    assert not missing, f"add these to `nav` in zensical.toml: {sorted(missing)}"
    assert len(navigation) == len(set(navigation))


def test_the_pages_that_scripts_write_are_in_the_navigation(navigation: list[str]) -> None:
    written = {f"api/{page}.md" for page in ("index", *site_reference.REFERENCE)}
    files = {
        path.relative_to(site_gallery.EXAMPLES) for path in site_gallery.EXAMPLES.rglob("*.py")
    }
    written |= {f"gallery/{file.with_suffix('.md').as_posix()}" for file in files}
    assert written <= set(navigation)
    ordered = {
        f"{group}/{name}.py" for group, (_, names) in site_gallery.GROUPS.items() for name in names
    }
    assert ordered == {file.as_posix() for file in files}


def test_pictures_of_both_themes_follow_the_switch_of_the_site() -> None:
    text = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="a-dark.webp">\n'
        '  <img src="a-light.webp" width="430" alt="A view.">\n</picture>\n'
    )
    assert build_site.with_both_themes(text) == (
        '<img src="a-light.webp#only-light" width="430" alt="A view.">'
        '<img src="a-dark.webp#only-dark" width="430" alt="A view.">\n'
    )


MODULES = [
    "attnviz",
    "attnviz.analysis",
    "attnviz.comparison",
    "attnviz.corpus",
    "attnviz.demos",
    "attnviz.integrations",
    "attnviz.interventions",
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    exported = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    named = [name for section in site_reference.REFERENCE.values() for name in section.names]
    assert len(named) == len(set(named))
    assert {name for name in named if name.rpartition(".")[0] == module} - {*MODULES} == (
        exported - {*MODULES}
    )


def test_a_generated_function_is_documented_without_running_it() -> None:
    extensions = griffe.load_extensions(griffe_show.ShowFunctions())
    package = griffe.load("attnviz", search_paths=[ROOT / "src"], extensions=extensions)
    documented = package["views.show.show_matrix_view"]
    function = importlib.import_module("attnviz").show_matrix_view
    assert documented.is_function
    assert documented.docstring.value == inspect.getdoc(function)
    assert [parameter.name for parameter in documented.parameters] == list(
        inspect.signature(function).parameters
    )
    assert documented.parameters["device"].default == "'cpu'"
    assert str(documented.returns) == "MatrixView"


@pytest.mark.parametrize(
    ("origin", "target", "expected"),
    [
        ("README.md", "notebooks/tutorial.ipynb", "notebooks/tutorial.md"),
        ("docs/kinds.md", "limits.md#what-a-page-may-do", "limits.md#what-a-page-may-do"),
        ("docs/kinds.md", "../README.md", "index.md"),
        (
            "docs/kinds.md",
            "../src/attnviz/cli.py#L1",
            "https://github.com/attnviz/attnviz/blob/main/src/attnviz/cli.py#L1",
        ),
        ("notebooks/tutorial.ipynb", "../docs/kinds.md", "../kinds.md"),
    ],
)
def test_a_link_leads_to_the_same_page_of_the_site(origin: str, target: str, expected: str) -> None:
    page = build_site.place_in_site(ROOT / origin)
    assert page is not None
    assert build_site.new_target(target, ROOT / origin, page) == expected
    with pytest.raises(SystemExit, match="the link 'no-such\\.md' leads to no file"):
        build_site.new_target("no-such.md", ROOT / origin, page)


def test_code_stays_as_it_is() -> None:
    origin, page = ROOT / "docs" / "kinds.md", Path("kinds.md")
    code = '```html\n<a href="../README.md">\n```\n\nHere `[x](../README.md)` is code.\n'
    text = code + 'Here [x](../README.md) and\n<img src="images/head-view.webp"> are not.\n'
    expected = code + 'Here [x](index.md) and\n<img src="images/head-view.webp"> are not.\n'
    assert build_site.with_links(text, origin, page) == expected


def test_a_version_is_published_beside_the_others(tmp_path: Path) -> None:
    site, published = tmp_path / "site", tmp_path / "published"
    site.mkdir()
    for version in ("0.1", "0.2", "0.1", "0.2"):
        (site / "index.html").write_text(f"of {version}", encoding="utf-8")
        build_site.publish(site, published, version)
    listed = json.loads((published / "versions.json").read_text(encoding="utf-8"))
    assert [(version_entry["version"], version_entry["aliases"]) for version_entry in listed] == [
        ("0.2", ["latest"]),
        ("0.1", []),
    ]
    texts = {
        name: (published / name / "index.html").read_text("utf-8") for name in ("0.1", "latest")
    }
    assert texts == {"0.1": "of 0.1", "latest": "of 0.2"}
    assert 'url=latest/"' in (published / "index.html").read_text(encoding="utf-8")
