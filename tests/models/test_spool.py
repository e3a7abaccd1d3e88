"""Queries and keys that are written to a folder during the forward: the same record on disk."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import AttentionRecord, extract, load
from attnviz.extraction.capture import memory
from attnviz.record.storage.safetensors_file import write_safetensors
from attnviz.record.storage.spool import INDEX
from models.make_models import make_model
from models.test_kept import Turns, record_bytes, tensors_of, weights_only
from models.tiny import IDS, arguments_of, built, picture
from unit.records import assert_same

KINDS = "albert llama gpt_oss bart t5 vit bloom".split()


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def num_layers(record: AttentionRecord) -> int:
    return sum(stack.num_layers for stack in record.stacks.values())


def assert_mapped(record: AttentionRecord, folder: Path) -> None:
    """Check that all tensors that grow with the text are memory-mapped files of the folder."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only Linux lists mapped files")
    spans = []
    for line in maps.read_text(encoding="utf-8").splitlines():
        if f" {folder}/" in line:
            start, _, stop = line.split()[0].partition("-")
            spans.append((int(start, 16), int(stop, 16)))
    for tensor in tensors_of(record):
        assert any(start <= tensor.data_ptr() < stop for start, stop in spans)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options", [{}, {"layers": [1]}, {"dtype": "float16"}, {"dtype": torch.float64}], ids=str
)
def test_spooled_records_equal_records_in_memory(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model, arguments = make_model(kind), arguments_of(kind)
    expected = extract(model, arguments, **options)
    record = extract(model, arguments, spool=tmp_path / "x", **options)
    assert_same(expected, record)
    assert_mapped(record, tmp_path / "x")
    assert_same(expected, load(tmp_path / "x", verify=True))
    files = [name for name in names_in(tmp_path / "x") if name != INDEX]
    assert len(files) == len(names_in(tmp_path / "x")) - 1 == num_layers(record)


def test_layers_are_written_while_the_model_runs(tmp_path: Path) -> None:
    model = make_model("llama")
    sizes: list[int] = []
    for layer in model.model.layers:
        layer.register_forward_hook(
            lambda *_: sizes.append(len(list((tmp_path / "x").glob("*.safetensors"))))
        )
    extract(model, IDS, spool=tmp_path / "x")
    assert sizes == [1, 2, 3]


def test_windows_and_images_are_restored(tmp_path: Path) -> None:
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    model = built("SwinModel", config)
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    image = picture(32, 32)
    expected = extract(model, image, processor=processor)
    record = extract(model, image, processor=processor, spool=tmp_path / "x")
    assert len(record.stacks) == 2
    assert_same(expected, record)
    np.testing.assert_array_equal(record.images[0], expected.images[0])
    assert_mapped(record, tmp_path / "x")


def test_a_generated_text_is_spooled(tmp_path: Path) -> None:
    for kind in ("gpt2", "bart"):
        model = make_model(kind)
        expected = extract(model, {"input_ids": IDS}, generate=5)
        record = extract(model, {"input_ids": IDS}, generate=5, spool=tmp_path / kind)
        assert_same(expected, record)
        predictions = [stack.query_tokens.predictions for stack in record.stacks.values()]
        assert predictions == [stack.query_tokens.predictions for stack in expected.stacks.values()]
        assert any(predictions)


def test_texts_and_rows_get_a_folder_each(byte_tokenizer: Any, tmp_path: Path) -> None:
    model = make_model("gpt2")
    texts = ["The cat sat.", "A dog", "it was too tired"]
    options: dict[str, Any] = {"tokenizer": byte_tokenizer, "progress": False}
    expected = extract(model, texts, **options)
    records = extract(model, texts, spool=tmp_path / "texts", **options)
    assert names_in(tmp_path / "texts") == ["0", "1", "2"]
    batch = byte_tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    rows = extract(model, batch, spool=tmp_path / "rows", **options)
    for number, one in enumerate(expected):
        assert_same(one, records[number])
        assert_same(one, load(tmp_path / "texts" / str(number)))
        # In a padded batch the last bits differ.
        for layer in range(3):
            np.testing.assert_allclose(
                load(tmp_path / "rows" / str(number)).stack().weights(layer=layer),
                one.stack().weights(layer=layer),
                atol=1e-5,
            )
            assert_mapped(rows[number], tmp_path / "rows" / str(number))
    # A list of one text gives a list.
    (one,) = extract(model, texts[:1], spool=tmp_path / "single", **options)
    assert_same(expected[0], load(tmp_path / "single" / "0"))


def test_an_error_in_a_text_keeps_the_earlier_records(byte_tokenizer: Any, tmp_path: Path) -> None:
    model = make_model("gpt2")
    texts = ["The cat sat.", "the dog " * 60]
    with pytest.raises(ValueError, match="tokens are too many"):
        extract(model, texts, tokenizer=byte_tokenizer, spool=tmp_path / "x", progress=False)
    assert names_in(tmp_path / "x") == ["0"]
    assert load(tmp_path / "x" / "0").stack().num_layers == 3


def test_a_second_run_replaces_the_files_of_the_first(tmp_path: Path) -> None:
    model, arguments = make_model("bigbird_pegasus"), arguments_of("bigbird_pegasus")
    runs: list[Any] = []
    model.register_forward_pre_hook(lambda *_: runs.append(1))
    expected = extract(model, arguments)
    # The encoder's modules are replaced in the first run, so a second run captures it.
    assert len(runs) == 2
    record = extract(model, arguments, spool=tmp_path / "x")
    assert_same(expected, record)
    assert len(names_in(tmp_path / "x")) == num_layers(record) + 1


def test_a_layer_with_a_number_known_only_later_is_spooled(tmp_path: Path) -> None:
    model = weights_only(Turns)
    for layer in range(4):
        expected = extract(model, IDS, layers=[layer])
        record = extract(model, IDS, layers=[layer], spool=tmp_path / str(layer))
        assert_same(expected, record)


def failing(model: Any, error: BaseException) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return model.model.layers[2].register_forward_pre_hook(fail)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("in the model")])
def test_an_interrupt_or_error_leaves_nothing(error: BaseException, tmp_path: Path) -> None:
    model = make_model("llama")
    hook = failing(model, error)
    (tmp_path / "there").mkdir()
    for name in ("x", "there"):
        with pytest.raises(type(error)):
            extract(model, IDS, spool=tmp_path / name)
    assert names_in(tmp_path) == ["there"]
    assert names_in(tmp_path / "there") == []
    hook.remove()
    assert_same(extract(model, IDS), extract(model, IDS, spool=tmp_path / "there"))


KILLED = """
import os, signal, sys
import torch
import attnviz as av
from models.make_models import make_model
from models.test_kept import Turns, record_bytes, tensors_of, weights_only
model = make_model("llama")
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
model.model.layers[2].register_forward_pre_hook(kill)
av.extract(model, torch.arange(50)[None], spool=sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only POSIX has this signal")
def test_a_killed_process_leaves_no_loadable_record(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "x")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=100,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(names_in(tmp_path / "x")) == 2
    with pytest.raises(FileNotFoundError, match=r"no record at path=.*: the folder has no index"):
        load(tmp_path / "x")
    with pytest.raises(FileExistsError, match="the folder is not empty"):
        extract(make_model("llama"), IDS, spool=tmp_path / "x")


def test_a_full_disk_raises_and_removes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def until_full(*arguments: Any) -> str:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(1)
        return write_safetensors(*arguments)

    monkeypatch.setattr("attnviz.record.storage.spool.write_safetensors", until_full)
    with pytest.raises(OSError, match=r"spool='.*x' cannot be written: No space left on device\."):
        extract(make_model("llama"), IDS, spool=tmp_path / "x")
    assert len(written) == 2
    assert names_in(tmp_path) == []


def test_bad_spool_paths_are_refused_before_the_model_runs(
    tmp_path: Path, byte_tokenizer: Any
) -> None:
    model = make_model("gpt2")
    extract(model, IDS, spool=tmp_path / "record")
    (tmp_path / "file").touch()
    (tmp_path / "texts").mkdir()
    shutil.copytree(tmp_path / "record", tmp_path / "texts" / "1")
    before = sorted(tmp_path.rglob("*"))

    def run_model(*_: Any) -> None:
        raise AssertionError("the model ran")

    hook = model.transformer.wte.register_forward_pre_hook(run_model)
    for name, inputs, error, message in (
        ("record", IDS, FileExistsError, "the folder is not empty"),
        ("texts", IDS, FileExistsError, "the folder is not empty"),
        ("texts", ["a", "b"], FileExistsError, "texts' cannot be written: the folder is not empty"),
        ("file", IDS, NotADirectoryError, "is a file"),
        ("no/x", IDS, FileNotFoundError, "the parent folder does not exist"),
    ):
        with pytest.raises(error, match=message):
            extract(model, inputs, tokenizer=byte_tokenizer, spool=tmp_path / name, progress=False)
    with pytest.raises(TypeError, match="spool must be the path of a folder"):
        extract(model, IDS, spool=7)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="device=None and spool='x' are two locations"):
        extract(model, IDS, spool="x", device=None)
    hook.remove()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_without_space_raises_before_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("llama")
    # 4 heads and 2 key heads of 12 numbers for 10 tokens, in 3 layers.
    needed = 3 * 6 * 12 * 10 * 4
    monkeypatch.setattr(memory, "free_memory", lambda _: 0)
    monkeypatch.setattr(memory, "free_disk", lambda _: needed)
    # Free memory does not matter.
    extract(model, IDS, spool=tmp_path / "x")
    monkeypatch.setattr(memory, "free_disk", lambda _: needed - 1)

    def run_model(*_: Any) -> None:
        raise AssertionError("the model ran")

    hook = model.model.embed_tokens.register_forward_pre_hook(run_model)
    with pytest.raises(
        OSError, match=r"spool: the queries and keys of 3 layers for 10 tokens take 8\.6 kB"
    ) as raised:
        extract(model, IDS, spool=tmp_path / "y")
    assert raised.value.errno == errno.ENOSPC
    hook.remove()
    assert names_in(tmp_path) == ["x"]
    extract(model, IDS, spool=tmp_path / "y", layers=[0, 1])


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("gpt2", {"max_new_tokens": 8}),
        ("gpt2", {"max_length": 18}),
        ("bart", {"max_new_tokens": 8}),
        ("bart", {"max_length": 9}),
    ],
)
@pytest.mark.parametrize("spool", [False, True])
def test_memory_for_a_generated_text_is_checked_before_the_generation(
    kind: str,
    bound: dict[str, int],
    *,
    spool: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_model(kind)
    record = extract(model, {"input_ids": IDS}, generate={"min_new_tokens": 8, "max_new_tokens": 8})
    needed = record_bytes(record)
    runs: list[Any] = []
    hooks = [
        module.register_forward_pre_hook(lambda *_: runs.append(1)) for module in model.modules()
    ]
    options: dict[str, Any] = {"spool": tmp_path / "x"} if spool else {}
    where = "free_disk" if spool else "free_memory"
    monkeypatch.setattr(memory, where, lambda _: needed - 1)
    with pytest.raises(OSError if spool else MemoryError, match="queries and keys of"):
        extract(model, {"input_ids": IDS}, generate=bound, **options)
    assert not runs
    monkeypatch.setattr(memory, where, lambda _: needed)
    extract(model, {"input_ids": IDS}, generate=bound, **options)
    assert runs
    for hook in hooks:
        hook.remove()
