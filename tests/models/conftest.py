"""Tiny models with sharpened attention, and tokenizers trained on a few sentences.

A random model attends nearly evenly, so that any formula looks right. Queries and keys are scaled
up here until rows are peaked: then a wrong one shows.
"""

from __future__ import annotations

import copy
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.utils import import_utils

import attnviz
from attnviz import AttentionRecord

torch.set_num_threads(1)

SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "The cat sat on the mat and looked at the dog.",
    "A date such as 3 May 2021 is written in nine ways.",
    "user says hello, assistant answers the user.",
]

_QUERIES_AND_KEYS = {
    "query",
    "key",
    "q_proj",
    "k_proj",
    "q",
    "k",
    "qkv",
    "c_attn",
    "query_key_value",
    "Wqkv",
    "qkv_proj",
    "in_proj",
    "query_proj",
    "key_proj",
}


def _sharpened(model: Any, factor: float) -> Any:
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.rpartition(".")[2] not in _QUERIES_AND_KEYS:
                continue
            if name.endswith("c_attn"):
                width = module.weight.shape[1] // 3
                module.weight[:, : 2 * width] *= factor
            else:
                module.weight *= factor
    return model.eval()


def _config(kind: str) -> Any:
    common: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    size = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    image = {"intermediate_size": 64, "image_size": 32, "patch_size": 8}
    decoder = {**common, **size, "intermediate_size": 64, "vocab_size": 400}
    text = {**decoder, "max_position_embeddings": 64}
    grouped = {**text, "num_key_value_heads": 2}
    seq2seq = {**common, "vocab_size": 400, "d_model": 48, "decoder_start_token_id": 2}
    return {
        "bert": lambda: transformers.BertConfig(**text),
        "albert": lambda: transformers.AlbertConfig(**text, embedding_size=24),
        "roberta": lambda: transformers.RobertaConfig(**{**text, "pad_token_id": 1}),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=400, n_embd=48, n_layer=3, n_head=4, n_positions=64, **common
        ),
        "llama": lambda: transformers.LlamaConfig(**grouped),
        "mistral": lambda: transformers.MistralConfig(**grouped, sliding_window=5),
        "gemma2": lambda: transformers.Gemma2Config(
            **grouped, head_dim=12, sliding_window=5, attn_logit_softcapping=4.0
        ),
        "gpt_oss": lambda: transformers.GptOssConfig(
            **grouped, head_dim=12, sliding_window=5, num_local_experts=2, num_experts_per_tok=1
        ),
        # Different numbers of layers and heads in each stack.
        "bart": lambda: transformers.BartConfig(
            **seq2seq,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=6,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=64,
        ),
        "t5": lambda: transformers.T5Config(
            **{**seq2seq, "decoder_start_token_id": 0},
            num_layers=2,
            num_decoder_layers=3,
            num_heads=4,
            d_kv=12,
            d_ff=64,
        ),
        "vit": lambda: transformers.ViTConfig(**size, **image),
        "bigbird_pegasus": lambda: transformers.BigBirdPegasusConfig(
            **seq2seq,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
        ),
        "bloom": lambda: transformers.BloomConfig(
            vocab_size=400, hidden_size=48, n_layer=2, n_head=4, **common
        ),
        "mamba": lambda: transformers.MambaConfig(
            vocab_size=400, hidden_size=48, num_hidden_layers=2, **common
        ),
    }[kind]()


_CLASSES = {
    "bert": "BertForMaskedLM",
    "albert": "AlbertModel",
    "roberta": "RobertaModel",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "bart": "BartForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
    "bigbird_pegasus": "BigBirdPegasusForConditionalGeneration",
    "bloom": "BloomForCausalLM",
    "mamba": "MambaForCausalLM",
}

# So that the mean of a row's largest weight lies near one half; T5 doesn't scale its products.
_FACTORS = {"albert": 30.0, "bart": 12.0, "bert": 12.0, "roberta": 14.0, "t5": 2.5, "vit": 13.0}


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """Make a tiny model of a kind, the same one on every call; `implementation` is of attention."""

    def make(kind: str, implementation: str | None = None, **settings: Any) -> Any:
        config = _config(kind)
        for name, value in settings.items():
            setattr(config, name, value)
        torch.manual_seed(0)
        model = getattr(transformers, _CLASSES[kind])(config)
        if kind == "gemma2":
            # As newer versions do by themselves: torch's own function knows no cap.
            model.set_attn_implementation("eager")
        if implementation is not None:
            model.set_attn_implementation(implementation)
        return _sharpened(model, _FACTORS.get(kind, 10.0))

    return make


@pytest.fixture(scope="session")
def reference() -> Callable[..., dict[str, list[NDArray[np.float32]]]]:
    """Compute a model's own weights: an eager copy of it with `output_attentions`.

    For each stack a list with an array (examples, heads, queries, keys) for each layer.
    """

    def compute(model: Any, arguments: Mapping[str, Any]) -> dict[str, list[NDArray[np.float32]]]:
        eager = copy.deepcopy(model)
        eager.set_attn_implementation("eager")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = eager.eval()(**arguments, output_attentions=True)
        single = "vision" if "pixel_values" in arguments else "self"
        fields = {
            single: "attentions",
            "encoder": "encoder_attentions",
            "decoder": "decoder_attentions",
            "cross": "cross_attentions",
        }
        return {
            stack: [layer.float().numpy() for layer in outputs[field]]
            for stack, field in fields.items()
            if outputs.get(field)
        }

    return compute


@pytest.fixture(scope="session")
def largest_error() -> Callable[..., float]:
    """Hold a record against a model's own weights, every layer and head.

    `keep` gives, for each side, the places of the example that are no padding.
    """

    def compare(
        record: AttentionRecord,
        own: Mapping[str, list[NDArray[np.float32]]],
        example: int = 0,
        keep: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> float:
        assert list(record.stacks) == list(own)
        worst = 0.0
        for name, layers in own.items():
            stack = record.stacks[name]
            assert stack.layers == tuple(range(len(layers)))
            for number, layer in enumerate(layers):
                expected = layer[example]
                if keep is not None:
                    queries = keep["decoder" if name in ("decoder", "cross") else "input"]
                    keys = keep["decoder" if name == "decoder" else "input"]
                    expected = expected[:, queries][:, :, keys]
                found = stack.weights(layer=number)
                assert found.shape == expected.shape
                worst = max(worst, float(np.abs(found - expected).max()))
        return worst

    return compare


@pytest.fixture(scope="session")
def extract_own(reference: Callable[..., Any], largest_error: Callable[..., float]) -> Any:
    """Extract a record, or one of each example, of which every weight is the model's own.

    `keep` gives the places of each example that are no padding (see `largest_error`), and `own`
    the model's own weights, where they are not those of a plain forward of these arguments.
    """

    def extract_and_compare(
        model: Any,
        arguments: Mapping[str, Any],
        keep: Any = None,
        own: Any = None,
        **options: Any,
    ) -> Any:
        own = reference(model, arguments) if own is None else own
        extracted = attnviz.extract(model, arguments, **options)
        records = extracted if isinstance(extracted, list) else [extracted]
        for example, record in enumerate(records):
            kept = None if keep is None else keep[example]
            assert largest_error(record, own, example, kept) < 1e-4
        return extracted

    return extract_and_compare


@pytest.fixture
def register() -> Iterator[Callable[[str, Callable[..., Any]], str]]:
    """Give transformers an attention function under a name, until the test ends."""
    names: list[str] = []

    def add(name: str, function: Callable[..., Any]) -> str:
        names.append(name)
        transformers.AttentionInterface.register(name, function)
        return name

    yield add
    for name in names:
        transformers.AttentionInterface._global_mapping.pop(name, None)


def _trained(model: Any, trainer: Any, setup: Callable[[Tokenizer], None]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    setup(tokenizer)
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    return tokenizer


@pytest.fixture(autouse=True)
def tokenizers_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a tokenizer of all tests changed: what fails then is another test, elsewhere.

    A pipeline does that, which makes its tokenizer pad on the left.
    """
    names = {"byte_tokenizer", "piece_tokenizer", "word_tokenizer"}
    used = [request.getfixturevalue(name) for name in sorted(names & set(request.fixturenames))]
    before = [_settings(tokenizer) for tokenizer in used]
    yield
    assert [_settings(tokenizer) for tokenizer in used] == before


def _settings(tokenizer: Any) -> tuple[object, ...]:
    return tokenizer.padding_side, tokenizer.truncation_side, len(tokenizer)


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    """A byte-level BPE tokenizer as GPT-2's, with a chat template whose text holds BOS."""
    special = ["<pad>", "<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>"]

    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()

    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend = _trained(models.BPE(), trainer, setup)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
        "{{ message['content'] }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    return tokenizer


@pytest.fixture(scope="session")
def piece_tokenizer() -> Any:
    """A unigram tokenizer with metaspace and byte fallback, as sentencepiece makes for T5."""
    special = ["<pad>", "</s>", "<unk>"]

    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()

    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    backend = _trained(models.Unigram(), trainer, setup)
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.fixture(scope="session")
def word_tokenizer() -> Any:
    """A WordPiece tokenizer as BERT's."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()

    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    backend = _trained(models.WordPiece(unk_token="[UNK]"), trainer, setup)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


class NoTorchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for torchvision, of which timm's models need nothing but that it is there."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@pytest.fixture(scope="session")
def timm() -> Any:
    """The package timm."""
    finder = NoTorchvision()
    sys.meta_path.insert(0, finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pytest.importorskip(
                "timm", reason="pip install --no-deps -c constraints.txt timm"
            )
    finally:
        sys.meta_path.remove(finder)
        # So that nobody else takes it for the real one.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


@pytest.fixture
def timm_wrapper(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers wrap models of timm, for which it asks for torchvision as well."""
    # Older versions of transformers import timm here.
    from transformers.models.timm_wrapper import modeling_timm_wrapper

    monkeypatch.setitem(import_utils.BACKENDS_MAPPING, "timm", (lambda: True, ""))
    monkeypatch.setattr(modeling_timm_wrapper, "timm", timm, raising=False)
