"""The command line works with models, saved records and files, and refuses wrong usage."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnviz import demos, extract, head_statistics
from attnviz.cli import _commands, main
from unit import page_data

Failure = Callable[..., str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def data_of(file: str | Path) -> dict[str, Any]:
    return dict(page_data.bare_data_of(Path(file).read_text(encoding="utf-8")))


def page_of(*arguments: str | Path) -> dict[str, Any]:
    """Run a command that writes an HTML page, and return the data in the page."""
    assert main([*map(str, arguments), "-o", "x.html"]) == 0
    return data_of("x.html")


def tokens_of(page: dict[str, Any]) -> list[str]:
    texts: list[str] = page["description"]["stacks"][0]["query_tokens"]["text"]
    return texts


@pytest.fixture
def failure(capsys: pytest.CaptureFixture[str]) -> Failure:
    """Return a function that runs a command, asserts that it fails, and returns its error message.

    A failing command must create no file and print nothing to the standard output.
    """

    def run_failing(*arguments: str | Path) -> str:
        capsys.readouterr()
        before = set(Path().iterdir())
        assert main([*map(str, arguments)]) == 1
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        assert output.out == ""
        assert set(Path().iterdir()) == before
        return output.err

    return run_failing


def saved_model(name: str, folder: str) -> tuple[Any, Any]:
    """Save a demo model and its tokenizer or processor in `folder`, and return the two objects."""
    model, reader = demos.load(name)
    model.save_pretrained(folder)
    reader.save_pretrained(folder)
    return model, reader


def test_a_head_view_is_written_and_only_its_path_is_printed(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    # With "@-", the text comes from standard input.
    command = [sys.executable, "-m", "attnviz", "head-view", str(checkpoint_folder), "@-"]
    answer = subprocess.run(
        [*command, "-o", "x.html"],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        input="The cat sat.\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == str(tmp_path / "x.html")
    assert "loading and running" in answer.stderr
    assert tokens_of(data_of("x.html")) == ["[CLS]", "the", "cat", "sat", ".", "[SEP]"]


@pytest.mark.parametrize("command", ["model-view", "neuron-view", "matrix-view", "dashboard"])
def test_each_view_has_a_command(command: str, checkpoint_folder: Path) -> None:
    assert main([command, str(checkpoint_folder), "The cat sat.", "--layer", "2"]) == 0
    (file,) = Path().iterdir()
    assert file.name.endswith(f"{checkpoint_folder.name}-{command}.html")
    data = data_of(file)
    assert data["view"] == command.removesuffix("-view")
    assert data["state"]["layer"] == 2


@pytest.mark.parametrize("model", demos.NAMES)
def test_a_demo_opens_at_one_head_and_one_query(model: str) -> None:
    assert main(["demo", "--model", model]) == 0
    state = data_of(f"{model}-head-view.html")["state"]
    assert len(state["heads"]) == 1
    assert state["token"] is not None


def test_a_missing_browser_raises_before_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Failure
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    errors = failure("demo", "-o", "x.svg")
    assert "no Chrome or Chromium was found" in errors
    assert "running" not in errors


def test_help_describes_every_argument_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    for name, function in _commands().items():
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        parameters = inspect.signature(function).parameters.values()
        names = {item.name for item in parameters if item.kind is item.KEYWORD_ONLY}
        # Each command also has the arguments `max_mb`, `width` and `font_size` of `View.save`.
        for argument in names | {"max_mb", "width", "font_size"}:
            assert f"--{argument.replace('_', '-')}" in printed, (name, argument)


def test_values_are_parsed_like_in_python(checkpoint_folder: Path) -> None:
    options = "--heads 0,3 --layer -1 --token it --renormalize --leave-out special"
    page = page_of("head-view", checkpoint_folder, "the cat saw it in 10", *options.split())
    values = {"heads": [0, 3], "layer": 5, "token": 4, "renormalize": True}
    state = page["state"]
    assert state == state | values | {"leave_out": ["special"]}


def test_a_text_from_a_file_is_truncated(checkpoint_folder: Path, failure: Failure) -> None:
    Path("long.txt").write_text("\ufeffthe cat sat on it\r\n" * 300, encoding="utf-8")
    # Without the files of sentence-transformers, which truncates texts to 256 tokens.
    skipped = shutil.ignore_patterns("modules.json", "*sentence_*")
    shutil.copytree(checkpoint_folder, "bert", ignore=skipped)
    arguments: list[str | Path] = ["matrix-view", "bert", "@long.txt", "--layers", "0"]
    assert "tokens are too many" in failure(*arguments)
    # Without a number, `--truncation` means the 512 positions of the model.
    for options, count in ((["--truncation", "30"], 30), (["--truncation"], 512)):
        tokens = tokens_of(page_of(*arguments, *options))
        assert (len(tokens), tokens[1]) == (count, "the")


def test_a_saved_record_needs_no_model(failure: Failure) -> None:
    model, tokenizer = demos.load("decoder")
    record = extract(model, "the cat sat", tokenizer=tokenizer, name="my/odd: model")
    record.save("a.safetensors")
    assert main(["matrix-view", "a.safetensors", "--token", "cat"]) == 0
    # The slash in the model's name is replaced, because a slash separates folders.
    assert data_of("my-odd-model-matrix-view.html")["state"]["token"] == 1
    assert "model is a record" in failure("head-view", "a.safetensors", "the cat")
    assert "none.safetensors" in failure("head-view", "none.safetensors")


def test_an_image_is_read_from_a_file(monkeypatch: pytest.MonkeyPatch, failure: Failure) -> None:
    image_module = pytest.importorskip("PIL.Image")
    _, processor = saved_model("vision", "vit")
    side = processor.size["height"]
    image_module.new("RGB", (side, side), "red").save("red.png")
    assert page_of("head-view", "vit", "@red.png")["description"]["images"]
    Path("no.png").write_bytes(b"\xff\xfe no picture")
    assert "@no.png is neither text in UTF-8 nor" in failure("head-view", "vit", "@no.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "@red.png needs Pillow: pip install" in failure("head-view", "vit", "@red.png")


def test_two_models_and_two_records_are_compared() -> None:
    model, tokenizer = demos.load("decoder")
    for name, factor in (("base", 1.0), ("tuned", 1.5)):
        with torch.no_grad():
            model.transformer.h[1].attn.c_attn.weight[:, : model.config.n_embd] *= factor
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)
        record = extract(model, "the cat sat on the mat", tokenizer=tokenizer)
        record.save(f"{name}.safetensors")
    for arguments in (
        ["./base,./tuned", "the cat sat on the mat", "--dtype", "float32"],
        ["base.safetensors", "tuned.safetensors"],
    ):
        state = page_of("compare-view", *arguments, "--names", "before,after")["state"]
        assert state["comparison"]["names"] == ["before", "after"]
        (distances,) = [stack["distances"][1] for stack in state["comparison"]["stacks"].values()]
        # The weights in layer 0 are equal, because the two models differ only in layer 1.
        assert max(map(abs, distances[0])) == 0
        assert min(distances[1]) > 0


def test_an_atlas_of_texts_and_of_saved_statistics() -> None:
    model, tokenizer = saved_model("decoder", "decoder")
    texts = ["the cat and the dog met the cat", "the dog sat", "mary went to the shop"]
    Path("texts.txt").write_text("\n".join(texts), encoding="utf-8")
    options = ["--keep-edges", "7", "--no-progress", "--color", "entropy"]
    assert page_of("atlas-view", "decoder", "texts.txt", *options)["state"]["color"] == "entropy"
    statistics = head_statistics(model, texts, tokenizer=tokenizer, progress=False)
    statistics.save("saved.safetensors")
    assert page_of("atlas-view", "saved.safetensors", "--layer", "-1")["state"]["layer"] == 2


@pytest.mark.parametrize(
    "arguments", [["head-view"], ["head-view", "x", "y", "--hed", "1"], ["no-view"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "inputs is missing"),
        (["@none.txt"], "none.txt"),
        (["the cat", "--token", "dog"], "token='dog': no token has this text"),
        (["x", "-o", "x.pdf", "--width", "wide"], "width='wide' must be a length such as"),
        (["x", "-o", "no/such/folder/x.html"], "'no/such/folder' does not exist"),
    ],
)
def test_errors_exit_with_1_and_a_reason(
    arguments: list[str], reason: str, checkpoint_folder: Path, failure: Failure
) -> None:
    assert reason in failure("head-view", checkpoint_folder, *arguments)


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnviz.cli._write", interrupted)
    assert main(["demo"]) == 130
