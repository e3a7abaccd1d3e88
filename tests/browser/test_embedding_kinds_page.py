"""Tests of exported embedding views of cross-attention and of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.embedding_pages import drawn
from browser.pages import says

pytestmark = pytest.mark.slow


if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show


def test_cross_attention_has_queries_of_one_text_and_keys_of_another(
    show: Show, page: Page
) -> None:
    model, tokenizer = av.demos.load("encoder-decoder")
    texts = ["12 June 1999", "3 May 2021"]
    made = av.extract_corpus(
        model, texts, target=["1999-06-12", "2021-05-03"], tokenizer=tokenizer, progress=False
    )
    root = show(av.EmbeddingView(made, stack="cross"), top_keys=3)
    stack, points = made.stack("cross"), made.points("cross")
    says(root, f"cross-attention · 2 texts · {points.num_queries + points.num_keys} points")
    root.get_by_role("gridcell").first.click()
    drawn(root, 0, "cross")
    root.locator(".av-plot").focus()
    page.keyboard.press("ArrowRight")
    pane = root.get_by_role("region", name="Text of the chosen point")
    queries, keys = (
        pane.get_by_role("group", name=side).locator(".av-token") for side in ("Queries", "Keys")
    )
    expect(queries).to_have_count(len(stack.query_tokens))
    expect(keys).to_have_count(len(stack.key_tokens))
    weights = made.records[0].stack("cross").weights(layer=0, head=0)
    queries.nth(5).click()
    expect(root.locator(".av-sentence")).to_contain_text(f"({int(weights[5].argmax())}):")
    keys.nth(1).click()
    says(root, f"Key “{stack.key_tokens[1]}”, position 1 of text 0")


def test_patches_of_images_are_points(show: Show) -> None:
    model, processor = av.demos.load("vision")
    images = [
        np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        for seed in range(2)
    ]
    made = av.extract_corpus(model, images, processor=processor, progress=False)
    view = av.EmbeddingView(made, layer=1, heads=[0], enlarged=True, text=1, token=10)
    root = show(view, top_keys=4)
    weights = made.records[1].stack().weights(layer=1, head=0)[10]
    says(root, f"Query “patch {made.records[1].tokens[10]}”")
    strongest = root.locator(".av-chips li")
    expect(strongest.first).to_contain_text(f"({int(weights.argmax())})")
    # The patches of an image are shown as rows of symbols, and the strongest keys are shaded.
    patches = root.locator(".av-running .av-token")
    expect(patches).to_have_count(len(made.records[1].tokens))
    shaded = root.locator(".av-running .av-token[style*=background]")
    expect(shaded).to_have_count(strongest.count())
