"""Records that `extract` writes to a folder during the forward equal records in memory."""

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
from attnviz.extraction import records
from attnviz.extraction.capture import memory
from attnviz.record.storage.safetensors_file import write_safetensors
from attnviz.record.storage.spool import INDEX
from models.make_models import make_model
from models.test_kept import record_bytes, tensors_of
from models.tiny import IDS, arguments_of, built, picture
from unit.records import assert_same


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def num_layers(record: AttentionRecord) -> int:
    return sum(stack.num_layers for stack in record.stacks.values())


def assert_mapped(record: AttentionRecord, folder: Path) -> None:
    """Assert that queries, keys and weights are mapped from files in the folder (Linux only)."""
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


@pytest.mark.parametrize("kind", "albert llama gpt_oss bart t5 vit bloom".split())
@pytest.mark.parametrize("options", [{}, {"layers": [1]}, {"dtype": "float16"}], ids=str)
def test_spooled_records_equal_records_in_memory(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model, arguments = make_model(kind), arguments_of(kind)
    expected = extract(model, arguments, **options)
    record = extract(model, arguments, spool=tmp_path / "x", **options)
    assert_same(expected, record)
    assert_mapped(record, tmp_path / "x")
    assert_same(expected, load(tmp_path / "x"))
    files = [name for name in names_in(tmp_path / "x") if name != INDEX]
    assert len(files) == len(names_in(tmp_path / "x")) - 1 == num_layers(record)


def test_layers_are_written_while_the_model_runs(tmp_path: Path) -> None:
    model = make_model("llama")
    # Calls with less than 1 MiB are captured together.
    ids = torch.arange(4096)[None] % model.config.vocab_size
    sizes: list[int] = []
    for layer in model.model.layers:
        layer.register_forward_hook(
            lambda *_: sizes.append(len(list((tmp_path / "x").glob("*.safetensors"))))
        )
    extract(model, ids, spool=tmp_path / "x")
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


@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_a_generated_text_is_spooled(kind: str, tmp_path: Path) -> None:
    model = make_model(kind)
    expected = extract(model, IDS, generate=5)
    record = extract(model, IDS, generate=5, spool=tmp_path / "x")
    assert_same(expected, record)
    predictions = [stack.query_tokens.predictions for stack in record.stacks.values()]
    assert predictions == [stack.query_tokens.predictions for stack in expected.stacks.values()]
    assert any(predictions)


def test_texts_and_rows_of_a_batch_get_a_folder_each(byte_tokenizer: Any, tmp_path: Path) -> None:
    model = make_model("gpt2")
    texts = ["The cat sat.", "A dog", "it was too tired"]
    options: dict[str, Any] = {"tokenizer": byte_tokenizer, "progress": False}
    expected = extract(model, texts, **options)
    extract(model, texts, spool=tmp_path / "texts", **options)
    batch = byte_tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    rows = extract(model, batch, spool=tmp_path / "rows", **options)
    assert names_in(tmp_path / "texts") == names_in(tmp_path / "rows") == ["0", "1", "2"]
    for number, one in enumerate(expected):
        assert_same(one, load(tmp_path / "texts" / str(number)))
        assert_mapped(rows[number], tmp_path / "rows" / str(number))
        # Weights in a padded batch are rounded differently from those of a single text.
        for weights, own in zip(
            load(tmp_path / "rows" / str(number)).to_numpy(), one.to_numpy(), strict=True
        ):
            np.testing.assert_allclose(weights, own, atol=1e-5)
    # A list with a single text also gets a numbered folder.
    extract(model, texts[:1], spool=tmp_path / "single", **options)
    assert_same(expected[0], load(tmp_path / "single" / "0"))


def test_a_second_run_replaces_the_files_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "attend_fully", lambda *_: None)
    model, arguments = make_model("bigbird_pegasus"), arguments_of("bigbird_pegasus")
    runs: list[Any] = []
    model.register_forward_pre_hook(lambda *_: runs.append(1))
    expected = extract(model, arguments)
    # Without `attend_fully`, the first forward replaces modules of the encoder, which are then not
    # captured. Therefore the model runs a second time.
    assert len(runs) == 2
    record = extract(model, arguments, spool=tmp_path / "x")
    assert_same(expected, record)
    assert len(names_in(tmp_path / "x")) == num_layers(record) + 1


def fail_with(error: BaseException) -> Any:
    """Return a forward hook that raises `error`."""

    def fail(*_: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("in the model")])
def test_an_interrupt_or_error_leaves_nothing(error: BaseException, tmp_path: Path) -> None:
    model = make_model("llama")
    hook = model.model.layers[2].register_forward_pre_hook(fail_with(error))
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
model = make_model("llama")
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
model.model.layers[2].register_forward_pre_hook(kill)
# Captures of less than 1 MiB wait in memory for the end of the forward.
av.extract(model, torch.arange(4000)[None] % 50, spool=sys.argv[1])
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

    def until_full(*arguments: Any) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(1)
        write_safetensors(*arguments)

    monkeypatch.setattr("attnviz.record.storage.spool.write_safetensors", until_full)
    with pytest.raises(OSError, match=r"spool='.*x' cannot be written: No space left on device"):
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
    model.register_forward_pre_hook(fail_with(AssertionError("the model ran")))
    for name, inputs, error, message in (
        ("record", IDS, FileExistsError, "the folder is not empty"),
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
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_without_space_raises_before_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("llama")
    # Size of the record: 3 layers, 4 query and 2 key heads, 12 dimensions, 10 tokens, 4 bytes.
    needed = 3 * 6 * 12 * 10 * 4
    # Without free memory, a record can still be written to disk.
    monkeypatch.setattr(memory, "free_memory", lambda _: 0)
    monkeypatch.setattr(memory, "free_disk", lambda _: needed)
    extract(model, IDS, spool=tmp_path / "x")
    monkeypatch.setattr(memory, "free_disk", lambda _: needed - 1)
    model.register_forward_pre_hook(fail_with(AssertionError("the model ran")))
    with pytest.raises(
        OSError, match=r"spool: the queries and keys of 3 layers for 10 tokens take 8\.6 kB"
    ) as raised:
        extract(model, IDS, spool=tmp_path / "y")
    assert raised.value.errno == errno.ENOSPC
    assert names_in(tmp_path) == ["x"]


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
    needed = record_bytes(extract(model, IDS, generate={"min_new_tokens": 8, "max_new_tokens": 8}))
    options: dict[str, Any] = {"spool": tmp_path / "x"} if spool else {}
    monkeypatch.setattr(memory, "_MIN_CHECKED", 0)
    free = "free_disk" if spool else "free_memory"
    monkeypatch.setattr(memory, free, lambda _: needed)
    extract(model, IDS, generate=bound, **options)
    shutil.rmtree(tmp_path / "x", ignore_errors=True)
    monkeypatch.setattr(memory, free, lambda _: needed - 1)
    for module in model.modules():
        module.register_forward_pre_hook(fail_with(AssertionError("the model ran")))
    with pytest.raises(OSError if spool else MemoryError, match="queries and keys of"):
        extract(model, IDS, generate=bound, **options)
