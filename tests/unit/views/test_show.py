"""Tests of `show_head_view` with invalid arguments, in scripts and in notebooks."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import attnviz.utils.host
from attnviz.utils.docstrings import documented_names
from attnviz.views.head import HeadView
from attnviz.views.show import show_head_view
from unit.records import given_record, shares, words

WEIGHTS = [shares(2, 3, 3, seed=layer) for layer in range(2)]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([WEIGHTS], {}, "tokens is missing: the tokens of stack 'self'"),
        ([WEIGHTS, "the cat"], {}, "Omit inputs"),
        ([WEIGHTS], {"tokens": words(3), "target": "x"}, "model is weights.*Omit target"),
        ([None], {"tokens": words(3)}, "If that is None, the model returned no weights"),
        ([{"attentions": WEIGHTS}], {"tokens": words(3)}, "a dict, .* Pass .* outputs.attentions"),
        ([given_record], {"tokens": words(5)}, "model is a record.*Omit tokens"),
        (["some/model"], {}, "inputs is missing. Pass the text that the model reads"),
        ([__file__], {}, r"If model is the file of a record, pass attnviz\.load"),
        (["the cat sat", "some/model"], {}, "model='the cat sat' is a text"),
        ([type("Corpus", (), {})], {}, "is a Corpus, .* Pass it to attnviz.show_embedding_view"),
        # The argument is refused before the model is loaded.
        (["some/model", "the cat"], {"head": 1}, "HeadView has no argument 'head'"),
    ],
)
def test_missing_and_superfluous_arguments_are_named(
    arguments: list[Any], options: dict[str, Any], message: str
) -> None:
    values = [argument() if callable(argument) else argument for argument in arguments]
    with pytest.raises(TypeError, match=message):
        show_head_view(*values, **options)


@pytest.mark.slow
def test_a_script_writes_the_page_and_prints_its_path(tmp_path: Path) -> None:
    code = (
        "import attnviz as av\n"
        "record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ['a', 'b'])\n"
        "assert av.show_head_view(record).layer == 0\n"
    )
    # If a browser were opened, the command in `BROWSER` would create the file `trace`. Without a
    # terminal, no browser is opened.
    trace = tmp_path / "opened"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": str(tmp_path), "BROWSER": f"touch {trace} %s", "DISPLAY": ":0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    path = Path(answer.stdout.strip())
    assert path.is_relative_to(tmp_path)
    assert path.name == "head-view.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("terminal", "environment", "opens"),
    [
        (True, {"DISPLAY": ":0"}, True),
        (True, {}, False),
        (True, {"DISPLAY": ":0", "SSH_CONNECTION": "1"}, False),
        (True, {"DISPLAY": ":0", "CI": "true"}, False),
        (False, {"DISPLAY": ":0"}, False),
    ],
)
def test_a_browser_opens_only_for_interactive_users(
    terminal: bool, environment: dict[str, str], opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    attnviz.utils.host.offer_file(Path("/some/a page.html"))
    assert addresses == ["file:///some/a%20page.html"] * opens


# Cells of a notebook, and the number of views that each cell shows.
CELLS = {
    "import attnviz as av\n"
    "record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ['a', 'b'])": 0,
    "av.show_head_view(record)": 1,
    "av.show_head_view(record);": 1,
    "view = av.show_head_view(record)": 1,
    "view = av.show_head_view(record)\nview": 1,
    # A later cell may show the view again.
    "view": 1,
    "display(view, view)": 2,
    "av.HeadView(record)": 1,
    "view = av.HeadView(record)": 0,
    "for token in (0, 1):\n    av.show_head_view(record, token=token)": 2,
}


@pytest.mark.slow
def test_a_notebook_shows_each_view_exactly_once() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, kernel_name="python3").execute()
    counts, texts = {}, []
    for cell in notebook.cells:
        assert all(output.output_type != "stream" for output in cell.outputs), cell.outputs
        outputs = [
            output["data"] for output in cell.outputs if any(output.get("data", {}).values())
        ]
        counts[cell.source] = sum(
            "application/vnd.jupyter.widget-view+json" in data for data in outputs
        )
        texts += [data["text/plain"] for data in outputs]
    assert counts == CELLS
    assert texts[0] == "<HeadView of <AttentionRecord: <self: layers 0, 1 head each, 2 tokens>>>"


def test_tab_completion_and_help_name_every_trait_of_the_view() -> None:
    parameters = inspect.signature(show_head_view).parameters
    described = {name: words for name, _, words in documented_names(show_head_view)}
    for name in HeadView.state_names():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert len(described[name]) > 20, name
    assert "Negative numbers count from the end: -1 is the last" in described["layer"]


def test_views_show_passages_instead_of_tokens() -> None:
    record = given_record(num_tokens=4)
    text = record.stack().query_tokens.text
    view = show_head_view(record, passages={"fact": (1, 3)}, layer=0)
    assert view.record.stack().query_tokens.text == (text[0], "fact", text[3])
    named = show_head_view(record.with_passages({"fact": (1, 3)}), passages=True, layer=0)
    assert named.record.stack().query_tokens.text == (text[0], "fact", text[3])
    weights = record.stack().weights(layer=0)
    np.testing.assert_allclose(
        named.record.stack().weights(layer=0)[:, 0, 1], weights[:, 0, 1:3].sum(axis=1), rtol=1e-6
    )
    with pytest.raises(ValueError, match="passages"):
        show_head_view(record, passages=True)
