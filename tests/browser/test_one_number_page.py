"""Test that the caption, the CSV file and the figure of a page show the same weight."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnviz as av
from browser.pages import svg, table

if TYPE_CHECKING:
    from browser.pages import Show

LAYER, HEAD, QUERY, KEY = 1, 2, 5, 3
# Error of a weight that a page stores in one byte.
ROUNDED = 0.004


@pytest.fixture(scope="module")
def record() -> av.AttentionRecord:
    def vectors(seed: int) -> torch.Tensor:
        return torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(seed))

    return av.AttentionRecord.from_qk(vectors(0), vectors(1), list("abcdefg"), causal=True)


def weight_by_hand(record: av.AttentionRecord) -> float:
    stack = record.stack()
    query = np.asarray(stack.queries(layer=LAYER, head=HEAD), np.float64)[QUERY]
    keys = np.asarray(stack.keys(layer=LAYER, head=HEAD), np.float64)[: QUERY + 1]
    powers = np.exp(keys @ query / np.sqrt(8))
    return float(powers[KEY] / powers.sum())


def is_rounded(text: str, number: float) -> bool:
    """Return whether a text is the number, rounded to as many digits as the text has."""
    digits = len(text.partition(".")[2])
    return bool(abs(float(text) - number) <= 0.5000001 * 10.0**-digits)


# in_figure: how often the figure shows the weight (in a cell and in the bars of query and key).
@pytest.mark.parametrize(
    ("view", "column", "in_figure"),
    [(av.HeadView, "weight", 2), (av.MatrixView, "weight", 3), (av.NeuronView, "value", 1)],
)
def test_caption_table_and_figure_have_one_number(
    show: Show, record: av.AttentionRecord, view: Any, column: str, in_figure: int
) -> None:
    root = show(view(record, layer=LAYER, heads=[HEAD], token=QUERY, key=KEY))
    at = {"query": str(QUERY), "key": str(KEY)}
    (row,) = (
        row
        for row in table(root)
        if at.items() <= row.items() and row.get("quantity", "weight") == "weight"
    )
    number = float(row[column])
    assert number == pytest.approx(weight_by_hand(record), abs=ROUNDED)
    sentence = root.locator(".av-sentence").first.inner_text()
    match = re.search(r"(?:gives|:) (0\.\d+)", sentence)
    assert match, sentence
    assert is_rounded(match[1], number), sentence
    # No other weight rounds to the same number.
    drawn = re.findall(r">(0?\.\d\d)</text>", svg(root))
    assert sum(is_rounded(text, number) for text in drawn) == in_figure, drawn
