"""Functions that show a model, a record or weights with one call, exactly once."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import attnviz.utils.host
from attnviz.utils.docstrings import documented_names
from attnviz.views.head import HeadView
from attnviz.views.show import show_head_view
from unit.records import given_record, shares, words

WEIGHTS = [shares(2, 3, 3, seed=layer) for layer in range(2)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Record the addresses opened in a browser, and use the test's folder for temporary files."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return addresses


def test_a_record_is_shown(opened: list[str]) -> None:
    record = given_record()
    view = show_head_view(record, layer=1, heads=[2], token=3, theme="dark")
    assert isinstance(view, HeadView)
    assert view.record is record
    assert (view.layer, view.heads, view.token, view.theme) == (1, [2], 3, "dark")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([WEIGHTS], {}, "tokens is missing. Pass the tokens to which the weights belong"),
        ([WEIGHTS, "the cat"], {}, "Omit inputs"),
        ([WEIGHTS], {"tokens": words(3), "target": "x"}, "model is weights.*Omit target"),
        ([[None]], {}, "which contains no weights: the model returned no"),
        # transformers 5 returns this as the last output of a model.
        ([()], {}, r"contains no weights\. If it is outputs\[-1\], pass outputs.attentions"),
        ([WEIGHTS], {"prettify_tokens": False}, r"'prettify_tokens': pass tokens=Tokens.of"),
        ([WEIGHTS], {"html_action": "return"}, r"'html_action': view.to_html\(\) returns the page"),
        ([], {"cross_attention": WEIGHTS}, "'cross_attention': pass AttentionRecord.from_weights"),
        ([{"attentions": WEIGHTS}], {"tokens": words(3)}, "a dict, .* Pass .* outputs.attentions"),
        ([lambda: [given_record()] * 2], {}, r"a list of 2 records, .* Pass records\[i\]"),
        ([given_record, "the cat"], {}, "model is a record.*Omit inputs"),
        ([given_record], {"tokens": words(5)}, "model is a record.*Omit tokens"),
        ([given_record], {"include_layer": [1]}, "HeadView has no argument 'include_layer'"),
        ([given_record], {"layers": [1]}, "model is a record.*Omit layers"),
        ([WEIGHTS], {"tokens": words(3), "dtype": "float16"}, "weights.*Omit dtype"),
        (["some/model"], {}, "inputs is missing. Pass the text that the model reads"),
        ([__file__], {}, r"test_show.py' is a file\. Pass the record in it: attnviz\.load"),
        (["the cat sat", "some/model"], {}, "model='the cat sat' is a text"),
        ([type("Corpus", (), {})], {}, "is a Corpus, .* Pass it to attnviz.show_embedding_view"),
        # The argument is refused before the model is loaded.
        (["some/model", "the cat"], {"head": 1}, "HeadView has no argument 'head'"),
        (["some/model"], {"tokens": words(3)}, "model is a model.*Omit tokens"),
    ],
)
def test_missing_and_superfluous_arguments_are_named(
    arguments: list[Any], options: dict[str, Any], message: str, opened: list[str]
) -> None:
    values = [argument() if callable(argument) else argument for argument in arguments]
    with pytest.raises(TypeError, match=message):
        show_head_view(*values, **options)
    assert opened == []


@pytest.mark.slow
def test_a_script_writes_the_page_and_prints_its_path(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import attnviz as av\n"
        "record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ['a', 'b'])\n"
        "view = av.show_head_view(record)\n"
        "assert view.layer == 0\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    # The browser would create a file. It is not opened, because the output is not a terminal.
    trace = tmp_path / "opened"
    answer = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"TMPDIR": str(folder), "BROWSER": f"touch {trace} %s", "DISPLAY": ":0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    [line] = answer.stdout.splitlines()
    path = Path(line)
    assert path.is_relative_to(folder)
    assert path.name == "head-view.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {"DISPLAY": ":0"}, 1),
        (True, {}, 0),
        (True, {"DISPLAY": ":0", "SSH_CONNECTION": "1"}, 0),
        (True, {"DISPLAY": ":0", "CI": "true"}, 0),
        (False, {"DISPLAY": ":0"}, 0),
    ],
)
def test_a_browser_opens_only_for_interactive_users(
    terminal: bool,
    environment: dict[str, str],
    expected: int,
    *,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    attnviz.utils.host.offer_file(Path("/some/a page.html"))
    assert capsys.readouterr().out == "/some/a page.html\n"
    assert opened == ["file:///some/a%20page.html"] * expected


CELLS = {
    "import attnviz as av\n"
    "record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ['a', 'b'])": 0,
    "av.show_head_view(record)": 1,
    "av.show_head_view(record);": 1,
    "view = av.show_head_view(record)": 1,
    "view = av.show_head_view(record)\nview": 1,
    # A later cell shows it like any other widget.
    "view": 1,
    "from IPython.display import display\ndisplay(view)": 1,
    "display(view, view)": 2,
    "av.HeadView(record)": 1,
    "view = av.HeadView(record)": 0,
    "av.show_head_view(record), None\nav.show_head_view(record)": 2,
    "for token in (0, 1):\n    av.show_head_view(record, token=token)": 2,
    "repr(view)": 0,
}


@pytest.mark.slow
def test_a_notebook_shows_each_view_exactly_once(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    counts = {}
    for cell in notebook.cells:
        outputs = [output for output in cell.outputs if "data" in output]
        assert all(output.output_type != "stream" for output in cell.outputs), cell.outputs
        counts[cell.source] = sum(
            "application/vnd.jupyter.widget-view+json" in output["data"] for output in outputs
        )
    assert counts == CELLS
    # The outputs do not contain the widget's code, and each output has a text.
    texts = [o["data"]["text/plain"] for c in notebook.cells for o in c.outputs if "data" in o]
    assert texts[0] == "<HeadView of <AttentionRecord: <self: layers 0, 1 head each, 2 tokens>>>"


def test_tab_completion_and_help_name_every_trait_of_the_view() -> None:
    parameters = inspect.signature(show_head_view).parameters
    described = {name: words for name, _, words in documented_names(show_head_view)}
    for name in HeadView.state_names():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert len(described[name]) > 20, name
    assert "Negative numbers count from the end: -1 is the last" in described["layer"]
