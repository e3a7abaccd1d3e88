"""What travels with a widget: as much as is little, and nothing that is wrong."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import traitlets

import attnviz as av
from attnviz.server.first_answers import (
    MOST_BYTES,
    MOST_WEIGHTS,
    FirstRequest,
    FirstRequests,
    first_answers,
)
from attnviz.server.protocol import Reply
from attnviz.server.server import RecordServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnviz.server.first_answers import FirstAnswers
    from attnviz.views.base import View

VIEWS = [av.HeadView, av.MatrixView, av.ModelView, av.NeuronView, av.Dashboard]


def record(
    tokens: int = 12, *, layers: int = 2, heads: int = 3, causal: bool = True, dim: int = 4
) -> av.AttentionRecord:
    queries, keys = (
        torch.randn(layers, heads, tokens, dim, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    return av.AttentionRecord.from_qk(
        queries, keys, [f"t{at}" for at in range(tokens)], causal=causal
    )


def answered(view: View) -> FirstAnswers | None:
    return first_answers(view._served, view._first_requests())


def parts_of(answers: FirstAnswers | None) -> dict[str, tuple[Mapping[str, Any], bytes]]:
    """By name the header and the bytes of the last answer."""
    assert answers is not None
    found, at = {}, 0
    for reply in answers["replies"]:
        data = answers["data"][at : at + reply.get("bytes", 0)]
        at += len(data)
        if reply.get("deflated"):
            data = zlib.decompress(data)
        found[reply["name"]] = reply["header"], data
    assert at == len(answers["data"])
    return found


def exact(header: Mapping[str, Any], data: bytes) -> Any:
    """float32 numbers, also where the bytes of the same place stand together, deflated."""
    if header["encoding"] == "float32-deflated":
        planes = np.frombuffer(zlib.decompress(data), np.uint8).reshape(4, -1)
        data = np.ascontiguousarray(planes.T).tobytes()
    return np.frombuffer(data, "<f4").reshape(header["shape"])


@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_those_of_the_record(causal: bool) -> None:
    shown = record(90, causal=causal)
    header, data = parts_of(answered(av.HeadView(shown, layer=1, heads=[2])))["block"]
    queries, keys = (
        torch.randn(2, 3, 90, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    logits = queries[1, 2] @ keys[1, 2].T / 2
    if causal:
        logits = logits.masked_fill(torch.ones(90, 90).triu(1).bool(), -torch.inf)
    expected = torch.softmax(logits, -1).numpy()
    np.testing.assert_allclose(exact(header, data)[0], expected, atol=1e-5)
    header, data = parts_of(answered(av.MatrixView(shown, layer=1, heads=[2])))["tile"]
    np.testing.assert_allclose(exact(header, data)[0], expected, atol=1e-5)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("tokens", "layers", "heads"), [(1, 1, 1), (300, 4, 12), (40, 24, 32)])
def test_a_message_stays_small(view: Any, tokens: int, layers: int, heads: int) -> None:
    answers = answered(view(record(tokens, layers=layers, heads=heads, causal=False)))
    assert answers is not None
    said = json.dumps(answers["replies"], separators=(",", ":"))
    assert len(said) + len(answers["data"]) <= MOST_BYTES
    assert answers["replies"][0]["name"] == "describe"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"layer": 1, "heads": [1, 0]},
        {"token": 3, "key": 2},
        {"query_window": [5, 6], "key_window": [100, 130]},
        {"pooled": "max", "order": "previous token"},
        {"include_layers": [1]},
    ],
)
def test_every_first_request_is_one_that_the_server_answers(
    view: Any, traits: dict[str, Any]
) -> None:
    known = {name: value for name, value in traits.items() if name in view.class_traits()}
    known |= {name: value for name, value in traits.items() if name == "include_layers"}
    shown = view(record(130), **known)
    requests = shown._first_requests()
    request = next(requests)
    names = []
    while request is not None:
        reply = shown._served.reply(request.name, request.arguments)
        assert "later" not in reply.header
        names.append(request.name)
        try:
            request = requests.send(reply)
        except StopIteration:
            break
    assert names[0] == "describe"
    assert names[-1] == "maps"
    assert len(names) > 2


class Counting:
    """A server that answers with as many bytes as it is asked for, and says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def reply(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        self.asked.append(name)
        if name == "wrong":
            raise ValueError("layer=9 is out of range")
        if name == "interrupted":
            raise KeyboardInterrupt
        if name == "long":
            return Reply({"later": {"doing": "weights", "progress": 0.5, "seconds_left": 1}})
        noise = np.random.default_rng(0).bytes(arguments.get("bytes", 0))
        return Reply({}, noise or None)

    def cancel(self, name: str, arguments: Mapping[str, Any]) -> None:
        raise AssertionError(name, arguments)


def test_what_is_too_large_too_long_or_wrong_is_left_out_and_the_rest_is_not() -> None:
    told: list[Reply | None] = []

    def asked() -> FirstRequests:
        for request in (
            FirstRequest("describe", {}),
            FirstRequest("wrong", {}),
            FirstRequest("long", {}),
            FirstRequest("large", {"bytes": MOST_BYTES}),
            FirstRequest("much", {}, MOST_WEIGHTS + 1),
            FirstRequest("small", {"bytes": 5}, MOST_WEIGHTS),
            FirstRequest("more", {}, 1),
        ):
            reply = yield request
            told.append(reply)

    server = Counting()
    answers = first_answers(server, asked())
    assert answers is not None
    assert [each["name"] for each in answers["replies"]] == ["describe", "small"]
    assert len(answers["data"]) == 5
    # What computes too much is not even begun.
    assert server.asked == ["describe", "wrong", "long", "large", "small"]
    assert [reply is not None for reply in told] == [True, *[False] * 4, True, False]


def test_without_the_first_answer_there_are_none() -> None:
    def asked() -> FirstRequests:
        yield FirstRequest("large", {"bytes": 400})
        yield FirstRequest("small", {})

    server = Counting()
    assert first_answers(server, asked(), most_bytes=300) is None
    assert server.asked == ["large"]
    shown = record()
    view = av.HeadView(shown)
    assert first_answers(RecordServer(shown), view._first_requests(), most_bytes=100) is None


def test_an_interrupt_ends_it() -> None:
    def asked() -> FirstRequests:
        yield FirstRequest("interrupted", {})

    with pytest.raises(KeyboardInterrupt):
        first_answers(Counting(), asked())


def test_weights_that_are_no_numbers_are_an_error_of_the_view_alone() -> None:
    shown = record(6)
    view = av.HeadView(shown, layer=0)
    vectors = shown.stack().attention(0).vectors
    assert vectors is not None
    vectors.queries.fill_(torch.nan)
    assert set(parts_of(answered(view))) == {"describe"}


def test_outside_a_kernel_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordServer, "reply", lambda *_: pytest.fail("it was asked"))
    view = av.HeadView(record())
    assert view.get_state()["_first_answers"] is None
    assert "_first_answers" not in view.state


def test_a_browser_cannot_set_them() -> None:
    view = av.HeadView(record())
    view.set_state({"_first_answers": {"replies": []}, "layer": 1})
    assert view.layer == 1
    assert view._first_answers is None
    with pytest.raises(traitlets.TraitError):
        view._first_answers = {}


def test_a_view_without_vectors_or_of_a_changed_run_asks_no_more_than_it_can() -> None:
    weights = torch.softmax(torch.randn(2, 3, 6, 6), -1)
    for view in (av.HeadView, av.MatrixView, av.ModelView):
        found = parts_of(answered(view(av.AttentionRecord.from_weights(weights, list("abcdef")))))
        assert "vectors" not in found
