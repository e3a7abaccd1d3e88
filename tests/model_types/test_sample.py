"""A sample of model types, one or more of each kind; `make coverage` checks all of them."""

from __future__ import annotations

import functools
import logging
import warnings

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from model_types.check import check
from model_types.compare import TOLERANCE
from model_types.rows import Row

pytestmark = pytest.mark.models

SAMPLE = """
    albert bert deberta-v2 distilbert longformer modernbert roformer
    bloom codegen falcon gemma2 gpt2 gpt_neo gpt_oss llama mistral mpt qwen3
    deepseek_v3 falcon_h1 jamba mixtral qwen3_next
    bart pegasus_x t5 whisper
    clip detr dinov2_with_registers segformer siglip swin vit
    gemma3 llava qwen2_5_vl
    wav2vec2 esm perceiver patchtst time_series_transformer
""".split()


@functools.cache
def _checked(model_type: str) -> Row:
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    try:
        # What transformers says of its own is none of this test's business.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(model_type)
    finally:
        logging.disable(logging.NOTSET)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_weights_are_the_models_own_and_the_model_stays_as_it_was(model_type: str) -> None:
    row = _checked(model_type)

    assert (row.result, row.reason) == ("ok", "")
    assert row.error is not None
    assert row.error <= TOLERANCE


@pytest.mark.parametrize("model_type", SAMPLE)
def test_what_attention_received_cannot_be_corrupted_unnoticed(model_type: str) -> None:
    row = _checked(model_type)

    assert row.peak is not None
    assert row.peak > 0.25
    assert row.unnoticed == []
