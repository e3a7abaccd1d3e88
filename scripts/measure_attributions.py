"""Measure how well attributions predict the effect of cutting a pair of query and key.

    python scripts/measure_attributions.py [NUMBER OF TEXTS]

The script prints the table of docs/does-it-matter.md. It cuts every pair of query and key in
held-out sentences of the demo decoder, and measures the effect: the change of the answer. A cut
"after" the softmax sets a weight to 0. A cut "before" the softmax removes the key, so the remaining
weights of the query sum to 1.

The columns compare each method with these effects: Kendall's tau, Kendall's tau of absolute values,
and the share of the ten pairs with the largest effects that are among the method's ten largest.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import attnviz as av
from attnviz.analysis import kendall_tau
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.interventions.copies import Copies, ModuleRun
from attnviz.interventions.runs import ExampleRunner
from train_demos.sentences import antecedent_sentence

SEED = 4713
TOP = 10
METHODS: tuple[Any, ...] = (
    "gradient",
    "knockout gradient",
    "integrated gradients",
    "direct",
    "value norm",
)
Numbers = NDArray[np.float64]


def main() -> None:
    """Measure all methods on some sentences, and print the means over sentences."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    model, tokenizer = av.demos.load("decoder")
    generator = np.random.default_rng(SEED)
    figures_of: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(count):
        sentence = antecedent_sentence(generator, held_out=True)
        words = sentence.words
        answer = (words[sentence.answer], words[sentence.distractor])
        for method, figures in compared(model, tokenizer, sentence.prompt, answer).items():
            figures_of.setdefault(method, []).append(figures)
    print(f"{count} sentences")
    columns = [
        f"{column} {cut}" for cut in ("after", "before") for column in ("tau", "sizes", "top")
    ]
    print(" | ".join(["method", *columns]))
    for method, rows in figures_of.items():
        mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / count**0.5
        cells = [f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)]
        print(" | ".join([method, *cells]))


def compared(
    model: Any, tokenizer: Any, text: str, answer: tuple[str, str]
) -> dict[str, tuple[float, ...]]:
    """Return six numbers per method: the three columns for cuts after, then before the softmax."""
    options: dict[str, Any] = {"tokenizer": tokenizer, "progress": False}
    record = av.extract(model, text, tokenizer=tokenizer)
    ids = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in answer]
    effects = [cut(model, tokenizer, text, ids, record, before=before) for before in (False, True)]
    inside = pairs_of(len(record.tokens))
    own = np.stack(record.to_numpy())[..., inside].ravel().astype(np.float64)
    values = {"weight": own}
    for method in METHODS:
        asked: dict[str, Any] = {} if method == "value norm" else {"answer": answer}
        made = av.attribute(model, text, method=method, **asked, **options)
        values[method] = np.stack(made.to_numpy())[..., inside].ravel().astype(np.float64)
    figures = {}
    for method, numbers in values.items():
        row: list[float] = []
        for effect in effects:
            lost = -effect
            signed = method not in ("weight", "value norm")
            compared_with = lost if signed else np.abs(lost)
            row += [
                kendall_tau(numbers, compared_with),
                kendall_tau(np.abs(numbers), np.abs(lost)),
                top_found(numbers, lost),
            ]
        figures[method] = tuple(row)
    return figures


def pairs_of(size: int) -> NDArray[np.bool_]:
    """Return the causal mask (queries, keys). It excludes the first query, which has one key."""
    inside = np.tri(size, dtype=bool)
    inside[0] = False
    return inside


def top_found(numbers: Numbers, effect: Numbers) -> float:
    """Return the share of the ten largest effects that are among the ten largest numbers.

    "Largest" refers to absolute values.
    """
    ours, theirs = (set(np.argsort(-np.abs(values))[:TOP].tolist()) for values in (numbers, effect))
    return len(ours & theirs) / TOP


def cut(
    model: Any,
    tokenizer: Any,
    text: str,
    ids: list[int],
    record: av.AttentionRecord,
    *,
    before: bool,
) -> Numbers:
    """Cut each pair of each layer and head, and return the changes of the answer.

    The answer is the difference of the logits of `ids`. If `before`, the cut is before the softmax.
    """
    copies = Copies(
        model, ExampleRunner.one(model, text, None, None, {"tokenizer": tokenizer}).batch, 1
    )
    size = len(record.tokens)
    pairs = np.argwhere(pairs_of(size)).tolist()

    def difference(outputs: Any) -> Numbers:
        logits = outputs.logits[:, -1].double()
        answers: Numbers = (logits[:, ids[0]] - logits[:, ids[1]]).numpy()
        return answers

    plain = difference(copies.outputs)[0]
    changes = []
    stack = record.stack()
    for layer in stack.layers:
        target: ModuleRun = f"transformer.h.{layer}.attn", 0
        for head in range(stack.attention(layer).num_heads):
            weights = torch.from_numpy(stack.weights(layer=layer, head=head).copy())
            rows = torch.stack([weights[query] for query, _ in pairs])
            rows[torch.arange(len(pairs)), [key for _, key in pairs]] = 0
            if before:
                rows /= rows.sum(dim=1, keepdim=True).clamp_min(1e-30)

            def change(
                call: AttentionCall,
                position: ModuleRun,
                target: ModuleRun = target,
                head: int = head,
                rows: torch.Tensor = rows,
            ) -> None:
                if position == target and call.value is not None:
                    outputs = rows @ call.value[0, head]
                    for copy, (query, _) in enumerate(pairs):
                        call.output[copy, query, head] = outputs[copy]

            changes.append(difference(copies.run(len(pairs), change, before=target)) - plain)
    return np.concatenate(changes)


if __name__ == "__main__":
    main()
