"""Some heads of a layer under the model's own numbers, against the same layer with all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from traitlets import TraitError

from attnviz.analysis import all_head_scores, head_entropy
from attnviz.extraction.capture.copies import Copier
from attnviz.extraction.options import CaptureOptions
from attnviz.pages.vectors import embedded_vectors
from attnviz.record.attention import GivenWeights, HeadSubset, LayerAttention, QueryKeyAttention
from attnviz.record.masks import BandMask, DenseBias, DistanceBias, PackedMask
from attnviz.record.record import AttentionRecord, AttentionStack, load
from attnviz.record.storage.safetensors_file import read_arrays, write_arrays
from attnviz.record.tokens import Tokens
from attnviz.record.words import MergedWeights
from attnviz.server.codec import decode
from attnviz.server.description import describe
from attnviz.server.maps import encoded_maps
from attnviz.server.server import RecordServer
from attnviz.utils.progress import completed
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.model import ModelView
from attnviz.views.neuron import NeuronView
from unit.records import shares, vectors, words


def kept(layer: QueryKeyAttention | GivenWeights, heads: list[int]) -> HeadSubset:
    """The layer as extraction keeps it."""
    base = Copier(CaptureOptions()).copy(layer, heads)
    num_key_heads = layer.keys.shape[0] if isinstance(layer, QueryKeyAttention) else None
    return HeadSubset(base, tuple(heads), layer.num_heads, num_key_heads)


@st.composite
def layers(draw: st.DrawFn) -> QueryKeyAttention | GivenWeights:
    """Layers of any kind, grouped key heads, masks, biases and sinks among them."""
    num_key_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    heads, queries, keys = num_key_heads * group, draw(st.integers(1, 5)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 99))
    if draw(st.booleans()):
        return GivenWeights(torch.from_numpy(shares(heads, queries, keys, seed=seed)))
    generator = torch.Generator().manual_seed(seed)
    some = draw(st.sampled_from([1, heads]))
    flags = torch.rand(some, queries, keys, generator=generator) < 0.7
    masks = [None, BandMask(None, 0), PackedMask.pack(flags)]
    biases = [
        None,
        DistanceBias(torch.randn(some, queries + keys - 1, generator=generator), queries),
        DenseBias(torch.randn(some, queries, keys, generator=generator)),
    ]
    return QueryKeyAttention(
        torch.randn(heads, queries, 4, generator=generator),
        torch.randn(num_key_heads, keys, 4, generator=generator),
        scale=0.5,
        mask=draw(st.sampled_from(masks)),
        bias=draw(st.sampled_from(biases)),
        softcap=draw(st.sampled_from([None, 3.0])),
        sinks=draw(st.sampled_from([None, torch.randn(heads, generator=generator)])),
    )


@settings(max_examples=200)
@given(layers(), st.data())
def test_kept_heads_are_those_of_the_whole_layer(
    layer: QueryKeyAttention | GivenWeights, data: st.DataObject
) -> None:
    numbers = st.integers(0, layer.num_heads - 1)
    heads = sorted(data.draw(st.sets(numbers, min_size=1)))
    some = kept(layer, heads)
    assert (some.num_heads, some.kept_heads) == (layer.num_heads, tuple(heads))
    assert (some.num_queries, some.num_keys, some.causal) == (
        layer.num_queries,
        layer.num_keys,
        layer.causal,
    )
    block = slice(0, layer.num_queries), slice(0, layer.num_keys)
    for head in range(layer.num_heads):
        if head not in heads:
            with pytest.raises(IndexError, match=f"head={head} was not kept"):
                some.weights(head, *block)
            continue
        assert_allclose(some.weights(head, *block), layer.weights(head, *block), atol=1e-6)
        assert_array_equal(some.allowed(head, *block), layer.allowed(head, *block))
        base, place = some.vectors, some.index(head)
        if isinstance(layer, GivenWeights):
            assert base is None
            continue
        assert base is not None
        assert torch.equal(base.queries[place], layer.queries[head])
        own = layer.keys[layer.key_head(head)]
        assert torch.equal(base.keys[base.key_head(place)], own)
    if isinstance(layer, QueryKeyAttention):
        assert isinstance(some.base, QueryKeyAttention)
        # A key head that none of the kept heads reads is not there.
        assert len(some.base.keys) == len({layer.key_head(head) for head in heads})
        for side in (some.base.queries, some.base.keys):
            assert side.untyped_storage().nbytes() == side.nbytes


def grouped_layer() -> QueryKeyAttention:
    """Twelve heads that share three key heads."""
    return QueryKeyAttention(
        vectors(12, 6, 8, seed=1), vectors(3, 6, 8, seed=2), scale=0.5, mask=BandMask(None, 0)
    )


def stack_of(*made: LayerAttention, normalized: bool = True) -> AttentionStack:
    texts = ["the", " un", "do", "ing", " of", " it"]
    return AttentionStack("self", dict(enumerate(made)), Tokens.of(texts), normalized=normalized)


def some_of_twelve() -> AttentionRecord:
    """Layer 0 with heads 1 and 5 of 12, layer 1 with all of its 12, layer 2 with head 11."""
    layer = grouped_layer()
    given_layer = GivenWeights(torch.from_numpy(shares(12, 6, 6, seed=4)))
    made = kept(layer, [1, 5]), layer, kept(given_layer, [11])
    return AttentionRecord({"self": stack_of(*made)}, model="some")


def test_a_stack_tells_which_heads_were_kept_and_names_the_way_out() -> None:
    stack = some_of_twelve().stack()
    assert stack.heads_per_layer == (12, 12, 12)
    assert [stack.kept_heads(layer) for layer in stack.layers] == [
        (1, 5),
        tuple(range(12)),
        (11,),
    ]
    assert not stack.has_all_heads
    assert stack.only([1]).has_all_heads
    assert repr(stack) == "<self: layers 0 to 2, 1 to 12 of 12 heads each, 6 tokens>"
    own = grouped_layer().weights(5, slice(0, 6), slice(0, 6))
    assert_allclose(stack.weights(layer=0, head=5), own, atol=1e-6)
    # All heads are those that were kept, in their order.
    whole = stack.weights(layer=0)
    assert whole.shape == (2, 6, 6)
    assert_array_equal(whole[1], stack.weights(layer=0, head=5))
    assert [each.shape[0] for each in some_of_twelve().to_numpy()] == [2, 12, 1]
    with pytest.raises(
        IndexError,
        match=r"head=2: of layer 0 of stack 'self' only heads 1, 5 were kept; extract again with "
        r"heads= that names 2 too, or without",
    ):
        stack.weights(layer=0, head=2)
    with pytest.raises(IndexError, match="head=12: layer 0 of stack 'self' has heads 0 to 11"):
        stack.queries(layer=0, head=12)
    with pytest.raises(IndexError, match="only head 11 was kept"):
        stack.allowed(layer=2, head=0)


def test_vectors_are_the_heads_own() -> None:
    stack, layer = some_of_twelve().stack(), grouped_layer()
    for head in (1, 5):
        queries, keys = stack.queries(layer=0, head=head), stack.keys(layer=0, head=head)
        assert queries is not None
        assert keys is not None
        assert_array_equal(queries, layer.queries[head].numpy())
        assert_array_equal(keys, layer.keys[head // 4].numpy())
    assert stack.queries(layer=2, head=11) is None
    assert not stack.has_vectors
    assert stack.only([0, 1]).has_vectors


@pytest.mark.parametrize("heads", [[0], [11], [1, 5], [0, 1, 2, 3, 8], list(range(12))])
def test_words_of_kept_heads_are_merged_as_those_of_all(heads: list[int]) -> None:
    whole = stack_of(grouped_layer()).merge_words()
    some = stack_of(kept(grouped_layer(), heads)).merge_words()
    assert some.kept_heads(0) == tuple(heads)
    assert isinstance(some.attention(0), MergedWeights)
    assert some.causal == whole.causal
    for head in heads:
        assert_allclose(
            some.weights(layer=0, head=head), whole.weights(layer=0, head=head), atol=1e-6
        )


@pytest.mark.parametrize("merged", [False, True])
def test_kept_heads_come_back_from_a_file(merged: bool, tmp_path: Path) -> None:
    record = some_of_twelve()
    record = record.merge_words() if merged else record
    again = load(record.save(tmp_path / "x.safetensors"))
    stack, other = record.stack(), again.stack()
    assert other.heads_per_layer == stack.heads_per_layer
    for layer in stack.layers:
        assert other.kept_heads(layer) == stack.kept_heads(layer)
        assert_allclose(other.weights(layer=layer), stack.weights(layer=layer), atol=1e-6)
        for head in stack.kept_heads(layer):
            keys, found = (each.keys(layer=layer, head=head) for each in (stack, other))
            assert (keys is None) == (found is None)
            if keys is not None and found is not None:
                assert_array_equal(found, keys)


@pytest.mark.parametrize(
    "change",
    [
        {"heads": [1, 12]},
        {"heads": [5, 1]},
        {"heads": [1]},
        {"heads": [-1, 5]},
        {"num_heads": 5},
        {"num_key_heads": 5},
        {"num_key_heads": None},
        {"num_key_heads": 0},
        {"heads": None},
    ],
)
def test_a_file_whose_numbers_do_not_fit_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = some_of_twelve().save(tmp_path / "x.safetensors")
    header, arrays = read_arrays(path)
    header["stacks"][0]["layers"][0] |= change
    with pytest.raises(ValueError, match="is damaged"):
        load(write_arrays(tmp_path / "y.safetensors", header, arrays))


@pytest.mark.parametrize("read", [[0], [0, 2], [0, -1], [0, 0, 0]])
def test_a_file_whose_key_heads_do_not_fit_is_refused(read: list[int], tmp_path: Path) -> None:
    # Heads 0, 1 and 5 read two key heads, not in whole groups.
    record = AttentionRecord({"self": stack_of(kept(grouped_layer(), [0, 1, 5]))})
    header, arrays = read_arrays(record.save(tmp_path / "x.safetensors"))
    base = header["stacks"][0]["layers"][0]["base"]
    assert base["key_heads"] == [0, 0, 1]
    base["key_heads"] = read
    if read == [0, 0, 0]:
        # That fits, and says something else.
        load(write_arrays(tmp_path / "y.safetensors", header, arrays))
        return
    with pytest.raises(ValueError, match="is damaged"):
        load(write_arrays(tmp_path / "y.safetensors", header, arrays))


def test_what_is_no_layer_is_refused() -> None:
    layer = grouped_layer()
    one = Copier(CaptureOptions()).copy(layer, [3])
    with pytest.raises(TypeError, match="base must be the attention of the tokens themselves"):
        HeadSubset(HeadSubset(one, (3,), 12, 3), (3,), 12, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"heads=\(3, 4\) must number the 1 heads of base"):
        HeadSubset(one, (3, 4), 12, 3)
    with pytest.raises(ValueError, match=r"heads=\(12,\) must lie between 0 and 11"):
        HeadSubset(one, (12,), 12, 3)


def test_scores_of_heads_that_were_not_kept_are_nan() -> None:
    record = some_of_twelve()
    whole = AttentionRecord({"self": stack_of(grouped_layer())}).stack()
    first = record.stack().only([0])
    scores, own = all_head_scores(first), all_head_scores(whole)
    assert set(scores) == set(own)
    for pattern, (in_layer,) in scores.items():
        assert len(in_layer) == 12
        assert np.flatnonzero(~np.isnan(in_layer)).tolist() == [1, 5]
        assert_allclose(in_layer[[1, 5]], own[pattern][0][[1, 5]], atol=1e-6)
    entropy = head_entropy(record.stack())
    assert np.flatnonzero(~np.isnan(entropy[2])).tolist() == [11]


def test_a_view_is_told_of_the_heads_that_were_kept_only_where_some_are_missing() -> None:
    description = describe(some_of_twelve())["stacks"][0]
    assert description["heads"] == [[1, 5], list(range(12)), [11]]
    assert description["heads_per_layer"] == [12, 12, 12]
    assert (
        "heads" not in describe(AttentionRecord({"self": stack_of(grouped_layer())}))["stacks"][0]
    )


def test_zeros_are_counted_under_the_models_numbers() -> None:
    values = torch.from_numpy(shares(3, 4, 4, seed=3))
    values[1, 2] = torch.tensor([0.5, 0.0, 0.5, 0.0])
    values[2, 3] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    values[2, 2] = torch.tensor([0.0, 0.4, 0.1, 0.5])
    layer = GivenWeights(values)
    tokens = Tokens.of(words(4))
    whole = AttentionStack("self", {0: layer}, tokens)
    some = AttentionStack("self", {0: kept(layer, [1, 2])}, tokens)
    for head in (1, 2):
        assert some.exact_zeros(layer=0, head=head) == whole.exact_zeros(layer=0, head=head)


def test_replies_hold_the_heads_that_were_kept() -> None:
    record = some_of_twelve()
    server, stack = RecordServer(record), record.stack()
    maps = completed(encoded_maps(stack, 0, 6)).encoded
    assert maps.shape == (2, 6, 6)
    assert_allclose(decode(maps), stack.weights(layer=0), atol=0.005)
    place = {"stack": "self", "layer": 0}
    block = server.reply(
        "block",
        {**place, "heads": [5], "rows": [0, 6], "columns": [0, 6], "precision": "float32"},
    )
    assert block.data is not None
    sent = np.frombuffer(block.data, "<f4").reshape(6, 6)
    assert_array_equal(sent, stack.weights(layer=0, head=5))
    with pytest.raises(IndexError, match="only heads 1, 5 were kept"):
        server.reply("maps", {**place, "size": 4, "heads": [0]})


def test_a_row_of_a_kept_head_is_told_as_of_the_whole_layer() -> None:
    some = RecordServer(AttentionRecord({"self": stack_of(kept(grouped_layer(), [0, 1, 5, 11]))}))
    whole = RecordServer(AttentionRecord({"self": stack_of(grouped_layer())}))
    for head in (0, 1, 5, 11):
        place = {"stack": "self", "layer": 0, "head": head, "token": 4, "keys": [0, 6]}
        found, own = (server.reply("vectors", place) for server in (some, whole))
        assert found.header == {
            **own.header,
            "log_sum_exp": pytest.approx(own.header["log_sum_exp"]),
        }
        assert found.data is not None
        assert own.data is not None
        assert_allclose(np.frombuffer(found.data, "<f4"), np.frombuffer(own.data, "<f4"), atol=1e-6)
    with pytest.raises(IndexError, match="head=2 was not kept"):
        some.reply("vectors", {"stack": "self", "layer": 0, "head": 2, "token": 0, "keys": [0, 6]})


def test_a_page_contains_the_vectors_of_kept_heads_alone() -> None:
    heads = [0, 1, 5]
    layer = embedded_vectors([stack_of(kept(grouped_layer(), heads))])["layers"][0]
    assert (layer["heads"], layer["key_heads"]) == (heads, [0, 0, 1])
    assert (layer["num_heads"], layer["num_key_heads"]) == (12, 3)
    whole = embedded_vectors([stack_of(grouped_layer())])["layers"][0]
    assert not {"heads", "key_heads"} & set(whole)


def test_views_choose_among_kept_heads() -> None:
    record = some_of_twelve()
    view = HeadView(record)
    assert view.heads == [1, 5]
    view.heads = [5]
    with pytest.raises(
        TraitError, match=r"heads=\[2\]: layer 0 of stack 'self' was kept with heads 1, 5 alone"
    ):
        view.heads = [2]
    with pytest.raises(TraitError, match="has heads 0 to 11"):
        view.heads = [12]
    with pytest.warns(UserWarning, match=r"layer 2 was kept with heads 11 alone: of heads=\[5\]"):
        view.layer = 2
    assert view.heads == []
    # Nobody chose: what is there is shown.
    followed = HeadView(record)
    followed.layer = 2
    assert followed.heads == [11]
    assert Dashboard(record).heads == [1, 5]
    vectors_only = AttentionRecord({"self": record.stack().only([0, 1])})
    assert NeuronView(vectors_only).heads == [1]
    assert NeuronView(vectors_only, layer=1).heads == [0]


def test_the_grid_offers_kept_heads() -> None:
    record = some_of_twelve()
    assert ModelView(record, include_heads={0: [5]}).include_heads == {"0": [5]}
    assert ModelView(record, include_heads=[1, 7]).include_heads == [1, 7]
    with pytest.raises(
        TraitError,
        match=r"layer 0 has heads 1, 5 of 12, as the others were not kept, not head 7",
    ):
        ModelView(record, include_heads={0: [7]})
    only_first = AttentionRecord({"self": record.stack().only([0])})
    with pytest.raises(TraitError, match="no layer has head 7; there are heads 1, 5 of 12"):
        ModelView(only_first, include_heads=[7])
