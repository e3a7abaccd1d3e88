"""Test an image in JupyterLab: pixels from the kernel, selecting a patch by key and in Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

SETUP = """
import attnviz as av, torch
torch.set_num_threads(1)
model, processor = av.demos.load("vision")
image = av.demos.example("vision")["inputs"]
view = av.show_head_view(model, image, processor=processor, layer=2, heads=[0, 1])
"""


@pytest.fixture(scope="module")
def view(lab: JupyterLab) -> tuple[Notebook, Locator]:
    notebook = lab.open([SETUP])
    notebook.run_all()
    root = notebook.output(0).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:vision:2", timeout=60_000)
    return notebook, root


@pytest.mark.slow
def test_the_kernel_sends_the_image_and_its_weights(view: tuple[Notebook, Locator]) -> None:
    notebook, root = view
    panel = root.locator(".av-image .av-plot")
    expect(panel).to_have_attribute("aria-label", re.compile("Attention received: the mean over"))
    notebook.evaluate("view.set_trait('token', 0)")
    code = "f'{view.record.stack().weights(layer=2, head=0)[0, 1:].max():.3f}'"
    strongest = str(notebook.evaluate(code))
    expect(panel).to_have_attribute(
        "aria-label", re.compile(rf"Weights of “\[CLS\]” on the image.*{re.escape(strongest)}")
    )


@pytest.mark.slow
def test_a_patch_is_chosen_both_ways(view: tuple[Notebook, Locator]) -> None:
    notebook, root = view
    panel = root.locator(".av-image .av-plot")
    panel.focus()
    notebook.evaluate("view.set_trait('token', None)")
    expect(panel).to_have_attribute("aria-label", re.compile("Attention received"))
    # The first key press only shows the cursor at the upper left patch.
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"]:
        panel.press(key)
    # Row 1, column 1 of 8 columns, after [CLS].
    notebook.becomes("view.token", 1 + 8 + 1)
    notebook.evaluate("view.set_trait('token', 1)")
    expect(panel).to_have_attribute("aria-label", re.compile("Weights of “patch 0,0”"))
