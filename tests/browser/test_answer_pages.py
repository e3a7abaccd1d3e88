"""Tests of generated text on exported pages: steps through the answer, and candidates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.pages import figure, texts

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from attnviz.record import Prediction
    from browser.pages import Show

PROMPT = "the animal did not cross the street because it was too wide so the"


@pytest.fixture(scope="module")
def record() -> Any:
    """Return a record with a prompt of 14 tokens and 8 generated tokens."""
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, PROMPT, tokenizer=tokenizer, generate=8)


@pytest.fixture(scope="module")
def long_record() -> Any:
    """Return a record that fills all positions of the model, mostly with unlikely tokens."""
    model, tokenizer = av.demos.load("decoder")
    torch.manual_seed(3)
    options: dict[str, Any] = {"max_new_tokens": 114, "do_sample": True}
    options |= {"temperature": 2.0, "top_k": 0, "eos_token_id": None}
    return av.extract(model, PROMPT, tokenizer=tokenizer, generate=options)


def rounded(probability: float) -> str:
    """Format a probability as the view does: two decimals, with <0.01 and >0.99 at the ends."""
    if 0 < probability < 0.005:
        return "<0.01"
    return ">0.99" if 0.995 <= probability < 1 else f"{probability:.2f}"


def answer_of(root: Locator) -> Locator:
    return root.get_by_role("group", name="Answer")


def listed_candidates(answer: Locator) -> list[tuple[str, str, bool]]:
    """Return the candidates: text, probability, and whether the token was generated."""
    candidates = []
    for item in answer.get_by_role("list", name="Candidates").get_by_role("listitem").all():
        text, probability = item.locator("span").all_inner_texts()[:2]
        is_generated = item.get_attribute("aria-current") == "true"
        assert text.startswith("✓ ") == is_generated
        candidates.append((text.removeprefix("✓ "), probability, is_generated))
    return candidates


def expected_candidates(prediction: Prediction) -> list[tuple[str, str, bool]]:
    token = prediction.token
    candidates = [(candidate, candidate.id == token.id) for candidate in prediction.candidates]
    if not any(is_generated for _, is_generated in candidates):
        candidates.append((token, True))
    return [
        (candidate.text, rounded(candidate.probability), is_generated)
        for candidate, is_generated in candidates
    ]


def test_arrow_keys_step_through_the_answer(show: Show, page: Page, record: Any) -> None:
    answer = answer_of(show(av.HeadView(record, layer=2)))
    expect(answer).to_contain_text("8 tokens")
    slider = answer.get_by_role("slider", name="Token of the answer")
    slider.focus()
    for number, prediction in enumerate(record.tokens.predictions, 1):
        page.keyboard.press("ArrowRight")
        token = prediction.token
        expect(answer).to_contain_text(f"{number} of 8")
        expect(answer).to_contain_text(f"predicting {token.text} ({rounded(token.probability)})")
        assert listed_candidates(answer) == expected_candidates(prediction)
        expect(slider).to_have_attribute("aria-valuetext", f"{token.text}, {number} of 8")
    expect(answer.get_by_role("button", name="Next token of the answer")).to_be_disabled()
    answer.get_by_role("button", name="Previous token of the answer").click()
    expect(answer).to_contain_text("7 of 8")
    slider.focus()
    page.keyboard.press("Home")
    expect(answer).to_contain_text("8 tokens")
    expect(answer.get_by_role("list", name="Candidates")).to_have_count(0)


@pytest.mark.parametrize("name", ["HeadView", "NeuronView", "MatrixView"])
def test_a_prediction_is_shown_by_the_row_of_its_query(show: Show, name: str, record: Any) -> None:
    root = show(getattr(av, name)(record, layer=2, heads=[0], prediction=1))
    prediction = record.tokens.predictions[1]
    assert (prediction.token.text, prediction.query) == ("lay", 14)
    sentence, summary = root.locator(".av-sentence"), root.locator(".av-summary")
    probability = rounded(prediction.token.probability)
    expect(sentence).to_contain_text(f"“street” (14), predicting “lay” ({probability}),")
    expect(summary).to_contain_text("Query 14, “street”, predicting “lay”")
    row = record.stack().weights(layer=2, head=0)[14]
    strongest = int(row.argmax())
    expect(sentence).to_contain_text(f"“{record.tokens[strongest]}”")
    expect(sentence).to_contain_text(f"{row[strongest]:.2f}")
    words = texts(figure(root))
    assert "answer" in words
    assert any("predicting “lay”" in text for text in words)
    # Show the row in which the token is the query.
    root.get_by_role("checkbox", name="as query").check()
    expect(answer_of(root)).to_contain_text("lay as query, predicted with")
    expect(sentence).not_to_contain_text("predicting")
    expect(summary).to_contain_text("Query 15, “lay”")


def test_thumbnails_outline_the_row_of_the_prediction(show: Show, page: Page, record: Any) -> None:
    root = show(av.ModelView(record, prediction=0))
    sentence = root.locator(".av-sentence")
    expect(sentence).to_contain_text("Outlined: “the” (13), predicting “street” (>0.99).")
    pixels = "document.querySelector('.attnviz canvas').toDataURL()"
    outlined = page.evaluate(pixels)
    root.get_by_role("button", name="Next token of the answer").click()
    expect(sentence).to_contain_text("Outlined: “street” (14)")
    # Thumbnails are drawn after the sentence has changed.
    page.wait_for_function(f"(outlined) => {pixels} !== outlined", arg=outlined)


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
    # The stack "encoder" has other queries than the answer, the stack "decoder" has the same.
    root.get_by_label("Stack").select_option("encoder")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:encoder"))
    expect(answer).to_have_count(0)
    root.get_by_label("Stack").select_option("decoder")
    expect(answer).to_contain_text("11 tokens")


def test_the_window_follows_a_long_answer(show: Show, page: Page, long_record: Any) -> None:
    predictions = long_record.tokens.predictions
    unlikely = next(
        number
        for number, prediction in enumerate(predictions)
        if number > 60
        and prediction.token.id not in [candidate.id for candidate in prediction.candidates]
    )
    root = show(av.HeadView(long_record, prediction=unlikely))
    answer = answer_of(root)
    expect(answer).to_contain_text(f"{unlikely + 1} of 114")
    # The generated token is the sixth candidate, and it is marked.
    candidates = listed_candidates(answer)
    assert candidates == expected_candidates(predictions[unlikely])
    assert [is_generated for _, _, is_generated in candidates] == [False] * 5 + [True]
    answer.get_by_role("slider").focus()
    page.keyboard.press("End")
    expect(answer).to_contain_text("114 of 114")
    expect(root).to_contain_text("Pinned: query")
    expect(root).not_to_contain_text(", outside the window")
    expect(root).not_to_contain_text("out of sight")
