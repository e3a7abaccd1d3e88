"""Test ranking heads by their weight to the pinned tokens on exported pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from playwright.sync_api import Page

    from browser.pages import Show


@pytest.fixture(scope="module")
def weights(minilm: av.AttentionRecord) -> NDArray[np.float32]:
    """Return the weights from "it" to "animal", of shape (layers, heads)."""
    query, key = minilm.tokens.index("it"), minilm.tokens.index("animal")
    return np.stack(minilm.to_numpy("self"))[:, :, query, key]


def offered(page: Page) -> list[str]:
    return page.locator(".av-head > span:first-of-type").all_inner_texts()


def test_heads_are_ordered_by_the_pinned_pair(
    show: Show, page: Page, minilm: av.AttentionRecord, weights: NDArray[np.float32]
) -> None:
    show(av.HeadView(minilm, layer=3, token="it", key="animal", order="pinned"))
    expect(page.locator(".av-head").first).to_contain_text("0.68")
    assert offered(page)[:2] == [str(head) for head in np.argsort(-weights[3])[:2]]


def test_the_heads_that_link_a_pinned_pair_are_named_and_lead_there(
    show: Show, page: Page, minilm: av.AttentionRecord, weights: NDArray[np.float32]
) -> None:
    show(av.ModelView(minilm, token="it", key="animal"))
    named = page.locator(".av-pinned-heads")
    layer, head = np.unravel_index(weights.argmax(), weights.shape)
    expect(named).to_contain_text(
        f"Largest weight from “it” to “animal” among all heads: layer {layer}, head {head} "
        f"({weights.max():.2f}), layer 5, head 11 (0.67)"
    )
    named.get_by_role("button", name="layer 5, head 11").click()
    expect(page.locator(".attnviz")).to_contain_text("Layer 5, head 11")
