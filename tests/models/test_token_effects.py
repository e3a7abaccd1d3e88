"""The effect of removing a token equals the effect in plain forwards without the token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from model_types.build import tiny_model
from model_types.cases import cases_of, override_of
from models.make_models import make_model
from models.tiny import SIZE, built

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
PAIR = (7, 8)


def difference(model: Any, row: int = -1, **arguments: Any) -> float:
    with torch.no_grad():
        logits = model(**arguments).logits[0, row].double()
    return float(logits[PAIR[0]] - logits[PAIR[1]])


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_masking_a_token_equals_hiding_it(kind: str) -> None:
    model = make_model(kind)
    inputs = {"input_ids": IDS}
    effects = av.token_effects(model, inputs, answer=PAIR)
    assert 0 < effects.noise < 1e-5
    assert np.isnan(effects.values[8])
    for token in (0, 3, 7):
        hidden = av.intervene(model, inputs, av.HideTokens(token), answer=PAIR)
        assert effects.values[token] == pytest.approx(hidden.effect.change, abs=1e-6)
        assert effects.values[token] != 0


def test_a_token_gets_the_mean_embedding() -> None:
    model = make_model("llama")
    effects = av.token_effects(model, {"input_ids": IDS}, answer=PAIR, removal="mean embedding")
    embedded = model.get_input_embeddings()(IDS).detach()
    changed = embedded.clone()
    changed[0, 4] = embedded[0].mean(dim=0)
    expected = difference(model, inputs_embeds=changed) - difference(model, input_ids=IDS)
    assert effects.values[4] == pytest.approx(expected, abs=1e-6)


def test_a_patch_gets_the_mean_color() -> None:
    model = make_model("vit")
    pixels = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    effects = av.token_effects(model, {"pixel_values": pixels}, answer=(0, 1), removal="mean color")
    assert len(effects.values) == 17
    assert np.isnan(effects.values[0])
    changed = pixels.clone()
    # Token 0 is CLS, so token 6 is the patch in row 1, column 1 of the 4 x 4 patches.
    changed[0, :, 8:16, 8:16] = pixels[0].mean(dim=(1, 2))[:, None, None]
    with torch.no_grad():
        rows = [model(values).logits[0].double() for values in (pixels, changed)]
    before, after = (float(row[0] - row[1]) for row in rows)
    assert effects.values[6] == pytest.approx(after - before, abs=1e-6)
    assert after != before


def test_an_encoder_is_read_without_a_token() -> None:
    model = make_model("bart")
    inputs: dict[str, Any] = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]}
    effects = av.token_effects(model, inputs, answer=PAIR)
    mask = torch.ones_like(IDS)
    mask[0, 8] = 0
    expected = difference(model, **inputs, attention_mask=mask) - difference(model, **inputs)
    assert effects.values[8] == pytest.approx(expected, abs=1e-6)
    assert not np.isnan(effects.values).any()


@pytest.mark.parametrize("count", [1, 4])
def test_tokens_of_a_model_with_learned_queries(count: int) -> None:
    """The queries of Perceiver are vectors that it has learned, more or fewer than tokens."""
    model = tiny_model("perceiver", "PerceiverForMaskedLM", {})
    ids = IDS[:, :count]
    effects = av.token_effects(model, {"input_ids": ids}, answer=PAIR)
    assert len(effects.values) == count
    for token in range(count - 1):
        mask = torch.ones_like(ids)
        mask[0, token] = 0
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        expected = difference(model, **inputs) - difference(model, input_ids=ids)
        assert effects.values[token] == pytest.approx(expected, abs=1e-5)
        assert abs(expected) > 1e-4


def test_positions_that_start_after_the_padding_id() -> None:
    """RoBERTa numbers positions from 2. It skips padding ids, but counts masked tokens."""
    model = built("RobertaForMaskedLM", {**SIZE, "vocab_size": 120, "max_position_embeddings": 20})
    effects = av.token_effects(model, {"input_ids": IDS}, answer=PAIR)
    for token in (0, 4):
        mask = torch.ones_like(IDS)
        mask[0, token] = 0
        inputs: dict[str, Any] = {"input_ids": IDS, "attention_mask": mask}
        expected = difference(model, **inputs) - difference(model, input_ids=IDS)
        assert effects.values[token] == pytest.approx(expected, abs=1e-6)
        assert abs(expected) > 1e-4


@pytest.mark.parametrize("removal", ["mask", "mean embedding"])
def test_the_noise_is_measured(removal: Any) -> None:
    """A hook adds 1e-5 to a logit for each example in a batch, which must be measured as noise."""
    model = make_model("gpt2")
    step = torch.zeros(model.config.vocab_size)
    step[PAIR[0]] = 1e-5

    def add(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        del module, args
        return output + step * len(output)

    hook = model.get_output_embeddings().register_forward_hook(add)
    try:
        effects = av.token_effects(model, {"input_ids": IDS}, answer=PAIR, removal=removal)
    finally:
        hook.remove()
    # The noise is the difference between two logits of the unchanged text. In the batch with its
    # eight changed copies, 9e-5 is added to the logit. If the text is alone, 1e-5 is added.
    assert effects.noise == pytest.approx(8e-5, abs=1e-6)


def test_removals_that_do_not_fit_the_input_are_refused() -> None:
    text, image = {"input_ids": IDS}, {"pixel_values": torch.rand(1, 3, 32, 32)}
    for kind, inputs, removal, message in (
        ("gpt2", text, "zero", "removal='zero' must be one of 'mask'"),
        ("gpt2", text, "mean color", "one image"),
        ("vit", image, "mask", "mean color"),
    ):
        with pytest.raises(ValueError, match=message):
            av.token_effects(make_model(kind), inputs, removal=removal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model_type", "class_name"),
    [
        ("deepseek_v4", "DeepseekV4ForCausalLM"),
        ("gemma4_text", "Gemma4ForCausalLM"),
        ("canine", "CanineForSequenceClassification"),
    ],
)
def test_models_that_need_token_ids_refuse_mean_embeddings(
    model_type: str, class_name: str
) -> None:
    override = override_of(next(iter(cases_of(model_type))))
    model = tiny_model(model_type, class_name, override["config"])
    with pytest.raises(NotImplementedError, match=f"{class_name} .*token ids.*Pass .mask."):
        av.token_effects(model, IDS, removal="mean embedding")
    assert np.isfinite(av.token_effects(model, IDS).values).any()


def test_tokens_that_are_sinks_are_named() -> None:
    model = make_model("gpt2")
    inputs = {"input_ids": IDS}
    effects = av.token_effects(model, inputs, answer=PAIR)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(IDS, output_attentions=True).attentions
    shares = np.zeros(9)
    for heads in layers:
        for weights in heads[0].double().numpy():
            for key in range(8):
                queries = range(key + 1, 9)
                mean = np.mean([weights[query, key] for query in queries])
                uniform = np.mean([1 / (query + 1) for query in queries])
                shares[key] += (mean - uniform) / (1 - uniform) > 0.3
    shares /= sum(heads.shape[1] for heads in layers)
    assert effects.sink_shares == pytest.approx(shares)
    assert shares.max() > 0
    assert effects.sinks == tuple(np.flatnonzero(shares >= 0.3))


@pytest.mark.parametrize("kind", ["bert", "bloom", "t5"])
def test_a_sink_of_all_heads_is_named_in_words(kind: str) -> None:
    model = make_model(kind)
    inputs = {"input_ids": IDS, **({"decoder_input_ids": IDS[:, :3]} if kind == "t5" else {})}
    effects = av.token_effects(model, inputs, answer=PAIR)
    assert effects.sink_shares is not None
    assert effects.sink_shares.shape == (9,)
    assert ((effects.sink_shares >= 0) & (effects.sink_shares <= 1)).all()
    marked = replace(effects, sink_shares=np.array([0.75] + [0.0] * 8))
    why = "so removing them changes more than removing a word"
    sinks = f"attention sinks, {why}: “#5” (0) in 75% of heads"
    assert marked.sinks == (0,)
    assert sinks in repr(marked)
    view = av.HeadView(av.extract(model, inputs), token_scores={"effect": marked})
    assert view.token_score_notes["effect"].endswith(f"; {sinks}")
