"""Tests of generated text on exported pages: steps through the answer, and candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av
from attnviz.record.tokens import Candidate
from browser.pages import figure, texts
from unit.records import given_record

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.pages import Show

PROMPT = "the animal did not cross the street because it was too wide so the"


@pytest.fixture(scope="module")
def record() -> av.AttentionRecord:
    """Return a record of the prompt, which has 14 tokens, and of 8 generated tokens."""
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, PROMPT, tokenizer=tokenizer, generate=8)


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


def test_arrow_keys_step_through_the_answer(
    show: Show, page: Page, record: av.AttentionRecord
) -> None:
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


def test_a_prediction_shows_the_row_of_the_token_before_it(
    show: Show, record: av.AttentionRecord
) -> None:
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
    # Show the row of the predicted token itself.
    root.get_by_role("checkbox", name="as query").check()
    expect(answer_of(root)).to_contain_text("lay as query, predicted with")
    expect(root.locator(".av-summary")).to_contain_text("“lay” attends most to")


@pytest.mark.parametrize("name", ["HeadView", "MatrixView", "ModelView", "Dashboard"])
def test_the_classes_of_a_classifier_are_shown_at_once(
    name: str, page: Page, tmp_path: Path
) -> None:
    plain = given_record()
    classes = [Candidate("positive <b>", 2, 0.75), Candidate("negative", 0, 0.25)]
    record = av.AttentionRecord(plain.stacks, classes=classes)
    page.goto(getattr(av, name)(record).save(tmp_path / "x.html").as_uri())
    shown = page.locator(".av-classes")
    expect(shown).to_have_count(1)
    expect(shown.get_by_role("listitem")).to_have_text([r"✓ positive <b> 0.75", "negative 0.25"])
