"""The command line, on the real checkpoint and on the demo models."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pypdf
import pytest
import torch

from attnviz import demos, extract, load
from attnviz.cli import main
from attnviz.corpus.statistics import HeadStatistics


def run(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `attnviz` as a person does, in a folder of their own."""
    return subprocess.run(
        [sys.executable, "-m", "attnviz", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_head_view_is_written_and_only_its_place_is_printed(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    answer = run(
        *("head-view", "--model", checkpoint_folder, "--text", "The cat sat."),
        *("--layer", "3", "--heads", "1", "7", "-o", "x.html"),
        folder=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == str(tmp_path / "x.html")
    assert "loading and running" in answer.stderr
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert '"layer": 3' in page
    assert '"heads": [1, 7]' in page


@pytest.mark.parametrize("form", ["none", "compact"])
def test_the_page_has_the_controls_that_are_asked_for(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--controls", form, "-o", "x.html"]) == 0
    assert f'"controls": "{form}"' in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_controls_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--controls", "big"])
    assert "'auto', 'full', 'compact', 'none'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["model-view", "neuron-view", "matrix-view", "dashboard"])
def test_each_view_has_a_command(
    command: str, checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--model", str(checkpoint_folder), "--text", "The cat sat.", "--layer", "2"]
    assert main([command, *given]) == 0
    # The model's name and the view's.
    (file,) = tmp_path.iterdir()
    assert file.name == f"{checkpoint_folder.name}-{command}.html"
    page = file.read_text(encoding="utf-8")
    data = json.loads(page.split('id="attnviz-data">')[1].split("</script>")[0])
    assert data["view"] == command.removesuffix("-view")
    assert data["state"]["layer"] == 2


def test_words_are_merged_where_that_is_asked(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", str(checkpoint_folder), "--text", "unbelievably tired", "--words"]
    assert main(["matrix-view", *given, "-o", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="attnviz-data">')[1].split("</script>")[0])
    tokens = data["description"]["stacks"][0]["query_tokens"]["text"]
    assert tokens == ["[CLS]", "unbelievably", "tired", "[SEP]"]
    # Merged weights have no queries and keys: said, and nothing is written.
    assert main(["neuron-view", *given, "-o", str(tmp_path / "y.html")]) == 1
    assert "MatrixView" in capsys.readouterr().err
    assert not (tmp_path / "y.html").exists()


@pytest.mark.parametrize("view", ["model-view", "dashboard"])
def test_the_demo_shows_any_view(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--view", view]) == 0
    assert (tmp_path / f"decoder-{view}.html").is_file()


@pytest.mark.parametrize("model", demos.NAMES)
def test_the_demo_needs_nothing(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--model", model]) == 0
    page = (tmp_path / f"{model}-head-view.html").read_text(encoding="utf-8")
    assert len(page) > 50_000
    # It opens on one head and one query: the place where the model shows what it has learned.
    state = json.loads(page.split('id="attnviz-data">')[1].split("</script>")[0])["state"]
    assert len(state["heads"]) == 1
    assert state["token"] is not None


@pytest.mark.slow
def test_the_decoder_demo_opens_on_the_head_that_finds_the_street(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "-o", "x.svg"]) == 0
    # The last "the", of three.
    said = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "“the” (13) attends most to “street”" in said


def test_a_model_goes_on_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = demos.load("decoder")
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text = demos.example("decoder")["inputs"]
    given = ["head-view", "--model", str(folder), "--text", text, "-o", str(tmp_path / "x.html")]
    assert main([*given, "--generate", "3"]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="attnviz-data">')[1].split("</script>")[0])
    tokens = data["description"]["stacks"][0]["query_tokens"]
    assert tokens["text"][14] == "street"
    assert tokens["predictions"][0]["token"]["text"] == "street"
    assert len(tokens["text"]) == 17
    assert main([*given, "--generate", "0"]) == 1
    assert "generate must be at least 1 token" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*given, "--generate", "3", "--target", "street"])


def test_what_is_kept_can_be_limited(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", str(checkpoint_folder), "--text", "unbelievably tired"]
    limits = ["--layers", "1-2", "--keep-heads", "0,3", "--dtype", "bfloat16", "--device", "cpu"]
    assert main(["model-view", *given, *limits, "-o", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="attnviz-data">')[1].split("</script>")[0])
    stack = data["description"]["stacks"][0]
    assert (stack["layers"], stack["heads"]) == ([1, 2], [[0, 3], [0, 3]])
    assert "kept in bfloat16" in " ".join(data["description"]["notes"])
    for wrong in ("0,x", "", "3-"):
        with pytest.raises(SystemExit) as ended:
            main(["head-view", *given, "--layers", wrong])
        assert ended.value.code == 2
        assert "is not a list such as 0,5 or 0-3" in capsys.readouterr().err


def test_queries_and_keys_are_spooled(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", str(checkpoint_folder), "--text", "unbelievably tired"]
    spool = ["--spool", str(tmp_path / "spool"), "-o", str(tmp_path / "x.html")]
    # What cannot be a page is refused before anything is written, so that another try is free.
    for wrong in ("0", "-1", "nan", "401"):
        assert main(["head-view", *given, *spool, "--exact", "--max-mb", wrong]) == 1
        assert "must lie above 0 and be at most 400" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
    # What only the record tells leaves the record, and says where it is.
    assert main(["head-view", *given, *spool, "--stack", "none"]) == 1
    said = capsys.readouterr().err
    assert f"attnviz.load({str(tmp_path / 'spool')!r}) reads it" in said
    assert "stack='none': this record has" in said
    assert load(tmp_path / "spool").stack().num_layers == 6
    spool[1] = str(tmp_path / "other")
    assert main(["head-view", *given, *spool]) == 0
    capsys.readouterr()
    assert main(["head-view", *given, *spool]) == 1
    assert "holds a record already" in capsys.readouterr().err


def test_a_page_is_as_large_as_it_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.html"
    assert main(["demo", "-o", str(file), "--exact"]) == 0
    page = file.read_text(encoding="utf-8")
    assert main(["demo", "-o", str(file), "--max-mb", "2"]) == 0
    assert file.read_text(encoding="utf-8") == page
    capsys.readouterr()
    assert main(["demo", "-o", str(file), "--max-mb", "0.05"]) == 1
    assert "max_mb=0.05 has no room for any record: the view's own" in capsys.readouterr().err
    too_few = str((len(page.encode()) - 1) / 1e6)
    assert main(["demo", "-o", str(file), "--exact", "--max-mb", too_few]) == 1
    assert 'attnviz: precision="exact": a page with all ' in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == page
    assert main(["demo", "-o", str(file), "--max-mb", "-1"]) == 1
    assert "attnviz: max_mb=-1.0 must lie above 0" in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["head-view", "--help"], ["demo", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert "example" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--text", "no model"], "--model"),
        (["--model", "x"], "--text, --text-file or --image"),
        (["--model", "x", "--text", "y", "--text-file", "z"], "not allowed with"),
        (["--model", "x", "--text-pair", "y", "--image", "z"], "leave out --text-pair"),
        (["x.safetensors", "--text", "y"], "leave out --text; a model's folder or hub id is given"),
        (["x.safetensors", "--model", "y", "--dtype", "z"], "leave out --model, --dtype"),
        (["x.safetensors", "--record", "y.safetensors"], "give RECORD once"),
        (["--model", "x", "--text", "y", "--heads", "0,x"], "'0,x' is not a list such as 0,5"),
        (["--model", "x", "--text", "y", "--truncate", "z"], "invalid int"),
    ],
)
def test_wrong_usage_is_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["head-view", *arguments])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_alone_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr()
    assert "head-view" in said.out
    assert "examples:" in said.out
    assert said.err == ""


def data_of(file: Path) -> dict[str, Any]:
    page = file.read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(page.split('id="attnviz-data">')[1].split("</script>")[0])
    return data


@pytest.mark.parametrize(
    ("arguments", "heads"),
    [
        (["0,3"], [0, 3]),
        (["0", "3"], [0, 3]),
        (["3,0-1", "7"], [3, 0, 1, 7]),
        (["-1"], [11]),
        (["all"], list(range(12))),
    ],
)
def test_places_as_people_say_them(
    arguments: list[str], heads: list[int], checkpoint_folder: Path, tmp_path: Path
) -> None:
    given = ["head-view", "--model", str(checkpoint_folder), "--text", "the cat saw it in 10"]
    file = tmp_path / "x.html"
    places = ["--layer", "-1", "--token", "it", "--key", "-2", "--heads", *arguments]
    assert main([*given, *places, "-o", str(file)]) == 0
    state = data_of(file)["state"]
    assert (state["layer"], state["token"], state["key"]) == (5, 4, 6)
    assert state["heads"] == heads
    assert main([*given, "--token", "3", "-o", str(file)]) == 0
    assert data_of(file)["state"]["token"] == 3


def test_a_text_from_a_file_cut_to_what_the_model_takes(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "long.txt"
    text.write_text("\ufeffthe cat sat on it\r\n" * 300, encoding="utf-8")
    file = tmp_path / "x.html"
    given = ["matrix-view", "--model", str(checkpoint_folder), "--text-file", str(text)]
    given += ["--layers", "0", "--keep-heads", "0", "-o", str(file)]
    assert main(given) == 1
    assert "tokens are too many" in capsys.readouterr().err
    assert main([*given, "--truncate", "30"]) == 0
    description = data_of(file)["description"]
    assert len(description["stacks"][0]["query_tokens"]["text"]) == 30
    assert "the first 30 of its" in " ".join(description["notes"])
    assert description["stacks"][0]["query_tokens"]["text"][1] == "the"
    assert main([*given, "--truncate"]) == 0
    assert len(data_of(file)["description"]["stacks"][0]["query_tokens"]["text"]) == 512
    for content, reason in ((b" \n", "contains no text"), (b"\xff\xfe", "is not UTF-8")):
        text.write_bytes(content)
        assert main(given) == 1
        assert reason in capsys.readouterr().err


@pytest.mark.slow
def test_a_text_from_another_command(checkpoint_folder: Path, tmp_path: Path) -> None:
    model = ("head-view", "--model", str(checkpoint_folder), "--text-file", "-", "-o", "x.html")
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


def test_a_saved_record_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = demos.load("decoder")
    record = extract(model, "the cat sat", tokenizer=tokenizer, name="my/odd: model")
    record.save("a.safetensors")
    extract(model, "the cat sat", tokenizer=tokenizer, spool="spooled")
    assert main(["matrix-view", "a.safetensors", "--token", "cat", "--layers", "-1"]) == 0
    # Nothing in a model's name gets into a path.
    data = data_of(tmp_path / "my-odd-model-matrix-view.html")
    assert data["state"]["token"] == 1
    assert data["description"]["stacks"][0]["layers"] == [record.stack().layers[-1]]
    for given in (["--record", "spooled"], ["spooled"]):
        assert main(["head-view", *given, "-o", "x.html"]) == 0
        assert data_of(tmp_path / "x.html")["view"] == "head"
    capsys.readouterr()
    model.save_pretrained("model")
    for place, reason in (
        ("model", "'model' is a model: give it as --model"),
        ("none.safetensors", "none.safetensors"),
        (".", "load one of them"),
    ):
        assert main(["head-view", place]) == 1
        assert reason in capsys.readouterr().err


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
    given = ["head-view", "--model", "vit", "-o", "x.html"]
    assert main([*given, "--image", "red.png"]) == 0
    assert data_of(tmp_path / "x.html")["description"]["images"]
    Path("no.png").write_text("no picture", encoding="utf-8")
    capsys.readouterr()
    assert main([*given, "--image", "no.png"]) == 1
    assert "--image no.png is not an image" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert main([*given, "--image", "red.png"]) == 1
    said = capsys.readouterr().err
    assert "--image needs Pillow: pip install" in said
    assert "loading and running" not in said


def test_a_missing_browser_is_told_before_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    assert main(["demo", "-o", str(tmp_path / "x.svg")]) == 1
    said = capsys.readouterr().err
    assert "no Chrome or Chromium was found" in said
    assert "running" not in said
    monkeypatch.setitem(sys.modules, "playwright", None)
    assert main(["demo", "-o", str(tmp_path / "x.png")]) == 1
    said = capsys.readouterr().err
    assert "pip install 'attnviz[image]'" in said
    assert "running" not in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--text", "x", "-o", "x.gif"], ".html, .svg, .png or .pdf"),
        (["--text", ""], "inputs"),
        (["--text", "x", "--layer", "99"], "layer=99"),
        (["--text", "x", "--heads", "99"], "heads=[99]"),
        (["--text", "x", "--layers", "99"], "layers: there is no layer 99"),
        (["--text", "x", "--keep-heads", "1,99"], "heads: there is no head 99"),
        (["--text", "x", "--keep-heads", "1", "--heads", "0"], "was kept with heads 1 alone"),
        (["--text", "x", "--dtype", "int8"], "dtype='int8'"),
        (["--text", "x", "--device", "nowhere"], "device='nowhere'"),
        (["--text", "x", "--stack", "decoder"], "stack='decoder'"),
        (["--text", "x", "-o", "no/such/folder/x.html"], "'no/such/folder' does not exist"),
        (["--text", "the cat", "--token", "dog"], "token='dog': no token has this text"),
        (["--text", "the cat", "--layer", "-7"], "layer=-7"),
        (["--text-file", "none.txt"], "none.txt"),
        (["--image", "none.png"], "none.png"),
        (["--text", "x", "--truncate", "0"], "truncation=0"),
    ],
)
def test_what_cannot_be_done_is_1_with_its_reason(  # noqa: PLR0917 - fixtures
    checkpoint_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["head-view", "--model", str(checkpoint_folder), *arguments]) == 1
    said = capsys.readouterr()
    assert reason in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head-view", "--model", str(tmp_path / "none"), "--text", "x"]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_has_the_size_that_is_asked_for(tmp_path: Path) -> None:
    wanted = ("--width", "84mm", "--font-size", "7", "--no-caption", "--title", "Streets")
    answer = run("demo", "-o", "x.pdf", *wanted, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    [page] = pypdf.PdfReader(tmp_path / "x.pdf").pages
    # 72 points to the inch.
    assert float(page.mediabox.width) == pytest.approx(84 / 25.4 * 72, abs=0.2)
    assert "Streets" in page.extract_text()
    assert "attends" not in page.extract_text()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["-o", "x.pdf", "--width", "wide"], "width='wide' must be a length such as"),
        (["-o", "x.html", "--no-legend"], "--no-legend is of pictures"),
        (["-o", "x.html", "--font-size", "8"], "--font-size is of pictures"),
    ],
)
def test_what_cannot_be_drawn_is_told_before_a_model_runs(
    given: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *given]) == 1
    said = capsys.readouterr().err
    assert reason in said
    assert "running" not in said


def test_a_missing_browser_is_told_before_a_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    assert main(["demo", "-o", str(tmp_path / "x.pdf")]) == 1
    said = capsys.readouterr().err
    assert "ATTNVIZ_BROWSER" in said
    assert "running" not in said


def test_two_texts_two_models_and_two_records_are_compared(
    checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, he = ["--model", str(checkpoint_folder)], "The doctor asked because he was tired."
    texts = ["--text", he, "--text", he.replace("he was", "she was")]
    assert main(["compare-view", *model, *texts, "--layer", "5", "-o", "x.html"]) == 0
    data = data_of(tmp_path / "x.html")
    assert data["view"] == "compare"
    assert data["state"]["layer"] == 5
    assert data["state"]["comparison"]["names"] == ["a", "b"]
    tokens = data["description"]["stacks"][0]["query_tokens"]["text"]
    assert "he→she" in tokens
    # A model against its copy with all queries of one layer scaled, by the names of their folders.
    loaded, tokenizer = demos.load("decoder")
    for name, factor in (("base", 1.0), ("tuned", 1.5)):
        with torch.no_grad():
            loaded.transformer.h[1].attn.c_attn.weight[:, : loaded.config.n_embd] *= factor
        loaded.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        record = extract(loaded, "the cat sat on the mat", tokenizer=tokenizer)
        record.save(tmp_path / f"{name}.safetensors")
    models = ["--model", "base", "--model", "tuned", "--text", "the cat sat on the mat"]
    files = ["--load", "base.safetensors", "--load", "tuned.safetensors"]
    look = ["--form", "matrix", "--order", "distance", "--theme", "dark"]
    for given in (models, files):
        assert main(["compare-view", *given, *look, "-o", "y.html"]) == 0
        state = data_of(tmp_path / "y.html")["state"]
        assert state["comparison"]["names"] == ["base", "tuned"]
        assert (state["form"], state["order"], state["theme"]) == ("matrix", "distance", "dark")
        (distances,) = [stack["distances"][1] for stack in state["comparison"]["stacks"].values()]
        assert max(map(abs, distances[0])) == 0
        assert min(distances[1]) > 0
    names = ["--name", "before", "--name", "after"]
    assert main(["compare-view", *files, *names, "--layers", "1", "-o", "z.html"]) == 0
    assert data_of(tmp_path / "z.html")["state"]["comparison"]["names"] == ["before", "after"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "there are 0 models and 0 texts"),
        (["--model", "x", "--text", "y"], "there are 1 models and 1 texts"),
        (["--model", "x", "--model", "y"], "there are 2 models and 0 texts"),
        (["--load", "x"], "two or more"),
        (["--load", "x", "--load", "y", "--text", "z"], "leave out --text"),
        (["--load", "x", "--load", "y", "--name", "z"], "give --name for each of the 2"),
        (["--model", "x", "--text", "y", "--text", "z", "--spool", "w"], "unrecognized"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare-view", *arguments])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_what_has_nothing_in_common_is_1_with_its_reason(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", str(checkpoint_folder)]
    output = ["-o", str(tmp_path / "x.html")]
    assert main(["compare-view", *model, "--text", "", "--text", "b", *output]) == 1
    assert "the text is empty" in capsys.readouterr().err
    assert main(["compare-view", "--load", "none.a", "--load", "none.b", *output]) == 1
    assert "none.a" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


SENTENCES = [
    "at night the kitten did not touch the pie since it was too spicy so the pie stayed",
    "the cat and the dog met the cat and the dog",
    "on monday mary and john went to the shop john gave a drink to mary",
]


def decoder_folder(folder: Path) -> Path:
    """The demo decoder as a folder that a hub id could name."""
    model, tokenizer = demos.load("decoder")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_atlas_is_written_of_parts_that_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    decoder = decoder_folder(tmp_path / "decoder")
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES * 4), encoding="utf-8")
    given = ["atlas", "--model", str(decoder), "--texts", "corpus.txt"]
    # Which texts share a forward changes the last digits of weights.
    given += ["--edges", "7", "--batch-size", "1"]
    assert main([*given, "--save", "all.safetensors", "-o", "all.html", "--color", "entropy"]) == 0
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert '"view": "atlas"' in page
    assert '"color": "entropy"' in page
    for part in ("1/2", "2/2"):
        assert main([*given, "--part", part, "--save", f"part-{part[0]}.safetensors"]) == 0
    parts = ["part-1.safetensors", "part-2.safetensors"]
    assert main(["atlas", "merge", *parts, "-o", "merged.safetensors"]) == 0
    # To the bit, as if one job had read all texts.
    merged, whole = (HeadStatistics.load(f"{name}.safetensors") for name in ("merged", "all"))
    assert merged.texts == whole.texts == 12
    assert merged.to_pandas().equals(whole.to_pandas())
    assert merged.stack().sampled(1, 0) == whole.stack().sampled(1, 0)
    assert main(["atlas", "merged.safetensors", "--layer", "-1", "-o", "merged.html"]) == 0
    assert '"layer": 2' in (tmp_path / "merged.html").read_text(encoding="utf-8")
    # Nothing is left behind but what was asked for.
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {
        *("decoder", "corpus.txt", "all.safetensors", "all.html", "merged.safetensors"),
        *(*parts, "merged.html"),
    }
    assert main(["atlas", "merge", parts[0], parts[0], "-o", "twice.safetensors"]) == 1
    assert "part-1.safetensors: text=0 was folded already" in capsys.readouterr().err


def test_an_atlas_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    decoder = decoder_folder(tmp_path / "decoder")
    (tmp_path / "x.txt").write_text("\n".join(SENTENCES * 3), encoding="utf-8")
    given = ["atlas", "--model", str(decoder), "--texts", "x.txt", "-o", "x.html"]
    given += ["--batch-size", "1"]
    fold = HeadStatistics.fold
    texts: list[Any] = []

    def interrupted(self: HeadStatistics, *arguments: Any, **options: Any) -> None:
        if len(texts) == 4:
            raise KeyboardInterrupt
        texts.append(arguments[1])
        fold(self, *arguments, **options)

    monkeypatch.setattr(HeadStatistics, "fold", interrupted)
    assert main(given) == 130
    said = capsys.readouterr().err
    assert "interrupted, what was read is in x.html.checkpoint.safetensors" in said
    assert "--resume goes on" in said
    # Without --resume nothing is overwritten.
    assert main(given) == 1
    assert "is there already: give resume=True" in capsys.readouterr().err
    monkeypatch.setattr(HeadStatistics, "fold", fold)
    assert main([*given, "--resume"]) == 0
    assert '"texts": 9' in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert not (tmp_path / "x.html.checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --model ID with --texts FILE, or a file of saved statistics"),
        (["--model", "x"], "give --model ID with --texts FILE"),
        (["a.safetensors", "--model", "x"], "needs? no model: leave out --model"),
        (["a.safetensors", "b.safetensors"], "or add them up: merge a.safetensors b.safetensors"),
        (["merge"], "merge needs the files of statistics"),
        (["merge", "a.safetensors"], "merge writes a file: give -o"),
        (["merge", "a.safetensors", "-o", "x.html"], "merge writes a .safetensors or a .parquet"),
        (["--model", "x", "--texts", "y.txt", "--part", "3/2"], "'3/2' is not a part such as 3/16"),
        (["--model", "x", "--texts", "y.txt", "--save", "x.csv"], "--save x.csv: statistics are"),
    ],
)
def test_atlases_that_cannot_be_are_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["atlas", *arguments])
    assert end.value.code == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.safetensors"], "none.safetensors"),
        (["merge", "none.safetensors", "-o", "x.safetensors"], "none.safetensors"),
        (["--model", "x", "--texts", "none.txt"], "none.txt"),
        (["--model", "x", "--texts", "none.txt", "--save", "no/x.safetensors"], "does not exist"),
        (["--model", "x", "--texts", "none.txt", "-o", "x.doc"], "must end in .html"),
    ],
)
def test_atlases_that_fail_say_why(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["atlas", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
