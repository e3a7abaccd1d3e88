"""Tests that a saved record loads unchanged, and that damaged files raise clear errors."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.record.attention import (
    DerivedAttention,
    QueryKeyAttention,
    StoredWeights,
)
from attnviz.record.difference import DifferenceAttention
from attnviz.record.images import PatchGrid
from attnviz.record.masks import PackedMask
from attnviz.record.notes import Note, kind_of
from attnviz.record.record import AttentionRecord, derive_record, load
from attnviz.record.stack import AttentionStack
from attnviz.record.storage import schema
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from attnviz.record.storage.spool import Spool
from attnviz.record.tokens import Candidate, Prediction, Tokens
from models.counting import LiveTensors
from unit.layers import LAYER, stacks
from unit.records import (
    assert_same,
    captured_record,
    difference_record,
    given_record,
    shares,
    vectors,
    words,
)


def spooled(record: AttentionRecord, folder: Path) -> AttentionRecord:
    """Write a record to a folder with `Spool`, and return a record that reads the folder."""
    spool = Spool(folder)
    spool.begin()
    spool.finish(record)
    return load(spool.folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spooled(given_record(), tmp_path)
    return tmp_path


@st.composite
def records(draw: st.DrawFn) -> AttentionRecord:
    """Draw a record of one to three stacks, each with one layer of any kind and any texts."""
    text = st.text(st.characters(), max_size=5)
    stacks_by_name = {}
    # Names of stacks are keys of the file, which UTF-8 must be able to encode.
    names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        drawn = draw(stacks())
        attention = drawn.attention(LAYER)
        if isinstance(attention, QueryKeyAttention):
            dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
            sides = attention.queries.to(dtype), attention.keys.to(dtype)
            attention = replace(attention, queries=sides[0], keys=sides[1])
        texts = draw(st.lists(text, min_size=1, max_size=5)) * 40
        specials = draw(st.lists(st.booleans(), min_size=1, max_size=5)) * 40
        queries, keys = attention.num_queries, attention.num_keys
        rows = Tokens.of(texts[:queries], special=specials[:queries])
        columns = Tokens.of(texts[:keys], ids=range(keys))
        stacks_by_name[name] = AttentionStack(
            name,
            {draw(st.integers(0, 99)): attention},
            rows,
            columns,
            signed=drawn.signed,
            measure=drawn.measure,
        )
    return AttentionRecord(stacks_by_name, model=draw(text), notes=draw(st.lists(text)))


@settings(max_examples=40)
@given(records())
def test_any_record_comes_back_the_same_from_a_file_and_a_folder(record: AttentionRecord) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reloaded = load(record.save(Path(folder, "x.safetensors")))
        assert_same(record, reloaded)
        assert_same(record, spooled(reloaded, Path(folder, "spool")))
        assert_same(record, load(str(Path(folder, "spool"))))


def change_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply `change` to the header of a saved record."""
    header, arrays = read_arrays(path)
    change(header)
    write_arrays(path, header, arrays)


def flip(data: bytes, position: int) -> bytes:
    """Return the data with the lowest bit of the byte at `position` inverted."""
    damaged = bytearray(data)
    damaged[position] ^= 1
    return bytes(damaged)


def test_a_file_cannot_hide_characters_from_the_reader(tmp_path: Path) -> None:
    path = given_record().save(tmp_path / "x.safetensors")
    change_header(path, lambda h: h["stacks"][0]["query_tokens"].update(text=["\u202e"] * 5))
    assert set(load(path).tokens) == {"‹U+202E›"}


def test_parts_of_characters_come_back(tmp_path: Path) -> None:
    entries = ["Ġcaf", "Ã", "©", "ð", "ŁĲ", "¶x"]
    record = AttentionRecord.from_weights([shares(1, 6, 6)], words(6), key_tokens=entries)
    names = record.stack().key_tokens
    assert any(" " in name for name in names)
    assert load(record.save(tmp_path / "x.safetensors")).stack().key_tokens == names


def test_notes_keep_their_kinds(tmp_path: Path) -> None:
    notes = ["how to read it", Note("The text was truncated.", "part of a text")]
    record = AttentionRecord.from_weights([[[[1.0]]]], ["a"])
    derive_record(record, record.stacks, notes=notes).save(tmp_path / "r.safetensors")
    loaded = load(tmp_path / "r.safetensors")
    assert loaded.notes == tuple(notes)
    assert [kind_of(note) for note in loaded.notes] == ["", "part of a text"]


def test_arrays_that_layers_share_are_saved_once(tmp_path: Path) -> None:
    bits = torch.rand(1, 600, 600) < 0.5
    mask, queries = PackedMask.pack(bits), vectors(1, 600, 1)
    layers = {number: QueryKeyAttention(queries, queries, 1.0, mask=mask) for number in range(8)}
    stack = AttentionStack("self", layers, Tokens.of(words(600)))
    path = AttentionRecord({"self": stack}).save(tmp_path / "x.safetensors")
    with safetensors.safe_open(path, framework="pt") as file:
        assert [name for name in file.keys() if "shared" in name] == ["shared/0/bits"]  # noqa: SIM118
    reloaded = load(path).stacks["self"]
    attentions = [reloaded.attention(number) for number in range(8)]
    assert len({id(f.mask) for f in attentions if isinstance(f, QueryKeyAttention)}) == 1


def test_a_file_that_was_cut_or_continued_is_refused(tmp_path: Path) -> None:
    path = captured_record().save(tmp_path / "x.safetensors")
    data = path.read_bytes()
    cuts = {0, 1, 7, 8, 9, len(data) - 1, *range(10, len(data), 499)}
    for damaged in (*(data[:cut] for cut in sorted(cuts)), data + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"path='.*x\.safetensors' is damaged or is not a sav"):
            load(path)


def test_a_damaged_header_raises_no_other_error(tmp_path: Path) -> None:
    path = captured_record().save(tmp_path / "x.safetensors")
    data = path.read_bytes()
    # The file begins with the length of its header and the name of its metadata.
    for position in range(24):
        path.write_bytes(flip(data, position))
        with pytest.raises(ValueError, match=r"path='.*x\.safetensors'"):
            load(path)
    for position in range(24, 8 + int.from_bytes(data[:8], "little"), 31):
        path.write_bytes(flip(data, position))
        # A changed letter of a token is no damage.
        with contextlib.suppress(ValueError):
            load(path)


Faults = dict[str, Callable[[dict[str, Any]], object]]
HEADER_FAULTS: Faults = {
    "no stacks": lambda h: h.pop("stacks"),
    "empty stacks": lambda h: h.update(stacks=[]),
    "a stack that is no object": lambda h: h["stacks"].append("self"),
    "no layers": lambda h: h["stacks"][0].update(layers=[]),
    "shared parts of another type": lambda h: h.update(shared=[1]),
    "a band beyond any text": lambda h: h["shared"]["shared/0"].update(offset=10**30),
    "half a position of a band": lambda h: h["shared"]["shared/0"].update(offset=0.5),
    "packed mask for other keys": lambda h: h["shared"]["shared/1"].update(num_keys=16),
    "distance for other queries": lambda h: h["shared"]["shared/2"].update(num_queries=2),
    "another kind of mask": lambda h: h["shared"]["shared/1"].update(kind="pickle"),
    "a bias as a mask": lambda h: h["shared"]["shared/2"].update(kind="packed", num_keys=6),
    "notes of another type": lambda h: h.update(notes=7),
    "note that is no text": lambda h: h.update(notes=[{}]),
}
TOKEN_FAULTS: Faults = {
    "too few texts": lambda tokens: tokens["text"].pop(),
    "text that is one string": lambda tokens: tokens.update(text="abcdef"),
    "no texts": lambda tokens: tokens.pop("text"),
    "too few special": lambda tokens: tokens["special"].pop(),
    "sequence that is no number": lambda tokens: tokens.update(sequence=["a"] * 6),
}
LAYER_FAULTS: Faults = {
    "no arrays": lambda layer: layer.update(number=99),
    "no number": lambda layer: layer.update(number="x"),
    "endless number": lambda layer: layer.update(number=float("inf")),
    "another kind": lambda layer: layer.update(kind="weights"),
    "scale NaN": lambda layer: layer.update(scale=float("nan")),
    "soft cap of zero": lambda layer: layer.update(softcap=0.0),
    "mask that does not exist": lambda layer: layer.update(mask="shared/9"),
    "mask of another type": lambda layer: layer.update(mask=["x"]),
    "bias for a mask": lambda layer: layer.update(mask="shared/2"),
    "mask for a bias": lambda layer: layer.update(bias="shared/0"),
}


def side_and_difference() -> AttentionRecord:
    return difference_record(layers=1, with_side=True)


def merged_record() -> AttentionRecord:
    return AttentionRecord.from_weights([shares(1, 3, 3)], ["Ġa", "b", "Ġc"]).merge_words()


def layer_of(header: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the first layer of the last stack in a header."""
    layer: dict[str, Any] = header["stacks"][-1]["layers"][0]
    return layer


DIFFERENCE_FAULTS: Faults = {
    "a side that does not exist": lambda h: layer_of(h)["a"].update({"as": "elsewhere/3"}),
    "differences of differences": lambda h: layer_of(h).update(a={**layer_of(h)}),
    "a side without a kind": lambda h: layer_of(h).update(a={}),
    "a measure of several lines": lambda h: h["stacks"][-1].update(measure="a\nb"),
    "signed and normalised": lambda h: h["stacks"][-1].update(normalized=True),
}
MERGED_FAULTS: Faults = {
    "no base": lambda h: layer_of(h).pop("base"),
    "starts that do not exist": lambda h: layer_of(h).update(key_starts="shared/9"),
    "starts that are weights": lambda h: layer_of(h).update(query_starts="self/0/weights"),
    "starts of another type": lambda h: layer_of(h).update(query_starts=[0]),
}


@pytest.mark.parametrize(
    ("make", "part", "change"),
    [
        pytest.param(make, part, change, id=fault)
        for make, part, faults in (
            (captured_record, lambda h: h, HEADER_FAULTS),
            (captured_record, lambda h: h["stacks"][0]["query_tokens"], TOKEN_FAULTS),
            (captured_record, lambda h: h["stacks"][0]["layers"][0], LAYER_FAULTS),
            (side_and_difference, lambda h: h, DIFFERENCE_FAULTS),
            (merged_record, lambda h: h, MERGED_FAULTS),
        )
        for fault, change in faults.items()
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    make: Any, part: Any, change: Any, tmp_path: Path
) -> None:
    path = make().save(tmp_path / "x.safetensors")
    change_header(path, lambda header: change(part(header)))
    with pytest.raises(ValueError, match=r"path='.*x\.safetensors' is damaged"):
        load(path)


def test_a_layer_that_two_stacks_share_is_one_object_after_loading(tmp_path: Path) -> None:
    record = side_and_difference()
    reloaded = load(record.save(tmp_path / "x.safetensors"))
    assert_same(record, reloaded)
    difference = reloaded.stacks["self: b − a"].attention(0)
    assert isinstance(difference, DifferenceAttention)
    assert difference.a is reloaded.stacks["self: a"].attention(0)


def test_a_difference_of_sides_without_a_form_is_saved_as_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Turned(DerivedAttention):
        num_queries = num_keys = 6

        def block(self, heads: Any, rows: Any, *_: Any) -> Any:
            return self.base.block(heads, slice(0, 6)).flip(1)[:, rows]

    sides = [StoredWeights(torch.from_numpy(shares(1, 6, 6, seed=n))) for n in range(2)]
    layer = DifferenceAttention(Turned(sides[0]), sides[1])
    stack = AttentionStack("self", {1: layer}, Tokens.of(words(6)), signed=True)
    path = AttentionRecord({"self": stack}).save(tmp_path / "x.safetensors")
    reloaded = load(path).stack()
    expected = shares(1, 6, 6, seed=1)[0] - shares(1, 6, 6, seed=0)[0][::-1]
    assert np.array_equal(reloaded.weights(layer=1, head=0), expected)
    monkeypatch.setattr(schema, "_MAX_COMPUTED", 35)
    with pytest.raises(ValueError, match=r"self/1 can only be saved as computed weights, .* Save"):
        AttentionRecord({"self": stack}).save(tmp_path / "y.safetensors")
    assert not (tmp_path / "y.safetensors").exists()


@pytest.mark.parametrize("text", ["[]", "7", "{", "", "[" * 100_000, '{"format": 1}'])
def test_a_header_must_be_an_object(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.record.storage.safetensors_file.compact_json", lambda _: text)
    path = write_arrays(tmp_path / "x.safetensors", {}, {"a": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"path='.*x\.safetensors' .*damaged"):
        load(path)


def large(tokens: int = 65_536) -> AttentionRecord:
    """Return a record that takes 201 MB in a file. Queries and keys are views of one tensor."""
    all_vectors = vectors(tokens, 6, 64)
    by_head = all_vectors.transpose(0, 1)
    layers = {number: QueryKeyAttention(by_head[:4], by_head[4:], 0.1) for number in (0, 1)}
    return AttentionRecord({"self": AttentionStack("self", layers, Tokens.of(words(tokens)))})


def in_memory(path: Path) -> int:
    """Return the resident bytes of a mapped file, or of the mapped files of a folder."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = str(path) in line
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_record_is_never_read_whole(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    if kind == "file":
        large().save(path)
    else:
        spooled(large(), path)
    record = load(path)
    assert in_memory(path) < 1e6
    record.stack().weights(layer=1, head=3, rows=slice(9, 10))
    # The row needs the keys of one head (17 MB) and a query. The system reads some more bytes,
    # but not all 201 MB.
    assert 65_536 * 64 * 4 <= in_memory(path) < 40e6


@pytest.mark.slow
def test_a_record_is_saved_a_few_megabytes_at_a_time(tmp_path: Path) -> None:
    record = large()
    count = LiveTensors()
    with count:
        record.save(tmp_path / "x.safetensors")
    # In `large`, the vectors of all heads of a token are adjacent in memory. To write them head by
    # head, `save` copies at most two heads at a time.
    assert count.peak <= 2 * 65_536 * 64 * 4
    reloaded, count = load(tmp_path / "x.safetensors"), LiveTensors()
    tracemalloc.start()
    with count:
        reloaded.save(tmp_path / "y.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Contiguous tensors are not copied. Python copies the text of the header a few times.
    assert count.peak == 0
    assert peak < 20e6
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_values_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(TypeError, match=r"x is torch\.complex64, which cannot be saved"):
        write_arrays(path, {}, {"x": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(ValueError, match=r"tokens and notes take 100,.* Save fewer tokens"):
        write_arrays(path, {"notes": "x" * 100_000_000}, {"x": torch.zeros(2)})
    assert list(tmp_path.iterdir()) == []


def test_missing_files_and_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(FileNotFoundError, match=r"no file at path='.*x\.safetensors'"):
        load(path)
    with pytest.raises(FileNotFoundError, match=r"no record at path=.* the folder has no index"):
        load(tmp_path)
    safetensors.torch.save_file({"weight": torch.zeros(2, 2)}, path)
    with pytest.raises(ValueError, match=r"is a safetensors file without a header of attnviz"):
        load(path)
    given_record().save(path)
    change_header(path, lambda header: header.update(format=2))
    with pytest.raises(ValueError, match=r"x\.safetensors' has the format 2, but .* reads 1\. "):
        load(path)
    path.write_bytes(b"\x80\x04\x95 a pickle")
    with pytest.raises(ValueError, match="is damaged or is not a saved record"):
        load(path)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (None, TypeError, r"^path must be the path of a file.*got NoneType"),
        ("", ValueError, r"^path='' is empty\. Pass the path of a file"),
        ("a\0b", ValueError, r"^path='a\\x00b' has a null character"),
        ("a\ud800b", ValueError, r"^path='a\\ud800b' has a lone surrogate"),
        ("x" * 300, OSError, r"cannot (read|write) path='xxx|no file at path='xxx"),
        ("no/such/folder/x", OSError, r"(cannot write|no file at) path='no/such/folder/x"),
    ],
)
def test_invalid_paths_are_refused(
    name: Any, error: type[Exception], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An empty path must not load the working directory, which is a saved record here.
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    for call in (load, given_record().save):
        with pytest.raises(error, match=message):
            call(name)
    assert sorted(folder.iterdir()) == before


def test_a_name_without_a_suffix_gets_one(tmp_path: Path) -> None:
    record = given_record()
    assert record.save(tmp_path / "mine") == tmp_path / "mine.safetensors"
    assert load(str(tmp_path / "mine")).tokens == record.tokens


REPLACER = """
import itertools, os, sys
print("ready", flush=True)
for source in itertools.cycle(sys.argv[2:]):
    os.link(source, sys.argv[1] + ".new")
    os.replace(sys.argv[1] + ".new", sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot replace an open file")
def test_replacing_a_file_while_it_is_read_never_mixes_records(tmp_path: Path) -> None:
    path, sources = tmp_path / "x.safetensors", []
    for number in range(3):
        weights = np.full((1, 2, 4, 4), float(number), np.float32)
        record = AttentionRecord.from_weights(
            weights, words(4), normalized=False, model=str(number)
        )
        sources.append(str(record.save(tmp_path / f"source-{number}")))
    record.save(path)
    command = [sys.executable, "-c", REPLACER, str(path), *sources]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            models: list[str] = []
            # Load at least 300 times, and until all three records were loaded, but at most 9999
            # times.
            while len(models) < 300 or (len(set(models)) < 3 and len(models) < 9999):
                reloaded = load(path)
                models.append(reloaded.model)
                assert np.unique(reloaded.stack().weights(layer=0)) == [float(reloaded.model)]
        finally:
            process.kill()
    assert len(set(models)) == 3


def test_images_grids_and_predictions_come_back(tmp_path: Path) -> None:
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    cat, dog = Candidate("·cat", 1, 0.6), Candidate("</script>", 2, 0.25)
    tokens = Tokens(
        text=("[CLS]", "0,0", "0,1", "·cat"),
        special=(True, False, False, False),
        sequence=(None, 0, 0, 1),
        words=(None, 0, 0, 1),
        grids=(PatchGrid(image=0, start=1, rows=1, columns=2),),
        predictions=(Prediction(query=2, token=cat, candidates=(cat, dog), row=3),),
    )
    record = AttentionRecord.from_weights([np.eye(4)[None]], tokens, images=[image])
    reloaded = load(record.save(tmp_path / "record.safetensors"))
    assert reloaded.tokens == tokens
    assert len(reloaded.images) == 1
    assert np.array_equal(reloaded.images[0], image)
    assert np.array_equal(reloaded.only([0]).images[0], image)
