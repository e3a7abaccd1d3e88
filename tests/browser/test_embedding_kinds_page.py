"""Pages of the embedding view of all kinds of corpora and models: odd, hostile, tiny, of images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.embedding_pages import (
    alone,
    at,
    coordinates,
    drawn,
    opened,
    pixels,
    places,
    prose,
    says,
    table,
)
from unit.made_corpora import attention, corpus
from unit.records import HOSTILE

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


def hostile() -> av.Corpus:
    records = []
    for seed in range(2):
        made = {0: attention(len(HOSTILE), heads=2, seed=seed)}
        stack = av.AttentionStack("self", made, av.Tokens.of(HOSTILE))
        records.append(av.AttentionRecord({"self": stack}, model=HOSTILE[0]))
    columns = {HOSTILE[0]: list(HOSTILE[:2])}
    return av.Corpus(records, columns=columns)


def test_hostile_words_are_words(page: Page, tmp_path: Path) -> None:
    made = hostile()
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    view = av.EmbeddingView(
        made, layer=0, heads=[1], enlarged=True, text=1, token=11, color=HOSTILE[0]
    )
    root = opened(page, view, tmp_path, place="0", top_keys=3)
    assert root.locator("script, img").count() == 0
    where = places(root, coordinates(made, 0, 1))
    for point in alone(where)[:6]:
        root.locator(".av-plot").hover(position=at(where[point]))
        expect(root.locator(".av-hint")).to_be_visible()
        root.locator(".av-plot").click(position=at(where[point]))
        expect(root.locator(".av-token-chosen")).to_have_count(1)
        # Chosen once more, it would be let go.
        page.mouse.move(1, 1)
    says(root, HOSTILE[1])
    root.get_by_label("Find token").fill("<img")
    says(root, "4 of 48 points hold “<img”.")
    assert root.locator("script, img").count() == 0
    # Spaces are shown, and so are signs that show nothing or turn the reading direction.
    shown = {row["token"] for row in table(page)}
    assert {HOSTILE[0], HOSTILE[1].replace(" ", "·"), "‹U+0000›"} <= shown
    assert not any("\u202e" in token for token in shown)
    svg = page.evaluate("() => document.querySelector('.attnviz').attnviz.svg()")
    assert "<script" not in svg
    page.evaluate(
        "(svg) => new DOMParser().parseFromString(svg, 'image/svg+xml')"
        ".querySelector('parsererror') === null || Promise.reject(new Error('no XML'))",
        svg,
    )


@pytest.mark.parametrize("place", ["all", "0"])
@pytest.mark.parametrize("window", [("light", 400), ("dark", 1300)], ids=str)
def test_nobody_is_shut_out_and_nothing_cut_off(
    page: Page, tmp_path: Path, window: tuple[str, int], place: str
) -> None:
    scheme, width = window
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    enlarged = place != "all"
    traits: dict[str, Any] = {"text": 0, "token": 5} if enlarged else {}
    view = av.EmbeddingView(
        prose(), layer=0, enlarged=enlarged, color="kind", search="dog", **traits
    )
    root = opened(page, view, tmp_path, place=place, top_keys=3)
    expect(root).to_have_attribute("data-theme", scheme)
    if enlarged:
        expect(root.locator(".av-text-strongest li")).to_have_count(3)
    check(page.locator("html"))
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    # No words wider than what holds them, or beyond the page.
    cut = root.evaluate(
        """(root, width) => [...root.querySelectorAll("*")].filter((each) => {
          const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
          if (!own || each.closest(".av-unseen, svg, [aria-hidden]")) return false;
          const box = each.getBoundingClientRect();
          if (box.width === 0) return false;
          const wide = each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0;
          return wide || box.right > width + 0.5 || box.left < -0.5;
        }).map((each) => `${each.className}: ${each.textContent}`.slice(0, 80))""",
        width,
    )
    assert cut == []


def with_odd_heads() -> av.Corpus:
    """Head 1 has a query that is no number, all keys of head 2 are the same."""
    records = []
    for seed in range(2):
        layer = attention(6, heads=4, seed=seed)
        queries, keys = layer.queries.clone(), layer.keys.clone()
        queries[1, 3, 0] = torch.nan
        keys[2] = 1.0
        made = type(layer)(queries, keys, layer.scale, mask=layer.mask)
        tokens = av.Tokens.of([f"t{place}" for place in range(6)])
        stack = av.AttentionStack("self", {0: made}, tokens)
        records.append(av.AttentionRecord({"self": stack}, model="odd"))
    return av.Corpus(records)


def test_heads_that_cannot_be_drawn_say_why(page: Page, tmp_path: Path) -> None:
    root = opened(page, av.EmbeddingView(with_odd_heads()), tmp_path, top_keys=2)
    for head, word in ((1, "not finite numbers"), (2, "all keys are the same")):
        tile = root.get_by_role("gridcell", name=f"layer 0, head {head},")
        expect(tile).to_have_attribute("aria-label", re.compile(word))
        tile.click()
        drawn(root, 0)
        says(root, word)
        # The keyboard leads on from a head without a plot.
        page.keyboard.press("Escape")
        drawn(root, "all")
    root.get_by_role("gridcell", name="layer 0, head 0,").click()
    expect(root.locator(".av-plot")).to_be_focused()
    page.keyboard.press(".")
    expect(root.locator(".av-embedding-problem")).to_be_focused()
    says(root, "not finite numbers")
    page.keyboard.press(",")
    expect(root.locator(".av-plot")).to_be_focused()
    drawn(root, 0)
    expect(root.locator(".av-plot")).to_be_visible()
    assert len(table(page)) == 24
    root.get_by_role("combobox", name="Show").select_option("aggregate")
    says(root, "Largest, query")
    page.get_by_role("button", name="layer 0, head 1").click()
    says(root, "Layer 0, head 1: queries or keys are not finite numbers")
    says(root, ", so there is no mean weight.")
    # One key is as good as another, and so they share the weight.
    page.get_by_role("button", name="layer 0, head 2").click()
    says(root, "Largest, query 0 → key 0: 1.00.")


@pytest.mark.parametrize("lengths", [(9,), (1, 1, 1), (2,), (1,)], ids=str)
def test_corpora_of_next_to_nothing(page: Page, tmp_path: Path, lengths: tuple[int, ...]) -> None:
    count = sum(lengths)
    root = opened(page, av.EmbeddingView(corpus(lengths)), tmp_path, top_keys=2)
    texts = "1 text" if len(lengths) == 1 else f"{len(lengths)} texts"
    says(root, f"{texts} · {2 * count} points")
    root.get_by_role("gridcell").first.click()
    drawn(root, 0)
    if count == 1:
        # Its query and its key, which are moved to the same place.
        says(root, "all points are the same")
        root.get_by_role("button", name="t0 0").click()
    else:
        root.locator(".av-plot").focus()
        page.keyboard.press("ArrowRight")
    says(root, "Query “t0”, position 0")
    if count > 1:
        assert len(table(page)) == 2 * count
    root.get_by_role("combobox", name="Show").select_option("aggregate")
    says(root, f"Mean over {texts}")
    expect(root.locator(".av-aggregate .av-plot")).to_be_visible()
    assert "NaN" not in (root.text_content() or "")


SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "vocab_size": 60,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(("kind", "word"), [("Gemma2", "caps its logits"), ("GptOss", "sink")])
def test_models_say_what_of_their_weights_moving_the_keys_changes(
    page: Page, tmp_path: Path, kind: str, word: str
) -> None:
    own: dict[str, Any] = (
        {"attn_logit_softcapping": 4.0}
        if kind == "Gemma2"
        else {"num_local_experts": 2, "num_experts_per_tok": 1}
    )
    config = getattr(transformers, f"{kind}Config")(**SIZE, **own)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")._from_config(config).eval()
    random = np.random.default_rng(0)
    records = [
        av.extract(model, {"input_ids": torch.tensor(random.integers(3, 60, (1, length)))})
        for length in (6, 8)
    ]
    root = opened(page, av.EmbeddingView(records), tmp_path)
    says(root.locator(".av-footer"), word)
    root.get_by_role("gridcell").last.click()
    drawn(root, 1)
    says(root.locator(".av-footer"), word)


def test_cross_attention_has_queries_of_one_text_and_keys_of_another(
    page: Page, tmp_path: Path
) -> None:
    model, tokenizer = av.demos.load("encoder-decoder")
    texts = ["12 June 1999", "3 May 2021"]
    made = av.extract_corpus(
        model, texts, target=["1999-06-12", "2021-05-03"], tokenizer=tokenizer, progress=False
    )
    root = opened(page, av.EmbeddingView(made, stack="cross"), tmp_path, top_keys=3)
    stack = made.stack("cross")
    queries, keys = len(stack.query_tokens), len(stack.key_tokens)
    assert queries != keys
    points = made.points("cross")
    says(root, f"cross-attention · 2 texts · {points.num_queries + points.num_keys} points")
    root.get_by_role("gridcell").first.click()
    drawn(root, 0, "cross")
    root.locator(".av-plot").focus()
    page.keyboard.press("ArrowRight")
    pane = root.get_by_role("region", name="Text of the chosen point")
    for side, tokens in (("Queries", stack.query_tokens), ("Keys", stack.key_tokens)):
        shown = pane.get_by_role("group", name=side).locator(".av-token")
        expect(shown).to_have_count(len(tokens))
    expect(pane.get_by_role("listitem")).to_have_count(3)
    weights = made.records[0].stack("cross").weights(layer=0, head=0)
    pane.get_by_role("group", name="Queries").locator(".av-token").nth(5).click()
    expect(root.locator(".av-sentence")).to_contain_text(f"({int(weights[5].argmax())}):")
    pane.get_by_role("group", name="Keys").locator(".av-token").nth(1).click()
    says(root, f"Key “{stack.key_tokens[1]}”, position 1 of text 0")
    # Another stack has other points.
    root.get_by_role("combobox", name="Stack").select_option("encoder")
    drawn(root, 0, "encoder")
    says(root, f"{made.points('encoder').num_queries} queries and")
    assert "key=" not in page.url


def test_patches_of_images_are_points(page: Page, tmp_path: Path) -> None:
    model, processor = av.demos.load("vision")
    images = [picture(seed) for seed in range(2)]
    made = av.extract_corpus(model, images, processor=processor, progress=False)
    view = av.EmbeddingView(made, layer=1, heads=[0], enlarged=True, text=1, token=10)
    root = opened(page, view, tmp_path, place="1", top_keys=4)
    says(root, "2 images")
    weights = made.records[1].stack().weights(layer=1, head=0)[10]
    patch = made.records[1].tokens[10]
    says(root, f"Query “patch {patch}”")
    expect(root.locator(".av-text-strongest li")).to_have_count(4)
    expect(root.locator(".av-text-strongest li").first).to_contain_text(
        f"({int(weights.argmax())})"
    )
    panel = root.locator(".av-text-pane .av-front")
    expect(panel).to_be_visible()
    before = pixels(root, ".av-text-pane .av-front")
    # As many colours as a picture has, and no plain ground.
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 100
    # Below the words lies the picture; its first patch is its upper left corner.
    row = (before.max(axis=2) - before.min(axis=2) < 20) & (before.max(axis=2) < 240)
    top = int(np.flatnonzero(row[:, 2:60].all(axis=1))[0])
    panel.click(position={"x": 8, "y": top + 8})
    says(root, "Query “patch 0,0”, position 1 of image 1")
    root.get_by_role("checkbox", name="choose keys").check()
    panel.click(position={"x": 8, "y": top + 8})
    says(root, "Key “patch 0,0”, position 1 of image 1")


def picture(seed: int) -> Any:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
