"""Test every view in marimo: transport, reactive traits, theme."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.cdn import serve_scripts
from browser.hosts import FIRST_PICTURE, MADE, RECORD, VIEW_IDS, VIEWS
from browser.marimo_app import Cell, Marimo, export_page

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

    from browser.hosts import HostedView


def cells_of(view: HostedView) -> list[Cell]:
    """Return a cell with the wrapped view, a cell that reads it and a button that changes it."""
    name = view.class_name
    sentence = f"f\"{name} is at layer {{{name}.value['layer']}}.\""
    return [
        Cell(f"{name} = mo.ui.anywidget({view.make})\n{name}", ("av", "mo", *MADE), (name,)),
        Cell(f"mo.md({sentence})", ("mo", name)),
        Cell(
            f"def _move(_):\n    {name}.layer = 1\n\n"
            f'mo.ui.button(label="{name} to layer 1", on_click=_move)',
            ("mo", name),
        ),
    ]


# The browser asks for the light theme, so only marimo's own setting can make the views dark.
@pytest.fixture(scope="module")
def marimo(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Marimo]:
    cells = [
        Cell(f"import marimo as mo\n{RECORD}", (), ("av", "mo", *MADE)),
        *(cell for view in VIEWS for cell in cells_of(view)),
        Cell("bare = av.show_head_view(record, layer=1)\nbare", ("av", "record")),
    ]
    marimo = Marimo.start(chromium, tmp_path_factory.mktemp("marimo"), cells, theme="dark")
    # Until the last view is drawn, marimo runs cells and sends the state of earlier views again.
    drawn = marimo.page.locator(".attnviz[data-attnviz-drawn]")
    expect(drawn).to_have_count(len(VIEWS) + 1, timeout=FIRST_PICTURE)
    yield marimo
    marimo.close()


def root_of(marimo: Marimo, view: HostedView) -> Locator:
    root = marimo.page.locator(f".attnviz[data-attnviz-drawn^='{view.name}:']").first
    root.wait_for(timeout=FIRST_PICTURE)
    return root


@pytest.mark.parametrize("view", VIEWS, ids=VIEW_IDS)
def test_a_live_view_is_drawn_and_cells_and_view_change_its_layer(
    marimo: Marimo, view: HostedView
) -> None:
    page = marimo.page
    root = root_of(marimo, view)
    expect(root).to_have_attribute("data-theme", "dark")
    name = view.class_name
    page.get_by_role("button", name=f"{name} to layer 1").click()
    view.drawn(root, 1, FIRST_PICTURE)
    view.press(page, root, view.previous_layer)
    view.drawn(root, 0)
    expect(page.get_by_text(f"{name} is at layer 0.")).to_be_visible()
    view.press(page, root, view.next_layer)
    expect(page.get_by_text(f"{name} is at layer 1.")).to_be_visible()


def test_a_view_that_is_not_wrapped_is_shown_once(marimo: Marimo) -> None:
    roots = marimo.page.locator(".attnviz[data-attnviz-drawn]")
    expect(roots).to_have_count(len(VIEWS) + 1, timeout=FIRST_PICTURE)
    # Earlier tests, and earlier attempts of this one, may have changed the layer.
    expect(roots.last).to_have_attribute("data-attnviz-drawn", re.compile(r"^head:self:[01]$"))


def test_a_view_works_in_the_editor(chromium: Browser, tmp_path: Path) -> None:
    view = VIEWS[0]
    cells = [
        Cell(f"import marimo as mo\n{RECORD}", (), ("av", "mo", *MADE)),
        *cells_of(view),
    ]
    editor = Marimo.start(chromium, tmp_path, cells, mode="edit")
    try:
        root = root_of(editor, view)
        view.drawn(root, 0, FIRST_PICTURE)
        # The view receives keys that are also shortcuts of the editor while it has the focus.
        view.press(editor.page, root, view.next_layer)
        expect(editor.page.get_by_text(f"{view.class_name} is at layer 1.")).to_be_visible()
        expect(root).to_have_attribute("data-theme", "light")
        editor.watch.check()
    finally:
        editor.close()


def test_an_exported_page_shows_the_pictures_of_the_views_as_they_were_last(
    chromium: Browser, tmp_path: Path
) -> None:
    cells = [
        Cell(
            "from attnviz.utils import bars\n"
            # All calls have a progress bar, of which the page shows nothing.
            f"bars._SECONDS_WITHOUT_BAR = 0\n{RECORD}",
            (),
            ("av", *MADE),
        ),
        *(
            Cell(
                f"{view.class_name} = {view.make}\n{view.class_name}",
                ("av", *MADE),
                (view.class_name,),
            )
            for view in VIEWS
        ),
        *(Cell(f"{view.class_name}.layer = 2", (view.class_name,)) for view in VIEWS),
    ]
    with chromium.new_context() as context:
        context.route("https://**/*", serve_scripts)
        page = context.new_page()
        page.goto(export_page(tmp_path, cells).as_uri())
        pictures = page.locator(".attnviz-saved")
        expect(pictures).to_have_count(len(VIEWS), timeout=FIRST_PICTURE)
        for number, view in enumerate(VIEWS):
            picture = pictures.nth(number)
            expect(picture).to_contain_text("This picture was saved with a live view.")
            expect(picture.locator("img, table").first, view.name).to_be_visible()
        expect(pictures.first).to_contain_text("Weights of layer 2")
        for wrong in ("kernel does not answer", "Waiting for the kernel", "head_statistics"):
            expect(page.get_by_text(wrong)).to_have_count(0)
