"""Text generated with changed attention equals that of changed forwards without a cache."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.interventions.changes import Change
from models.explicit_attention import attention_function
from models.make_models import make_model
from models.speech import TOKENS, whisper

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
COUNT = 6
CACHES: list[dict[str, Any]] = [{}, {"cache_implementation": "static"}, {"use_cache": False}]
#: Changes of all kinds, at tokens of the prompt (0 to 8) and at generated tokens (9 to 14).
CHANGES = [
    av.Knockout(keys=[1, 7], layers=0),
    av.HideTokens(5, layers=1),
    av.Knockout(queries=[10, 12], keys=[4, 9], layers=[0, 1], renormalize=False),
    av.SetWeights(-1, 1, "previous token"),
    av.Ablate(1, 2),
]


def produced(
    model: Any, inputs: Any, changes: Sequence[Change] | Change, **settings: Any
) -> tuple[Any, list[torch.Tensor]]:
    """Generate text with changes. Return the record, and the logits of each step."""
    rows: list[torch.Tensor] = []

    def store(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        rows.append(scores[0].clone())
        return scores

    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    generate = {"max_new_tokens": COUNT, "do_sample": False} | settings
    generate["logits_processor"] = transformers.LogitsProcessorList([store])
    record = av.intervene(model, inputs, changes, generate=generate)
    return record, rows[-COUNT:]


def changed_weights(module: Any, logits: torch.Tensor) -> torch.Tensor:
    """Compute the softmax of the logits of a layer, and apply the `CHANGES` of this layer."""
    number = torch.arange(logits.shape[-1])
    if module.layer_idx == 0:
        logits[..., [1, 7]] = -torch.inf
    if module.layer_idx == 1:
        logits[:, :, number != 5, 5] = -torch.inf
    weights = logits.softmax(dim=-1).nan_to_num(0.0)
    for row in (10, 12):
        if module.layer_idx < 2 and row < len(number):
            weights[:, :, row, [4, 9]] = 0
    if module.layer_idx == 2:
        weights[:, 1, 1:] = torch.eye(len(number))[:-1]
    if module.layer_idx == 1:
        # Set the weights of the ablated head to 0, so that its output is 0.
        weights[:, 2] = 0
    return weights


@pytest.mark.parametrize("cache", CACHES, ids=["dynamic", "static", "none"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral"])
def test_each_step_equals_a_forward_without_a_cache_by_hand(
    kind: str, cache: dict[str, Any], register: Callable[..., str]
) -> None:
    model = make_model(kind)
    edited = copy.deepcopy(model)
    by_hand = attention_function(changed_weights, window=5 if kind == "mistral" else None)
    edited.set_attn_implementation(register("by_hand", by_hand))
    # The prompt has 9 tokens, so -4 means token 5.
    named = [CHANGES[0], av.HideTokens(-4, layers=1), *CHANGES[2:]]
    record, rows = produced(model, {"input_ids": IDS}, named, **cache)
    ids = IDS
    for row in rows:
        with torch.no_grad():
            expected = edited(ids, use_cache=False).logits[0, -1]
            plain = model(ids, use_cache=False).logits[0, -1]
        assert (row - expected).abs().max() < 1e-5
        assert (row - plain).abs().max() > 1e-2
        ids = torch.cat([ids, expected.argmax()[None, None]], dim=1)
    assert list(record.stack().query_tokens.ids) == ids[0].tolist()
    own = av.intervene(model, {"input_ids": ids}, CHANGES)
    for layer in (0, 1, 2):
        ours, theirs = (item.stack().weights(layer=layer) for item in (record, own))
        assert np.abs(ours - theirs).max() < 1e-6
    assert not record.stack().weights(layer=0)[:, :, [1, 7]].any()
    # The effect is measured at the last token of the prompt, where `CHANGES[2]` has no query.
    first = av.intervene(model, {"input_ids": IDS}, CHANGES[:2] + CHANGES[3:], position=8)
    assert record.effect.before == pytest.approx(first.effect.before, abs=1e-5)
    assert record.effect.after == pytest.approx(first.effect.after, abs=1e-5)


#: Changes of the encoder, the decoder and the cross-attention of an encoder-decoder model.
EACH_STACK = [
    av.Knockout(keys=3, stack="cross"),
    av.Knockout(queries=[0, 3], keys=[4, 6], layers=1, stack="cross"),
    av.Ablate(0, 1, stack="decoder"),
    av.HideTokens(2, layers=[1], stack="decoder"),
    av.SetWeights(0, 1, "uniform", stack="encoder"),
]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gemma2", CHANGES),
        ("gpt_oss", CHANGES),
        ("bloom", CHANGES),
        ("bart", EACH_STACK),
        ("t5", EACH_STACK),
    ],
)
@pytest.mark.parametrize("cache", CACHES, ids=["dynamic", "static", "none"])
def test_each_step_equals_an_intervention_on_the_text_so_far(
    kind: str, changes: list[Any], cache: dict[str, Any]
) -> None:
    """The models have soft caps, sinks, windows or biases. Two models are encoder-decoders."""
    # T5's cache has as many layers as the encoder. The encoder has 2, so the decoder needs 2, too.
    model = make_model(kind, **({"num_decoder_layers": 2} if kind == "t5" else {}))
    record, rows = produced(model, {"input_ids": IDS}, changes, **cache)
    several = "decoder" in record.stacks
    tokens = record.stack("decoder" if several else None).query_tokens
    for step, prediction in enumerate(tokens.predictions):
        ids = torch.tensor([list(tokens.ids or ())[: prediction.query + 1]])
        inputs = {"input_ids": IDS, "decoder_input_ids": ids} if several else {"input_ids": ids}
        pair = rows[step].topk(2).indices.tolist()
        assert prediction.token.id == pair[0]
        if step not in (0, 2, COUNT - 1):
            continue
        effect = av.intervene(
            model, inputs, changes_before(changes, ids.shape[1]), answer=pair
        ).effect
        assert effect.after == pytest.approx(
            float(rows[step][pair[0]] - rows[step][pair[1]]), abs=2e-5
        )
        assert abs(effect.change) > 1e-4
    assert len(tokens.predictions) == COUNT


def changes_before(changes: Sequence[Change], count: int) -> list[Change]:
    """Return the changes that apply to a text of `count` tokens.

    Queries of a `Knockout` at positions from `count` on are removed. A `HideTokens` of a token at
    such a position is left out.
    """
    reduced: list[Change] = []
    for change in changes:
        if isinstance(change, av.Knockout) and change.queries is not None:
            present = [query for query in np.atleast_1d(change.queries) if query < count]
            reduced += [replace(change, queries=present)] if present else []
        elif getattr(change, "tokens", 0) < count:
            reduced.append(change)
    return reduced


def test_each_beam_is_changed() -> None:
    model = make_model("llama")
    model.generation_config.eos_token_id = None
    settings = {"max_new_tokens": COUNT, "do_sample": False, "num_beams": 3}
    record = av.intervene(model, {"input_ids": IDS}, av.Ablate(1, 2), generate=settings)
    with torch.no_grad():
        # Columns 24 to 35 belong to head 2, because each head has 12 components.
        model.model.layers[1].self_attn.o_proj.weight[:, 24:36] = 0
        expected = model.generate(IDS, attention_mask=torch.ones_like(IDS), **settings)
    assert list(record.stack().query_tokens.ids) == expected[0].tolist()


@pytest.mark.parametrize("beams", [1, 3])
def test_the_start_of_a_decoder_is_that_of_the_settings(beams: int) -> None:
    """Whisper starts with the tokens of a language and a task, and returns only the text."""
    inputs = {"input_features": torch.randn(1, 16, 100)}
    settings: dict[str, Any] = {"max_new_tokens": COUNT, "num_beams": beams}
    settings |= {"language": "de", "task": "translate"}
    # The prompt of a change is the first input of the decoder, which has 4 tokens.
    changes = [av.Ablate(1, 2, stack="cross"), av.Knockout(keys=1, layers=0, stack="decoder")]
    model = whisper(**TOKENS)
    unchanged = av.extract(model, inputs, generate=settings).stacks["cross"].query_tokens
    same = av.intervene(model, inputs, av.Ablate(factor=1.0, stack="cross"), generate=settings)
    assert same.stacks["cross"].query_tokens.ids == unchanged.ids
    record = av.intervene(model, inputs, changes, generate=settings)
    ids = record.stacks["cross"].query_tokens.ids
    assert ids[:4] == (3, 171, 173, 175)
    assert not record.stacks["decoder"].weights(layer=0)[:, 2:, 1].any()
    with torch.no_grad():
        # Columns 24 to 35 belong to head 2, because each head has 12 components.
        model.model.decoder.layers[1].encoder_attn.out_proj.weight[:, 24:36] = 0
    ablated = av.intervene(model, inputs, changes[1], generate=settings)
    assert ablated.stacks["cross"].query_tokens.ids == ids
    only = av.intervene(whisper(**TOKENS), inputs, changes[0], generate=settings)
    own = model.generate(**inputs, **settings)[0].tolist()
    text = [prediction.token.id for prediction in only.stacks["cross"].query_tokens.predictions]
    assert text == own


def test_both_models_use_the_same_random_numbers() -> None:
    model = make_model("gpt2")
    settings = {"max_new_tokens": COUNT, "do_sample": True, "top_k": 0}
    torch.manual_seed(3)
    record = av.intervene(model, {"input_ids": IDS}, av.Ablate(factor=1.0), generate=settings)
    assert record.effect.text_before == record.effect.text_after
    assert record.notes[-1] == f"{record.effect}."
    assert "; the model produces “#" in record.notes[-1]
    torch.manual_seed(3)
    own = av.extract(model, {"input_ids": IDS}, generate=settings)
    assert own.stack().query_tokens.ids == record.stack().query_tokens.ids


def test_weights_from_the_caller_are_those_of_the_prompt() -> None:
    model = make_model("llama")
    other = av.extract(model, {"input_ids": IDS.flip(1)})
    record, _ = produced(model, {"input_ids": IDS}, av.SetWeights(1, 2, other))
    computed = record.stack().weights(layer=1, head=2)
    assert np.abs(computed[:9, :9] - other.stack().weights(layer=1, head=2)).max() < 1e-6
    assert not computed[:9, 9:].any()
    # The rows of generated tokens keep the model's own weights.
    assert np.abs(computed[9:].sum(axis=1) - 1).max() < 1e-6
    assert computed[9:].max() > 0.3
    with pytest.raises(ValueError, match=r"must be \(9, 9\)"):
        produced(model, {"input_ids": IDS}, av.SetWeights(1, 2, np.eye(15)))


def test_unsupported_changes_are_refused_before_the_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_model("gpt2")
    begun: list[Any] = []
    monkeypatch.setattr(model, "generate", lambda **_: begun.append(0))
    # The prompt has 9 tokens and the model generates 5, so the last position is 13.
    for change, error, words in (
        (av.Knockout(keys=14), IndexError, "keys=14"),
        (av.Ablate(layers=4), IndexError, "layers=4"),
        (av.SetWeights(0, 0, np.eye(4)), ValueError, "shape"),
    ):
        with pytest.raises(error, match=words):
            av.intervene(model, {"input_ids": IDS}, change, generate=5)
    assert not begun
