"""Refusals in a real kernel end with a short traceback, and other errors with a whole one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

import attnviz as av
from attnviz.utils.refusals import is_refusal

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_LINES = 15


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(kernel_name="python3")
    lines = (
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'",
        "import attnviz as av",
        "model, tokenizer = av.demos.load('decoder')",
        "view = av.HeadView(av.extract(model, 'the cat sat', tokenizer=tokenizer))",
    )
    assert traceback_of(client, "\n".join(lines)) == ""
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def traceback_of(kernel: BlockingKernelClient, code: str) -> str:
    """Run a cell, and return the traceback that it shows, or ""."""
    reply = kernel.execute_interactive(code, timeout=120, output_hook=lambda _: None)
    return _COLORS.sub("", "\n".join(reply["content"].get("traceback", [])))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("av.extract(model, '', tokenizer=tokenizer)", "ValueError: inputs: the text is empty"),
        ("av.extract('no/such-model', 'the cat')", "OSError: 'no/such-model' cannot be loaded"),
        ("av.extract(model, 'the cat', tokenizer=tokenizer, layer=3)", "TypeError: "),
        ("av.intervene(model, 'the cat', [], tokenizer=tokenizer)", "ValueError: changes is empty"),
        (
            "av.head_effects(model, 'the cat', answer='x y z', tokenizer=tokenizer)",
            "Error: answer=",
        ),
        (
            "av.show_head_view(model, 'the cat', tokenizer=tokenizer, layer=9)",
            "TraitError: layer=9",
        ),
        ("av.show_matrix_view(model, 'the cat', tokenizer=tokenizer, cheese=1)", "'cheese'"),
        ("av.show_dashboard(3)", "TypeError: "),
        ("av.show_compare_view(3)", "TypeError: "),
        ("av.show_embedding_view(3)", "TypeError: "),
        ("av.load('nothing')", "no file at path='nothing.safetensors'"),
        ("av.HeadView(3)", "TypeError: record must be an AttentionRecord"),
        ("view.layer = 99", "TraitError: layer=99"),
        ("view.theme = 'blue'", "TraitError: "),
        ("view.colour = 1", "AttributeError: HeadView has no attribute 'colour'"),
    ],
)
def test_a_refusal_is_a_few_lines(kernel: BlockingKernelClient, call: str, message: str) -> None:
    shown = traceback_of(kernel, call)
    assert len(shown.splitlines()) <= _MAX_LINES, shown
    assert call in shown
    assert message in shown


def test_a_fault_keeps_its_traceback(kernel: BlockingKernelClient) -> None:
    code = (
        "forward, model.forward = model.forward, lambda *args, **kwargs: None + 1\n"
        "try: av.extract(model, 'the cat', tokenizer=tokenizer)\n"
        "finally: model.forward = forward"
    )
    shown = traceback_of(kernel, code)
    assert "unsupported operand" in shown
    assert len(shown.splitlines()) > _MAX_LINES


def test_only_raised_errors_are_refusals() -> None:
    def error_of(call: object) -> Exception:
        assert callable(call)
        with pytest.raises(Exception, match=r".*") as caught:
            call()
        return caught.value

    code = "def refuse(): raise ValueError('number=3')\ndef fail(): return None + 1"
    own, foreign = {"__name__": "attnviz.any"}, {"__name__": "torch"}
    for names in (own, foreign):
        exec(code, names)  # noqa: S102 - the code above
    assert is_refusal(error_of(own["refuse"]))
    assert not is_refusal(error_of(own["fail"]))
    assert not is_refusal(error_of(foreign["refuse"]))


def test_all_public_functions_shorten_refusals() -> None:
    functions = {name: getattr(av, name) for name in av.__all__}
    functions = {name: one for name, one in functions.items() if inspect.isfunction(one)}
    assert {"extract", "intervene", "show_head_view", "load"} <= functions.keys()
    assert [name for name, one in functions.items() if not hasattr(one, "__wrapped__")] == []
