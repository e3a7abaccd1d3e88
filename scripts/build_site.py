"""Write the source files of the documentation site, and build the site.

.venv/bin/python scripts/build_site.py          # build/site, with every warning an error
.venv/bin/python scripts/build_site.py --serve  # http://localhost:8000
.venv/bin/python scripts/build_site.py --publish FOLDER  # also add it to the versions in FOLDER

The source files in build/site-sources come from docs/, from the notebooks as Markdown, from
site/start.md and README.md (the start page), from the gallery (`site_gallery`) and from the API
reference (`site_reference`). The file of the repository from which a page is written is called its
origin. A link to a file without a page becomes the address of the file on the code host.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

import attnviz
from colab import with_link
from site_gallery import with_live_views, write_gallery
from site_reference import write_reference

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "build" / "site-sources"
# Folder with the start page, the style sheet and the script of the site.
OWN = ROOT / "site"

# Matches code (group "code"), in which links must not be changed, or a link in Markdown or HTML
# (groups "before" and "target").
_LINKS = re.compile(
    r"(?P<code>^ {0,3}(?P<fence>```+|~~~+).*?^ {0,3}(?P=fence)`*[ ]*$"
    r"|(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`))"
    r"|(?P<before>\]\(\s*|\b(?:src|srcset|href)=\"|^\[[^\]]+\]:\s+)(?P<target>[^\s)\"]+)",
    re.MULTILINE | re.DOTALL,
)
# Comments for the tests of the documentation. They are removed from the pages.
_COMMENT = re.compile(r"^<!--(?: skip:|\s+invisible-code).*?-->\n?", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(
    r'<picture>\s*<source[^>]*prefers-color-scheme: dark[^>]*srcset="(?P<dark>[^"]+)"[^>]*>\s*'
    r"(?P<img><img [^>]*>)\s*</picture>",
    re.DOTALL,
)
_REST = '<!-- README.md from "## Views" on -->'
_TO_LATEST = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>attnviz</title>
<meta http-equiv="refresh" content="0; url=latest/">
<a href="latest/">attnviz</a>
</html>
"""
_ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|//|#", re.IGNORECASE)
# Template for nbconvert. It writes the alternative texts of pictures, for which the default
# template writes "png".
_NOTEBOOK = """
{%- extends 'markdown/index.md.j2' -%}
{%- block data_png -%}
{%- set alt = output.metadata.get("image/png", {}).get("alt", "Output") -%}
![{{ alt }}]({{ output.metadata.filenames["image/png"] | path2url }})
{%- endblock data_png -%}
"""


def repository() -> str:
    """Return the address of the repository on the code host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Source"])


def place_in_site(path: Path) -> Path | None:
    """Return the path of a file's page relative to the site, or None if the file has no page."""
    if path.is_relative_to(SOURCES):
        return path.relative_to(SOURCES)
    relative = path.relative_to(ROOT)
    if relative == Path("README.md"):
        return Path("index.md")
    if relative.parts[0] == "docs":
        return Path(*relative.parts[1:])
    if relative.parts[0] == "notebooks" and path.suffix == ".ipynb":
        return relative.with_suffix(".md")
    return None


def with_links(text: str, origin: Path, page: Path) -> str:
    """Return the text of the file `origin` with links that are correct in its page `page`."""

    def changed(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        return match["before"] + new_target(match["target"], origin, page)

    return _LINKS.sub(changed, text)


def new_target(target: str, origin: Path, page: Path) -> str:
    """Return the target that a link in the file `origin` must have in its page `page`."""
    if _ELSEWHERE.match(target):
        return target
    file, mark, anchor = target.partition("#")
    path = Path(os.path.normpath(origin.parent / file))
    if not path.exists():
        raise SystemExit(f"{origin.relative_to(ROOT)}: the link {target!r} leads to no file")
    target_page = place_in_site(path)
    if target_page is None:
        kind = "tree" if path.is_dir() else "blob"
        return f"{repository()}/{kind}/main/{path.relative_to(ROOT).as_posix()}{mark}{anchor}"
    return Path(os.path.relpath(target_page, page.parent)).as_posix() + mark + anchor


def write_page(origin: Path, text: str | None = None) -> None:
    """Write the page of a Markdown file, or of `text` instead of the file's contents."""
    page_path = place_in_site(origin)
    assert page_path is not None  # noqa: S101
    target = SOURCES / page_path
    target.parent.mkdir(parents=True, exist_ok=True)
    text = origin.read_text(encoding="utf-8") if text is None else text
    up = "../" * (len(page_path.parts) - 1)
    page = with_live_views(with_links(_COMMENT.sub("", text), origin, page_path), up)
    target.write_text(with_both_themes(page), encoding="utf-8")


def with_both_themes(text: str) -> str:
    """Replace pictures with a light and a dark version, so that they follow the site's theme."""

    def both(match: re.Match[str]) -> str:
        light, dark = match["img"], re.sub(r'src="[^"]*"', f'src="{match["dark"]}"', match["img"])
        return "".join(
            re.sub(r'src="([^"]*)"', rf'src="\1#only-{theme}"', img)
            for theme, img in (("light", light), ("dark", dark))
        )

    return _PICTURE.sub(both, text)


def write_start() -> None:
    """Write the start page: site/start.md, in which README.md from "## Views" on is inserted."""
    readme = ROOT / "README.md"
    rest = readme.read_text(encoding="utf-8").partition("\n## Views\n")[2]
    start = OWN / "start.md"
    own = with_live_views(
        with_links(start.read_text(encoding="utf-8"), start, Path("index.md")), ""
    )
    page = own.replace(_REST, with_links(f"## Views\n{rest}", readme, Path("index.md")))
    (SOURCES / "index.md").write_text(with_both_themes(page), encoding="utf-8")


def write_notebook(origin: Path) -> None:
    """Write a notebook as a page, with its pictures in a folder next to it."""
    exporter = MarkdownExporter(raw_template=_NOTEBOOK)
    pictures = f"{origin.stem}_files"
    text, resources = exporter.from_notebook_node(
        # Replace the badge of Colab by a link, and remove the cell that installs packages.
        with_link(nbformat.read(origin, as_version=4), origin.stem),
        resources={"unique_key": origin.stem, "output_files_dir": pictures},
    )
    folder = SOURCES / "notebooks" / pictures
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in resources["outputs"].items():
        (SOURCES / "notebooks" / name).write_bytes(content)
    # The pictures are not in the repository, so `new_target` would not find them. The prefix
    # "site:" protects their links.
    marked = text.replace(f"]({pictures}/", f"](site:{pictures}/")
    page_path = Path("notebooks") / f"{origin.stem}.md"
    page = with_links(marked, origin, page_path).replace(f"](site:{pictures}/", f"]({pictures}/")
    (SOURCES / page_path).write_text(page, encoding="utf-8")


def write_sources() -> None:
    """Write all source files into build/site-sources, and remove older ones."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    SOURCES.mkdir(parents=True)
    write_gallery(SOURCES)
    write_reference(SOURCES)
    write_start()
    for name in ("style.css", "frames.js"):
        shutil.copyfile(OWN / name, SOURCES / name)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix == ".md":
            write_page(path)
        elif path.is_file():
            target = SOURCES / path.relative_to(ROOT / "docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        write_notebook(path)


def zensical(*arguments: str) -> int:
    """Run Zensical in the root of the repository, and return its exit status."""
    command = [sys.executable, "-m", "zensical", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def build(version: str | None = None) -> int:
    """Build the site. If `version` is given, its pages have a menu of all published versions."""
    if version is None:
        return zensical("build", "--clean", "--strict")
    # With the provider "mike", pages read the versions of the menu from versions.json, which
    # `publish` writes.
    config = ROOT / f"zensical-{version}.toml"
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    site = tomllib.loads(text)["project"]["site_url"]
    text = text.replace(f'site_url = "{site}"', f'site_url = "{site}{version}/"')
    offered = '\n[project.extra.version]\nprovider = "mike"\ndefault = "latest"\n'
    config.write_text(text + offered, encoding="utf-8")
    try:
        return zensical("build", "--clean", "--strict", "--config-file", config.name)
    finally:
        config.unlink()


def publish(site: Path, published: Path, version: str) -> None:
    """Copy a built site into the folder of the published site, as its latest version.

    An existing copy of this version is replaced. The folder's start page redirects to `latest`.
    """
    shutil.rmtree(published / version, ignore_errors=True)
    shutil.copytree(site, published / version)
    shutil.rmtree(published / "latest", ignore_errors=True)
    shutil.copytree(site, published / "latest")
    listed = published / "versions.json"
    versions = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else []
    older = [entry | {"aliases": []} for entry in versions if entry["version"] != version]
    newest = {"version": version, "title": version, "aliases": ["latest"]}
    listed.write_text(json.dumps([newest, *older], indent=1) + "\n", encoding="utf-8")
    (published / "index.html").write_text(_TO_LATEST, encoding="utf-8")
    # Without this file, GitHub Pages omits files whose names begin with an underscore.
    (published / ".nojekyll").touch()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--serve", action="store_true", help="serve the site on localhost:8000")
    parser.add_argument(
        "--publish", metavar="FOLDER", type=Path, help="put the site among the versions in FOLDER"
    )
    options = parser.parse_args()
    write_sources()
    if options.serve:
        return zensical("serve")
    if options.publish is None:
        return build()
    # The pages of 1.2.0 and 1.2.1 are both published as version 1.2.
    version = ".".join(attnviz.__version__.split(".")[:2])
    status = build(version)
    if status == 0:
        publish(ROOT / "build" / "site", options.publish, version)
    return status


if __name__ == "__main__":
    sys.exit(main())
