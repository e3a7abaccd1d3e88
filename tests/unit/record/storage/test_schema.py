"""Records on disk: loading returns the same record or a clear error."""

from __future__ import annotations

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
    LayerAttention,
    QueryKeyAttention,
    StoredWeights,
)
from attnviz.record.difference import DifferenceAttention
from attnviz.record.images import PatchGrid
from attnviz.record.masks import (
    BandMask,
    PackedMask,
)
from attnviz.record.record import AttentionRecord, AttentionStack, load
from attnviz.record.storage import schema
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from attnviz.record.storage.spool import Spool
from attnviz.record.tokens import Candidate, Prediction, Tokens
from models.counting import LiveTensors
from unit.layers import LAYER, stacks
from unit.records import (
    assert_same,
    captured_record,
    given_record,
    shares,
    vectors,
    words,
)


def merged_record() -> AttentionRecord:
    """Return a record of two stacks, with the tokens of decoder and encoder merged into words."""
    attentions: Any = {
        "decoder_attentions": [shares(2, 3, 3)],
        "cross_attentions": [shares(2, 3, 5)],
    }
    return AttentionRecord.from_weights(
        **attentions,
        decoder_tokens=["Ġa", "b", "Ġc"],
        encoder_tokens=["d", "e", "Ġf", "Ġg", "h"],
    ).merge_words()


@st.composite
def records(draw: st.DrawFn) -> AttentionRecord:
    """Draw a record of one to three stacks of any kind, with any texts."""
    text = st.text(st.characters(), max_size=5)
    stacks_by_name = {}
    for name in draw(st.lists(text, min_size=1, max_size=3, unique=True)):
        drawn = draw(stacks())
        attention = drawn.attention(LAYER)
        if isinstance(attention, QueryKeyAttention):
            dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
            sides = attention.queries.to(dtype), attention.keys.to(dtype)
            attention = replace(attention, queries=sides[0], keys=sides[1])
        texts = draw(st.lists(text, min_size=1, max_size=5)) * 23
        specials = draw(st.lists(st.booleans(), min_size=1, max_size=5)) * 23
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
        spool = Spool(Path(folder, "spool"))
        spool.begin()
        assert_same(record, spool.finish(reloaded))
        assert_same(record, load(str(spool.folder), verify=True))


def test_a_file_cannot_hide_characters_from_the_reader(tmp_path: Path) -> None:
    path = given_record().save(tmp_path / "x.safetensors")
    change_header(path, lambda h: h["stacks"][0]["query_tokens"].update(text=["\u202e"] * 5))
    assert set(load(path).tokens) == {"‹U+202E›"}


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


def test_layers_of_one_tensor_are_saved_separately(tmp_path: Path) -> None:
    whole = torch.from_numpy(shares(3, 2, 4, 4))
    record = AttentionRecord.from_weights(whole, words(4))
    assert_same(record, load(record.save(tmp_path / "x.safetensors")))
    transposed = AttentionRecord.from_weights(
        [whole[0].transpose(0, 1).contiguous().transpose(0, 1)], words(4)
    )
    assert_same(transposed, load(transposed.save(tmp_path / "y.safetensors")))


def change_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a file, and renew its checksums."""
    header, arrays = read_arrays(path)
    change(header)
    write_arrays(path, header, arrays)


def test_a_file_that_was_cut_or_continued_is_refused(tmp_path: Path) -> None:
    path = captured_record().save(tmp_path / "x.safetensors")
    data = path.read_bytes()
    cuts = {0, 1, 7, 8, 9, len(data) - 1, *range(10, len(data), 499)}
    for damaged in (*(data[:cut] for cut in sorted(cuts)), data + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"path='.*x\.safetensors' is damaged or is not a sav"):
            load(path)


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    path = captured_record().save(tmp_path / "x.safetensors")
    data = path.read_bytes()
    for position in [*range(64), *range(64, len(data), 131), len(data) - 1]:
        for bit in (0, 6):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"path='.*x\.safetensors'"):
                load(path)


Faults = dict[str, Callable[[dict[str, Any]], object]]
HEADER_FAULTS: Faults = {
    "no stacks": lambda h: h.pop("stacks"),
    "stacks of another type": lambda h: h.update(stacks=7),
    "empty stacks": lambda h: h.update(stacks=[]),
    "a stack that is no object": lambda h: h["stacks"].append("self"),
    "no layers": lambda h: h["stacks"][0].update(layers=[]),
    "no tokens": lambda h: h["stacks"][0].pop("query_tokens"),
    "tokens too few": lambda h: h["stacks"][0]["query_tokens"]["text"].pop(),
    "tokens of another type": lambda h: h["stacks"][0].update(query_tokens=["a"] * 6),
    "text that is one string": lambda h: h["stacks"][0]["query_tokens"].update(text="abcdef"),
    "no words": lambda h: h["stacks"][0]["query_tokens"].pop("words"),
    "special too few": lambda h: h["stacks"][0]["query_tokens"]["special"].pop(),
    "sequence that is no number": lambda h: h["stacks"][0]["query_tokens"].update(
        sequence=["a"] * 6
    ),
    "layer without arrays": lambda h: h["stacks"][0]["layers"][0].update(number=99),
    "layer twice": lambda h: h["stacks"][0]["layers"].append(h["stacks"][0]["layers"][0]),
    "stack twice": lambda h: h["stacks"].append(h["stacks"][0]),
    "layer that is no number": lambda h: h["stacks"][0]["layers"][0].update(number="x"),
    "endless layer": lambda h: h["stacks"][0]["layers"][0].update(number=float("inf")),
    "layer of another kind": lambda h: h["stacks"][0]["layers"][0].update(kind="weights"),
    "scale that is no number": lambda h: h["stacks"][0]["layers"][0].update(scale="x"),
    "scale NaN": lambda h: h["stacks"][0]["layers"][0].update(scale=float("nan")),
    "soft cap of zero": lambda h: h["stacks"][0]["layers"][1].update(softcap=0.0),
    "mask that is not there": lambda h: h["stacks"][0]["layers"][0].update(mask="shared/9"),
    "mask of another type": lambda h: h["stacks"][0]["layers"][0].update(mask=["x"]),
    "bias for a mask": lambda h: h["stacks"][0]["layers"][0].update(mask="shared/2"),
    "mask for a bias": lambda h: h["stacks"][0]["layers"][0].update(bias="shared/0"),
    "shared of another type": lambda h: h.update(shared=[1]),
    "band that is no number": lambda h: h["shared"]["shared/0"].update(after="x"),
    "band with half a place": lambda h: h["shared"]["shared/0"].update(offset=0.5),
    "packed mask for other keys": lambda h: h["shared"]["shared/1"].update(num_keys=16),
    "distance for other queries": lambda h: h["shared"]["shared/2"].update(num_queries=2),
    "another kind of mask": lambda h: h["shared"]["shared/1"].update(kind="pickle"),
    "mask that is a bias's array": lambda h: h["shared"]["shared/2"].update(
        kind="packed", num_keys=6
    ),
    "notes of another type": lambda h: h.update(notes=7),
    "note that is no text": lambda h: h.update(notes=[{}]),
}


def layer_of(header: dict[str, Any]) -> dict[str, Any]:
    """Return the only layer of the last stack."""
    layer: dict[str, Any] = header["stacks"][-1]["layers"][0]
    return layer


DIFFERENCE_FAULTS: Faults = {
    "a side that is not there": lambda h: layer_of(h)["a"].update({"as": "elsewhere/3"}),
    "differences of differences": lambda h: layer_of(h).update(
        a={"kind": "difference", "a": layer_of(h)["a"], "b": layer_of(h)["b"]}
    ),
    "a side without a kind": lambda h: layer_of(h).update(a={}),
    "a measure of several lines": lambda h: h["stacks"][0].update(measure="a\nb"),
    "a measure that is no text": lambda h: h["stacks"][0].update(measure=7),
    "signed and normalised": lambda h: h["stacks"][0].update(normalized=True),
}
MERGED_FAULTS: Faults = {
    "no base": lambda h: layer_of(h).pop("base"),
    "a base that is merged": lambda h: layer_of(h).update(base=dict(layer_of(h))),
    "starts that are not there": lambda h: layer_of(h).update(key_starts="shared/9"),
    "starts that are weights": lambda h: layer_of(h).update(query_starts="cross/0/weights"),
    "starts of another type": lambda h: layer_of(h).update(query_starts=[0]),
}


def signed_record() -> AttentionRecord:
    """Return a record of stored numbers, a layer, and the difference of two layers."""
    numbers = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
    tokens = Tokens.of(words(6))
    sides = [
        QueryKeyAttention(vectors(4, 6, 8, seed=n), vectors(2, 6, 8, seed=n + 9), 0.3, mask=mask)
        for n, mask in enumerate((BandMask(None, 0), PackedMask.pack(torch.eye(6)[None] > 0)))
    ]
    other_layer = QueryKeyAttention(vectors(2, 6, 8, seed=5), vectors(1, 6, 8, seed=6), 0.3)
    stacks = [
        AttentionStack(
            "given",
            {0: StoredWeights(torch.from_numpy(numbers))},
            tokens,
            signed=True,
            measure="effect",
        ),
        AttentionStack("self: a", {3: sides[0], 5: other_layer}, tokens),
        AttentionStack(
            "self: b − a",
            {3: DifferenceAttention(*sides)},
            tokens,
            signed=True,
            measure="difference",
        ),
    ]
    return AttentionRecord({stack.name: stack for stack in stacks}, model="signed")


@pytest.mark.parametrize(
    ("make", "change"),
    [
        pytest.param(make, change, id=fault)
        for make, faults in (
            (captured_record, HEADER_FAULTS),
            (signed_record, DIFFERENCE_FAULTS),
            (merged_record, MERGED_FAULTS),
        )
        for fault, change in faults.items()
    ],
)
def test_a_header_that_does_not_fit_is_refused(make: Any, change: Any, tmp_path: Path) -> None:
    path = make().save(tmp_path / "x.safetensors")
    change_header(path, change)
    with pytest.raises(ValueError, match=r"path='.*x\.safetensors' is damaged"):
        load(path)


@pytest.mark.parametrize("number", [2, None])
def test_a_file_of_another_format_is_refused(number: int | None, tmp_path: Path) -> None:
    path = captured_record().save(tmp_path / "x.safetensors")
    change_header(path, lambda header: header.update(format=number))
    with pytest.raises(
        ValueError, match=rf"path='.*x\.safetensors' has the format {number}, but .* reads 3\. "
    ):
        load(path)


def test_a_layer_that_two_stacks_share_is_one_object_after_loading(tmp_path: Path) -> None:
    record = signed_record()
    reloaded = load(record.save(tmp_path / "x.safetensors"), verify=True)
    assert_same(record, reloaded)
    difference = reloaded.stacks["self: b − a"].attention(3)
    # The difference is computed on request, as before.
    assert isinstance(difference, DifferenceAttention)
    assert difference.a is reloaded.stacks["self: a"].attention(3)


def test_a_difference_of_sides_without_a_form_is_saved_as_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Turned(DerivedAttention):
        num_queries = num_keys = 6

        def weights(self, head: int, rows: slice, columns: slice) -> Any:
            return self.base.weights(head, slice(0, 6), slice(0, 6))[::-1][rows, columns]

    sides = [StoredWeights(torch.from_numpy(shares(1, 6, 6, seed=n))) for n in range(2)]
    layer = DifferenceAttention(Turned(sides[0]), sides[1])
    stack = AttentionStack("self", {1: layer}, Tokens.of(words(6)), signed=True)
    path = AttentionRecord({"self": stack}).save(tmp_path / "x.safetensors")
    reloaded = load(path).stack()
    expected = shares(1, 6, 6, seed=1)[0] - shares(1, 6, 6, seed=0)[0][::-1]
    assert np.array_equal(reloaded.weights(layer=1, head=0), expected)
    monkeypatch.setattr(schema, "_MAX_COMPUTED", 35)
    with pytest.raises(ValueError, match=r"self/1 can only be saved as computed weights, .* again"):
        AttentionRecord({"self": stack}).save(tmp_path / "y.safetensors")
    assert not (tmp_path / "y.safetensors").exists()


@pytest.mark.parametrize("text", ["[]", "7", "{", "", "[" * 100_000, '{"format": 3}'])
def test_a_header_must_be_an_object(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.record.storage.safetensors_file.header_json", lambda _: text)
    path = write_arrays(tmp_path / "x.safetensors", {}, {"a": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"path='.*x\.safetensors' .*damaged"):
        load(path)


def test_numbers_of_large_files_are_verified_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = captured_record().save(tmp_path / "x.safetensors")
    monkeypatch.setattr("attnviz.record.storage.safetensors_file.MAX_ALWAYS_CHECKED", 100)
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for position in (start, start + 999, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        load(path)
        with pytest.raises(ValueError, match="is damaged: its content does not match its checksum"):
            load(path, verify=True)
    # Damage of the header is always found, except in the eight digits of `crc32`, the checksum of
    # the numbers.
    stated = data.index(b'"crc32":"') + 9
    for position in sorted({*range(8, start, 13)} - {*range(stated, stated + 8)}):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"path='.*x\.safetensors'"):
            load(path)


@pytest.mark.parametrize("missing", ["crc32", "header_crc32"])
def test_a_file_without_a_checksum_is_refused(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.record.storage.safetensors_file.MAX_ALWAYS_CHECKED", 100)
    path = captured_record().save(tmp_path / "x.safetensors")
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    # Rewrite the file with safetensors, first with all metadata, then without one checksum.
    safetensors.torch.save_file(arrays, path, metadata)
    load(path)
    del metadata[missing]
    safetensors.torch.save_file(arrays, path, metadata)
    with pytest.raises(ValueError, match="is damaged: its content does not match its checksum"):
        load(path)


def large(tokens: int = 65_536) -> AttentionRecord:
    """Return a record with a file of 201 MB. Queries and keys are views of one tensor."""
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
        assert path.stat().st_size > 200e6
    else:
        spool = Spool(path)
        spool.begin()
        spool.finish(large())
        assert sum(file.stat().st_size for file in path.iterdir()) > 200e6
    record = load(path)
    assert in_memory(path) < 1e6
    stack = record.stack()
    assert (stack.layers, stack.heads_per_layer) == ((0, 1), (4, 4))
    stack.weights(layer=1, head=3, rows=slice(9, 10))
    # The keys of one head, a query, and what the system reads ahead.
    assert 65_536 * 64 * 4 <= in_memory(path) < 40e6


@pytest.mark.slow
def test_a_record_is_saved_a_few_megabytes_at_a_time(tmp_path: Path) -> None:
    record = large()
    count = LiveTensors()
    with count:
        record.save(tmp_path / "x.safetensors")
    # If the vectors of a head are interleaved with other heads, one head is copied at a time.
    assert count.peak <= 2 * 65_536 * 64 * 4
    reloaded, count = load(tmp_path / "x.safetensors"), LiveTensors()
    tracemalloc.start()
    with count:
        reloaded.save(tmp_path / "y.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Contiguous tensors are not copied. The text of the header is copied a few times.
    assert count.peak == 0
    assert peak < 20e6
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_values_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"x is torch\.complex64, which cannot be saved"):
        write_arrays(tmp_path / "x.st", {}, {"x": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(ValueError, match=r"tokens and notes take 100,.* Save fewer tokens"):
        write_arrays(
            tmp_path / "x.safetensors", {"notes": "x" * 100_000_000}, {"x": torch.zeros(2)}
        )
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_programs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(2, 2)}, path)
    with pytest.raises(ValueError, match=r"is a safetensors file without a header of attnviz"):
        load(path)
    path.write_bytes(b"\x80\x04\x95 a pickle")
    with pytest.raises(ValueError, match="is damaged or is not a saved record"):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file at path='.*none\.safetensors'"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no record at path=.* the folder has no index"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["no/such/folder/x.safetensors", "file/x.safetensors", "a.folder"])
def test_paths_that_cannot_be_written_are_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "a.folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=f"cannot write path='.*{name}'"):
        given_record().save(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (None, TypeError, r"^path must be the path of a file.*got NoneType"),
        ("", ValueError, r"^path='' is empty\. Pass the path of a file"),
        ("a\0b", ValueError, r"^path='a\\x00b' cannot be the name of a file.*null"),
        ("x" * 300, OSError, r"cannot (read|write) path='xxx|no file at path='xxx"),
    ],
)
def test_invalid_paths_are_refused(
    name: Any,
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An empty name does not mean a record in the working directory.
    spool = Spool(tmp_path)
    spool.begin()
    spool.finish(given_record())
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        load(name)
    with pytest.raises(error, match=message):
        given_record().save(name)
    assert sorted(tmp_path.iterdir()) == before


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
def test_replacing_a_file_while_it_is_read_never_mixes_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Numbers are not compared with a checksum, as in a large file.
    monkeypatch.setattr("attnviz.record.storage.safetensors_file.MAX_ALWAYS_CHECKED", 0)
    path, sources = tmp_path / "x.safetensors", []
    for number in range(3):
        values = torch.full((2, 4, 4), float(number))
        layers: dict[int, LayerAttention] = {0: StoredWeights(values)}
        stack = AttentionStack("self", layers, Tokens.of(words(4)))
        record = AttentionRecord({"self": stack}, model=str(number))
        sources.append(str(record.save(tmp_path / f"source-{number}")))
    record.save(path)
    command = [sys.executable, "-c", REPLACER, str(path), *sources]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            loaded: list[tuple[str, set[float]]] = []
            # Read at least 300 times, and up to 9999 times until all three records were loaded.
            models: set[str] = set()
            while len(loaded) < 300 or (len(models) < 3 and len(loaded) < 9999):
                reloaded = load(path)
                models.add(reloaded.model)
                attention = reloaded.stack().attention(0)
                assert isinstance(attention, StoredWeights)
                loaded.append((reloaded.model, set(attention.values.flatten().tolist())))
        finally:
            process.kill()
    assert [numbers for _, numbers in loaded] == [{float(model)} for model, _ in loaded]
    assert len(models) == 3


def test_a_layer_of_unknown_kind_is_not_saved(tmp_path: Path) -> None:
    class Other(StoredWeights):
        pass

    class Foreign(LayerAttention):
        num_heads = num_queries = num_keys = 1

        def weights(self, *_: object) -> Any:
            return np.ones((1, 1), np.float32)

    stack = AttentionStack("self", {0: Foreign()}, Tokens.of(["a"]))
    with pytest.raises(TypeError, match="self/0 is a Foreign, which has no saved form"):
        AttentionRecord({"self": stack}).save(tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    subclassed = AttentionStack("self", {0: Other(torch.ones(1, 1, 1))}, Tokens.of(["a"]))
    AttentionRecord({"self": subclassed}).save(tmp_path / "x.safetensors")


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
    attention = StoredWeights(torch.eye(4)[None])
    stack = AttentionStack("self", {0: attention}, tokens)
    record = AttentionRecord({"self": stack}, images=[image])
    reloaded = load(record.save(tmp_path / "record.safetensors"))
    assert reloaded.tokens == tokens
    assert len(reloaded.images) == 1
    assert np.array_equal(reloaded.images[0], image)
    assert np.array_equal(reloaded.only([0]).images[0], image)
