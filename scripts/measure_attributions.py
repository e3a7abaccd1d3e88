"""Measure how well attributions predict the effect of cutting a pair of query and key.

    python scripts/measure_attributions.py [NUMBER OF TEXTS]

The script prints the table of docs/does-it-matter.md. It cuts every pair of query and key in
held-out sentences of the demo decoder, and measures the effect: the change of the answer. A cut
"after" the softmax sets a weight to 0. A cut "before" the softmax removes the key, so the remaining
weights of the query sum to 1.

For each method, the columns are Kendall's tau between its numbers and these effects, Kendall's tau
between absolute values, and the share of the ten largest effects that are also among the method's
ten largest numbers.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnviz as av
from attnviz.analysis import kendall_tau
from attnviz.interventions import ATTRIBUTION_METHODS
from attnviz.interventions.example import Example
from attnviz.interventions.runner import Copy, Runner
from train_demos.sentences import antecedent_sentence

SEED = 4713
TOP = 10
# Methods with one number for each pair of each head.
METHODS = {name: method for name, method in ATTRIBUTION_METHODS.items() if method.mixed is None}
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
    """Return six numbers for each method: the columns for cuts after, then before the softmax."""
    options: dict[str, Any] = {"tokenizer": tokenizer, "progress": False}
    record = av.extract(model, text, tokenizer=tokenizer)
    ids = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in answer]
    effects = [cut(model, tokenizer, text, ids, record, before=before) for before in (False, True)]
    inside = pairs_of(len(record.tokens))
    own = np.stack(record.to_numpy())[..., inside].ravel().astype(np.float64)
    values = {"weight": own}
    for name, method in METHODS.items():
        asked: dict[str, Any] = {"answer": answer} if method.has_answer else {}
        made = av.attribute(model, text, method=name, **asked, **options)
        values[name] = np.stack(made.to_numpy())[..., inside].ravel().astype(np.float64)
    figures = {}
    for name, numbers in values.items():
        row: list[float] = []
        for effect in effects:
            lost = -effect
            signed = name in METHODS and METHODS[name].signed
            compared_with = lost if signed else np.abs(lost)
            row += [
                kendall_tau(numbers, compared_with),
                kendall_tau(np.abs(numbers), np.abs(lost)),
                top_found(numbers, lost),
            ]
        figures[name] = tuple(row)
    return figures


def pairs_of(size: int) -> NDArray[np.bool_]:
    """Return a mask (queries, keys), True for visible keys of all queries but the first."""
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
    runner = Runner(Example.one(model, text, None, {"tokenizer": tokenizer}))
    runner.ask(tuple(ids))
    pairs = np.argwhere(pairs_of(len(record.tokens))).tolist()
    copies = [
        Copy(runner.change(av.Knockout(query, key, layer, head, renormalize=before)))
        for layer in record.stack().layers
        for head in range(record.stack().num_heads(layer))
        for query, key in pairs
    ]
    return np.array(runner.answers(copies, doing="cuts", unit="forward")) - runner.before


if __name__ == "__main__":
    main()
