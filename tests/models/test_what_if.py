"""A change of attention has the same effect in a view as in `intervene`."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from transformers import LlamaConfig, LlamaForCausalLM

import attnviz as av
from attnviz.extraction.capture.memory import check_memory
from attnviz.interventions.changes import Change, change_to_json
from attnviz.interventions.effect import Effect
from attnviz.interventions.runner import Copy, Runner
from attnviz.server.protocol import Reply
from attnviz.server.server import RECORD_REQUESTS
from attnviz.views.what_if import WhatIf
from unit.complete_replies import replies, whole_reply
from unit.page_data import bare_data_of
from unit.server.test_protocol import assert_declared

TEXT = "the animal did not cross the street because it was too wide so the"
EDGE = av.Knockout(13, 6, layers=1, heads=0)
HEAD = av.Ablate(layers=1, heads=0)
TOKEN = av.HideTokens(6)


@pytest.fixture
def view(decoder: tuple[Any, Any]) -> av.HeadView:
    model, tokenizer = decoder
    record = av.extract(model, TEXT, tokenizer=tokenizer)
    return av.HeadView(record, model=model, inputs=TEXT, tokenizer=tokenizer, token=13, key=6)


def reply_of(view: WhatIf, name: str, arguments: Mapping[str, Any]) -> Reply:
    """Return the view's reply to a request of the browser."""
    return whole_reply(view._channel._server, name, arguments)


def as_json(*changes: Change) -> list[dict[str, Any]]:
    """Return the changes as the browser sends them."""
    return [change_to_json(replace(change, stack="self")) for change in changes]  # type: ignore[type-var]


def ask(view: WhatIf, *changes: Change) -> dict[str, Any]:
    """Set `view.changes`, and return the header of the reply to the request "intervene"."""
    view.changes = list(changes)
    answers = () if view.answer is None else view.answer
    measured = answers if isinstance(answers, list | tuple) else [answers]
    header = reply_of(
        view, "intervene", {"changes": as_json(*changes), "measured": measured}
    ).header
    answer: dict[str, Any] = json.loads(json.dumps(dict(header), allow_nan=False))
    return answer


def effect_in(view: WhatIf) -> Effect:
    """Return the effect of `view.changes`."""
    record = view.changed_record
    assert record is not None
    return record.effect


@pytest.fixture
def forwards(decoder: tuple[Any, Any]) -> Iterator[list[int]]:
    """List that gets the number of tokens in each forward of the model."""
    lengths: list[int] = []

    def note(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        ids = options["input_ids"] if "input_ids" in options else args[0]
        lengths.append(ids.shape[1])

    handle = decoder[0].register_forward_pre_hook(note, with_kwargs=True)
    yield lengths
    handle.remove()


@pytest.mark.parametrize(
    "changes",
    [
        [EDGE],
        [av.Knockout(13, 6, 1, 0, renormalize=False)],
        [av.Knockout(13, 6)],
        [HEAD],
        [TOKEN],
        [EDGE, av.Ablate(2, 0)],
    ],
)
def test_the_numbers_are_those_of_intervene(
    changes: list[Change], view: av.HeadView, decoder: tuple[Any, Any]
) -> None:
    reply = ask(view, *changes)
    expected = av.intervene(decoder[0], TEXT, changes, tokenizer=decoder[1]).effect
    effect = effect_in(view)
    assert reply["measure"] == effect.measure == expected.measure
    assert effect.before == pytest.approx(expected.before, abs=1e-5)
    assert effect.after == pytest.approx(expected.after, abs=1e-5)
    assert effect.divergence == pytest.approx(expected.divergence, abs=1e-5)
    assert 0 < effect.noise < 1e-3
    for name in ("candidates_before", "candidates_after"):
        candidates, own = getattr(effect, name), getattr(expected, name)
        assert [candidate["id"] for candidate in reply[name]] == [token.id for token in own]
        assert [token.text for token in candidates] == [token.text for token in own]
        assert [token.probability for token in candidates] == pytest.approx(
            [token.probability for token in own], abs=1e-5
        )


def test_the_sentence_of_an_answer_names_the_cut(view: av.HeadView) -> None:
    sentence = ask(view, EDGE)["sentence"]
    assert sentence.startswith("Cut before the softmax, the next token becomes “animal” (“street” ")
    assert "to 0.00). " in sentence
    assert re.search(r"noise \d[.\d]*(e−\d)?\.$", sentence)
    assert ask(view, replace(EDGE, renormalize=False))["sentence"].startswith(
        "Cut after the softmax"
    )
    assert ask(view, HEAD)["sentence"].startswith("Without head 1.0, the next token becomes")
    everywhere = ask(view, av.Ablate(heads=1))["sentence"]
    assert everywhere.startswith("Without head 1 of all layers, the next token stays")
    assert ask(view, TOKEN)["sentence"].startswith("With “street” hidden, the next token")
    # The sentence writes both logits with enough digits to show this small effect.
    assert "8.54 to 8.53, larger than the noise" in ask(view, av.HideTokens(8))["sentence"]
    assert ask(view, EDGE, HEAD)["sentence"].startswith("With these 2 changes, ")
    assert ask(view)["sentence"].startswith("Unchanged, the next token is “street” (")


def test_after_the_unchanged_run_an_answer_costs_one_forward(
    view: av.HeadView, forwards: list[int]
) -> None:
    forwards.clear()
    ask(view)
    # The first reply takes a forward of the unchanged model, and another one to measure the noise.
    assert len(forwards) == 2
    tried: list[list[Change]] = [[EDGE], [HEAD], [TOKEN], [EDGE, HEAD]]
    for number, changes in enumerate(tried, 3):
        ask(view, *changes)
        assert len(forwards) == number


def logits_after_the_text(
    decoder: tuple[Any, Any], without: tuple[int, int] | None
) -> torch.Tensor:
    """Return the logits after `TEXT`. If `without` is (layer, head), ablate this head."""
    model, tokenizer = copy.deepcopy(decoder[0]), decoder[1]
    if without is not None:
        layer, head = without
        attention = model.transformer.h[layer].attn
        width = attention.head_dim
        with torch.no_grad():
            attention.c_proj.weight[head * width : (head + 1) * width] = 0
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer(TEXT)["input_ids"]])).logits[0, -1]
    result: torch.Tensor = logits.double()
    return result


@pytest.mark.parametrize("head", [(1, 0), (2, 3)])
def test_by_default_the_predictions_before_and_after_the_change_are_compared(
    head: tuple[int, int], view: av.HeadView, decoder: tuple[Any, Any]
) -> None:
    before, after = logits_after_the_text(decoder, None), logits_after_the_text(decoder, head)
    winner = before.argmax()
    first, second = after.topk(2).indices
    # `other` is the most likely token after the change, apart from `winner`.
    other = second if first == winner else first
    answer = ask(view, av.Ablate(*head))
    one, two = (decoder[1].decode([int(token_id)]) for token_id in (winner, other))
    assert answer["measure"] == f"logit of “{one}” minus logit of “{two}” after “the”"
    effect = effect_in(view)
    for value, logits in ((effect.before, before), (effect.after, after)):
        # Logits are about 20, so float32 has rounding errors of up to 1e-5.
        assert value == pytest.approx(float(logits[winner] - logits[other]), abs=1e-4)
    assert (effect.after < 0) == (first != winner)


@pytest.mark.parametrize("answer_argument", ["animal", ("canal", "street")])
def test_an_answer_is_measured_as_by_hand_and_in_the_bars(
    answer_argument: Any, view: av.HeadView, decoder: tuple[Any, Any]
) -> None:
    model, tokenizer = decoder
    before, after = logits_after_the_text(decoder, None), logits_after_the_text(decoder, (1, 0))
    view.answer = answer_argument
    texts = [answer_argument, "street"] if answer_argument == "animal" else answer_argument
    one, other = (tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in texts)
    expected = [float(logits[one] - logits[other]) for logits in (before, after)]
    reply = ask(view, HEAD)
    measure = f"logit of “{texts[0]}” minus logit of “{texts[1]}”"
    assert reply["measure"] == f"{measure} after “the”"
    effect = effect_in(view)
    assert [effect.before, effect.after] == pytest.approx(expected, abs=1e-4)
    [old, new] = (f"{number:.1f}".replace("-", "−") for number in expected)
    assert f"{measure.capitalize()}: {old} to {new}, larger than the noise" in reply["sentence"]
    assert ask(view)["sentence"].endswith(f"{measure.capitalize()}: {old}.")
    bars = av.head_effects(model, TEXT, answer=answer_argument, tokenizer=tokenizer, progress=False)
    assert bars.measure == reply["measure"]
    assert float(bars[1][0]) == pytest.approx(expected[1] - expected[0], abs=1e-4)


def ranked(view: WhatIf, change: Change) -> dict[str, Any]:
    """Return the header of the reply to `change`, with its rank."""
    arguments = {"changes": as_json(change), "measured": [], "ranks": True}
    return dict(reply_of(view, "intervene", arguments).header)


@pytest.mark.parametrize(
    ("change", "varied", "unit"),
    [
        (av.Ablate(2, 3), [{"layers": i, "heads": j} for i in range(3) for j in range(4)], "heads"),
        (EDGE, [{"layers": i, "heads": j} for i in range(3) for j in range(4)], "heads"),
        (av.Knockout(13, 6, layers=2), [{"layers": i} for i in range(3)], "layers"),
        (av.HideTokens(3), [{"tokens": i} for i in range(14)], "tokens"),
        # Only itself attends to the last token, and a hidden token attends to itself.
        (av.HideTokens(13), [{"tokens": i} for i in range(14)], "tokens"),
    ],
)
def test_an_effect_has_the_rank_that_separate_interventions_give(
    change: Any, varied: list[dict[str, int]], unit: str, view: av.HeadView, decoder: Any
) -> None:
    header = ask(view, change)
    assert header["unranked"] == f"{len(varied)} {unit}"
    effect = effect_in(view)
    # The answer of the shown effect, for the same change elsewhere.
    answer = tuple(re.findall("“(.*?)”", effect.measure)[:2])
    expected = [
        av.intervene(
            decoder[0], TEXT, replace(change, **one), answer=answer, tokenizer=decoder[1]
        ).effect.change
        for one in varied
    ]
    sizes = np.abs(expected)
    own = varied.index({name: getattr(change, name) for name in varied[0]})
    others = np.delete(sizes, own)
    reply = ranked(view, change)
    assert reply["unranked"] == ""
    sentence, _, words = reply["sentence"].removesuffix(".").rpartition(". ")
    assert sentence + "." == header["sentence"]
    if sizes[own] <= effect.noise:
        many = int((sizes > effect.noise).sum())
        assert words == f"{many} of the {len(varied)} {unit} have an effect larger than the noise"
        assert "no larger than the noise" in sentence
        return
    assert "no larger" not in sentence
    rank = 1 + int((others > sizes[own]).sum())
    begin = "The largest effect of" if rank == 1 else f"Rank {rank} of"
    largest = (
        f"{max(expected, key=abs) if rank > 1 else np.delete(expected, own)[others.argmax()]:+.2g}"
    )
    assert words.startswith(f"{begin} all {len(varied)} {unit}; ")
    assert words.endswith(f"({largest.replace('-', '−')})")


def test_a_rank_is_measured_once_for_all_heads(view: av.HeadView, forwards: list[int]) -> None:
    view.answer = ("street", "animal")
    ask(view, HEAD)
    reply_of(view, "intervene", {"changes": as_json(HEAD), "ranks": True})
    ask(view, av.Ablate(2, 2))
    forwards.clear()
    header = reply_of(view, "intervene", {"changes": as_json(av.Ablate(2, 2))}).header
    assert header["unranked"] == ""
    assert " of all 12 heads" in header["sentence"]
    assert not forwards
    # Several changes and cuts in all layers have no rank. A page has the sentences with ranks.
    for changes in ([HEAD, TOKEN], [av.Knockout(13, 6)]):
        assert ask(view, *changes)["unranked"] == ""
    outcomes = view._runs.page_state()["outcomes"]
    assert [" of all 12 heads" in outcome["sentence"] for outcome in outcomes].count(True) == 2


def test_the_changes_of_all_tokens_are_made_batch_by_batch(
    view: av.HeadView, decoder: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = av.HideTokens(3)
    expected = ranked(view, change)["sentence"]
    # Three copies of the 14 tokens fit into a batch. One of them is unchanged.
    monkeypatch.setattr("attnviz.interventions.runner._TOKENS_AT_ONCE", 3 * 14)
    counts = []
    answers = Runner.answers

    def counted(runner: Runner, copies: Sequence[Copy], **options: Any) -> list[float]:
        counts.append(len(copies))
        return answers(runner, copies, **options)

    monkeypatch.setattr(Runner, "answers", counted)
    model, tokenizer = decoder
    other = av.HeadView(view.record, model=model, inputs=TEXT, tokenizer=tokenizer)
    assert ranked(other, change)["sentence"] == expected
    assert counts == [2] * 7


def test_the_only_token_of_a_text_has_no_rank(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    record = av.extract(model, "street", tokenizer=tokenizer)
    view = av.HeadView(record, model=model, inputs="street", tokenizer=tokenizer)
    assert ask(view, av.HideTokens(0))["unranked"] == ""
    assert ranked(view, av.HideTokens(0))["sentence"] == ask(view, av.HideTokens(0))["sentence"]
    assert ask(view, HEAD)["unranked"] == "12 heads"


def test_many_runs_are_not_cheap(decoder: tuple[Any, Any]) -> None:
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        vocab_size=len(decoder[1]),
    )
    model, text = LlamaForCausalLM(config).eval(), " ".join([TEXT] * 20)
    record = av.extract(model, text, tokenizer=decoder[1])
    view = av.HeadView(record, model=model, inputs=text, tokenizer=decoder[1])
    # With 280 tokens and a million parameters, 280 runs are 8e10 products, and 16 runs are 5e9.
    assert not ask(view, av.HideTokens(6))["is_cheap"]
    assert ask(view, HEAD)["is_cheap"]


def test_hidden_states_are_compared_in_words(decoder: tuple[Any, Any]) -> None:
    bare, tokenizer = decoder[0].base_model, decoder[1]
    text = "the animal did not cross the street"
    view = av.HeadView(
        av.extract(bare, text, tokenizer=tokenizer), model=bare, inputs=text, tokenizer=tokenizer
    )
    sentence = ranked(view, av.Ablate(1, 0))["sentence"]
    after = av.intervene(bare, text, av.Ablate(1, 0), tokenizer=tokenizer).effect.after
    [written] = re.findall(r"all tokens, .* similarity of 1 − ([\d.]+(?:e−\d+)?), a", sentence)
    assert float(written.replace("−", "-")) == pytest.approx(1 - after, rel=0.05)
    assert ", a change larger than the noise" in sentence
    # The line of a pinned pair has the numbers of the sentence.
    cut_sentence = ask(view, av.Knockout(6, 5, layers=1, heads=0))["sentence"]
    pair = {"query": 6, "key": 5, "layer": 1, "head": 0}
    [cut] = data_of_pair(view, **pair)["cuts"]
    numbers = cut["description"].removeprefix("cut before the softmax ")
    assert numbers.startswith("1 − ")
    assert cut_sentence.endswith(f" {numbers}.")
    # A cut of a pair that the causal mask forbids changes nothing, or only by rounding.
    exact = copy.deepcopy(bare).double()
    view = av.HeadView(
        av.extract(exact, text, tokenizer=tokenizer), model=exact, inputs=text, tokenizer=tokenizer
    )
    for query in range(6):
        sentence = ask(view, av.Knockout(query, query + 1, layers=1, heads=2))["sentence"]
        assert re.search(r"similarity of 1 − (0|\de−1\d|\d\.\de−1\d), a", sentence)


def test_another_answer_to_the_same_changes_needs_no_run(
    view: av.HeadView, forwards: list[int]
) -> None:
    ask(view, HEAD)
    forwards.clear()
    for answer in ("canal", 70, ("street", "canal"), None):
        view.answer = answer
        reply = ask(view, HEAD)
        assert effect_in(view).measure == reply["measure"]
    assert not forwards


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            "zebra",
            "answer='zebra' is not in the vocabulary: the tokenizer reads it as '<unk>'. Pass",
        ),
        (["street", "wide street"], r"answer='wide street' has 2 tokens \(.*\). Pass one token"),
        (281, "answer=281 is out of range. Pass one of the tokens of the vocabulary 0 to 280"),
    ],
)
def test_an_answer_that_cannot_be_measured_is_refused(
    answer: Any, message: str, view: av.HeadView
) -> None:
    view.answer = "animal"
    with pytest.raises(traitlets.TraitError, match=message):
        view.answer = answer
    assert view.answer == "animal"
    # If a request of the browser contains this answer as text, the error is the same.
    if isinstance(answer, str):
        with pytest.raises(ValueError, match=message):
            reply_of(view, "intervene", {"changes": [], "measured": [answer]})


def test_an_answer_needs_a_model(
    view: av.HeadView,
    decoder: tuple[Any, Any],
    forwards: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("attnviz.views.show.show", lambda view: view)
    model, tokenizer = decoder
    words = r"answer='street': this view has no model .* Make the view with show_head_view\(model, "
    with pytest.raises(traitlets.TraitError, match=words):
        av.HeadView(view.record, answer="street")
    forwards.clear()
    for options in ({"generate": 40}, {"words": True}):
        with pytest.raises(TypeError, match=f"{words}text\\), without generate= and words=True"):
            av.show_head_view(model, TEXT, tokenizer=tokenizer, answer="street", **options)
    assert not forwards
    # With a new record, the view can no longer run the model, so `answer` becomes None.
    view.set_trait("answer", "animal")
    view.record = av.extract(model, "the cat sat", tokenizer=tokenizer)
    assert view.answer is None
    assert not view.runs_model


def test_a_new_change_shows_the_run_after_it(view: av.HeadView) -> None:
    # New value of `view.changes`, old value of `view.run`, and expected value of `view.run`.
    for changes, selected, run in (
        ([HEAD], "before", "after"),
        # If all changes are removed, `view.run` stays the same.
        ([], "before", "before"),
        ([HEAD, EDGE], "difference", "difference"),
    ):
        view.run = selected
        view.changes = changes
        assert view.run == run


def test_replies_are_of_the_declared_types(view: av.HeadView) -> None:
    pair = {"stack": "self", "layer": 1, "head": 0, "query": 13, "key": 6}
    changes = {"changes": as_json(EDGE)}
    for name, arguments in (("intervene", changes), ("changed", changes), ("edge", pair)):
        reply = reply_of(view, name, arguments)
        assert_declared(RECORD_REQUESTS.headers[name], reply.header)


def data_of_pair(view: WhatIf, **more: Any) -> dict[str, Any]:
    """Return the reply to the request "edge", which describes one pair of a query and a key.

    The pair is query 13 and key 6 in layer 1, head 0, unless `more` contains other numbers.
    """
    pair = {"stack": "self", "layer": 1, "head": 0, "query": 13, "key": 6} | more
    return dict(reply_of(view, "edge", pair).header)


def test_the_value_norm_of_a_pair_needs_no_additional_run(
    view: av.HeadView, decoder: tuple[Any, Any], forwards: list[int]
) -> None:
    forwards.clear()
    # Before the first reply to "intervene", the share is unknown, and no forward runs for it.
    waiting: dict[str, Any] = {"share": None, "share_problem": "", "cuts": []}
    assert data_of_pair(view) == {"model": "waits", **waiting}
    assert not forwards
    ask(view)
    heads = [(0, 0), (1, 0), (2, 3)]
    by_head = {pair: data_of_pair(view, layer=pair[0], head=pair[1]) for pair in heads}
    assert len(forwards) == 2
    # The share is the value norm of the key, divided by the sum of the value norms of all keys.
    norms = av.attribute(decoder[0], TEXT, method="value norm", tokenizer=decoder[1]).stack()
    for (layer, head), reply in by_head.items():
        row = norms.weights(layer=layer, head=head, rows=slice(13, 14))[0].astype(float)
        assert reply["share"] == pytest.approx(row[6] / row.sum(), abs=1e-5)
        assert (reply["model"], reply["cuts"]) == ("ready", [])
    with pytest.raises(ValueError, match="this view has no model"):
        data_of_pair(av.HeadView(view.record))
    with pytest.raises(IndexError):
        data_of_pair(view, query=14)


def test_a_pair_lists_the_measured_cuts(view: av.HeadView) -> None:
    ask(view, HEAD)
    ask(view, EDGE, HEAD)
    # The pair was only cut (`Knockout`) together with another change, so its own effect is unknown.
    assert data_of_pair(view)["cuts"] == []
    ask(view, EDGE)
    [cut] = data_of_pair(view)["cuts"]
    assert cut["measure"] == "logit of “street” minus logit of “animal” after “the”"
    words, _, noise = cut["description"].rpartition(" ")
    assert words == "cut before the softmax 17.0 to −15.5, larger than the noise"
    # The noise is written with two significant digits, so its relative error is at most 1 / 20.
    written = float(noise.replace("−", "-"))
    assert written == pytest.approx(effect_in(view).noise, rel=1 / 20)
    ask(view, av.Knockout(13, 6, renormalize=False))
    [_, other] = data_of_pair(view)["cuts"]
    assert other["description"].startswith("cut after the softmax in all layers ")
    assert data_of_pair(view, key=7)["cuts"] == []
    # The second cut was in all layers and heads, so it is also listed for head 1.
    assert data_of_pair(view, head=1)["cuts"] == [other]
    assert cut["description"] in view.to_html()


def changed_stacks(view: WhatIf) -> list[dict[str, Any]]:
    """Request the weights of the model run with `view.changes`. Return the stacks in the reply."""
    header = reply_of(view, "changed", {"changes": as_json(*view.changes)}).header
    stacks: list[dict[str, Any]] = json.loads(json.dumps(header))["stacks"]
    return stacks


@pytest.mark.parametrize(
    "requested",
    [[EDGE], [av.Knockout(13, 6, 0, 0, renormalize=False)], [TOKEN, av.Ablate(0, 0)]],
)
def test_the_weights_of_the_changed_run_are_those_of_intervene(
    requested: list[Change], view: av.HeadView, decoder: tuple[Any, Any], forwards: list[int]
) -> None:
    forwards.clear()
    ask(view)
    ask(view, *requested)
    # The weights need no fourth forward. They were kept when `ask` measured the effect.
    [stack] = changed_stacks(view)
    record = view.changed_record
    assert len(forwards) == 3
    assert record is not None
    intervened = av.intervene(decoder[0], TEXT, requested, tokenizer=decoder[1])
    assert record.effect.after == pytest.approx(intervened.effect.after, abs=1e-5)
    assert len(record.changes) == len(requested)
    for layer in range(3):
        before = view.record.stack().weights(layer=layer)
        own = intervened.stack().weights(layer=layer)
        block = {"layer": layer, "heads": [0, 1, 2, 3], "rows": [0, 14], "columns": [0, 14]}
        for which, expected in (("after", own), ("difference", own - before)):
            data = reply_of(view, "read", {"stack": stack[which]["name"], **block}).data or b""
            weights = np.frombuffer(data, np.float32).reshape(4, 14, 14)
            np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert stack["after"]["normalized"] == all(
        getattr(change, "renormalize", True) for change in requested
    )
    assert stack["difference"]["measure"] == "difference"
    assert stack["difference"]["signed"]


def test_each_changed_run_has_a_name_and_is_computed_again_on_request(view: av.HeadView) -> None:
    names = set()
    for changes in ([EDGE], [HEAD], [EDGE, HEAD, TOKEN], [EDGE, HEAD, av.HideTokens(2)]):
        ask(view, *changes)
        names |= {changed_stacks(view)[0][which]["name"] for which in ("after", "difference")}
    assert len(names) == 8
    assert "self · difference after: 3 changes (2)" in names
    dropped = "self · after: layer 1, head 0 ablated"
    assert dropped in names
    block = {"stack": dropped, "layer": 0, "heads": [0], "rows": [0, 1], "columns": [0, 1]}
    with pytest.raises(KeyError, match="this record has 'self'"):
        reply_of(view, "read", block)
    view.changes = [HEAD]
    assert changed_stacks(view)[0]["after"]["name"] == dropped
    assert reply_of(view, "read", block).data


def test_a_page_of_a_changed_run_has_its_weights(view: av.HeadView) -> None:
    view.changes = [EDGE]
    view.run = "before"
    assert "difference after:" not in view.to_html()
    view.run = "difference"
    data = bare_data_of(view.to_html())
    names = [stack["name"] for stack in data["description"]["stacks"]]
    run = data["state"]["changed_run"]
    assert names == ["self", run["stacks"]["self"]["after"], run["stacks"]["self"]["difference"]]
    assert run["changes"] == data["state"]["changes"] == as_json(EDGE)
    assert (data["state"]["run"], data["state"]["stack"]) == ("difference", "self")
    # The browser can also request an HTML page of the changed run.
    request = {"part": 0, "state": {**view.state, "changes": as_json(EDGE), "run": "after"}}
    assert reply_of(view, "page", request).header["parts"] == 1


def test_a_changed_record_needs_changes_and_a_model(view: av.HeadView) -> None:
    assert view.changed_record is None
    with pytest.raises(ValueError, match="changes is empty"):
        reply_of(view, "changed", {"changes": []})
    bare = av.HeadView(view.record, changes=[HEAD])
    assert (bare.run, bare.runs_model) == ("before", False)
    with pytest.raises(traitlets.TraitError, match=r"no model.*show_head_view\(model, text\)"):
        bare.run = "after"
    with pytest.raises(ValueError, match=r"Make the view with show_head_view\(model, text\), wit"):
        _ = bare.changed_record
    assert "after:" not in bare.to_html()


def test_a_part_of_a_record_is_compared_with_the_same_part(decoder: tuple[Any, Any]) -> None:
    model, tokenizer = decoder
    record = av.extract(model, TEXT, tokenizer=tokenizer, layers=1)
    view = av.MatrixView(record, model=model, inputs=TEXT, tokenizer=tokenizer)
    view.changes = [EDGE]
    [stack] = changed_stacks(view)
    assert stack["after"]["layers"] == stack["difference"]["layers"] == [1]


def test_an_answer_has_no_weights_if_memory_is_short(
    view: av.HeadView, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = check_memory

    def check(sizes: Any, options: Any) -> None:
        if not options.outline:
            raise MemoryError("6 GB are needed")
        own(sizes, options)

    ask(view)
    monkeypatch.setattr("attnviz.extraction.capture.forward.check_memory", check)
    assert "animal" in ask(view, EDGE)["sentence"]
    with pytest.raises(MemoryError, match=r"do not fit into free memory\. Its answer"):
        changed_stacks(view)


def test_the_model_is_restored_after_a_failed_change(
    view: av.HeadView, decoder: tuple[Any, Any]
) -> None:
    own = logits_after_the_text(decoder, None)
    ask(view, EDGE)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = decoder[0].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask(view, HEAD)
    handle.remove()
    assert torch.equal(logits_after_the_text(decoder, None), own)
    assert "animal" in ask(view, EDGE)["sentence"]


def test_two_changes_can_be_computed_at_the_same_time(
    view: av.HeadView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.server.pending_replies.REPLY_SECONDS", 0)
    server = view._channel._server
    one, other = ({"changes": as_json(change)} for change in (HEAD, EDGE))
    under_way = replies(server, "intervene", one)
    assert next(under_way).header["pending"]["doing"] == "the unchanged run"
    assert "Cut before" in whole_reply(server, "intervene", other).header["sentence"]
    view.answer = "animal"
    view.answer = None
    assert "Without head 1.0" in list(under_way)[-1].header["sentence"]
    # After a request is cancelled, another request still gets its reply.
    third = {"changes": as_json(av.Ablate(1, 1))}
    next(replies(server, "intervene", third))
    server.cancel("intervene", third)
    assert "animal" in whole_reply(server, "intervene", other).header["sentence"]


def test_views_of_a_model_and_a_text_can_run_the_model_again(
    decoder: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.views.show.show", lambda view: view)
    model, tokenizer = decoder
    for show in (av.show_head_view, av.show_matrix_view, av.show_model_view, av.show_dashboard):
        view: Any = show(model, TEXT, tokenizer=tokenizer)
        assert "animal" in ask(view, EDGE)["sentence"]
    # With either option, the tokens of the record differ from those of `TEXT`, so the view cannot
    # run the model.
    for options in ({"generate": 2}, {"words": True}):
        assert not av.show_head_view(model, TEXT, tokenizer=tokenizer, **options).runs_model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([7], r"changes\[0\]: 7 must be a change such as Ablate"),
        (
            [{"kind": "Burn"}],
            r"changes\[0\]: kind='Burn' must be one of Ablate, HideTokens, Knockout",
        ),
        (
            [{"kind": "Ablate", "to": 1}],
            r"changes\[0\]: Ablate.* unexpected keyword argument 'to'",
        ),
        ([{"kind": "HideTokens", "tokens": {"a": 1}}], r"changes\[0\]: tokens"),
        ([{"kind": "Knockout", "queries": float("nan")}], r"changes\[0\]: queries=nan"),
        ([av.Ablate(9)], r"changes\[0\]: layers=9: stack 'self' has layers 0 to 2"),
        ([av.Ablate(stack="cross")], "stack='cross': this record has 'self'"),
        ([av.Knockout([12, 13], 6)], r"queries=\[12, 13\]: a view selects one, or all with None"),
        ([av.Ablate(1, 0, factor=0.5)], r"factor=0.5.* Use attnviz.intervene for other changes"),
        ([av.SetWeights(1, 0, "uniform")], "SetWeights.* Use attnviz.intervene for other changes"),
        ([HEAD] * 33, r"33 entries\. Pass at most 32"),
        ("knockout", "changes"),
    ],
)
def test_changes_that_do_not_fit_are_refused(changes: Any, message: str, view: av.HeadView) -> None:
    view.changes = [HEAD]
    with pytest.raises(traitlets.TraitError, match=message):
        view.changes = changes
    assert view.changes == [av.Ablate(1, 0, stack="self")]


def test_changes_have_numbers_in_place_of_texts(view: av.HeadView) -> None:
    view.changes = [av.Knockout(-1, "street", -2), {"kind": "HideTokens", "tokens": 6}]
    expected = [av.Knockout(13, 6, 1, stack="self"), av.HideTokens(6, stack="self")]
    assert view.changes == expected
    assert view.get_state("changes")["changes"] == [
        {
            "kind": "Knockout",
            "stack": "self",
            "layers": 1,
            "heads": None,
            "queries": 13,
            "keys": 6,
            "renormalize": True,
        },
        {"kind": "HideTokens", "stack": "self", "layers": None, "heads": None, "tokens": 6},
    ]


def test_a_model_needs_the_inputs_of_the_record(
    view: av.HeadView, decoder: tuple[Any, Any]
) -> None:
    model, tokenizer = decoder
    with pytest.raises(TypeError, match=r"inputs is missing\. Pass the inputs"):
        av.HeadView(view.record, model=model)
    with pytest.raises(TypeError, match="tokenizer= needs model="):
        av.HeadView(view.record, tokenizer=tokenizer)
    with pytest.raises(TypeError, match="inputs= needs model="):
        av.HeadView(view.record, inputs=np.zeros((1, 14), np.int64))
    with pytest.raises(TypeError, match="part= needs model="):
        av.HeadView(view.record, part=0)
    other = av.HeadView(view.record, model=model, inputs="the cat sat", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="the 14 tokens of stack 'self' in the record differ"):
        ask(other, EDGE)
