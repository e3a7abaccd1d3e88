"""Measure what a second `extract` of a sentence costs, in forwards of the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from transformers import pipeline

from attnviz import extract
from model_types.calls.observe import observed
from model_types.calls.parts import TEXT, minilm_folder
from model_types.calls.wrappers import inner, minilm

_TIMES = 40


def _seconds(*functions: Callable[[], Any]) -> list[float]:
    """Return the shortest processor time of each function. The functions run in turns."""
    shortest = [float("inf")] * len(functions)
    for _ in range(_TIMES):
        for number, function in enumerate(functions):
            started = time.process_time()
            function()
            shortest[number] = min(shortest[number], time.process_time() - started)
    return shortest


def _forward(model: Any, arguments: dict[str, Any]) -> None:
    with torch.no_grad():
        model(**arguments)


def _pretrained(kind: Any) -> Any:
    return kind.from_pretrained(minilm_folder())


def costs() -> list[str]:
    """Return a sentence for each wrapper with the durations."""
    wrapper: Any = minilm()
    classifier = pipeline(
        "text-classification",
        model=_pretrained(transformers.AutoModelForSequenceClassification),
        tokenizer=_pretrained(transformers.AutoTokenizer),
    )
    lines = []
    kinds: list[tuple[str, Any, Any, Callable[[], Any]]] = [
        ("SentenceTransformer", wrapper, inner(wrapper), lambda: wrapper.encode([TEXT])),
        ("text classification", classifier, classifier.model, lambda: classifier(TEXT)),
    ]
    for name, made, model, own in kinds:
        with observed(model) as calls:
            own()
        arguments = calls.readings[0].arguments
        forward, own_call, extraction = _seconds(
            partial(_forward, model, arguments), own, partial(extract, made, TEXT, progress=False)
        )
        lines.append(
            f"{name} of MiniLM: a forward takes {forward * 1e3:.1f} ms, the own call "
            f"{own_call * 1e3:.1f} ms, and a second extract {extraction * 1e3:.1f} ms, "
            f"{extraction / forward:.2f} forwards"
        )
    return lines
