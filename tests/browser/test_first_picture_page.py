"""A page is drawn before its end was read; what comes later is waited for, or said to miss."""

from __future__ import annotations

import csv
import html
import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from attnviz.pages.image import find_browser
from browser.chromium import FLAGS, TIMEOUT
from browser.held_pages import held_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Locator, Page

LAYERS, HEADS, TOKENS = 4, 3, 48
PART = '<template class="attnviz-part">'
LOADING = "Loading the rest of this page"
# What is inflated, counted, and the count at the moment of the first picture.
COUNTS = """
globalThis.inflated = 0;
globalThis.DecompressionStream = class extends DecompressionStream {
  constructor(...given) { super(...given); globalThis.inflated += 1; }
};
new MutationObserver((_, observer) => {
  if (!document.querySelector("[data-attnviz-drawn]")) return;
  globalThis.atFirst = globalThis.inflated;
  globalThis.readAtFirst = document.getElementsByClassName("attnviz-part").length;
  observer.disconnect();
}).observe(document, { subtree: true, childList: true, attributes: true });
// Frames in which controls stand around an empty plot.
globalThis.halfDrawn = 0;
const count = () => {
  const drawn = document.querySelector("[data-attnviz-drawn]");
  if (!drawn && document.querySelector(".attnviz button")) globalThis.halfDrawn += 1;
  if (!drawn) requestAnimationFrame(count);
};
requestAnimationFrame(count);
"""
# Of the picture: how many widths it was drawn for, and how often the view looked at its own.
WIDTHS = """
globalThis.looks = 0;
globalThis.widths = 0;
globalThis.ResizeObserver = class extends ResizeObserver {
  constructor(heard) { super((...given) => { globalThis.looks += 1; heard(...given); }); }
};
let last = "";
new MutationObserver(() => {
  const now = document.querySelector(".attnviz")?.style.getPropertyValue("--av-width") ?? "";
  if (now !== last) globalThis.widths += 1;
  last = now;
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


@pytest.fixture(scope="module")
def weights() -> torch.Tensor:
    logits = 3 * torch.randn(
        LAYERS, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0)
    )
    return torch.softmax(logits, dim=-1)


@pytest.fixture(scope="module")
def record(weights: torch.Tensor) -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(weights, [f"t{place}" for place in range(TOKENS)])


@pytest.fixture(scope="module")
def text(record: av.AttentionRecord) -> str:
    return av.HeadView(record, heads=[0, 2], top_k=None).to_html()


@pytest.fixture(scope="module")
def tabs(chromium: Browser) -> Iterator[BrowserContext]:
    """Tabs that reach the server on this machine; errors in them are expected."""
    with chromium.new_context(viewport={"width": 1000, "height": 800}) as context:
        context.set_default_timeout(TIMEOUT)
        context.add_init_script(COUNTS)
        yield context


@pytest.fixture
def tab(tabs: BrowserContext) -> Iterator[Page]:
    page = tabs.new_page()
    yield page
    page.close()


def code_end(page: str) -> int:
    """Where the page's code ends."""
    return page.index("</script>\n", page.index("<script>// Unpacks")) + 10


def inside_part(page: str, number: int) -> int:
    """A place in the middle of a part's text, counted behind the code."""
    at = code_end(page) - 1
    for _ in range(number + 1):
        at = page.index(PART, at + 1)
    return (at + page.index("</template>", at)) // 2


def altered(page: str, at: int) -> str:
    """The page with another character of base64 at a place."""
    return page[:at] + ("B" if page[at] == "A" else "A") + page[at + 1 :]


def open_file(tab: Page, page: str, folder: Path) -> None:
    """Open a page as a reader does who saved it."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    tab.goto(path.as_uri())


def root(page: Page) -> Locator:
    return page.locator(".attnviz")


def drawn(page: Page, layer: int, view: str = "head") -> None:
    expect(root(page)).to_have_attribute("data-attnviz-drawn", f"{view}:self:{layer}")


def layer_button(page: Page, layer: int) -> Locator:
    return page.get_by_role("button", name=f"Layer {layer}", exact=True)


def check_weights(page: Page, weights: torch.Tensor, layer: int) -> None:
    """Every line's weight is that of the model, as exact as the page says."""
    written = page.evaluate("() => document.querySelector('.attnviz').attnviz.csv()")
    lines = list(csv.DictReader(io.StringIO(written)))
    assert {int(line["layer"]) for line in lines} == {layer}
    assert len(lines) > TOKENS
    for line in lines:
        place = int(line["head"]), int(line["query"]), int(line["key"])
        assert float(line["weight"]) == pytest.approx(float(weights[layer][place]), abs=0.005)


def reading(page: Page) -> bool:
    return bool(page.evaluate("() => document.readyState") == "loading")


def test_the_first_layer_is_drawn_while_the_rest_is_held_back(
    tab: Page, text: str, weights: torch.Tensor
) -> None:
    with held_page(text, inside_part(text, 1)) as held:
        tab.goto(held.address, wait_until="commit")
        drawn(tab, 0)
        assert reading(tab)
        check_weights(tab, weights, 0)
        expect(tab.locator("#attnviz-note")).to_have_count(0)
        # The part that has come answers, the one that is cut in two does not.
        layer_button(tab, 1).click()
        drawn(tab, 1)
        check_weights(tab, weights, 1)
        layer_button(tab, 3).click()
        expect(root(tab)).to_have_attribute("data-attnviz-state", "loading")
        expect(tab.get_by_text(LOADING)).to_be_visible()
        # What is not wanted any more is not waited for, and does not come after all.
        layer_button(tab, 0).click()
        drawn(tab, 0)
        expect(root(tab)).to_have_attribute("data-attnviz-state", "ready")
        layer_button(tab, 2).click()
        expect(tab.get_by_text(LOADING)).to_be_visible()
        assert reading(tab)
        held.send_rest()
        drawn(tab, 2)
        check_weights(tab, weights, 2)
        expect(tab.get_by_text(LOADING)).to_have_count(0)
        expect(root(tab)).to_have_attribute("data-attnviz-state", "ready")
        expect(tab.locator("#attnviz-note")).to_have_count(0)
        layer_button(tab, 3).click()
        drawn(tab, 3)
        check_weights(tab, weights, 3)


def test_nothing_but_the_first_layer_is_decoded_before_the_first_picture(
    tab: Page, text: str, tmp_path: Path
) -> None:
    open_file(tab, text, tmp_path)
    drawn(tab, 0)
    # The code, and one layer.
    assert tab.evaluate("globalThis.atFirst") == 2
    # The layer beside it, while nothing else is to be done.
    # Asked for again and again from here: the page's policy forbids to evaluate texts in it.
    while tab.evaluate("globalThis.inflated") < 3:
        tab.wait_for_timeout(50)


def test_the_first_picture_is_drawn_before_the_browser_reads_on(
    tab: Page, text: str, tmp_path: Path
) -> None:
    open_file(tab, text, tmp_path)
    drawn(tab, 0)
    # A file is all there: what comes after the code is read as soon as the code waits for anything.
    assert tab.evaluate("globalThis.readAtFirst") == text[: code_end(text)].count(PART) == 1


def test_a_longer_text_is_drawn_from_the_rows_in_sight(tab: Page) -> None:
    tokens = 300
    logits = 3 * torch.randn(2, 12, tokens, tokens, generator=torch.Generator().manual_seed(0))
    weights = torch.softmax(logits, dim=-1)
    record = av.AttentionRecord.from_weights(weights, [f"t{place}" for place in range(tokens)])
    page = av.HeadView(record, heads=[2], top_k=None).to_html()
    # Its rows, and the small maps of its heads, stand before the code.
    assert page[: code_end(page)].count(PART) == 2
    with held_page(page, code_end(page)) as held:
        tab.goto(held.address, wait_until="commit")
        drawn(tab, 0)
        assert reading(tab)
        # The code, the rows and the maps.
        assert tab.evaluate("globalThis.atFirst") == 3
        check_rows(tab, weights, range(64))
        # What comes into sight is taken from the layer.
        tab.get_by_label("Find token", exact=True).fill("t299")
        tab.keyboard.press("Enter")
        expect(tab.get_by_text(LOADING)).to_be_visible()
        held.send_rest()
        expect(tab.get_by_text(LOADING)).to_have_count(0)
        drawn(tab, 0)
        check_rows(tab, weights, range(tokens - 64, tokens))


def check_rows(page: Page, weights: torch.Tensor, queries: range) -> None:
    """The rows that are shown have the model's weights."""
    written = page.evaluate("() => document.querySelector('.attnviz').attnviz.csv()")
    lines = list(csv.DictReader(io.StringIO(written)))
    assert {int(line["query"]) for line in lines} == set(queries)
    for line in lines:
        place = int(line["head"]), int(line["query"]), int(line["key"])
        assert float(line["weight"]) == pytest.approx(float(weights[0][place]), abs=0.005)


def test_a_scroll_bar_does_not_narrow_what_was_drawn(
    chromium: Browser, text: str, tmp_path: Path
) -> None:
    # Playwright hides scroll bars, which most readers have.
    with chromium.browser_type.launch(
        executable_path=find_browser(), args=list(FLAGS), ignore_default_args=["--hide-scrollbars"]
    ) as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        page.add_init_script(WIDTHS)
        open_file(page, text, tmp_path)
        drawn(page, 0)
        while not page.evaluate("globalThis.looks"):
            page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollHeight > innerHeight")
        assert page.evaluate("innerWidth - document.documentElement.clientWidth") > 0
        assert page.evaluate("globalThis.widths") == 1
        # Where the page is as high as its frame, there is none to leave room for.
        page.set_content(
            f'<iframe width="900" height="2000" srcdoc="{html.escape(text)}"></iframe>'
        )
        frame = page.frame_locator("iframe")
        expect(frame.locator("[data-attnviz-drawn]")).to_have_count(1)
        assert frame.locator("html").evaluate("(each) => each.clientWidth") == 900


def test_the_picture_is_drawn_with_the_controls_around_it(
    tab: Page, text: str, tmp_path: Path
) -> None:
    open_file(tab, text, tmp_path)
    drawn(tab, 0)
    assert tab.evaluate("globalThis.halfDrawn") == 0


@pytest.mark.parametrize("name", ["MatrixView", "CompareView", "ModelView"])
def test_views_open_with_what_they_show_first(
    tab: Page, record: av.AttentionRecord, name: str
) -> None:
    view = made(record, name)
    page = view.to_html()
    # A view of all layers needs them all.
    at = page.index("</body>") if name == "ModelView" else code_end(page)
    with held_page(page, at) as held:
        tab.goto(held.address, wait_until="commit")
        expect(root(tab).first).to_have_attribute(
            "data-attnviz-drawn", re.compile(f"^{view.name}:")
        )
        assert reading(tab)


def made(record: av.AttentionRecord, name: str) -> av.MatrixView | av.ModelView | av.CompareView:
    if name == "MatrixView":
        return av.MatrixView(record)
    if name == "ModelView":
        return av.ModelView(record)
    stack = record.stack()
    other = [stack.weights(layer=layer)[::-1].copy() for layer in stack.layers]
    return av.CompareView(av.compare(record, av.AttentionRecord.from_weights(other, record.tokens)))


def test_queries_and_keys_of_the_first_layer_stand_before_the_code(tab: Page) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys = (list(torch.randn(3, 2, 40, 32, generator=generator).numpy()) for _ in range(2))
    record = av.AttentionRecord.from_qk(queries, keys, [f"t{place}" for place in range(40)])
    page = av.NeuronView(record, layer=1, token=7).to_html()
    with held_page(page, code_end(page)) as held:
        tab.goto(held.address, wait_until="commit")
        drawn(tab, 1, "neuron")
        assert reading(tab)
        logits = queries[1][0, 7] @ keys[1][0].T / np.sqrt(32)
        expected = np.exp(logits - logits.max())
        expected /= expected.sum()
        written = tab.evaluate("() => document.querySelector('.attnviz').attnviz.csv()")
        rows = [row for row in csv.DictReader(io.StringIO(written)) if row["quantity"] == "weight"]
        assert len(rows) == 40
        found = [float(row["value"]) for row in rows]
        np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_page_that_ends_too_soon_says_so(
    tab: Page, text: str, weights: torch.Tensor, number: int
) -> None:
    with held_page(text, inside_part(text, number)) as held:
        tab.goto(held.address, wait_until="commit")
        drawn(tab, 0)
        layer_button(tab, 3).click()
        expect(tab.get_by_text(LOADING)).to_be_visible()
        held.end()
        expect(tab.locator("#attnviz-note")).to_contain_text("its end is missing")
        # Neither does what was asked for wait for ever.
        expect(tab.locator(".av-standing")).to_contain_text("these weights are missing")
        layer_button(tab, 0).click()
        drawn(tab, 0)
        check_weights(tab, weights, 0)


def test_a_part_that_was_changed_is_not_drawn(tab: Page, text: str, tmp_path: Path) -> None:
    at = inside_part(text, 0)
    open_file(tab, altered(text, at), tmp_path)
    drawn(tab, 0)
    expect(tab.locator("#attnviz-note")).to_contain_text("changed after attnviz saved it")
    layer_button(tab, 1).click()
    expect(tab.locator(".av-standing")).to_contain_text("The data are damaged.")


def test_a_first_part_that_was_changed_is_said_by_the_view(
    tab: Page, text: str, tmp_path: Path
) -> None:
    at = text.index(PART) + len(PART) + 2000
    assert at < code_end(text)
    open_file(tab, altered(text, at), tmp_path)
    expect(tab.locator(".av-standing")).to_contain_text("The data are damaged.")
    # Other layers are as they were saved.
    layer_button(tab, 1).click()
    drawn(tab, 1)


def test_a_part_that_was_put_in_is_noticed(tab: Page, text: str, tmp_path: Path) -> None:
    """Without a text of its own it moves the places of all parts after it."""
    at = code_end(text)
    open_file(tab, f"{text[:at]}{PART}</template>\n{text[at:]}", tmp_path)
    expect(tab.locator("#attnviz-note")).to_contain_text("changed after attnviz saved it")


@pytest.mark.parametrize(
    "policy",
    ["script-src {hashes}", "script-src 'unsafe-inline'; require-trusted-types-for 'script'"],
    ids=["hashes", "trusted types"],
)
def test_parts_are_read_in_a_frame_without_an_origin(
    tab: Page, text: str, weights: torch.Tensor, policy: str
) -> None:
    [hashes] = re.findall(r"script-src (.*?);", text)
    tab.set_content(
        "<!doctype html>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy.format(hashes=hashes)}">'
        '<iframe sandbox="allow-scripts" width="900" height="700" '
        f'srcdoc="{html.escape(text)}"></iframe>'
    )
    frame = tab.frame_locator("iframe")
    frame.get_by_role("button", name="Layer 3", exact=True).click()
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:3")
    expect(frame.locator("#attnviz-note")).to_have_count(0)
