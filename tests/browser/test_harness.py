"""The harness itself: that it sees what goes wrong, and drives a widget in a real JupyterLab."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from browser.chromium import TIMEOUT, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from browser.jupyter import JupyterLab, Notebook

COUNTER = '''
import anywidget
import traitlets
from IPython.display import HTML, display

class Counter(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
      const button = document.createElement("button");
      button.className = "counter";
      const show = () => { button.textContent = `count ${model.get("count")}`; };
      button.onclick = () => { model.set("count", model.get("count") + 1); model.save_changes(); };
      model.on("change:count", show);
      show();
      el.append(button);
    }
    export default { render };
    """
    count = traitlets.Int(0).tag(sync=True)

counter = Counter()
counter
'''
HTML_OUTPUT = "display(HTML('<b class=\"bold\">bold</b><script>document.title = 1</script>'))"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([COUNTER, HTML_OUTPUT], own_kernel=True)
    notebook.run_all()
    return notebook


def test_a_widget_talks_both_ways(notebook: Notebook) -> None:
    button = notebook.output(0).locator("button.counter")
    button.wait_for()
    assert button.text_content() == "count 0"
    button.click()
    button.get_by_text("count 1").wait_for()
    assert notebook.evaluate("counter.count") == 1
    notebook.execute("counter.count = 7")
    button.get_by_text("count 7").wait_for()


def test_the_theme_changes(lab: JupyterLab, notebook: Notebook) -> None:
    background = "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color0')"
    light = lab.page.evaluate(background)
    lab.set_theme("dark")
    lab.page.wait_for_function(f"(light) => ({background})() !== light", arg=light)
    lab.set_theme("light")
    lab.page.wait_for_function(f"(light) => ({background})() === light", arg=light)


def test_a_kernel_restarts(notebook: Notebook) -> None:
    notebook.execute("kept = 1")
    notebook.restart_kernel()
    assert notebook.evaluate("'kept' in globals()") is False


def test_a_failing_cell_is_seen(lab: JupyterLab) -> None:
    failing = lab.open(["1 / 0"])
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        failing.run_all()
    failing.close()


def test_a_reopened_notebook_is_untrusted(lab: JupyterLab, notebook: Notebook) -> None:
    strange = lab.reopen_untrusted(notebook)
    strange.output(1).locator("b").wait_for()
    assert strange.root.locator("script").count() == 0
    assert strange.root.locator("button.counter").count() == 0


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("console.error('told')", "console error: told"),
        ("throw new Error('thrown')", "uncaught Error: thrown"),
        ("fetch('http://127.0.0.1:9/').catch(() => {})", "request to http://127.0.0.1:9/"),
    ],
)
def test_a_page_that_does_wrong_fails(
    chromium: Browser, tmp_path: Path, body: str, problem: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text(f"<script>{body}</script>", encoding="utf-8")
    page = chromium.new_page()
    watch = Watch()
    watch.follow(page)
    page.goto(path.as_uri())
    end = time.monotonic() + TIMEOUT / 1000
    while not watch.problems and time.monotonic() < end:
        page.wait_for_timeout(50)
    page.close()
    assert any(problem in found for found in watch.problems)


def test_a_file_opens_without_network(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<p>there</p><script>console.log('fine')</script>", encoding="utf-8")
    page.goto(path.as_uri())
    assert page.text_content("p") == "there"
