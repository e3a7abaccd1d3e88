"""Test scripts that `make` calls, and the options and hooks of pytest in tests/conftest.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attnviz
import front_end
import mutants
import tally
from attnviz.pages.image import INSTALL_BROWSER
from slow_sample import PROGRAMS, needed_programs, slow_files, slow_sample

SCRIPTS = Path(front_end.__file__).parent
SOURCE = Path(attnviz.__file__).parents[1]
TESTS = Path(__file__).parents[1]


def test_a_bundle_is_out_of_date_if_it_is_older_than_its_source_or_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(name: str, seconds: int) -> Path:
        """Create an empty file that was last changed at `seconds`."""
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (seconds, seconds))
        return path

    folders = {
        "ROOT": "",
        "JS": "js",
        "VIEWS": "js/src/views",
        "WIDGETS": "js/src/widgets",
        "STATIC": "static",
        "COLORS": "colors.json",
    }
    for name, folder in folders.items():
        monkeypatch.setattr(front_end, name, tmp_path / folder)
    for name in ("build.mjs", "tsconfig.json", "package-lock.json", "src/views/head/index.tsx"):
        write(f"js/{name}", 100)
    write("js/src/widgets/records.ts", 100)
    write("colors.json", 100)
    bundles = [write("static/records.js", 200), write("static/head-page.js", 200)]
    assert front_end.bundles() == bundles
    assert not front_end.is_out_of_date()
    bundles[0].unlink()
    assert front_end.is_out_of_date()
    write("static/records.js", 200)
    write("js/src/draw/marks.ts", 300)
    assert front_end.is_out_of_date()
    write("static/records.js", 400)
    write("static/head-page.js", 400)
    assert not front_end.is_out_of_date()
    write("colors.json", 500)
    assert front_end.is_out_of_date()
    # PKG-INFO marks an unpacked source distribution, whose bundles are always up to date.
    write("PKG-INFO", 300)
    assert not front_end.is_out_of_date()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # With -S, Python does not find site-packages, which may contain Node.
        (["-S", SCRIPTS / "front_end.py", "run", "build"], front_end.NO_NODE),
        ([SCRIPTS / "find_browser.py", "--install"], INSTALL_BROWSER),
    ],
    ids=["Node", "browser"],
)
def test_a_missing_program_is_reported(
    arguments: list[str | Path], message: str, tmp_path: Path
) -> None:
    answer = subprocess.run(
        [sys.executable, *arguments],
        # Import attnviz from this repository, even if another version is installed.
        env={"ATTNVIZ_BROWSER": str(tmp_path / "none"), "PATH": "", "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_part_that_was_not_run_counts_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "some.xml"
    report.write_text(
        '<testsuites><testsuite tests="5" failures="1" errors="0" skipped="1"/></testsuites>',
        encoding="utf-8",
    )
    assert tally.main([str(report)]) == 1
    assert capsys.readouterr().out == "3 passed, 1 failed, 1 skipped\n"
    assert tally.main([str(report), str(tmp_path / "missing.xml")]) == 1
    assert capsys.readouterr().out.endswith("3 passed, 2 failed, 1 skipped\n")


def run_here(
    folder: Path, files: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Write files to `folder`, and run pytest there in a separate process."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS), str(SCRIPTS)])},
        capture_output=True,
        text=True,
        check=False,
        # Only a run that hangs reaches this limit.
        timeout=100,
    )


CONFTEST = (TESTS / "conftest.py").read_text(encoding="utf-8")
ONCE = """
from pathlib import Path

def test_that_fails_once():
    tried = Path(__file__).with_suffix(".tried")
    first = not tried.exists()
    tried.touch()
    assert not first, "the frame was detached"

def test_that_passes():
    pass
"""
ALWAYS = "\ndef test_that_fails():\n    assert False\n"


@pytest.mark.slow
def test_a_failed_browser_test_runs_again_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "tests/conftest.py": CONFTEST,
        "tests/browser/conftest.py": (TESTS / "browser/conftest.py").read_text("utf-8"),
        "tests/browser/test_once.py": ONCE,
        "tests/browser/test_always.py": ALWAYS,
        "tests/unit/test_unit.py": ONCE,
    }
    answer = run_here(tmp_path, files, "--second-try", "--junitxml=some.xml", "tests")
    assert answer.returncode == 1
    once = "tests/browser/test_once.py::test_that_fails_once"
    summary = answer.stdout.partition("first tries that failed")[2]
    assert once in summary
    assert "the frame was detached" in summary
    # Both failed tests in tests/browser ran a second time. The one in tests/unit did not.
    assert re.search(r"2 failed, 3 passed.*, 2 rerun", answer.stdout)
    assert tally.main([str(tmp_path / "some.xml")]) == 1
    captured = capsys.readouterr()
    assert captured.out == (
        f"passed only on the second try: {once}\n"
        "3 passed, 2 failed, 0 skipped, 1 passed only on the second try\n"
    )
    assert captured.err.count("failed: ") == 2


STUCK = """
import threading

def test_that_passes():
    pass

def test_that_is_stuck():
    {body}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "output"),
    [
        # The test passes, but the process then waits for the thread that the test started.
        ("threading.Thread(target=threading.Event().wait).start()", "2 passed"),
        # The test catches the exception that its timeout raises, and waits again.
        (
            "while True:\n        try: threading.Event().wait()\n        except BaseException: ...",
            "",
        ),
    ],
)
def test_a_run_that_hangs_ends_and_says_where(tmp_path: Path, body: str, output: str) -> None:
    files = {"conftest.py": CONFTEST, "test_stuck.py": STUCK.format(body=body)}
    answer = run_here(tmp_path, files, "-o", "timeout=1", "--stuck-after=1", ".")
    assert answer.returncode == 1
    assert "Timeout (" in answer.stderr
    assert "most recent call first" in answer.stderr
    assert output in answer.stdout


SLOW = """
import pytest

@pytest.mark.slow
def test_first():
    pass

@pytest.mark.slow
def test_second():
    pass

def test_quick():
    pass
"""


def test_a_sample_has_the_slow_tests_of_some_files(tmp_path: Path) -> None:
    files = {f"test_{number}.py": SLOW for number in range(24)}
    options = ("--slow-sample=seed", "--collect-only", "-q")
    output = run_here(tmp_path, {"conftest.py": CONFTEST, **files}, *options).stdout
    assert output.count("test_quick") == len(files)
    first, second = (
        re.findall(rf"(\S+)::{name}", output) for name in ("test_first", "test_second")
    )
    assert first == second
    assert len(first) == 2


def test_half_of_a_sample_follows_the_newest_changes(tmp_path: Path) -> None:
    files = [f"unit/a/test_{number}.py" for number in range(21)]
    files += ["browser/test_head_page.py", "models/test_ray.py", "unit/a/test_new.py"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        imported = "from attnviz.corpus import texts\n" if "ray" in file else ""
        (tmp_path / file).write_text(imported, encoding="utf-8")
    changes = [
        "unit/a/test_new.py",
        "README.md",
        "js/src/views/head/bars.ts",
        "src/attnviz/corpus/texts.py",
        "src/attnviz/a/b.py",
    ]
    newest = {"unit/a/test_new.py"}
    samples = [slow_sample(files, seed, changes, tmp_path) for seed in ("seed", "other", "third")]
    assert all(len(sample) == 2 and newest < sample for sample in samples)
    assert "models/test_ray.py" in slow_sample(files, "seed", changes[3:], tmp_path)
    # The other half depends on the seed.
    assert len(set(samples)) > 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytest.mark.slow\nmake .hosts/installed", [".hosts/installed"]),
        ("pytest.mark.slow\nfrom browser.other_browsers import start", ["other-browsers"]),
        ("pytest.mark.slow", []),
        ("make .hosts/installed", []),
    ],
)
def test_programs_are_installed_if_a_chosen_file_needs_them(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    file = tmp_path / "tests" / "browser" / "test_page.py"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    assert needed_programs("seed", tmp_path) == expected


def test_each_program_is_a_target_of_make_that_slow_tests_need() -> None:
    paths = [path.relative_to(TESTS.parent).as_posix() for path in TESTS.rglob("browser/test_*.py")]
    files = slow_files(paths, TESTS.parent)
    texts = [(TESTS.parent / file).read_text(encoding="utf-8") for file in files]
    rules = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    for target, mark in PROGRAMS.items():
        assert f"\n{target}: " in rules
        assert any(mark in text for text in texts)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"file": "b.py"}, "the file does not exist"),
        ({"old": "x = 2"}, "`old` must occur once, but occurs 0 times"),
        ({"tests": ("test_a.py::test_one", "test_b.py")}, "tests do not exist: test_b.py"),
    ],
)
def test_a_mutant_that_no_longer_fits_the_source_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], problem: str
) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = x\n", encoding="utf-8")
    (tmp_path / "test_a.py").touch()
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    fields = {"file": "a.py", "old": "x = 1", "new": "x = 3", "tests": ("test_a.py",), "why": "w"}
    actual = mutants.Mutant(**{**fields, **change}).problem
    assert problem in actual if problem else actual == ""
