"""How long a view lives: in a real kernel, with what notebooks and browsers say to it."""

from __future__ import annotations

import ast
import base64
import gc
import subprocess
import sys
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import anywidget
import pytest
import traitlets
from jupyter_client.manager import start_new_kernel

from attnviz.pages.html import bundle
from attnviz.views.head import HeadView
from attnviz.views.lifetime import weakly
from unit.records import given_record

PREPARE = """
import gc, weakref
import comm, ipywidgets
from ipywidgets.widgets.widget import _instances
import attnviz as av
# What dies must do so by itself, not when Python next looks for circles.
gc.disable()
class Views:
    def __init__(self): self.made = []
    def __call__(self, made):
        self.made.append((weakref.ref(made), weakref.ref(made.record)))
        return made
noted = Views()
def record():
    return av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
def alive():
    return [n for n, (view, held) in enumerate(noted.made) if view() or held()]
"""
SECONDS = 60


class Kernel:
    """A kernel as a notebook sees it: cells have ids, and a browser draws views."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3")
        self._ask("execute_request", {"code": PREPARE, "silent": False}, {})

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, cell: str | None, code: str) -> None:
        """Run a cell; its id is None in a notebook that tells no ids."""
        metadata = {} if cell is None else {"cellId": cell}
        reply = self._ask("execute_request", {"code": code, "silent": False}, metadata)
        assert reply["status"] == "ok", "\n".join(reply["traceback"])

    def evaluate(self, expression: str) -> Any:
        content = {"code": "", "silent": True, "user_expressions": {"value": expression}}
        value = self._ask("execute_request", content, {})["user_expressions"]["value"]
        assert value["status"] == "ok", value
        return ast.literal_eval(value["data"]["text/plain"])

    def say(self, number: int, **message: Any) -> None:
        """Say something to the view that was made as the numberth, as a browser does."""
        data = {"method": "custom", "content": {"attnviz": "", **message}}
        self._comm("comm_msg", number, data)

    def draw(self, number: int, picture: str = "tab") -> None:
        self.say(number, attnviz="drawn", picture=picture)

    def remove(self, number: int, picture: str = "tab") -> None:
        self.say(number, attnviz="gone", picture=picture)

    def close_comm(self, number: int) -> None:
        self._comm("comm_close", number, {})

    def alive(self) -> list[int]:
        """Numbers of the views of which view or record are still there."""
        return list(self.evaluate("alive()"))

    def held(self) -> int:
        """How many widgets ipywidgets holds: a view and its layout are two."""
        return int(
            self.evaluate("sum(type(w) is not weakref.ProxyType for w in _instances.values())")
        )

    def _comm(self, kind: str, number: int, data: dict[str, Any]) -> None:
        identifier = self.evaluate(f"noted.made[{number}][0]().model_id")
        self._send(kind, {"comm_id": identifier, "data": data}, {})
        # A kernel takes messages in order.
        self.evaluate("0")

    def _send(self, kind: str, content: dict[str, Any], metadata: dict[str, Any]) -> str:
        message = self.client.session.msg(kind, content, metadata=metadata)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def _ask(self, kind: str, content: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        sent = self._send(kind, content, metadata)
        while True:
            reply = self.client.get_shell_msg(timeout=SECONDS)
            if reply["parent_header"].get("msg_id") == sent:
                found: dict[str, Any] = reply["content"]
                return found


@pytest.fixture(scope="module")
def one_kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(one_kernel: Kernel) -> Iterator[Kernel]:
    """A kernel without views."""
    yield one_kernel
    one_kernel.run(None, "%reset -f out\nview = box = kept = head = matrix = None")
    one_kernel.run(None, "ipywidgets.Widget.close_all(); noted.made.clear(); None")


BOUND = "view = noted(av.HeadView(record())); display(view)"
LAST = "noted(av.show_head_view(record()))"


@pytest.mark.parametrize("code", [BOUND, LAST, f"view = {LAST}\nview", f"{LAST}; None"])
def test_runs_hold_one_record(kernel: Kernel, code: str) -> None:
    # More often than IPython keeps last results.
    for number in range(5):
        if number:
            # What a notebook does when a cell runs: it takes the output away.
            kernel.remove(number - 1)
        kernel.run("cell", code)
        assert kernel.alive() == [number]
        kernel.draw(number)
    assert kernel.held() == 2
    assert kernel.evaluate("len(comm.get_comm_manager().comms)") == 2


def test_a_view_ends_when_the_browser_says_so_after_the_run(kernel: Kernel) -> None:
    kernel.run("cell", BOUND)
    kernel.draw(0)
    kernel.run("cell", BOUND)
    assert kernel.alive() == [0, 1]
    kernel.remove(0)
    assert kernel.alive() == [1]


def test_a_view_ends_that_no_browser_has_drawn_before_the_next_run(kernel: Kernel) -> None:
    kernel.run("cell", LAST)
    kernel.run("cell", LAST)
    assert kernel.alive() == [1]


def test_a_cell_that_shows_nothing_any_more_frees_what_it_showed(kernel: Kernel) -> None:
    kernel.run("cell", LAST)
    kernel.draw(0)
    kernel.remove(0)
    kernel.run("cell", "1 + 1")
    assert kernel.alive() == []
    assert kernel.held() == 0


def test_a_picture_elsewhere_keeps_a_view(kernel: Kernel) -> None:
    """A copy of the output, another tab, an Output widget, a box in another cell."""
    kernel.run("cell", LAST)
    kernel.draw(0, "tab")
    kernel.draw(0, "other tab")
    kernel.remove(0, "tab")
    kernel.run("cell", LAST)
    assert kernel.alive() == [0, 1]
    assert kernel.held() == 4
    # Loaded again, the other tab will look for it.
    kernel.say(0, attnviz="left", picture="other tab")
    assert kernel.alive() == [0, 1]
    kernel.remove(0, "other tab")
    assert kernel.alive() == [1]


def test_a_page_that_is_loaded_again_does_not_keep_a_view_for_ever(kernel: Kernel) -> None:
    kernel.run("cell", LAST)
    kernel.draw(0, "before")
    kernel.say(0, attnviz="left", picture="before")
    kernel.draw(0, "after")
    kernel.remove(0, "after")
    kernel.run("cell", LAST)
    assert kernel.alive() == [1]


def test_the_end_of_a_picture_may_be_said_later_by_another(kernel: Kernel) -> None:
    """As of a notebook that was closed, and opened again."""
    kernel.run("cell", LAST)
    kernel.run("other", LAST)
    kernel.draw(0, "before")
    kernel.run("cell", "None")
    assert kernel.alive() == [0, 1]
    kernel.say(1, attnviz="drawn", picture="new", gone=["unknown", 7, "before"])
    assert kernel.alive() == [1]


def test_another_cell_that_displays_a_view_keeps_it(kernel: Kernel) -> None:
    kernel.run("makes", "view = noted(av.HeadView(record()))")
    kernel.run("shows", "view")
    kernel.run("makes", "view = noted(av.HeadView(record()))")
    assert kernel.alive() == [0, 1]
    kernel.run("shows", "view")
    assert kernel.alive() == [1]
    kernel.run("shows", "view")
    assert kernel.alive() == [1]


def test_a_view_in_a_variable_lives_and_can_be_shown_again(kernel: Kernel) -> None:
    kernel.run("cell", f"kept = {LAST}")
    kernel.draw(0)
    kernel.remove(0)
    kernel.run("cell", "None")
    assert kernel.alive() == [0]
    assert kernel.held() == 0
    kernel.run("other", "display(kept)")
    assert kernel.held() == 2
    kernel.run("third", "identifier = kept.model_id; assert kept.comm is not None; del kept")
    assert kernel.alive() == [0], "it is on the screen"
    kernel.run("other", "None")
    assert kernel.alive() == []


def test_a_view_in_a_box_lives_as_long_as_the_box(kernel: Kernel) -> None:
    kernel.run("cell", "box = ipywidgets.HBox([noted(av.HeadView(record())) for _ in range(2)])")
    kernel.run("cell", "None")
    assert kernel.alive() == [0, 1]
    # Drawn in the box, they come back after a page was loaded again.
    kernel.draw(0)
    assert kernel.evaluate("box.children[0].model_id in _instances")
    kernel.remove(0)
    # And where it is not drawn now, the box can be shown later, after a page was loaded again.
    assert kernel.evaluate("all(view.model_id in _instances for view in box.children)")
    kernel.run("cell", "box.close(); del box; gc.collect()")
    assert kernel.alive() == []


VIEWS = "noted(av.HeadView(record())), noted(av.HeadView(record()))"
SLIDER = "slider = ipywidgets.IntSlider(); view = noted(av.HeadView(record()))\n"


@pytest.mark.parametrize(
    "code",
    [
        f"ipywidgets.HBox([{VIEWS}])",
        f"box = ipywidgets.VBox([{VIEWS}], layout=ipywidgets.Layout(width='90%'))\ndisplay(box)",
        f"ipywidgets.Tab([{VIEWS}], titles=['a', 'b'])",
        f"ipywidgets.Accordion([ipywidgets.GridBox([{VIEWS}]), ipywidgets.Label('none')])",
        f"ipywidgets.VBox([ipywidgets.HBox([{VIEWS}])])",
        f"box = ipywidgets.HBox()\ndisplay(box)\nbox.children = [{VIEWS}]",
        f"{SLIDER}slider.observe(lambda change: view.close(), 'value')\n"
        f"ipywidgets.VBox([ipywidgets.HBox([slider]), view, {LAST}])",
    ],
)
def test_runs_hold_the_views_of_one_box(kernel: Kernel, code: str) -> None:
    held = 0
    for number in range(0, 10, 2):
        if number:
            kernel.remove(number - 1)
            kernel.remove(number - 2)
        kernel.run("cell", code)
        assert kernel.alive() == [number, number + 1]
        kernel.draw(number)
        kernel.draw(number + 1)
        held = held or kernel.held()
        assert kernel.held() == held
    kernel.remove(8)
    kernel.remove(9)
    kernel.run("cell", "box = view = slider = None")
    assert kernel.alive() == []
    assert kernel.held() == 0
    assert kernel.evaluate("len(comm.get_comm_manager().comms)") == 0


@pytest.mark.parametrize(
    "code",
    [
        f"{SLIDER}traitlets.link((slider, 'value'), (view, 'layer'))\n"
        "ipywidgets.VBox([slider, view])",
        f"{SLIDER}ipywidgets.jslink((slider, 'value'), (view, 'layer'))\n"
        "ipywidgets.VBox([slider, view])",
        f"view, other = {VIEWS}\nipywidgets.jslink((other, 'layer'), (view, 'layer'))\nview",
        # Listens to itself.
        f"ipywidgets.AppLayout(center=ipywidgets.HBox([{LAST}]))",
    ],
)
def test_runs_hold_two_records_where_widgets_are_linked(kernel: Kernel, code: str) -> None:
    kernel.run(None, "import traitlets")
    for _ in range(5):
        kernel.run("cell", code)
    per_run = code.count("noted")
    assert len(kernel.alive()) <= 2 * per_run, "those of the last run, and of the run before"
    kernel.run("cell", "other = view = slider = None")
    kernel.run("cell", "None")
    assert (kernel.alive(), kernel.held()) == ([], 0)


def test_a_link_lives_as_long_as_the_views_that_it_links(kernel: Kernel) -> None:
    kernel.run("cell", f"link = ipywidgets.jslink(({LAST}, 'layer'), ({LAST}, 'layer')).model_id")
    kernel.run("other", "gc.collect()")
    assert kernel.evaluate("type(_instances[link].source[0]).__name__") == "HeadView"


BOX = "ipywidgets.HBox([noted(av.HeadView(record()))])"


def test_a_box_that_is_drawn_lives(kernel: Kernel) -> None:
    """In a copy of its output, or in another tab."""
    kernel.run("cell", BOX)
    kernel.draw(0, "tab")
    kernel.draw(0, "copy")
    kernel.remove(0, "tab")
    kernel.run("cell", BOX)
    kernel.draw(1)
    assert kernel.alive() == [0, 1]
    identifiers = kernel.evaluate("[key for key, w in _instances.items() if 'HBox' in repr(w)]")
    assert len(identifiers) == 2, "a page that is loaded again finds both"
    kernel.remove(0, "copy")
    assert kernel.alive() == [1]


def test_a_box_ends_when_the_browser_says_so_after_the_run(kernel: Kernel) -> None:
    kernel.run("cell", BOX)
    kernel.draw(0)
    kernel.run("cell", BOX)
    assert kernel.alive() == [0, 1]
    kernel.remove(0)
    assert kernel.alive() == [1]


def test_a_box_that_a_variable_or_another_cell_holds_lives(kernel: Kernel) -> None:
    kernel.run("cell", f"box = {BOX}")
    kernel.run("cell", "None")
    assert (kernel.alive(), kernel.held()) == ([0], 0), "its variable is left"
    kernel.run("shows", "display(box)")
    assert kernel.held() == 2, "the box and its layout; the box holds the view"
    kernel.run("cell", "box = None")
    assert kernel.alive() == [0], "it is on the screen, though no browser has drawn it yet"
    kernel.run("shows", "None")
    assert kernel.alive() == []


def test_a_box_of_which_the_cell_did_not_run_again_stays_in_the_history(kernel: Kernel) -> None:
    kernel.run("cell", BOX)
    for number in range(5):
        kernel.run("other", f"{number}")
    assert kernel.alive() == [0]
    assert kernel.evaluate("[type(v).__name__ for v in Out.values() if hasattr(v, 'comm')]") == [
        "HBox"
    ]


def test_a_view_that_another_cell_shows_does_not_keep_boxes(kernel: Kernel) -> None:
    kernel.run("first", f"kept = {LAST}\nkept")
    kernel.draw(0)
    for number in range(1, 5):
        kernel.run("cell", f"ipywidgets.HBox([kept, {LAST}])")
        assert kernel.alive() == [0, number]
    kernel.run("first", "kept = None")
    assert kernel.alive() == [0, 4], "the box holds it"


def test_a_part_of_a_box_that_is_displayed_by_itself_stays(kernel: Kernel) -> None:
    kernel.run("cell", f"slider = ipywidgets.IntSlider()\nipywidgets.VBox([slider, {LAST}])")
    kernel.run("other", "display(slider); reference = weakref.ref(slider); del slider")
    kernel.run("cell", "None")
    assert kernel.alive() == []
    assert kernel.evaluate("type(_instances[reference().model_id]).__name__") == "IntSlider"
    kernel.run("other", "reference().close()")


def test_widgets_without_views_stay_as_ipywidgets_keeps_them(kernel: Kernel) -> None:
    kernel.run("first", "slider = ipywidgets.IntSlider(); box = None")
    code = "plain = weakref.ref(ipywidgets.HBox([ipywidgets.Button()]))"
    kernel.run("cell", f"{code}\nipywidgets.VBox([slider, {LAST}])")
    kernel.run("cell", "before = plain().model_id; del slider")
    assert kernel.alive() == []
    assert kernel.evaluate("type(_instances[before]) is ipywidgets.HBox")
    assert kernel.evaluate("sorted(type(w).__name__ for w in _instances.values())") == [
        "Button", "ButtonStyle", "HBox", "IntSlider", *["Layout"] * 3, "SliderStyle"
    ]  # fmt: skip


def test_a_box_that_a_callback_makes_is_kept(kernel: Kernel) -> None:
    kernel.run("cell", LAST)
    kernel.run("cell", "def answer(*_): ipywidgets.HBox([noted(av.HeadView(record()))])")
    kernel.run("cell", f"view = {LAST}; view.on_msg(answer)")
    kernel.say(1)
    kernel.run("cell", "view = None")
    kernel.run("cell", "view = None")
    assert kernel.alive() == [2]


def test_a_box_in_itself_is_no_endless_work(kernel: Kernel) -> None:
    kernel.run("cell", f"box = {BOX}; box.children = [*box.children, box]; display(box); del box")
    kernel.run("cell", "None")
    kernel.run("cell", "None")
    assert kernel.alive() == []


def test_linked_views_end_together(kernel: Kernel) -> None:
    code = (
        "import traitlets\nhead, matrix = noted(av.HeadView(record())), noted(av.MatrixView("
        "record()))\ntraitlets.link((head, 'layer'), (matrix, 'layer'))\ndisplay(head, matrix)"
    )
    for _ in range(4):
        kernel.run("cell", code)
    assert len(kernel.alive()) <= 4, "those of the last run, and those of the run before"


def test_notebooks_that_tell_no_cells_keep_views(kernel: Kernel) -> None:
    kernel.run(None, LAST)
    kernel.draw(0)
    kernel.remove(0)
    kernel.run(None, LAST)
    assert kernel.alive() == [0, 1]


def test_the_history_forgets_only_the_view(kernel: Kernel) -> None:
    kernel.run("number", "40 + 2")
    kernel.run("cell", LAST)
    kernel.run("cell", "None")
    assert kernel.alive() == []
    assert kernel.evaluate("42 in Out.values() and not any('View' in repr(v) for v in [_, __])")
    kernel.run("cell", "kept = {'_mine': noted(av.HeadView(record()))}; _mine = kept['_mine']")
    kernel.run("cell", "None")
    assert kernel.evaluate("_mine is kept['_mine']")
    kernel.run("cell", "del _mine")


def test_a_comm_that_a_browser_closes_ends_its_view(kernel: Kernel) -> None:
    kernel.run("cell", LAST)
    kernel.draw(0)
    kernel.close_comm(0)
    assert kernel.alive() == []
    assert kernel.held() == 0
    kernel.run("cell", f"kept = {LAST}")
    kernel.close_comm(1)
    assert (kernel.alive(), kernel.held()) == ([1], 0)
    # And is opened again where a variable holds it.
    kernel.run("other", "display(kept)")
    assert kernel.held() == 2
    assert kernel.evaluate("kept.comm is not None and kept.model_id in _instances")


def test_close_frees_and_a_closed_view_can_be_shown_again(kernel: Kernel) -> None:
    kernel.run("cell", f"view = {LAST}\nview")
    kernel.run("other", "view.close()")
    assert kernel.held() == 0
    kernel.run("other", "display(view); view.layer")
    assert kernel.held() == 2
    kernel.run("other", "view.close(); view.close(); del view")
    assert kernel.alive() == []


@pytest.mark.parametrize(
    "message",
    [
        {"attnviz": "drawn"},
        {"attnviz": "drawn", "picture": ["x"]},
        {"attnviz": "left", "picture": "x", "gone": "x"},
        {"attnviz": "gone", "picture": None},
        {"attnviz": "gone", "picture": "never drawn"},
        {"attnviz": ["drawn"], "picture": "x"},
    ],
)
def test_messages_that_make_no_sense_change_nothing(message: Any) -> None:
    view = HeadView(given_record())
    view._receive_message(view, message, [])
    view._receive_message(view, "gone", [])
    assert (view._lifetime._pictures, view._lifetime.seen) == (set(), True)
    view.close()


def test_a_browser_cannot_change_the_code() -> None:
    view = HeadView(given_record())
    code = view._code
    view.set_state({"_code": "alert(1)", "_esm": "alert(2)", "layer": 1})
    assert (view._code, view.layer) == (code, 1)
    with pytest.raises(traitlets.TraitError):
        view._code = "alert(3)"
    view.close()


def test_the_code_is_sent_deflated() -> None:
    view = HeadView(given_record())
    code = zlib.decompress(base64.b64decode(view._code)).decode()
    assert code == bundle("head")
    assert len(view._code) < 0.6 * len(code)
    view.close()


def test_views_of_a_kind_share_their_code_and_differ_by_nothing_else() -> None:
    first, second = HeadView(given_record()), HeadView(given_record())
    assert first._code is second._code
    assert first._esm == second._esm
    assert len(first._esm) < 2_000, "a browser keeps it for every widget"
    # A class for each takes as long to make as a page of some tokens, and ends late.
    assert type(first) is type(second) is HeadView
    for view in (first, second):
        view.close()


def test_the_browser_gets_what_anywidget_adds_to_a_widget() -> None:
    class Plain(anywidget.AnyWidget):
        _esm = "export default {}"

    plain, view = Plain(), HeadView(given_record())
    added = set(plain.keys) - set(anywidget.AnyWidget.class_trait_names(sync=True))
    assert added == {"_esm", "_anywidget_id"}
    state = view.get_state()
    assert added <= set(state)
    assert state["_anywidget_id"] == "attnviz.views.head.HeadView"
    assert plain._anywidget_id.endswith(".Plain")
    for each in (plain, view):
        each.close()


def test_a_trait_can_be_added_to_one_view() -> None:
    first, second = HeadView(given_record()), HeadView(given_record())
    first.add_traits(note=traitlets.Unicode("mine").tag(sync=True))
    assert first.get_state("note") == {"note": "mine"}
    assert not second.has_trait("note")
    for view in (first, second):
        view.close()


AT_THE_END = """
import os, sys
import torch
import attnviz as av
from attnviz.embedding.projection import ProjectionSettings
queries, keys = torch.rand(2, 2, 1, 3, 4)
record = av.AttentionRecord.from_qk(queries, keys, ["a", "b", "c"])
# The views end after the names of all modules, which other code holds, were taken away.
os.kept = [av.HeadView(record), av.EmbeddingView([record])]
# It asks what runs for it.
running = os.kept[1]._answers().running
running.wait("it", lambda: torch.rand(30, 4).numpy(), ProjectionSettings("tsne", perplexity=5))
sys.kept = list(sys.modules.values())
"""


@pytest.mark.slow
def test_views_that_end_with_python_say_nothing() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", AT_THE_END], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_weak_method_does_nothing_once_its_object_is_gone() -> None:
    class Counter:
        count = 0

        def add(self, number: int) -> int:
            self.count += number
            return self.count

    counter = Counter()
    add, gone = weakly(counter.add), weakref.ref(counter)
    assert add(2) == 2
    assert counter.count == 2
    del counter
    gc.collect()
    assert gone() is None
    assert add(2) is None
