"""The matrix view of a long text in a real JupyterLab: estimate first, then exact, and in between.

Twenty thousand tokens take some seconds of computing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

TOKENS = 20_000
SETUP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import attnviz as av, torch
from unit.long_records import NEEDLE, long_record
torch.set_num_threads(1)
record = long_record({TOKENS})
"""
SHOW = """
view = av.MatrixView(record, heads=[1])
view
"""
# Replies that compute for a moment alone: whoever stops them is in time.
SMALL_STEPS = """
from attnviz.server.pyramid import Budget
usual = Budget.__init__.__defaults__
Budget.__init__.__defaults__ = (0.001, *usual[1:])
"""
# And for so long that an interrupt meets one.
LARGE_STEPS = SMALL_STEPS.replace("0.001", "5.0")
USUAL_STEPS = "Budget.__init__.__defaults__ = usual"
# Everything of a head, on a machine that has much else to do.
EXACT = 120_000
UNANSWERED = 60_000
ESTIMATE = re.compile(r"^\d+/\d+$")


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([SETUP, SHOW], own_kernel=True)
    notebook.run_all()
    return notebook


@pytest.fixture
def view(notebook: Notebook) -> Locator:
    found = notebook.output(1).locator(".attnviz")
    found.scroll_into_view_if_needed()
    return found


def drawn(view: Locator) -> None:
    expect(view).to_have_attribute("data-attnviz-drawn", "matrix:self:0", timeout=EXACT)


def exact(view: Locator) -> None:
    drawn(view)
    expect(view).not_to_have_attribute("data-attnviz-estimate", ESTIMATE, timeout=EXACT)


def plot_has_ink(view: Locator) -> bool:
    return bool(
        view.evaluate(
            """(root) => [...root.querySelectorAll(".av-plot canvas")].some((canvas) =>
              canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
                .some((value) => value > 0))"""
        )
    )


def test_an_estimate_is_drawn_and_becomes_exact(view: Locator) -> None:
    drawn(view)
    # However fast the machine, the first reply of the whole is made from some of the queries.
    seen = view.get_attribute("data-attnviz-estimate")
    if seen is not None:
        queries, of = map(int, seen.split("/"))
        assert 0 < queries <= of == TOKENS
    exact(view)
    expect(view).not_to_contain_text("Estimate from")
    expect(view.get_by_role("progressbar")).to_have_count(0)
    expect(view).to_contain_text("Each cell is the mean of")


def test_the_other_kind_of_cell_is_there_at_once(notebook: Notebook, view: Locator) -> None:
    exact(view)
    view.get_by_label("Cells show").select_option("max")
    exact(view)
    expect(view).to_contain_text("Each cell is the maximum of")
    view.get_by_label("Cells show").select_option("mean")
    exact(view)


@pytest.mark.slow
def test_pan_and_zoom_always_have_something_to_show(notebook: Notebook, view: Locator) -> None:
    exact(view)
    page = notebook.lab.page
    plot = view.locator(".av-plot")
    plot.focus()
    for _ in range(4):
        page.keyboard.press("+")
        assert plot_has_ink(view)
    for _ in range(3):
        notebook.execute(
            "first = view.query_window[0]; width = view.query_window[1] - first;"
            f"first = min(first + width, {TOKENS} - width);"
            "view.query_window = (first, first + width); view.key_window = (first, first + width)"
        )
        assert plot_has_ink(view)
    exact(view)
    notebook.execute("view.query_window = (15000, 15100); view.key_window = (3950, 4050)")
    exact(view)
    expect(view).to_contain_text("Queries 15000–15099 of 20000")
    # The needle: what the view calls strongest is what the record says.
    weight = notebook.evaluate(
        "float(record.stack().weights(layer=0, head=1, rows=slice(15000, 15001))[0, 4000])"
    )
    assert weight > 0.9
    expect(view).to_contain_text(f"“word15000” to “word4000”, {weight:.2f}")
    page.keyboard.press("Home")
    exact(view)


def test_a_pinned_key_has_its_bars_once_all_is_exact(notebook: Notebook, view: Locator) -> None:
    notebook.execute("view.heads, view.token, view.key = [1], 15000, 4000")
    exact(view)
    expect(view).to_contain_text("“word15000” attends to “word4000”:")
    expect(view).to_contain_text("Pinned: query “word15000”, key “word4000”")
    notebook.execute("view.token, view.key = None, None")
    exact(view)


def test_stop_and_go_on(notebook: Notebook, view: Locator) -> None:
    notebook.execute(SMALL_STEPS)
    notebook.execute("view.heads = [2]")
    stop = view.get_by_role("button", name="Stop")
    on = view.get_by_role("button", name="Go on")
    drawn(view)
    stop.click(timeout=20_000)
    expect(on).to_be_visible()
    expect(view).to_contain_text(re.compile(r"Estimate from [\d,]+ of 20,000 queries"))
    # Above the picture, where it is in sight as soon as the view is.
    header = view.locator(".av-header")
    expect(header.get_by_role("progressbar")).to_be_visible()
    expect(header).to_contain_text(re.compile(r"estimate, [\d.]+%"))
    expect(header.get_by_role("button", name="Go on")).to_be_visible()
    drawn(view)
    notebook.execute(USUAL_STEPS)
    on.click()
    exact(view)
    expect(on).to_have_count(0)


@pytest.mark.slow
def test_an_interrupt_is_said_and_what_was_done_is_kept(notebook: Notebook, view: Locator) -> None:
    notebook.execute(LARGE_STEPS)
    notebook.execute("view.heads = [0, 2]")
    expect(view).to_have_attribute("data-attnviz-estimate", ESTIMATE, timeout=20_000)
    # It meets the kernel between two requests now and then, where it interrupts nothing.
    for _ in range(20):
        notebook.interrupt_kernel()
        notebook.lab.page.wait_for_timeout(150)
        if view.get_attribute("data-attnviz-state") == "error":
            break
    expect(view).to_contain_text("The kernel was interrupted; what had been computed before is")
    expect(view).to_have_attribute("data-attnviz-estimate", ESTIMATE)
    notebook.execute(USUAL_STEPS)
    view.get_by_role("button", name="Try again").click()
    exact(view)
    expect(view).to_have_attribute("data-attnviz-state", "ready")


@pytest.mark.slow
def test_a_kernel_that_dies_in_the_middle_leaves_the_picture(
    notebook: Notebook, view: Locator
) -> None:
    exact(view)
    kernel = notebook.evaluate("__import__('os').getpid()")
    notebook.execute("view.heads = [3]")
    expect(view).to_have_attribute("data-attnviz-estimate", ESTIMATE, timeout=20_000)
    notebook.kill_kernel(kernel)
    expect(view).to_have_attribute("data-attnviz-state", "unanswered", timeout=UNANSWERED)
    expect(view.get_by_role("button", name="Try again")).to_be_visible()
    # It stays an estimate, and says so.
    expect(view).to_have_attribute("data-attnviz-estimate", ESTIMATE)
    assert plot_has_ink(view)
