"""The command line with a real checkpoint and with the demo models."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pypdf
import pytest
import torch

from attnviz import demos, extract, head_statistics, load
from attnviz.cli import _commands, _saving_options, _view_of, _view_options, main
from unit import page_data


def run(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `attnviz` in a separate process, in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "attnviz", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_head_view_is_written_and_only_its_path_is_printed(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    answer = run(
        *("head-view", checkpoint_folder, "The cat sat."),
        *("--layer", "3", "--heads", "1,7", "--controls", "compact", "-o", "x.html"),
        folder=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == str(tmp_path / "x.html")
    assert "loading and running" in answer.stderr
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert '"layer": 3' in page
    assert '"heads": [1, 7]' in page
    assert '"controls": "compact"' in page


@pytest.mark.parametrize("command", ["model-view", "neuron-view", "matrix-view", "dashboard"])
def test_each_view_has_a_command(
    command: str, checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [str(checkpoint_folder), "The cat sat.", "--layer", "2"]
    assert main([command, *arguments]) == 0
    # The file name contains the names of the model and of the view.
    (file,) = tmp_path.iterdir()
    assert file.name.endswith(f"{checkpoint_folder.name}-{command}.html")
    data = data_of(file)
    assert data["view"] == command.removesuffix("-view")
    assert data["state"]["layer"] == 2


def test_words_are_merged_on_request(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(checkpoint_folder), "unbelievably tired", "--words"]
    assert main(["matrix-view", *arguments, "-o", str(tmp_path / "x.html")]) == 0
    tokens = data_of(tmp_path / "x.html")["description"]["stacks"][0]["query_tokens"]["text"]
    assert tokens == ["[CLS]", "unbelievably", "tired", "[SEP]"]
    # Merged weights have no queries and keys, so the command fails and writes nothing.
    assert main(["neuron-view", *arguments, "-o", str(tmp_path / "y.html")]) == 1
    assert "MatrixView" in capsys.readouterr().err
    assert not (tmp_path / "y.html").exists()


@pytest.mark.parametrize("model", demos.NAMES)
def test_the_demo_needs_nothing(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--model", model]) == 0
    # The view opens at one head and one query, where the model shows what it has learned.
    state = data_of(tmp_path / f"{model}-head-view.html")["state"]
    assert len(state["heads"]) == 1
    assert state["token"] is not None


@pytest.mark.slow
def test_the_decoder_demo_opens_on_the_head_that_finds_the_street(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "-o", "x.svg"]) == 0
    # The last of three "the".
    picture = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "“the” (13) attends most to “street”" in picture


def test_the_command_generates_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = demos.load("decoder")
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text = demos.example("decoder")["inputs"]
    arguments = ["head-view", str(folder), text, "-o", str(tmp_path / "x.html")]
    assert main([*arguments, "--generate", "3"]) == 0
    tokens = data_of(tmp_path / "x.html")["description"]["stacks"][0]["query_tokens"]
    assert tokens["text"][14] == "street"
    assert tokens["predictions"][0]["token"]["text"] == "street"
    assert len(tokens["text"]) == 17
    assert main([*arguments, "--generate", "0"]) == 1
    assert "generate must be at least 1 token" in capsys.readouterr().err
    assert main([*arguments, "--generate", "3", "--target", "street"]) == 1


def test_help_lists_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, word in ((["--help"], "examples:"), (["head-view", "--help"], "--renormalize")):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert word in capsys.readouterr().out


def test_the_command_without_arguments_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr()
    assert "head-view" in output.out
    assert "examples:" in output.out
    assert output.err == ""


def data_of(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = page_data.bare_data_of(file.read_text(encoding="utf-8"))
    return data


@pytest.mark.slow
def test_a_text_from_another_command(checkpoint_folder: Path, tmp_path: Path) -> None:
    model = ("head-view", str(checkpoint_folder), "@-", "-o", "x.html")
    subprocess.run(
        [sys.executable, "-m", "attnviz", *model],
        cwd=tmp_path,
        input="The cat sat.\n",
        text=True,
        check=True,
        capture_output=True,
    )
    tokens = data_of(tmp_path / "x.html")["description"]["stacks"][0]["query_tokens"]["text"]
    assert tokens == ["[CLS]", "the", "cat", "sat", ".", "[SEP]"]


def test_a_missing_browser_raises_before_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    assert main(["demo", "-o", str(tmp_path / "x.svg")]) == 1
    errors = capsys.readouterr().err
    assert "no Chrome or Chromium was found" in errors
    assert "running" not in errors
    monkeypatch.setitem(sys.modules, "playwright", None)
    assert main(["demo", "-o", str(tmp_path / "x.png")]) == 1
    errors = capsys.readouterr().err
    assert "pip install 'attnviz[image]'" in errors
    assert "running" not in errors


def test_a_missing_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head-view", str(tmp_path / "none.safetensors")]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_has_the_requested_size(tmp_path: Path) -> None:
    options = ("--width", "84mm", "--font-size", "7", "--no-caption", "--title", "Streets")
    answer = run("demo", "-o", "x.pdf", *options, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    [page] = pypdf.PdfReader(tmp_path / "x.pdf").pages
    # 72 points are one inch.
    assert float(page.mediabox.width) == pytest.approx(84 / 25.4 * 72, abs=0.2)
    assert "Streets" in page.extract_text()
    assert "attends" not in page.extract_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-o", "x.pdf", "--width", "wide"], "width='wide' must be a length such as"),
        (["-o", "x.html", "--no-legend"], "legend= applies only to pictures"),
        (["-o", "x.html", "--font-size", "8"], "font_size= applies only to pictures"),
        (["-o", "x.gif"], ".html, .svg, .png or .pdf"),
        (["-o", "no/such/folder/x.html"], "'no/such/folder' does not exist"),
        (["--max-mb", "-1"], "max_mb=-1 must be greater than 0"),
    ],
)
def test_impossible_pictures_raise_before_a_model_runs(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 1
    errors = capsys.readouterr().err
    assert reason in errors
    assert "running" not in errors


def test_options_are_the_arguments_of_the_function_the_view_and_save() -> None:
    """Options are derived from the arguments of the Python functions."""
    for name, function in _commands().items():
        view = _view_of(function)
        options = _view_options(function) | _saving_options(view)
        parameters = inspect.signature(function).parameters.values()
        names = {
            parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        }
        assert names | set(view.state_names()) <= set(options), name
        assert {"max_mb", "width", "font_size", "controls"} <= set(options)
        # All documented arguments have a help text.
        described = [option_name for option_name, option in options.items() if option.words]
        assert len(described) > 0.8 * len(options), name


@pytest.mark.parametrize(
    ("option", "value", "state"),
    [
        ("--heads", "0,3", {"heads": [0, 3]}),
        ("--heads", "-1", {"heads": [11]}),
        ("--heads", "all", {"heads": list(range(12))}),
        ("--layer", "-1", {"layer": 5}),
        ("--token", "it", {"token": 4}),
        ("--token", "3", {"token": 3}),
        ("--renormalize", None, {"renormalize": True}),
        ("--leave-out", "special", {"leave_out": ["special"]}),
        ("--theme", "dark", {"theme": "dark"}),
    ],
)
def test_values_are_parsed_like_in_python(
    option: str, value: str | None, state: dict[str, Any], checkpoint_folder: Path, tmp_path: Path
) -> None:
    arguments = ["head-view", str(checkpoint_folder), "the cat saw it in 10", "--layer", "0"]
    file = tmp_path / "x.html"
    assert main([*arguments, option, *([] if value is None else [value]), "-o", str(file)]) == 0
    view_state = data_of(file)["state"]
    assert {name: view_state[name] for name in state} == state


def test_stored_layers_can_be_limited(checkpoint_folder: Path, tmp_path: Path) -> None:
    arguments = ["model-view", str(checkpoint_folder), "unbelievably tired", "--layers", "1,2"]
    limits = ["--dtype", "bfloat16", "--spool", str(tmp_path / "kept")]
    assert main([*arguments, *limits, "-o", str(tmp_path / "x.html")]) == 0
    description = data_of(tmp_path / "x.html")["description"]
    assert description["stacks"][0]["layers"] == [1, 2]
    assert "kept in bfloat16" in " ".join(description["notes"])
    assert load(tmp_path / "kept").stack().layers == (1, 2)


def test_a_text_from_a_file_is_truncated(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "long.txt"
    text.write_text("\ufeffthe cat sat on it\r\n" * 300, encoding="utf-8")
    file = tmp_path / "x.html"
    arguments = [
        "matrix-view",
        str(checkpoint_folder),
        f"@{text}",
        "--layers",
        "0",
        "-o",
        str(file),
    ]
    assert main(arguments) == 1
    assert "tokens are too many" in capsys.readouterr().err
    for more, count in ((["--truncation", "30"], 30), (["--truncation"], 512)):
        assert main([*arguments, *more]) == 0
        tokens = data_of(file)["description"]["stacks"][0]["query_tokens"]["text"]
        assert (len(tokens), tokens[1]) == (count, "the")


def test_a_saved_record_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = demos.load("decoder")
    record = extract(model, "the cat sat", tokenizer=tokenizer, name="my/odd: model")
    record.save("a.safetensors")
    extract(model, "the cat sat", tokenizer=tokenizer, spool="spooled")
    assert main(["matrix-view", "a.safetensors", "--token", "cat"]) == 0
    # The model's name cannot add folders to the path.
    assert data_of(tmp_path / "my-odd-model-matrix-view.html")["state"]["token"] == 1
    assert main(["head-view", "spooled", "-o", "x.html"]) == 0
    assert main(["head-view", "a.safetensors", "the cat"]) == 1
    assert "model is a record" in capsys.readouterr().err


def test_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image_module = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    model, processor = demos.load("vision")
    model.save_pretrained("vit")
    processor.save_pretrained("vit")
    side = processor.size["height"]
    image_module.new("RGB", (side, side), "red").save("red.png")
    arguments = ["head-view", "vit", "-o", "x.html"]
    assert main([*arguments, "@red.png"]) == 0
    assert data_of(tmp_path / "x.html")["description"]["images"]
    Path("no.png").write_bytes(b"\xff\xfe no picture")
    capsys.readouterr()
    assert main([*arguments, "@no.png"]) == 1
    assert "@no.png is neither text in UTF-8 nor an image" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert main([*arguments, "@red.png"]) == 1
    errors = capsys.readouterr().err
    assert "@red.png needs Pillow: pip install" in errors
    assert "loading and running" not in errors


def test_two_texts_two_models_and_two_records_are_compared(
    checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    he = "The doctor asked because he was tired."
    texts = [he, he.replace("he was", "she was")]
    options = ["--layer", "5", "-o", "x.html"]
    assert main(["compare-view", str(checkpoint_folder), *texts, *options]) == 0
    stacks = data_of(tmp_path / "x.html")["description"]["stacks"]
    assert any("he→she" in stack["query_tokens"]["text"] for stack in stacks)
    loaded, tokenizer = demos.load("decoder")
    for name, factor in (("base", 1.0), ("tuned", 1.5)):
        with torch.no_grad():
            loaded.transformer.h[1].attn.c_attn.weight[:, : loaded.config.n_embd] *= factor
        loaded.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        record = extract(loaded, "the cat sat on the mat", tokenizer=tokenizer)
        record.save(tmp_path / f"{name}.safetensors")
    look = ["--form", "matrix", "--order", "distance", "--names", "before,after"]
    for arguments in (
        ["./base,./tuned", "the cat sat on the mat", "--dtype", "float32"],
        ["base.safetensors", "tuned.safetensors"],
    ):
        assert main(["compare-view", *arguments, *look, "-o", "y.html"]) == 0
        state = data_of(tmp_path / "y.html")["state"]
        assert state["comparison"]["names"] == ["before", "after"]
        assert (state["form"], state["order"]) == ("matrix", "distance")
        (distances,) = [stack["distances"][1] for stack in state["comparison"]["stacks"].values()]
        assert max(map(abs, distances[0])) == 0
        assert min(distances[1]) > 0


def test_an_atlas_of_texts_and_of_saved_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = demos.load("decoder")
    model.save_pretrained("decoder")
    tokenizer.save_pretrained("decoder")
    texts = ["the cat and the dog met the cat", "the dog sat", "mary went to the shop"]
    Path("texts.txt").write_text("\n".join(texts), encoding="utf-8")
    options = ["--keep-edges", "7", "--checkpoint", "heads.safetensors", "--no-progress"]
    arguments = ["atlas-view", "decoder", "texts.txt", *options, "--color", "entropy"]
    assert main([*arguments, "-o", "x.html"]) == 0
    assert data_of(tmp_path / "x.html")["state"]["color"] == "entropy"
    # The command overwrites a file only with --resume.
    assert main([*arguments, "-o", "x.html"]) == 1
    assert main([*arguments, "--resume", "-o", "x.html"]) == 0
    statistics = head_statistics(model, texts, tokenizer=tokenizer, progress=False)
    statistics.save("saved.safetensors")
    assert main(["atlas-view", "saved.safetensors", "--layer", "-1", "-o", "y.html"]) == 0
    assert data_of(tmp_path / "y.html")["state"]["layer"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["head-view"],
        ["head-view", "x", "y", "--hed", "1"],
        ["head-view", "x", "y", "--layer"],
        ["embedding-view", "x", "y.txt", "z.txt"],
        ["no-view"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "inputs is missing"),
        ([""], "inputs"),
        (["x", "--layer", "99"], "layer=99"),
        (["x", "--heads", "99"], "heads=[99]"),
        (["x", "--heads", "0-3"], "heads='0-3'"),
        (["x", "--layers", "99"], "layers: layer 99 does not exist"),
        (["x", "--dtype", "int8"], "dtype='int8'"),
        (["x", "--device", "nowhere"], "device='nowhere'"),
        (["x", "--stack", "decoder"], "stack='decoder'"),
        (["x", "--controls", "big"], "controls='big'"),
        (["the cat", "--token", "dog"], "token='dog': no token has this text"),
        (["@none.txt"], "none.txt"),
        (["x", "--truncation", "0"], "truncation=0"),
    ],
)
def test_errors_exit_with_1_and_a_reason(  # noqa: PLR0917 - fixtures
    checkpoint_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["head-view", str(checkpoint_folder), *arguments]) == 1
    output = capsys.readouterr()
    assert reason in output.err
    assert "Traceback" not in output.err
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnviz.cli._write", interrupted)
    assert main(["demo"]) == 130
