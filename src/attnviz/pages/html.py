"""Exported page: one HTML file that contains a view with its data and its code.

The page needs no network connection and no kernel.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from attnviz.analysis.heads import all_head_scores, measures_of
from attnviz.analysis.measures import MEASURES
from attnviz.pages.colors import DARK, LIGHT
from attnviz.pages.encoding import check_record, embed_maps, embed_weights
from attnviz.pages.limits import (
    PagePrecision,
    check_options,
    count_weights,
    format_megabytes,
    too_large_message,
)
from attnviz.pages.packing import ELEMENT, packed
from attnviz.pages.picture import add_title, displayed_kinds, draw_all_heads
from attnviz.pages.vectors import encode_chosen, encode_vectors
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.storage.safetensors_file import compact_json
from attnviz.server.description import describe
from attnviz.server.images import encode_image
from attnviz.server.protocol import MAX_REPLY_BYTES
from attnviz.utils.numbers import finite_lists
from attnviz.utils.progress import part_of, show_progress

Embedded = Literal["weights", "vectors", "scores"]

#: Version of the format of the data in a page. The code of the page checks it.
FORMAT = 1
# Number of decimal places of scores in a page. A view shows fewer.
_SCORE_DIGITS = 6
# Scores are numbers by which a page can order heads, such as the weight on the previous token. They
# are computed from all queries of a stack, or from sampled queries if the stack is large. If a
# record has more weights than this limit, its page has only scores from sampled queries, because
# scores from all queries would take longer than all other work for the page.
_MAX_SCORED_WEIGHTS = 30_000_000

# The Content-Security-Policy of a page allows three inline scripts by their hashes:
# - note.js reports why a page does not open. It is the first script, so that it runs even if the
#   other scripts are damaged or too new for the browser.
# - loader.js decompresses the bundle (the code of the view), which the page contains as text. It
#   opens the view before the browser reads the data of most layers, which follows this script
#   (`_extract_texts`).
# - The third script is the bundle, which loader.js inserts.
# No script is loaded from a URL, so a page works wherever inline scripts are allowed.
_SCRIPTS = {name: Path(__file__).with_name(f"{name}.js") for name in ("note", "loader")}

# First browser versions that support what pages need: DecompressionStream (Chrome 80, Firefox 113,
# Safari 16.4), `roundRect` (Chrome 99) and container queries (Chrome 105).
_BROWSERS = "Chrome or Edge 105, Firefox 113, Safari 16.4, or a newer version"

# Template of a page. The element attnviz-note is a message, and attnviz-still is a picture that
# replaces the view. Both are hidden at first, and removed when the view opens. They appear after 3
# seconds, or at once if scripts are disabled. note.js shows the message at once if an error occurs,
# and `replace_still` makes the picture visible from the start.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
html {{ background: {light}; color-scheme: {scheme}; }}
body {{ margin: 16px; }}
@media (max-height: 599px) {{ body {{ margin: 0; }} }}
#attnviz-note {{
  max-width: 42em; margin: 0; padding: 12px; font: 15px/1.5 system-ui, sans-serif; color: {ink};
  visibility: hidden; animation: attnviz-wait 0s 3s forwards;
}}
#attnviz-still {{
  color: {ink}; font: 13px/1.5 system-ui, sans-serif;
  max-height: 0; overflow: hidden; visibility: hidden; animation: attnviz-wait 0s 3s forwards;
}}
#attnviz-still.attnviz-exact {{ max-height: none; visibility: visible; animation: none; }}
#attnviz-still p {{ max-width: 50em; margin: 8px 12px; }}
#attnviz-still .attnviz-title {{ font-size: 15px; font-weight: 600; }}
#attnviz-still img {{
  display: block; box-sizing: border-box; max-width: 100%; height: auto; padding: 12px;
  background: {light_ground}; image-rendering: pixelated;
}}
#attnviz-still.attnviz-exact img {{ padding: 0; background: none; image-rendering: auto; }}
#attnviz-still :is(caption, th, td) {{ padding: 2px 12px; text-align: left; }}
#attnviz-note.attnviz-said {{ visibility: visible; animation: none; }}
@keyframes attnviz-wait {{ to {{ max-height: none; visibility: visible; }} }}
@media (scripting: none) {{ #attnviz-note, #attnviz-still {{ animation-delay: 0s; }} }}
{follow}
</style>
</head>
<body>
<div id="attnviz-still">
{still}
</div>
<p id="attnviz-note">This page needs JavaScript to draw attention weights. If nothing is drawn
soon, JavaScript is disabled, or forbidden by the website around the page. Open the file itself with
JavaScript enabled, in
<span id="attnviz-browsers">{browsers}</span>.</p>
<div id="attnviz"></div>
<script>{note}</script>
<script type="application/json" id="attnviz-data">{data}</script>
<script type="text/plain" id="attnviz-bundle">{bundle}</script>
{first}<script>{loader}</script>
{rest}<p id="attnviz-end" hidden></p>
</body>
</html>
"""
_STATIC = Path(__file__).parents[1] / "static"
_LIGHT, _DARK = LIGHT["background"], DARK["background"]
_INK = {_LIGHT: LIGHT["ink"], _DARK: DARK["ink"]}
# Style of a page whose theme is "auto". If the page is in a frame and the document around the frame
# sends a theme, note.js sets the attribute "theme". Without this attribute, the page has the theme
# of the operating system.
_FOLLOW = f"""@media (prefers-color-scheme: dark) {{
html:not([theme=light]) {{ background: {_DARK}; }}
html:not([theme=light]) :is(#attnviz-note, #attnviz-still) {{ color: {_INK[_DARK]}; }}
}}
html[theme=light] {{ color-scheme: light; }}
html[theme=dark] {{ background: {_DARK}; color-scheme: dark; }}
html[theme=dark] :is(#attnviz-note, #attnviz-still) {{ color: {_INK[_DARK]}; }}"""


@show_progress("page")
def make_page(
    record: AttentionRecord,
    view: str,
    state: Mapping[str, Any],
    *,
    embeds: Collection[Embedded] = frozenset({"weights", "scores"}),
    precision: PagePrecision = "auto",
    max_mb: float | None = None,
) -> str:
    """Make the page of a view, and show a progress bar if this takes long.

    Parameters
    ----------
    record : AttentionRecord
        Record that the view shows.
    view, state
        Name of the view and its traits.
    embeds : collection of str
        Kinds of data in the page: ``"weights"``, ``"vectors"`` (queries and keys) and ``"scores"``
        (numbers by which the page can order heads).
    precision : str
        ``"exact"`` embeds all weights, or vectors that are not rounded to float16. With ``"auto"``,
        the page of a long text may contain less (see `attnviz.pages.encoding`).
    max_mb : float, optional
        Maximum size of the page in megabytes. The default depends on the record (see
        `attnviz.pages.limits`).
    """
    max_bytes = check_options(precision, max_mb)
    if "weights" in embeds:
        check_record(record, precision)
    kinds = displayed_kinds(record, state)
    figure, changed = "\n".join(map(draw_all_heads, kinds)), kinds[0].changed
    # Encode the vectors first. If they are too large for the page, the error is raised before the
    # scores are computed, which can take minutes.
    vectors: dict[str, Any] = {}
    if "vectors" in embeds:
        vectors = encode_vectors(record, exact=precision == "exact") | {"maps": embed_maps(record)}
    description = describe(record)
    scores = _embed_scores(record, str(state.get("order", ""))) if "scores" in embeds else []
    scored = {(entry["stack"], entry["pattern"]) for entry in scores}
    for entry in description["stacks"]:
        # Patterns are the measures by which a reader can order heads. The page offers only those
        # whose scores it contains.
        entry["patterns"] = [name for name in entry["patterns"] if (entry["name"], name) in scored]
    data = {
        "description": description,
        "blocks": [],
        "maps": [],
        "scores": scores,
        **encode_chosen(record),
        **vectors,
    }
    made = partial(document, record.model, view, state, figure=figure, changed=changed)
    if "weights" in embeds:
        data |= _embed_images(record)

        def size_of(weights: dict[str, Any]) -> int:
            return len(made(data | weights).encode())

        data |= embed_weights(record, precision=precision, max_bytes=max_bytes, size_of=size_of)
    page = made(data)
    if max_bytes is not None and (size := len(page.encode())) > max_bytes:
        raise ValueError(too_large_message(max_bytes, size))
    return page


def bundle(name: str) -> str:
    """Return the JavaScript code of a bundle, which is a compiled file of the front-end.

    `name` is the name of the file without its suffix: ``"head-page"`` for the pages of the head
    view, or a name such as ``"records"`` for widgets.
    """
    path = _STATIC / f"{name}.js"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"a file of the front-end is missing ({path}). In a clone of the repository, run "
            "`make front-end`. Otherwise, install attnviz again."
        ) from None


@cache
def _pack(code: str) -> str:
    return packed(code.encode())


def packed_bundle(name: str) -> str:
    """Return the code of `bundle`, deflated and in base64."""
    return _pack(bundle(name))


def document(
    model: str,
    view: str,
    state: Mapping[str, Any],
    data: Mapping[str, Any],
    *,
    figure: str = "",
    changed: str = "",
) -> str:
    """Return the HTML document of a page.

    `state` has the traits of the view, and `data` has the other values that the code of the page
    reads. `figure` is HTML, such as a picture, that users see if this code cannot run. `changed`
    is that of `add_title`.
    """
    scripts = {
        name: _without_comments(path.read_text(encoding="utf-8")) for name, path in _SCRIPTS.items()
    }
    code = bundle(f"{view}-page")
    allowed = " ".join(f"'sha256-{_sha256(script)}'" for script in (*scripts.values(), code))
    policy = (
        f"default-src 'none'; script-src {allowed}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = f"{model or 'Attention'} · {view} view · attnviz"
    theme = state.get("theme", "auto")
    ground = _DARK if theme == "dark" else _LIGHT
    content = {"format": FORMAT, "view": view, "state": dict(state), **data}
    embedded, first, rest = _extract_texts(content, state)
    # Escape "<", because a string with a closing script tag would end the element that contains the
    # JSON. A JSON parser decodes the escape.
    text = compact_json(embedded, allow_nan=False).replace("<", "\\u003c")
    return _PAGE.format(
        policy=policy,
        title=html.escape(title),
        light=ground,
        light_ground=_LIGHT,
        still=add_title(model, view, figure, changed),
        ink=_INK[ground],
        scheme={"light": "light", "dark": "dark"}.get(theme, "light dark"),
        follow=_FOLLOW if theme == "auto" else "",
        browsers=_BROWSERS,
        data=text,
        first=first,
        rest=rest,
        bundle=_pack(code),
        **scripts,
    )


def check_size_without_data(
    model: str, view: str, state: Mapping[str, Any], max_bytes: int | None
) -> int:
    """Return the size in bytes of a page without data. Raise ValueError if it exceeds the limit."""
    size = len(document(model, view, state, {}).encode())
    if max_bytes is not None and size > max_bytes:
        raise ValueError(
            f"max_mb={max_bytes / 1e6:.10g} is too small for any page: the code of the view takes "
            f"{format_megabytes(size)} MB. Pass a larger max_mb."
        )
    return size


def _extract_texts(
    data: Mapping[str, Any], state: Mapping[str, Any]
) -> tuple[dict[str, Any], str, str]:
    """Move the base64 texts of weights, maps and vectors out of the data into HTML elements.

    A browser can then draw the view before it has read all layers. In the data, each moved text is
    replaced with the name of its element, such as ``"#attnviz-0003"``.
    ``js/src/client/page/texts.ts`` resolves the names.

    Return the changed data and two strings of HTML elements. The first string has the texts with
    which the view is first drawn: the small maps, and the weights of the selected layer. The second
    string has all other texts.
    """
    first: list[str] = []
    rest: list[str] = []
    # Name of the element of each text. Equal texts share an element.
    names: dict[str, str] = {}

    def name_of(text: str, elements: list[str]) -> str:
        if text not in names:
            names[text] = f"#attnviz-{len(names):04}"
            elements.append(ELEMENT.format(len(names) - 1, text))
        return names[text]

    def without_text(entry: Mapping[str, Any], elements: list[str]) -> dict[str, Any]:
        return {**entry, "data": name_of(entry["data"], elements)}

    embedded = dict(data)
    if "blocks" in data:
        layer = state.get("layer")
        embedded["blocks"] = [
            without_text(entry, first if entry["layer"] == layer else rest)
            for entry in data["blocks"]
        ]
    if "maps" in data:
        embedded["maps"] = [without_text(entry, first) for entry in data["maps"]]
    for name, elements in (("chosen", first), ("saved", rest)):
        if name in data:
            saved = data[name]
            arrays = {key: without_text(array, elements) for key, array in saved["arrays"].items()}
            embedded[name] = {"header": name_of(saved["header"], elements), "arrays": arrays}
    return embedded, "".join(first), "".join(rest)


_STILL = '<div id="attnviz-still">\n', '\n</div>\n<p id="attnviz-note">'


def get_still(page: str) -> str:
    """Return the HTML in a page that users see if its code cannot run (`still` in `document`)."""
    return page.partition(_STILL[0])[2].partition(_STILL[1])[0]


def replace_still(page: str, still: str) -> str:
    """Return a page with `still` as the HTML that users see if the code of the page cannot run.

    The new page shows `still` from the start, until its code opens the view.
    """
    exact = f'<div id="attnviz-still" class="attnviz-exact">\n{still}'
    return page.replace(f"{_STILL[0]}{get_still(page)}", exact, 1)


def _without_comments(script: str) -> str:
    lines = script.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


@cache
def _sha256(text: str) -> str:
    """Return the SHA-256 hash of a text in base64."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embed_scores(record: AttentionRecord, order: str) -> list[dict[str, Any]]:
    """Return the scores of the measures by which a page can order heads.

    The result has one entry for each measure of each stack. To keep pages small, only three kinds
    of measures are included: those with the property `Measure.positional`, those with the property
    `Measure.opens_views`, and the measure with the name `order`.
    """
    scores_all = count_weights(record) <= _MAX_SCORED_WEIGHTS
    embedded = []
    for stack in record.stacks.values():
        # Compute scores from the same queries as a view in a notebook, so that the page and the
        # view show the same numbers. None means all queries.
        queries = num_scored_queries(stack)
        names = measures_of(stack)
        # No measures are defined for differences. `_MAX_SCORED_WEIGHTS` explains the second
        # condition.
        if not names or (queries is None and not scores_all):
            continue
        measures = [
            name
            for name in names
            if name == order or MEASURES[name].positional or MEASURES[name].opens_views
        ]
        for pattern, scores in all_head_scores(stack, measures, max_queries=queries).items():
            # Rounding makes the page smaller.
            written = finite_lists([layer.round(_SCORE_DIGITS) for layer in scores])
            embedded.append({"stack": stack.name, "pattern": pattern, "scores": written})
    return embedded


def _embed_images(record: AttentionRecord) -> dict[str, Any]:
    """Encode the images of the model's input for the page.

    Return them as the entry ``images`` of the page's data, or an empty dict if the input has no
    images.
    """
    embedded = []
    for done, image in enumerate(record.images):
        with part_of("images", done, len(record.images), "image"):
            header, data = encode_image(image, MAX_REPLY_BYTES)
            embedded.append(header | {"data": packed(data)})
    return {"images": embedded} if embedded else {}
