"""Tests of when views are freed in a real kernel, whose cells run as in a notebook."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from attnviz.views.head import HeadView
from unit.long_records import long_record

PREPARE = """
import gc, weakref
import comm, ipywidgets
from ipywidgets.widgets.widget import _instances
import attnviz as av
# Views must be freed without the garbage collector.
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
    """A Jupyter kernel that runs code of cells. Each cell has an id, as in a notebook."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3")
        self._ask("execute_request", {"code": PREPARE, "silent": False}, {})
        # IPython keeps the first view of a kernel in a reference cycle. The tests use later views.
        self.run("first", LAST)
        self.run("first", "gc.collect(); noted.made.clear(); None")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, cell: str | None, code: str) -> None:
        """Run code as the cell with id `cell`. None stands for a notebook that sends no ids."""
        metadata = {} if cell is None else {"cellId": cell}
        reply = self._ask("execute_request", {"code": code, "silent": False}, metadata)
        assert reply["status"] == "ok", "\n".join(reply["traceback"])

    def evaluate(self, expression: str) -> Any:
        content = {"code": "", "silent": True, "user_expressions": {"value": expression}}
        value = self._ask("execute_request", content, {})["user_expressions"]["value"]
        assert value["status"] == "ok", value
        return ast.literal_eval(value["data"]["text/plain"])

    def close_comm(self, number: int) -> None:
        """Close the comm of view `number`, as a browser does."""
        identifier = self.evaluate(f"noted.made[{number}][0]().model_id")
        self._send("comm_close", {"comm_id": identifier, "data": {}}, {})
        # The kernel answers this request only after it has closed the comm.
        self.evaluate("0")

    def alive(self) -> list[int]:
        """Return the numbers of views that still exist, or whose records still exist."""
        return list(self.evaluate("alive()"))

    def expect_alive(self, numbers: list[int]) -> None:
        """Wait until the threads of the kernel have released all views except `numbers`."""
        end = time.monotonic() + SECONDS
        while self.alive() != numbers and time.monotonic() < end:
            time.sleep(0.05)
        assert self.alive() == numbers

    def num_widgets(self) -> int:
        """Return the number of widgets that ipywidgets keeps alive by strong references.

        The widget with the code of all views is not counted.
        """
        others = "{'ProxyType', 'WidgetCode'}"
        count = f"sum(type(each).__name__ not in {others} for each in _instances.values())"
        return int(self.evaluate(count))

    def _send(self, kind: str, content: dict[str, Any], metadata: dict[str, Any]) -> str:
        message = self.client.session.msg(kind, content, metadata=metadata)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def _ask(self, kind: str, content: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        sent = self._send(kind, content, metadata)
        while True:
            reply = self.client.get_shell_msg(timeout=SECONDS)
            if reply["parent_header"].get("msg_id") == sent:
                reply_content: dict[str, Any] = reply["content"]
                return reply_content


def num_jobs() -> int:
    return sum(thread.name == "attnviz job" for thread in threading.enumerate())


@pytest.fixture(scope="module")
def one_kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(one_kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel without views."""
    yield one_kernel
    one_kernel.run(None, "view = kept = None")
    one_kernel.run(None, "ipywidgets.Widget.close_all(); noted.made.clear(); None")


LAST = "noted(av.show_head_view(record()))"
IS_OPEN = "kept.comm is not None and kept.model_id in _instances"


@pytest.mark.slow
def test_a_cell_that_runs_again_frees_the_last_view(kernel: Kernel) -> None:
    # Run the cell more than three times, because IPython stores the last three results.
    for number in range(5):
        kernel.run("cell", f"view = {LAST}\nview")
        kernel.expect_alive([number])
    assert kernel.num_widgets() == 1
    # The comms belong to the view, to its layout, and to the code of all views.
    assert kernel.evaluate("len(comm.get_comm_manager().comms)") == 3
    kernel.run("cell", "view = None")
    kernel.expect_alive([])
    assert kernel.num_widgets() == 0


def test_a_view_in_a_variable_lives_and_can_be_shown_again(kernel: Kernel) -> None:
    kernel.run("cell", f"kept = {LAST}\nkept")
    kernel.run("other", "0")
    kernel.expect_alive([0])
    assert kernel.num_widgets() == 1
    kernel.run("cell", "None")
    kernel.expect_alive([0])
    assert kernel.num_widgets() == 0
    kernel.run("other", "kept")
    assert kernel.evaluate(IS_OPEN)
    # The output history of IPython holds the view until "cell", the cell that made it, runs again.
    kernel.run("other", "del kept")
    kernel.expect_alive([0])
    kernel.run("cell", "None")
    kernel.expect_alive([])


def test_a_view_lives_as_long_as_the_box_that_contains_it(kernel: Kernel) -> None:
    kernel.run("cell", f"kept = ipywidgets.HBox([{LAST}])")
    kernel.run("cell", "None")
    kernel.expect_alive([0])
    kernel.run("other", "ipywidgets.Box.close(kept)")
    kernel.run("other", "kept = None")
    kernel.expect_alive([])


def test_notebooks_without_cell_ids_keep_views(kernel: Kernel) -> None:
    kernel.run(None, LAST)
    kernel.run(None, LAST)
    kernel.expect_alive([0, 1])


def test_only_views_are_removed_from_the_history(kernel: Kernel) -> None:
    kernel.run("number", "40 + 2")
    kernel.run("cell", LAST)
    kernel.run("cell", "None")
    kernel.expect_alive([])
    assert kernel.evaluate("42 in Out.values()")


def test_a_comm_that_a_browser_closes_ends_its_view(kernel: Kernel) -> None:
    kernel.run("cell", LAST)
    kernel.close_comm(0)
    kernel.expect_alive([])
    assert kernel.num_widgets() == 0
    kernel.run("cell", f"kept = {LAST}")
    kernel.close_comm(1)
    kernel.expect_alive([1])
    assert kernel.num_widgets() == 0
    kernel.run("other", "display(kept)")
    assert kernel.evaluate(IS_OPEN)
    # The view is freed when "other", the cell that displayed it last, runs again.
    kernel.run("other", "kept = None")
    kernel.expect_alive([])


def test_a_closed_view_is_freed(kernel: Kernel) -> None:
    kernel.run("cell", f"view = {LAST}\nview")
    kernel.run("other", "view.close(); view.close(); del view")
    kernel.expect_alive([])
    assert kernel.num_widgets() == 0


AT_THE_END = """
import os, sys
import torch
import attnviz as av
from attnviz.embedding.server.background import BackgroundProjection
from attnviz.embedding.tsne_umap import ProjectionSettings
queries, keys = torch.rand(2, 2, 1, 3, 4)
record = av.AttentionRecord.from_qk(queries, keys, ["a", "b", "c"])
# At exit, Python sets the names in the modules of `sys.kept` to None. It frees the views only when
# it clears `os`, so names that their cleanup uses may already be None.
os.kept = [av.HeadView(record), av.EmbeddingView([record])]
# A projection has run in a thread.
points = torch.rand(30, 4).numpy()
BackgroundProjection(points, ProjectionSettings("tsne", perplexity=5)).wait()
sys.kept = list(sys.modules.values())
"""


@pytest.mark.slow
def test_views_that_end_with_python_print_nothing() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", AT_THE_END], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_closed_view_ends_its_paused_computations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.server.pending_replies.REPLY_SECONDS", 0.0)
    monkeypatch.setattr("attnviz.utils.progress.STEP", 1)
    view = HeadView(long_record(300))
    served = weakref.ref(view._served)
    before = num_jobs()
    request = {"stack": "self", "pattern": "self"}
    assert "pending" in view._served.reply("scores", request).header
    assert num_jobs() == before + 1
    view.close()
    assert num_jobs() == before
    del view
    # The traceback of the cancelled computation has reference cycles.
    gc.collect()
    assert served() is None
