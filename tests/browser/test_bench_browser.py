"""The benchmark's browser, which is watched as little as possible."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.browser import started


def test_a_tab_opens_a_file_and_says_what_it_took(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p id='it'>of the file</p>")
    busy = "const end = performance.now() + 50; while (performance.now() < end);"
    others = set(psutil.Process().children(recursive=True))
    with started() as browser:
        with browser.tab("window.first = 'before the page';") as tab:
            tab.go_to(page)
            assert tab.evaluate("window.first") == "before the page"
            assert tab.evaluate("document.getElementById('it').textContent") == "of the file"
            assert tab.evaluate("Promise.resolve(innerWidth)") == 1000
            before = tab.processor_seconds()
            tab.evaluate(f"(() => {{ {busy} }})()")
            assert tab.processor_seconds() > before
            with pytest.raises(RuntimeError, match="on purpose"):
                tab.evaluate("(() => { throw new Error('on purpose'); })()")
        with browser.tab("") as tab:
            tab.go_to(page)
            assert tab.evaluate("window.first") is None
        own = set(psutil.Process().children(recursive=True)) - others
    _, alive = psutil.wait_procs(own, timeout=60)
    assert own
    assert not alive
