"""Test in JupyterLab 4 and Notebook 7 that views are drawn, sync traits, and follow the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE, RECORD, VIEW_IDS, VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

    from browser.hosts import HostedView
    from browser.jupyter import JupyterLab, Notebook


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["lab", "notebook7"])
def host(request: pytest.FixtureRequest) -> JupyterLab:
    host: JupyterLab = request.getfixturevalue(request.param)
    return host


@pytest.fixture(scope="module")
def notebook(host: JupyterLab) -> Notebook:
    cells = [f"{view.class_name} = {view.make}\n{view.class_name}" for view in VIEWS]
    notebook = host.open([RECORD, *cells])
    notebook.run_all()
    return notebook


@pytest.fixture(autouse=True)
def _page_is_clean(host: JupyterLab) -> Iterator[None]:
    yield
    host.watch.check()


def root_of(notebook: Notebook, view: HostedView) -> Locator:
    cell = 1 + VIEWS.index(view)
    # JupyterLab renders only cells in the viewport.
    notebook.root.locator(".jp-Cell").nth(cell).scroll_into_view_if_needed()
    return notebook.output(cell).locator(".attnviz")


@pytest.mark.parametrize("view", VIEWS, ids=VIEW_IDS)
def test_a_live_view_is_drawn_and_traits_change_in_both_directions(
    notebook: Notebook, view: HostedView
) -> None:
    root = root_of(notebook, view)
    name = view.class_name
    notebook.execute(f"{name}.layer = 0")
    view.drawn(root, 0, FIRST_PICTURE)
    assert root.count() == 1
    # The widget state never contains weights.
    size = notebook.evaluate(
        f"len(str({{trait: value for trait, value in {name}.get_state().items()"
        " if trait not in ('_esm', '_code')}))"
    )
    assert size < 4_000
    notebook.execute(f"{name}.layer = 1")
    view.drawn(root, 1)
    view.press(notebook.lab.page, root, view.previous_layer)
    view.drawn(root, 0)
    notebook.becomes(f"{name}.layer", 0)
    # The pressed key must not trigger a shortcut of the notebook.
    assert notebook.root.locator(".jp-Cell").count() == 1 + len(VIEWS)


def test_the_theme_follows_the_notebook(notebook: Notebook) -> None:
    for theme in ("dark", "light"):
        notebook.lab.set_theme(theme)
        for view in VIEWS:
            expect(root_of(notebook, view)).to_have_attribute("data-theme", theme)
