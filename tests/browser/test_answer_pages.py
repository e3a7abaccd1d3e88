"""Tests of generated text on exported pages: steps through the answer, and candidates."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from attnviz.record import Prediction
    from browser.pages import Show

VIEWS = ["HeadView", "ModelView", "NeuronView", "MatrixView", "Dashboard"]
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
    options |= {"temperature": 2.0, "top_k": 0}
    options["eos_token_id"] = None
    return av.extract(model, PROMPT, tokenizer=tokenizer, generate=options)


@pytest.fixture(scope="module")
def dates() -> Any:
    """Return the answer of an encoder-decoder model. Its last token is not an input."""
    model, tokenizer = av.demos.load("encoder-decoder")
    return av.extract(model, "Sunday, 17 November 2019", tokenizer=tokenizer, generate=20)


def written(probability: float) -> str:
    """Format a probability as the view does: two decimals, with <0.01 and >0.99 at the ends."""
    if 0 < probability < 0.005:
        return "<0.01"
    return ">0.99" if 0.995 <= probability < 1 else f"{probability:.2f}"


def shown(root: Locator) -> list[tuple[str, str, bool]]:
    """Return the candidates: text, probability, and whether the token was generated."""
    found = []
    for item in root.get_by_role("list", name="Candidates").get_by_role("listitem").all():
        text, number = (item.locator("span").nth(place).inner_text() for place in (0, 1))
        came = item.get_attribute("aria-current") == "true"
        assert text.startswith("✓ ") == came
        found.append((text.removeprefix("✓ "), number, came))
    return found


def expected(prediction: Prediction) -> list[tuple[str, str, bool]]:
    came = prediction.token
    items = [(each, each.id == came.id) for each in prediction.candidates]
    if not any(flag for _, flag in items):
        items.append((came, True))
    return [(each.text, written(each.probability), flag) for each, flag in items]


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_a_walk_by_keyboard(show: Show, name: str, page: Page, record: Any) -> None:
    view = getattr(av, name)(record, layer=2)
    root = show(view)
    answer = root.get_by_role("group", name="Answer")
    expect(answer).to_have_count(1)
    expect(answer).to_contain_text("8 tokens")
    slider = answer.get_by_role("slider", name="Token of the answer")
    slider.focus()
    tokens = record.tokens
    for number, each in enumerate(tokens.predictions):
        page.keyboard.press("ArrowRight")
        expect(answer).to_contain_text(f"{number + 1} of 8")
        said = f"predicting {each.token.text} ({written(each.token.probability)})"
        expect(answer).to_contain_text(said)
        assert shown(answer) == expected(each)
        expect(slider).to_have_attribute("aria-valuetext", f"{each.token.text}, {number + 1} of 8")
    expect(answer.get_by_role("button", name="Next token of the answer")).to_be_disabled()
    # The last query with a prediction is the one before the last token.
    assert tokens.predictions[-1].query == len(tokens) - 2
    answer.get_by_role("button", name="Previous token of the answer").click()
    expect(answer).to_contain_text("7 of 8")
    page.keyboard.press("Tab")
    slider.focus()
    page.keyboard.press("Home")
    expect(answer).to_contain_text("8 tokens")
    expect(answer.get_by_role("list", name="Candidates")).to_have_count(0)


@pytest.mark.parametrize("name", ["HeadView", "NeuronView", "MatrixView"])
def test_the_row_that_is_said(show: Show, name: str, record: Any) -> None:
    view = getattr(av, name)(record, layer=2, heads=[0], prediction=1)
    root = show(view)
    each = record.tokens.predictions[1]
    assert (each.token.text, each.query) == ("lay", 14)
    said = f"“street” (14), predicting “lay” ({written(each.token.probability)}),"
    expect(root.locator(".av-sentence")).to_contain_text(said)
    expect(root.locator(".av-summary")).to_contain_text("Query 14, “street”, predicting “lay”")
    # Find the strongest key in the same row of the record.
    row = record.stacks["self"].weights(layer=2, head=0, rows=slice(14, 15))[0]
    strongest = int(row.argmax())
    expect(root.locator(".av-sentence")).to_contain_text(f"“{record.tokens[strongest]}”")
    expect(root.locator(".av-sentence")).to_contain_text(f"{row[strongest]:.2f}")
    # The row in which the token is the query.
    root.get_by_role("checkbox", name="as query").check()
    expect(root.get_by_role("group", name="Answer")).to_contain_text("lay as query, predicted with")
    expect(root.locator(".av-sentence")).not_to_contain_text("predicting")
    expect(root.locator(".av-summary")).to_contain_text("Query 15, “lay”")


def test_thumbnails_are_outlined_at_the_row(show: Show, page: Page, record: Any) -> None:
    root = show(av.ModelView(record, prediction=0))
    said = root.locator(".av-sentence")
    expect(said).to_contain_text("Outlined: “the” (13), predicting “street” (>0.99).")
    pixels = "document.querySelector('.attnviz canvas').toDataURL()"
    outlined = page.evaluate(pixels)
    root.get_by_role("button", name="Next token of the answer").click()
    expect(said).to_contain_text("Outlined: “street” (14)")
    # Thumbnails are drawn after the sentence has changed.
    page.wait_for_function(f"(outlined) => {pixels} !== outlined", arg=outlined)


def test_pins_and_the_walk_are_one(show: Show, page: Page, record: Any) -> None:
    root = show(av.HeadView(record, layer=2, prediction=2))
    answer = root.get_by_role("group", name="Answer")
    expect(answer).to_contain_text("3 of 8")
    root.locator(".av-plot").focus()
    page.keyboard.press("Escape")
    expect(answer).to_contain_text("8 tokens")
    # Pinning the last query of the prompt shows its prediction.
    for _ in range(14):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("1 of 8")
    # Earlier queries of the prompt have no recorded prediction.
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(root).to_contain_text("Pinned: query “so”")
    expect(answer).to_contain_text("8 tokens")


def test_the_page_opens_where_the_view_was(show: Show, page: Page, record: Any) -> None:
    view = av.MatrixView(record, layer=1, prediction=3, as_query=True)
    root = show(view)
    answer = root.get_by_role("group", name="Answer")
    expect(answer).to_contain_text(". as query")
    expect(answer).to_contain_text("4 of 8")
    root.get_by_role("checkbox", name="as query").uncheck()
    expect(answer).to_contain_text("“quiet” predicting .")
    page.reload()
    expect(answer).to_contain_text("“quiet” predicting .")
    assert "prediction=3&token=16" in page.evaluate("() => location.hash")
    page.goto("about:blank")
    root = show(av.MatrixView(record), "#layer=1&as_query=true&token=16")
    expect(answer).to_contain_text("quiet as query")


def test_a_token_that_was_never_read(show: Show, dates: Any) -> None:
    root = show(av.HeadView(dates, stack="cross", layer=1, prediction=9))
    answer = root.get_by_role("group", name="Answer")
    switch = root.get_by_role("checkbox", name="as query")
    switch.check()
    expect(answer).to_contain_text("7 as query")
    root.get_by_role("button", name="Next token of the answer").click()
    expect(answer).to_contain_text("predicting </s>")
    expect(answer).to_contain_text("the model never read it")
    expect(switch).to_be_disabled()
    expect(switch).not_to_be_checked()
    # The stack "encoder" has other queries than the answer, the stack "decoder" has the same.
    root.get_by_label("Stack").select_option("encoder")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:encoder"))
    expect(answer).to_have_count(0)
    root.get_by_label("Stack").select_option("decoder")
    expect(answer).to_contain_text("11 tokens")


@pytest.mark.parametrize("name", ["HeadView", "MatrixView", "Dashboard"])
def test_a_long_answer_stays_in_sight(show: Show, name: str, page: Page, long_record: Any) -> None:
    unlikely = next(
        number
        for number, each in enumerate(long_record.tokens.predictions)
        if number > 60 and each.token.id not in [candidate.id for candidate in each.candidates]
    )
    root = show(getattr(av, name)(long_record, prediction=unlikely))
    answer = root.get_by_role("group", name="Answer")
    expect(answer).to_contain_text(f"{unlikely + 1} of 114")
    # The generated token is the sixth candidate, and it is marked.
    found = shown(answer)
    assert found == expected(long_record.tokens.predictions[unlikely])
    assert len(found) == 6
    assert [came for _, _, came in found] == [False] * 5 + [True]
    answer.get_by_role("slider").focus()
    page.keyboard.press("End")
    expect(answer).to_contain_text("114 of 114")
    expect(root).to_contain_text("Pinned: query")
    expect(root).not_to_contain_text(", outside the window")
    expect(root).not_to_contain_text("out of sight")


def test_prompt_and_answer_are_named(show: Show, page: Page, record: Any, tmp_path: Path) -> None:
    for name in ("HeadView", "MatrixView", "NeuronView"):
        view = getattr(av, name)(record, layer=2, prediction=1)
        figure = ET.parse(view.save(tmp_path / "x.svg")).getroot()  # noqa: S314 - our own file
        texts = [
            "".join(each.itertext()) for each in figure.iter("{http://www.w3.org/2000/svg}text")
        ]
        assert "answer" in texts, name
        assert any("predicting “lay”" in text for text in texts), name
    # A page without generated tokens has no answer controls.
    plain = av.extract(av.demos.load("decoder")[0], list(record.tokens.ids))
    view = av.HeadView(plain)
    assert "answer" not in view.save(tmp_path / "y.svg").read_text(encoding="utf-8")
    root = show(view)
    expect(root.get_by_role("group", name="Answer")).to_have_count(0)
    root = show(av.HeadView(record))
    root.get_by_label("Texts").select_option("b-a")
    expect(root.locator(".av-footer")).to_contain_text("To tokens outside the prompt")
