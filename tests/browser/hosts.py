"""Views that are tested in every live host, and helpers of these tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from playwright.sync_api import expect

import attnviz as av

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Locator, Page

    from attnviz import AttentionRecord
    from browser.jupyter import Notebook

# Milliseconds: a cold kernel imports torch and transformers on two busy cores.
FIRST_PICTURE = 90_000

# The record has queries and keys because some views need them. They are random because importing
# transformers takes a kernel several seconds.
RECORD = """
import attnviz as av, torch
torch.set_num_threads(1)
def vectors(seed):
    return torch.randn(3, 4, 9, 16, generator=torch.Generator().manual_seed(seed))

tokens = "The cat sat on the mat . The cat".split()
record = av.AttentionRecord.from_qk(vectors(0), vectors(1), tokens, causal=True)
statistics = av.HeadStatistics()
for _ in range(6):
    statistics.add(record)
"""
TOKENS = "The cat sat on the mat . The cat".split()


def record(tokens: Sequence[str] = TOKENS) -> AttentionRecord:
    """Return the record of `RECORD` in this process."""
    queries, keys = (
        torch.randn(3, 4, 9, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    return av.AttentionRecord.from_qk(queries, keys, tokens, causal=True)


#: Names that `RECORD` defines for the views.
MADE = ("record", "statistics")


def with_heads_reversed(record: AttentionRecord) -> AttentionRecord:
    """Return a record with the same tokens, whose heads are in the opposite order."""
    weights = [layer[::-1] for layer in record.to_numpy()]
    return av.AttentionRecord.from_weights(weights, record.tokens, model=record.model)


@dataclass(frozen=True)
class HostedView:
    """A view and the keys that change its layer.

    Parameters
    ----------
    class_name : str
        Class in ``attnviz``. The tests use it as the name of the widget, too.
    name : str
        Start of the attribute ``data-attnviz-drawn``.
    focus : str
        Selector of the element in the view that gets the focus.
    next_layer, previous_layer : str
        Keys that open the next and the previous layer.
    pin : tuple of str
        Keys that pin a token while a picture has the focus. Empty if the view has no tokens.
    arguments : str
        Further arguments of the constructor, as Python code.
    several : bool
        Whether the view shows several records of a model.
    compared : bool
        Whether the view shows a comparison of two records.
    measured : bool
        Whether the view shows statistics over texts.
    """

    class_name: str
    name: str
    focus: str = ".av-plot"
    next_layer: str = "]"
    previous_layer: str = "["
    pin: tuple[str, ...] = ("ArrowDown", "Enter")
    arguments: str = "layer=0"
    several: bool = False
    compared: bool = False
    measured: bool = False

    @property
    def make(self) -> str:
        """Python code that creates the widget from ``record`` or ``statistics``."""
        shown = "[record, record]" if self.several else "record"
        if self.compared:
            shown = "av.compare(record, record)"
        if self.measured:
            shown = "statistics"
        return f"av.{self.class_name}({shown}, {self.arguments})"

    def widget(self, record: AttentionRecord, **traits: Any) -> Any:
        """Return the widget of a record."""
        shown: Any = [record, record] if self.several else record
        if self.compared:
            shown = av.compare(record, with_heads_reversed(record))
        if self.measured:
            # With fewer texts no head has a role.
            shown = av.head_statistics([record] * 6, progress=False)
        return getattr(av, self.class_name)(shown, **traits)

    def drawn(self, root: Locator, layer: int, timeout: int = 20_000) -> None:
        """Wait until a layer is drawn, which needs the weights from the kernel."""
        picture = f"{self.name}:self:{layer}"
        expect(root).to_have_attribute("data-attnviz-drawn", picture, timeout=timeout)
        expect(root).to_have_attribute("data-attnviz-state", "ready")

    def press(self, page: Page, root: Locator, key: str) -> None:
        """Focus the view and press a key."""
        root.locator(self.focus).first.focus()
        page.keyboard.press(key)


VIEWS = [
    HostedView("HeadView", "head"),
    HostedView(
        "ModelView",
        "model",
        focus=".av-grid-box",
        next_layer="ArrowDown",
        previous_layer="ArrowUp",
        # The arrow keys change the layer only while a head is open.
        arguments="layer=0, heads=[0]",
    ),
    HostedView("NeuronView", "neuron", pin=("ArrowLeft",)),
    HostedView("MatrixView", "matrix"),
    HostedView("Dashboard", "dashboard", focus=".av-pane-head .av-plot"),
    HostedView(
        "CompareView",
        "compare",
        focus=".av-grid-box",
        next_layer="ArrowDown",
        previous_layer="ArrowUp",
        arguments="layer=0, heads=[0]",
        compared=True,
    ),
    # The picture of all heads has no layer.
    HostedView(
        "EmbeddingView",
        "embedding",
        pin=("ArrowRight",),
        arguments="layer=0, enlarged=True",
        several=True,
    ),
    HostedView(
        "AtlasView",
        "atlas",
        focus=".av-grid-box",
        next_layer="ArrowDown",
        previous_layer="ArrowUp",
        pin=(),
        arguments="layer=0, heads=[0]",
        measured=True,
    ),
]
VIEW_IDS = [view.class_name for view in VIEWS]


def view_in(notebook: Notebook, cell: int) -> Locator:
    """Scroll to the view of a cell and return it."""
    notebook.root.locator(".jp-Cell").nth(cell).scroll_into_view_if_needed()
    return notebook.output(cell).locator(".attnviz").first


def drawn(view: Locator, picture: str, timeout: int = FIRST_PICTURE) -> None:
    """Wait until `data-attnviz-drawn` of a view is `picture`, such as "head:self:3"."""
    expect(view).to_have_attribute("data-attnviz-drawn", picture, timeout=timeout)


def has_ink(view: Locator) -> bool:
    """Return whether a canvas of the view has a pixel that is not transparent."""
    return bool(
        view.evaluate(
            """(root) => [...root.querySelectorAll(".av-plot canvas")].some((canvas) =>
              canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
                .some((value) => value > 0))"""
        )
    )
