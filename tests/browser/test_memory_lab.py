"""Test that running a cell again leaks no memory in the kernel or the browser (JupyterLab)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE, RECORD

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

    from browser.jupyter import JupyterLab, Notebook

pytestmark = pytest.mark.slow

PREPARE = f"""{RECORD}
import comm, weakref
made = []
def new_record():
    record = av.AttentionRecord.from_qk(vectors(0), vectors(1), tokens, causal=True)
    made.append(weakref.ref(record))
    return record
def show():
    return av.show_head_view(new_record(), layer=0)
def alive():
    return sum(each() is not None for each in made)
def comms():
    return len(comm.get_comm_manager().comms)
"""
# Number of runs in each of two halves. A leak in every run increases the counts in both halves.
# One-time work of JupyterLab, or a view that the browser has not released yet, does so in one half.
RUNS = 6
# The browser compiles code that runs often (2 MB), and JupyterLab keeps 20 kB per closed widget.
# Leaking a view, or loading its code again, takes 1 MB per run.
BYTES = 3_000_000
# Fewer than two listeners per run. Every part of a view has more.
LISTENERS = 11
CELL = 1
DRAWN = ".attnviz[data-attnviz-drawn]"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([PREPARE, "view = show()\nview"])
    notebook.run_all()
    notebook.output(CELL).locator(DRAWN).wait_for(timeout=FIRST_PICTURE)
    return notebook


def run(notebook: Notebook) -> None:
    """Run the cell again and wait until the new picture has replaced the old one."""
    output = notebook.output(CELL)
    views = output.locator(".attnviz").count()
    output.locator(".attnviz").evaluate_all(
        "(roots) => roots.forEach((root) => root.setAttribute('data-old', ''))"
    )
    notebook.lab.command("notebook:run-cell")
    output.locator(f"{DRAWN}:not([data-old])").first.wait_for()
    expect(output.locator(".attnviz:not([data-old])")).to_have_count(views)
    expect(output.locator(".attnviz")).to_have_count(views)


def counts(session: CDPSession) -> dict[str, float]:
    """Return the bytes and event listeners of the page after garbage collection."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


def settled(notebook: Notebook, session: CDPSession) -> dict[str, float]:
    """Return the counts once the number of listeners is the same four times in succession.

    JupyterLab may work for several seconds after a run.
    """
    current = counts(session)
    num_equal = 0
    for _ in range(120):
        notebook.lab.page.wait_for_timeout(500)
        before, current = current, counts(session)
        is_equal = current["JSEventListeners"] == before["JSEventListeners"]
        num_equal = num_equal + 1 if is_equal else 0
        if num_equal == 3:
            return current
    pytest.fail("the number of event listeners changes for more than a minute")


def test_runs_of_a_cell_leave_nothing_behind(notebook: Notebook) -> None:
    session = notebook.lab.context.new_cdp_session(notebook.lab.page)
    session.send("Performance.enable")
    # Select the same cell every time: JupyterLab keeps listeners when another cell becomes active.
    notebook.select(CELL)
    run(notebook)
    comms, counted = notebook.evaluate("comms()"), [settled(notebook, session)]
    for _ in range(2):
        for _ in range(RUNS):
            run(notebook)
            assert notebook.evaluate("alive()") == 1
        assert notebook.evaluate("comms()") == comms
        counted.append(settled(notebook, session))
    for name, most in (("JSEventListeners", LISTENERS), ("JSHeapUsedSize", BYTES)):
        before, between, after = (counts_of_run[name] for counts_of_run in counted)
        assert min(between - before, after - between) <= most, (name, before, between, after)


def test_a_deleted_cell_comes_back_with_its_view(notebook: Notebook) -> None:
    notebook.select(CELL)
    notebook.lab.command("notebook:delete-cell")
    expect(notebook.root.locator(".attnviz")).to_have_count(0)
    assert notebook.evaluate("alive()") == 1
    notebook.lab.command("notebook:undo-cell-action")
    head = notebook.output(CELL).locator('[data-attnviz-drawn="head:self:0"]')
    head.wait_for()
    # The kernel still answers.
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    notebook.output(CELL).locator('[data-attnviz-drawn="head:self:1"]').wait_for()
