"""Write the sources of the documentation site, and build it.

.venv/bin/python scripts/build_site.py          # build/site, with every warning an error
.venv/bin/python scripts/build_site.py --serve  # http://localhost:8000
.venv/bin/python scripts/build_site.py --publish FOLDER  # also as a version of the published site

The sources in build/site-sources are docs/, the notebooks as Markdown, the start page
(site/start.md and README.md), the gallery (`site_gallery`) and the API reference
(`site_reference`). In them a link to a file of the repository that is in no page becomes the file's
address on the code host.
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
# The start page, the style sheet and the script of the site.
OWN = ROOT / "site"

# A fence or a code span, which stays as it is; else a link of Markdown or of HTML.
_LINKS = re.compile(
    r"(?P<code>^ {0,3}(?P<fence>```+|~~~+).*?^ {0,3}(?P=fence)`*[ ]*$"
    r"|(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`))"
    r"|(?P<before>\]\(\s*|\b(?:src|srcset|href)=\"|^\[[^\]]+\]:\s+)(?P<target>[^\s)\"]+)",
    re.MULTILINE | re.DOTALL,
)
# What tests read of a page, and readers do not.
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
# Alternative texts: nbconvert's own template writes "png".
_NOTEBOOK = """
{%- extends 'markdown/index.md.j2' -%}
{%- block data_png -%}
{%- set alt = output.metadata.get("image/png", {}).get("alt", "Output") -%}
![{{ alt }}]({{ output.metadata.filenames["image/png"] | path2url }})
{%- endblock data_png -%}
"""


def repository() -> str:
    """The address of the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Source"])


def place_in_site(path: Path) -> Path | None:
    """Where the site has a file of the repository; None for one that it does not contain."""
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


def with_links(text: str, origin: Path, place: Path) -> str:
    """The text of a file of the repository with the links that it must have in the site."""

    def changed(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        return found["before"] + new_target(found["target"], origin, place)

    return _LINKS.sub(changed, text)


def new_target(target: str, origin: Path, place: Path) -> str:
    """What a link says in the site."""
    if _ELSEWHERE.match(target):
        return target
    file, mark, anchor = target.partition("#")
    path = Path(os.path.normpath(origin.parent / file))
    if not path.exists():
        raise SystemExit(f"{origin.relative_to(ROOT)}: the link {target!r} leads to no file")
    there = place_in_site(path)
    if there is None:
        kind = "tree" if path.is_dir() else "blob"
        return f"{repository()}/{kind}/main/{path.relative_to(ROOT).as_posix()}{mark}{anchor}"
    return Path(os.path.relpath(there, place.parent)).as_posix() + mark + anchor


def write_page(origin: Path, text: str | None = None) -> None:
    """Write the page of a file of the repository."""
    place = place_in_site(origin)
    assert place is not None  # noqa: S101
    target = SOURCES / place
    target.parent.mkdir(parents=True, exist_ok=True)
    text = origin.read_text(encoding="utf-8") if text is None else text
    up = "../" * (len(place.parts) - 1)
    page = with_live_views(with_links(_COMMENT.sub("", text), origin, place), up)
    target.write_text(with_both_themes(page), encoding="utf-8")


def with_both_themes(text: str) -> str:
    """A page whose pictures in two themes follow the site's switch, and not the system."""

    def both(found: re.Match[str]) -> str:
        light, dark = found["img"], re.sub(r'src="[^"]*"', f'src="{found["dark"]}"', found["img"])
        return "".join(
            re.sub(r'src="([^"]*)"', rf'src="\1#only-{theme}"', img)
            for theme, img in (("light", light), ("dark", dark))
        )

    return _PICTURE.sub(both, text)


def write_start() -> None:
    """Write the start page: its own beginning, then README.md from its views on."""
    readme = ROOT / "README.md"
    rest = readme.read_text(encoding="utf-8").partition("\n## Views\n")[2]
    start = OWN / "start.md"
    own = with_live_views(
        with_links(start.read_text(encoding="utf-8"), start, Path("index.md")), ""
    )
    page = own.replace(_REST, with_links(f"## Views\n{rest}", readme, Path("index.md")))
    (SOURCES / "index.md").write_text(with_both_themes(page), encoding="utf-8")


def write_notebook(origin: Path) -> None:
    """Write a notebook as a page, and its pictures beside it."""
    exporter = MarkdownExporter(raw_template=_NOTEBOOK)
    pictures = f"{origin.stem}_files"
    text, resources = exporter.from_notebook_node(
        # The page installs nothing, and has its own pictures alone.
        with_link(nbformat.read(origin, as_version=4), origin.stem),
        resources={"unique_key": origin.stem, "output_files_dir": pictures},
    )
    folder = SOURCES / "notebooks" / pictures
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in resources["outputs"].items():
        (SOURCES / "notebooks" / name).write_bytes(content)
    # Its pictures are in the site alone, beside the page.
    marked = text.replace(f"]({pictures}/", f"](site:{pictures}/")
    place = Path("notebooks") / f"{origin.stem}.md"
    page = with_links(marked, origin, place).replace(f"](site:{pictures}/", f"]({pictures}/")
    (SOURCES / place).write_text(page, encoding="utf-8")


def write_sources() -> None:
    """Write build/site-sources anew."""
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
    """Run Zensical in the root of the repository."""
    command = [sys.executable, "-m", "zensical", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def build(version: str | None = None) -> int:
    """Build the site; as one of several versions, it offers the others."""
    if version is None:
        return zensical("build", "--clean", "--strict")
    # The theme asks for versions.json beside the folder of the version, as mike writes it.
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
    """Put a built site among the versions of the published one, as the latest.

    The same version is replaced. The addresses without a version lead to `latest`.
    """
    shutil.rmtree(published / version, ignore_errors=True)
    shutil.copytree(site, published / version)
    shutil.rmtree(published / "latest", ignore_errors=True)
    shutil.copytree(site, published / "latest")
    listed = published / "versions.json"
    known = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else []
    older = [each | {"aliases": []} for each in known if each["version"] != version]
    newest = {"version": version, "title": version, "aliases": ["latest"]}
    listed.write_text(json.dumps([newest, *older], indent=1) + "\n", encoding="utf-8")
    (published / "index.html").write_text(_TO_LATEST, encoding="utf-8")
    # Else GitHub leaves out names that begin with an underscore.
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
    # Patches of a minor version share its pages.
    version = ".".join(attnviz.__version__.split(".")[:2])
    status = build(version)
    if status == 0:
        publish(ROOT / "build" / "site", options.publish, version)
    return status


if __name__ == "__main__":
    sys.exit(main())
