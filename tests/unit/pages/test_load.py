"""Tests of `attnviz.load` with exported pages, also with damaged and hostile ones."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import attnviz as av
from attnviz.record.storage import page_file
from attnviz.record.tokens import Candidate
from unit.layers import HEADS, softmaxes, stack_of
from unit.long_records import long_record
from unit.page_data import bare_data_of
from unit.random_corpora import corpus
from unit.records import (
    captured_record,
    difference_record,
    encoder_decoder_record,
    given_record,
    image_record,
    vectors,
    words,
)


def loaded(page: str, folder: Path) -> av.AttentionRecord:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return av.load(path)


def assert_same_tokens(actual: av.AttentionStack, expected: av.AttentionStack) -> None:
    assert actual.query_tokens == expected.query_tokens
    assert actual.key_tokens == expected.key_tokens
    assert (actual.key_tokens is actual.query_tokens) == (
        expected.key_tokens is expected.query_tokens
    )


def assert_same_gates(actual: av.AttentionStack, expected: av.AttentionStack, layer: int) -> None:
    gates, own = actual.gates(layer), expected.gates(layer)
    assert (gates is None) == (own is None)
    if gates is not None and own is not None:
        assert_array_equal(gates, own)


def test_a_neuron_view_has_the_record_with_every_bit(tmp_path: Path) -> None:
    record = captured_record()
    view = av.NeuronView(record)
    restored = loaded(view.to_html(), tmp_path)
    assert (restored.model, restored.notes) == (record.model, view.record.notes)
    assert any("Not in this view: stack “cross”" in note for note in restored.notes)
    for name, stack in record.stacks.items():
        if not stack.has_vectors:
            continue
        assert_same_tokens(restored.stack(name), stack)
        assert restored.stack(name).layers == stack.layers
        for layer in stack.layers:
            actual, expected = restored.stack(name).attention(layer), stack.attention(layer)
            assert_array_equal(
                restored.stack(name).weights(layer=layer), stack.weights(layer=layer)
            )
            assert actual.vectors is not None
            assert expected.vectors is not None
            assert torch.equal(actual.vectors.queries, expected.vectors.queries)
            assert_same_gates(restored.stack(name), stack, layer)


def test_a_loaded_record_does_not_need_its_page(tmp_path: Path) -> None:
    restored = loaded(av.NeuronView(captured_record()).to_html(), tmp_path)
    (tmp_path / "page.html").write_text("")
    restored.save(tmp_path / "record.safetensors")
    assert av.load(tmp_path / "record.safetensors").stacks.keys() == restored.stacks.keys()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_mask_and_bias_come_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    attention = data.draw(softmaxes(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))))
    record = av.AttentionRecord({"self": stack_of(attention)})
    restored = loaded(av.NeuronView(record).to_html(), tmp_path_factory.mktemp("page"))
    (layer,) = record.stack().layers
    weights = record.stack().weights(layer=layer)
    assert_allclose(restored.stack().weights(layer=layer), weights, atol=1e-6)
    for head in range(HEADS):
        left_out = record.stack().left_out(layer=layer, head=head)
        assert_array_equal(restored.stack().left_out(layer=layer, head=head), left_out)


def test_rounded_queries_and_keys_have_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 0)
    record = long_record(40, layers=2, heads=3, key_heads=1, head_dim=16)
    restored = loaded(av.NeuronView(record).to_html(), tmp_path)
    [note] = set(restored.notes) - set(record.notes)
    error = re.search(r"^Queries and keys were read .* error of a weight is ([\d.e-]+)\.$", note)
    assert error is not None
    for layer in record.stack().layers:
        difference = restored.stack().weights(layer=layer) - record.stack().weights(layer=layer)
        assert 0 < np.abs(difference).max() <= float(error[1]) * 1.1


@pytest.mark.parametrize(
    "make",
    [
        given_record,
        captured_record,
        encoder_decoder_record,
        partial(difference_record, 40, with_side=True),
    ],
)
@pytest.mark.parametrize("view", [av.HeadView, av.ModelView])
def test_a_page_with_all_weights_has_them_in_one_byte(
    make: Callable[[], av.AttentionRecord], view: type[av.HeadView], tmp_path: Path
) -> None:
    record = make()
    restored = loaded(view(record).to_html(), tmp_path)
    [note] = set(restored.notes) - set(record.notes)
    assert "contains each of them in one byte. The largest error of a weight is 0.0" in note
    assert list(restored.stacks) == list(record.stacks)
    for name, stack in record.stacks.items():
        copy = restored.stack(name)
        assert_same_tokens(copy, stack)
        assert (copy.signed, copy.normalized, copy.measure) == (
            stack.signed,
            stack.normalized,
            stack.measure,
        )
        bound = (0.008 if stack.signed else 0.004) * stack.maximum
        for layer in stack.layers:
            difference = copy.weights(layer=layer) - stack.weights(layer=layer)
            assert np.abs(difference).max() <= bound
            assert_same_gates(copy, stack, layer)
    # Exporting the restored record does not round its weights again.
    again = loaded(view(restored).to_html(), tmp_path)
    for name, stack in restored.stacks.items():
        for layer in stack.layers:
            assert_allclose(
                again.stack(name).weights(layer=layer), stack.weights(layer=layer), atol=1e-6
            )


def test_a_page_with_images_has_the_weights_of_the_patches(tmp_path: Path) -> None:
    record = image_record()
    read = loaded(av.HeadView(record).to_html(), tmp_path)
    assert "The images were not read from the page." in read.notes
    assert read.images == ()
    assert read.stack().query_tokens.text == record.stack().query_tokens.text
    for layer in (0, 1):
        # A weight w (at most 1) is stored as the byte round(255 * sqrt(w)), so its error is at
        # most 1 / 255.
        expected = record.stack().weights(layer=layer)
        assert_allclose(read.stack().weights(layer=layer), expected, atol=1.01 / 255)


@pytest.mark.parametrize("make", [av.HeadView, av.NeuronView])
def test_what_a_record_says_of_its_run_comes_back(
    make: Callable[[av.AttentionRecord], Any], tmp_path: Path
) -> None:
    layer = captured_record().stack("self")
    stack = layer.derive(
        {number: layer.attention(number) for number in layer.layers}, changed="“it” (7) hidden"
    )
    classes = [Candidate("positive", 2, 0.75), Candidate("negative", 0, 0.25)]
    record = av.AttentionRecord({"self": stack}, classes=classes)
    restored = loaded(make(record).to_html(), tmp_path)
    assert restored.classes == tuple(classes)
    assert restored.stack().changed == "“it” (7) hidden"


def test_a_page_with_the_strongest_keys_is_refused(tmp_path: Path) -> None:
    weights = vectors(2, 3, 200, 200).mul(3).softmax(dim=-1)
    record = av.AttentionRecord.from_weights(list(weights), words(200))
    page = av.HeadView(record).to_html(max_mb=0.2)
    with pytest.raises(ValueError, match=r"strongest keys .*record\.save\(path\)"):
        loaded(page, tmp_path)


def test_pages_of_several_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="page of several texts"):
        loaded(av.EmbeddingView(corpus([4, 6])).to_html(), tmp_path)


def page_of(kind: str) -> str:
    view = {"vectors": av.NeuronView, "weights": av.HeadView}[kind]
    queries, keys = vectors(2, 2, 2, 6, 4)
    record = av.AttentionRecord.from_qk(queries, keys, words(6), causal=True)
    return view(record).to_html()


def changed(page: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Return the page after `change` has changed its JSON data."""
    data = bare_data_of(page)
    change(data)
    text = json.dumps(data).replace("<", "\\u003c")
    return re.sub(
        r'(id="attnviz-data">).*?(</script>)', lambda match: match[1] + text + match[2], page
    )


@pytest.mark.parametrize("kind", ["vectors", "weights"])
def test_an_incomplete_page_is_refused(kind: str, tmp_path: Path) -> None:
    page = page_of(kind)
    begin = page.index('id="attnviz-data"')
    end = page.rindex("</template>")
    for length in np.linspace(begin, end, 25).astype(int):
        with pytest.raises(
            ValueError, match=r"cannot be loaded: (it is (not a comp|incomp)lete|the element)"
        ):
            loaded(page[:length], tmp_path)


def deflated(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


@pytest.mark.parametrize("kind", ["vectors", "weights"])
def test_every_changed_text_is_noticed(kind: str, tmp_path: Path) -> None:
    page = page_of(kind)
    data = bare_data_of(page)
    read = [data["saved"]["header"]]
    read += [entry["data"] for entry in (*data["blocks"], *data["saved"]["arrays"].values())]
    for name in read:
        match = re.search(f'(<template id="{name[1:]}">)([^<]+)', page)
        assert match is not None
        text, middle = match[2], len(match[2]) // 2
        for other in (
            text[:-8],
            text[:middle] + text[middle + 4 :] + "AAAA",
            "!" + text[1:],
            deflated(zlib.decompress(base64.b64decode(text)) + b"0"),
            deflated(b"[" * 100_000),
            deflated(bytes(10_000_000)),
        ):
            with pytest.raises(ValueError, match=r"page\.html' (cannot be loaded|is damaged): ."):
                loaded(page.replace(match[0], match[1] + other), tmp_path)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("weights", lambda data: data["blocks"][0].update(shape=[2, 6])),
        ("weights", lambda data: data["blocks"][0].update(shape=[2, -6, 6])),
        ("weights", lambda data: data["blocks"][0].update(shape=[2, 10**9, 10**9])),
        ("weights", lambda data: data["blocks"][0].update(shape=[2, 6, 7])),
        ("weights", lambda data: data["blocks"][0].update(maximum="one")),
        ("weights", lambda data: data["blocks"][0].update(runs=[-1, 1, 0, 0, 0, 0])),
        ("weights", lambda data: data["blocks"][0].update(reach=10**30)),
        ("weights", lambda data: data["blocks"].pop()),
        ("weights", lambda data: data.update(blocks=3)),
        ("vectors", lambda data: data["saved"]["arrays"]["self/0/keys"].update(dtype="object")),
        ("vectors", lambda data: data["saved"]["arrays"]["self/0/keys"].update(shape=[2, 6, 5])),
        ("vectors", lambda data: data["saved"]["arrays"]["self/0/keys"].update(shape=[10**12])),
        ("vectors", lambda data: data["saved"]["arrays"].pop("self/0/keys")),
        ("vectors", lambda data: data["saved"].update(header="#attnviz-9999")),
        ("vectors", lambda data: data.update(errors=None)),
    ],
)
def test_data_that_do_not_fit_are_refused(
    kind: str, change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"^path=.*page\.html' (cannot be loaded|is damaged): ."):
        loaded(changed(page_of(kind), change), tmp_path)


def test_huge_files_are_refused_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page_file, "MAX_MEGABYTES", 0.01)
    with pytest.raises(ValueError, match=r"more than 0\.01 MB"):
        loaded(page_of("weights"), tmp_path)


def test_other_html_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a complete page of attnviz"):
        loaded("<!DOCTYPE html><p>text</p>", tmp_path)
    path = tmp_path / "x.html"
    path.write_bytes(b"<!doctype html>\xff\xfe")
    with pytest.raises(ValueError, match=r"cannot be loaded: .* can't decode"):
        av.load(path)
