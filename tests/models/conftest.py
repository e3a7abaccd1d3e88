"""Fixtures of the tests in this folder: models, tokenizers, timm and helper functions."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.utils import import_utils

from attnviz import demos

torch.set_num_threads(1)

SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "The cat sat on the mat and looked at the dog.",
    "A date such as 3 May 2021 is written in nine ways.",
    "user says hello, assistant answers the user.",
]


@pytest.fixture(scope="module")
def decoder() -> tuple[Any, Any]:
    """The demo decoder, a causal language model, and its tokenizer."""
    return demos.load("decoder")


@pytest.fixture(scope="module")
def minilm(checkpoint_folder: Path) -> tuple[Any, Any]:
    """A trained BERT of 6 layers with 12 heads each, and its tokenizer."""
    return (
        transformers.AutoModel.from_pretrained(checkpoint_folder, dtype=torch.float32).eval(),
        transformers.AutoTokenizer.from_pretrained(checkpoint_folder),
    )


@pytest.fixture(scope="session")
def run_in_two_processes() -> Callable[..., None]:
    """Function that runs a script of this folder with torchrun in two processes."""

    def run(script: str, *arguments: Path) -> None:
        command = "-m torch.distributed.run --standalone --nproc-per-node=2".split()
        ran = subprocess.run(
            [sys.executable, *command, Path(__file__).parent / script, *arguments],
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]

    return run


@pytest.fixture
def register() -> Iterator[Callable[[str, Callable[..., Any]], str]]:
    """Function that registers an attention function with transformers until the test ends."""
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


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    """A byte-level BPE tokenizer like GPT-2's, with a chat template that starts with BOS."""
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
    """A unigram tokenizer that writes spaces as "▁", like sentencepiece for T5."""
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
    """A WordPiece tokenizer like BERT's."""
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
    """Importer that gives timm a mock of torchvision, which timm imports but hardly uses."""

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
    """The package timm, imported with a mock of torchvision."""
    finder = NoTorchvision()
    sys.meta_path.insert(0, finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pytest.importorskip("timm", reason="pip install --no-deps timm")
    finally:
        sys.meta_path.remove(finder)
        # Remove the mock, so that no other code imports it.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


@pytest.fixture
def timm_wrapper(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers wrap models of timm without torchvision."""
    # Older versions of `modeling_timm_wrapper` import timm, so the fixture `timm` must run first.
    from transformers.models.timm_wrapper import modeling_timm_wrapper

    monkeypatch.setitem(import_utils.BACKENDS_MAPPING, "timm", (lambda: True, ""))
    monkeypatch.setattr(modeling_timm_wrapper, "timm", timm, raising=False)
