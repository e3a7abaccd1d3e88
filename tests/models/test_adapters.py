"""attnviz reads models with PEFT's virtual tokens, and refuses unsupported adapters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz import extract
from models.make_models import make_model
from models.tiny import SIZE, built

peft = pytest.importorskip("peft")
pytestmark = [
    # The code of peft causes these warnings.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Position ids are not supported:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*`past_key_values`:FutureWarning"),
]

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 40, 12]])
COUNT, VIRTUAL = IDS.shape[1], 3
NAMES = ("[virtual0]", "[virtual1]", "[virtual2]")
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "prompt tuning": (peft.PromptTuningConfig, {}),
    "p-tuning": (peft.PromptEncoderConfig, {"encoder_hidden_size": 16}),
    "prefix tuning": (peft.PrefixTuningConfig, {}),
}


def tuned(base: str, kind: str) -> Any:
    """Return the tiny model `base` with a PEFT adapter of `kind` and random virtual tokens."""
    config, options = KINDS[kind]
    if base == "bert":
        size = {**SIZE, "num_hidden_layers": 3}
        task, inside = "SEQ_CLS", built("BertForSequenceClassification", size, factor=12.0)
    else:
        task, inside = "CAUSAL_LM", make_model(base)
    settings = config(num_virtual_tokens=VIRTUAL, task_type=task, **options)
    model = peft.get_peft_model(inside, settings).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.prompt_encoder.parameters():
            parameter.normal_()
    return model


def own(model: Any, **arguments: Any) -> Any:
    """Return the output of a copy of the model that uses eager attention, including weights."""
    eager = copy.deepcopy(model)
    eager.get_base_model().set_attn_implementation("eager")
    with torch.no_grad():
        return eager(**arguments, output_attentions=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["llama", "gpt2", "bert"])
def test_weights_are_those_of_the_tuned_model(base: str, kind: str) -> None:
    model = tuned(base, kind)
    try:
        expected = own(model, input_ids=IDS).attentions
    except ValueError as error:
        # Versions of peft look for an argument that newer versions of transformers call `cache`.
        if (base, kind) != ("bert", "prefix tuning") or "past key values" not in str(error):
            raise
        versions = f"peft {peft.__version__} with transformers {transformers.__version__}"
        pytest.skip(f"{versions} cannot run this model: {error}")
    record = extract(model, IDS)
    queries = COUNT if kind == "prefix tuning" else COUNT + VIRTUAL
    stack = record.stacks["self"]
    assert stack.layers == (0, 1, 2)
    for number, layer in enumerate(expected):
        assert layer.shape[2:] == (queries, COUNT + VIRTUAL)
        assert layer.max(-1).values.mean() > 0.3
        assert np.abs(stack.weights(layer=number) - layer[0].numpy()).max() < 1e-5
    text = tuple(f"#{number}" for number in IDS[0].tolist())
    assert stack.key_tokens.text == NAMES + text
    assert stack.query_tokens.text == (text if kind == "prefix tuning" else NAMES + text)
    assert stack.key_tokens.special[:VIRTUAL] == (True,) * VIRTUAL
    assert sum("[virtual0]" in note for note in record.notes) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_of_a_generated_text_are_those_of_the_tuned_model(kind: str) -> None:
    model = tuned("llama", kind)
    record = extract(model, IDS, generate=3)
    with torch.no_grad():
        ids = model.generate(
            input_ids=IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=3, do_sample=False
        )
    probabilities = torch.softmax(own(model, input_ids=ids).logits[0], dim=-1)
    front = 0 if kind == "prefix tuning" else VIRTUAL
    predictions = record.stacks["self"].query_tokens.predictions
    first = front + COUNT - 1
    assert [prediction.query for prediction in predictions] == [first, first + 1, first + 2]
    generated = ids[0, COUNT:].tolist()
    assert [prediction.token.id for prediction in predictions] == generated
    # Leave out the last row. It predicts a token that was not generated.
    rows = probabilities[-4:-1]
    expected = [float(row[token]) for row, token in zip(rows, generated, strict=True)]
    assert [prediction.token.probability for prediction in predictions] == pytest.approx(
        expected, abs=1e-5
    )


def test_tokens_after_virtual_queries_are_not_removed() -> None:
    with pytest.raises(NotImplementedError, match="PROMPT_TUNING"):
        av.token_effects(tuned("gpt2", "prompt tuning"), IDS)


def test_an_adapter_that_is_switched_off_changes_nothing() -> None:
    model = tuned("llama", "prompt tuning")
    with model.disable_adapter():
        record = extract(model, IDS)
    expected = extract(make_model("llama"), IDS)
    assert record.tokens.text == expected.tokens.text
    for number in range(3):
        weights = record.stacks["self"].weights(layer=number)
        assert np.array_equal(weights, expected.stacks["self"].weights(layer=number))


def test_the_output_projection_has_the_adapter() -> None:
    """The adapter is merged into the weights of a second model."""
    config = peft.LoraConfig(target_modules=["o_proj"], init_lora_weights=False)
    model = peft.get_peft_model(make_model("llama"), config).eval()
    merged = copy.deepcopy(model).merge_and_unload()
    numbers: list[list[Any]] = []
    for one in (model, merged):
        norms = av.attribute(one, IDS, method="value norm").stack()
        direct = av.attribute(one, IDS, method="direct", answer=(7, 9)).stack()
        outputs = av.extract(one, IDS, outputs=True)
        scores = av.analysis.head_scores(outputs, "output norm")
        numbers.append([norms.weights(layer=1), direct.weights(layer=1), scores[1]])
    for adapted, expected in zip(*numbers, strict=True):
        assert np.abs(adapted - expected).max() < 1e-5 * np.abs(expected).max()


def test_other_adapters_are_refused_by_name() -> None:
    task: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    lora = {"r": 2, "target_modules": ["q_proj"], "alora_invocation_tokens": [17, 42]}
    for name, config in (
        ("ADAPTION_PROMPT", peft.AdaptionPromptConfig(adapter_len=3, adapter_layers=2, **task)),
        ("aLoRA", peft.LoraConfig(**lora, **task)),
    ):
        model = peft.get_peft_model(make_model("llama"), config).eval()
        with pytest.raises(NotImplementedError, match=rf"its adapter \({name}\)"):
            extract(model, IDS)


def test_the_folder_of_an_adapter_is_read_with_its_base_model(tmp_path: Path) -> None:
    base, tokenizer = av.demos.load("decoder")
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(
        r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True
    )
    inside = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model = peft.get_peft_model(inside, settings).eval()
    model.save_pretrained(tmp_path / "adapter")
    record = extract(tmp_path / "adapter", "the cat sat")
    with torch.no_grad():
        ids = tokenizer("the cat sat", return_tensors="pt")
        weights = own(model, **ids).attentions
    for layer, expected in enumerate(weights):
        np.testing.assert_allclose(record.stack().weights(layer=layer), expected[0], atol=1e-5)
    before = extract(base, "the cat sat", tokenizer=tokenizer).stack()
    assert not np.allclose(before.weights(layer=1), record.stack().weights(layer=1), atol=1e-3)
    virtual = peft.PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    inside = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    peft.get_peft_model(inside, virtual).save_pretrained(tmp_path / "prefix")
    with pytest.raises(ValueError, match="is an adapter with virtual tokens"):
        extract(tmp_path / "prefix", "the cat sat")
