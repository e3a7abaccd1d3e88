"""attnviz loads the tokenizer of a model once, and queries the hub only if inputs are texts."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnviz as av
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.models import load
from models.make_models import make_model

TEXT = "The cat sat on the mat."
IDS = torch.tensor([[7, 31, 12, 99, 5]])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts of calls of `from_pretrained`: "here" with `local_files_only`, and "hub" without."""
    counted: Counter[str] = Counter()
    for reader in (
        transformers.AutoTokenizer,
        transformers.AutoProcessor,
        transformers.AutoImageProcessor,
    ):
        read = reader.from_pretrained

        def counting(source: str, *, _read: Any = read, **options: Any) -> Any:
            counted["here" if options.get("local_files_only") else "hub"] += 1
            return _read(source, **options)

        monkeypatch.setattr(reader, "from_pretrained", counting)
    return counted


@pytest.fixture
def saved(tmp_path: Path, byte_tokenizer: Any) -> Path:
    folder = tmp_path / "tiny"
    make_model("llama").save_pretrained(folder)
    byte_tokenizer.save_pretrained(folder)
    return folder


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def tokens(model: Any, inputs: Any) -> tuple[str, ...]:
    text: tuple[str, ...] = av.extract(model, inputs).stack().query_tokens.text
    return text


def test_a_tokenizer_is_read_once_per_model(saved: Path, reads: Counter[str]) -> None:
    model, other = loaded(saved), loaded(saved)
    av.extract(model, TEXT)
    av.extract(model, IDS)
    av.show_head_view(model, TEXT)
    av.intervene(model, TEXT, av.Ablate(layers=0, heads=0))
    assert reads == {"here": 1}
    av.extract(other, TEXT)
    av.extract(copy.deepcopy(model), TEXT)
    assert reads == {"here": 3}


def test_a_model_is_not_kept(saved: Path) -> None:
    model = loaded(saved)
    av.extract(model, TEXT)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_the_hub_is_queried_only_for_texts(reads: Counter[str]) -> None:
    model = make_model("llama")
    model.name_or_path = "nobody/nothing"
    # If the inputs are ids, a tokenizer is used only for labels, so the hub is not queried.
    assert [tokens(model, IDS)[0] for _ in range(2)] == ["#7", "#7"]
    assert reads == {"here": 1}
    with pytest.raises(ValueError, match="no tokenizer was found"):
        av.extract(model, TEXT)
    assert reads == {"here": 1, "hub": 1}


def test_threads_load_a_tokenizer_once_with_separate_truncation(
    saved: Path, reads: Counter[str]
) -> None:
    model = load(loaded(saved))
    text = TEXT * 300

    def lengths(most: int) -> set[int]:
        encoder = Encoder(model, {"truncation": most})
        return {encoder.encode(text).sequences["input"].length for _ in range(40)}

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lengths, [8, 16, 24, 32])) == [{8}, {16}, {24}, {32}]
    assert reads == {"here": 1}
