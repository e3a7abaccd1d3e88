"""Tests of generated text on exported pages: steps through the answer, and candidates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from playwright.sync_api import expect

import attnviz as av
from browser.pages import figure, texts

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show

PROMPT = "the animal did not cross the street because it was too wide so the"


def generated(generate: Any) -> av.AttentionRecord:
    """Return a record of the prompt, which has 14 tokens, and of generated tokens."""
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, PROMPT, tokenizer=tokenizer, generate=generate)


def rounded(probability: float) -> str:
    """Format a probability as the view does: two decimals, with <0.01 and >0.99 at the ends."""
    if 0 < probability < 0.005:
        return "<0.01"
    return ">0.99" if 0.995 <= probability < 1 else f"{probability:.2f}"


def answer_of(root: Locator) -> Locator:
    return root.get_by_role("group", name="Answer")


def listed_candidates(answer: Locator) -> list[list[str]]:
    """Return the texts and probabilities of the candidates. The generated token has a "✓"."""
    items = answer.get_by_role("list", name="Candidates").get_by_role("listitem").all()
    return [item.locator("span").all_inner_texts()[:2] for item in items]


def test_arrow_keys_step_through_the_answer(show: Show, page: Page) -> None:
    record = generated(8)
    answer = answer_of(show(av.HeadView(record, layer=2)))
    expect(answer).to_contain_text("8 tokens")
    slider = answer.get_by_role("slider", name="Token of the answer")
    slider.focus()
    for number, prediction in enumerate(record.tokens.predictions, 1):
        page.keyboard.press("ArrowRight")
        token = prediction.token
        expect(answer).to_contain_text(f"{number} of 8")
        expect(answer).to_contain_text(f"predicting {token.text} ({rounded(token.probability)})")
        assert listed_candidates(answer) == [
            [f"✓ {each.text}" if each.id == token.id else each.text, rounded(each.probability)]
            for each in prediction.candidates
        ]
    expect(answer.get_by_role("button", name="Next token of the answer")).to_be_disabled()
    answer.get_by_role("button", name="Previous token of the answer").click()
    expect(answer).to_contain_text("7 of 8")
    slider.focus()
    page.keyboard.press("Home")
    expect(answer).to_contain_text("8 tokens")
    expect(answer.get_by_role("list", name="Candidates")).to_have_count(0)


def test_a_prediction_is_shown_by_the_row_of_its_query(show: Show) -> None:
    record = generated(8)
    prediction = record.tokens.predictions[1]
    assert (prediction.token.text, prediction.query) == ("lay", 14)
    root = show(av.HeadView(record, layer=2, heads=[0], prediction=1))
    sentence = root.locator(".av-sentence")
    probability = rounded(prediction.token.probability)
    expect(sentence).to_contain_text(f"“street” (14), predicting “lay” ({probability}),")
    row = record.stack().weights(layer=2, head=0)[14]
    expect(sentence).to_contain_text(f"“{record.tokens[int(row.argmax())]}”")
    expect(sentence).to_contain_text(f"{row.max():.2f}")
    assert any("predicting “lay”" in text for text in texts(figure(root)))
    # Show the row in which the token is the query.
    root.get_by_role("checkbox", name="as query").check()
    expect(answer_of(root)).to_contain_text("lay as query, predicted with")
    expect(root.locator(".av-summary")).to_contain_text("Query 15, “lay”")


def test_the_last_token_of_an_encoder_decoder_is_never_a_query(show: Show) -> None:
    model, tokenizer = av.demos.load("encoder-decoder")
    dates = av.extract(model, "Sunday, 17 November 2019", tokenizer=tokenizer, generate=20)
    root = show(av.HeadView(dates, stack="cross", layer=1, prediction=9))
    answer = answer_of(root)
    as_query = root.get_by_role("checkbox", name="as query")
    as_query.check()
    expect(answer).to_contain_text("7 as query")
    root.get_by_role("button", name="Next token of the answer").click()
    expect(answer).to_contain_text("predicting </s>")
    expect(answer).to_contain_text("the model never read it")
    expect(as_query).to_be_disabled()
    expect(as_query).not_to_be_checked()
    # The queries of the stack "encoder" are the prompt, not the answer.
    root.get_by_label("Stack").select_option("encoder")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:encoder"))
    expect(answer).to_have_count(0)


def test_the_window_follows_a_long_answer(show: Show, page: Page) -> None:
    # The answer fills all positions of the model, mostly with unlikely tokens.
    torch.manual_seed(3)
    options = {"max_new_tokens": 114, "do_sample": True, "temperature": 2.0, "top_k": 0}
    record = generated({**options, "eos_token_id": None})
    unlikely = next(
        number
        for number, prediction in enumerate(record.tokens.predictions)
        if number > 60
        and prediction.token.id not in [candidate.id for candidate in prediction.candidates]
    )
    root = show(av.HeadView(record, prediction=unlikely))
    answer = answer_of(root)
    expect(answer).to_contain_text(f"{unlikely + 1} of 114")
    # The generated token follows the five most likely candidates.
    assert [text.startswith("✓ ") for text, _ in listed_candidates(answer)] == [False] * 5 + [True]
    answer.get_by_role("slider").focus()
    page.keyboard.press("End")
    expect(answer).to_contain_text("114 of 114")
    expect(root).to_contain_text("Pinned: query")
    expect(root).not_to_contain_text(", outside the window")
    expect(root).not_to_contain_text("out of sight")
