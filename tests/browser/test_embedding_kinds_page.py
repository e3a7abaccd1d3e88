"""Tests of exported embedding views with unusual corpora: odd, hostile, tiny, with images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from playwright.sync_api import expect

import attnviz as av
from browser.embedding_pages import (
    drawn,
    pixels,
)
from browser.pages import says, table
from unit.random_corpora import attention, corpus

pytestmark = pytest.mark.slow


if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show


def with_odd_heads() -> av.Corpus:
    """Return a corpus whose head 1 has a NaN in a query, and head 2 has equal keys."""
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


def test_heads_that_cannot_be_drawn_say_why(show: Show, page: Page) -> None:
    root = show(av.EmbeddingView(with_odd_heads()), top_keys=2)
    for head, word in ((1, "not finite numbers"), (2, "all keys are the same")):
        tile = root.get_by_role("gridcell", name=f"layer 0, head {head},")
        expect(tile).to_have_attribute("aria-label", re.compile(word))
        tile.click()
        drawn(root, 0)
        says(root, word)
        # The keyboard works in a head without a plot, too.
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
    assert len(table(root)) == 24
    root.get_by_role("combobox", name="Show").select_option("aggregate")
    says(root, "Largest, query")
    page.get_by_role("button", name="layer 0, head 1").click()
    says(root, "Layer 0, head 1: queries or keys are not finite numbers")
    says(root, ", so there is no mean weight.")
    # Equal keys share the weight equally.
    page.get_by_role("button", name="layer 0, head 2").click()
    says(root, "Largest, query 0 → key 0: 1.00.")


@pytest.mark.parametrize("lengths", [(9,), (1, 1, 1), (2,), (1,)], ids=str)
def test_corpora_of_next_to_nothing(show: Show, page: Page, lengths: tuple[int, ...]) -> None:
    count = sum(lengths)
    root = show(av.EmbeddingView(corpus(lengths)), top_keys=2)
    texts = "1 text" if len(lengths) == 1 else f"{len(lengths)} texts"
    says(root, f"{texts} · {2 * count} points")
    root.get_by_role("gridcell").first.click()
    drawn(root, 0)
    if count == 1:
        # A single query and its key are shifted to the same point.
        says(root, "all points are the same")
        root.get_by_role("button", name="t0 0").click()
    else:
        root.locator(".av-plot").focus()
        page.keyboard.press("ArrowRight")
    says(root, "Query “t0”, position 0")
    if count > 1:
        assert len(table(root)) == 2 * count
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


@pytest.mark.parametrize(("kind", "word"), [("Gemma2", "soft-caps its logits"), ("GptOss", "sink")])
def test_models_say_what_of_their_weights_moving_the_keys_changes(
    show: Show, kind: str, word: str
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
    root = show(av.EmbeddingView(records))
    says(root.locator(".av-footer"), word)
    root.get_by_role("gridcell").last.click()
    drawn(root, 1)
    says(root.locator(".av-footer"), word)


def test_cross_attention_has_queries_of_one_text_and_keys_of_another(
    show: Show, page: Page
) -> None:
    model, tokenizer = av.demos.load("encoder-decoder")
    texts = ["12 June 1999", "3 May 2021"]
    made = av.extract_corpus(
        model, texts, target=["1999-06-12", "2021-05-03"], tokenizer=tokenizer, progress=False
    )
    root = show(av.EmbeddingView(made, stack="cross"), top_keys=3)
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
    # Each stack has separate points.
    root.get_by_role("combobox", name="Stack").select_option("encoder")
    drawn(root, 0, "encoder")
    says(root, f"{made.points('encoder').num_queries} queries and")
    assert "key=" not in page.url


def test_patches_of_images_are_points(show: Show) -> None:
    model, processor = av.demos.load("vision")
    images = [picture(seed) for seed in range(2)]
    made = av.extract_corpus(model, images, processor=processor, progress=False)
    view = av.EmbeddingView(made, layer=1, heads=[0], enlarged=True, text=1, token=10)
    root = show(view, top_keys=4)
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
    # The image is drawn: it has many colours, unlike a plain background.
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 100
    # The image is below the text. Its first patch is the upper left corner.
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
