"""How well attributions predict what cutting a pair of query and key does: every pair is cut.

    python scripts/measure_attributions.py [NUMBER OF TEXTS]

Prints the table of docs/does-it-matter.md: for held-out sentences of the demo decoder Kendall's
tau between each method and the exact effect of all pairs, the same between their sizes, and how
many of the ten pairs that matter most are among its own ten largest.
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
from attnviz.interventions.copies import Copies, Place
from attnviz.interventions.runs import Runs
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
    """Cut every pair of some sentences, and compare."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    model, tokenizer = av.demos.load("decoder")
    generator = np.random.default_rng(SEED)
    found: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(count):
        sentence = antecedent_sentence(generator, held_out=True)
        words = sentence.words
        answer = (words[sentence.answer], words[sentence.distractor])
        for method, figures in compared(model, tokenizer, sentence.prompt, answer).items():
            found.setdefault(method, []).append(figures)
    print(f"{count} sentences")
    columns = [f"{each} {cut}" for cut in ("after", "before") for each in ("tau", "sizes", "top")]
    print(" | ".join(["method", *columns]))
    for method, rows in found.items():
        mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / count**0.5
        cells = [f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)]
        print(" | ".join([method, *cells]))


def compared(
    model: Any, tokenizer: Any, text: str, answer: tuple[str, str]
) -> dict[str, tuple[float, ...]]:
    """Tau, tau of sizes and share of the top ten, for cuts after and before the softmax."""
    options: dict[str, Any] = {"tokenizer": tokenizer, "progress": False}
    record = av.extract(model, text, tokenizer=tokenizer)
    ids = [tokenizer(each, add_special_tokens=False)["input_ids"][0] for each in answer]
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
    """The pairs that a causal model has, (queries, keys), without the first query's only one."""
    inside = np.tri(size, dtype=bool)
    inside[0] = False
    return inside


def top_found(numbers: Numbers, effect: Numbers) -> float:
    """Share of the ten pairs of largest effect that are among the ten largest numbers."""
    ours, theirs = (set(np.argsort(-np.abs(each))[:TOP].tolist()) for each in (numbers, effect))
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
    """The change of the answer by each pair that is cut, layer by layer and head by head."""
    copies = Copies(model, Runs.one(model, text, None, None, {"tokenizer": tokenizer}).batch, 1)
    size = len(record.tokens)
    pairs = np.argwhere(pairs_of(size)).tolist()

    def difference(outputs: Any) -> Numbers:
        logits = outputs.logits[:, -1].double()
        found: Numbers = (logits[:, ids[0]] - logits[:, ids[1]]).numpy()
        return found

    plain = difference(copies.outputs)[0]
    found = []
    stack = record.stack()
    for layer in stack.layers:
        place: Place = f"transformer.h.{layer}.attn", 0
        for head in range(stack.attention(layer).num_heads):
            weights = torch.from_numpy(stack.weights(layer=layer, head=head).copy())
            rows = torch.stack([weights[query] for query, _ in pairs])
            rows[torch.arange(len(pairs)), [key for _, key in pairs]] = 0
            if before:
                rows /= rows.sum(dim=1, keepdim=True).clamp_min(1e-30)

            def change(
                call: AttentionCall,
                here: Place,
                place: Place = place,
                head: int = head,
                rows: torch.Tensor = rows,
            ) -> None:
                if here == place and call.value is not None:
                    outputs = rows @ call.value[0, head]
                    for copy, (query, _) in enumerate(pairs):
                        call.output[copy, query, head] = outputs[copy]

            found.append(difference(copies.run(len(pairs), change, before=place)) - plain)
    return np.concatenate(found)


if __name__ == "__main__":
    main()
