"""Tests of progress bars, of jobs that can be paused, and of the estimated remaining time."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from itertools import groupby
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tqdm.std import tqdm

from attnviz.utils import bars
from attnviz.utils.progress import (
    Cancelled,
    PausableJob,
    part_of,
    report,
    show_progress,
    with_progress,
)


def num_jobs() -> int:
    return sum(thread.name == "attnviz job" for thread in threading.enumerate())


def count(parts: dict[str, int]) -> str:
    for doing, total in parts.items():
        for done in range(total + 1):
            report(doing, done, total)
    return "done"


class Clock:
    """A clock that advances by one second with each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Lines(tqdm):  # type: ignore[type-arg]
    """A bar of tqdm that keeps its lines. `drawn` is set after each of them."""

    lines: list[str]
    drawn: threading.Event

    def refresh(self, *arguments: Any, **options: Any) -> None:
        super().refresh(*arguments, **options)
        Lines.lines.append(str(self))
        Lines.drawn.set()


def wait_for_line(start: str) -> None:
    """Wait until the bar shows a line that begins with `start`."""
    while not (Lines.lines and Lines.lines[-1].startswith(start)):
        assert Lines.drawn.wait(60)
        Lines.drawn.clear()


@pytest.fixture(autouse=True)
def bars_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Lines.lines, Lines.drawn = [], threading.Event()
    monkeypatch.setattr(bars, "tqdm", Lines)
    monkeypatch.setattr(bars, "_SECONDS_WITHOUT_BAR", 0)
    monkeypatch.setattr(bars, "_SECONDS_BETWEEN", 0.001)


def assert_gone(printed: str) -> None:
    """Assert that a terminal shows nothing: all lines are one line, and the last one is blank."""
    assert printed.endswith("\r")
    assert "\n" not in printed
    assert not printed.split("\r")[-2].strip()


def test_one_bar_shows_all_parts_and_disappears(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("page"):
        wait_for_line("page")
        for doing in ("first", "last"):
            report(doing, 0, 8)
            wait_for_line(f"page: {doing}")
            report(doing, 2, 8)
            wait_for_line(f"page: {doing} 25%")
    texts = [re.sub(r"\|.*|\d\d:\d\d", "", line).strip() for line in Lines.lines]
    shown = ["page", "page: first", "page: first 25%", "page: last", "page: last 25%"]
    assert [text for text, _ in groupby(texts)] == shown
    assert_gone(capsys.readouterr().err)


def test_an_interrupt_removes_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with show_progress("page"):
            wait_for_line("page")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert_gone(capsys.readouterr().err)
    assert "attnviz progress" not in [thread.name for thread in threading.enumerate()]


def test_short_work_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "_SECONDS_WITHOUT_BAR", 600)
    with show_progress("page"):
        report("first", 1, 2)
    assert not Lines.lines


def test_only_the_outer_block_shows_a_bar() -> None:
    @with_progress
    def inner(line: str, *, progress: bool = True) -> None:
        del progress
        report("first", 1, 2)
        wait_for_line(line)

    with show_progress("page"):
        inner("page: first 50%")
        report("second", 1, 2)
        wait_for_line("page: second 50%")
        # A quiet call inside of the block reports nothing.
        Lines.lines.clear()
        inner("page: second 50%", progress=False)
        assert not any("first" in line for line in Lines.lines)
    Lines.lines.clear()
    with show_progress("page", shown=False), show_progress("table"):
        report("first", 1, 2)
    assert not Lines.lines


# Every call has a bar, however short it is: the end of the call waits until the bar is displayed.
WITH_BARS = """
import threading
import attnviz as av
from attnviz.utils import bars

bars._SECONDS_WITHOUT_BAR = 0
drawn, show, close = threading.Event(), bars.Output.show, bars.ProgressBar.close

def show_and_tell(output, *content, **options):
    show(output, *content, **options)
    if threading.current_thread() is not threading.main_thread():
        drawn.set()

def close_later(bar):
    assert drawn.wait(60)
    close(bar)
    drawn.clear()

bars.Output.show, bars.ProgressBar.close = show_and_tell, close_later
model, tokenizer = av.demos.load("decoder")
texts = ["the cat sat", "the dog ran"] * 2
"""
CALLS = [
    "record = av.extract(model, texts[0], tokenizer=tokenizer, generate=3)",
    "av.extract(model, texts, tokenizer=tokenizer)[:0]",
    "corpus = av.extract_corpus(model, texts, tokenizer=tokenizer)",
    "av.head_statistics(model, texts, tokenizer=tokenizer).texts",
    "av.head_effects(model, texts[0], tokenizer=tokenizer).measure",
    "av.compare(model, *texts[:2], tokenizer=tokenizer).names",
    "page = av.HeadView(record).to_html()",
    "view = av.show_head_view(model, texts[0], tokenizer=tokenizer)",
    "view = av.show_embedding_view(corpus)",
]


class Listener(NotebookClient):
    """Client that keeps what was displayed for a moment: the data of all displays, by cell."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.displayed.setdefault(cell_index, []).append(msg["content"]["data"])
        return super().process_message(msg, cell, cell_index)

    displayed: dict[int, list[dict[str, str]]]


@pytest.mark.slow
def test_a_notebook_shows_a_bar_for_each_call_and_stores_nothing_of_it() -> None:
    cells = [nbformat.v4.new_code_cell(code) for code in (WITH_BARS, *CALLS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = Listener(notebook, kernel_name="python3", timeout=120)
    client.displayed = {}
    client.execute()
    for number, cell in enumerate(notebook.cells[1:], 1):
        [name] = re.findall(r"av\.(\w+)\(|\.(to_html)", cell.source)[-1:]
        title = {"to_html": "page"}.get("".join(name), "".join(name))
        begun = [data["text/plain"].startswith(title) for data in client.displayed[number]]
        assert any(begun), cell.source
        datas = [output["data"] for output in cell.outputs if output["output_type"] != "stream"]
        assert len(datas) == len(cell.outputs)
        left = [data for data in datas if data == {"text/html": "", "text/plain": ""}]
        # A view has a second bar, for the picture that is saved with it.
        assert len(left) == 1 + ("show_" in cell.source), cell.source
        assert "progress" not in str(datas).replace(" progress", "")


def test_a_part_reports_the_progress_of_the_whole() -> None:
    job = PausableJob(lambda: count_layers(2))
    seen = []
    while not job.run_for(0):
        assert job.progress is not None
        seen.append((job.progress.doing, job.progress.done, job.progress.total))
    # Each layer reports three times in each of two parts. From one part to the next, the progress
    # does not decrease.
    assert seen == [("layers", done, 2) for done in (0, 0.5, 1, 1, 1, 1, 1, 1.5, 2, 2, 2, 2)]


def count_layers(layers: int) -> None:
    for layer in range(layers):
        with part_of("layers", layer, layers):
            count({"first": 2, "second": 2})


def test_the_remaining_time_is_estimated_from_the_reports_so_far() -> None:
    job = PausableJob(lambda: count({"first": 10}), Clock())
    job.run_for(0)
    assert job.seconds_left is None
    while not job.run_for(0):
        progress = job.progress
        assert progress is not None
        # Each step takes one second of the fake clock.
        assert job.seconds_left == 10 - progress.done
    assert job.result == "done"


def test_a_job_runs_only_while_the_caller_waits() -> None:
    steps: list[int] = []

    def work() -> None:
        for step in range(3):
            steps.append(step)
            report("steps", step, 3)

    job = PausableJob(work)
    assert not job.run_for(0)
    # Other threads may run during this pause, but the job must not.
    time.sleep(0.05)
    assert steps == [0]
    assert not job.run_for(0)
    assert steps == [0, 1]


def test_a_job_sees_the_context_of_its_caller() -> None:
    name = ContextVar("name", default="")
    name.set("caller")
    job = PausableJob(name.get)
    assert job.run_for(0)
    assert job.result == "caller"


def test_a_cancelled_job_cleans_up_and_ends() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            report("first", 1, 2)
        except Cancelled as error:
            caught.append(error)
            raise

    before = num_jobs()
    job = PausableJob(work)
    job.run_for(0)
    assert num_jobs() == before + 1
    job.cancel()
    assert len(caught) == 1
    assert num_jobs() == before


def test_an_exception_of_a_job_is_raised_in_the_caller() -> None:
    def work() -> None:
        report("first", 1, 2)
        raise ValueError("wrong")

    job = PausableJob(work)
    assert not job.run_for(0)
    with pytest.raises(ValueError, match="wrong"):
        job.run_for(0)


def test_an_interrupt_of_the_caller_interrupts_the_job() -> None:
    # Set Python's own handler, because another test in this process may have changed it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def assert_interrupted() -> None:
    ended: list[BaseException] = []
    main_thread = threading.get_ident()

    def work() -> None:
        # Interrupt the main thread, which waits for this job.
        signal.pthread_kill(main_thread, signal.SIGINT)
        try:
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt as error:
            ended.append(error)
            raise

    with pytest.raises(KeyboardInterrupt):
        PausableJob(work).run_for(0)
    assert len(ended) == 1


def test_python_exits_although_a_job_is_paused() -> None:
    code = """
from attnviz.utils.progress import PausableJob, report
job = PausableJob(lambda: report("first", 1, 2))
assert not job.run_for(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
