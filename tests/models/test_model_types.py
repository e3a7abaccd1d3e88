"""Records and ablations of some model types are correct. `make coverage` checks all types."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import math
import warnings

import pytest
import torch
import transformers
from transformers import integrations
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from model_types.build import tiny_model
from model_types.cases import Case, cases_of, override_of
from model_types.check import check
from model_types.compare import TOLERANCE
from model_types.markdown import short
from model_types.reasons import NO_ATTENTION, READ, REFUSED, in_words
from model_types.rows import Row
from model_types.sharpen import peak

# The seven rows are text encoders, text decoders, decoders with experts or unusual layers,
# encoder-decoders, vision models, models of texts and images, and others (sound, series, ...).
SAMPLE = """
    albert bert canine convbert deberta-v2 distilbert mobilebert modernbert roformer squeezebert
    bloom codegen diffllama falcon gemma2 gpt2 gpt_neo gpt_oss gptj llama mistral mpt olmo2 qwen3
    xlnet deepseek_v3 falcon_h1 inkling2 jamba mixtral qwen3_next
    bart marian t5 whisper
    clip detr dinov2_with_registers efficientloftr hiera segformer siglip swin swinv2 vit
    gemma3 llava mllama qwen2_5_vl
    hubert wav2vec2 esm perceiver patchtst time_series_transformer
""".split()

# Two expected results for each model type and stack. The first is the result of ablating a head:
# "exact" if the output of the model changes as computed by hand, "changed" if it changes but cannot
# be computed by hand, or "refused". The second is whether attnviz finds the output projection.
CHANGED = {
    "gpt2": {"self": ("exact", True)},
    "albert": {"self": ("exact", True)},
    "gpt_oss": {"self": ("exact", True)},
    "t5": dict.fromkeys(("encoder", "decoder", "cross"), ("exact", True)),
    "vit": {"vision": ("exact", True)},
    "qwen3_next": {"self": ("exact", True), "linear": ("exact", False)},
    "inkling2": {"self": ("exact", True)},
    "bloom": {"self": ("exact", False)},
    "squeezebert": {"self": ("changed", False)},
    "siglip": {"self": ("exact", True), "vision": ("exact", True), "pooling": ("refused", False)},
    "swin": {
        "vision stage 1": ("refused", False),
        "vision stage 2": ("refused", False),
        "vision stage 3": ("exact", True),
    },
    "granite_swa": {"self": ("exact", True)},
}
# Before transformers 5.16, linear layers compute their rules without replaceable functions.
READS_LINEAR_LAYERS = hasattr(integrations, "use_kernel_func_from_hub_with_fallback")
# Model types whose heads can be ablated, but whose weights cannot be changed, and the reason.
ONLY_ABLATED = {"granite_swa": "a gate that depends on the sink"}

# Model type, class with a head for a task, and an unusual setting or "".
CASES = [
    ("biogpt", "BioGptForSequenceClassification", ""),
    ("bart", "BartForSequenceClassification", ""),
    ("t5", "T5ForQuestionAnswering", ""),
    ("whisper", "WhisperForConditionalGeneration", ""),
    ("idefics", "IdeficsForVisionText2Text", "use_resampler=True"),
    ("llava", "LlavaForConditionalGeneration", ""),
    ("wav2vec2", "Wav2Vec2ForCTC", "do_stable_layer_norm=True"),
    ("bert", "BertLMHeadModel", "is_decoder=True"),
    ("bert", "BertLMHeadModel", "add_cross_attention=True"),
    ("gpt2", "GPT2LMHeadModel", "reorder_and_upcast_attn=True"),
    ("gemma4_text", "Gemma4ForCausalLM", "num_kv_shared_layers=2"),
    ("gemma3_text", "Gemma3ForCausalLM", "use_bidirectional_attention=True"),
    ("gemma2", "Gemma2ForCausalLM", "layer_types=full, sliding, full, sliding"),
    ("albert", "AlbertForMaskedLM", "num_hidden_groups=2"),
    ("falcon", "FalconForCausalLM", "alibi=True"),
    ("xlnet", "XLNetLMHeadModel", "attn_type=uni"),
]


@functools.cache
def _checked(model_type: str) -> Row:
    return _row(Case(model_type))


def _checked_case(model_type: str, kind: str, flag: str) -> Row:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = list(cases_of(model_type))
    setting = flag.partition("=")[0]
    matching = [case for case in cases if case.kind == kind and case.flag.startswith(setting)]
    if not matching:
        pytest.skip(f"transformers {transformers.__version__} has no {kind} with {setting}")
    (case,) = [case for case in matching if case.flag == flag]
    return _row(case)


def _row(case: Case) -> Row:
    model_type = case.model_type
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(case)
    finally:
        logging.disable(logging.NOTSET)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_weights_are_the_models_own_and_the_model_is_unchanged(model_type: str) -> None:
    row = _checked(model_type)

    assert (row.result, row.reason) == ("ok", "")
    assert row.error is not None
    assert row.error <= TOLERANCE
    # Rows of weights have clear maxima, and `check` detected every fault that it inserted.
    assert row.peak is not None
    assert row.peak > 0.25
    assert row.unnoticed == []


@pytest.mark.parametrize(("model_type", "kind", "flag"), CASES)
def test_classes_with_a_head_and_unusual_settings_have_the_models_own_weights(
    model_type: str, kind: str, flag: str
) -> None:
    row = _checked_case(model_type, kind, flag)

    assert (row.result, row.reason) == ("ok", "")
    assert row.peak is not None
    assert row.peak > 0.25


@pytest.mark.parametrize("model_type", CHANGED)
def test_ablating_a_head_equals_zeros_in_its_columns_of_the_projection(model_type: str) -> None:
    changes = _checked(model_type).changes

    results = {name: (change.gate, change.projection) for name, change in changes.items()}
    dispatched = _uses_the_dispatcher(model_type)
    expected = {
        name: (gate, projection and dispatched)
        for name, (gate, projection) in CHANGED[model_type].items()
        if name != "linear" or READS_LINEAR_LAYERS
    }
    assert results == expected
    for change in changes.values():
        assert change.identity is (None if change.gate == "refused" else True)
        assert change.gate != "refused" or change.reason.startswith("changes: ")
        # If effects were computed in half precision, the noise would be about 1e-3.
        assert change.noise is None or change.noise < TOLERANCE
        assert ONLY_ABLATED.get(model_type, "") in change.refused_weights
        assert bool(change.refused_weights) == (model_type in ONLY_ABLATED)


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("one\n  two", "one two"),
        ("a <b>", "a &lt;b>"),
        ("one two three", "one two …"),
        ("one two th", "one two th"),
        ("onetwothree", "onetwoth …"),
    ],
)
def test_reasons_are_cut_between_words_if_possible(text: str, shortened: str) -> None:
    assert short(text, 10) == shortened


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Row("bert", result="refused", reason="ValueError: model: a is b. Pass c."), "a is b"),
        (
            Row("bert", result="refused", reason="TypeError: model: h.0.attn (A) has <x>. Pass c."),
            "has &lt;x>",
        ),
        (Row("yoso", result="no own weights", reason=NO_ATTENTION), REFUSED["yoso"]),
        (Row("yoso", result="no own weights", reason=READ), READ),
        (
            Row("nougat", result="not built", reason="No module named 'transformers.models.x'"),
            "transformers has no class for it alone",
        ),
        (
            Row("dinat", result="not built", reason="A requires the natten library"),
            "needs natten, which is not installed",
        ),
        (
            Row("bark", result="no inputs", reason="TypeError: x"),
            "needs other inputs than the test makes",
        ),
    ],
)
def test_reasons_are_in_words(row: Row, words: str) -> None:
    assert in_words(row) == words


def _uses_the_dispatcher(model_type: str) -> bool:
    """Return whether the installed code of the type uses `AttentionInterface` of transformers."""
    modeling = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(modeling)


def test_equal_arguments_give_equal_models_if_a_class_does_not_initialize_parameters() -> None:
    model_type = "qwen3_omni_moe_talker_text"
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    settings = override_of(Case(model_type))["config"]

    def experts() -> torch.Tensor:
        model = tiny_model(model_type, None, settings)
        parameter: torch.Tensor = model.get_parameter("layers.0.mlp.experts.gate_up_proj")
        values = parameter.detach().clone()
        # The next model may get the memory of this one.
        parameter.data.fill_(3)
        return values

    assert torch.equal(experts(), experts())


def test_weights_that_are_nan_have_no_peak() -> None:
    assert peak([torch.eye(4)]) == 1
    assert peak([torch.tensor([[0.5, 0.25, 0.25]])]) == 0.5
    assert math.isnan(peak([torch.full((2, 4), torch.nan)]))
