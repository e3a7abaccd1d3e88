"""Test navigation, gallery, reference, links and versions of the documentation site."""

from __future__ import annotations

import importlib
import inspect
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

import attnviz
import build_site
import griffe_show
import site_gallery
import site_reference

ROOT = Path(__file__).parents[2]
EXAMPLES = list(site_gallery.EXAMPLES.rglob("*.py"))


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


def test_every_page_has_one_line_in_the_navigation() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    navigation = list(pages_of(config["project"]["nav"]))
    files = [
        path
        for folder in ("docs", "notebooks")
        for end in ("md", "ipynb")
        for path in (ROOT / folder).rglob(f"*.{end}")
    ]
    pages = {str(build_site.place_in_site(path)) for path in files}
    # Scripts write the pages of the reference and of the gallery.
    pages |= {f"api/{page}.md" for page in ("index", *site_reference.REFERENCE)}
    examples = {path.relative_to(site_gallery.EXAMPLES) for path in EXAMPLES}
    pages |= {f"gallery/{path.with_suffix('.md').as_posix()}" for path in examples}
    missing = sorted(pages - set(navigation))
    assert not missing, f"add these to `nav` in zensical.toml: {missing}"
    assert len(navigation) == len(set(navigation))


def test_every_example_is_in_a_group_of_the_gallery() -> None:
    groups = site_gallery.GROUPS.items()
    grouped = {f"{group}/{name}" for group, (_, names) in groups for name in names}
    assert grouped == {f"{path.parent.name}/{path.stem}" for path in EXAMPLES}


def test_pictures_of_both_themes_follow_the_switch_of_the_site() -> None:
    text = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="a-dark.webp">\n'
        '  <img src="a-light.webp" width="430" alt="A view.">\n</picture>\n'
    )
    assert build_site.with_both_themes(text) == (
        '<img src="a-light.webp#only-light" width="430" alt="A view.">'
        '<img src="a-dark.webp#only-dark" width="430" alt="A view.">\n'
    )


def test_every_public_name_is_in_the_reference() -> None:
    modules = ["attnviz"] + [
        f"attnviz.{name}"
        for name in ("analysis", "comparison", "corpus", "demos", "integrations", "interventions")
    ]
    exported = {
        f"{module}.{name}" for module in modules for name in importlib.import_module(module).__all__
    }
    named = [name for section in site_reference.REFERENCE.values() for name in section.names]
    assert len(named) == len(set(named))
    in_modules = {name for name in named if name.rpartition(".")[0] in modules}
    assert in_modules - {*modules} == exported - {*modules}


def test_a_generated_function_is_documented_without_running_it() -> None:
    extensions = griffe.load_extensions(griffe_show.ShowFunctions())
    package = griffe.load("attnviz", search_paths=[ROOT / "src"], extensions=extensions)
    documented = package["views.show.show_matrix_view"]
    signature = inspect.signature(attnviz.show_matrix_view)
    assert [parameter.name for parameter in documented.parameters] == list(signature.parameters)
    assert documented.docstring.value == inspect.getdoc(attnviz.show_matrix_view)
    assert documented.parameters["device"].default == "'cpu'"


def test_code_stays_as_it_is() -> None:
    code = '```html\n<a href="../README.md">\n```\n\nHere `[x](../README.md)` is code.\n'
    text = code + "Here [x](../README.md) is not."
    origin, page = ROOT / "docs" / "kinds.md", Path("kinds.md")
    assert build_site.with_links(text, origin, page) == code + "Here [x](index.md) is not."


def test_a_version_is_published_beside_the_others(tmp_path: Path) -> None:
    site, published = tmp_path / "site", tmp_path / "published"
    site.mkdir()
    for version in ("0.1", "0.2", "0.1", "0.2"):
        (site / "index.html").write_text(version, encoding="utf-8")
        build_site.publish(site, published, version)
    listed = json.loads((published / "versions.json").read_text(encoding="utf-8"))
    aliases = {entry["version"]: entry["aliases"] for entry in listed}
    assert aliases == {"0.2": ["latest"], "0.1": []}
    assert (published / "0.1" / "index.html").read_text("utf-8") == "0.1"
    assert (published / "latest" / "index.html").read_text("utf-8") == "0.2"
    assert 'url=latest/"' in (published / "index.html").read_text(encoding="utf-8")
